"""The estimator of any model: what it needs is a model, rows and a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpvb.core.source import LARGEST_BATCH, Nobody, is_shipped
from dpvb.data import Design
from dpvb.estimators.base import BY_RELEASE, ONE_UNIT, PrivateEstimator, Task, column_names, named, unbounded
from dpvb.estimators.given import Records, Responses
from dpvb.estimators.tryout import said, try_out
from dpvb.guards import domains
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.guards.errors import ModelFileError, ParameterError, check_choice, check_integer
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.guards.silence import silence
from dpvb.guards.strangers import imported, misfit
from dpvb.models.base import Model
from dpvb.models.declared import told
from dpvb.results import model_file, trees


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class Private(PrivateEstimator):
    """Any model of your own under (ε, δ)-differential privacy.

    `fit` takes private rows X, (rows, features): NumPy, SciPy sparse or a DataFrame. `e_step` gets them as an
    array of float64, divided by row_norm, none longer than 1; a row that holds NaN, infinity or no number is NaN
    throughout, and counts as no row. A source of another kind is taken as it is: one of `dpvb.data`, or an object with
    `chunks()`, `count()`, `unit` and `empty()`, a chunk of no units (see `dpvb.core.source`). `e_step` is given at most
    `dpvb.testing.LARGEST_BATCH` rows at once, 8,192. If a person has more rows, the first 8,192 are included; a unit of
    a source of another kind that has more is ignored.

    Args:
        model: a `dpvb.Model`, a frozen dataclass.
        row_norm: a public bound on the norm of a row, in the units of X, which only a source of another kind can do
            without; longer rows are scaled back to it.
        clip: "joint" clips all blocks of a release by one factor, so that their ratios stay as they are; "block" clips
            each block to its own bound. The two differ if a unit exceeds a bound, for example a person with several
            rows. None (default): "block" if each row is a unit, "joint" otherwise: with group=, and with a source of
            another kind.

    Attributes:
        q_: what the model's last `m_step` returned.
        privacy_: the privacy statement of the fit.
        n_iter_, n_features_in_: number of steps, and of features.
    """

    model: Any = None
    _: KW_ONLY
    row_norm: float | None = None
    clip: Literal["block", "joint"] | None = None

    def task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task:
        """What a fit to private rows would do; y is ignored.

        Raises:
            ParameterError: for a model that fails on a row of zeros, which is nobody's, and for rows without a bound,
                among all other public faults.
        """
        model = self._checked_model()
        source, nobody = self._source(X, group)
        with said("its schedule"):
            schedule = model.schedule
        facts = ", ".join(f"{name} = {value}" for name, value in told(_facts(model)).items())
        public = {
            "model": f"the model {type(model).__name__}" + (f" with {facts}" if facts else ""),
            "parameters": "the plan, the random start and all other parameters",
        }
        notes = {"width": getattr(source, "width", None), "names": column_names(X)}
        with said("the plan of its blocks and its schedule"):
            task = self._task(model, source, schedule, public, notes, self._clip(source))
        with said("its score_range"):
            scored = model.is_scored
        try_out(task, nobody, partial(_keep, model), partial(_scores, model) if scored else None)
        return task

    def take(self, task: Task, q: Any) -> None:
        """Keep q."""
        self.n_iter_, self.n_features_in_ = task.notes["steps"], task.notes["width"]
        self._fitted_model, self.q_ = task.model, q

    def quality(self, rows: Any) -> Floats:
        """The model's own score of each row."""
        return _scores(self._fitted_model, self.q_, rows)

    def quality_range(self, model: Any) -> tuple[float, float]:
        """What the model declares."""
        return model.score_range if model.is_scored else super().quality_range(model)

    @property
    def _unscored(self) -> str:
        return "model must define score(q, batch) and declare score_range: its rows have no scores of their own."

    def _checked_model(self) -> Model:
        """The model, with the number of steps that was asked for."""
        if not (isinstance(self.model, Model) and is_dataclass(self.model)):
            raise ParameterError(
                f"model must be a dpvb.Model that is a frozen dataclass, got {type(self.model).__name__}."
            )
        for name, value in _facts(self.model).items():
            if not _is_plain(value):
                raise ParameterError(
                    f"model must have fields that a file can hold, but {name} is {type(value).__name__}. Fields are "
                    "numbers, texts, None, and tuples of them (an array's .tolist(), with tuples for its lists); a "
                    "function is a method of the model."
                )
        if (name := misfit(type(self.model), _facts(self.model))) is not None:
            raise ParameterError(f"model must have fields of the types that it declares: {name} is of another type.")
        if self.num_steps is None:
            return self.model
        num_steps = check_integer("num_steps", self.num_steps, low=1, high=10**7)
        if all(field.name != "num_steps" for field in fields(self.model)):
            raise ParameterError(
                "num_steps must be None: this model has no field num_steps to set. Or declare `num_steps: int` in it."
            )
        return replace(self.model, num_steps=num_steps)

    def _clip(self, source: Any) -> Literal["block", "joint"]:
        """How units are clipped: one factor for all blocks, unless each row is known to be a unit."""
        if self.clip is not None:
            check_choice("clip", self.clip, ("block", "joint"))
            return self.clip
        return "block" if isinstance(source, Rows) and source.unit == Design.row else "joint"

    def _source(self, X: Any, group: Iterable[object] | None) -> tuple[Any, Any]:
        """The rows that are given, and a row of zeros that is nobody's."""
        if all(hasattr(type(X), name) for name in ("chunks", "count")) and hasattr(X, "unit"):
            if group is not None:
                raise ParameterError("group must be None with a source: it says itself what its units are.")
            if hasattr(type(X), "empty"):
                empty = _empty_chunk(X)
                if empty is None:
                    raise ParameterError(
                        f"X must be a source whose method empty() returns a chunk of no units, and that of "
                        f"{type(X).__name__} failed or returned units. Nothing was spent. The reason is not shown, "
                        "because the source holds private rows: call empty() yourself."
                    )
                return X, Nobody((empty,))
            if not is_shipped(X):
                raise ParameterError(
                    f"X must be a source with a method empty() that returns a chunk of no units, and "
                    f"{type(X).__name__} has none. Each release asks the model about no rows, even if there are none."
                )
            return X, Nobody()
        if self.row_norm is None:
            raise unbounded(
                "row_norm",
                "none",
                ONE_UNIT,
                "row_norm=n_features**0.5, once you have brought each column to [-1, 1] by the range of it that you "
                "know without looking at the data",
                BY_RELEASE,
            )
        source = Rows(Design(X, row_norm=self.row_norm, group=group))
        zeros = Design(np.zeros((1, source.width)), row_norm=self.row_norm, group=None if group is None else [0])
        return source, Rows(zeros)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        model = self._fitted_model
        for kind in trees.classes_of(self.q_):
            named(kind)
        return trees.leaves(self.q_), {
            "model": named(type(model)),
            "fields": _facts(model),
            "form": trees.form_of(self.q_),
            "steps": self.n_iter_,
            "width": self.n_features_in_,
        }

    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Inverse of `_state`. The model's code does not run with sizes that a file says, but for its constructor."""
        width = facts["width"]
        self.n_iter_ = check_integer("steps", facts["steps"], low=0)
        self.n_features_in_ = None if width is None else check_integer("width", width, low=0)
        kind, given = _known(facts["model"]), {name: _frozen(value) for name, value in facts["fields"].items()}
        if (name := misfit(kind, given)) is not None:
            raise ModelFileError(f"holds a model of which {name} is of another type than the field.")
        self.model = self._fitted_model = kind(**given)
        self.q_ = domains.checked(trees.made(facts["form"] if "form" in facts else _earlier(kind, arrays), arrays))


@dataclass(frozen=True)
class Rows:
    """Rows of numbers as a model reads them: arrays, no row longer than 1."""

    design: Design

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

    def parts(self, number: int) -> list[Rows]:
        """The same units in order, in at most so many sources of their own."""
        return [Rows(part) for part in self.design.parts(number)]

    def chunks(self) -> Iterator[RowsChunk]:
        """All units once."""
        return map(_of_design, self.design.chunks())


@dataclass(frozen=True)
class RowsChunk:
    """Some consecutive units; see `core.source.Chunk`."""

    chunk: Any

    @property
    def rows(self) -> Floats:
        """Their rows."""
        return self.chunk.rows.x_nd  # type: ignore[no-any-return]

    @property
    def unit_of_row(self) -> Ints | None:
        """Whose each row is; None: each row is a unit."""
        return self.chunk.unit_of_row  # type: ignore[no-any-return]

    @property
    def num_units(self) -> int:
        """Number of units."""
        return int(self.chunk.num_units)

    def select(self, units: Bools) -> RowsChunk:
        """The chosen units alone."""
        return RowsChunk(self.chunk.select(units))


def _empty_chunk(source: Any) -> Any:
    """Return a source's chunk of no units; None if it fails or returns anything else."""
    with suppress(Exception), silence(logs=True):
        empty = source.empty()
        if not empty.num_units and not len(empty.select(np.zeros(0, dtype=np.bool_)).rows):
            return empty
    return None


def _of_design(chunk: Any) -> RowsChunk:
    """A chunk of a design, with the first LARGEST_BATCH rows of a person who has more."""
    if chunk.unit_of_row is None or len(chunk.unit_of_row) <= LARGEST_BATCH:
        return RowsChunk(chunk)
    # Such a chunk is one person alone.
    return RowsChunk(replace(chunk, which=_first(chunk.which), unit_of_row=_first(chunk.unit_of_row), kept=None))


def _first(rows: Any) -> Any:
    return slice(rows.start, rows.start + LARGEST_BATCH) if isinstance(rows, slice) else rows[:LARGEST_BATCH]


def _keep(model: Model, q: Any) -> None:
    """Raise for a q that no file can hold: by the names and types of its arrays, and by none of its numbers."""
    arrays = {name: np.empty(0, array.dtype) for name, array in trees.leaves(q).items()}
    model_file.packed(kind="Private", arrays=arrays, facts={"fields": _facts(model), "form": trees.form_of(q)})


def _scores(model: Model, q: Any, rows: Any) -> Floats:
    """The model's score of each row.

    Raises:
        ValueError: for anything but a number for each row, and for more than LARGEST_BATCH rows of another kind than
            an array's.
    """
    if len(rows) > LARGEST_BATCH:
        if isinstance(rows, np.ndarray):
            starts = range(0, len(rows), LARGEST_BATCH)
            return np.concatenate([_scores(model, q, rows[start : start + LARGEST_BATCH]) for start in starts])
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


def _known(name: str) -> Any:
    """A class of models that this process has imported; no module is imported by what a file says."""
    found = imported(name)
    if not (isinstance(found, type) and issubclass(found, Model) and is_dataclass(found)):
        raise ModelFileError(f"holds a model {name!r} of your own; import its module first.")
    return found


def _earlier(kind: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The form of a q in a file that does not say it."""
    try:
        return trees.declared_form(kind.init, arrays)
    except Exception as error:
        raise ModelFileError(
            f"written by an earlier version. Declare in {kind.__name__} what its init returns, as in "
            "`def init(self, rng) -> MyQ`, with the fields' types in MyQ, and load it again."
        ) from error
