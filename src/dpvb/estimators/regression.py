"""What private regressions share: rows, a Gaussian posterior of the coefficients, and their table."""

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

from dpvb.core.model import ESTIMATES, PosteriorOrMode
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
)
from dpvb.estimators.coefficients import Coefficients, KnownWeights, is_of_a_fit, known_coefficients, stated
from dpvb.estimators.earlier import known
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.ranges import FittedColumns, bounded
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer, check_number
from dpvb.guards.lacking import constructor_says_what_lacks, says_what_lacks
from dpvb.kernels import linear
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature_then_scores import CurvatureThenScores
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.foreseen import ScoreFacts
from dpvb.models.regression.ridge import NormalLikelihood, WeightPosterior
from dpvb.models.regression.scaling import NO_PRODUCTS, Declared
from dpvb.results import trees
from dpvb.results.coefficients import Coefficient, CoefficientTable, Per, Summary, TableHead, difference, for_arviz
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Facts, Figure
from dpvb.results.groups import reach_of

RegressionModel = TypeVar("RegressionModel", bound=CurvatureThenScores | FirstOrderDiagonal)


@dataclass(frozen=True)
class FittedWeights:
    """What was learned: two readings of the posterior of the weights.

    Attributes:
        columns: of the rows.
        weights, table: the posterior for predictions, and for intervals, in units of the response.
        shift: what ψ has in addition to the weights.
        prior: where the prior comes from, in words; empty: there is none but the model's.
    """

    columns: FittedColumns
    weights: WeightPosterior
    table: WeightPosterior
    shift: float
    prior: str


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class Regression(PrivateEstimator[RegressionModel, Any]):
    """What all regressions share: ψ = intercept + x·coef, a Gaussian posterior, and its table.

    `fit` takes private rows X, (rows, n_features): NumPy, SciPy sparse, or a `dpvb.Table`; and y, the response of each
    row, (rows,), which is not needed where a table brings it. A plain X needs a public bound, low and high or
    max_row_norm. The parameters of the budget, the batches and the ledger are those of `PrivateEstimator`.

    Args:
        low, high: public range of each column of a plain X, numbers, (n_features,) or {column name: number}, in its
            units: values outside are clipped, and columns are scaled as the numeric ones of a `dpvb.Schema`.
        max_row_norm: public bound on the norm of a row of a plain X, intercept included, in units of X, if low and high
            are not given: longer rows are scaled back to it, in fit and in every prediction. For columns of one unit.
        fit_intercept: whether every row gets a constant.
        relative_intercept: that constant over max_row_norm, in (0, 1); the features' norm is at most
            √(1 - relative_intercept²)·max_row_norm. Small values leave room for the features, large ones measure the
            intercept better.
        max_abs_value: public bound on the absolute values of each column, a number or (n_features,), in units of X, if
            max_row_norm is given. Not given: max_row_norm.
        numeric: the columns that are numbers rather than indicators, as their places, or True for all, if max_row_norm
            is given: their centres and spreads are released, so that neither bounds nor units matter. A schema declares
            its numbers itself, and columns with low and high are numbers.
        alpha: precision of the prior N(0, I/alpha) of the weights of rows of norm 1. Not given: a column's own spread
            is its unit, and an indicator's value.
        prior: data known before the fit (full covariance only): a fit of the same kind to other people, or the path of
            its file, whose rows count like more rows; or coefficients of a public study by the names of `coefficients`,
            with mean and standard deviation, {"age": (0.03, 0.01)}, or the path of a .json file.
        public_prior: states that the rows of an earlier fit were public, or of people who are not in these data.
        estimate: "posterior", or "mode", private expectation maximisation: the point where the posterior of predictions
            is highest, with no uncertainty of it in predictions, and without intervals.

    Attributes:
        coef_, intercept_: posterior means in the units of X, (n_features,) and a number; of a table, per unit of a
            number (where the schema transforms it, of the transformed number) and per category.
        coef_std_, intercept_std_: posterior standard deviations, which include the privacy noise; None for a mode.
        privacy_: the privacy statement of the fit.
        n_iter_, n_features_in_, feature_names_: steps, and number and names of the features.
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
    estimate: PosteriorOrMode = "posterior"

    _declares: ClassVar[tuple[str, ...]] = ("schema", "width")
    _record_class: ClassVar[type] = FittedWeights
    _reads: ClassVar[str | None] = "rows"
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse",)
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "fit_intercept": "intercept"}

    @property
    @abstractmethod
    def _response(self) -> Response:
        """What a response may be."""

    @property
    def _given_response(self) -> Response:
        """What a response may be where no schema says it."""
        return self._response

    def _response_of(self, schema: Schema | None) -> Response:
        """What a response may be, by the parameters or by the schema's target."""
        return self._response

    def _response_for(self, X: Records, y: Responses) -> Response:
        """What the responses of these rows may be."""
        return self._response

    @property
    @abstractmethod
    def _prior(self) -> str:
        """The prior of the table, in words."""

    @abstractmethod
    def _model(
        self, design: AnyDesign, schema: Schema | None, earlier: tuple[NormalLikelihood, ...]
    ) -> RegressionModel:
        """The model of the parameters, which gets normal likelihoods by earlier data, if there are any."""

    @abstractmethod
    def _said_of_response(self, schema: Schema | None) -> dict[str, str]:
        """What the promise takes for public of the response."""

    @property
    @abstractmethod
    def _said_of_parameters(self) -> str:
        """What it takes for public of the parameters."""

    def _earlier(self, columns: FittedColumns) -> tuple[tuple[NormalLikelihood, ...], str]:
        """Normal likelihoods of the weights from `prior`, for predictions and for intervals, and their source."""
        if self.prior is None:
            return (), ""
        rows = columns, self._response_of(columns.schema)
        study, example = "coefficients to (mean, std)", '{"age": [0.03, 0.01]}'
        return known(self, rows, stated=stated, study=study, example=example)

    def _as_prior(self, columns: tuple[FittedColumns, Response]) -> tuple[KnownWeights, str]:
        """Return what the rows said of the weights, for predictions and for intervals.

        Raises:
            ParameterError: for other columns, scales or ranges of the response; for a file that holds no normal
                likelihood.
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
            raise ParameterError(
                "prior must be the file of a fit: what it says of coefficients is no normal likelihood."
            )
        return both, "coefficients"

    @property
    def _sparse_rows(self) -> bool:
        """Whether the model reads sparse rows."""
        return False

    def credible_interval(
        self, level: float = 0.95, *, noise_aware: bool = True, intercept: bool = False
    ) -> tuple[Any, Any]:
        """Ends (low, high) of the coefficients' credible intervals, each of the shape of `coef_`.

        Args:
            level: probability inside, in (0, 1).
            noise_aware: False leaves the privacy noise out of account; for comparison only, as such intervals cover
                too little.
            intercept: True gives the interval of `intercept_` instead.
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
        """The coefficient table: the intercept, where there is one, then a row for each number and each level.

        Args:
            level, noise_aware: as in `credible_interval`.
            coding: what the levels of a categorical column are compared with: "reference" with one level
                (`Categorical.reference`, or the first), "sum" with the mean of its categories, "places" with nothing;
                then rows are those of `coef_`.
            exp: True gives odds or rate ratios.
            per: "unit" of a number, or its whole declared "range".
            reference: the category that others are compared with, by column, such as {"work": "own"}; columns that are
                not named keep the schema's. Another reference changes no fit and costs nothing.

        Raises:
            ParameterError: for an argument outside its range, a range where none was declared, or a reference that is
                no category.
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
        """What a column adds to the log odds or log rate along its values, with intervals from the joint posterior.

        Args:
            column: name of a column of the schema.
            at: public values of it, a row of the table each; those outside its range count as its ends.
            reference: the value of which the row would be 0; None: the reference knot of a spline, the reference
                category, the first of two values, or the low end of a range.
            given: a value of each column with which this one has an interaction, by name.
            level, noise_aware, exp: as in `coefficients`.

        Raises:
            ParameterError: no such column, a value that is none of it, or columns that `given` lacks.
        """
        self._check_posterior()
        head = self._head("unit", noise_aware)
        return self._coefficients.partial_effect(head, column, at, reference, given or {}, level, exp)

    @abstractmethod
    def _head(self, per: str, noise_aware: bool) -> TableHead:
        """What a table says above its rows."""

    @overload
    def contrast(self, weights: Mapping[str, float], *, level: float = 0.95, **options: Any) -> Coefficient: ...
    @overload
    def contrast(
        self, weights: Sequence[Mapping[str, float]], *, level: float = 0.95, **options: Any
    ) -> CoefficientTable: ...
    def contrast(
        self, weights: Mapping[str, float] | Sequence[Mapping[str, float]], *, level: float = 0.95, **options: Any
    ) -> Coefficient | CoefficientTable:
        """A linear combination of coefficients, or a table of several: `CoefficientTable.contrast` of `coefficients`.

        Args:
            weights: as there: {"age": 10, "work=own": 1, "work=state": -1}.
            level, options: as in `coefficients`.
        """
        return self.coefficients(level, **options).contrast(weights)

    def summary(self, level: float = 0.95, **options: Any) -> Summary:
        """The coefficient table as text; arguments are those of `coefficients`."""
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
        """The table of coefficients, with its intervals; of a mode the coefficients alone.

        Args:
            level, noise_aware, coding, exp, per, reference: as in `coefficients`.
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
        """Draws from the posterior as ArviZ reads them: a tree whose posterior's `coef` has the rows of `coefficients`.

        Draws are independent of each other: chains are a form. They tell no more about the data than the posterior.

        Args:
            draws, chains: draws of each chain, and how many chains.
            rng: a seed, a NumPy generator or None.
            options: coding, exp, per and reference, as in `coefficients`.

        Raises:
            ParameterError: for an argument outside its range.
            DpvbError: if arviz_base is not installed.
        """
        table = self.coefficients(**options)
        shape = [check_integer(name, n, low=1, high=10**7) for name, n in (("chains", chains), ("draws", draws))]
        coef_nd, intercept_n = self.sample_posterior(math.prod(shape), rng)
        drawn_nr = table.of_places(np.column_stack([intercept_n, coef_nd]))
        return for_arviz(table.names, drawn_nr.reshape(*shape, -1), self.privacy_)

    def sample_posterior(self, n: int = 1, rng: Any = None) -> tuple[Floats, Floats]:
        """Draw n weight vectors from the posterior: coefficients (n, n_features) and intercepts (n,).

        The draws tell no more about the data than the posterior, which is public.

        Args:
            n: number of draws.
            rng: a seed, a NumPy generator or None.
        """
        self._check_posterior()
        n = check_integer("n", n, low=0, high=10**9)
        normal_nd = generator("rng", rng).standard_normal((n, len(self._table.mean_d)))
        draws_nr = self._coefficients.normal.draws(normal_nd)
        return draws_nr[:, 1:], draws_nr[:, 0]

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[RegressionModel]:
        """What a fit to private rows would do."""
        return self._task_of(X, y, None, group)

    def _task_of(
        self,
        X: Records,
        y: Responses,
        trials: Any,
        group: Iterable[object] | None,
        beside: Mapping[str, Any] | None = None,
    ) -> Task[RegressionModel]:
        """What a fit would do, with what stands beside y."""
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
        }
        return self._planned_task(model, design, model.schedule, public, notes)

    def _learned(self, task: Task[RegressionModel], q: Any) -> FittedWeights:
        weights, table = task.model.weights(q), task.model.table(q)
        if self.estimate == "mode":
            weights, table = weights.point(), replace(weights.point(), data=table.data)
        return FittedWeights(task.notes["columns"], weights, table, 0.0, task.notes["prior"])

    def _expected_accuracy(self, task: Task[RegressionModel], plan: Plan, n: float) -> ExpectedAccuracy:
        return known_coefficients(task, plan, n, *self._scores(task.model))

    @abstractmethod
    def _scores(self, model: RegressionModel) -> tuple[ScoreFacts, str]:
        """What a model's scores are like, and the unit of its effects."""

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """No row, of a table with a schema or of so many features."""
        rows = super()._no_rows(schema=schema, vocabulary=vocabulary, width=width)
        beside = dict.fromkeys(("y", *(() if schema else self._response.columns)), np.empty(0))
        return rows if schema is not None else {**rows, **beside}

    def _psi_of(self, rows: Any) -> Floats:
        """ψ of each clean row at the posterior mean, from that row alone, bit for bit."""
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
        """Rows with a public bound: a table, or a matrix where max_row_norm says one.

        Raises:
            ParameterError: a matrix without a bound, or with two; low or high that are no ranges; ranges or
                numeric for a table; numeric beside low and high.
        """
        if self.numeric is not None and isinstance(X, Table):
            raise ParameterError("numeric must be None with a table, whose schema says what its columns are.")
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
        """Private rows in the form that the model reads."""
        response = self._response_for(X, y)
        constant, y = self._intercept, _one_dimensional(y)
        rows: dict[str, Any] = {"sparse_rows": self._sparse_rows, "group": group, "beside": beside}
        if isinstance(X, Table):
            return X.design(y, trials, response=response, fit_intercept=constant > 0, **rows)
        _check_response(y)
        return Design(X, y, trials, response=response, max_row_norm=max_row_norm, intercept=constant, **rows)  # type: ignore[arg-type]

    @property
    def _intercept(self) -> float:
        """The constant of every row over max_row_norm; 0 for none."""
        constant = check_number("relative_intercept", self.relative_intercept, low=0, high=1, closed="neither")
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise ParameterError(f"fit_intercept must be True or False, got {self.fit_intercept!r}.")
        return constant if self.fit_intercept else 0.0

    def _declared(self, design: AnyDesign, schema: Schema | None) -> Declared:
        """What is public about the columns of the rows that the design delivers, the intercept's first."""
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
        """Show the coefficients in the units of X."""
        columns = self._columns = record.columns
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
        """Check that what was fitted is a distribution.

        Raises:
            ParameterError: for a mode.
        """
        self._check_fitted()
        if self.coef_std_ is None:
            raise ParameterError(
                "estimate must be 'posterior' for intervals, draws and tables, got 'mode', a point of which coef_ and "
                "intercept_ are all that is known: fit other data, or plan the whole budget, with estimate='posterior'."
            )

    def _stds(self, noise_aware: bool = True) -> tuple[Floats, float]:
        """Posterior standard deviations of the coefficients and of the intercept."""
        return self._shown(np.sqrt(self._coefficients.read(noise_aware).variance_r))

    def _spread_prior(self, unit: str, mean: str) -> str:
        """The prior by the columns' own spreads, in words, in units of the response."""
        number, indicator = tuned.TABLE_TAU, tuned.UNIT_EFFECT * tuned.TABLE_TAU
        if self.schema_ is None and self.max_abs_value is None:
            indicator *= tuned.UNKNOWN_UNIT
        beside = f"; beside it, {self._prior_source}" if self._prior_source else ""
        return (
            f"N(0, {number:g}²) for a standard deviation of a number, N(0, {indicator:g}²) for any other column, "
            f"{mean} for the mean{unit}{beside}"
        )

    def _shown(self, value_r: Floats) -> tuple[Floats, float]:
        """Coefficients, or their standard deviations, and the intercept."""
        return value_r[1:], float(value_r[0])

    def _psi(
        self, X: Records, *, table: bool = False, offset: Any = None, exposure: Any = None
    ) -> tuple[Floats, Floats]:
        """Posterior means and variances of ψ, (rows,), of rows that the caller may see; rows are clipped as in fit.

        Args:
            X: rows.
            table: whether the posterior is that of intervals, and not that of predictions.
            offset, exposure: of each row, or of all; 0 and 1 if not given.

        Raises:
            DataFormatError: for rows of another width, or that hold NaN or infinity.
            ParameterError: for an offset or exposure that is no number, of another length, or not positive.
        """
        (self._check_posterior if table else self._check_fitted)()
        read = self._table if table else self._weights
        parts = [(np.empty(0), np.empty(0)), *(self._moments(x_nd, read) for x_nd in self._rows(X))]
        mean_n, variance_n = (np.concatenate(part) for part in zip(*parts, strict=True))
        for name, value in (("offset", offset), ("exposure", exposure)):
            mean_n = mean_n if value is None else mean_n + _of_rows(name, value, len(mean_n))
        return mean_n, variance_n

    def _moments(self, x_nd: Any, read: WeightPosterior) -> tuple[Floats, Floats]:
        """Mean and variance of ψ for clean rows, by a reading of the posterior."""
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
        """Rows as the model reads them, dense or sparse."""
        self._check_fitted()
        for chunk in self._columns.visible(X, self._columns.constant, sparse_rows=True).chunks():
            rows: Any = chunk.rows
            if np.isnan(rows.y_n).any():
                raise DataFormatError("X has rows that hold NaN or infinity, for which nothing can be predicted.")
            yield rows.matrix(len(self._weights.mean_d))

    def _measured(
        self, X: Records, y: Responses, trials: Any, public: bool, offset: Any = None, exposure: Any = None
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Mean and variance of ψ, response, trials and offset of public rows, each of which counts as one.

        Raises:
            PrivacyError: unless public=True.
            DataFormatError: for faulty rows.
        """
        self._check_public(public)
        self._check_fitted()
        if self.schema_ is not None:
            X = self._columns.table(X, self.schema_)
        beside = {name: value for name, value in (("offset", offset), ("exposure", exposure)) if value is not None}
        if y is not None:
            check_beside(replace(self._given_response, max_weight=None), beside)
        d, empty = len(self._weights.mean_d), np.empty(0)
        parts = [(empty, empty, empty, empty, empty)]
        design = self._private(X, y, trials, None, self._columns.max_row_norm, beside)
        check_width(design.width - (self._columns.constant > 0), self._columns.width, type(self).__name__)
        for chunk in design.chunks():
            rows: Any = chunk.rows
            if np.isnan(rows.y_n).any():
                raise DataFormatError(
                    "public rows must not hold NaN, infinity, or a response outside the declared ones."
                )
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
    """Largest value of each feature of a table: of an indicator, what stands for 1."""
    return np.where(schema.numeric, 1.0, INDICATOR)


def _check_response(y: Responses) -> None:
    if y is None:
        raise DataFormatError("requires y to be passed, but the target y is None: the response of each row.")


def _one_dimensional(y: Responses) -> Responses:
    """Return the responses, a column vector (rows, 1) as (rows,) with scikit-learn's warning: its shape is public."""
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind in "biufOUS":
        column: Responses = column_or_1d(y, warn=True)
        return column
    return y


def check_beside(response: Response, given: Mapping[str, Any]) -> None:
    """Check that what has a bound stands beside y.

    Raises:
        ParameterError: naming what was left out.
    """
    for name in response.columns:
        if name not in given:
            raise ParameterError(f"{name} must be given where {BOUNDS[name]} is: give both, or leave both out.")


def _of_rows(name: str, given: Any, number: int) -> Floats:
    """What is added to ψ of rows that the caller may see: an offset, or the logarithm of an exposure.

    Raises:
        ParameterError: unless it is a number, or one for each row; an exposure is positive.
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
    """Which of so many columns are numeric.

    Raises:
        ParameterError: unless `numeric` is None, True, False or places of columns.
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
    """Bounds on the columns of clean rows, the intercept's first.

    Raises:
        ParameterError: unless `bound` is a positive number, or one for each feature.
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

# What a column may declare in two ways, by its kind: a coefficient in its own unit means the same. Levels are compared
# by their lines.
_RANGE = {"low", "high", "missing"}
_FREE = {
    "numeric": _RANGE,
    "date": _RANGE,
    "binary": {"missing"},
    "categorical": {"categories", "unseen", "missing", "reference"},
}


@says_what_lacks
def compare(first: Any, second: Any, *, disjoint: bool = False, **options: Any) -> CoefficientTable:
    """The first regression's coefficients minus the second's, with intervals; as ratios, the ratios of both.

    Args:
        first, second: fitted regressions of the same columns.
        disjoint: states that nobody is in the data of both, so that variances add up. Otherwise fits may share sampling
            error in any way: the table says the sum of both stds, which a difference's std never exceeds.
        options: as in `coefficients`: level, noise_aware, coding, exp, per, reference.

    Raises:
        ParameterError: if rows, scales, reference levels, units or classes differ, naming what does.
    """
    for name, model in (("first", first), ("second", second)):
        if not isinstance(model, Regression):
            raise ParameterError(f"{name} must be a fitted regression of this package, got {type(model).__name__}.")
    if type(disjoint) is not bool:
        raise ParameterError(f"disjoint must be True or False, got {disjoint!r}.")
    tables = [model.coefficients(**options) for model in (first, second)]
    classes = [list(getattr(model, "classes_", ())) for model in (first, second)]
    if all(classes) and classes[0] != classes[1]:
        raise ParameterError(f"both models must have the same classes in one order, got {classes[0]} and {classes[1]}.")
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
    """What is declared of each column, but for what leaves the meaning of a coefficient as it is."""
    units = {}
    for column in () if model.schema_ is None else model.schema_.columns:
        free = _FREE.get(column.kind, set()) - ({"low", "high"} if with_ranges else set())
        facts = {name: value for name, value in asdict(column).items() if name not in {"name", *free}}
        units[column.name] = column.kind, facts
    return units


def _said(unit: tuple[str, dict[str, Any]]) -> str:
    return f"{unit[0]} with {', '.join(f'{name}={value!r}' for name, value in unit[1].items())}"
