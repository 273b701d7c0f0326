"""Generalised linear models: private regressions of labels, of successes out of trials, and of counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from dpvb.data.tables.response import BOUNDS, Response
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import AnyDesign
from dpvb.estimators.base import Task, if_fitted
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.regression import FittedWeights, Regression, bound_of_columns, check_beside, largest_values
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative
from dpvb.guards.errors import ParameterError, check_choice
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.regression import tuned
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.expected_accuracy import ScoreFacts
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.likelihood import (
    Likelihood,
    binomial_interval,
    both_outcomes,
    predictive,
    probability_interval,
    tail,
)
from dpvb.models.regression.ridge import NormalLikelihood
from dpvb.results import metrics
from dpvb.results.coefficients import TableHead
from dpvb.results.interval_table import reach_of
from dpvb.results.trees import Label
from dpvb.runs.run import Run

Covariance = Literal["full", "diagonal"]
COVARIANCES: tuple[Covariance, ...] = get_args(Covariance)
#: Its model, by the covariance.
LikelihoodModel = FirstOrder | FirstOrderDiagonal


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class BinomialLikelihoodRegression(Regression[LikelihoodModel]):
    """Base class of regressions of labels and counts, which have a likelihood of ψ.

    Offsets, exposures and weights of `fit` need their public bounds among the parameters. In a table, the target of the
    schema names their columns. A row of weight w is treated as w equal rows: its likelihood is raised to the power w,
    like frequency weights of statsmodels. Intervals therefore use the sum of the weights as the number of rows: divide
    survey weights by their typical value. With `robust`, the equal rows are of one unit, as for survey weights. A row
    whose weight is negative or not a number is ignored. Other parameters and attributes are those of `Regression`.

    Args:
        covariance: Posterior covariance: "full" (default), or "diagonal" for thousands of features.
        max_offset: Public upper bound on the absolute value of an offset, in (0, 50], in log odds or log mean. Larger
            offsets are clipped. None (default): rows have no offset.
        max_weight: Public upper bound on the weight of a row, in (0, 1e9]. Larger weights are clipped, and the noise is
            proportional to the bound. None (default): rows have no weights.
    """

    covariance: Covariance = "full"
    max_offset: float | None = None
    max_weight: float | None = None

    @property
    def _likelihood(self) -> Likelihood:
        """Likelihood that the parameters specify."""
        return Likelihood.of(self._response)

    @property
    def _beside(self) -> dict[str, Any]:
        """Bounds of offset, exposure and weight."""
        return {name: getattr(self, name) for name in BOUNDS.values() if hasattr(type(self), name)}

    @property
    def _fitted_likelihood(self) -> Likelihood:
        """Likelihood of the fitted model."""
        return self._likelihood

    @property
    def _sparse_rows(self) -> bool:
        return self.covariance == "diagonal"

    def _task(
        self,
        X: Records,
        y: Responses = None,
        *,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        weights: Any = None,
        group: Iterable[object] | None = None,
    ) -> Task[LikelihoodModel]:
        """Return the task of a fit to private rows.

        Args:
            trials: Private number of trials of each row, (rows,), whole numbers from 1. None (default): named by the
                schema of a table. The bound is `max_trials`.
            exposure: Private exposure of each row, (rows,), greater than 0: the factor of its expected count. None
                (default): no exposures. Needs `max_exposure`.
            offset: Private offset of each row, (rows,), in log odds or log mean. None (default): no offsets. Needs
                `max_offset`.
            weights: Private weight of each row, (rows,), at least 0. None (default): no weights. Needs `max_weight`.
        """
        check_choice("covariance", self.covariance, COVARIANCES)
        beside = {"exposure": exposure, "offset": offset, "weights": weights}
        beside = {name: value for name, value in beside.items() if value is not None}
        if y is not None:
            check_beside(self._response, beside)
        return self._task_of(X, y, trials, group, beside)

    def _said_of_response(self, schema: Schema | None) -> dict[str, str]:
        likelihood = self._likelihood
        kinds = {
            "logistic": {"classes": "the two classes"},
            "binomial": {"max_trials": f"at most {likelihood.max_trials:g} trials"},
        }
        counts = {"max_count": f"counts up to {likelihood.max_count:g}"}
        if likelihood.kind == "negative_binomial" and likelihood.dispersion is not None:
            counts = {"dispersion": f"dispersion {likelihood.dispersion:g}", **counts}
        return {
            **kinds.get(likelihood.kind, counts),
            **{BOUNDS[name]: f"{name} up to {most:g}" for name, most in self._response.columns.items()},
        }

    @property
    def _said_of_parameters(self) -> str:
        return f"covariance {self.covariance!r}, estimate {self.estimate!r}, the plan and all other parameters"

    def _head(self, per: str, noise_aware: bool) -> TableHead:
        likelihood = self._likelihood
        model = f"{likelihood.kind.replace('_', ' ').capitalize()} regression on {self._coefficients.listed}"
        scale = "log rate" if likelihood.is_count else "log odds"
        return self._head_of(model, scale, per, noise_aware)

    def _scores(self, model: LikelihoodModel) -> tuple[ScoreFacts, str]:
        unit, diagonal = "log rate" if model.likelihood.is_count else "log odds", isinstance(model, FirstOrderDiagonal)
        scores = ScoreFacts.of(model.likelihood, clips=not diagonal)
        if diagonal:
            scores = replace(scores, power=tuned.DIAGONAL_SCALE_POWER, shrink=tuned.DIAGONAL_SCALE_SHRINK)
        return scores, unit

    def _quality(self, rows: Any) -> Floats:
        """Return the log-likelihood of each row at the posterior mean, times its weight."""
        score_n = self._fitted_likelihood.log_probability(self._psi_of(rows), rows.y_n, rows.trials_n)
        return score_n if rows.weight_n is None else score_n * rows.weight_n

    def _quality_range(self, model: LikelihoodModel) -> tuple[float, float]:
        """Return limits of the score of a row: four times that of a uniform guess, and 0, for the largest weight."""
        return -4.0 * math.log1p(model.likelihood.max_y) * (self.max_weight or 1.0), 0.0

    def _model(
        self, design: AnyDesign, schema: Schema | None, earlier: tuple[NormalLikelihood, ...]
    ) -> LikelihoodModel:
        width = design.width
        fields: dict[str, Any] = {"likelihood": self._likelihood, "intercept": design.intercept, "alpha": self.alpha}
        if (n_steps := self._given_steps()) is not None:
            fields["n_steps"] = n_steps
        if self.covariance == "full":
            fields["robust"] = self._is_robust(design)
            return FirstOrder(width, **fields, declared=self._declared(design, schema), earlier=earlier)
        if self._likelihood.learns_dispersion:
            raise ParameterError(
                "dispersion must be a number, unless covariance='full' learns it, got None. dpvb.private_select "
                "chooses among several."
            )
        if earlier:
            raise ParameterError("prior must be None, unless covariance='full'.")
        if self.robust and self._is_robust(design):
            raise ParameterError("robust must be False or None, unless covariance='full', got True.")
        bound = largest_values(schema) if schema is not None else self.max_abs_value
        if bound is not None:
            fields["max_abs_value"] = bound_of_columns(bound, design)
        return FirstOrderDiagonal(width, **fields, declared=self._declared(design, schema))

    @property
    def _fixes_variance(self) -> bool:
        return self._likelihood.kind == "poisson"

    @property
    def _prior(self) -> str:
        if self.alpha is not None:
            return f"N(0, I/alpha) for the weights of rows of norm 1, alpha {self.alpha:g}"
        return self._spread_prior(
            "", "nearly flat" if self.covariance == "diagonal" else f"N(base rate, {tuned.INTERCEPT_STD:g}²)"
        )


@dataclass(frozen=True)
class FittedLogOdds(FittedWeights):
    """Fitted quantities of a regression of log odds, with the two labels."""

    classes: tuple[Label, Label]


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(ClassifierMixin, BinomialLikelihoodRegression):  # type: ignore[misc]
    """Fit a logistic regression under (ε, δ)-differential privacy.

    The posterior of the coefficients includes the privacy noise. Other parameters are those of
    `BinomialLikelihoodRegression`.

    Args:
        classes: The two public labels. `decision_function` and coefficients refer to the second. A row with any other
            label is ignored. Default: (0, 1).

    Attributes:
        coef_, intercept_: Posterior means in the units of X, (1, n_features) and (1,).
        coef_std_, intercept_std_: Posterior standard deviations, which include the privacy noise.
        classes_: The two labels.
        privacy_: Privacy statement of the fit.
        n_iter_, n_features_in_, feature_names_: Number of steps, and number and names of the features.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
        >>> y = (X[:, 0] > 0).astype(int)
        >>> model = dpvb.LogisticRegression(low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).fit(X, y)
        >>> model.predict([[0.9, 0.0], [-0.9, 0.0]])
        array([1, 0])
    """

    classes: tuple[Any, Any] = (0, 1)

    _record_class: ClassVar[type] = FittedLogOdds
    _command: ClassVar[str | None] = "logistic"

    @property
    def _response(self) -> Response:
        return Response("logistic", classes=self.classes, **self._beside)

    def _learned(self, task: Task[LikelihoodModel], q: Any) -> FittedLogOdds:
        target = task.notes["target"]
        classes = self.classes if target is None else target.classes
        return FittedLogOdds(**vars(super()._learned(task, q)), classes=tuple(classes))

    def _show(self, record: FittedWeights) -> None:
        assert isinstance(record, FittedLogOdds)
        super()._show(record)
        self.classes_ = np.asarray(record.classes)

    def decision_function(self, X: Records, offset: Any = None) -> Floats:
        """Return the posterior mean of the log odds of the second class, (rows,). It is as private as X."""
        return self._psi(X, offset=offset)[0]

    def predict_proba(self, X: Records, offset: Any = None) -> Floats:
        """Return posterior predictive probabilities of the two classes, (rows, 2). They are as private as X.

        The probabilities are averaged over the posterior of the weights, which includes the privacy noise. Rows are
        clipped as in the fit.

        Args:
            X: Rows.
            offset: Offset of each row, or one number for all. None (default): 0.

        Raises:
            DataFormatError: If rows have another width, or contain NaN or infinity.
        """
        return both_outcomes(*self._psi(X, offset=offset))

    def predict_interval(self, X: Records, level: float = 0.95, *, offset: Any = None) -> tuple[Floats, Floats]:
        """Return limits (low, high) of credible intervals of the probability of the second class, (rows,).

        Args:
            X: Rows, as in `predict_proba`.
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            offset: Offset of each row, or one number for all. None (default): 0.
        """
        return probability_interval(*self._psi(X, table=True, offset=offset), tail(level))

    def predict_log_proba(self, X: Records, offset: Any = None) -> Floats:
        """Return logarithms of `predict_proba`; -inf for a probability below the smallest float."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, offset))

    def predict(self, X: Records, offset: Any = None) -> NDArray[Any]:
        """Return the more probable class of each row, (rows,). It is as private as X."""
        positive_n = self.decision_function(X, offset) > 0
        return np.asarray(self.classes_[positive_n.astype(np.int64)])

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, offset: Any = None, public: bool = False) -> float:
        """Return the accuracy on public rows.

        Raises:
            PrivacyError: Unless public=True.
        """
        return self.evaluate(X, y, offset=offset, public=public)["accuracy"]

    def evaluate(
        self, X: Records, y: Responses = None, *, offset: Any = None, public: bool = False
    ) -> dict[str, float]:
        """Return AUC, log-likelihood per row, accuracy and calibration error (10 bins) on public rows of weight 1.

        Args:
            X, y: Public rows and labels, as in `fit`; rows are clipped as in the fit.
            offset: Offset of each row, or one number for all. None (default): 0.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: If rows contain NaN, infinity or another label.
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
        """Return values as scikit-learn does for two classes: (1, n_features) and (1,)."""
        coef, intercept = super()._shown(value_r)
        return coef[None, :], np.array([intercept])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = bool(np.isfinite(self.epsilon))  # of few rows the noise leaves little
        return tags


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class BinomialRegression(RegressorMixin, BinomialLikelihoodRegression):  # type: ignore[misc]
    """Fit a logistic regression of successes out of trials, under (ε, δ)-differential privacy.

    Other parameters and the attributes are those of `BinomialLikelihoodRegression`.

    Args:
        max_trials: Public upper bound on the number of trials of a row, at least 1. A row with more trials is ignored,
            and the noise is proportional to the bound.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 1))
        >>> y = rng.binomial(5, 1 / (1 + np.exp(-2 * X[:, 0])))
        >>> model = dpvb.BinomialRegression(max_trials=5, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6)
        >>> model.fit(X, y, trials=np.full(5000, 5)).coef_.shape
        (1,)
    """

    max_trials: int

    _command: ClassVar[str | None] = "binomial"

    @property
    def _response(self) -> Response:
        return Response("binomial", max_trials=self.max_trials, **self._beside)

    def fit(
        self,
        X: Records,
        y: Responses = None,
        trials: Any = None,
        *,
        group: Iterable[object] | None = None,
        run: Run | None = None,
        **rows: Any,
    ) -> Self:
        """Fit the model to successes y out of trials in each row, and return it; see `PrivateEstimator.fit`.

        Args:
            X: Private rows, in the forms that the class documents.
            y: Private number of successes of each row, (rows,). None (default): named by the schema of a table.
            trials: Private number of trials of each row, (rows,). None (default): named by the schema of a table.
            group: Private person ID of each row. None (default): each row is a unit, unless X specifies persons.
            run: As in `PrivateEstimator.fit`. None (default): that of the surrounding block, or of the environment.

        Returns:
            The fitted estimator itself.
        """
        return super().fit(X, y, trials=trials, group=group, run=run, **rows)

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """Return arguments without rows, for a table with a schema or a number of features."""
        rows = super()._no_rows(schema=schema, vocabulary=vocabulary, width=width)
        return rows if schema is not None else {**rows, "trials": np.empty(0)}

    def predict_proba(self, X: Records, offset: Any = None) -> Floats:
        """Return posterior predictive probabilities of failure and success in a trial, (rows, 2). As private as X."""
        return both_outcomes(*self._psi(X, offset=offset))

    def predict(self, X: Records, trials: Any = 1, offset: Any = None) -> Floats:
        """Return the expected number of successes of each row, (rows,), which is as private as X."""
        return np.asarray(self.predict_proba(X, offset)[:, 1] * np.asarray(trials, dtype=np.float64))

    def predict_interval(
        self, X: Records, trials: Any = 1, level: float = 0.95, *, offset: Any = None
    ) -> tuple[Floats, Floats]:
        """Return limits (low, high) of posterior predictive intervals of the number of successes, (rows,).

        The intervals are averaged, by quadrature, over the posterior of the weights, which includes the privacy noise.

        Args:
            X: Rows.
            trials: Number of trials of each row, or one number for all. Default: 1.
            level: Probability inside the interval, at least, in (0, 1). Default: 0.95.
            offset: Offset of each row, or one number for all. None (default): 0.
        """
        return binomial_interval(*self._psi(X, table=True, offset=offset), trials, tail(level))

    @if_fitted
    def score(
        self, X: Records, y: Responses = None, trials: Any = None, *, offset: Any = None, public: bool = False
    ) -> float:
        """Return the share of the binomial deviance of public rows that the features explain, at most 1.

        Raises:
            PrivacyError: Unless public=True.
        """
        return self.evaluate(X, y, trials, offset=offset, public=public)["explained_deviance"]

    def evaluate(
        self, X: Records, y: Responses = None, trials: Any = None, *, offset: Any = None, public: bool = False
    ) -> dict[str, float]:
        """Return deviance per row, and the share that features and offset explain, on public rows of weight 1.

        Raises:
            PrivacyError: Unless public=True.
        """
        mean_n, variance_n, y_n, trials_n, _ = self._measured(X, y, trials, public, offset)
        base_n = np.full(len(y_n), y_n.sum() / max(trials_n.sum(), 1.0))
        deviance = metrics.binomial_deviance(y_n, predictive(mean_n, variance_n), trials_n)
        return metrics.explained(deviance, metrics.binomial_deviance(y_n, base_n, trials_n))


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class CountRegression(RegressorMixin, BinomialLikelihoodRegression):  # type: ignore[misc]
    """Base class of regressions of counts, whose expected value is exp(intercept + x·coef), as in R and statsmodels.

    Other parameters and the attributes are those of `BinomialLikelihoodRegression`.

    Args:
        max_count: Public upper bound on a count, at least 1. Larger counts and predictions are clipped to it. With
            covariance="diagonal" the noise is proportional to it.
        max_exposure: Public upper bound on the exposure of a row, in (0, 1e9], for example a number of days. Expected
            counts are multiplied by the exposure. Larger exposures are clipped, and a row whose exposure is not
            positive is ignored. None (default): rows have no exposure.
    """

    max_count: int
    max_exposure: float | None = None

    def predict(self, X: Records, exposure: Any = None, offset: Any = None) -> Floats:
        """Return the expected count of each row at the posterior mean of the weights, (rows,), at most max_count.

        Args:
            X: Rows.
            exposure: Exposure of each row, or one number for all. None (default): 1.
            offset: Offset of each row, or one number for all. None (default): 0.
        """
        mean_n, _ = self._psi(X, exposure=exposure, offset=offset)
        return self._fitted_likelihood.expected(mean_n)

    def predict_interval(
        self, X: Records, level: float = 0.95, *, exposure: Any = None, offset: Any = None
    ) -> tuple[Floats, Floats]:
        """Return limits (low, high) of posterior predictive intervals of the counts, (rows,).

        The intervals are averaged, by quadrature, over the posterior of the weights, which includes the privacy noise.

        Args:
            X, exposure, offset: As in `predict`.
            level: Probability inside the interval, at least, in (0, 1). Default: 0.95.
        """
        psi = self._psi(X, table=True, exposure=exposure, offset=offset)
        return self._fitted_likelihood.count_interval(*psi, tail(level))

    @if_fitted
    def score(
        self, X: Records, y: Responses = None, *, exposure: Any = None, offset: Any = None, public: bool = False
    ) -> float:
        """Return the share of the deviance of public rows that the features explain, at most 1.

        Raises:
            PrivacyError: Unless public=True.
        """
        return self.evaluate(X, y, exposure=exposure, offset=offset, public=public)["explained_deviance"]

    def evaluate(
        self, X: Records, y: Responses = None, *, exposure: Any = None, offset: Any = None, public: bool = False
    ) -> dict[str, float]:
        """Return deviance per row, and the share that the features explain, on public rows of weight 1.

        Raises:
            PrivacyError: Unless public=True.
        """
        mean_n, _, y_n, _, offset_n = self._measured(X, y, None, public, offset, exposure)
        likelihood, base_n = self._fitted_likelihood, np.exp(offset_n)
        base_n = base_n * (y_n.sum() / base_n.sum() if len(y_n) else 1.0)
        deviance = metrics.negative_binomial_deviance(y_n, likelihood.expected(mean_n), likelihood.r)
        return metrics.explained(deviance, metrics.negative_binomial_deviance(y_n, base_n, likelihood.r))


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegression(CountRegression):
    """Fit a Poisson regression of counts under (ε, δ)-differential privacy.

    The mean of a count is exp(intercept + x·coef), and so is its variance, unless `robust` (default) estimates the
    variance. For counts with many times this variance use `NegativeBinomialRegression`. The parameters and the
    attributes are those of `CountRegression` and `BinomialLikelihoodRegression`.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 1))
        >>> y = rng.poisson(np.exp(1 + X[:, 0]))
        >>> model = dpvb.PoissonRegression(max_count=30, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).fit(X, y)
        >>> model.coef_.shape
        (1,)
    """

    _command: ClassVar[str | None] = "poisson"

    @property
    def _response(self) -> Response:
        return Response("poisson", max_count=self.max_count, **self._beside)


@dataclass(frozen=True)
class FittedDispersion(FittedWeights):
    """Fitted quantities of a regression of counts, with mean and standard deviation of a learned log dispersion."""

    log_dispersion: float | None
    log_dispersion_std: Nonnegative | None


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class NegativeBinomialRegression(CountRegression):
    """Fit a negative binomial regression of counts under (ε, δ)-differential privacy.

    The mean of a count is exp(intercept + x·coef), and its variance mean + mean²/dispersion. Other parameters and the
    attributes are those of `CountRegression` and `BinomialLikelihoodRegression`.

    Args:
        dispersion: Public dispersion r, in [1e-6, 1e9]: R's theta, or 1/alpha of statsmodels. Large values approximate
            a Poisson regression. None (default): estimated with a small part of the budget, which needs
            covariance="full".

    Attributes:
        dispersion_: Dispersion, given or estimated (exp of the posterior mean of its logarithm).

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 1))
        >>> y = rng.negative_binomial(2, 0.4, 5000)
        >>> model = dpvb.NegativeBinomialRegression(max_count=30, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6)
        >>> model.fit(X, y).coef_.shape
        (1,)
    """

    dispersion: float | None = None

    _record_class: ClassVar[type] = FittedDispersion
    _command: ClassVar[str | None] = "negative-binomial"

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
        """Return limits (low, high) of the credible interval of the dispersion; both are its value if it is given.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
        """
        self._check_posterior()
        reach = reach_of(level)
        if self._log_dispersion is None:
            return self._fitted_likelihood.r, self._fitted_likelihood.r
        mean, std = self._log_dispersion
        low, high = (math.exp(min(max(end, -690.0), 690.0)) for end in (mean - reach * std, mean + reach * std))
        return low, high

    def _head(self, per: str, noise_aware: bool) -> TableHead:
        head, (low, high) = super()._head(per, noise_aware), self.dispersion_interval()
        learned = ", given"
        if self._log_dispersion is not None:
            # Below one half, as in the table, the interval mostly reflects the prior.
            contraction = 1.0 - (self._log_dispersion[1] / tuned.DISPERSION_STD) ** 2
            source = "learned" if contraction >= 0.5 else "mostly its prior"
            learned = f" [{low:.4g}, {high:.4g}], {source}"
        return replace(head, model=f"{head.model}; dispersion {self.dispersion_:.4g}{learned}")

    def _learned(self, task: Task[LikelihoodModel], q: Any) -> FittedDispersion:
        mean = std = None
        if isinstance(task.model, FirstOrder) and task.model.likelihood.learns_dispersion:
            learned = task.model.learned(q)
            mean, std = learned.log_r, math.sqrt(learned.variance)
        return FittedDispersion(**vars(super()._learned(task, q)), log_dispersion=mean, log_dispersion_std=std)

    def _show(self, record: FittedWeights) -> None:
        assert isinstance(record, FittedDispersion)
        mean, std = record.log_dispersion, record.log_dispersion_std
        self._log_dispersion = None if mean is None or std is None else (mean, std)
        self.dispersion_ = self.dispersion if mean is None else math.exp(min(max(mean, -13.0), 20.0))
        super()._show(record)
