"""Private regression of successes out of trials for scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from dpvb.data.tables.response import Response
from dpvb.data.tables.schema import Schema
from dpvb.estimators.base import if_fitted
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.regression import BinomialLikelihoodRegression
from dpvb.guards.arrays import Floats
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.models.regression.likelihood import Likelihood, binomial_interval, both_outcomes, predictive, tail
from dpvb.results import metrics


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class BinomialRegression(RegressorMixin, BinomialLikelihoodRegression):  # type: ignore[misc]
    """Successes out of trials: logistic regression of counted rows, under (ε, δ)-differential privacy.

    A row's influence is bounded as one: the noise grows with max_trials.

    Args:
        max_trials: public bound on a row's trials, at least 1; a row with more counts as no row.

    The other parameters and the attributes are those of `BinomialLikelihoodRegression`.
    """

    max_trials: int

    command: ClassVar[str | None] = "binomial"

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood.of(self._response)

    @property
    def _response(self) -> Response:
        return Response("binomial", max_trials=self.max_trials, max_offset=self.max_offset, max_weight=self.max_weight)

    def fit(self, X: Records, y: Responses = None, trials: Any = None, **options: Any) -> Self:
        """Fit privately: y successes out of trials in each row; see `PrivateEstimator.fit`."""
        return super().fit(X, y, trials=trials, **options)

    def no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """No row, of a table with a schema or of so many features."""
        rows = super().no_rows(schema=schema, vocabulary=vocabulary, width=width)
        return rows if schema is not None else {**rows, "trials": np.empty(0)}

    def predict_proba(self, X: Records, offset: Any = None) -> Floats:
        """Posterior predictive probabilities of failure and success in a trial, (rows, 2); as private as X."""
        return both_outcomes(*self._psi(X, offset=offset))

    def predict(self, X: Records, trials: Any = 1, offset: Any = None) -> Floats:
        """Expected number of successes of each row in so many trials, (rows,); of one trial: the probability."""
        return np.asarray(self.predict_proba(X, offset)[:, 1] * np.asarray(trials, dtype=np.float64))

    def predict_interval(
        self, X: Records, trials: Any = 1, level: float = 0.95, *, offset: Any = None
    ) -> tuple[Floats, Floats]:
        """Ends (low, high) of the posterior predictive interval of successes in so many trials, (rows,).

        The uncertainty of the weights, that of the privacy noise included, is averaged over, by quadrature. The ends
        are as private as X.

        Args:
            X, offset: as in `predict`.
            trials: number of trials of each row, or of all.
            level: least probability inside, in (0, 1).
        """
        return binomial_interval(*self._psi(X, table=True, offset=offset), trials, tail(level))

    @if_fitted
    def score(
        self, X: Records, y: Responses = None, trials: Any = None, *, offset: Any = None, public: bool = False
    ) -> float:
        """Share of the binomial deviance of public rows that the features explain; at most 1.

        Raises:
            PrivacyError: unless public=True says that the rows are not private.
        """
        return self.evaluate(X, y, trials, offset=offset, public=public)["explained_deviance"]

    def evaluate(
        self, X: Records, y: Responses = None, trials: Any = None, *, offset: Any = None, public: bool = False
    ) -> dict[str, float]:
        """Deviance per row, and its share that features and offset explain, on public rows, each of weight 1.

        Raises:
            PrivacyError: unless public=True says that the rows are not private.
        """
        mean_n, variance_n, y_n, trials_n, _ = self._measured(X, y, trials, public, offset)
        base_n = np.full(len(y_n), y_n.sum() / max(trials_n.sum(), 1.0))
        deviance = metrics.binomial_deviance(y_n, predictive(mean_n, variance_n), trials_n)
        return metrics.explained(deviance, metrics.binomial_deviance(y_n, base_n, trials_n))
