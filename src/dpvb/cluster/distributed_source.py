"""Private data spread over processes: the batch pass of a release as one map and one exact sum."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, final

import numpy as np

from dpvb.cluster.engine import Engine, PartMissing, Reduction, map_reduce
from dpvb.core.clipped_sums import Spread, Work
from dpvb.core.sampling import Below, Listed
from dpvb.core.source import ChunkOfUnits, Source, chunks_of
from dpvb.guards.arrays import Batch, Ints
from dpvb.guards.errors import DataFormatError, OutOfMemoryError, ParameterError
from dpvb.guards.version import __version__

# Parts a process: enough that what one leaves when it dies is spread evenly.
_PARTS_EACH = 4
# Beyond it no array has a word for each unit.
_MOST_UNITS = 2**48


class Place(NamedTuple):
    """Where a part's units stand among all, and who of them is in the batch."""

    start: int
    num_units: int
    draw: Below | Listed


@final
class DistributedSource(Spread[Batch], Generic[Batch]):
    """A source whose units are held by the processes of an engine, part by part.

    The units of a batch, and the sums, do not depend on the number of parts or processes: unit n is drawn
    by word n of the step's stream, wherever it is, and integers are added.

    Args:
        source: the private data; it stays at hand for the digest by which a run knows its data.
        model: what will be asked of them.
        engine: the processes.

    Raises:
        ParameterError: for a source without parts, or a model that the processes cannot load.
        DataFormatError: if a process cannot read its part.
        OutOfMemoryError: if a process has not enough memory for its part.
    """

    def __init__(self, source: Source[Batch], model: object, engine: Engine) -> None:
        self._source, self._engine, self._name = source, engine, secrets.token_hex(8)
        cut: Callable[[int], Sequence[Any]] | None = getattr(source, "parts", None)
        if cut is None:
            raise ParameterError(
                f"cluster needs data that can be cut into parts, and {type(source).__name__} cannot: give a matrix, "
                "texts, a Table or files, or fit without cluster."
            )
        parts = cut(_PARTS_EACH * engine.num_workers)
        self._num_parts = len(parts)
        engine.hold(parts, model)
        self._model = model
        self._check_versions()
        counts = self._gather(_COUNTS, None, "count")
        if not _are_counts(counts) or counts.keys() != set(range(self._num_parts)):
            raise DataFormatError(
                "A worker process cannot read its part of the data; nothing was spent. Files must be readable under "
                "the same names in every process."
            )
        self._counts = [counts[part] for part in range(self._num_parts)]
        self._starts = [sum(self._counts[:part]) for part in range(self._num_parts)]

    def chunks(self) -> Iterator[ChunkOfUnits[Batch]]:
        """All units, read in this process."""
        return self._source.chunks()

    def count(self) -> int:
        """Number of units; private under add/remove."""
        return sum(self._counts)

    def sums(self, work: Work[Batch], step: int) -> Mapping[str, Ints]:
        """Exact integer sums over all parts, each counted once.

        Raises:
            PartMissing: if any part is missing; a sum without it would be another mechanism's.
        """
        draw = work.draw(self._source, self.count)
        places = [
            Place(start, number, draw if isinstance(draw, Below) else Listed(draw(start, number), start))
            for start, number in zip(self._starts, self._counts, strict=True)
        ]
        total = self._map(_SUMS, work, places, f"step-{step}")
        shapes = {name: block.packed_shape for name, block in work.release.blocks.items()}
        if {name: value.shape for name, value in total.items() if _is_plain(value)} != shapes:
            raise PartMissing
        # Noise is added in place: each entry must be in memory once, and in no other hands.
        return {name: value.copy() for name, value in total.items()}

    def _check_versions(self) -> None:
        versions = self._gather(_VERSION, (self._model, self._model is not None), "start")
        if not isinstance(versions, set) or versions != {__version__}:
            raise ParameterError(
                f"The processes of the cluster cannot load the model: each needs dpvb {__version__}, and whatever "
                "modules the model is made of."
            )

    def _map(self, reduction: Reduction, told: object, own: Sequence[Any], what: str) -> Any:
        key = f"{self._name}-{what}"
        return map_reduce(reduction, self._num_parts, told, own, key, engine=self._engine, model=self._model)

    def _gather(self, reduction: Reduction, told: object, what: str) -> Any:
        try:
            return self._map(reduction, told, [None] * self._num_parts, what)
        except PartMissing:
            return None
        except MemoryError:
            pass
        raise OutOfMemoryError(
            "A process of the cluster has not enough memory for its part of the data; nothing was spent. Raise its "
            "limit, or take more processes."
        )


def _version(parts: Mapping[int, Any], told: tuple[object, bool], own: Mapping[int, Any]) -> set[str]:
    """The version of a process that could load the model."""
    model, expected = told
    if model is None and expected:
        raise PartMissing
    return {__version__}


def _counts(parts: Mapping[int, Source[Any]], told: None, own: Mapping[int, Any]) -> dict[int, int]:
    """Number of units of each part."""
    return {part: source.count() for part, source in parts.items()}


def _are_counts(answer: object) -> bool:
    """Whether an answer has the form of those of `_counts`."""
    return isinstance(answer, dict) and all(
        type(part) is int
        and isinstance(number, int | np.integer)
        and not isinstance(number, bool)
        and 0 <= number < _MOST_UNITS
        for part, number in answer.items()
    )


def _is_plain(value: object) -> bool:
    """Whether a sum is an array to which noise can be added: a masked array, or another subclass, may leave it out."""
    return type(value) is np.ndarray and value.dtype == np.int64


def _sums(parts: Mapping[int, Source[Any]], work: Work[Any], own: Mapping[int, Place]) -> dict[str, Ints]:
    """Sums over the parts of one process: a pure function of its arguments."""
    total: dict[str, Ints] | None = None
    for part, source in parts.items():
        place = own[part]
        if source.count() != place.num_units:
            raise PartMissing  # A file has changed, and the words of the batch would meet other units.
        sums = work.sums(chunks_of(source), place.draw, place.start)
        total = sums if total is None else _added(total, sums)
    return total or {}


def _added(total: dict[str, Ints], sums: Mapping[str, Ints]) -> dict[str, Ints]:
    """Add sums of the same blocks in place."""
    if [*map(_form, total.items())] != [*map(_form, sums.items())] or not all(map(_is_plain, sums.values())):
        raise PartMissing
    for name, value in sums.items():
        total[name] += value
    return total


def _form(block: tuple[str, Ints]) -> tuple[object, ...]:
    return block[0], block[1].shape, block[1].dtype


_VERSION, _COUNTS, _SUMS = Reduction(_version, operator.or_), Reduction(_counts, operator.or_), Reduction(_sums, _added)
