"""The doors: parameters, data as users have them, and results in their units; a kind of model is a line here."""

from dpvb.estimators.base import PrivateEstimator as PrivateEstimator
from dpvb.estimators.base import load as load
from dpvb.estimators.comparison import compare as compare
from dpvb.estimators.dpvi import DPVI as DPVI
from dpvb.estimators.factors import PCA as PCA
from dpvb.estimators.factors import FactorAnalysis as FactorAnalysis
from dpvb.estimators.lda import LDA as LDA
from dpvb.estimators.private import Private as Private
from dpvb.estimators.regression import BinomialRegression as BinomialRegression
from dpvb.estimators.regression import LogisticRegression as LogisticRegression
from dpvb.estimators.regression import NegativeBinomialRegression as NegativeBinomialRegression
from dpvb.estimators.regression import PoissonRegression as PoissonRegression
from dpvb.estimators.sbn import SigmoidBeliefNetwork as SigmoidBeliefNetwork
