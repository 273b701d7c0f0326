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
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.regression import FittedWeights, Regression, bound_of_columns, check_beside, largest_values
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative
from dpvb.guards.errors import ParameterError, check_choice
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.models.regression import tuned
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.foreseen import ScoreFacts
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
from dpvb.results.groups import reach_of
from dpvb.results.trees import Label

Covariance = Literal["full", "diagonal"]
COVARIANCES: tuple[Covariance, ...] = get_args(Covariance)
#: Its model, by the covariance.
LikelihoodModel = FirstOrder | FirstOrderDiagonal


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class BinomialLikelihoodRegression(Regression[LikelihoodModel]):
    """What the regressions of labels and counts share: a likelihood of ψ.

    `fit` also takes offset and weights, (rows,), each with its public bound among the parameters; in a table the target
    of the schema names their columns. A row of weight w counts as w equal rows: its likelihood is raised to the power
    w, as by the frequency weights of statsmodels. So intervals take the sum of the weights for the number of rows:
    divide survey weights by their usual value. A row with a weight that is negative or no number counts as no row.
    The parameters that are not named here are those of `Regression`, and so are the attributes.

    Args:
        covariance: "full", or "diagonal" for features in the thousands.
        max_offset: public bound, in (0, 50], on the absolute value of an offset, which is added to a row's log odds or
            log mean; farther ones are cut to it. Not given: rows have no offset.
        max_weight: public bound, in (0, 1e9], on a row's weight; larger ones are cut to it, and the noise grows with
            it. Not given: rows have no weights.
    """

    covariance: Covariance = "full"
    max_offset: float | None = None
    max_weight: float | None = None

    @property
    def _likelihood(self) -> Likelihood:
        """The likelihood that the parameters name."""
        return Likelihood.of(self._response)

    @property
    def _beside(self) -> dict[str, Any]:
        """The bounds of what stands beside a response."""
        return {name: getattr(self, name) for name in BOUNDS.values() if hasattr(type(self), name)}

    @property
    def _fitted_likelihood(self) -> Likelihood:
        """The likelihood, of the fit's result."""
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
        """What a fit to private rows would do."""
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
        return TableHead(
            model, "log rate" if likelihood.is_count else "log odds", per, self._prior, noise_aware, self.privacy_
        )

    def _scores(self, model: LikelihoodModel) -> tuple[ScoreFacts, str]:
        unit, scores = "log rate" if model.likelihood.is_count else "log odds", ScoreFacts.of(model.likelihood)
        if isinstance(model, FirstOrderDiagonal):
            scores = replace(scores, power=tuned.DIAGONAL_SCALE_POWER, shrink=tuned.DIAGONAL_SCALE_SHRINK)
        return scores, unit

    def _quality(self, rows: Any) -> Floats:
        """Log-likelihood of each row at the posterior mean, times its weight."""
        score_n = self._fitted_likelihood.log_probability(self._psi_of(rows), rows.y_n, rows.trials_n)
        return score_n if rows.weight_n is None else score_n * rows.weight_n

    def _quality_range(self, model: LikelihoodModel) -> tuple[float, float]:
        """From four times the score of a uniform guess to 0, for a row of the largest weight."""
        return -4.0 * math.log1p(model.likelihood.max_y) * (self.max_weight or 1.0), 0.0

    def _model(
        self, design: AnyDesign, schema: Schema | None, earlier: tuple[NormalLikelihood, ...]
    ) -> LikelihoodModel:
        width = design.width
        fields: dict[str, Any] = {"likelihood": self._likelihood, "intercept": design.intercept, "alpha": self.alpha}
        if (n_steps := self._given_steps()) is not None:
            fields["n_steps"] = n_steps
        if self.covariance == "full":
            return FirstOrder(width, **fields, declared=self._declared(design, schema), earlier=earlier)
        if self._likelihood.learns_dispersion:
            raise ParameterError(
                "dispersion must be a number, unless covariance='full' learns it, got None. dpvb.private_select "
                "chooses among several."
            )
        if earlier:
            raise ParameterError("prior must be None, unless covariance='full'.")
        bound = largest_values(schema) if schema is not None else self.max_abs_value
        if bound is not None:
            fields["max_abs_value"] = bound_of_columns(bound, design)
        return FirstOrderDiagonal(width, **fields, declared=self._declared(design, schema))

    @property
    def _prior(self) -> str:
        if self.alpha is not None:
            return f"N(0, I/alpha) for the weights of rows of norm 1, alpha {self.alpha:g}"
        return self._spread_prior(
            "", "nearly flat" if self.covariance == "diagonal" else f"N(base rate, {tuned.INTERCEPT_STD:g}²)"
        )


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

    _command: ClassVar[str | None] = "binomial"

    @property
    def _response(self) -> Response:
        return Response("binomial", max_trials=self.max_trials, **self._beside)

    def fit(self, X: Records, y: Responses = None, trials: Any = None, **options: Any) -> Self:
        """Fit privately: y successes out of trials in each row; see `PrivateEstimator.fit`."""
        return super().fit(X, y, trials=trials, **options)

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """No row, of a table with a schema or of so many features."""
        rows = super()._no_rows(schema=schema, vocabulary=vocabulary, width=width)
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

    _command: ClassVar[str | None] = "poisson"

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
        """Ends (low, high) of the credible interval of the dispersion; of a given one both are its value.

        Args:
            level: probability inside, in (0, 1).
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
        learned = f" [{low:.4g}, {high:.4g}], learned" if self._log_dispersion is not None else ", given"
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
