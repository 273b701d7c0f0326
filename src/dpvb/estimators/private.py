"""The estimator of any model: what it needs is a model, rows and a budget."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.data import Design
from dpvb.estimators.base import PrivateEstimator, Task, column_names
from dpvb.guards import domains
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.guards.errors import ModelFileError, ParameterError, check_integer
from dpvb.models.base import Model


@dataclass(eq=False, repr=False)
class Private(PrivateEstimator):
    """Any model of your own under (ε, δ)-differential privacy.

    `fit` takes private rows X, (rows, features): NumPy, SciPy sparse or a DataFrame. `e_step` gets them as an
    array of float64, divided by row_norm, none longer than 1; a row that holds NaN, infinity or no number is NaN
    throughout, and counts as no row. A source of another kind is taken as it is: an object with `chunks()`, `count()`
    and `unit` (see `dpvb.core.source`).

    Args:
        model: a `dpvb.Model`, a frozen dataclass.
        row_norm: bound on the norm of a row, in the units of X; longer rows are scaled back to it.

    Attributes:
        q_: what the model's last `m_step` returned.
        privacy_: the privacy statement of the fit.
        n_iter_, n_features_in_: number of steps, and of features.
    """

    model: Any = None
    _: KW_ONLY
    row_norm: float = 1.0

    def task(self, X: Any, y: Any = None, *, group: Iterable[object] | None = None) -> Task:
        """What a fit to private rows would do; y is ignored."""
        model = self._checked_model()
        if all(hasattr(type(X), name) for name in ("chunks", "count")) and hasattr(X, "unit"):
            if group is not None:
                raise ParameterError("group must be None with a source: it says itself what its units are.")
            source = X
        else:
            source = Rows(Design(X, row_norm=self.row_norm, group=group))
            _try(model, source.width)
        facts = ", ".join(f"{name} = {value}" for name, value in _facts(model).items())
        public = {
            "model": f"the model {type(model).__name__}" + (f" with {facts}" if facts else ""),
            "parameters": "the plan, the random start and all other parameters",
        }
        notes = {"width": getattr(source, "width", None), "names": column_names(X)}
        return self._task(model, source, model.schedule, public, notes)

    def take(self, task: Task, q: Any) -> None:
        """Keep q."""
        self.n_iter_, self.n_features_in_ = task.notes["steps"], task.notes["width"]
        self._fitted_model, self.q_ = task.model, q

    def quality(self, rows: Any) -> Floats:
        """The model's own score of each row."""
        return np.asarray(self._fitted_model.score(self.q_, rows))

    def quality_range(self, model: Any) -> tuple[float, float]:
        """What the model declares."""
        scored = model.score_range is not None and type(model).score is not Model.score
        return model.score_range if scored else super().quality_range(model)

    def _checked_model(self) -> Model:
        """The model, with the number of steps that was asked for."""
        if not (isinstance(self.model, Model) and is_dataclass(self.model)):
            raise ParameterError(
                f"model must be a dpvb.Model that is a frozen dataclass, got {type(self.model).__name__}."
            )
        if self.num_steps is None:
            return self.model
        num_steps = check_integer("num_steps", self.num_steps, low=1, high=10**7)
        if all(field.name != "num_steps" for field in fields(self.model)):
            raise ParameterError("num_steps must be None: this model has no field num_steps to set.")
        return replace(self.model, num_steps=num_steps)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        model, declared = self._fitted_model, _facts(self._fitted_model)
        for name, value in declared.items():
            if not _is_plain(value):
                raise ModelFileError(
                    f"the model's field {name} is {type(value).__name__}, which a file cannot hold; fields of models "
                    "that are saved are numbers, texts, None, and tuples of them."
                )
        return dict(_leaves(self.q_)), {
            "model": f"{type(model).__module__}:{type(model).__qualname__}",
            "fields": declared,
            "steps": self.n_iter_,
            "width": self.n_features_in_,
        }

    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        self.n_iter_, self.n_features_in_ = int(facts["steps"]), facts["width"]
        model = _known(facts["model"])(**{name: _frozen(value) for name, value in facts["fields"].items()})
        self.model = self._fitted_model = model
        start = model.init(np.random.default_rng(0))
        if dict(_leaves(start)).keys() != arrays.keys():
            raise ValueError("a q of another form")
        self.q_ = domains.checked(_filled(start, arrays))


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
        return map(RowsChunk, self.design.chunks())


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


def _try(model: Model, width: int) -> None:
    """Ask the model for a row of zeros, which is nobody's, before anything is spent.

    Raises:
        ParameterError: with what the model says.
    """
    try:
        model.e_step(model.init(np.random.default_rng(0)), np.zeros((1, width)), model.blocks)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    else:
        return
    raise ParameterError(f"model must take rows of {width} features, those of X; a row of zeros gave {said}")


def _leaves(q: Any, name: str = "q") -> Iterator[tuple[str, NDArray[Any]]]:
    """Arrays and numbers of a q, with their names."""
    if (parts := _parts(q)) is None:
        yield name, np.asarray(q)
        return
    for part, value in parts.items():
        yield from _leaves(value, f"{name}__{part}")


def _filled(start: Any, arrays: Mapping[str, NDArray[Any]], name: str = "q") -> Any:
    """A q of the form of a start, with other numbers."""
    if (parts := _parts(start)) is None:
        value, own = arrays[name], np.asarray(start)
        if (value.shape, value.dtype) != (own.shape, own.dtype):
            raise ValueError(f"{name} of another form")
        return value if isinstance(start, np.ndarray) else type(start)(value.item())
    return type(start)(**{part: _filled(value, arrays, f"{name}__{part}") for part, value in parts.items()})


def _parts(q: Any) -> dict[str, Any] | None:
    """Fields of a dataclass or a named tuple; None: q is a number or an array."""
    if is_dataclass(q):
        return {field.name: getattr(q, field.name) for field in fields(q)}
    return q._asdict() if isinstance(q, tuple) and hasattr(q, "_asdict") else None


def _facts(model: Any) -> dict[str, Any]:
    """Fields of a model, which JSON must be able to hold where it is saved."""
    return {field.name: getattr(model, field.name) for field in fields(model)}


def _is_plain(value: Any) -> bool:
    """Whether JSON gives a value back as it was."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def _frozen(value: Any) -> Any:
    """Lists of a file as the tuples that they were."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _known(name: str) -> Callable[..., Any]:
    """A class of models that this process has imported; no module is imported by what a file says."""
    place, _, own = name.partition(":")
    found = getattr(sys.modules.get(place), own, None)
    if not (isinstance(found, type) and issubclass(found, Model) and is_dataclass(found)):
        raise ModelFileError(f"holds a model {name!r} of your own; import its module first.")
    return found
