"""Private linear regression for scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from dpvb.data.tables.response import Response
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import AnyDesign, Table
from dpvb.estimators.base import Task, if_fitted
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.regression import FittedWeights, Regression
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive
from dpvb.guards.errors import ParameterError, check_number
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.regression import tuned
from dpvb.models.regression.expected_accuracy import LINEAR, ScoreFacts
from dpvb.models.regression.linear import Linear
from dpvb.models.regression.ridge import NormalLikelihood, WeightPosterior
from dpvb.results.coefficients import TableHead
from dpvb.results.interval_table import reach_of

# Upper limit of the error's scale in a file, in units of half the range of y, of which every error is at most 2.
_MOST = 1e6


@dataclass(frozen=True)
class FittedLine(FittedWeights):
    """Fitted quantities of a linear regression, including the residual variance.

    Attributes:
        y_range: Range of y.
        variance: Residual variance σ², for a range of half length 1.
        std: Posterior standard deviation of σ², on the same scale.
        reach: Value to which residuals are clipped in σ², on the same scale.
    """

    y_range: tuple[float, float]
    variance: Positive
    std: Nonnegative
    reach: Positive


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(RegressorMixin, Regression[Linear]):  # type: ignore[misc]
    """Fit a linear regression under (ε, δ)-differential privacy.

    The posterior of the coefficients includes the privacy noise. Residuals are clipped if this reduces the noise by
    more than it biases the estimates. Their scale is learned privately, so outliers and heavy tails have little
    influence. Other parameters and the attributes are those of `Regression`. An earlier fit as `prior` must have the
    same `y_range`. Each of its rows has the weight 1/sigma_² of that fit in the coefficients, and no weight in
    `sigma_`. A study as `prior` is in units of y.

    Args:
        y_range: Public range (low, high) of y, in units of y. Values outside are clipped. None (default): the range of
            the schema's numeric target. Without an intercept, predictions at 0 are the centre of the range: a range
            (-a, a) gives a line through the origin.

    Attributes:
        sigma_: Standard deviation of y about its mean given x, with residuals clipped to `sigma_reach_`.
        sigma_reach_: Value to which residuals are clipped, in units of y: at least four typical residuals. The privacy
            noise limits what can be estimated about longer tails.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 1))
        >>> y = 2 * X[:, 0] + rng.normal(size=5000)
        >>> model = dpvb.LinearRegression(low=-1, high=1, y_range=(-6, 6), epsilon=1.0, delta=1e-6).fit(X, y)
        >>> model.coef_.shape, model.privacy_.unit
        ((1,), 'row')
    """

    y_range: Sequence[float] | None = None

    _record_class: ClassVar[type] = FittedLine
    _command: ClassVar[str | None] = "linear"

    @property
    def _response(self) -> Response:
        if self.y_range is None:
            raise ParameterError(
                "y_range must be the range (low, high) of y that you know without looking at the data, such as "
                "y_range=(1, 99) for hours a week, got None; or a schema names it with target=Target(name, "
                'kind="numeric", low=1, high=99).'
            )
        try:
            low, high = (check_number("y_range", end, low=-1e100, high=1e100) for end in self.y_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not low < high:
            raise ParameterError(f"y_range must be two numbers (low, high), low below high, got {self.y_range!r}.")
        return Response("numeric", low=low, high=high)

    def _response_of(self, schema: Schema | None) -> Response:
        """Return kind and range of y, from y_range or from the target of the schema."""
        if self.y_range is None and schema is not None and schema.target is not None:
            if schema.target.kind != "numeric":
                raise ParameterError(
                    f"The schema's target must be of the kind 'numeric' for a linear regression, got "
                    f'{schema.target.kind!r}: Target({schema.target.name!r}, kind="numeric", low=..., high=...).'
                )
            return schema.target.response
        return self._response

    def _said_of_response(self, schema: Schema | None) -> dict[str, str]:
        response = self._response_of(schema)
        return {
            "y_range": f"y clipped to [{response.range[0]:g}, {response.range[1]:g}]",
        }

    @property
    def _said_of_parameters(self) -> str:
        return f"estimate {self.estimate!r}, the plan and all other parameters"

    def _response_for(self, X: Records, y: Responses) -> Response:
        """Return kind and range of these y; the target of a schema specifies its range."""
        schema = X.schema if isinstance(X, Table) and y is None and self.y_range is None else None
        return self._given_response if schema is None else self._response_of(schema)

    @property
    def _given_response(self) -> Response:
        """Kind and range of y without a schema: from y_range, or of the fitted model."""
        return self._fitted_response if hasattr(self, "_fitted_response") else self._response

    def _model(self, design: AnyDesign, schema: Schema | None, earlier: tuple[NormalLikelihood, ...]) -> Linear:
        fields: dict[str, Any] = {"intercept": design.intercept, "alpha": self.alpha}
        if (n_steps := self._given_steps()) is not None:
            fields["n_steps"] = n_steps
        fields["robust"] = self._is_robust(design)
        return Linear(design.width, **fields, declared=self._declared(design, schema), earlier=earlier)

    @property
    def _fixes_variance(self) -> bool:
        return True

    def _scores(self, model: Linear) -> tuple[ScoreFacts, str]:
        return LINEAR, "standard deviations of the errors"

    def _learned(self, task: Task[Linear], q: Any) -> FittedLine:
        (variance, std), reach = task.model.scale(q), task.model.reach(q)
        response = self._response_of(task.notes["schema"])
        record = FittedLine(
            **vars(super()._learned(task, q)), y_range=response.range, variance=variance, std=std, reach=reach
        )
        weights, table = (_in_units(read, response.half) for read in (record.weights, record.table))
        return replace(record, weights=weights, table=table, shift=response.middle)

    def _check(self, record: FittedWeights) -> None:
        assert isinstance(record, FittedLine)
        super()._check(record)
        if max(record.variance, record.std, record.reach) > _MOST:
            raise ValueError("errors that no fit has")

    def _show(self, record: FittedWeights) -> None:
        assert isinstance(record, FittedLine)
        low, high = record.y_range
        response = self._fitted_response = Response("numeric", low=low, high=high)
        self._sigma = record.variance, record.std, record.reach
        self.sigma_reach_ = response.half * record.reach
        self.sigma_ = response.half * math.sqrt(record.variance)
        super()._show(record)

    def sigma_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return limits (low, high) of the credible interval of `sigma_`, which include the privacy noise.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
        """
        self._check_posterior()
        variance, std, _ = self._sigma
        reach = min(reach_of(level) * std / variance, 600.0)
        return self.sigma_ * math.exp(-0.5 * reach), self.sigma_ * math.exp(0.5 * reach)

    def predict(self, X: Records) -> Floats:
        """Return the posterior mean of y for each row, (rows,). It is as private as X."""
        return self._psi(X)[0]

    def predict_interval(self, X: Records, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return limits (low, high) of posterior predictive intervals of y, (rows,). They are as private as X.

        The variance is σ² + xᵀ Cov x, which includes parameter uncertainty and the privacy noise.

        Args:
            X: Rows, as in `predict`.
            level: Probability inside the interval, in (0, 1). Default: 0.95.
        """
        reach = reach_of(level)
        mean_n, variance_n = self._psi(X, table=True)
        std_n = np.sqrt(variance_n + self.sigma_**2)
        return mean_n - reach * std_n, mean_n + reach * std_n

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, public: bool = False) -> float:
        """Return R², the share of the variance of y that the features explain, on public rows; at most 1.

        Raises:
            PrivacyError: Unless public=True.
        """
        return self.evaluate(X, y, public=public)["r2"]

    def evaluate(self, X: Records, y: Responses = None, *, public: bool = False) -> dict[str, float]:
        """Return R², root mean squared error and log density per row (nats) on public rows; y is clipped to its range.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: If rows contain NaN or infinity.
        """
        mean_n, variance_n, place_n, *_ = self._measured(X, y, None, public)
        if not len(place_n):
            return {"r2": 0.0, "rmse": 0.0, "log_density": 0.0}
        response = self._fitted_response
        y_n, variance_n = response.middle + response.half * place_n, variance_n + self.sigma_**2
        error_n, spread = y_n - mean_n, float(np.mean((y_n - y_n.mean()) ** 2))
        square = float(np.mean(error_n**2))
        return {
            "r2": 1.0 - square / spread if spread > 0 else 0.0,
            "rmse": math.sqrt(square),
            "log_density": float(-0.5 * np.mean(np.log(2 * np.pi * variance_n) + error_n**2 / variance_n)),
        }

    def _quality(self, rows: Any) -> Floats:
        """Return minus the squared error of each row at the posterior mean, relative to that of half the range of y."""
        response = self._fitted_response
        place_n = (self._psi_of(rows) - response.middle) / response.half
        return np.asarray(-((place_n - rows.y_n) ** 2))

    def _quality_range(self, model: Linear) -> tuple[float, float]:
        """Return limits of the score: minus the squared error of half the range, and 0."""
        return -1.0, 0.0

    def _head(self, per: str, noise_aware: bool) -> TableHead:
        low, high = self.sigma_interval()
        model = f"Linear regression on {self._coefficients.listed}; sigma {self.sigma_:.4g} [{low:.4g}, {high:.4g}]"
        if self.sigma_reach_ < self._fitted_response.half:
            model += f", errors counted up to {self.sigma_reach_:.4g}"
        return self._head_of(model, "response", per, noise_aware)

    @property
    def _prior(self) -> str:
        if self.alpha is not None:
            return f"N(0, I/alpha) for the weights of rows of norm 1 and y in [-1, 1], alpha {self.alpha:g}"
        return self._spread_prior(", in standard deviations of y", f"N(mean of y, {tuned.INTERCEPT_STD:g}²)")


def _in_units(read: WeightPosterior, half: float) -> WeightPosterior:
    """Return an estimate of the posterior in units of y."""
    square = half**2
    return replace(
        read,
        mean_d=half * read.mean_d,
        covariance=square * read.covariance,
        naive_covariance=square * read.naive_covariance,
        prior=square * read.prior if read.prior.ndim == 2 else read.prior,  # A diagonal one says nothing.
    )
