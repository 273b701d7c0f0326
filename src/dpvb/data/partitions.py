"""Rows that are brought together by person in temporary files: rows of several files, or of one larger than memory.

One pass over the data writes each row to one of some files, which a digest of its person's id selects under a secret
key. Each file is then put in the order of its persons. So a partition holds whole persons, whichever files their rows
came from, ids are read once, and every pass over the data reads one partition at a time.

Only this user can read the files. They are removed when the rows are no longer needed, at the latest at exit. A process
that is killed leaves them in the folder for temporary files.

The bits of a sum do not depend on the partitions: a unit keeps the number that it has by its first row in the data, and
a batch is drawn by these numbers.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dpvb.data.persons import Together, digest_of, ids_of
from dpvb.data.shards import Opened, Shard
from dpvb.data.slabs import Integers
from dpvb.data.spelling import Cells, each
from dpvb.data.stored import Stored, packed, scratch_folder, unpacked
from dpvb.guards.errors import DataFormatError, reason_of

# So many files may be open at once in every system, and each of them holds a small part of the rows.
_FILES = 64


class Piece(NamedTuple):
    """Some rows as a reader found them, and the person of each."""

    persons: Cells
    rows: Stored


class Partitions(Sequence[Shard]):
    """Files of whole persons.

    Args:
        pieces: all rows, once; private.
        like: no rows, of the same columns.
        opened: the private data of a partition, of its rows in the order of their persons; it travels with the file.
        exclude_groups: persons whose rows are left out; private.

    Attributes:
        unit_numbers: number of each person by its first row in the data, in the order of the partitions; private.

    Raises:
        DataFormatError: if the temporary files cannot be written; exclude_groups is a text, or no sequence.
    """

    def __init__(
        self,
        pieces: Iterable[Piece],
        like: Stored,
        opened: Callable[[Stored, Together], Opened[Any]],
        exclude_groups: Iterable[object] = (),
    ) -> None:
        place = scratch_folder()
        try:
            folder = tempfile.mkdtemp(prefix="dpvb-", dir=place)  # Other users cannot enter it.
        except OSError as error:
            raise _unwritable(place, error) from error
        self._removed: Any = weakref.finalize(self, _remove, folder, os.getpid())
        paths = [Path(folder) / f"{number:02d}" for number in range(_FILES)]
        failure = None
        with ExitStack() as undone:
            undone.callback(self._removed)  # A traceback that is kept would keep the files.
            try:
                _cut(pieces, paths, exclude_groups)
                firsts = [_put_in_order(path, like) for path in paths]
                undone.pop_all()
            except OSError as error:
                failure = OSError(error.errno, error.strerror)  # Without a traceback that holds rows.
        if failure is not None:
            raise _unwritable(folder, failure) from failure
        self._shards = [
            Shard(path, partial(_open, path, len(first_p), like, opened), len(first_p))
            for path, first_p in zip(paths, firsts, strict=True)
        ]
        order = np.argsort(np.concatenate(firsts))
        self.unit_numbers: Integers = np.empty(len(order), dtype=np.int64)
        self.unit_numbers[order] = np.arange(len(order))

    @overload
    def __getitem__(self, place: int) -> Shard: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Shard]: ...
    def __getitem__(self, place: int | slice) -> Shard | Sequence[Shard]:
        return self._shards[place]

    def __len__(self) -> int:
        return len(self._shards)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the names of the files, which stay this process's."""
        return list, (self._shards,)


def digests(cells: Cells, key: bytes, without: Collection[bytes] = ()) -> NDArray[np.uint64]:
    """Return the digest of each id, (n, 2); zeros where a cell has no id, or that of an excluded person."""
    found = [bytes(16)]

    def place(cell: object) -> int:
        digest = digest_of(cell, key)
        if digest is None or digest in without:
            return 0
        found.append(digest)
        return len(found) - 1

    place_n = each(cells, place)
    return np.frombuffer(b"".join(found), "<u8").reshape(-1, 2)[place_n]


def ranks(digest_n: NDArray[np.uint64]) -> Integers:
    """Return a number for each digest by its first appearance, equal where digests are."""
    whole_n = np.ascontiguousarray(digest_n).view("S16")[:, 0]
    _, first, inverse = np.unique(whole_n, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def _unwritable(folder: str, error: OSError) -> DataFormatError:
    return DataFormatError(
        f"Rows are brought together by person in temporary files in {folder!r}, which cannot be written: "
        f"{reason_of(error)}. Set TMPDIR to a folder with more room. Nothing was charged."
    )


def _remove(folder: str, process: int) -> None:
    """Remove the files of this process; a process that was forked from it leaves them."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _cut(pieces: Iterable[Piece], paths: Sequence[Path], exclude_groups: Iterable[object]) -> None:
    """Write each row to the file that a digest of its person selects, with the digest and the number of the row."""
    key, start = secrets.token_bytes(32), 0
    without = {
        digest for cell in ids_of("exclude_groups", exclude_groups) if (digest := digest_of(cell, key)) is not None
    }
    with ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}
        for piece in pieces:
            person_n = digests(piece.persons, key, without)
            somebody = np.flatnonzero(person_n.any(axis=1))
            place_n = (person_n[somebody, 0] % len(paths)).astype(np.int64)
            in_order = np.argsort(place_n, kind="stable")
            which = somebody[in_order]
            columns = {"person": person_n, "row": start + np.arange(len(person_n)), **piece.rows.columns}
            rows = Stored(columns, piece.rows.slab).take(which)
            ends = np.searchsorted(place_n[in_order], np.arange(len(paths) + 1)).tolist()
            for path, (first, stop) in zip(paths, pairwise(ends), strict=True):
                if stop == first:
                    continue
                if path not in files:
                    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                    files[path] = stack.enter_context(open(descriptor, "wb"))
                files[path].writelines(packed(rows.take(slice(first, stop))))
            start += len(person_n)


def _put_in_order(path: Path, like: Stored) -> Integers:
    """Write the rows of a file anew in the order of their persons, and return the number of each one's first row.

    A partition without persons has no file.
    """
    if not path.exists():
        return np.empty(0, dtype=np.int64)
    key = {"person": np.empty((0, 2), dtype=np.uint64), "row": np.empty(0, dtype=np.int64)}
    none = Stored({**key, **like.columns}, like.slab)
    rows = Stored.joined([none, *unpacked(np.fromfile(path, dtype=np.uint8), none)])
    person_n = ranks(rows.columns["person"])
    order = np.argsort(person_n, kind="stable")
    rows = rows.take(order)
    person_n = person_n[order]
    columns = {**rows.columns, "person": person_n}
    row_n = columns.pop("row")
    with path.open("wb") as file:
        file.writelines(packed(Stored(columns, rows.slab)))
    return np.asarray(row_n[np.flatnonzero(np.diff(person_n, prepend=-1))], dtype=np.int64)


def _open(path: Path, count: int, like: Stored, opened: Callable[[Stored, Together], Opened[Any]]) -> Opened[Any]:
    """Return the private data of a partition of so many persons."""
    rows = Stored({**like.columns, "person": np.empty(0, dtype=np.int64)}, like.slab)
    if count:
        (rows,) = unpacked(np.fromfile(path, dtype=np.uint8), rows)
    columns = dict(rows.columns)
    person_n = columns.pop("person")
    first = np.append(np.flatnonzero(np.diff(person_n, prepend=-1)), len(person_n))
    return opened(Stored(columns, rows.slab), Together(person_n, first))
