"""Rows of a stream, which the first pass parses and writes to a temporary file, and later passes read from there.

The file has no name: no other user can open it, and the system removes it when the process ends, even if the process is
killed. It may fill half of the space that is free when the first pass begins. Where there is less room, or
the folder for temporary files is in memory or cannot be written, nothing is kept and each pass parses the data anew.
Which of both happens depends on the number of rows, so that no message reports it.

The bits of a sum do not depend on it: all passes make the rows from the same stored numbers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from dpvb.data.shards import FirstOpen, Opened
from dpvb.data.stored import Stored, packed, scratch_folder, unpacked

Piece = TypeVar("Piece", bound=Opened[Any])

# Share of the free space: other fits of this machine, ledgers and checkpoints need room, too.
_SHARE = 0.5
# File systems whose files are held in memory, which a stream is there to spare.
_IN_MEMORY = ("tmpfs", "ramfs")


class ParsedOnce:
    """Stored rows, piece by piece, as often as they are asked for.

    Args:
        parse: starts a pass over the data; the same rows each time. Private.
        like: no rows, of the same columns.
    """

    def __init__(self, parse: Callable[[], Iterator[Stored]], like: Stored) -> None:
        self._parse, self._like = parse, like
        self._kept: _Pieces | None = None
        self._has_room = True

    def after(self, number: int) -> Iterator[Stored]:
        """Yield all pieces but the first so many."""
        if self._kept is not None:
            return self._kept.read(self._like, number)
        return islice(self._first() if self._has_room else self._parse(), number, None)

    def _first(self) -> Iterator[Stored]:
        """Parse all rows; a pass that is broken off keeps nothing."""
        pieces = _Pieces.begun()
        for piece in self._parse():
            if pieces is not None and not pieces.add(piece):
                pieces = None
            yield piece
        self._kept, self._has_room = pieces, pieces is not None


class _Pieces:
    """Pieces of rows in a file without a name, which is closed with its last reference.

    Args:
        file: an empty one.
        room: most bytes.
    """

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room
        self._starts = [0]
        weakref.finalize(self, file.close)

    @classmethod
    def begun(cls) -> _Pieces | None:
        """An empty file; None: there is no place for one."""
        folder = scratch_folder()
        # Positioned reads: passes and forked processes share no place in the file.
        if hasattr(os, "preadv") and not _is_in_memory(folder):
            with suppress(OSError):
                room = int(_SHARE * shutil.disk_usage(folder).free)
                return cls(tempfile.TemporaryFile(dir=folder, buffering=0), room)
        return None

    def add(self, rows: Stored) -> bool:
        """Write some rows at the end; tells whether there was room."""
        buffers = [buffer for buffer in packed(rows) if buffer.nbytes]
        stop = self._starts[-1] + sum(buffer.nbytes for buffer in buffers)
        if stop > self._room:
            return False
        with suppress(OSError):  # The disk is full.
            for buffer in buffers:
                while buffer:
                    buffer = buffer[self._file.write(buffer) :]
            self._starts.append(stop)
            return True
        return False

    def read(self, like: Stored, number: int) -> Iterator[Stored]:
        """Yield the rows of all pieces but the first so many.

        Raises:
            OSError: for a piece that cannot be read whole: no row may be left out.
        """
        for start, stop in pairwise(self._starts[number:]):
            data = np.empty(stop - start, dtype=np.uint8)
            left = data.data
            while left:
                found = os.preadv(self._file.fileno(), [left], stop - left.nbytes)
                if not found:
                    raise OSError(0, "a temporary file is cut")
                left = left[found:]
            yield from unpacked(data, like)


class Streamed(Generic[Piece]):
    """Rows that are read from disk at each pass, in bounded memory; each row is a privacy unit.

    Args:
        pieces: the rows.
        opened: makes rows in memory of a piece.
        none: no rows.
        first: which rows in memory are kept; None: none are.
    """

    unit: Literal["row"] = "row"

    def __init__(
        self,
        pieces: ParsedOnce,
        opened: Callable[[Stored, None], Piece],
        none: Piece,
        first: FirstOpen[Piece] | None = None,
    ) -> None:
        self._pieces, self._opened, self._none = pieces, opened, none
        self._first = FirstOpen() if first is None else first
        self._count: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(unit={self.unit!r})"

    def count(self) -> int:
        """Return the number of rows, by one pass at the first call; private under add/remove."""
        if self._count is None:
            self._count = sum(held.count() for held in self._held())
        return self._count

    def chunks(self) -> Iterator[Any]:
        """Yield all rows once."""
        for held in self._held():
            yield from held.chunks()

    def parts(self, number: int) -> list[Piece]:
        """The same rows in order, read once and held, as the pieces in which they are read."""
        return list(self._held())

    def _held(self) -> Iterator[Piece]:
        """At least one: data without rows are a piece without rows."""
        held = None
        for held in self._first.all(lambda n: (self._opened(piece, None) for piece in self._pieces.after(n))):
            yield held
        if held is None:
            yield self._none


def _is_in_memory(folder: str) -> bool:
    """Whether a folder is on a file system that Linux holds in memory; other systems do not report it."""
    with suppress(OSError, ValueError):
        device = os.stat(folder).st_dev
        place = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            mount, _, system = line.partition(" - ")
            if mount.split()[2] == place:
                return system.split()[0] in _IN_MEMORY
    return False
