"""Rows as temporary files hold them: arrays one after another, whose names, types and shapes are public."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.data.slabs import Slab, Which, places, stacked
from dpvb.kernels.spans import running_total

# Arrays begin at multiples of so many bytes, as NumPy's own do.
_ALIGNED = 16


class Stored(NamedTuple):
    """Some rows as a file holds them; private but for the names, types and shapes.

    Attributes:
        columns: arrays by name, rows first, (n, ..).
        slab: entries of which a row may have any number; None: there are none.
    """

    columns: Mapping[str, NDArray[Any]]
    slab: Slab | None = None

    def take(self, which: Which) -> Stored:
        """Return the rows with these numbers, in this order."""
        slab = self.slab
        if slab is not None:
            indptr, entries = places(slab.indptr, which)
            slab = Slab(indptr, slab.indices[entries], slab.values[entries])
        return Stored({name: column[which] for name, column in self.columns.items()}, slab)

    @classmethod
    def joined(cls, pieces: Sequence[Stored]) -> Stored:
        """Return the rows of all pieces, in order; at least one piece."""
        columns = {name: np.concatenate([piece.columns[name] for piece in pieces]) for name in pieces[0].columns}
        slabs = [piece.slab for piece in pieces if piece.slab is not None]
        return cls(columns, stacked(slabs) if slabs else None)


def scratch_folder() -> str:
    """Return the folder for temporary files.

    Python takes another place than TMPDIR where that is full or missing, and rows would come where no administrator
    expects them.
    """
    return os.environ.get("TMPDIR") or tempfile.gettempdir()


def packed(rows: Stored) -> Iterator[memoryview]:
    """Yield rows as bytes: how many there are, how many entries they have, and all arrays, columns by their names."""
    slab = rows.slab
    arrays = [rows.columns[name] for name in sorted(rows.columns)]
    if slab is not None:
        arrays += [np.diff(slab.indptr), slab.indices, slab.values]
    head = np.array([len(arrays[0]), 0 if slab is None else len(slab.indices)], dtype=np.int64)
    for array in (head, *arrays):
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        yield memoryview(bytes(-array.nbytes % _ALIGNED))


def unpacked(data: NDArray[np.uint8], like: Stored) -> Iterator[Stored]:
    """Yield the rows of some bytes as they were packed, as views.

    Args:
        data: private.
        like: no rows, of the same columns.
    """
    start = 0

    def taken(number: int, shape: Sequence[int], kind: np.dtype[Any]) -> NDArray[Any]:
        nonlocal start
        size = number * int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        array = data[start : start + size].view(kind).reshape(number, *shape)
        start += size + -size % _ALIGNED
        return array

    while start < len(data):
        num_rows, num_entries = taken(2, (), np.dtype(np.int64)).tolist()
        columns = {
            name: taken(num_rows, like.columns[name].shape[1:], like.columns[name].dtype)
            for name in sorted(like.columns)
        }
        slab = None
        if like.slab is not None:
            lengths = taken(num_rows, (), np.dtype(np.int64))
            entries = (taken(num_entries, (), array.dtype) for array in (like.slab.indices, like.slab.values))
            slab = Slab(running_total(lengths), *entries)
        yield Stored(columns, slab)
