"""Private factor analysis and principal components for scikit-learn."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpvb.core.model import ESTIMATES, PosteriorOrMAP
from dpvb.core.plan import Plan
from dpvb.data.tables.columns import INDICATOR, Binary, Categorical
from dpvb.data.tables.design import Design
from dpvb.data.tables.matrices import as_matrix
from dpvb.data.tables.ranged import Date, Numeric
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import AnyDesign, Table
from dpvb.estimators.base import (
    Fitted,
    PrivateEstimator,
    Task,
    TransformingEstimator,
    column_names,
    if_fitted,
)
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.prior_fits import known
from dpvb.estimators.ranges import Columns, bounded
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer, check_number
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.kernels import linear
from dpvb.models.factors import denoising, posterior, tuned
from dpvb.models.factors.denoising import captured, least_share, noise_of_moments
from dpvb.models.factors.posterior import FactorErrors, FactorPosterior, factor_errors, moment_errors, nearest_factors
from dpvb.models.factors.three_releases import SecondMoments, ThreeReleases
from dpvb.results import plots, trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Figure, Grid, Intervals
from dpvb.results.interval_table import reach_of

# Share of the variance with which a direction must be seen, at most, and the square of that share times the number of
# columns: with .1 for 40 columns fits predicted worse than a uniform guess (`python -m benchmarks forecasts`).
_WORTH, _WORTH_OF_COLUMNS = 0.1, 0.05
# A row's score over the number of columns: from that of a uniform guess to that of columns with std .02 of their range.
_SCORES = (0.0, 3.0)


# Columns of rows without a response: what is public about them, and how rows become private units of bounded length.
#
# A feature f is what a schema makes of a cell, or the number itself where rows have one public norm. No row is longer
# than its ranges allow, so that rows are clipped only by max_row_norm.


@dataclass(frozen=True)
class MeasuredColumns(Columns):
    """Columns without a response; vectors are (d,), in units of the features. No row is longer than max_row_norm."""

    @classmethod
    def of(cls, kind: str, X: Records, max_row_norm: float | None) -> MeasuredColumns:
        """The columns of private rows with a public bound.

        Raises:
            ParameterError: for a table with columns that are neither numbers nor categories.
        """
        if isinstance(X, Table):
            return cls.of_schema(kind, X.schema, named=True)
        norm = check_number("max_row_norm", max_row_norm, low=1e-100, high=1e100)
        return cls(kind, column_names(X), as_matrix(X).width, None, norm)

    @classmethod
    def of_schema(cls, kind: str, schema: Schema, *, named: bool) -> MeasuredColumns:
        """The columns of a schema, whose target is none of them.

        Raises:
            ParameterError: for a column that is neither a number nor a category.
        """
        for column in schema.columns:
            if not isinstance(column, (Numeric, Date, Binary, Categorical)):
                raise ParameterError(
                    f"columns must be numbers, dates and categories, got the {column.kind} {column.name!r}: leave it "
                    "out. A factor model finds by itself how columns act together."
                )
        squares = [1.0 if column.numeric else INDICATOR**2 for column in schema.own_columns]
        norm = math.sqrt(math.fsum(squares)) * (1.0 + 1e-12)
        untargeted = replace(schema, target=None)
        return cls(kind, schema.feature_names if named else None, schema.width, untargeted, norm)

    @property
    def centre_d(self) -> Floats:
        """The middle of each column: that of a range; of categories, where all are as likely."""
        return np.zeros(self.width) if self.schema is None else self._each(lambda width: 1 / max(width, 2))

    @property
    def reach(self) -> float:
        """The length that a row can have about the middle."""
        if self.schema is None:
            return self.max_row_norm
        columns = self.schema.own_columns
        squares = [1 / 4 if c.numeric else INDICATOR**2 * (1 - 1 / c.width if c.width > 1 else 1 / 4) for c in columns]
        return max(math.sqrt(math.fsum(squares)) * (1.0 + 1e-12), INDICATOR / 2)

    @property
    def prior_d(self) -> Floats:
        """Prior mean of a variance: that of a number which is uniform in the range, or in a ball of rows."""
        if self.schema is None:
            return np.full(self.width, self.max_row_norm**2 / (3 * self.width))
        return np.square(self._each(lambda width: 1.0)) / 12

    def variances_of(self, q: SecondMoments) -> Floats:
        """`prior_d` in the scales of second moments."""
        return np.asarray(self.prior_d / self.reach**2 / q.scale_d**2)

    @property
    def units(self) -> tuple[Floats, Floats]:
        """Step of each column's feature for 1, and the number at which the feature is 0."""
        if self.schema is None:
            return np.ones(self.width), np.zeros(self.width)
        scales, origins = zip(*(column.units for column in self.schema.own_columns), strict=True)
        return np.concatenate(scales), np.concatenate(origins)

    def _each(self, share: Any) -> Floats:
        """A share of each feature's range, by the number of features of its column."""
        assert self.schema is not None
        parts = [(1.0 if c.numeric else INDICATOR) * np.full(c.width, share(c.width)) for c in self.schema.own_columns]
        return np.concatenate(parts)

    def private(self, X: Any, group: Iterable[object] | None) -> AnyDesign:
        """Private rows; features over max_row_norm."""
        if isinstance(X, Table):
            return X.design(fit_intercept=False, group=group, labelled=False, max_row_norm=self.max_row_norm)
        return Design(X, max_row_norm=self.max_row_norm, group=group)


@dataclass(frozen=True)
class FittedFactors:
    """Result of a fit: moments of rows, the factors that they show, and the directions of factors."""

    columns: MeasuredColumns
    moments: SecondMoments
    factors: FactorPosterior
    direction_dk: Floats


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class FactorModel(TransformingEstimator[ThreeReleases, SecondMoments]):
    """Base class of factor analysis and PCA: x = W h + mean + e, with normal h and e.

    X is a private NumPy array or SciPy sparse matrix, (rows, n_features), or a `dpvb.Table`, whose target is not read.
    A plain X needs public bounds: `low` and `high`, or `max_row_norm`. A row with NaN, infinity or a value that is not
    a number is ignored. Other parameters are those of `PrivateEstimator`; the fit has no steps.

    Args:
        n_components: Largest number of factors K, at least 1; factors without support in the data are removed. None
            (default): all factors that are distinguishable from noise.
        low, high: Public range of each column of a plain X: numbers, arrays of shape (n_features,) or mappings of
            column names, in units of the column. Values outside are clipped. None (default): given by a schema, or
            replaced by `max_row_norm`.
        max_row_norm: Public upper bound on the Euclidean norm of a row of a plain X, in units of X. Longer rows are
            scaled down. Use it instead of `low` and `high` if all columns share one unit. None (default): not used.
        estimate: "posterior" (default, variational Bayes) or "map" (MAP estimate by expectation maximisation).
        prior: Prior information: a fitted estimator of the same class for other people, the path of its file, or
            results of a public study: {"loadings": (K, n_features), "noise_variance": as the attribute, "mean":
            (n_features,), "rows": its weight as a number of rows}, or the path of a .json file. None (default): none.
        public_prior: Whether the rows behind `prior` were public, or of people who are not in these data. Default:
            False: the statement adds up both budgets.

    Attributes:
        components_: Directions or loadings, (K, n_features); see the class.
        loadings_: Loadings W as rows, (K, n_features), in units of X, in the order of explained variance. Units are
            those of the transformed number if a schema transforms it, and 0 or 1 for a category.
        mean_: Means of the columns, (n_features,), in units of X.
        n_components_: Number of factors K.
        privacy_: Privacy statement of the fit.
        n_iter_, n_features_in_, feature_names_: Number of steps, and number and names of the columns.
        schema_: Public facts about columns with ranges. None with `max_row_norm`.
    """

    n_components: int | None = None
    low: float | Sequence[float] | Mapping[str, float] | NDArray[Any] | None = None
    high: float | Sequence[float] | Mapping[str, float] | NDArray[Any] | None = None
    max_row_norm: float | None = None
    estimate: PosteriorOrMAP = "posterior"
    prior: PrivateEstimator | Fitted | Mapping[str, Any] | Path | str | None = None
    public_prior: bool = False

    _declares: ClassVar[tuple[str, ...]] = ("schema", "width")
    _record_class: ClassVar[type] = FittedFactors
    _reads: ClassVar[str | None] = "measurements"
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse",)
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "n_components": "components"}
    _gamma: ClassVar[float]
    _isotropic: ClassVar[bool]

    @abstractmethod
    def _read(self, q: SecondMoments, columns: MeasuredColumns) -> tuple[FactorPosterior, Floats, Floats]:
        """Loadings and unique variances from second moments, directions of factors (d, K), denoised moments (d, d)."""

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[ThreeReleases]:
        """Return the task of a fit to private rows; y is ignored."""
        named = isinstance(X, Table) or column_names(X) is not None
        X = bounded(X, self.low, self.high, self.max_row_norm)
        columns = MeasuredColumns.of(type(self).__name__, X, self.max_row_norm)
        columns = columns if named else replace(columns, names=None)
        study, stated = ", ".join(_NAMES), partial(_stated, self)
        earlier, source = known(self, columns, stated=stated, study=study, example=_STUDY)
        model = self._model(columns, earlier)
        rows = columns.private(X, group)
        ranges = "" if columns.schema is None else ", their ranges and categories"
        public = {
            "columns": f"{columns.width} columns{ranges}",
            "max_row_norm": f"rows no longer than {columns.reach:g}, in units of their ranges where they have ranges",
            **({"prior": f"the prior: {source}"} if source else {}),
            "parameters": f"estimate {self.estimate!r}, the plan and all other parameters",
        }
        return self._planned_task(model, rows, model.schedule, public, {"columns": columns})

    def _as_prior(self, columns: MeasuredColumns) -> tuple[SecondMoments, str]:
        """Return the moments of the rows.

        Raises:
            ParameterError: for other columns, or another max_row_norm.
        """
        self._check_fitted()
        columns.check_earlier(self._columns)
        return self._moments, "moments"

    def _learned(self, task: Task[ThreeReleases], q: SecondMoments) -> FittedFactors:
        columns = task.notes["columns"]
        factors, direction_dk, _ = self._read(q, columns)
        return FittedFactors(columns, q, factors, direction_dk)

    def _expected_accuracy(self, task: Task[ThreeReleases], plan: Plan, n: float) -> ExpectedAccuracy:
        d, number = task.model.n_features, self._number(task.model.n_features)
        noise, of_lengths = plan.noise_stds("gram")[-1], sum(plan.noise_stds("length"))
        details = []
        if number is not None and number < d:
            share = captured(d, number, noise_of_moments(noise, of_lengths, n))
            details.append((f"variance that {number} components capture, over that without noise", share))
        return ExpectedAccuracy(
            "least share of the variance with which a direction is seen",
            least_share(d, noise, of_lengths, n),
            min(_WORTH, math.sqrt(_WORTH_OF_COLUMNS / d)),
            unknown=1.0,
            details=tuple(details),
        )

    def _quality(self, rows: Any) -> Floats:
        """Log-density of each row in units of the ranges."""
        unit_d, origin_d = self._columns.units
        x_nd = rows.x_nd * self._columns.max_row_norm
        return self._density(x_nd, (self.mean_ - origin_d) * unit_d, self._covariance_dd * np.outer(unit_d, unit_d))

    def _quality_range(self, model: ThreeReleases) -> tuple[float, float]:
        """From the score of a uniform guess to that of columns whose std is .02 of their range."""
        return _SCORES[0] * model.n_features, _SCORES[1] * model.n_features

    def get_covariance(self) -> Floats:
        """Return the covariance of the columns under the model, (n_features, n_features), in units of X."""
        self._check_fitted()
        return self._covariance_dd

    @property
    def _covariance_dd(self) -> Floats:
        return np.asarray(self.loadings_.T @ self.loadings_ + np.diag(self._unique_d))

    def lower_bound(self) -> float:
        """Return the variational lower bound on the log evidence of the rows, in nats and in the units of X.

        The data enter it only through the number of rows and their second moments about the mean, and both are
        released: it costs no privacy. With epsilon=inf and no row longer than the radius it is a lower bound on
        log p(X). With noise it is the same function of the released, denoised moments: an estimate of that bound, which
        may lie above log p(X). It compares numbers of factors that are fitted to the same release.

        Raises:
            ParameterError: with estimate="map", whose q is a point: its bound is -inf.

        Examples:
            >>> import dpvb, math, numpy as np
            >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 1)) @ np.ones((1, 3)) / 3
            >>> model = dpvb.FactorAnalysis(1, low=-1.0, high=1.0, epsilon=math.inf, delta=1e-6).fit(x + 0.01)
            >>> model.lower_bound() < model.score(x + 0.01, public=True) * 500
            True
        """
        self._check_fitted()
        if self.estimate == "map":
            raise ParameterError("estimate must be 'posterior' for a lower bound, got 'map': a point has none.")
        q, factors = self._released(), self._found
        _, _, second_dd = self._read(q, self._columns)
        bound = posterior.lower_bound(
            second_dd, q.count, factors.loading_dk, factors.unique_d, np.diag(factors.error_k)
        )
        return bound - q.count * float(np.log(self._unit_d).sum())

    def transform(self, X: Records) -> Floats:
        """Return the factors of each row, (rows, K). They are as private as X.

        Args:
            X: Rows.

        Raises:
            DataFormatError: If rows have other columns, or contain NaN, infinity or a value that is not a number.
        """
        self._check_fitted()
        reader_kd = self._reader()
        parts = [linear.product(x_nd - self.mean_, reader_kd.T) for x_nd in self._rows(X)]
        return np.concatenate([np.empty((0, self.n_components_)), *parts])

    def score_samples(self, X: Records, *, public: bool = False) -> Floats:
        """Return the log-density of each public row under the fitted model, (rows,), in nats, in units of X.

        Args:
            X: Public rows.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: As in `transform`.
        """
        self._check_public(public)
        self._check_fitted()
        covariance_dd = self.get_covariance()
        return np.concatenate([np.empty(0), *(self._density(x, self.mean_, covariance_dd) for x in self._rows(X))])

    @if_fitted
    def score(self, X: Records, y: None = None, *, public: bool = False) -> float:
        """Return the mean log-density of public rows, in nats; higher is better.

        Args:
            X: Public rows.
            y: Ignored. Default: None.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
        """
        score_n = self.score_samples(X, public=public)
        return float(score_n.mean()) if len(score_n) else 0.0

    def evaluate(self, X: Records, y: None = None, *, public: bool = False) -> dict[str, float]:
        """Return the mean log-density of public rows; see `score`.

        Raises:
            PrivacyError: Unless public=True.
        """
        self._check_public(public)
        return {"log_likelihood": self.score(X, public=True)}

    def sample(self, n: int = 1, rng: Any = None) -> Floats:
        """Draw n synthetic rows from the fitted model, (n, n_features), in units of X.

        The draws reveal no more about the data than the public model.

        Args:
            n: Number of draws.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
        """
        n, draw = self._to_draw(n, rng)
        factor_nk, rest_nd = (draw.standard_normal((n, size)) for size in (self.n_components_, len(self.mean_)))
        return np.asarray(self.mean_ + factor_nk @ self.loadings_ + rest_nd * np.sqrt(self._unique_d))

    def loadings_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return limits (low, high) of intervals of `loadings_`, (K, n_features), which include the privacy noise.

        They are centred at the loadings without prior shrinkage that are nearest to the released moments (for PCA, at
        `loadings_`). If two factors explain nearly the same variance, their loadings are not identified, and the
        intervals are wide.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
        """
        reach, centre = reach_of(level), self._centre
        centre_kd = (centre.loading_dk * self._unit_d[:, None]).T
        margin_kd = reach * (self._errors(centre).loading_dk * self._unit_d[:, None]).T
        return centre_kd - margin_kd, centre_kd + margin_kd

    def covariance_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return limits (low, high) of the intervals of the covariances of columns, in units of X.

        They are centred at the released moments, so they do not depend on the model.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
        """
        reach, q = reach_of(level), self._released()
        covariance_dd = self._found.covariance_dd
        unit_dd = np.outer(self._unit_d, self._unit_d)
        margin_dd = reach * moment_errors(covariance_dd, q.noise, q.count, q.lost) * unit_dd
        return q.second_dd * unit_dd - margin_dd, q.second_dd * unit_dd + margin_dd

    def _facts_for_report(self) -> Iterator[Figure]:
        """The loadings, and each column's mean."""
        columns = tuple(map(str, self.feature_names_))
        rows = tuple(f"factor {k}" for k in range(self.n_components_))
        yield Grid(
            name="loadings",
            title=f"Loadings of {self.n_components_} factors",
            note="Change of a column per standard deviation of a factor, in units of the column.",
            rows=columns,
            columns=rows,
            values=tuple(map(tuple, self.loadings_.T.tolist())),
        )

    @property
    def _centre(self) -> FactorPosterior:
        """Where intervals of loadings are centred."""
        return self._found

    def _errors(self, at: FactorPosterior) -> FactorErrors:
        """Standard deviations of what was found."""
        q = self._released()
        released = q.noise, q.count, q.lost
        return factor_errors(at.loading_dk, at.unique_d, *released, isotropic=self._isotropic)

    def _released(self) -> SecondMoments:
        self._check_fitted()
        return self._moments

    def _model(self, columns: MeasuredColumns, earlier: SecondMoments | None = None) -> ThreeReleases:
        """The model that the parameters name."""
        check_choice("estimate", self.estimate, ESTIMATES)
        width, reach = columns.width, columns.reach
        origin_d = None if columns.schema is None else columns.centre_d / columns.max_row_norm
        self._number(width)  # refuses what is out of range
        return ThreeReleases(width, self._gamma, origin_d, reach / columns.max_row_norm, earlier)

    def _number(self, width: int) -> int | None:
        if self.n_components is None:
            return None
        return min(check_integer("n_components", self.n_components, low=1, high=10**6), width)

    def _check(self, record: FittedFactors) -> None:
        columns, moments, factors = record.columns, record.moments, record.factors
        schema = columns.schema
        if schema is not None and columns != MeasuredColumns.of_schema(
            columns.kind, schema, named=columns.names is not None
        ):
            raise ValueError("columns of another schema")
        check_number("max_row_norm", columns.max_row_norm, low=1e-100, high=1e100)
        trees.check_lengths(record, d=columns.width, k=factors.loading_dk.shape[1])
        if not ((factors.unique_d > 0).all() and (moments.scale_d >= 1 / _MOST).all()):
            raise ValueError("variances that are not positive")
        if trees.largest(moments, factors, record.direction_dk) > _MOST:
            raise ValueError("numbers that no fit has")

    def _show(self, record: FittedFactors) -> None:
        """Show the factors, which are in units of z, in those of X."""
        columns, q, factors = record.columns, record.moments, record.factors
        unit_d, origin_d = columns.units
        self._columns, self._moments, self._found, self._direction_dk = columns, q, factors, record.direction_dk
        self._unit_d = q.scale_d * columns.reach / unit_d
        self.mean_ = (q.mean_d * columns.reach + columns.centre_d) / unit_d + origin_d
        self.loadings_ = (factors.loading_dk * self._unit_d[:, None]).T
        self._unique_d = factors.unique_d * self._unit_d**2
        self.n_components_, self.n_features_in_ = len(self.loadings_), columns.width
        self.feature_names_, self.schema_ = columns.feature_names, columns.schema
        self._show_components()

    def _variances(self, noise_variance: Floats, columns: MeasuredColumns) -> Floats:
        """Unique variances (n_features,), in the units of X, of what `noise_variance_` would be."""
        return noise_variance

    @abstractmethod
    def _show_components(self) -> None:
        """Set the attributes that are the class's own."""

    @abstractmethod
    def _reader(self) -> Floats:
        """The matrix, (K, d), that makes factors of rows about the mean."""

    def _density(self, x_nd: Floats, mean_d: Floats, covariance_dd: Floats) -> Floats:
        """Log-density of each row, only from that row; rows are brought to unit variances first."""
        size_d = np.sqrt(np.diagonal(covariance_dd))
        root_dd = np.linalg.cholesky(covariance_dd / np.outer(size_d, size_d))
        white_nd = linear.product((x_nd - mean_d) / size_d, np.linalg.inv(root_dd).T)
        constant = -0.5 * len(mean_d) * math.log(2 * math.pi) - float(np.log(np.diagonal(root_dd) * size_d).sum())
        return np.asarray(constant - 0.5 * np.square(white_nd).sum(axis=1))

    def _rows(self, X: Records) -> Iterator[Floats]:
        """Rows that the caller may see, in the units of X."""
        unit_d, origin_d = self._columns.units
        chunks: Any = self._columns.visible(X).chunks()
        for chunk in chunks:
            x_nd = chunk.rows.x_nd * self._columns.max_row_norm / unit_d + origin_d
            if np.isnan(x_nd).any():
                raise DataFormatError("X has rows that hold NaN, infinity or no number, for which nothing is inferred.")
            yield x_nd


# Upper limit for numbers read from a file: a prior with larger ones would overflow a fit that was already charged.
_MOST = 1e30


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class FactorAnalysis(FactorModel):
    """Fit a factor analysis under (ε, δ)-differential privacy, in which every column has its own unique variance.

    Other parameters are those of `FactorModel`.

    Attributes:
        components_: Loadings W as rows, (K, n_features), like `loadings_`.
        noise_variance_: Unique variances Ψ, (n_features,), in units of X.
        loadings_, mean_, n_components_, privacy_, n_iter_, n_features_in_, feature_names_: As in `FactorModel`.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rng = np.random.default_rng(0)
        >>> X = np.clip(rng.normal(size=(5000, 1)) * [0.3, 0.3, 0.3] + rng.normal(size=(5000, 3)) * 0.1, -1, 1)
        >>> model = dpvb.FactorAnalysis(1, low=-1.0, high=1.0, epsilon=2.0, delta=1e-6).fit(X)
        >>> model.get_covariance().shape
        (3, 3)
    """

    n_components: int | None = None

    _command: ClassVar[str | None] = "factors"
    _gamma: ClassVar[float] = tuned.FACTORS_GAMMA
    _isotropic: ClassVar[bool] = False

    def _read(self, q: SecondMoments, columns: MeasuredColumns) -> tuple[FactorPosterior, Floats, Floats]:
        prior_d, number = columns.variances_of(q), self._number(columns.width)
        read = denoising.split(q.second_dd, q.noise, q.count, prior_d)
        factors = posterior.factors(read, q.count, number, prior_d, is_point=self.estimate == "map")
        return factors, factors.loading_dk, read.second_dd

    @property
    def _centre(self) -> FactorPosterior:
        q, shrunk = self._released(), self._found
        if q.noise == 0 or self.n_components_ == 0:  # Nothing was shrunk for noise, or there is nothing.
            return shrunk
        near = nearest_factors(q.second_dd, q.noise, q.count, self.n_components_)
        sign_k = np.where((near.loading_dk * shrunk.loading_dk).sum(axis=0) < 0, -1.0, 1.0)
        return replace(near, loading_dk=near.loading_dk * sign_k)

    def _show_components(self) -> None:
        self.components_, self.noise_variance_ = self.loadings_, self._unique_d

    def _reader(self) -> Floats:
        white_kd = self.loadings_ / self._unique_d
        return np.asarray(np.linalg.solve(np.eye(len(white_kd)) + white_kd @ self.loadings_.T, white_kd))


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class PCA(FactorModel):
    """Fit probabilistic principal components, with one noise variance, under (ε, δ)-differential privacy.

    Columns with ranges are scaled by them, so that units do not affect the result; `scale_` has the scales. Other
    parameters are those of `FactorModel`.

    Attributes:
        components_: Orthonormal directions in x/scale_, (K, n_features), by decreasing variance.
        scale_: Scale of each column, (n_features,): the length of its range; 1 with `max_row_norm`, and 1/0.7 for a
            category.
        explained_variance_: Variance along each direction, (K,), in units of scale_².
        explained_variance_ratio_: Share of each in the variance of all columns.
        noise_variance_: Variance in all other directions, a number, in units of scale_².
        loadings_, mean_, n_components_, privacy_, n_iter_, n_features_in_, feature_names_: As in `FactorModel`.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 1)) * [1.0, 0.5]
        >>> model = dpvb.PCA(1, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).fit(X)
        >>> model.components_.shape, model.transform(X[:3]).shape
        ((1, 2), (3, 1))
    """

    n_components: int | None = None

    _command: ClassVar[str | None] = "pca"
    _gamma: ClassVar[float] = tuned.COMPONENTS_GAMMA
    _isotropic: ClassVar[bool] = True

    def explained_variance_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return limits (low, high) of intervals of `explained_variance_`, (K,), which include the privacy noise.

        Args:
            level: probability inside, in (0, 1).
        """
        margin_k = reach_of(level) * self._errors(self._found).strength_k * self.noise_variance_
        return np.maximum(self.explained_variance_ - margin_k, 0.0), self.explained_variance_ + margin_k

    def _facts_for_report(self, level: float = 0.95) -> Iterator[Figure]:
        """Shares of variance of the components, and the loadings.

        Args:
            level: probability inside an interval.
        """
        yield self._explained(level)
        yield from super()._facts_for_report()

    def _explained(self, level: float) -> Intervals:
        """The explained variances."""
        low_k, high_k = self.explained_variance_interval(level)
        return Intervals(
            name="variances",
            title="Explained variances",
            note=f"{level:.0%} intervals that include the privacy noise. Line: variance in every other direction.",
            rows=tuple(
                (f"component {k}", float(self.explained_variance_[k]), float(low_k[k]), float(high_k[k]), "")
                for k in range(self.n_components_)
            ),
            reference=float(self.noise_variance_),
        )

    def scree(self, ax: Any = None, level: float = 0.95) -> Any:
        """Draw what each component explains, with its interval, and return the axes.

        Args:
            ax: axes of matplotlib; None: those of a new figure.
            level: probability inside, in (0, 1).

        Raises:
            ParameterError: for anything else.
            DpvbError: if matplotlib is not installed.
        """
        if ax is not None and not hasattr(ax, "vlines"):
            raise ParameterError(f"ax must be axes of matplotlib, or None for new ones, got {ax!r}.")
        axes = plots.new_axes(self.n_components_) if ax is None else ax
        plots.draw_intervals(axes, self._explained(level))
        return axes

    def _read(self, q: SecondMoments, columns: MeasuredColumns) -> tuple[FactorPosterior, Floats, Floats]:
        prior_d, number = columns.variances_of(q), self._number(columns.width)
        value_e, basis_de = posterior.spectrum(q.second_dd, q.noise, q.count, float(prior_d.mean()))
        factors = posterior.components(value_e, basis_de, q.count, number, is_point=self.estimate == "map")
        direction_dk = basis_de[:, : factors.loading_dk.shape[1]]
        place_k = np.abs(direction_dk).argmax(axis=0)
        direction_dk = direction_dk * np.where(direction_dk[place_k, np.arange(len(place_k))] < 0, -1.0, 1.0)
        return factors, direction_dk, (basis_de * value_e) @ basis_de.T

    def _variances(self, noise_variance: Floats, columns: MeasuredColumns) -> Floats:
        return np.asarray(noise_variance / np.square(columns.units[0]))

    def _show_components(self) -> None:
        square = self._columns.reach**2
        self.components_, self.scale_ = self._direction_dk.T, 1.0 / self._columns.units[0]
        self.noise_variance_ = square * float(self._found.unique_d[0])
        self.explained_variance_ = self.noise_variance_ * (1.0 + self._found.strength_k)
        total = float(self.explained_variance_.sum()) + self.noise_variance_ * (
            self.n_features_in_ - self.n_components_
        )
        self.explained_variance_ratio_ = self.explained_variance_ / total

    def _reader(self) -> Floats:
        return np.asarray(self.components_ / self.scale_)

    def inverse_transform(self, X: Records) -> Floats:
        """Rows, in the units of X, whose factors are those given, (rows, K)."""
        self._check_fitted()
        return np.asarray(np.asarray(X, dtype=np.float64) @ (self.components_ * self.scale_) + self.mean_)


# Prior information on columns before a factor model is fitted: an earlier release of other people, or a study.


_NAMES = ("loadings", "noise_variance", "mean", "rows")
_STUDY = '{"loadings": [[0.5, 0.2]], "noise_variance": [1, 1], "mean": [0, 0], "rows": 1000}'


def _stated(fit: FactorModel, study: Mapping[Any, Any], columns: MeasuredColumns) -> tuple[SecondMoments, str]:
    """Moments of as many rows as a public study is worth, and what they are, in words.

    Raises:
        ParameterError: for other names, shapes or numbers than those of a factor model of the columns.
    """
    if set(study) != set(_NAMES):
        raise ParameterError(f"prior must hold {', '.join(_NAMES)} and nothing else, got {', '.join(map(str, study))}.")
    width, (unit_d, origin_d) = columns.width, columns.units
    loading_kd = _numbers("loadings", study["loadings"], (None, width))
    mean_d = _numbers("mean", study["mean"], (width,))
    noise_variance = _numbers(
        "noise_variance", study["noise_variance"], () if np.isscalar(study["noise_variance"]) else (width,)
    )
    if not (noise_variance > 0).all():
        raise ParameterError("prior['noise_variance'] must be positive.")
    rows = check_number("prior['rows']", study["rows"], low=1, high=1e15)
    unique_d = np.broadcast_to(fit._variances(noise_variance, columns), (width,))
    scale_d = unit_d / columns.reach
    second_dd = np.outer(scale_d, scale_d) * (loading_kd.T @ loading_kd + np.diag(unique_d))
    place_d = ((mean_d - origin_d) * unit_d - columns.centre_d) / columns.reach
    # Rows have norm 1 at most: a study in other units might make numbers of a fit infinite, after its charge.
    if not (np.trace(second_dd) <= 1e3 and np.abs(place_d).max() <= 1e3):
        raise ParameterError(
            "prior must be in the units of the columns: it is far beyond their ranges or max_row_norm."
        )
    what = f"loadings, variances and means that are worth {rows:g} rows"
    return SecondMoments(place_d, np.ones(width), 1.0, 0.0, second_dd, 0.0, rows), what


def _numbers(name: str, values: Any, shape: tuple[int | None, ...]) -> Floats:
    """An array of finite numbers; None in a shape: any size.

    Raises:
        ParameterError: for anything else.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.full(1, np.nan)
    fits = array.ndim == len(shape) and all(asked in (None, had) for asked, had in zip(shape, array.shape, strict=True))
    if not (fits and (np.abs(array) <= 1e100).all()):
        said = " x ".join("K" if size is None else str(size) for size in shape) or "1"
        raise ParameterError(f"prior[{name!r}] must be {said} finite numbers, got {values!r}.")
    return array
