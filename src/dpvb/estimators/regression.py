"""Common parts of private regressions: rows, a Gaussian posterior of the coefficients, and the coefficient table."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from dpvb.core.model import ESTIMATES, PosteriorOrMAP
from dpvb.core.plan import Plan
from dpvb.data.tables.columns import INDICATOR
from dpvb.data.tables.coordinates import LevelCoding
from dpvb.data.tables.design import Design
from dpvb.data.tables.response import BOUNDS, Response
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import AnyDesign, Table
from dpvb.estimators.base import (
    Fitted,
    PrivateEstimator,
    Task,
    check_width,
    column_names,
    generator,
    not_settled,
)
from dpvb.estimators.coefficients import Coefficients, KnownWeights, is_of_a_fit, known_coefficients, stated
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.prior_fits import known
from dpvb.estimators.ranges import FittedColumns, bounded
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer, check_number
from dpvb.guards.missing_arguments import constructor_says_what_lacks, says_what_lacks
from dpvb.kernels import linear
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature_then_scores import CurvatureThenScores
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.expected_accuracy import ScoreFacts
from dpvb.models.regression.ridge import NormalLikelihood, WeightPosterior
from dpvb.models.regression.scaling import NO_PRODUCTS, Declared
from dpvb.results import trees
from dpvb.results.coefficients import Coefficient, CoefficientTable, Per, Summary, TableHead, difference, for_arviz
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Facts, Figure
from dpvb.results.interval_table import reach_of

RegressionModel = TypeVar("RegressionModel", bound=CurvatureThenScores | FirstOrderDiagonal)


@dataclass(frozen=True)
class FittedWeights:
    """Fitted quantities: two estimates of the posterior of the weights.

    Attributes:
        columns: Columns of the rows.
        weights: Posterior for predictions, in units of the response.
        table: Posterior for intervals, in units of the response.
        shift: Constant that is added to ψ.
        prior: Source of the prior, in words. Empty: the prior of the model.
        robust: Whether the variance of the scores of units was released.
        convergence_ratio: Bias of the weights by too few steps, in posterior standard deviations.
    """

    columns: FittedColumns
    weights: WeightPosterior
    table: WeightPosterior
    shift: float
    prior: str
    robust: bool
    convergence_ratio: Nonnegative


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class Regression(PrivateEstimator[RegressionModel, Any]):
    """Base class of all regressions: ψ = intercept + x·coef, a Gaussian posterior of the coefficients, and their table.

    X is a NumPy array or SciPy sparse matrix, (rows, n_features), or a `dpvb.Table`, which contains the response. A
    plain X needs public bounds: `low` and `high`, or `max_row_norm`. Other parameters are those of `PrivateEstimator`.

    Args:
        low, high: Public range of each column of a plain X: numbers, arrays of shape (n_features,) or mappings of
            column names, in units of the column. Values outside the range are clipped. None (default): given by a
            schema, or replaced by `max_row_norm`.
        max_row_norm: Public upper bound on the Euclidean norm of a row of X, including the intercept, in units of X.
            Longer rows are scaled down, in the fit and in predictions. Use it instead of `low` and `high` if all
            columns share one unit. None (default): not used.
        fit_intercept: Whether the model has an intercept. Default: True.
        relative_intercept: Constant of the intercept relative to `max_row_norm`, in (0, 1), the analogue of
            scikit-learn's `intercept_scaling`. The norm of the features is at most √(1 -
            relative_intercept²)·max_row_norm. Larger values estimate the intercept better and the features worse.
            Default: 0.4.
        max_abs_value: Public upper bound on the absolute values of each column, a number or an array of shape
            (n_features,), in units of X. It is used with `max_row_norm`. None (default): `max_row_norm`.
        numeric: Columns that are numbers rather than indicators, with `max_row_norm`: their indices, or True for all.
            Their centres and scales are released, so neither bounds nor units affect the fit. Default: none. A schema
            declares numeric columns, and columns with `low` and `high` are numeric.
        alpha: Precision of the prior N(0, I/alpha) of the weights of rows of norm 1, greater than 0. None (default):
            priors are relative to the estimated scale of each column.
        prior: Prior information, with covariance="full": a fitted estimator of the same class for other people, the
            path of its file, or coefficients of a public study by row names of `coefficients`, with mean and standard
            deviation, such as {"age": (0.03, 0.01)}, or the path of a .json file. None (default): only the prior of the
            model.
        public_prior: Whether the rows of an earlier fit in `prior` were public, or of people who are not in these data.
            Default: False: the statement adds up both budgets.
        estimate: "posterior" (default), or "map" for the posterior mode (MAP estimate), which has no intervals and
            whose predictions ignore parameter uncertainty.
        robust: Whether the variance of coefficients is estimated from the scores of units, as a sandwich estimator
            does: intervals then include correlation among the rows of a person, and a variance of the responses that
            differs from the model's. This takes 3 % of the budget. None (default): True if rows belong to persons, and
            for `LinearRegression` and `PoissonRegression`, whose models fix that variance; False otherwise, and with
            covariance="diagonal", which cannot be robust.

    Attributes:
        coef_, intercept_: Posterior means in the units of X, (n_features,) and a number. For a table, per unit of a
            number (after a declared transform) and per category.
        coef_std_, intercept_std_: Posterior standard deviations, which include the privacy noise. None for a mode.
        privacy_: Privacy statement of the fit.
        n_iter_, n_features_in_, feature_names_: Number of steps, and number and names of the features.
    """

    low: float | Sequence[float] | Mapping[str, float] | NDArray[Any] | None = None
    high: float | Sequence[float] | Mapping[str, float] | NDArray[Any] | None = None
    max_row_norm: float | None = None
    fit_intercept: bool = True
    relative_intercept: float = 0.4
    max_abs_value: float | Sequence[float] | NDArray[Any] | None = None
    numeric: bool | Sequence[int] | NDArray[Any] | None = None
    alpha: float | None = None
    prior: PrivateEstimator | Fitted | Mapping[str, tuple[float, float]] | Path | str | None = None
    public_prior: bool = False
    estimate: PosteriorOrMAP = "posterior"
    robust: bool | None = None

    _declares: ClassVar[tuple[str, ...]] = ("schema", "width")
    _record_class: ClassVar[type] = FittedWeights
    _reads: ClassVar[str | None] = "rows"
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse",)
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "fit_intercept": "intercept"}

    @property
    @abstractmethod
    def _response(self) -> Response:
        """Kind and range of the response."""

    @property
    def _given_response(self) -> Response:
        """Kind and range of the response without a schema."""
        return self._response

    def _response_of(self, schema: Schema | None) -> Response:
        """Return kind and range of the response, from the parameters or from the target of the schema."""
        return self._response

    def _response_for(self, X: Records, y: Responses) -> Response:
        """Return kind and range of the responses of these rows."""
        return self._response

    @property
    @abstractmethod
    def _prior(self) -> str:
        """Prior of the table, in words."""

    @abstractmethod
    def _model(
        self, design: AnyDesign, schema: Schema | None, earlier: tuple[NormalLikelihood, ...]
    ) -> RegressionModel:
        """Return the model of the parameters, with normal likelihoods of earlier data if there are any."""

    @abstractmethod
    def _said_of_response(self, schema: Schema | None) -> dict[str, str]:
        """Return the public facts about the response."""

    @property
    @abstractmethod
    def _said_of_parameters(self) -> str:
        """Return the public facts about the parameters."""

    def _is_robust(self, design: AnyDesign) -> bool:
        """Return whether the variance of the scores of units is released."""
        if self.robust is None:
            return design.unit == "person" or self._fixes_variance
        if not isinstance(self.robust, (bool, np.bool_)):
            raise ParameterError(f"robust must be True, False or None, got {self.robust!r}.")
        return bool(self.robust)

    @property
    def _fixes_variance(self) -> bool:
        """Whether the variance of responses is a function of their mean that data often contradict."""
        return False

    def _earlier(self, columns: FittedColumns) -> tuple[tuple[NormalLikelihood, ...], str]:
        """Return likelihoods of the weights from `prior`, for predictions and for intervals, and their source."""
        if self.prior is None:
            return (), ""
        rows = columns, self._response_of(columns.schema)
        study, example = "coefficients to (mean, std)", '{"age": [0.03, 0.01]}'
        return known(self, rows, stated=stated, study=study, example=example)

    def _as_prior(self, columns: tuple[FittedColumns, Response]) -> tuple[KnownWeights, str]:
        """Return the likelihood of the weights given the rows, for predictions and for intervals.

        Raises:
            ParameterError: If columns, scales or ranges of the response differ, or if a file has no normal likelihood.
        """
        self._check_fitted()
        rows, response = columns
        rows.check_earlier(self._columns)
        asked, had = rows.constant, self._columns.constant
        if asked != had:
            raise ParameterError(f"prior must have the intercept of the fit, {asked:g}; its own is {had:g}.")
        if response.kind == "numeric" and self._given_response != response:
            asks, has = (f"({one.range[0]:g}, {one.range[1]:g})" for one in (response, self._given_response))
            raise ParameterError(f"prior must have the y_range of the fit, {asks}; its own is {has}.")
        if self._weights.data is None or self._table.data is None:
            full = " with covariance='full'" if hasattr(self, "covariance") else ""
            raise ParameterError(f"prior must be a fit{full}, whose file holds what its rows said.")
        both = self._weights.data, self._table.data
        if not all(map(is_of_a_fit, both)):
            raise ParameterError("prior must be the file of a fit: it contains no normal likelihood of coefficients.")
        return both, "coefficients"

    @property
    def _sparse_rows(self) -> bool:
        """Whether the model reads sparse rows."""
        return False

    def credible_interval(
        self, level: float = 0.95, *, noise_aware: bool = True, intercept: bool = False
    ) -> tuple[Any, Any]:
        """Return limits (low, high) of the credible intervals of the coefficients, each of the shape of `coef_`.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            noise_aware: Whether intervals include the privacy noise. Default: True. False is only for comparison: such
                intervals are too short.
            intercept: Whether to return the interval of `intercept_` instead. Default: False.

        Raises:
            ParameterError: If `level` is outside (0, 1), or for a mode.
        """
        self._check_posterior()
        reach = reach_of(level)
        std, intercept_std = self._stds(noise_aware)
        mean, margin = (self.intercept_, reach * intercept_std) if intercept else (self.coef_, reach * std)
        return mean - margin, mean + margin

    def coefficients(
        self,
        level: float = 0.95,
        *,
        noise_aware: bool = True,
        coding: LevelCoding = "reference",
        exp: bool = False,
        per: Per = "unit",
        reference: Mapping[str, Any] | None = None,
    ) -> CoefficientTable:
        """Return the coefficient table: the intercept, then a row for each number and each level.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            noise_aware: Whether intervals include the privacy noise. Default: True. False is only for comparison: such
                intervals are too short.
            coding: Comparison of the levels of a categorical column: "reference" (default) with one level
                (`Categorical.reference`, or the first), "sum" with the mean of its categories, "none" with nothing,
                so that rows are those of `coef_`.
            exp: Whether to return odds ratios or rate ratios. Default: False.
            per: Unit of a number: one "unit" of the column (default), or its declared "range".
            reference: Reference category by column, such as {"work": "own"}. None (default): those of the schema.
                Another reference changes no fit and uses no budget.

        Returns:
            Table that is a sequence of `Coefficient` rows, and prints as text.

        Raises:
            ParameterError: If an argument is outside its range, a range is not declared, or a reference is not a
                category.
        """
        self._check_posterior()
        return self._coefficients.table(self._head(per, noise_aware), level, coding, exp, reference)

    def partial_effect(
        self,
        column: str,
        at: Sequence[Any],
        *,
        reference: Any = None,
        given: Mapping[str, Any] | None = None,
        level: float = 0.95,
        noise_aware: bool = True,
        exp: bool = False,
    ) -> CoefficientTable:
        """Return the effect of a column on the log odds, log rate or mean at some of its values, with joint intervals.

        Args:
            column: Name of a column of the schema.
            at: Public values of the column, one row of the table each. Values outside the range are clipped to it.
            reference: Value at which the effect is 0. None (default): the reference knot of a spline, the reference
                category, the first of two values, or the lower limit of a range.
            given: Values of the columns with which this column has interactions, by name. None (default): it has none.
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            noise_aware: Whether intervals include the privacy noise. Default: True. False is only for comparison: such
                intervals are too short.
            exp: Whether to return ratios. Default: False.

        Raises:
            ParameterError: If there is no such column or value, or if `given` lacks a column.
        """
        self._check_posterior()
        head = self._head("unit", noise_aware)
        return self._coefficients.partial_effect(head, column, at, reference, given or {}, level, exp)

    @abstractmethod
    def _head(self, per: str, noise_aware: bool) -> TableHead:
        """Return the facts above the rows of a table."""

    def _head_of(self, model: str, scale: str, per: str, noise_aware: bool) -> TableHead:
        """Return the facts above the rows of a table of this model, in words, and scale of its coefficients."""
        more: dict[str, Any] = {"robust": self._robust, "convergence_ratio": self._convergence_ratio}
        return TableHead(model, scale, per, self._prior, noise_aware, self.privacy_, **more)

    @overload
    def contrast(self, weights: Mapping[str, float], *, level: float = 0.95, **options: Any) -> Coefficient: ...
    @overload
    def contrast(
        self, weights: Sequence[Mapping[str, float]], *, level: float = 0.95, **options: Any
    ) -> CoefficientTable: ...
    def contrast(
        self, weights: Mapping[str, float] | Sequence[Mapping[str, float]], *, level: float = 0.95, **options: Any
    ) -> Coefficient | CoefficientTable:
        """Return a linear combination of coefficients, or a table of several; see `CoefficientTable.contrast`.

        Args:
            weights: Weights by row names, such as {"age": 10, "work=own": 1, "work=state": -1}, or a list of such
                mappings.
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            options: Other arguments of `coefficients`.

        Raises:
            ParameterError: If a weight is not a number, or a name is unknown.
        """
        return self.coefficients(level, **options).contrast(weights)

    def summary(self, level: float = 0.95, **options: Any) -> Summary:
        """Return the coefficient table as text; the arguments are those of `coefficients`."""
        return Summary.of(self.coefficients(level, **options))

    def _facts_for_report(
        self,
        level: float = 0.95,
        noise_aware: bool = True,
        coding: LevelCoding = "reference",
        exp: bool = False,
        per: Per = "unit",
        reference: Mapping[str, Any] | None = None,
    ) -> Iterator[Figure]:
        """Yield the coefficient table with its intervals, or only the coefficients of a mode.

        Args:
            level, noise_aware, coding, exp, per, reference: As in `coefficients`.
        """
        if self.coef_std_ is None:
            values = np.ravel(self.coef_).tolist()
            rows = (*zip(self.feature_names_, values, strict=False), ("intercept", float(np.ravel(self.intercept_)[0])))
            yield Facts(
                name="coefficients",
                title="Coefficients",
                note="The point of a mode; there are no intervals.",
                head=("name", "coefficient"),
                rows=tuple((name, f"{value:.4g}") for name, value in rows),
            )
            return
        how: dict[str, Any] = {"noise_aware": noise_aware, "coding": coding, "reference": reference}
        table = self.coefficients(level, exp=exp, per=per, **how)
        if self.schema_ is not None and not exp:
            whole = [*self.coefficients(level, per="range", **how)]
            clear = [row for row in whole if not row.note] or whole
            most = max(max(abs(row.low), abs(row.high)) for row in clear)
            units = [row.std / one.std if one.std else 1.0 for row, one in zip(table, whole, strict=True)]
            table = replace(table, scales=tuple((-most * unit, most * unit) for unit in units))
        yield table

    def to_arviz(self, draws: int = 1000, *, chains: int = 4, rng: Any = None, **options: Any) -> Any:
        """Return posterior draws for ArviZ: a tree whose group "posterior" has `coef`, with the rows of `coefficients`.

        Draws are independent; chains are only a format. They reveal no more about the data than the public posterior.

        Args:
            draws: Number of draws per chain. Default: 1000.
            chains: Number of chains. Default: 4.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
            options: The arguments coding, exp, per and reference of `coefficients`.

        Raises:
            ParameterError: If an argument is outside its range.
            DpvbError: If arviz-base is not installed.
        """
        table = self.coefficients(**options)
        shape = [check_integer(name, n, low=1, high=10**7) for name, n in (("chains", chains), ("draws", draws))]
        coef_nd, intercept_n = self.sample_posterior(math.prod(shape), rng)
        drawn_nr = table.of_places(np.column_stack([intercept_n, coef_nd]))
        return for_arviz(table.names, drawn_nr.reshape(*shape, -1), self.privacy_)

    def sample_posterior(self, n: int = 1, rng: Any = None) -> tuple[Floats, Floats]:
        """Draw from the posterior: coefficients, (n, n_features), and intercepts, (n,).

        The draws reveal no more about the data than the public posterior.

        Args:
            n: Number of draws.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
        """
        self._check_posterior()
        n = check_integer("n", n, low=0, high=10**9)
        normal_nd = generator("rng", rng).standard_normal((n, len(self._table.mean_d)))
        draws_nr = self._coefficients.normal.draws(normal_nd)
        return draws_nr[:, 1:], draws_nr[:, 0]

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[RegressionModel]:
        """Return the task of a fit to private rows."""
        return self._task_of(X, y, None, group)

    def _task_of(
        self,
        X: Records,
        y: Responses,
        trials: Any,
        group: Iterable[object] | None,
        beside: Mapping[str, Any] | None = None,
    ) -> Task[RegressionModel]:
        """Return the task of a fit, including offsets, exposures and weights."""
        if not isinstance(X, Table):
            _check_response(y)
        check_choice("estimate", self.estimate, ESTIMATES)
        stated = "schema" if isinstance(X, Table) else "ranges"
        X = self._bounded(X)
        schema = X.schema if isinstance(X, Table) else None
        design = self._private(X, y, trials, group, self.max_row_norm, beside)
        names = X.feature_names if isinstance(X, Table) else column_names(X)
        width = design.width - (design.intercept > 0)
        columns = FittedColumns(type(self).__name__, names, width, schema, design.max_row_norm, design.intercept)
        earlier, source = self._earlier(columns)
        model = self._model(design, schema, earlier)
        public = {
            "columns" if schema is None else stated: f"{design.width} columns"
            + (", the intercept's included" if design.intercept else "")
            + ("" if schema is None else ", their ranges and categories"),
            "max_row_norm": f"rows divided by {design.max_row_norm:g} and clipped to norm 1, the intercept's constant "
            f"being {design.intercept:g}",
            **self._said_of_response(schema),
            **({"prior": f"the prior: {source}"} if source else {}),
            "parameters": self._said_of_parameters,
        }
        notes = {
            "columns": columns,
            "schema": schema,
            "prior": source,
            "target": schema.target if schema is not None and y is None else None,
            "robust": model.robust,
        }
        return self._planned_task(model, design, model.schedule, public, notes)

    def _learned(self, task: Task[RegressionModel], q: Any) -> FittedWeights:
        weights, table = task.model.weights(q), task.model.table(q)
        ratio = task.model.convergence_ratio(q, table)
        if self.estimate == "map":
            weights, table = weights.point(), replace(weights.point(), data=table.data)
        prior, robust = task.notes["prior"], task.notes["robust"]
        return FittedWeights(task.notes["columns"], weights, table, 0.0, prior, robust, ratio)

    def _unsettled(self) -> tuple[str, ...]:
        if (bias := self._convergence_ratio) <= 1:
            return ()
        effect = (
            f"coefficients may be off by {bias:.2g} of their standard deviations, and intervals are too narrow. Fit "
            "with more steps, which divide the same budget"
        )
        return (not_settled(self.n_iter_, effect),)

    def _expected_accuracy(self, task: Task[RegressionModel], plan: Plan, n: float) -> ExpectedAccuracy:
        return known_coefficients(task, plan, n, *self._scores(task.model))

    @abstractmethod
    def _scores(self, model: RegressionModel) -> tuple[ScoreFacts, str]:
        """Return scale of the scores of the model, and the unit of its effects."""

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """Return arguments without rows, for a table with a schema or a number of features."""
        rows = super()._no_rows(schema=schema, vocabulary=vocabulary, width=width)
        beside = dict.fromkeys(("y", *(() if schema else self._response.columns)), np.empty(0))
        return rows if schema is not None else {**rows, **beside}

    def _psi_of(self, rows: Any) -> Floats:
        """Return ψ of each clean row at the posterior mean, computed from only that row."""
        mean_d = self._weights.mean_d
        x_nd = rows.matrix(len(mean_d))
        if not isinstance(x_nd, np.ndarray):
            row_j = np.repeat(np.arange(len(rows.y_n)), np.diff(x_nd.indptr))
            weights = x_nd.data * mean_d[x_nd.indices]
            psi_n: Floats = np.bincount(row_j, weights=weights, minlength=len(rows.y_n)).astype(np.float64)
        else:
            psi_n = linear.dot(x_nd, mean_d)
        return psi_n + self._shift + (0.0 if rows.offset_n is None else rows.offset_n)

    def _bounded(self, X: Records) -> Any:
        """Return rows with a public bound: a table, or a matrix with `max_row_norm`.

        Raises:
            ParameterError: If a matrix has no bound or two, if low and high are not ranges, if ranges or numeric are
                given for a table, or numeric together with low and high.
        """
        if self.numeric is not None and isinstance(X, Table):
            raise ParameterError("numeric must be None with a table, whose schema declares its columns.")
        if self.numeric is not None and self.low is not None:
            raise ParameterError("numeric must be None with low and high, with which every column is a number.")
        return bounded(X, self.low, self.high, None if isinstance(X, Table) else self.max_row_norm)

    def _private(
        self,
        X: Records,
        y: Responses,
        trials: Any,
        group: Iterable[object] | None,
        max_row_norm: float | None,
        beside: Mapping[str, Any] | None = None,
    ) -> AnyDesign:
        """Return private rows in the form that the model reads."""
        response = self._response_for(X, y)
        constant, y = self._intercept, _one_dimensional(y)
        rows: dict[str, Any] = {"sparse_rows": self._sparse_rows, "group": group, "beside": beside}
        if isinstance(X, Table):
            return X.design(y, trials, response=response, fit_intercept=constant > 0, **rows)
        _check_response(y)
        return Design(X, y, trials, response=response, max_row_norm=max_row_norm, intercept=constant, **rows)  # type: ignore[arg-type]

    @property
    def _intercept(self) -> float:
        """Constant of every row over max_row_norm; 0 without an intercept."""
        constant = check_number("relative_intercept", self.relative_intercept, low=0, high=1, closed="neither")
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise ParameterError(f"fit_intercept must be True or False, got {self.fit_intercept!r}.")
        return constant if self.fit_intercept else 0.0

    def _declared(self, design: AnyDesign, schema: Schema | None) -> Declared:
        """Return public facts about the columns of the design, beginning with the intercept."""
        constant, width = design.intercept, design.width - (design.intercept > 0)
        reach_d = np.full(width, math.sqrt((1 - constant) * (1 + constant)))
        if schema is not None:
            numeric_d, low_d, unit_d = schema.numeric, np.zeros(width), largest_values(schema) / design.max_row_norm
            high_d = unit_d
        else:
            numeric_d = _places(self.numeric, width)
            unit_d = np.ones(width)
            if self.max_abs_value is not None:
                unit_d = bound_of_columns(self.max_abs_value, design)[int(constant > 0) :]
            high_d = np.minimum(unit_d, reach_d)
            low_d = -high_d
        first = np.zeros(int(constant > 0))
        low_d, high_d = (np.append(first, np.where(numeric_d, end_d, 0.0)) for end_d in (low_d, high_d))
        has_units = schema is not None or self.max_abs_value is not None
        products_p3 = NO_PRODUCTS if schema is None or constant == 0 else 1 + schema.products
        return Declared(low_d, high_d, np.append(first + 1.0, unit_d), has_units, products_p3)

    def _check(self, record: FittedWeights) -> None:
        columns, width = record.columns, record.columns.width + (record.columns.constant > 0)
        check_number("constant", columns.constant, low=0, high=1, closed="left")
        for read in (record.weights, record.table):
            trees.check_lengths(read, d=width)
            shape, data, place_2k = read.covariance.shape, read.data, read.slant_3k[:2]
            if not shape == read.naive_covariance.shape or not {shape, read.prior.shape} <= {(width,), (width, width)}:
                raise ValueError("a posterior of another shape")
            if data is not None and data.precision.shape != (width, width):
                raise ValueError("what the data say, of another shape")
            slants = (place_2k >= 0) & (place_2k < width) & (place_2k % 1 == 0)
            if read.slant_3k.ndim != 2 or len(read.slant_3k) != 3 or not slants.all():
                raise ValueError("slants of other columns")

    def _show(self, record: FittedWeights) -> None:
        """Set the coefficients in the units of X."""
        columns, self._robust = record.columns, record.robust
        self._convergence_ratio = record.convergence_ratio
        self._columns = columns
        self._weights, self._table = record.weights, record.table
        self._shift, self._prior_source, self.schema_ = record.shift, record.prior, columns.schema
        self.n_features_in_, self.feature_names_ = columns.width, columns.feature_names
        self._coefficients = Coefficients(record.table, columns, record.shift)
        self.coef_: Floats
        self.intercept_: float
        self.coef_std_: Floats | None
        self.intercept_std_: float | None
        self.coef_, self.intercept_ = self._shown(self._coefficients.normal.mean_r)
        self.coef_std_, self.intercept_std_ = self._stds() if record.table.covariance.any() else (None, None)

    def _check_posterior(self) -> None:
        """Check that the fit has a posterior distribution.

        Raises:
            ParameterError: For a mode.
        """
        self._check_fitted()
        if self.coef_std_ is None:
            raise ParameterError(
                "estimate must be 'posterior' for intervals, draws and tables, got 'map', a point of which coef_ and "
                "intercept_ are all that is known: fit other data, or plan the whole budget, with estimate='posterior'."
            )

    def _stds(self, noise_aware: bool = True) -> tuple[Floats, float]:
        """Return posterior standard deviations of the coefficients and of the intercept."""
        return self._shown(np.sqrt(self._coefficients.read(noise_aware).variance_r))

    def _spread_prior(self, unit: str, mean: str) -> str:
        """Return the prior that is relative to the scales of the columns, in words, in units of the response."""
        number, indicator = tuned.TABLE_TAU, tuned.UNIT_EFFECT * tuned.TABLE_TAU
        if self.schema_ is None and self.max_abs_value is None:
            indicator *= tuned.UNKNOWN_UNIT
        beside = f"; in addition, {self._prior_source}" if self._prior_source else ""
        return (
            f"N(0, {number:g}²) for a standard deviation of a number, N(0, {indicator:g}²) for any other column, "
            f"{mean} for the mean{unit}{beside}"
        )

    def _shown(self, value_r: Floats) -> tuple[Floats, float]:
        """Return coefficients or their standard deviations, and the intercept."""
        return value_r[1:], float(value_r[0])

    def _psi(
        self, X: Records, *, table: bool = False, offset: Any = None, exposure: Any = None
    ) -> tuple[Floats, Floats]:
        """Return posterior means and variances of ψ, (rows,), for rows that the caller owns, clipped as in the fit.

        Args:
            X: Rows.
            table: Whether to use the posterior for intervals instead of that for predictions.
            offset, exposure: Value of each row, or one number for all. None: 0 and 1.

        Raises:
            DataFormatError: If rows have another width, or contain NaN or infinity.
            ParameterError: If an offset or exposure is not a number, has another length, or an exposure is not
                positive.
        """
        (self._check_posterior if table else self._check_fitted)()
        read = self._table if table else self._weights
        parts = [(np.empty(0), np.empty(0)), *(self._moments(x_nd, read) for x_nd in self._rows(X))]
        mean_n, variance_n = (np.concatenate(part) for part in zip(*parts, strict=True))
        for name, value in (("offset", offset), ("exposure", exposure)):
            mean_n = mean_n if value is None else mean_n + _of_rows(name, value, len(mean_n))
        return mean_n, variance_n

    def _moments(self, x_nd: Any, read: WeightPosterior) -> tuple[Floats, Floats]:
        """Return mean and variance of ψ for clean rows, by one estimate of the posterior."""
        mean_n = np.asarray(x_nd @ read.mean_d) + self._shift
        covariance = read.covariance
        if covariance.ndim == 1:
            # Written out about the centre, so that sparse rows stay sparse.
            centre_d = read.centre_d
            x_nd = x_nd - x_nd @ read.slants.T
            variance_n = (x_nd * x_nd) @ covariance - 2.0 * (x_nd @ (centre_d * covariance))
            return mean_n, np.maximum(variance_n + float(centre_d**2 @ covariance), 0.0)
        return mean_n, np.maximum(((x_nd @ covariance) * x_nd).sum(axis=1), 0.0)

    def _rows(self, X: Records) -> Iterator[Any]:
        """Return rows as the model reads them, dense or sparse."""
        self._check_fitted()
        for chunk in self._columns.visible(X, self._columns.constant, sparse_rows=True).chunks():
            rows: Any = chunk.rows
            if np.isnan(rows.y_n).any():
                raise DataFormatError("X has rows that hold NaN or infinity, for which nothing can be predicted.")
            yield rows.matrix(len(self._weights.mean_d))

    def _measured(
        self, X: Records, y: Responses, trials: Any, public: bool, offset: Any = None, exposure: Any = None
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return mean and variance of ψ, response, trials and offset of public rows of weight 1.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: If rows are invalid.
        """
        self._check_public(public)
        self._check_fitted()
        X = self._columns.scored(X, y)
        beside = {name: value for name, value in (("offset", offset), ("exposure", exposure)) if value is not None}
        if y is not None:
            check_beside(replace(self._given_response, max_weight=None), beside)
        d, empty = len(self._weights.mean_d), np.empty(0)
        parts = [(empty, empty, empty, empty, empty)]
        design = self._private(X, y, trials, None, self._columns.max_row_norm, beside)
        check_width(design.width - (self._columns.constant > 0), self._columns.width, type(self).__name__)
        start = 0
        for chunk in design.chunks():
            rows: Any = chunk.rows
            if (invalid := np.flatnonzero(np.isnan(rows.y_n))).size:
                raise DataFormatError(
                    f"row {start + int(invalid[0])} of the public rows, counted from 0, has a missing or infinite "
                    "number, or a response outside the declared ones. Leave such rows out."
                )
            start += len(rows.y_n)
            mean_n, variance_n = self._moments(rows.matrix(d), self._weights)
            offset_n = np.zeros(len(mean_n)) if rows.offset_n is None else rows.offset_n
            parts.append((mean_n + offset_n, variance_n, rows.y_n, rows.trials_n, offset_n))
        mean_n, variance_n, y_n, trials_n, offset_n = map(np.concatenate, zip(*parts, strict=True))
        return mean_n, variance_n, y_n, trials_n, offset_n

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def largest_values(schema: Schema) -> Floats:
    """Return the largest value of each feature of a table; for an indicator, the value of 1."""
    return np.where(schema.numeric, 1.0, INDICATOR)


def _check_response(y: Responses) -> None:
    if y is None:
        raise DataFormatError("requires y to be passed, but the target y is None: the response of each row.")


def _one_dimensional(y: Responses) -> Responses:
    """Return a column vector of responses, (rows, 1), as (rows,), with scikit-learn's warning.

    Its shape is public, and its type is private: scikit-learn, which refuses some types, does not see the responses.
    """
    if isinstance(y, np.ndarray) and not isinstance(y, np.ma.MaskedArray) and y.ndim == 2 and y.shape[1] == 1:
        column_or_1d(np.empty((0, 1)), warn=True)
        return np.asarray(y)[:, 0]
    return y


def check_beside(response: Response, given: Mapping[str, Any]) -> None:
    """Check that every declared offset, exposure or weight is given.

    Raises:
        ParameterError: If one is missing.
    """
    for name in response.columns:
        if name not in given:
            raise ParameterError(f"{name} must be given where {BOUNDS[name]} is: give both, or leave both out.")


def _of_rows(name: str, given: Any, number: int) -> Floats:
    """Return the offset, or the logarithm of the exposure, of rows that the caller owns.

    Raises:
        ParameterError: Unless it is a number, or one per row; an exposure must be positive.
    """
    try:
        value_n = np.broadcast_to(np.asarray(given, dtype=np.float64), (number,))
    except (TypeError, ValueError):
        value_n = np.full(1, np.nan)
    if not np.isfinite(value_n).all() or (name == "exposure" and not (value_n > 0).all()):
        kind = "a positive number" if name == "exposure" else "a number"
        raise ParameterError(f"{name} must be {kind}, or {number} of them, one for each row of X.")
    return np.log(value_n) if name == "exposure" else value_n


def _places(numeric: Any, width: int) -> NDArray[np.bool_]:
    """Return which columns are numeric.

    Raises:
        ParameterError: Unless `numeric` is None, True, False or indices of columns.
    """
    if numeric is None or isinstance(numeric, (bool, np.bool_)):
        return np.full(width, bool(numeric))
    places = np.asarray(numeric)
    chosen = np.zeros(width, dtype=np.bool_)
    if (
        places.ndim == 1
        and (places.size == 0 or places.dtype.kind in "iu")
        and np.all((places >= 0) & (places < width))
    ):
        chosen[places.astype(np.intp)] = True
        return chosen
    raise ParameterError(f"numeric must be True, False or places of columns from 0 to {width - 1}, got {numeric!r}.")


def bound_of_columns(bound: Any, design: AnyDesign) -> Floats:
    """Return bounds on the columns of clean rows, beginning with the intercept.

    Raises:
        ParameterError: Unless `bound` is a positive number, or one per feature.
    """
    width = design.width - (design.intercept > 0)
    try:
        bound_d = np.broadcast_to(np.asarray(bound, dtype=np.float64), (width,))
    except (TypeError, ValueError):
        bound_d = np.zeros(width)
    if not (bound_d > 0).all():
        raise ParameterError(f"max_abs_value must be a positive number, or {width} of them, one a feature.")
    bound_d = np.clip(bound_d / design.max_row_norm, 1e-6, 1.0)
    return np.concatenate([[design.intercept], bound_d]) if design.intercept > 0 else bound_d


# Two regressions' coefficients, row by row, where both mean the same by a row.

# Declarations of a column that may differ, by its type: a coefficient in its own unit means the same. Levels are
# compared by their lines.
_RANGE = {"low", "high", "missing"}
_FREE = {
    "numeric": _RANGE,
    "date": _RANGE,
    "binary": {"missing"},
    "categorical": {"categories", "other", "missing", "reference"},
}


@says_what_lacks
def compare(first: Any, second: Any, *, disjoint: bool = False, **options: Any) -> CoefficientTable:
    """Return the coefficients of the first regression minus those of the second, or their ratios, with intervals.

    Args:
        first, second: Fitted regressions with the same columns.
        disjoint: Whether no person is in the data of both fits, so that variances add up. Default: False: each standard
            deviation is the sum of both, an upper bound for every dependence.
        options: Arguments of `coefficients`: level, noise_aware, coding, exp, per, reference. Default: none.

    Returns:
        Table of the differences.

    Raises:
        ParameterError: If rows, scales, reference levels, units or classes differ.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rng = np.random.default_rng(0)
        >>> fits = []
        >>> for _ in range(2):
        ...     X = rng.uniform(-1, 1, (5000, 1))
        ...     y = 2 * X[:, 0] + rng.normal(size=5000)
        ...     model = dpvb.LinearRegression(low=-1, high=1, y_range=(-6, 6), epsilon=1.0, delta=1e-6)
        ...     fits.append(model.fit(X, y))
        >>> [row.name for row in dpvb.compare(*fits, disjoint=True)]
        ['intercept', 'x0']
    """
    for name, model in (("first", first), ("second", second)):
        if not isinstance(model, Regression):
            raise ParameterError(f"{name} must be a fitted regression of this package, got {type(model).__name__}.")
    if type(disjoint) is not bool:
        raise ParameterError(f"disjoint must be True or False, got {disjoint!r}.")
    tables = [model.coefficients(**options) for model in (first, second)]
    classes = [list(getattr(model, "classes_", ())) for model in (first, second)]
    if all(classes) and classes[0] != classes[1]:
        raise ParameterError(f"Both models must have the same classes in one order, got {classes[0]} and {classes[1]}.")
    comparison = difference(*tables, disjoint=disjoint)
    units = [_units(model, options.get("per") == "range") for model in (first, second)]
    for name in {**units[0], **units[1]}:
        unit_of_first, unit_of_second = (unit.get(name, ("numeric", {"transform": None})) for unit in units)
        if unit_of_first != unit_of_second:
            raise ParameterError(
                f"column {name!r} must have one unit in both models, got {_said(unit_of_first)} and "
                f"{_said(unit_of_second)}."
            )
    return comparison


def _units(model: Any, with_ranges: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the declarations of each column that affect the meaning of a coefficient."""
    units = {}
    for column in () if model.schema_ is None else model.schema_.columns:
        free = _FREE.get(column.kind, set()) - ({"low", "high"} if with_ranges else set())
        facts = {name: value for name, value in asdict(column).items() if name not in {"name", *free}}
        units[column.name] = column.kind, facts
    return units


def _said(unit: tuple[str, dict[str, Any]]) -> str:
    return f"{unit[0]} with {', '.join(f'{name}={value!r}' for name, value in unit[1].items())}"
