"""What goes over parts of private data in several processes, and how their answers become one.

A task is a pure function of some parts, of what all of them are told, and of what each part is told. Its answer is
known by the parts that it speaks of, so a task that was lost and done again replaces its answer, and adds nothing to
it. A process that fails says that it failed, and nothing else: whatever the error was, it may speak of private data.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dpvb.guards.errors import ParameterError
from dpvb.guards.silence import silence

#: What is done with the parts of one process: the parts by number, what all are told, and what each is told.
Task = Callable[[Mapping[int, Any], Any, Mapping[int, Any]], Any]


_HELD = "held"


class PartMissing(Exception):  # noqa: N818
    """Some parts gave no answer; it says nothing more."""


@dataclass(frozen=True)
class Answered:
    """The answer of one process, by the numbers of its parts; None: it failed."""

    parts: tuple[int, ...]
    answer: Any

    def __repr__(self) -> str:
        return "Answered()"


class Engine(Protocol):
    """Processes that hold parts of private data."""

    @property
    def num_workers(self) -> int:
        """Number of processes."""

    def hold(self, parts: Sequence[Any], model: object) -> None:
        """Bring each part to the process that is to hold it, and the model to all; what was held before is forgotten.

        A process keeps its model, and with it what it has compiled.
        """

    def run(self, task: Task, told: bytes, own: Sequence[Any], key: str) -> Iterable[Answered]:
        """Have every process do a task on its parts.

        Args:
            task: a pure function in this package.
            told: what every process is told, packed, with the model that is held left out.
            own: what each part's process is told of it.
            key: public name of the step, different at each call.
        """

    def close(self) -> None:
        """Let go of all parts."""


def map_reduce(
    task: Task, num_parts: int, told: object, own: Sequence[Any], key: str, *, engine: Engine, model: object = None
) -> list[Any]:
    """The answers of all processes, each part counted exactly once.

    Args:
        task, own, key: as in `Engine.run`.
        num_parts: number of parts that the engine holds.
        told: what every process is told; it is packed once.
        model: which of it the processes hold already.

    Raises:
        PartMissing: if a process failed or answered in another form, or a part is missing or answered for twice.
    """
    answered = list(engine.run(task, packed(told, held=model), own, key))
    if not all(isinstance(one, Answered) and _is_numbers(one.parts) and one.answer is not None for one in answered):
        raise PartMissing
    if sorted(part for one in answered for part in one.parts) != list(range(num_parts)):
        raise PartMissing
    return [one.answer for one in answered]


def _is_numbers(parts: object) -> bool:
    return isinstance(parts, tuple) and all(type(part) is int for part in parts)


def shared_out(num_parts: int, num_workers: int) -> list[tuple[int, ...]]:
    """Which parts each process holds: dealt in turn, so that no process has only the long documents at the end."""
    dealt = [tuple(range(worker, num_parts, num_workers)) for worker in range(num_workers)]
    return [parts for parts in dealt if parts]


def answered(task: Task, told: bytes, own: Mapping[int, Any], parts: Mapping[int, Any], model: object) -> Answered:
    """Do a task where the parts are held; nothing is raised, printed or warned."""
    answer = None
    with suppress(Exception), silence(logs=True):
        answer = task(parts, _Unpacker(io.BytesIO(told), model).load(), own)
    return Answered(tuple(parts), answer)


def opened(part: bytes) -> Any:
    """A part that has arrived: a source, or where it is a shard, its file opened here. None if that failed."""
    with suppress(Exception), silence(logs=True):
        found = pickle.loads(part)
        return found.open() if isinstance(found, Closed) else found
    return None


@runtime_checkable
class Closed(Protocol):
    """A part that is opened where it is held."""

    def open(self) -> Any:
        """Its private data."""


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
