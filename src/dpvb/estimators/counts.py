"""Private regressions of counts for scikit-learn: Poisson and negative binomial."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import RegressorMixin

from dpvb.data.tables.response import BOUNDS, Response
from dpvb.estimators.base import Task, if_fitted
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.regression import BinomialLikelihoodRegression, FittedWeights
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.models.regression.likelihood import Likelihood, tail
from dpvb.results import metrics
from dpvb.results.coefficients import TableHead


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class CountRegression(RegressorMixin, BinomialLikelihoodRegression):  # type: ignore[misc]
    """What regressions of counts share: the expected count is exp(intercept + x·coef), as in R and statsmodels.

    Args:
        max_count: public bound on a count, at least 1; larger ones are clipped to it, expected ones as well, and the
            noise grows with it.
        max_exposure: public bound, in (0, 1e9], on a row's exposure, by which its expected count is multiplied: `fit`
            takes it beside offset and weights, such as the days that were counted. Larger ones are cut to it; a row
            whose exposure is not positive counts as no row. Not given: rows have no exposure.
    """

    max_count: int
    max_exposure: float | None = None

    @property
    def _beside(self) -> dict[str, Any]:
        """The bounds of what stands beside a count."""
        return {name: getattr(self, name) for name in BOUNDS.values()}

    def predict(self, X: Records, exposure: Any = None, offset: Any = None) -> Floats:
        """Expected count of each row at the posterior mean of the weights, (rows,), at most max_count.

        Args:
            X: rows.
            exposure, offset: of each row, or of all; 1 and 0 if not given.
        """
        mean_n, _ = self._psi(X, exposure=exposure, offset=offset)
        return self._fitted_likelihood.expected(mean_n)

    def predict_interval(
        self, X: Records, level: float = 0.95, *, exposure: Any = None, offset: Any = None
    ) -> tuple[Floats, Floats]:
        """Ends (low, high) of the posterior predictive interval of each row's count, (rows,); as private as X.

        The uncertainty of the weights, that of the privacy noise included, is averaged over, by quadrature.

        Args:
            X, exposure, offset: as in `predict`.
            level: least probability inside, in (0, 1).
        """
        psi = self._psi(X, table=True, exposure=exposure, offset=offset)
        return self._fitted_likelihood.count_interval(*psi, tail(level))

    @if_fitted
    def score(
        self, X: Records, y: Responses = None, *, exposure: Any = None, offset: Any = None, public: bool = False
    ) -> float:
        """Share of the deviance of public rows that the features explain; at most 1.

        Raises:
            PrivacyError: unless public=True says that the rows are not private.
        """
        return self.evaluate(X, y, exposure=exposure, offset=offset, public=public)["explained_deviance"]

    def evaluate(
        self, X: Records, y: Responses = None, *, exposure: Any = None, offset: Any = None, public: bool = False
    ) -> dict[str, float]:
        """Deviance per row, and its share that the features explain, on public rows, each of weight 1.

        Raises:
            PrivacyError: unless public=True says that the rows are not private.
        """
        mean_n, _, y_n, _, offset_n = self._measured(X, y, None, public, offset, exposure)
        likelihood, base_n = self._fitted_likelihood, np.exp(offset_n)
        base_n = base_n * (y_n.sum() / base_n.sum() if len(y_n) else 1.0)
        deviance = metrics.negative_binomial_deviance(y_n, likelihood.expected(mean_n), likelihood.r)
        return metrics.explained(deviance, metrics.negative_binomial_deviance(y_n, base_n, likelihood.r))


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegression(CountRegression):
    """Counts whose variance is their mean, under (ε, δ)-differential privacy.

    The expected count is exp(intercept + x·coef). Counts that spread more than that need a NegativeBinomialRegression:
    here their intervals would be too narrow.

    The parameters and the attributes are those of `BinomialLikelihoodRegression`.
    """

    command: ClassVar[str | None] = "poisson"

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood.of(self._response)

    @property
    def _response(self) -> Response:
        return Response("poisson", max_count=self.max_count, **self._beside)


@dataclass(frozen=True)
class FittedDispersion(FittedWeights):
    """The same of counts, with mean and standard deviation of the logarithm of a dispersion that was learned."""

    log_dispersion: float | None
    log_dispersion_std: Nonnegative | None


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class NegativeBinomialRegression(CountRegression):
    """Counts of variance mean + mean²/dispersion, under (ε, δ)-differential privacy.

    The expected count is exp(intercept + x·coef), as in R and statsmodels.

    Args:
        dispersion: public number r in [1e-6, 1e9]: R's theta, 1/alpha of statsmodels; large values come near a Poisson
            regression. Not given: it is learned in the same plan, for a small part of the budget; that needs
            covariance="full".

    Attributes:
        dispersion_: the dispersion, given or learned; of a learned one exp of the posterior mean of its logarithm.

    The other parameters and the attributes are those of `BinomialLikelihoodRegression`.
    """

    dispersion: float | None = None

    record: ClassVar[type] = FittedDispersion
    command: ClassVar[str | None] = "negative-binomial"

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood.of(self._response, self.dispersion)

    @property
    def _response(self) -> Response:
        return Response("negative_binomial", max_count=self.max_count, **self._beside)

    @property
    def _fitted_likelihood(self) -> Likelihood:
        return Likelihood.of(self._response, self.dispersion_)

    def dispersion_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Ends (low, high) of the credible interval of the dispersion; of a given one both are its value.

        Args:
            level: probability inside, in (0, 1).
        """
        self._check_posterior()
        reach = float(-ndtri(tail(level)))
        if self._log_dispersion is None:
            return self._fitted_likelihood.r, self._fitted_likelihood.r
        mean, std = self._log_dispersion
        low, high = (math.exp(min(max(end, -690.0), 690.0)) for end in (mean - reach * std, mean + reach * std))
        return low, high

    def _head(self, per: str, noise_aware: bool) -> TableHead:
        head, (low, high) = super()._head(per, noise_aware), self.dispersion_interval()
        learned = f" [{low:.4g}, {high:.4g}], learned" if self._log_dispersion is not None else ", given"
        return replace(head, model=f"{head.model}; dispersion {self.dispersion_:.4g}{learned}")

    def _learned(self, task: Task, q: Any) -> FittedDispersion:
        mean = std = None
        if task.model.likelihood.learns_dispersion:
            learned = task.model.learned(q)
            mean, std = learned.log_r, math.sqrt(learned.variance)
        return FittedDispersion(**vars(super()._learned(task, q)), log_dispersion=mean, log_dispersion_std=std)

    def _show(self, record: FittedWeights) -> None:
        assert isinstance(record, FittedDispersion)
        mean, std = record.log_dispersion, record.log_dispersion_std
        self._log_dispersion = None if mean is None or std is None else (mean, std)
        self.dispersion_ = self.dispersion if mean is None else math.exp(min(max(mean, -13.0), 20.0))
        super()._show(record)
