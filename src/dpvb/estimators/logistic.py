"""Private logistic regression for scikit-learn: of classes, and of successes out of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from dpvb.data.tables.response import Response
from dpvb.data.tables.schema import Schema
from dpvb.estimators.base import Task, if_fitted
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.regression import BinomialLikelihoodRegression, FittedWeights
from dpvb.guards.arrays import Floats
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.models.regression.likelihood import (
    Likelihood,
    binomial_interval,
    both_outcomes,
    predictive,
    probability_interval,
    tail,
)
from dpvb.results import metrics
from dpvb.results.trees import Label


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


@dataclass(frozen=True)
class FittedLogOdds(FittedWeights):
    """The same of log odds, with the two labels."""

    classes: tuple[Label, Label]


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(ClassifierMixin, BinomialLikelihoodRegression):  # type: ignore[misc]
    """Logistic regression under (ε, δ)-differential privacy, with a posterior that knows the privacy noise.

    The parameters that are not named here are those of `BinomialLikelihoodRegression`.

    Args:
        classes: the two labels; the second is the one that `decision_function` speaks for. A row with any other label
            counts as no row.

    Attributes:
        coef_, intercept_: posterior means in the units of X, (1, n_features) and (1,).
        coef_std_, intercept_std_: posterior standard deviations, the privacy noise counted in.
        classes_: the two labels.
        privacy_: the privacy statement of the fit.
        n_iter_, n_features_in_, feature_names_: steps, and number and names of the features.
    """

    classes: tuple[Any, Any] = (0, 1)

    record: ClassVar[type] = FittedLogOdds
    command: ClassVar[str | None] = "logistic"

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood.of(self._response)

    @property
    def _response(self) -> Response:
        return Response("logistic", classes=self.classes, max_offset=self.max_offset, max_weight=self.max_weight)

    def _learned(self, task: Task, q: Any) -> FittedLogOdds:
        target = task.notes["target"]
        classes = self.classes if target is None else target.classes
        return FittedLogOdds(**vars(super()._learned(task, q)), classes=tuple(classes))

    def _show(self, record: FittedWeights) -> None:
        assert isinstance(record, FittedLogOdds)
        super()._show(record)
        self.classes_ = np.asarray(record.classes)

    def decision_function(self, X: Records, offset: Any = None) -> Floats:
        """Posterior mean of the log odds of the second class, (rows,); as private as X."""
        return self._psi(X, offset=offset)[0]

    def predict_proba(self, X: Records, offset: Any = None) -> Floats:
        """Posterior predictive probabilities of the two classes, (rows, 2); as private as X.

        The weights' uncertainty, that of the privacy noise included, is averaged over. Rows are clipped as in fit.

        Args:
            X: rows.
            offset: of each row, or of all; 0 if not given.

        Raises:
            DataFormatError: for rows of another width, or that hold NaN or infinity.
        """
        return both_outcomes(*self._psi(X, offset=offset))

    def predict_interval(self, X: Records, level: float = 0.95, *, offset: Any = None) -> tuple[Floats, Floats]:
        """Ends (low, high) of the credible interval of the probability of the second class, (rows,); as private as X.

        Args:
            X, offset: as in `predict_proba`.
            level: probability inside, in (0, 1).
        """
        return probability_interval(*self._psi(X, table=True, offset=offset), tail(level))

    def predict_log_proba(self, X: Records, offset: Any = None) -> Floats:
        """Logarithms of `predict_proba`, -inf for what is below the smallest number."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, offset))

    def predict(self, X: Records, offset: Any = None) -> NDArray[Any]:
        """The likelier class of each row, (rows,)."""
        positive_n = self.decision_function(X, offset) > 0
        return np.asarray(self.classes_[positive_n.astype(np.int64)])

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, offset: Any = None, public: bool = False) -> float:
        """Accuracy on public rows.

        Raises:
            PrivacyError: unless public=True says that the rows are not private.
        """
        return self.evaluate(X, y, offset=offset, public=public)["accuracy"]

    def evaluate(
        self, X: Records, y: Responses = None, *, offset: Any = None, public: bool = False
    ) -> dict[str, float]:
        """AUC, log-likelihood per row, accuracy and calibration error (10 bins) on public rows, each of weight 1.

        Args:
            X, y, offset: as in `fit`; rows are clipped as there.
            public: states that the rows are not private.

        Raises:
            PrivacyError: unless public=True.
            DataFormatError: for rows that hold NaN or infinity, or another label.
        """
        mean_n, variance_n, y_n, *_ = self._measured(X, y, None, public, offset)
        p_n = predictive(mean_n, variance_n)
        observed_n = predictive(np.where(y_n > 0, mean_n, -mean_n), variance_n)
        return {
            "auc": metrics.auc(y_n, p_n),
            "log_likelihood": metrics.log_likelihood(np.ones(len(y_n)), observed_n),
            "accuracy": float(np.mean((mean_n > 0) == (y_n > 0))) if len(y_n) else 1.0,
            "calibration_error": metrics.calibration_error(y_n, p_n),
        }

    def _shown(self, value_r: Floats) -> tuple[Any, Any]:
        """As scikit-learn has it for two classes: (1, n_features) and (1,)."""
        coef, intercept = super()._shown(value_r)
        return coef[None, :], np.array([intercept])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = bool(np.isfinite(self.epsilon))  # of few rows the noise leaves little
        return tags
