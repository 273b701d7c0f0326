"""Private mixture models of tables with numbers, counts and categories, and synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from dpvb.core.model import PosteriorOrMAP
from dpvb.core.plan import Plan
from dpvb.data.tables.matrices import as_matrix
from dpvb.data.tables.mixed import Layout
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import Table
from dpvb.estimators.base import (
    BY_RELEASE,
    Fitted,
    PrivateEstimator,
    Task,
    check_width,
    column_names,
    if_fitted,
    unbounded,
)
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.prior_fits import known
from dpvb.estimators.ranges import check_names, check_schema, in_order, schema_of
from dpvb.estimators.tables import TableModel, columns_of, public_schema, sound_rows
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import (
    DataFormatError,
    ParameterError,
    PrivacyError,
    check_choice,
    check_number,
)
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.mixtures import categorical, tuned
from dpvb.models.mixtures.components import (
    Components,
    ComponentVariances,
    EarlierGroups,
    Marginals,
    MixedColumns,
    MixturePosterior,
)
from dpvb.models.mixtures.mixture import MixtureModel
from dpvb.models.mixtures.pairs import Pairs
from dpvb.results import trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.synthetic import FidelityTable, Marginal, PairOfColumns
from dpvb.rows import MixedRows

_COVARIANCES: dict[Literal["full", "diag"], Literal["full", "diagonal"]] = {"full": "full", "diag": "diagonal"}
# Nats above a uniform guess, for each column, at which a row's score is cut when settings are chosen.
_ABOVE_UNIFORM = 3.0
# With this many groups fits predicted other rows better than a uniform guess, with 2 not always (`forecasts`).
_SEVERAL = 3


@dataclass(frozen=True)
class FittedGroups:
    """Fitted quantities of a mixture.

    Attributes:
        schema: Schema of the table.
        named: Whether its columns had names.
        components: Parameters of the components, in units of the model.
        variances: Posterior variances of their numbers, in units of the model.
        marginals: Released quantities of single columns, in units of the model.
    """

    schema: Schema
    named: bool
    components: Components
    variances: ComponentVariances
    marginals: Marginals


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class Mixture(TableModel[MixtureModel, MixturePosterior]):
    """Fit a mixture model of a table under (ε, δ)-differential privacy, for clustering and synthetic rows.

    Within a component, numbers are Gaussian, counts are Poisson and categories have probabilities. X is a private
    `dpvb.Table`, whose schema declares the public columns; a target is a column like the others. A row that is invalid
    under the schema is ignored. Other parameters are those of `PrivateEstimator`; n_steps=None means 40 for numbers
    only, otherwise 30.

    Args:
        n_components: Largest number of components K, at least 1. Default: 20.
        count_columns: Numeric columns from 0 that are counts, as a list of names or a text with commas. Default: none.
        missing_columns: Numeric columns with missing values, in the same form. Each component has a probability of
            missing values and a variance of such a column, but no covariances with it. In other columns, a row without
            a number is invalid. Default: none.
        prune: Whether to use fewer components if the released number of rows is too small for `n_components`. Default:
            True.
        covariance_type: "full" (default), or "diag" for independent numbers within a component.
        estimate: "posterior" (default, variational Bayes) or "map" (MAP estimate by expectation maximisation).
        prior: Prior components of the same columns: a fitted estimator of the class, or the path of its file. Each
            component has the weight of the rows that would estimate it equally well. The fit has these components. For
            a person in both data sets, the budgets of both fits add up, and the statement reports it. None (default):
            priors centred at the moments of all rows.
        public_prior: Whether the rows behind `prior` were public, or of people who are not in these data. Default:
            False: the statement adds up both budgets.
        prior_weight: Strength of the priors of components, which shrink them towards the mean and covariance of all
            rows or towards `prior`, as a number of rows or a factor of its rows, at least 0. 0 disables them. Default:
            1.
        clip_scale: Bound on the score of a row, as a multiple of its root mean square within its component, in [0.01,
            1e9]. Default: 1.1, the best of the benchmarks.
        fidelity_share: Share of the budget, in [0, 0.5], for releasing the joint tables of all pairs of columns, which
            `fidelity` compares with synthetic rows. Default: 0: `fidelity` compares only single columns.

    Attributes:
        weights_: Share of each component, largest first, (K,).
        means_: Means of the numbers, (K, numbers), in units of the columns (of the transformed number, if the schema
            transforms it).
        covariances_: Covariances, (K, numbers, numbers), or variances, (K, numbers), with "diag", in the same units.
        rates_: Means of the counts, (K, counts).
        probabilities_: Probabilities of the values of each other column, by name, (K, values).
        schema_, privacy_, n_iter_, n_features_in_: Schema, privacy statement, and numbers of steps and columns.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> from dpvb.data import Categorical, Numeric, Schema, Table
        >>> rng = np.random.default_rng(0)
        >>> schema = Schema((Numeric("age", 0, 100), Categorical("job", ("a", "b"))))
        >>> people = Table({"age": rng.uniform(20, 60, 5000), "job": rng.choice(["a", "b"], 5000)}, schema)
        >>> model = dpvb.Mixture(2, n_steps=5, epsilon=1.0, delta=1e-6, random_state=0).fit(people)
        >>> sorted(model.sample(3, rng=0))
        ['age', 'job']
    """

    n_components: int = 20
    _: KW_ONLY
    prune: bool = True
    covariance_type: Literal["full", "diag"] = "full"
    estimate: PosteriorOrMAP = "posterior"
    prior: PrivateEstimator | Fitted | Path | str | None = None
    public_prior: bool = False
    prior_weight: float = 1.0
    clip_scale: float = tuned.CLIP
    fidelity_share: float = 0.0

    _reads: ClassVar[str | None] = "table"
    _record_class: ClassVar[type] = FittedGroups
    _command: ClassVar[str | None] = "mixture"
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "n_components": "components"}
    _called: ClassVar[str] = "a mixture"
    _groups_are: ClassVar[str] = "components"

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[MixtureModel]:
        """Return the task of a fit to private rows; y is ignored."""
        table, names = self._table(X)
        layout = self._whole_layout(table.schema)
        model = self._model(layout)
        groups, source = known(self, (table.schema, layout, model))
        if groups is not None:
            model = replace(model, earlier=groups, n_components=len(groups.share_k), prune=False)
        public = {
            "schema": public_schema(layout),
            "n_components": f"at most {model.n_components} groups",
            **({"prior": f"the prior: {source}"} if source else {}),
            "parameters": "the plan, the random directions of the start and all other parameters",
        }
        notes = {"schema": table.schema, "names": names}
        return self._planned_task(
            model, table.mixed(layout, group=group), model.schedule, public, notes, clipping="joint"
        )

    def _as_prior(self, columns: tuple[Schema, Layout, MixtureModel]) -> tuple[EarlierGroups, str]:
        """Return the components, each with the number of rows that would estimate it equally well.

        Raises:
            ParameterError: If the columns differ, or there are fewer components.
        """
        self._check_fitted()
        schema, layout, model = columns
        _check_columns(self, schema, layout, model.columns.covariance)
        number = len(self.weights_)
        if number > model.n_components:
            raise ParameterError(
                f"n_components must be {number} at least, the groups of the prior, got {model.n_components}."
            )
        return self._now.as_earlier(self._spread, model.columns, model.prior), f"{number} groups"

    def _learned(self, task: Task[MixtureModel], q: MixturePosterior) -> FittedGroups:
        components, variances = task.model.variances(q)
        order = np.argsort(-components.number_k, kind="stable")
        return FittedGroups(
            task.notes["schema"],
            task.notes["names"] is not None,
            components.taken(order),
            variances.taken(order),
            task.model.marginals(q),
        )

    def _expected_accuracy(self, task: Task[MixtureModel], plan: Plan, n: float) -> ExpectedAccuracy:
        model = task.model
        [noise] = plan.noise_stds("count_third")
        number = model.kept(n, model.run_precision(noise)) if model.prune else model.n_components
        return ExpectedAccuracy("components", float(number), min(model.n_components, _SEVERAL), rises=True)

    def _quality(self, rows: Any) -> Floats:
        """Return the log-density of each row, with numbers scaled to [-1, 1]."""
        return self._log_density(rows)

    def _quality_range(self, model: MixtureModel) -> tuple[float, float]:
        """Return limits of the score of a row: that of a uniform guess, and 3 nats per column above it."""
        low = -sum(map(math.log, model.columns.sizes)) - sum(math.log(1 + most) for most in model.columns.max_counts)
        low -= model.columns.numbers * math.log(2)
        number = len(model.columns.sizes) + len(model.columns.max_counts) + model.columns.numbers
        return low, low + _ABOVE_UNIFORM * number

    def predict(self, X: Records) -> Ints:
        """Return the index of the most probable component of each row, (rows,). It is as private as X.

        Args:
            X: Rows: a table, or columns by name.

        Raises:
            DataFormatError: If rows have other columns, or are invalid under the schema.
        """
        return np.asarray(np.argmax(self.predict_proba(X), axis=1), dtype=np.int64)

    def predict_proba(self, X: Records) -> Floats:
        """Return posterior probabilities of the components for each row, (rows, K). They are as private as X.

        Args:
            X: Rows: a table, or columns by name.

        Raises:
            DataFormatError: If rows have other columns, or are invalid under the schema.
        """
        log_nk = self._log_joint(self._visible(X))
        return np.asarray(np.exp(log_nk - logsumexp(log_nk, axis=1, keepdims=True)))

    def score_samples(self, X: Records, *, public: bool = False) -> Floats:
        """Return the log-density of each public row, (rows,), in nats, per unit of each number (or transformed number).

        Args:
            X: Public rows.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: As in `predict`.
        """
        self._check_public(public)
        rows = self._visible(X)
        in_units: Floats = ~np.isnan(rows.x_nd) @ np.log(self._layout_.scale[1])
        return self._log_density(rows) - in_units

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, public: bool = False) -> float:
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

    def sample(self, n: int = 1, rng: Any = None, *, parameters: Literal["mean", "draw"] = "mean") -> Any:
        """Draw n synthetic rows: columns by name, in the types of the schema.

        The rows reveal no more than the released model.

        Args:
            n: Public number of rows.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
            parameters: "mean" (default), or "draw" to draw the parameters from their posterior first. Analyses of
                several such tables show the uncertainty of the model; see `dpvb.combine_synthetic`.
        """
        return self._layout_.cells(self._drawn(n, rng, parameters)[0])

    def _estimates(self, *, noise_aware: bool) -> Iterator[tuple[int, str, float, float, tuple[float, float]]]:
        of, now, start, unit = self._spread, self._now, "" if noise_aware else "naive_", (0.0, 1.0)
        weight_k, mean_k, probability_kv = (getattr(of, f"{start}{part}") for part in _PARTS)
        half_d = self._layout_.scale[1]
        variance_kd = np.diagonal(now.root_kdd @ np.swapaxes(now.root_kdd, 1, 2), axis1=1, axis2=2) * half_d**2
        for k in range(len(self.weights_)):
            yield k, "share", float(self.weights_[k]), math.sqrt(weight_k[k]), unit
            for d, number in enumerate(self._layout_.numbers):
                std = math.sqrt(variance_kd[k, d] * mean_k[k])
                yield k, number.name, float(self.means_[k, d]), std, (-math.inf, math.inf)
            for p, count in enumerate(self._layout_.counts):
                rate = float(self.rates_[k, p])
                yield k, count.name, rate, math.sqrt(rate * mean_k[k]), (0.0, math.inf)
            for name, places in self._places.items():
                for place, label in zip(range(places.start, places.stop), self._labels[name], strict=True):
                    said = f"{name}={'<missing>' if label is None else label}"
                    yield k, said, float(self._probability_kv[k, place]), math.sqrt(probability_kv[k, place]), unit

    def fidelity(self, rows: Records, *, synthetic: bool = False) -> FidelityTable:
        """Compare synthetic rows with the released quantities of the private ones: single columns, and released pairs.

        Without `fidelity_share`, the comparison uses the means and shares that the first tenth of the budget released.

        Args:
            rows: Synthetic rows from `sample`, without their components. Never pass private rows: the comparison would
                reveal facts about them without noise.
            synthetic: True states that the rows are synthetic, which cannot be verified. Default: False, which raises
                an error.

        Raises:
            PrivacyError: Unless synthetic=True.
            ParameterError: If `rows` is a `dpvb.Table`, the form of private rows.
            DataFormatError: As in `predict`, or if there are no rows.
        """
        if isinstance(rows, Table):
            raise ParameterError(
                "rows must be synthetic ones, as sample() gives them, got a dpvb.Table, what private rows come in: "
                "these are never compared with what was released."
            )
        if synthetic is not True:
            raise PrivacyError(
                "The comparison of private rows with released quantities would reveal facts about them without "
                "noise. If the rows are synthetic, from sample(), call fidelity(rows, synthetic=True)."
            )
        seen = Mixture._visible(self, rows) if isinstance(rows, Mapping) else self._visible(rows)
        if not len(seen.sound_n):
            raise DataFormatError("rows must be at least one: of no rows nothing can be compared.")
        return compared(self._layout_, self._fitted_model.columns, self._labels, self._marginals, seen)

    def _drawn(self, n: Any, rng: Any, parameters: str) -> tuple[MixedRows, Any]:
        number, draw = self._to_draw(n, rng)
        check_choice("parameters", parameters, ("mean", "draw"))
        columns = self._fitted_model.columns
        now = self._now if parameters == "mean" else self._now.drawn(self._spread, columns, draw)
        x_nd, count_np, code_nj, k_n = now.sample(columns, number, draw)
        whole_n = np.ones(number)
        return MixedRows(x_nd, count_np, code_nj, whole_n, whole_n < 0), k_n

    def _table(self, X: Records) -> tuple[Table, tuple[str, ...] | None]:
        """Return private rows as a table, and the names of their columns.

        Raises:
            ParameterError: If X is not a table.
        """
        if not isinstance(X, Table):
            raise ParameterError(
                f"X must be a dpvb.Table, whose schema declares its public columns, got {type(X).__name__}. "
                "For a matrix of numbers, use dpvb.GaussianMixture with low= and high=."
            )
        return X, tuple(column.name for column in X.schema.own_columns)

    def _model(self, layout: Layout) -> MixtureModel:
        """Return the model that the parameters specify."""
        kind = _COVARIANCES[check_choice("covariance_type", self.covariance_type, (*_COVARIANCES,))]
        clip = check_number("clip_scale", self.clip_scale, low=1e-2, high=1e9)
        layout.check_squares()
        columns = columns_of(layout, kind, clip)
        if not isinstance(self.prune, (bool, np.bool_)):
            raise ParameterError(f"prune must be True or False, got {self.prune!r}.")
        prior = check_number("prior_weight", self.prior_weight, low=0, high=1e9)
        steps = self._given_steps()
        check = check_number("fidelity_share", self.fidelity_share, low=0, high=0.5)
        return MixtureModel(self.n_components, columns, bool(self.prune), self.estimate, prior, steps, None, check)

    def _visible(self, X: Records) -> MixedRows:
        """Return rows that the caller owns, as the model reads them."""
        self._check_fitted()
        table = X if isinstance(X, Table) else Table(X, replace(self.schema_, group=None))
        check_schema(table.schema, self.schema_, target=True)
        return sound_rows(table, self._layout_)

    def _log_joint(self, rows: MixedRows) -> Floats:
        return self._fitted_model.log_joint(self._now, rows)

    def _log_density(self, rows: MixedRows) -> Floats:
        with np.errstate(all="ignore"):
            return np.asarray(logsumexp(self._log_joint(rows), axis=1) * rows.sound_n)

    def _check(self, record: FittedGroups) -> None:
        model, now = self._model(self._whole_layout(record.schema)), record.components
        columns, cells = model.columns, model.pairs.length if self.fidelity_share else 0
        d, p, v = columns.numbers, len(columns.max_counts), sum(columns.sizes)
        trees.check_lengths(record, **{"k": len(now.number_k), "d": d, "p": p, "v": v, "c": cells, "1": 1})
        diagonal_kd = np.diagonal(now.root_kdd, axis1=1, axis2=2)
        if not len(now.number_k) or not (now.number_k > 0).all() or not (diagonal_kd > 0).all():
            raise ValueError("groups without rows or variances")
        x_1d, count_1p, code_1j = np.zeros((1, d)), np.zeros((1, p)), np.zeros((1, len(columns.sizes)), np.int64)
        row = MixedRows(x_1d, count_1p, code_1j, np.ones(1), np.zeros(1, dtype=np.bool_))
        sums = model.log_joint(now, row), np.square(now.root_kdd).sum()
        if not all(np.isfinite(one).all() for one in sums):
            raise ValueError("groups that say nothing of a row in the middle of all ranges")

    def _show(self, record: FittedGroups) -> None:
        """Set the components in the columns' units."""
        layout, now = self._whole_layout(record.schema), record.components
        self.schema_, self._layout_, self._named = record.schema, layout, record.named
        self._fitted_model = self._model(layout)
        self.n_features_in_ = len(record.schema.own_columns)
        self._labels: dict[str, list[Any]] = {one.name: one.labels for one in layout.choices}
        self._labels |= {f"{name} missing": ["no", "yes"] for name in layout.gaps}
        self._places = dict(zip(self._labels, categorical.starts(layout.sizes), strict=True))
        self._now, self._spread, self._marginals = now, record.variances, record.marginals
        middle_d, half_d = layout.scale
        self.weights_ = now.number_k / now.number_k.sum()
        self.means_ = middle_d + half_d * now.mean_kd
        covariance_kdd = now.root_kdd @ np.swapaxes(now.root_kdd, 1, 2) * np.multiply.outer(half_d, half_d)
        is_full = self.covariance_type == "full"
        self.covariances_ = covariance_kdd if is_full else np.diagonal(covariance_kdd, axis1=1, axis2=2).copy()
        self.rates_ = now.rate_kp
        self._probability_kv = categorical.normalised(now.expected_kv, layout.sizes)
        self.probabilities_ = {name: self._probability_kv[:, places] for name, places in self._places.items()}


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class GaussianMixture(Mixture):
    """Fit a Gaussian mixture of a plain matrix with public ranges, under (ε, δ)-differential privacy.

    X is a private array, (rows, n_features), or a DataFrame of numbers. Attributes have the names and shapes of
    scikit-learn. Other parameters are those of `Mixture`.

    Args:
        low, high: Public range of each column: numbers, arrays of shape (n_features,) or mappings of column names, in
            units of the column. Values outside are clipped. Default: None, which raises an error.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).normal([[-2, 0], [2, 0]], 0.5, (2500, 2, 2)).reshape(-1, 2)
        >>> model = dpvb.GaussianMixture(2, low=-5, high=5, n_steps=5, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
        >>> model.means_.shape[1]
        2
    """

    low: float | Sequence[float] | Mapping[str, float] | NDArray[Any] | None = None
    high: float | Sequence[float] | Mapping[str, float] | NDArray[Any] | None = None

    _declares: ClassVar[tuple[str, ...]] = ("width",)
    _reads: ClassVar[str | None] = None
    _command: ClassVar[str | None] = None

    def _no_rows(self, *, schema: Any, vocabulary: Any, width: int | None) -> dict[str, Any]:
        """Return arguments without rows, for a number of columns."""
        return {"X": np.empty((0, width or 0))}

    def sample(self, n: int = 1, rng: Any = None, *, parameters: Literal["mean", "draw"] = "mean") -> Any:
        """Draw n synthetic rows, (n, n_features), and the component of each, (n,); see `Mixture.sample`."""
        rows, k_n = self._drawn(n, rng, parameters)
        cells = self._layout_.cells(rows)
        return np.column_stack([cells[name].astype(np.float64) for name in self._layout_.order]), k_n

    def _table(self, X: Records) -> tuple[Table, tuple[str, ...] | None]:
        if isinstance(X, Table):
            raise ParameterError("X must be a matrix of numbers; a dpvb.Table goes to dpvb.Mixture.")
        if self.low is None or self.high is None:
            raise unbounded(
                "low and high",
                "none" if self.low is None and self.high is None else "one of the two",
                "low= and high=, the range of each column that you know without looking at the data",
                "dpvb.Mixture with a dpvb.Table, whose schema declares the same for named columns",
                BY_RELEASE,
            )
        matrix, names = _dense(X), column_names(X)
        return in_order(matrix, schema_of(names, matrix.width, self.low, self.high)), names

    def _visible(self, X: Records) -> MixedRows:
        self._check_fitted()
        if isinstance(X, Table):
            raise DataFormatError("The model was fitted on plain rows, not on a table: give rows of the same columns.")
        names = tuple(column.name for column in self.schema_.own_columns)
        check_names(column_names(X), names if self._named else None)
        matrix = _dense(X)
        check_width(matrix.width, self.n_features_in_, type(self).__name__)
        return super()._visible(in_order(matrix, self.schema_))


_PARTS = ("weight_k", "mean_k", "probability_kv")


def _dense(X: Records) -> Any:
    """Return a matrix of numbers.

    Raises:
        DataFormatError: If X is sparse, or not a matrix.
    """
    if sparse.issparse(X):
        raise DataFormatError("Sparse input is not supported: Gaussians have no zeros to leave out. Give X.toarray().")
    return as_matrix(X)


def _check_columns(model: Mixture, schema: Schema, layout: Layout, covariance: str) -> None:
    """Check that the columns of a model are those of the rows.

    Raises:
        ParameterError: If a column differs.
    """
    ours, theirs = ({one.name: one for one in part.own_columns} for part in (schema, model.schema_))
    differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if schema.target != model.schema_.target:
        differing.append(next(part.name for part in (schema.target, model.schema_.target) if part is not None))
    if not differing and layout.order != model._layout_.order:
        differing = ["their order"]
    if differing:
        raise ParameterError(
            f"prior must have the columns of the fit, each with its range or categories: {differing[0]!r} differs."
        )
    counts = tuple(column.name for column in layout.counts), tuple(column.name for column in model._layout_.counts)
    gaps = layout.gaps, model._layout_.gaps
    for role, (asked, other) in (("count_columns", counts), ("missing_columns", gaps)):
        if asked != other:
            raise ParameterError(f"{role} must be {', '.join(other) or 'none'}, as in the prior, got {asked}.")
    name_asked = next(name for name, kind in _COVARIANCES.items() if kind == covariance)
    if name_asked != model.covariance_type:
        raise ParameterError(f"covariance_type must be {model.covariance_type!r}, the prior's, got {name_asked!r}.")


# Synthetic rows compared with the released values of the private ones: column by column, and two columns at a time.


# Mean of |N(0, 1)|.
_MEAN_SIZE = math.sqrt(2 / math.pi)


def compared(
    layout: Layout, columns: MixedColumns, labels: dict[str, list[Any]], of: Marginals, rows: MixedRows
) -> FidelityTable:
    """Return the table that compares synthetic rows with released quantities, in units of (transformed) columns.

    Args:
        layout, columns, labels: Public facts about the columns.
        of: Released quantities.
        rows: Synthetic rows, at least one.
    """
    lines = [*_numbers(layout, of, rows), *_categories(labels, columns, of, rows)]
    pairs: list[PairOfColumns] = []
    if len(of.cell_c):
        lines += _bins(layout, Pairs(columns), of, rows)
        pairs = [*_pairs(layout, Pairs(columns), of, rows)]
    number = len(rows.sound_n)
    return FidelityTable(
        tuple(lines),
        tuple(pairs),
        f"{number:,} synthetic rows compared with released quantities; chance: privacy noise and sampling of the rows",
    )


def _numbers(layout: Layout, of: Marginals, rows: MixedRows) -> Iterator[Marginal]:
    """Compare means of numbers and counts."""
    middle_d, half_d = layout.scale
    for place, column in enumerate(layout.numbers):
        x_n = rows.x_nd[~np.isnan(rows.x_nd[:, place]), place]
        mean, half = (float(x_n.mean()) if len(x_n) else 0.0), float(half_d[place])
        std = math.hypot(of.mean_std_d[place], _error(x_n)) * half
        middle = float(middle_d[place])
        yield Marginal(column.name, middle + half * float(of.mean_d[place]), std, middle + half * mean)
    for place, column in enumerate(layout.counts):
        count_n = rows.count_np[:, place]
        std = math.hypot(of.rate_std_p[place], _error(count_n))
        yield Marginal(column.name, float(of.rate_p[place]), std, float(count_n.mean()))


def _categories(
    labels: dict[str, list[Any]], columns: MixedColumns, of: Marginals, rows: MixedRows
) -> Iterator[Marginal]:
    """Compare shares of all categories."""
    found_v = categorical.one_hot(rows.code_nj, columns.sizes).mean(axis=0)
    names = [f"{name}={label}" for name, values in labels.items() for label in values]
    yield from _shares(names, of.share_v, of.share_std_v, found_v, len(rows.sound_n))


def _bins(layout: Layout, pairs: Pairs, of: Marginals, rows: MixedRows) -> Iterator[Marginal]:
    """Compare shares of the bins of numbers and counts, from the tables of two columns."""
    code_nj, (middle_d, half_d) = pairs.codes(rows), layout.scale
    for place, column in enumerate((*layout.numbers, *layout.counts)):
        size = pairs.sizes[place]
        cell_v, factor = pairs.margin(of.cell_c, place)
        std_v = np.full(size, factor * of.cell_std_1[0] / of.number_1[0])
        if place < len(layout.numbers):
            bins = size - (column.name in layout.gaps)
            edges = (middle_d[place] + half_d[place] * np.linspace(-1, 1, bins + 1)).tolist()
            ends = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)] + ["missing"] * (size - bins)
        else:
            most = layout.max_counts[place - len(layout.numbers)]
            starts = [math.ceil(step * (most + 1) / size) for step in range(size + 1)]
            ends = [f"{low} to {high - 1}" for low, high in pairwise(starts)]
        names = [f"{column.name}: {end}" for end in ends]
        found_v = np.bincount(code_nj[:, place], minlength=size) / len(code_nj)
        yield from _shares(names, cell_v / of.number_1, std_v, found_v, len(code_nj))


def _pairs(layout: Layout, pairs: Pairs, of: Marginals, rows: MixedRows) -> Iterator[PairOfColumns]:
    """Return distances between the joint tables of two columns, largest first, beyond sampling variation."""
    names = [column.name for column in (*layout.numbers, *layout.counts, *layout.choices)]
    number, share_c = len(rows.sound_n), pairs.counted(rows) / len(rows.sound_n)
    released_c, std = of.cell_c / of.number_1, of.cell_std_1[0] / of.number_1[0]
    distances: list[PairOfColumns] = []
    for (i, j), cells in zip(pairs.places, pairs.tables, strict=True):
        std_c = np.sqrt(std**2 + share_c[cells] * (1 - share_c[cells]) / number)
        distance = 0.5 * float(np.abs(released_c[cells] - share_c[cells]).sum())
        distances.append(PairOfColumns(f"{names[i]} × {names[j]}", distance, 0.5 * _MEAN_SIZE * float(std_c.sum())))
    yield from sorted(distances, key=lambda pair: pair.by_chance - pair.distance)


def _shares(names: list[str], released_v: Floats, std_v: Floats, found_v: Floats, number: int) -> Iterator[Marginal]:
    drawn_v = found_v * (1 - found_v) / number
    for name, released, std, share, drawn in zip(names, released_v, std_v, found_v, drawn_v, strict=True):
        yield Marginal(name, float(released), math.sqrt(std**2 + drawn), float(share))


def _error(value_n: Floats) -> float:
    """Return the standard error of a mean of drawn values."""
    return float(value_n.std()) / math.sqrt(len(value_n)) if len(value_n) else 0.0
