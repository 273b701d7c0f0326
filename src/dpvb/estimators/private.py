"""The estimator of any model: what it needs is a model, rows and a budget.

Before the charge, a trial run fits the model to synthetic rows of zeros, one for each label that is
declared. Errors there do not depend on the data: they come from the model's code, its declarations, the width. So
the error says all of it. The real fit would fail behind the wall, after it was charged, and tell no reason.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from dpvb.core import loop
from dpvb.core.clipped_sums import Work
from dpvb.core.estimate import Estimate
from dpvb.core.grids import grids_of
from dpvb.core.model import updated
from dpvb.core.plan import Plan, Release
from dpvb.core.source import LARGEST_BATCH, ChunkOfUnits, Nobody, Source, is_shipped
from dpvb.core.wall import Wall
from dpvb.data import Chunk, Design, Response, Schema
from dpvb.data.shards import Shard
from dpvb.data.tables.response import LOGISTIC
from dpvb.data.tables.table import AnyDesign, Table
from dpvb.estimators.base import (
    BY_RELEASE,
    ONE_UNIT,
    Fitted,
    PrivateEstimator,
    Task,
    check_width,
    column_names,
    generator,
    if_fitted,
    named,
    not_settled,
    unbounded,
)
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.prior_fits import known
from dpvb.estimators.ranges import Columns, places
from dpvb.guards import domains, notebook_html
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import (
    DataFormatError,
    DpvbWarning,
    ModelFileError,
    ParameterError,
    check_choice,
    check_integer,
    check_number,
)
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.guards.suppress_output import silence
from dpvb.guards.untrusted import imported, misfit, place_of, printable
from dpvb.models.base import Interval, Model
from dpvb.models.regression.descent import FixedCurvature
from dpvb.results import model_file, trees
from dpvb.results.declared import told
from dpvb.results.expected_accuracy import CLEAR, ExpectedAccuracy
from dpvb.results.figures import Figure, Intervals
from dpvb.results.statement import PrivacyStatement
from dpvb.rows import DesignRows

# Characters of a model's own error that are shown.
_MOST_SAID = 300
# convention: ordinary synthetic rows of a tryout: more than a row has features in most tables, so that sums of squares
# have an inverse.
_ORDINARY = 500
# convention: the most numbers in them, 8 MB.
_NUMBERS = 10**6
# convention: share of clipped units above which the statement mentions that estimates may be biased.
_MANY_CLIPPED = 0.1
# convention: roundings of statistics in different batches, relative to a block's bound: far below its noise.
_ROUNDINGS = 1e-6
# Fields of a model that a fit fills in.
_FILLED = {
    "columns": "names of the features of X",
    "units": "steps of the features for one unit of their columns",
    "classes": "labels of the response",
}
# The method that follows a release, for messages; see `core.model.updated`.
_METHODS = {"step": "m_step", "last": "finished"}


_BEFORE, _AFTER = "model must pass the smoke test before anything is spent", "model must give what its fit is asked for"


@contextmanager
def said(what: str, rule: str = _BEFORE) -> Iterator[None]:
    """Turn whatever a model raises into an error that names what failed.

    Args:
        what: public, in words.
        rule: that the model breaks.

    Raises:
        ParameterError: in place of any other exception.
    """
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}")[:_MOST_SAID]
        raise ParameterError(f"{rule}: {what} gave {reason}") from error


#: Something that is asked of a model at a q.
Asked = Callable[[Model, object], object]
#: A model's scores of rows at a q.
Scored = Callable[[Model, object, object], object]


def try_out(
    task: Task[Model], zeros: Source[Any], ordinary: Source[Any], keep: Asked, show: Asked, score: Scored | None
) -> None:
    """Fit a model to synthetic rows: to zeros without noise, else with noise, else to ordinary rows.

    A sound model passes one of them. Numbers that no data would give may make an M-step fail, but hardly each time.

    Args:
        task: what a fit would do.
        zeros: synthetic rows of zeros with each label, as the source of the task has them; no chunk: none can be made.
        ordinary: synthetic rows of all sizes and labels; `zeros` if none can be made.
        keep: raises for a q that no file can hold.
        show: raises for a q of which the model cannot show what it defines.
        score: raises for rows, at a q, that cannot be scored; None: the model scores none.

    Raises:
        ParameterError: naming what failed and why; nothing was spent, and nothing private was looked at.
    """
    # From the second step q is the model's own M-step's.
    plan = replace(task.relative, releases=[*task.relative.releases[:3], *task.relative.releases[3:][-1:]])
    with said("the privacy statement"):
        # Without noise it needs no accountant.
        str(PrivacyStatement.from_plan(plan.scaled(0.0), delta=0.5, private=True, run_id="", public=task.public))
    refused: ParameterError | None = None
    numbers: ParameterError | None = None
    # Each synthetic unit by itself, so that an error names its label; then none.
    asked = [
        chunk.select(np.arange(chunk.num_units) == unit) for chunk in zeros.chunks() for unit in range(chunk.num_units)
    ]
    asked += [chunk.select(np.zeros(chunk.num_units, dtype=np.bool_)) for chunk in zeros.chunks()]
    two = next((chunk.select(np.arange(chunk.num_units) < 2) for chunk in ordinary.chunks()), None)
    for rows, scale in ((zeros, 0.0), (zeros, 1.0), (ordinary, float(ordinary is zeros))):
        try:
            with silence(logs=True):
                numbers = _fit(task, plan.scaled(scale), rows, asked, two, keep, show, score)
        except ParameterError as error:
            refused = refused or error
            continue
        if numbers is None:
            return
    fault = refused or numbers
    assert fault is not None
    raise fault


def _fit(
    task: Task[Model],
    plan: Plan,
    rows: Source[Any],
    asked: Sequence[ChunkOfUnits[Any]],
    two: ChunkOfUnits[Any] | None,
    keep: Asked,
    show: Asked,
    score: Scored | None,
) -> ParameterError | None:
    """`loop.fit` to synthetic rows, looked at step by step; at each step also each batch of `asked`, and `two` units.

    Returns:
        The first fault of a method after a release that the numbers of its sums may explain; None: there is none.
    """
    model, wall = task.model, Wall(rows, plan)
    with said("init"):
        q = model.init(generator("seed", 0))
    if (place := domains.outside(q)) is not None:
        raise ParameterError(f"model must start from a q that the wall answers: {place}.")
    s, fault = Estimate.empty(model.blocks), None
    for t, release in enumerate(plan, start=1):
        for batch in asked:
            _ask(task, q, release, batch)
        if two is not None and two.num_units == 2:
            _ask_together(task, q, release, two)
        with said("the sum of synthetic rows"):
            released = wall.release(loop.query(model, q, release), release)
        with said("the step size"):
            s = s.update(released, task.rho(t))
        method = _METHODS.get(s.phase, "started")
        try:
            with said(method):
                q = updated(model, s, q)
        except ParameterError as error:
            # Errors that depend on the numbers of a sum are not errors of the model's form.
            if not isinstance(error.__cause__, ArithmeticError | np.linalg.LinAlgError):
                raise
            fault = fault or error
        with said(f"the q of {method}"):
            keep(model, q)
        if (place := domains.outside(q)) is not None:
            return fault or ParameterError(
                f"{_BEFORE}: {method} returned an invalid q, for sums of synthetic rows with and without "
                f"noise: {place}. Bound sums from below, for example np.maximum(s.project(name), "
                "3 * s.noise_std(name)). Nothing was charged."
            )
    show(model, q)
    for batch in asked if score is not None else ():
        with said(f"score on {_rows(batch, task)}"):
            if np.isnan(np.asarray(score(model, q, batch.rows), dtype=np.float64)).any():  # type: ignore[misc]
                raise ValueError("NaN")
    return fault


def _ask(task: Task, q: object, release: Release, batch: ChunkOfUnits[Any]) -> None:
    """Ask the model about a batch, and sum each block's contributions by themselves.

    Raises:
        ParameterError: naming the block, its shape and what was found in its place.
    """
    what = f"e_step on {_rows(batch, task)}"
    with said(what):
        answer = loop.query(task.model, q, release)(batch.rows)
    if not isinstance(answer, Mapping):
        raise ParameterError(f"model must have an e_step that returns a dict of forms, got {type(answer).__name__}.")
    for name, block in release.asked.items():
        place = f"block {name!r} of shape {block.shape}"
        if name not in answer:
            raise ParameterError(f"model must have an e_step that returns {place}; it returned {sorted(answer)}.")
        form = answer[name]
        if not (hasattr(form, "norms") and hasattr(form, "accumulate")):
            raise ParameterError(
                f"model must have an e_step that returns a form (dpvb.Rows(values), say) for {place}, got "
                f"{type(form).__name__}."
            )
        alone = replace(release, blocks={name: block}, weights={name: 1.0})
        with said(f"{place}, for which {what} returned {_shown(form)},"):
            Work(lambda rows: answer, alone, grids_of(alone, None), _words)._added(batch)


def _ask_together(task: Task, q: object, release: Release, two: ChunkOfUnits[Any]) -> None:
    """Ask the model about two ordinary units together and apart, and about invalid rows.

    Raises:
        ParameterError: if no unit is included, if one changes the statistics of the other, or if a row that is NaN
            throughout, as invalid rows are, is included.
    """
    work = Work(loop.query(task.model, q, release), release, grids_of(release, None), _words)
    with said("e_step on two synthetic rows"):
        together = work.lengths(two.rows)
        apart = np.hstack([work.lengths(two.select(np.arange(2) == unit).rows) for unit in range(2)])
    fault = ""
    if not np.isfinite(together).all(axis=0).any():
        fault = "e_step returned NaN or infinity for each of two synthetic rows, so that no row would be included"
    elif not np.allclose(together, apart, rtol=_ROUNDINGS, atol=_ROUNDINGS, equal_nan=True):
        fault = (
            "the statistics of a row change with the other rows of its batch. Compute each row's from that row and q "
            "only"
        )
    invalid: Any = two.rows
    if isinstance(invalid, DesignRows):
        invalid = replace(invalid, x_nd=np.full_like(invalid.x_nd, np.nan), y_n=np.full_like(invalid.y_n, np.nan))
    elif isinstance(invalid, np.ndarray) and invalid.dtype == np.float64:
        invalid = np.full_like(invalid, np.nan)
    if not fault and invalid is not two.rows:
        with suppress(Exception), silence():  # A model that fails for a row leaves it out.
            size = work.lengths(invalid)
            if (np.isfinite(size).all(axis=0) & (size > 0).any(axis=0)).any():
                fault = (
                    "e_step returned numbers for a row that is NaN throughout, as invalid rows are. Return NaN for it, "
                    "so that it is ignored"
                )
    if fault:
        raise ParameterError(f"{_BEFORE}: {fault}. Nothing was charged.")


def _rows(batch: ChunkOfUnits[Any], task: Task) -> str:
    width = task.notes["width"]
    columns = "" if width is None else f", with {width} features as in X,"
    response = task.notes.get("response")
    label = ""
    if batch.num_units and response is not None:
        label = f" with y = {response.decode(batch.rows.y_n[:1])[0]!r}"
    return f"{'a row of zeros' if batch.num_units else 'no rows'}{columns}{label}"


def _shown(form: object) -> str:
    """A form by its name and the shapes of its arrays."""
    parts = {part.name: getattr(form, part.name) for part in fields(form)} if is_dataclass(form) else {}
    shapes = [f"{name} {np.shape(value)}" for name, value in parts.items() if hasattr(value, "__array__")]
    return f"{type(form).__name__}({', '.join(shapes)})"


def _words(count: int, start: int = 0) -> Any:
    return np.zeros(count, dtype=np.uint64)


@dataclass(frozen=True)
class FittedModel:
    """Result of a fit: q, the model's class and fields, and the public facts of the rows, as far as they have them.

    Attributes:
        width: number of features.
        columns: columns of the rows; None for a source of another kind.
        response: fields of the `Response`.
    """

    model: str
    fields: dict[str, Any]
    width: Annotated[int | None, domains.NONNEGATIVE]
    columns: Columns | None
    response: dict[str, Any] | None
    q: Any


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class PrivateModel(PrivateEstimator[Model, Any]):
    """Fit a model of your own under (ε, δ)-differential privacy.

    X has private rows, (rows, features): a NumPy array, SciPy sparse matrix, DataFrame or `dpvb.Table`. `e_step` gets
    them as a float64 array, divided by `max_row_norm`, with norms of at most 1; a row with NaN, infinity or a value
    that is not a number is ignored (all its entries are NaN). With `response`, or a table whose schema has a target,
    `e_step` gets a `dpvb.data.DesignRows` with rows `x_nd` and responses `y_n`. Other sources are passed on unchanged:
    those of `dpvb.data`, or an object with `chunks()`, `count()`, `unit` and `empty()` (see `dpvb.core.source`).
    `e_step` gets at most `dpvb.testing.LARGEST_BATCH` rows at once, 8,192. If a person has more rows, the first 8,192
    are included; a unit of another source that has more is ignored. Other parameters are those of `PrivateEstimator`.

    Args:
        model: A `dpvb.Model`, a frozen dataclass; or a mapping of its class and fields, such as {"class":
            "my_models:Patterns", "n_patterns": 2}, whose module is imported. Default: None, which raises an error.
        max_row_norm: Public upper bound on the Euclidean norm of a row, in units of X; longer rows are scaled down.
            None (default): only with a table or another source.
        clipping: "joint" clips all blocks of a release by one factor, which keeps their ratios; "block" clips each
            block to its own bound. They differ if a unit exceeds a bound, for example a person with several rows. None
            (default): "block" if each row is a unit, otherwise "joint".
        response: A `dpvb.data.Response`, or a mapping of its fields, which declares labels, range or largest count of
            y. The model gets a label as its index, and a number scaled to [-1, 1]. None (default): `fit` has no y.
        prior: Prior information: a fitted estimator of the same model for other people, or the path of its file. Its
            `as_prior` sets fields of the model. None (default): none.
        public_prior: Whether the rows behind `prior` were public, or of people who are not in these data. Default:
            False: the statement adds up both budgets.

    Attributes:
        q_: Result of the last method of the model.
        privacy_: Privacy statement of the fit.
        n_iter_, n_features_in_: Numbers of steps and features.

    Examples:
        See `dpvb.Model` for a model.

        >>> import dpvb
        >>> dpvb.PrivateModel(epsilon=1.0, delta=1e-6).clipping is None
        True
    """

    model: Model | Mapping[str, object] | None = None
    _: KW_ONLY
    max_row_norm: float | None = None
    clipping: Literal["block", "joint"] | None = None
    response: Response | Mapping[str, Any] | None = None
    prior: PrivateEstimator | Fitted | Path | str | None = None
    public_prior: bool = False

    _declares: ClassVar[tuple[str, ...]] = ("schema", "width")
    _reads: ClassVar[str | None] = "model rows"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "model" and isinstance(value, Mapping):
            value = _model_of(str(value.get("class")), {n: part for n, part in value.items() if n != "class"})
        if name == "response" and isinstance(value, Mapping):
            value = Response(**value)
        super().__setattr__(name, value)

    _record_class: ClassVar[type] = FittedModel

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[Model]:
        """Return the task of a fit to private rows.

        Raises:
            ParameterError: for a model that fails on a synthetic row of zeros, for rows without a bound, and
                for y without response=, among all other public faults.
        """
        response = self._response_of(X)
        source, nobody, ordinary = self._source(X, y, group)
        columns = _columns_of(X, source)
        model = self._checked(_stated(self.model, columns, response))
        earlier, origin = known(self, (model, response, columns))
        if earlier is not None:
            with said("as_prior"):
                model = replace(model, **earlier)  # type: ignore[type-var]
            model = self._checked(_stated(model, columns, response))
        with said("its schedule"):
            schedule = model.schedule
        facts = ", ".join(f"{name} = {value}" for name, value in told(_facts(model)).items())
        public = {
            "model": f"the model {type(model).__name__}" + (f" with {facts}" if facts else ""),
            **({} if response is None else {"response": f"y is {response.said}"}),
            **({} if earlier is None else {"prior": f"the prior: {origin}"}),
            "parameters": "the plan, the random start and all other parameters",
        }
        width: int | None = getattr(source, "width", None)
        notes = {"width": width, "columns": columns, "response": response}
        with said("the plan of its blocks and its schedule"):
            task = self._planned_task(model, source, schedule, public, notes, self._clip(source))
        with said("its score_range"):
            scored = model.is_scored
        show = partial(_show, width=width, response=response)
        try_out(task, nobody, ordinary, _keep, show, _scores if scored else None)
        _warn_of_file(type(model))
        return task

    def _take(self, task: Task[Model], q: object) -> None:
        """Keep q."""
        self._fitted_model: Model = task.model
        super()._take(task, q)

    def _unsettled(self) -> tuple[str, ...]:
        q = self.q_
        effect = (
            "the last scores are {:.2g} times as large as their noise explains. Do not use the estimates and their "
            "intervals. Begin near the rates of the labels with FixedCurvature.at, take more steps, or scale the "
            "columns to public ranges"
        )
        return tuple(
            not_settled(part.n_steps, effect.format(part.convergence_ratio))
            for part in (q, *(vars(q).values() if is_dataclass(q) else ()))
            if isinstance(part, FixedCurvature) and part.convergence_ratio > 1
        )

    def _said_of_result(self) -> tuple[str, ...]:
        counts = self.privacy_.counts
        if counts is None or counts.clipped <= _MANY_CLIPPED * counts.included:
            return ()
        return (
            f"{100 * min(counts.clipped / counts.included, 1):.0f} % of the {self.privacy_.unit}s were clipped: "
            "estimates may be biased, which intervals do not include. Larger bounds of the blocks clip fewer.",
        )

    def _learned(self, task: Task[Model], q: Any) -> FittedModel:
        columns, response, width = (task.notes[name] for name in ("columns", "response", "width"))
        public = None if response is None else asdict(response)
        return FittedModel(place_of(type(task.model)), _facts(task.model), width, columns, public, q)

    def _check(self, record: FittedModel) -> None:
        """Check the sizes that a file states; the model's code does not run with them, except for its constructor."""
        try:
            self.model = self._fitted_model = _model_of(record.model, record.fields)
            self.response = None if record.response is None else Response(**record.response)
        except ParameterError as error:
            raise ModelFileError(f"cannot be read. {error}") from None

    def _show(self, record: FittedModel) -> None:
        self.n_features_in_, self.q_, self._columns = record.width, record.q, record.columns
        self._fitted_response = None if record.response is None else Response(**record.response)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one file; see `PrivateEstimator.save`.

        Args:
            path: File to write; its folder must exist.
            overwrite: Whether to replace an existing file. Default: False.

        Raises:
            ModelFileError: Also if the class of the model, or of a part of q, is not at the top level of a module.
        """
        self._check_fitted()
        for kind in (type(self._fitted_model), *trees.classes_of(self.q_)):
            named(kind)
        super().save(path, overwrite=overwrite)

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """No row, of a table with a schema or of so many features, with no response where there are responses."""
        if schema is not None:
            return {"X": Table({name: [] for name in schema.read_columns}, schema)}
        return {"X": np.empty((0, width or 0)), **({} if self.response is None else {"y": np.empty(0)})}

    def _quality(self, rows: object) -> Floats:
        """The model's own score of each row."""
        return _scores(self._fitted_model, self.q_, rows)

    def _quality_range(self, model: Model) -> tuple[float, float]:
        """Declarations of the model."""
        ends = model.score_range if model.is_scored else None
        return super()._quality_range(model) if ends is None else ends

    @property
    def _unscored(self) -> str:
        return "model must define score(q, batch) and declare score_range: its rows have no scores of their own."

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, public: bool = False) -> float:
        """Return the mean score of public rows, as the model defines it, with rows scaled as in `fit`.

        Args:
            X, y: Public rows and responses. y=None (default): the model has none.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            ParameterError: If the model does not define `score`.
            DataFormatError: For rows of other columns, or of a table with another schema.
        """
        self._check_public(public)
        self._check_defined("score")
        if self._columns is not None:
            X = self._columns.scored(X, y)
        source, *_ = self._source(X, y, None)
        if self._columns is not None and isinstance(source, ModelRows):
            check_width(source.width, self._columns.width, type(self._fitted_model).__name__)
        with said("score", _AFTER):
            score_n = np.concatenate([self._quality(chunk.rows) for chunk in source.chunks()])
        if np.isnan(score_n).all():
            raise DataFormatError("X must have a row that the model gives a score: a row with NaN is ignored.")
        return float(np.nanmean(score_n))

    def lower_bound(self) -> float:
        """Return the variational lower bound of the model on the log evidence, at the released statistics, in nats.

        It uses no budget. With noise it is a function of noisy statistics: an estimate of the bound, not a bound.

        Raises:
            ParameterError: If the model does not define `lower_bound`.
        """
        self._check_defined("lower_bound")
        with said("lower_bound", _AFTER):
            return float(self._fitted_model.lower_bound(self.q_))

    def intervals(self, level: float = 0.95) -> tuple[Interval, ...]:
        """Return credible intervals, as the model defines them: (name, estimate, low, high) each.

        Args:
            level: Probability inside an interval, in (0, 1). Default: 0.95.

        Raises:
            ParameterError: If the model does not define `intervals`.
        """
        self._check_defined("intervals")
        check_number("level", level, low=0, high=1, closed="neither")
        with said("intervals", _AFTER):
            return _intervals(self._fitted_model, self.q_, level)

    def sample(self, n: int = 1, rng: Any = None) -> dict[str, NDArray[Any]]:
        """Draw n synthetic rows from the released model: columns by name, in units of X.

        Rows of a table are its own cells: numbers in their ranges, categories, dates, None for a missing one, and the
        target under its name. Other responses are column "y".

        Args:
            n: Public number of rows.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).

        Raises:
            ParameterError: If the model does not define `sample`.
        """
        self._check_defined("sample")
        number = check_integer("n", n, low=1, high=10**9)
        draw, own, name = generator("rng", rng), self._columns, "y"
        with said("sample", _AFTER):
            x_nd, y_n = _drawn(self._fitted_model, self.q_, number, draw, self.n_features_in_, self._fitted_response)
        if own is None:
            cells = dict(zip(places(x_nd.shape[1]), x_nd.T, strict=True))
        elif own.schema is None:
            cells = dict(zip(own.feature_names, own.max_row_norm * x_nd.T, strict=True))
        else:
            cells = own.schema.decoded(own.max_row_norm * x_nd)
            name = name if own.schema.target is None else own.schema.target.name
        while name in cells:
            name += "_"
        return cells if y_n is None else {**cells, name: y_n}

    def _facts_for_report(self) -> Iterator[Figure]:
        """The model's intervals and its figures."""
        self._check_fitted()
        if self._fitted_model.defines("intervals"):
            rows = tuple((*row, "") for row in self.intervals())
            yield Intervals(
                title="Estimates", name="estimates", note="With 95 % credible intervals.", rows=rows, reference=0.0
            )
        with said("figures", _AFTER):
            figures = _figures(self._fitted_model, self.q_)
        yield from figures

    def _check_defined(self, method: str) -> None:
        """Refuse what the fitted model has no method for."""
        self._check_fitted()
        if not self._fitted_model.defines(method):
            name = type(self._fitted_model).__name__
            raise ParameterError(f"model must define {method}(...), and {name} does not: see docs/new-model.md.")

    def _expected_accuracy(self, task: Task[Model], plan: Plan, n: float) -> ExpectedAccuracy:
        """The model's own answer, where it has one; else the noise of means."""
        model = task.model
        if not model.defines("expected_accuracy"):
            return super()._expected_accuracy(task, plan, n)
        with said("expected_accuracy"):
            name, value = model.expected_accuracy(
                {block: plan.noise_std_at_end(block, task.rho) for block in model.blocks}, n
            )
            check_number(f"the expected accuracy {name!r}", value, low=0, closed="both")
        return ExpectedAccuracy(str(name), float(value), CLEAR)

    def _checked(self, model: object) -> Model:
        """A model, with the number of steps that was asked for."""
        if not (isinstance(model, Model) and is_dataclass(model)):
            raise ParameterError(f"model must be a dpvb.Model that is a frozen dataclass, got {type(model).__name__}.")
        for name, value in _facts(model).items():
            if not _is_plain(value):
                raise ParameterError(
                    f"model must have fields that a file can hold, but {name} is {type(value).__name__}. Fields are "
                    "numbers, texts, None, and tuples of them (an array's .tolist(), with tuples for its lists); a "
                    "function is a method of the model."
                )
        if (name := misfit(type(model), _facts(model))) is not None:
            raise ParameterError(f"model must have fields of the types that it declares: {name} is of another type.")
        _check_methods(model)
        if self.n_steps is None:
            return model
        n_steps = check_integer("n_steps", self.n_steps, low=1, high=10**7)
        if all(field.name != "n_steps" for field in fields(model)):
            raise ParameterError(
                "n_steps must be None: this model has no field n_steps to set. Or declare `n_steps: int` in it."
            )
        return replace(model, n_steps=n_steps)

    def _as_prior(self, columns: tuple[Model, Response | None, Columns | None]) -> tuple[Mapping[str, object], str]:
        """Return values for fields of the model of the fit; `columns` are its model, response and columns.

        Raises:
            ParameterError: for another model, response, or other columns.
        """
        self._check_fitted()
        model, response, own = columns
        ours = self._fitted_model
        if type(ours) is not type(model):
            raise ParameterError(
                f"prior must be a fitted dpvb.PrivateModel of a {type(model).__name__}, or a file of one, got one of a "
                f"{type(ours).__name__}."
            )
        for name in _FILLED:
            if getattr(ours, name, None) != getattr(model, name, None):
                raise ParameterError(f"prior must be a fit of a model with the same {name}: they differ.")
        if self._fitted_response != response:
            raise ParameterError("prior must have the response of the fit: they differ.")
        if (own is None) != (self._columns is None):
            raise ParameterError("prior must be of rows of numbers, or of a source of another kind, as the fit is.")
        if own is not None and self._columns is not None:
            own.check_earlier(self._columns)
        self._check_defined("as_prior")
        with said("as_prior"):
            return ours.as_prior(self.q_), "the posterior"

    def _clip(self, source: object) -> Literal["block", "joint"]:
        """How units are clipped: one factor for all blocks, unless each row is known to be a unit."""
        if self.clipping is not None:
            check_choice("clipping", self.clipping, ("block", "joint"))
            return self.clipping
        return "block" if isinstance(source, ModelRows) and source.unit == Design.row else "joint"

    def _response_of(self, X: Records) -> Response | None:
        """Declaration of y, by the parameter or by a table's schema.

        Raises:
            ParameterError: for what a model gets no column of.
        """
        target = X.schema.target if isinstance(X, Table) else None
        response = target.response if self.response is None and target is not None else self.response
        if not isinstance(response, Response | None):
            raise ParameterError(f"response must be a dpvb.data.Response, got {type(response).__name__}.")
        if response is not None and (response.kind == "binomial" or response.columns):
            raise ParameterError(
                "response must be a label, a number or a count, without trials, exposure, offset or weights: give "
                "these as columns of X, or a dpvb.data.Design."
            )
        return response

    def _source(
        self, X: Any, y: Responses, group: Iterable[object] | None
    ) -> tuple[Source[Any], Source[Any], Source[Any]]:
        """The rows of the caller, synthetic rows of zeros, one for each label or end of the range of y, and others."""
        if all(hasattr(type(X), name) for name in ("chunks", "count")) and hasattr(X, "unit"):
            if group is not None:
                raise ParameterError("group must be None with a source: it says itself what its units are.")
            if y is not None or self.response is not None:
                raise ParameterError("y and response must be None with a source: its chunks hold what rows have.")
            nobody = _nobody(X)
            return X, nobody, nobody
        response = self._response_of(X)
        if (y is not None) and self.response is None:
            raise ParameterError(
                "y needs response=, what y may be: dpvb.data.Response('classes', classes=...) for labels, "
                "Response('numeric', low=..., high=...) for numbers, Response('poisson', max_count=...) for counts."
            )
        if y is None and self.response is not None and not isinstance(X, Table):
            raise ParameterError("y must be given, the response of each row, where response= says what it may be.")
        if isinstance(X, Table):
            if self.max_row_norm is not None:
                raise ParameterError("max_row_norm must be None with a table: its schema bounds the norm of a row.")
            by_y = None if self.response is None else response
            design = X.design(y, response=by_y, fit_intercept=False, group=group, labelled=response is not None)
            max_row_norm = design.max_row_norm
        elif self.max_row_norm is None:
            raise unbounded(
                "max_row_norm",
                "none",
                ONE_UNIT,
                "max_row_norm=n_features**0.5, once you have brought each column to [-1, 1] by the range of it that "
                "you know without looking at the data",
                BY_RELEASE,
            )
        else:
            max_row_norm = self.max_row_norm
            design = Design(X, y, response=response or LOGISTIC, max_row_norm=max_row_norm, group=group)
        answer_n = None if response is None else _answers(response)

        def rows(x_nd: Floats, y_n: NDArray[Any] | None) -> ModelRows:
            """Synthetic rows, in shares of `max_row_norm`; each is a unit."""
            person = None if design.unit == Design.row else range(len(x_nd))
            bounds: Any = {"response": response or LOGISTIC, "max_row_norm": max_row_norm}
            return ModelRows(Design(max_row_norm * x_nd, y_n, group=person, **bounds), response is not None)

        rng = generator("seed", 0)
        nobody = rows(np.zeros((1 if answer_n is None else len(answer_n), design.width)), answer_n)
        number = min(_ORDINARY, max(_NUMBERS // max(design.width, 1), 1))
        share_nd = rng.random((number, design.width)) / math.sqrt(max(design.width, 1))
        ordinary = rows(share_nd, None if answer_n is None else rng.choice(answer_n, number))
        return ModelRows(design, response is not None), nobody, ordinary


def _answers(response: Response) -> NDArray[Any]:
    """Every label that a response may be, or both ends of its range: a row of zeros is tried with each."""
    return np.asarray(response.decode(_places_of(response)))


def _places_of(response: Response) -> Floats:
    """The same as a model reads them."""
    if response.is_label:
        return np.arange(len(response.classes), dtype=np.float64)
    return np.array([-1.0, 1.0] if response.kind == "numeric" else [0.0, float(response.max_count)])


def _columns_of(X: Any, source: Any) -> Columns | None:
    """The public columns of the rows of a fit; None for a source of another kind."""
    if not isinstance(source, ModelRows):
        return None
    schema, names = (X.schema, X.feature_names) if isinstance(X, Table) else (None, column_names(X))
    return Columns(PrivateModel.__name__, names, source.width, schema, source.design.max_row_norm)


@dataclass(frozen=True)
class ModelRows:
    """Rows of numbers as a model reads them, no row longer than 1: arrays, or with responses `DesignRows`."""

    design: AnyDesign
    labelled: bool = False

    @property
    def unit(self) -> str:
        """The privacy unit; public."""
        return self.design.unit

    @property
    def width(self) -> int:
        """Number of columns; public."""
        return self.design.width

    def count(self) -> int:
        """Number of privacy units; private under add/remove."""
        return self.design.count()

    def parts(self, number: int) -> list[ModelRows | Shard]:
        """The same units in order, in at most so many sources of their own, or in their files."""
        return [
            Shard(one.path, partial(_of_file, one, self.labelled))
            if isinstance(one, Shard)
            else replace(self, design=one)
            for one in self.design.parts(number)
        ]

    @property
    def unit_numbers(self) -> Ints | None:
        """See `core.source.Source`."""
        return getattr(self.design, "unit_numbers", None)

    def chunks(self) -> Iterator[Chunk[Any]]:
        """All units once; of a person who has more rows than LARGEST_BATCH the first of them."""
        chunks = map(_shortened, self.design.chunks())
        return chunks if self.labelled else map(_unlabelled, chunks)


def _of_file(shard: Shard, labelled: bool) -> ModelRows:
    return ModelRows(cast("AnyDesign", shard.open()), labelled)


def _empty_chunk(source: Any) -> Any:
    """Return a source's chunk of no units; None if it fails or returns anything else."""
    with suppress(Exception), silence(logs=True):
        empty = source.empty()
        if not empty.num_units and not len(empty.select(np.zeros(0, dtype=np.bool_)).rows):
            return empty
    return None


def _shortened(chunk: Chunk[Any]) -> Chunk[Any]:
    """A chunk of a design, with the first LARGEST_BATCH rows of a person who has more."""
    if chunk.unit_of_row is None or len(chunk.unit_of_row) <= LARGEST_BATCH:
        return chunk
    # Such a chunk is a single person.
    return replace(chunk, which=_first(chunk.which), unit_of_row=_first(chunk.unit_of_row), kept=None)


def _unlabelled(chunk: Chunk[DesignRows]) -> Chunk[Floats]:
    """Only the predictors of a chunk; the rows of a whole chunk are kept as there."""
    return Chunk(
        chunk.which,
        chunk.unit_of_row,
        chunk.num_units,
        lambda which: (chunk.rows if which is chunk.which else chunk.read(which)).x_nd,
    )


def _first(rows: Any) -> Any:
    return slice(rows.start, rows.start + LARGEST_BATCH) if isinstance(rows, slice) else rows[:LARGEST_BATCH]


def _nobody(source: Any) -> Source[Any]:
    """No units of a source of another kind.

    Raises:
        ParameterError: for a source that has no chunk without units.
    """
    if hasattr(type(source), "empty"):
        empty = _empty_chunk(source)
        if empty is None:
            raise ParameterError(
                f"X must be a source whose method empty() returns a chunk of no units, and that of "
                f"{type(source).__name__} failed or returned units. Nothing was spent. The reason is not shown, "
                "because the source holds private rows: call empty() yourself."
            )
        return Nobody((empty,))
    if not is_shipped(source):
        raise ParameterError(
            f"X must be a source with a method empty() that returns a chunk of no units, and {type(source).__name__} "
            "has none. Each release asks the model about no rows, even if there are none."
        )
    return Nobody()


def _check_methods(model: Model) -> None:
    """Refuse a model that has blocks of a phase, and no method that follows their release."""
    with said("its blocks"):
        phases = {block.phase for block in model.blocks.values()}
    lacking = [method for phase, method in _METHODS.items() if phase in phases and not model.defines(method)]
    if phases and not phases & _METHODS.keys() and not model.defines("started"):
        lacking = ["started"]
    if lacking:
        when = {"started": "the release of its first blocks", "m_step": "each step", "finished": "the last release"}
        raise ParameterError(
            f"model must define {lacking[0]}(s, q), which returns q after {when[lacking[0]]}: without it nothing is "
            "learned."
        )


def _stated(model: Any, columns: Columns | None, response: Response | None) -> Any:
    """A model with the names of the features in its field `columns`, their `units`, and the labels in `classes`.

    A field that is () is filled in. A model without such a field, or with another type of it, is left as it is.

    Raises:
        ParameterError: for other values, or the same in another order.
    """
    stated: dict[str, tuple[Any, ...]] = {}
    if columns is not None:
        stated = {"columns": columns.feature_names, "units": columns.steps}
    if response is not None and response.is_label:
        stated["classes"] = tuple(response.classes)
    own = {name: getattr(model, name, None) for name in stated}
    for name, given in own.items():
        named = name != "columns" or (columns is not None and columns.names is not None)
        if type(given) is tuple and given and (given != stated[name] if named else len(given) != len(stated[name])):
            whose = _FILLED[name]
            raise ParameterError(
                f"model must have in its field {name} the {whose}, in their order, or nothing: it has "
                f"{notebook_html.abbreviated(given)} in place of {notebook_html.abbreviated(stated[name])}. "
                "Nothing was charged."
            )
    empty = {name: stated[name] for name, given in own.items() if given == ()}
    return replace(model, **empty) if isinstance(model, Model) and empty else model  # type: ignore[type-var]


def _intervals(model: Model, q: object, level: float) -> tuple[Interval, ...]:
    """The model's intervals.

    Raises:
        TypeError, ValueError: for anything but names, each once, and numbers, the lower end before the upper one.
    """
    found = []
    for row in model.intervals(q, level):
        name, mean, low, high = row
        if not isinstance(name, str):
            raise TypeError(f"a name of type {type(name).__name__}")
        value, ends = float(mean), (float(low), float(high))
        if not (math.isfinite(value) and ends[0] <= ends[1]):
            raise ValueError(f"the estimate {value:g} from {ends[0]:g} to {ends[1]:g} of {name!r}")
        found.append((name, value, *ends))
    if len({name for name, *_ in found}) < len(found):
        raise ValueError(f"a name twice among {', '.join(name for name, *_ in found)}")
    return tuple(found)


def _figures(model: Model, q: object) -> list[Figure]:
    """The model's figures.

    Raises:
        TypeError, ValueError: for anything else, rows of other lengths than their titles, and NaN.
    """
    figures = list[Figure]()
    for figure in model.figures(q):
        if not isinstance(figure, Figure):
            raise TypeError(f"{type(figure).__name__}, which is not a figure of dpvb.results.figures")
        for one in figure.drawings():
            listing = one.listing()
            if any(len(row) != len(listing.keys) for row in listing.values):
                raise ValueError(f"the figure {one.title!r} with rows of other lengths than its titles")
            if any(isinstance(value, float) and math.isnan(value) for row in listing.values for value in row):
                raise ValueError(f"the figure {one.title!r} with NaN")
            str(one), one.to_dict()
        figures.append(figure)
    return figures


def _drawn(
    model: Model, q: object, n: int, rng: Any, width: int | None, response: Response | None
) -> tuple[Floats, NDArray[Any] | None]:
    """Rows that the model draws, and their responses as users have them; None: it draws none.

    Raises:
        ValueError: for another number of rows or features, for NaN, and for responses that there are not.
    """
    rows = model.sample(q, n, rng)
    x_nd, y_n = rows if isinstance(rows, tuple) else (rows, None)
    x_nd = np.asarray(x_nd, dtype=np.float64)
    shape = (n, x_nd.shape[-1] if width is None and x_nd.ndim else width)
    if x_nd.shape != shape or not np.isfinite(x_nd).all():
        raise ValueError(f"rows of shape {x_nd.shape} where numbers of shape {shape} are asked for")
    if y_n is None:
        return x_nd, None
    y_n = np.asarray(y_n, dtype=np.float64)
    if y_n.shape != (n,) or not np.isfinite(y_n).all():
        raise ValueError(f"responses of shape {y_n.shape} where {n} numbers are asked for")
    if response is not None and response.kind != "numeric":  # A number outside its range is clipped to it.
        low, *_, high = _places_of(response).tolist()
        if not ((y_n >= low) & (y_n <= high) & (y_n == np.rint(y_n))).all():
            raise ValueError(f"responses other than whole numbers from {low:g} to {high:g}")
    return x_nd, y_n if response is None else response.decode(y_n)


def _warn_of_file(kind: type) -> None:
    """Warn before the charge of a model whose file no other program could load."""
    place = place_of(kind)
    if kind.__module__ == "__main__" or "<locals>" in place:
        where = f"{kind.__name__} is defined in this program or notebook"
        effect = "a file of its fits can be loaded only by a program that defines it as well"
        if "<locals>" in place:
            where, effect = f"{kind.__name__} is defined inside a function", "its fits cannot be saved"
        warnings.warn(
            f"{where}: {effect}. To save fits, move the model and the classes of its q to a module, such as "
            f"{kind.__name__.lower()}.py, and import it. Nothing has been charged yet.",
            DpvbWarning,
            stacklevel=5,
        )


def _keep(model: Model, q: object) -> None:
    """Raise for a q that no file can hold: by the names and types of its arrays, and by none of its numbers."""
    arrays = {name: np.empty(0, array.dtype) for name, array in trees.leaves(q).items()}
    model_file.packed(kind="PrivateModel", arrays=arrays, facts={"fields": _facts(model), "form": trees.form_of(q)})


def _show(model: Model, q: object, width: int | None, response: Response | None) -> None:
    """Call what the model defines of q and of nothing else, and raise for a result of another form."""
    rng = generator("seed", 0)
    # A q of no rows may have numbers with which no model can go on.
    with said("intervals"), suppress(ArithmeticError, np.linalg.LinAlgError):
        _intervals(model, q, 0.95) if model.defines("intervals") else ()
    with said("figures"), suppress(ArithmeticError, np.linalg.LinAlgError):
        _figures(model, q)
    with said("lower_bound"), suppress(ArithmeticError, np.linalg.LinAlgError):
        float(model.lower_bound(q) if model.defines("lower_bound") else 0.0)
    with said("sample"), suppress(ArithmeticError, np.linalg.LinAlgError):
        _drawn(model, q, 2, rng, width, response) if model.defines("sample") else ()
    with said("as_prior"), suppress(ArithmeticError, np.linalg.LinAlgError):
        replace(model, **model.as_prior(q) if model.defines("as_prior") else {})  # type: ignore[type-var]


def _scores(model: Model, q: object, rows: Any) -> Floats:
    """The model's score of each row.

    Raises:
        ValueError: for anything but a number for each row, and for more than LARGEST_BATCH rows of another kind than
            an array's or a design's.
    """
    if len(rows) > LARGEST_BATCH:
        parts = [slice(start, start + LARGEST_BATCH) for start in range(0, len(rows), LARGEST_BATCH)]
        if isinstance(rows, np.ndarray | DesignRows):
            return np.concatenate(
                [_scores(model, q, rows.part(one) if isinstance(rows, DesignRows) else rows[one]) for one in parts]
            )
        raise ValueError(f"a model of one's own is asked about at most {LARGEST_BATCH} rows at once")
    value = np.asarray(model.score(q, rows))
    if value.shape != (len(rows),) or value.dtype.kind not in "biuf":
        raise ValueError(
            f"a score of shape {value.shape} and dtype {value.dtype} for {len(rows)} rows: one number each"
        )
    return value


def _facts(model: Any) -> dict[str, Any]:
    """Fields of a model, all of them public, without types of NumPy."""
    return {field.name: _plain(getattr(model, field.name)) for field in fields(model)}


def _plain(value: Any) -> Any:
    """A value, or a tuple of values, without types of NumPy."""
    if type(value) is tuple:
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    """Whether JSON gives a value back as it was."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def _frozen(value: Any) -> Any:
    """Lists of a file as the tuples that they were."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _model_of(place: str, values: Mapping[str, object]) -> Model:
    """A model of a class that this process has imported; a file cannot cause an import.

    Raises:
        ParameterError: for another class, or a field of another type.
    """
    kind = imported(place)
    if not (isinstance(kind, type) and issubclass(kind, Model) and is_dataclass(kind)):
        raise ParameterError(
            f"model {place!r} must be MODULE:CLASS, a dpvb.Model of your own; import its module first (on the command "
            f"line: dpvb --import {place.partition(':')[0]} ...)."
        )
    plain = {name: _frozen(value) for name, value in values.items()}
    if (name := misfit(kind, plain)) is not None:
        raise ParameterError(f"model must have fields of the types that it declares: {name} is of another type.")
    return kind(**plain)
