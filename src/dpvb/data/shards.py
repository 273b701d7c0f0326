"""Private data in several files, each of which is a part of its own: what many processes read side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from dpvb.data.slabs import Integers
from dpvb.guards.errors import DataFormatError, check_path

#: Files of these formats may be given as a folder, too.
FOLDER_FORMATS = (".npz", ".parquet")

Rows = TypeVar("Rows", covariant=True)


class Opened(Protocol[Rows]):
    """The private data of one file."""

    def chunks(self) -> Iterator[Any]:
        """All units, in a fixed order."""

    def count(self) -> int:
        """Number of units; private under add/remove."""


@dataclass(frozen=True)
class Shard:
    """One file, which travels as its name and is opened where it is read.

    Attributes:
        path: public.
        open: reads the file; made of public things.
        count: number of its units where that is known; private under add/remove.
    """

    path: Path
    open: Callable[[], Opened[Any]]
    count: int | None = field(default=None, repr=False)


Piece = TypeVar("Piece", bound=Opened[Any])


class FirstOpen(Generic[Piece]):
    """The first of many sources, which stay open from pass to pass.

    Args:
        room: most entries of those that do, together.
        entries: number of entries of a source; None: none stays open.
    """

    def __init__(self, room: int = 0, entries: Callable[[Piece], int] | None = None) -> None:
        self._room, self._entries = room, entries
        self._open: dict[int, Piece] = {}

    def all(self, opened: Callable[[int], Iterator[Piece]]) -> Iterator[Piece]:
        """Yield all sources; `opened` opens all but the first so many."""
        first = [*self._open.values()]
        yield from first
        left = self._room if self._entries is None else self._room - sum(map(self._entries, first))
        for place, source in enumerate(opened(len(first)), len(first)):
            if self._entries is not None and left >= 0 and (left := left - self._entries(source)) >= 0:
                self._open[place] = source
            yield source


class Sharded(Generic[Rows]):
    """Units of several files in the order of the files, of which one at a time is open.

    Args:
        shards: the files.
        unit: what one privacy unit is; public. No unit may be in two shards.
        whole: the same units in the same order, for passes of this process; None: files are opened for each pass.
        first: which files stay open; None: none do.

    Attributes:
        unit_numbers: see `core.source.Source`; None: units are in the order in which they are numbered.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        unit: str,
        whole: Opened[Rows] | None = None,
        first: FirstOpen[Any] | None = None,
    ) -> None:
        self._shards, self.unit, self._whole = shards, unit, whole
        self._first = FirstOpen[Any]() if first is None else first
        self.unit_numbers: Integers | None = getattr(shards, "unit_numbers", None)
        self._count: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._shards)} files, unit={self.unit!r})"

    def parts(self, number: int) -> list[Shard]:
        """The files, however many parts are asked for."""
        return list(self._shards)

    def count(self) -> int:
        """Return the number of units, by one pass at the first call; private under add/remove."""
        if self._count is None:
            counts = (shard.open().count() if shard.count is None else shard.count for shard in self._shards)
            self._count = sum(counts) if self._whole is None else self._whole.count()
        return self._count

    def chunks(self) -> Iterator[Any]:
        """Yield all units once, file after file."""
        files = self._first.all(lambda number: (shard.open() for shard in self._shards[number:]))
        for opened in files if self._whole is None else [self._whole]:
            yield from opened.chunks()


def one_width(widths: Iterable[int]) -> int:
    """The number of columns that all files declare.

    Raises:
        DataFormatError: they declare different ones.
    """
    distinct = {*widths}
    if len(distinct) > 1:
        raise DataFormatError(f"The files declare different numbers of columns: {sorted(distinct)}.")
    return distinct.pop()


def files_of(data: object, name: str = "X") -> list[Path]:
    """The files that data may be read from, of a folder those of every format; none for data in memory.

    Args:
        data, name: as in `paths_of`.
    """
    several = paths_of(data, name) or []
    if not isinstance(data, (str, os.PathLike)):
        return several
    path = check_path(name, data)
    texts = (one for one in path.rglob("*") if one.suffix.lower() == ".txt") if path.is_dir() else [path]
    return [*several, *sorted(texts)]


def paths_of(data: object, name: str = "X") -> list[Path] | None:
    """The files that a list of paths, or a folder of shards, stands for; None for anything else.

    Args:
        data: private data in any form.
        name: of the parameter that holds them.

    Raises:
        ParameterError: a text that is not a path.
        DataFormatError: an empty list, or a file that is named twice.
    """
    if isinstance(data, (str, os.PathLike)):
        folder = check_path(name, data)
        if not folder.is_dir():
            return None
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in FOLDER_FORMATS)
        return paths or None
    if not isinstance(data, (list, tuple)) or not all(isinstance(one, (str, os.PathLike)) for one in data):
        return None
    paths = [check_path(name, one) for one in data]
    if not paths:
        raise DataFormatError("A list of files must name at least one.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataFormatError("A list of files names one of them twice; its rows would count twice.")
    return paths
