"""Tasks over parts of private data in several processes, and the sum of their answers.

A task is a pure function of some parts, of what all of them are told, and of what each part is told. Its answer is
known by the parts that it speaks of, so a task that was lost and done again replaces its answer, and adds nothing to
it. Answers are added where they are, in pairs and in any order; a total is known by all of its parts. An answer also
names its step: an answer that was kept from an earlier step is not one to this step. A process that fails says that it
failed, and nothing else: whatever the error was, it may speak of private data.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from dpvb.guards.errors import ParameterError
from dpvb.guards.suppress_output import silence

_HELD = "held"
# The answer of a process that had not enough memory.
_SHORTAGE = "out of memory"


class PartMissing(Exception):  # noqa: N818
    """Some parts gave no answer; it says nothing more."""


class Reduction(NamedTuple):
    """The work of every process, and the sum of two answers: functions of a module of this package."""

    #: The parts of a process by number, what all are told, and what each is told -> the answer.
    answer: Callable[[Mapping[int, Any], Any, Mapping[int, Any]], Any]
    #: A total, which may be changed, and an answer -> their total. Their order must not matter.
    add: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Answered:
    """The answer of one process, or the total of several, by the numbers of their parts; None: one failed.

    Attributes:
        parts: numbers of the parts.
        answer: what was found.
        key: name of the step.
    """

    parts: tuple[int, ...]
    answer: Any
    key: str = ""

    def __repr__(self) -> str:
        return "Answered()"


@final
class Parcel:
    """Something private on its way; it shows nothing of itself in a log. Bytes are an array: engines copy it less."""

    def __init__(self, content: Any) -> None:
        self.content: Any = np.frombuffer(content, dtype=np.uint8) if isinstance(content, bytes) else content

    def __repr__(self) -> str:
        return "Parcel()"


@runtime_checkable
class Engine(Protocol):
    """Processes that hold parts of private data."""

    @property
    def num_workers(self) -> int:
        """Number of processes."""

    def hold(self, parts: Sequence[Any], model: object) -> None:
        """Bring each part to the process that is to hold it, and the model to all; what was held before is forgotten.

        A process keeps its model, and with it what it has compiled.
        """

    def run(self, reduction: Reduction, told: bytes, own: Sequence[Any], key: str) -> Answered:
        """Have every process do a task on its parts, and return the total of their answers.

        Memory of the calling process must not grow with the number of processes.

        Args:
            reduction: what is done, and how answers are added.
            told: what every process is told, packed, with the model that is held left out.
            own: what each part's process is told of it.
            key: public name of the step, different at each call.
        """

    def close(self) -> None:
        """Let go of all parts."""


def map_reduce(
    reduction: Reduction,
    num_parts: int,
    told: object,
    own: Sequence[Any],
    key: str,
    *,
    engine: Engine,
    model: object = None,
) -> Any:
    """Return the total of the answers of all processes, each part counted exactly once.

    Args:
        reduction, own, key: as in `Engine.run`.
        num_parts: number of parts that the engine holds.
        told: what every process is told; it is packed once.
        model: which of it the processes hold already.

    Raises:
        PartMissing: if a process failed, answered in another form or to another step, or a part is missing or answered
            for twice.
        MemoryError: if a process had not enough memory.
    """
    total = engine.run(reduction, packed((key, told), held=model), own, key)
    if isinstance(total, Answered) and _is_short(total):
        raise MemoryError
    if not isinstance(total, Answered) or not _are_numbers(total.parts) or total.answer is None:
        raise PartMissing
    if sorted(total.parts) != list(range(num_parts)) or total.key != key:
        raise PartMissing
    return total.answer


def _are_numbers(parts: object) -> bool:
    return isinstance(parts, tuple) and all(type(part) is int for part in parts)


def shared_out(num_parts: int, num_workers: int) -> list[tuple[int, ...]]:
    """Which parts each process holds: dealt in turn, so that no process has only the long documents at the end."""
    dealt = [tuple(range(worker, num_parts, num_workers)) for worker in range(num_workers)]
    return [parts for parts in dealt if parts]


def answered(
    reduction: Reduction, told: bytes, own: Mapping[int, Any], parts: Mapping[int, Any], model: object
) -> Answered:
    """Do a task where the parts are held; nothing is raised, printed or warned."""
    opened_told = _tried(lambda: _Unpacker(io.BytesIO(told), model).load())
    if not isinstance(opened_told, tuple):
        return Answered((), opened_told)
    key, common = opened_told
    return Answered(tuple(parts), _tried(lambda: reduction.answer(parts, common, own)), key)


def added(reduction: Reduction, total: Answered, one: Answered) -> Answered:
    """Add an answer to a total, which is changed; nothing is raised, printed or warned."""
    if _is_short(total) or _is_short(one):
        return Answered((), _SHORTAGE)
    if total.answer is None or one.answer is None or total.key != one.key:
        return Answered((), None)
    answer = _tried(lambda: reduction.add(total.answer, one.answer))
    return Answered(total.parts + one.parts, answer, total.key)


def _tried(compute: Callable[[], Any]) -> Any:
    """Return the result of a computation on private data: None for a failure, `_SHORTAGE` for a lack of memory."""
    with suppress(Exception), silence(logs=True):
        try:
            return compute()
        except MemoryError:
            return _SHORTAGE
    return None


def _is_short(one: Answered) -> bool:
    """Whether a process had not enough memory."""
    return isinstance(one.answer, str) and one.answer == _SHORTAGE


def opened(part: bytes) -> Any:
    """A part that has arrived: a source, or where it is a shard, its file opened here. None if that failed."""
    with suppress(Exception), silence(logs=True):
        found = pickle.loads(part)
        return found.open() if hasattr(found, "open") else found
    return None


def packed(thing: object, *, held: object = None) -> bytes:
    """Pickle, leaving out what the other side holds; functions of no module need cloudpickle (extra `cluster`).

    Raises:
        ParameterError: if it cannot be.
    """
    try:
        from cloudpickle import Pickler
    except ImportError:
        from pickle import Pickler

    class Packer(Pickler):  # type: ignore[misc]
        def persistent_id(self, one: object) -> str | None:
            return _HELD if held is not None and one is held else None

    data, file = None, io.BytesIO()
    with suppress(Exception):
        Packer(file, protocol=5).dump(thing)
        data = file.getvalue()
    if data is None:
        raise ParameterError(
            "The model or the data cannot be sent to other processes, because they cannot be pickled. A function "
            "goes if it is defined at the top of a module, or with pip install '.[cluster]' in dpvb's source folder; "
            "or fit without cluster."
        )
    return data


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, held: object) -> None:
        super().__init__(file)
        self._held = held

    def persistent_load(self, name: str) -> object:
        return self._held
