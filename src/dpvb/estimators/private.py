"""The estimator of any model: what it needs is a model, rows and a budget.

Before anything is spent, a tryout fits the model to rows of zeros, which are nobody's, one for each label that is
declared. What fails there does so whatever the data are: the model's code, its declarations, the width of its rows. So
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
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

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
    column_names,
    generator,
    if_fitted,
    named,
    unbounded,
)
from dpvb.estimators.earlier import known
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.ranges import places
from dpvb.guards import domains
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.guards.errors import (
    ModelFileError,
    NotSettledWarning,
    ParameterError,
    check_choice,
    check_integer,
    check_number,
)
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.guards.silence import silence
from dpvb.guards.strangers import imported, misfit, place_of, printable
from dpvb.models.base import Interval, Model
from dpvb.models.regression.descent import FixedCurvature
from dpvb.results import model_file, trees
from dpvb.results.declared import told
from dpvb.results.expected_accuracy import CLEAR, ExpectedAccuracy
from dpvb.results.facts import ReleaseFacts
from dpvb.results.figures import Figure, Intervals
from dpvb.results.statement import PrivacyStatement
from dpvb.rows import DesignRows

# Characters of a model's own error that are shown.
_MOST_SAID = 300
# The method that follows a release, for messages; see `core.model.updated`.
_METHODS = {"step": "m_step", "last": "finished"}


@contextmanager
def said(what: str) -> Iterator[None]:
    """Turn whatever a model raises into an error that names what failed.

    Args:
        what: public, in words.

    Raises:
        ParameterError: in place of any other exception.
    """
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}")[:_MOST_SAID]
        raise ParameterError(f"model must pass a tryout before anything is spent: {what} gave {reason}") from error


#: Something that is asked of a model at a q.
Asked = Callable[[Model, object], object]
#: A model's scores of rows at a q.
Scored = Callable[[Model, object, object], object]


def try_out(task: Task[Model], nobody: Source[Any], keep: Asked, show: Asked, score: Scored | None) -> None:
    """Fit a model to synthetic rows: without noise, and where that fails, with noise.

    A sound model passes one of the two. Numbers that no data would give may make an M-step fail, but hardly both times.

    Args:
        task: what a fit would do.
        nobody: rows of zeros with each label, as the source of the task has them; no chunk: none can be made up.
        keep: raises for a q that no file can hold.
        show: raises for a q of which the model cannot show what it defines.
        score: raises for rows, at a q, that cannot be scored; None: the model scores none.

    Raises:
        ParameterError: naming what failed and why; nothing was spent, and nothing private was looked at.
    """
    # By the second step a q is the model's own M-step's.
    plan = replace(task.relative, releases=[*task.relative.releases[:3], *task.relative.releases[3:][-1:]])
    with said("the privacy statement"):
        str(_statement(plan, task.public))
    refused = None
    for scale in (0.0, 1.0):
        try:
            with silence(logs=True):
                return _fit(task, plan.scaled(scale), nobody, keep, show, score)
        except ParameterError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _fit(task: Task[Model], plan: Plan, nobody: Source[Any], keep: Asked, show: Asked, score: Scored | None) -> None:
    """`loop.fit`, looked at step by step."""
    model, wall = task.model, Wall(nobody, plan)
    with said("init"):
        q = model.init(generator("seed", 0))
    if (fault := domains.outside(q)) is not None:
        raise ParameterError(f"model must start from a q that the wall answers: {fault}.")
    # Each synthetic unit by itself, so that an error names its label; then none.
    batches = [
        chunk.select(np.arange(chunk.num_units) == unit) for chunk in nobody.chunks() for unit in range(chunk.num_units)
    ]
    batches += [chunk.select(np.zeros(chunk.num_units, dtype=np.bool_)) for chunk in nobody.chunks()]
    s = Estimate.empty(model.blocks)
    for t, release in enumerate(plan, start=1):
        for batch in batches:
            _ask(task, q, release, batch)
        with said("the sum of synthetic rows"):
            released = wall.release(loop.query(model, q, release), release)
        with said("the step size"):
            s = s.update(released, task.rho(t))
        # What is brought about by the numbers of a sum is not a fault of the model's form.
        method = _METHODS.get(s.phase, "started")
        with said(method), suppress(ArithmeticError, np.linalg.LinAlgError):
            q = updated(model, s, q)
        with said(f"the q of {method}"):
            keep(model, q)
        if domains.outside(q) is not None:
            return
    show(model, q)
    for batch in batches if score is not None else ():
        with said(f"score on {_rows(batch, task)}"):
            score(model, q, batch.rows)  # type: ignore[misc]


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
            Work(partial(_again, answer), alone, grids_of(alone, None), _words)._added(batch)


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


def _again(found: Any, rows: Any) -> Any:
    return found


def _words(count: int, start: int = 0) -> Any:
    return np.zeros(count, dtype=np.uint64)


def _statement(plan: Plan, public: list[str]) -> PrivacyStatement:
    """The texts that the fit's statement will be made of; the numbers stand for others."""
    return PrivacyStatement(
        unit=plan.unit,
        neighboring_relation=plan.neighboring_relation,
        epsilon=1.0,
        delta=0.5,
        curve=(),
        releases=ReleaseFacts.of_plan(plan),
        method="pld",
        tool="pld",
        secret_noise=True,
        public=tuple(public),
        n_units=None,
        run_id="",
        plan_digest=plan.digest.hex(),
    )


@dataclass(frozen=True)
class FittedModel:
    """What was learned: q, the model's class and fields, and what is public of the rows, as far as they have it.

    Attributes:
        width, names: number of columns, and their names.
        norm: what features were divided by.
        response: fields of the `Response`.
    """

    model: str
    fields: dict[str, Any]
    width: Annotated[int | None, domains.NONNEGATIVE]
    names: tuple[str, ...] | None
    norm: Annotated[float | None, domains.POSITIVE]
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
    _reads: ClassVar[str | None] = "measurements"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "model" and isinstance(value, Mapping):
            value = _model_of(str(value.get("class")), {n: part for n, part in value.items() if n != "class"})
        if name == "response" and isinstance(value, Mapping):
            value = Response(**value)
        super().__setattr__(name, value)

    _record_class: ClassVar[type] = FittedModel

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[Model]:
        """What a fit to private rows would do.

        Raises:
            ParameterError: for a model that fails on a row of zeros, which is nobody's, for rows without a bound, and
                for y without response=, among all other public faults.
        """
        response = self._response_of(X)
        model = self._checked(self.model)
        earlier, origin = known(self, (model, response, self.max_row_norm))
        if earlier is not None:
            with said("as_prior"):
                model = replace(model, **earlier)  # type: ignore[type-var]
            model = self._checked(model)
        source, nobody = self._source(X, y, group)
        with said("its schedule"):
            schedule = model.schedule
        facts = ", ".join(f"{name} = {value}" for name, value in told(_facts(model)).items())
        public = {
            "model": f"the model {type(model).__name__}" + (f" with {facts}" if facts else ""),
            **({} if response is None else {"response": f"y is {response.said}"}),
            **({} if earlier is None else {"prior": f"the prior: {origin}"}),
            "parameters": "the plan, the random start and all other parameters",
        }
        names = X.feature_names if isinstance(X, Table) else column_names(X)
        norm = X.design(fit_intercept=False, labelled=False).max_row_norm if isinstance(X, Table) else self.max_row_norm
        notes = {"width": getattr(source, "width", None), "names": names, "norm": norm, "response": response}
        with said("the plan of its blocks and its schedule"):
            task = self._planned_task(model, source, schedule, public, notes, self._clip(source))
        with said("its score_range"):
            scored = model.is_scored
        try_out(task, nobody, _keep, _show, _scores if scored else None)
        return task

    def _take(self, task: Task[Model], q: object) -> None:
        """Keep q."""
        self._fitted_model: Model = task.model
        super()._take(task, q)
        for part in (q, *(vars(q).values() if is_dataclass(q) else ())):
            if isinstance(part, FixedCurvature) and part.restlessness > 1:
                warnings.warn(
                    f"The scores of {part.n_steps} steps have not settled: they lead {part.restlessness:.2g} times "
                    "as far from the mean point of the steps as their noise does. Do not use the estimates and their "
                    "intervals. Begin near the rates of the labels with FixedCurvature.at, take more steps, or bring "
                    "the columns to public ranges. What the fit spent stays spent.",
                    NotSettledWarning,
                    stacklevel=3,
                )

    def _learned(self, task: Task[Model], q: Any) -> FittedModel:
        names, norm, response, width = (task.notes[name] for name in ("names", "norm", "response", "width"))
        public = None if response is None else asdict(response)
        names = None if names is None else tuple(names)
        return FittedModel(place_of(type(task.model)), _facts(task.model), width, names, norm, public, q)

    def _check(self, record: FittedModel) -> None:
        """The model's code does not run with sizes that a file says, but for its constructor."""
        try:
            self.model = self._fitted_model = _model_of(record.model, record.fields)
            self.response = None if record.response is None else Response(**record.response)
        except ParameterError as error:
            raise ModelFileError(f"cannot be read. {error}") from None

    def _show(self, record: FittedModel) -> None:
        self.n_features_in_, self.q_ = record.width, record.q
        response = None if record.response is None else Response(**record.response)
        self._rows = _RowFacts(record.names, record.norm, response)

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
        """What the model declares."""
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
        """
        self._check_public(public)
        self._check_defined("score")
        source, _ = self._source(X, y, None)
        parts = [self._quality(chunk.rows) for chunk in source.chunks()]
        return float(np.nanmean(np.concatenate(parts)))

    def lower_bound(self) -> float:
        """Return the variational lower bound of the model on the log evidence, at the released statistics, in nats.

        It uses no budget. With noise it is a function of noisy statistics: an estimate of the bound, not a bound.

        Raises:
            ParameterError: If the model does not define `lower_bound`.
        """
        self._check_defined("lower_bound")
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
        return tuple(self._fitted_model.intervals(self.q_, level))

    def sample(self, n: int = 1, rng: Any = None) -> dict[str, NDArray[Any]]:
        """Draw n synthetic rows from the released model: columns by name, in units of X; responses are column "y".

        Args:
            n: Public number of rows.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).

        Raises:
            ParameterError: If the model does not define `sample`.
        """
        self._check_defined("sample")
        number = check_integer("n", n, low=1, high=10**9)
        rows = self._fitted_model.sample(self.q_, number, generator("rng", rng))
        x_nd, y_n = rows if isinstance(rows, tuple) else (rows, None)
        x_nd, (names, norm, response) = np.asarray(x_nd), self._rows
        columns = dict(zip(names or places(x_nd.shape[1]), norm * x_nd.T if norm else x_nd.T, strict=True))
        return columns if y_n is None or response is None else {**columns, "y": response.decode(np.asarray(y_n))}

    def _facts_for_report(self) -> Iterator[Figure]:
        """The model's intervals and its figures."""
        self._check_fitted()
        if self._fitted_model.defines("intervals"):
            rows = tuple((*row, "") for row in self.intervals())
            yield Intervals(
                title="Estimates", name="estimates", note="With 95 % credible intervals.", rows=rows, reference=0.0
            )
        yield from _figures(self._fitted_model, self.q_)

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
            name, value = model.expected_accuracy({block: plan.noise_std_of_mean(block) for block in model.blocks}, n)
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

    def _as_prior(self, columns: tuple[Model, Response | None, float | None]) -> tuple[Mapping[str, object], str]:
        """Return values for fields of the model of the fit; `columns` are its model, response and max_row_norm.

        Raises:
            ParameterError: for another model, max_row_norm or response.
        """
        self._check_fitted()
        model, *others = columns
        if type(self._fitted_model) is not type(model):
            raise ParameterError(
                f"prior must be a fitted dpvb.PrivateModel of a {type(model).__name__}, or a file of one, got one of a "
                f"{type(self._fitted_model).__name__}."
            )
        if [self._rows.response, self.max_row_norm] != others:
            raise ParameterError("prior must have the max_row_norm and the response of the fit: one of them differs.")
        self._check_defined("as_prior")
        with said("as_prior"):
            return self._fitted_model.as_prior(self.q_), "the posterior"

    def _clip(self, source: object) -> Literal["block", "joint"]:
        """How units are clipped: one factor for all blocks, unless each row is known to be a unit."""
        if self.clipping is not None:
            check_choice("clipping", self.clipping, ("block", "joint"))
            return self.clipping
        return "block" if isinstance(source, ModelRows) and source.unit == Design.row else "joint"

    def _response_of(self, X: Records) -> Response | None:
        """What y may be, by the parameter or by a table's schema.

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

    def _source(self, X: Any, y: Responses, group: Iterable[object] | None) -> tuple[Source[Any], Source[Any]]:
        """The rows that are given, and rows of zeros that are nobody's, one for each label or end of the range of y."""
        if all(hasattr(type(X), name) for name in ("chunks", "count")) and hasattr(X, "unit"):
            if group is not None:
                raise ParameterError("group must be None with a source: it says itself what its units are.")
            if y is not None or self.response is not None:
                raise ParameterError("y and response must be None with a source: its chunks hold what rows have.")
            return X, _nobody(X)
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
        answer = None if response is None else _answers(response)
        number = 1 if answer is None else len(answer)
        person = None if design.unit == Design.row else range(number)
        zero_nd = np.zeros((number, design.width))
        zeros = Design(zero_nd, answer, response=response or LOGISTIC, max_row_norm=max_row_norm, group=person)
        rows, nobody = (ModelRows(one, response is not None) for one in (design, zeros))
        return rows, nobody


def _answers(response: Response) -> NDArray[Any]:
    """Every label that a response may be, or both ends of its range: a row of zeros is tried with each."""
    if response.kind in ("logistic", "classes"):
        return np.asarray(response.decode(np.arange(len(response.classes), dtype=np.float64)))
    low, high = (-1.0, 1.0) if response.kind == "numeric" else (0.0, float(response.max_count))
    ends: Floats = np.array([low, high])
    return np.asarray(response.decode(ends))


class _RowFacts(NamedTuple):
    """What is public of the rows of a fit: names of the features, what these were divided by, and what y may be."""

    names: tuple[str, ...] | None
    norm: float | None
    response: Response | None


@dataclass(frozen=True)
class ModelRows:
    """Rows of numbers as a model reads them, no row longer than 1: arrays, or with responses `DesignRows`."""

    design: AnyDesign
    labelled: bool = False

    @property
    def unit(self) -> str:
        """What one privacy unit is; public."""
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
            Shard(one.path, partial(self._of_file, one)) if isinstance(one, Shard) else replace(self, design=one)
            for one in self.design.parts(number)
        ]

    def _of_file(self, shard: Shard) -> ModelRows:
        return replace(self, design=cast("AnyDesign", shard.open()))

    def chunks(self) -> Iterator[RowsChunk]:
        """All units once; of a person who has more rows than LARGEST_BATCH the first of them."""
        return (RowsChunk(_shortened(chunk), self.labelled) for chunk in self.design.chunks())


@dataclass(frozen=True)
class RowsChunk:
    """Some consecutive units; see `core.source.ChunkOfUnits`."""

    chunk: Chunk[Any]
    labelled: bool

    @property
    def rows(self) -> Floats | DesignRows:
        """Their rows."""
        rows: DesignRows = self.chunk.rows
        return rows if self.labelled else rows.x_nd

    @property
    def unit_of_row(self) -> Ints | None:
        """Whose each row is; None: each row is a unit."""
        return self.chunk.unit_of_row

    @property
    def num_units(self) -> int:
        """Number of units."""
        return int(self.chunk.num_units)

    def select(self, units: Bools) -> RowsChunk:
        """The chosen units alone."""
        return RowsChunk(self.chunk.select(units), self.labelled)


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
    # Such a chunk is one person alone.
    return replace(chunk, which=_first(chunk.which), unit_of_row=_first(chunk.unit_of_row), kept=None)


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
    after = {"step": "m_step", "last": "finished"}
    lacking = [method for phase, method in after.items() if phase in phases and not model.defines(method)]
    if phases and not phases & after.keys() and not model.defines("started"):
        lacking = ["started"]
    if lacking:
        when = {"started": "the release of its first blocks", "m_step": "each step", "finished": "the last release"}
        raise ParameterError(
            f"model must define {lacking[0]}(s, q), which returns q after {when[lacking[0]]}: without it nothing is "
            "learned."
        )


def _figures(model: Model, q: object) -> Iterator[Figure]:
    """The model's figures.

    Raises:
        TypeError: for anything else.
    """
    for figure in model.figures(q):
        if not isinstance(figure, Figure):
            raise TypeError(f"figures must be of dpvb.results.figures, got {type(figure).__name__}")
        yield figure


def _keep(model: Model, q: object) -> None:
    """Raise for a q that no file can hold: by the names and types of its arrays, and by none of its numbers."""
    arrays = {name: np.empty(0, array.dtype) for name, array in trees.leaves(q).items()}
    model_file.packed(kind="PrivateModel", arrays=arrays, facts={"fields": _facts(model), "form": trees.form_of(q)})


def _show(model: Model, q: object) -> None:
    """Call what the model defines of q and of nothing else, and raise for a result of another form."""
    rng = generator("seed", 0)
    # A q of no rows may have numbers with which no model can go on.
    with said("intervals"), suppress(ArithmeticError, np.linalg.LinAlgError):
        for name, mean, low, high in model.intervals(q, 0.95) if model.defines("intervals") else ():
            str(name), float(mean), float(low), float(high)
    with said("figures"), suppress(ArithmeticError, np.linalg.LinAlgError):
        list(_figures(model, q))
    with said("lower_bound"), suppress(ArithmeticError, np.linalg.LinAlgError):
        float(model.lower_bound(q) if model.defines("lower_bound") else 0.0)
    with said("sample"), suppress(ArithmeticError, np.linalg.LinAlgError):
        rows = model.sample(q, 2, rng) if model.defines("sample") else np.zeros((2, 1))
        x_nd, y_n = rows if isinstance(rows, tuple) else (rows, np.zeros(2))
        if np.ndim(x_nd) != 2 or len(x_nd) != 2 or np.shape(y_n) != (2,):
            raise ValueError(f"rows of shape {np.shape(x_nd)} where two are asked for")
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
    """A model of a class that this process has imported; no module is imported by what a file says.

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
