"""The doors: parameters, data as users have them, and results in their units; a kind of model is a line here."""

from dpvb.estimators.base import PrivateEstimator as PrivateEstimator
from dpvb.estimators.base import load as load
from dpvb.estimators.dpvi import DPVI as DPVI
from dpvb.estimators.factors import PCA as PCA
from dpvb.estimators.factors import FactorAnalysis as FactorAnalysis
from dpvb.estimators.generalized_linear import BinomialRegression as BinomialRegression
from dpvb.estimators.generalized_linear import LogisticRegression as LogisticRegression
from dpvb.estimators.generalized_linear import NegativeBinomialRegression as NegativeBinomialRegression
from dpvb.estimators.generalized_linear import PoissonRegression as PoissonRegression
from dpvb.estimators.hidden_markov import GaussianHiddenMarkovModel as GaussianHiddenMarkovModel
from dpvb.estimators.hidden_markov import HiddenMarkovModel as HiddenMarkovModel
from dpvb.estimators.lda import LDA as LDA
from dpvb.estimators.linear import LinearRegression as LinearRegression
from dpvb.estimators.linear_dynamical import LinearDynamicalSystem as LinearDynamicalSystem
from dpvb.estimators.markov_chain import MarkovChain as MarkovChain
from dpvb.estimators.mixture import GaussianMixture as GaussianMixture
from dpvb.estimators.mixture import Mixture as Mixture
from dpvb.estimators.naive_bayes import NaiveBayes as NaiveBayes
from dpvb.estimators.private import PrivateModel as PrivateModel
from dpvb.estimators.regression import compare as compare
from dpvb.estimators.sbn import SigmoidBeliefNetwork as SigmoidBeliefNetwork
