"""Public symbols, and private sequences of them in memory: a list, a matrix, or one array with lengths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.data.arrow import cells as arrow_cells
from dpvb.data.sequences.rows import SequenceRows, Sequences
from dpvb.data.slabs import Integers, running_total
from dpvb.data.spelling import Categories, Cells, as_numbers, cells_of
from dpvb.data.tables.columns import check_categories
from dpvb.data.tables.matrices import column, is_column, plain_row
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer

_WAY_OUT = (
    "Sequences are a list of one list or array for each, a matrix of one row for each, or one array of all symbols "
    "with lengths, the number of symbols of each sequence; a long table is a dpvb.data.Events."
)


class Symbols:
    """A public set of symbols, compared in the spelling of categories.

    Args:
        given: the symbols; a number V for 0 to V - 1; or one text with commas between.

    Raises:
        ParameterError: fewer than two, one twice, or what is neither text nor number.
    """

    def __init__(self, given: object) -> None:
        if isinstance(given, str):
            given = [name.strip() for name in given.split(",")]
        if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
            given = [*range(check_integer("symbols", given, low=2, high=10**6))]
        self.values = check_categories("symbols", "values", given)
        if len(self.values) < 2:
            raise ParameterError(f"symbols must be at least two, got {given!r}.")
        self._categories = Categories(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, cells: Cells) -> NDArray[np.int32]:
        """The place of each cell among the symbols; -1, a gap, for what is none of them."""
        return self._categories.places(cells, unseen=-1, missing=-1).astype(np.int32)

    def rows(self, data: Any, lengths: Any = None) -> SequenceRows:
        """Sequences in memory.

        What is no list or array stands for a sequence without symbols, and a cell that is no symbol for a gap.

        Args:
            data: a list, tuple or 1-D array of sequences; a matrix, whose rows are the sequences; or with lengths all
                symbols after one another, (symbols,) or (symbols, 1). Private.
            lengths: the number of symbols of each sequence; private but for their number and sum.

        Raises:
            DataFormatError: none of these forms, or lengths that are not those of the data.
        """
        if lengths is not None:
            return self._flat(data, lengths)
        if isinstance(data, np.ndarray) and data.ndim == 2:
            num_rows, width = data.shape
            return SequenceRows(np.arange(num_rows + 1, dtype=np.int64) * width, self.codes(data.ravel()))
        is_flat = isinstance(data, np.ndarray) and data.dtype.kind != "O"
        if is_flat or not (isinstance(data, (list, tuple)) or is_column(data)):
            raise DataFormatError(f"X must hold sequences, got {type(data).__name__}. {_WAY_OUT}")
        if type(data).__module__.startswith("pyarrow."):
            own: list[Cells] = [_of_arrow(one) for one in data]
        else:
            own = [_cells(one) for one in (data if isinstance(data, (list, tuple)) else cells_of(data))]
        kinds = {one.dtype if isinstance(one, np.ndarray) else None for one in own}
        cells: Cells = []
        if None not in kinds and len(kinds) == 1:
            cells = np.concatenate([one for one in own if isinstance(one, np.ndarray)])
        else:
            cells = [cell for one in own for cell in (cells_of(one) if isinstance(one, np.ndarray) else one)]
        return SequenceRows(running_total(np.array([*map(len, own)], dtype=np.int64)), self.codes(cells))

    def _flat(self, data: Any, lengths: Any) -> SequenceRows:
        if isinstance(data, np.ndarray) and data.shape[1:] == (1,):
            data = data[:, 0]
        cells = column("X", data, len(data) if hasattr(data, "__len__") else 0)
        length_n = as_numbers(column("lengths", lengths, len(lengths) if hasattr(lengths, "__len__") else 0))
        if length_n.ndim != 1 or not ((length_n >= 0) & (length_n == np.floor(length_n))).all():
            raise DataFormatError("lengths must be whole numbers from 0, one for each sequence.")
        if length_n.sum() != len(cells):
            raise DataFormatError("lengths must add up to the number of symbols in X; the two differ.")
        return SequenceRows(running_total(length_n), self.codes(cells))

    def sequences(self, data: Any, lengths: Any = None, group: Iterable[object] | None = None) -> Sequences:
        """Sequences as private units; see `rows`, and `Sequences` for group.

        Raises:
            DataFormatError: as both.
        """
        return Sequences(self.rows(data, lengths), group)


def arranged(
    person_n: Integers, part_n: Integers, time_n: NDArray[np.float64], code_n: NDArray[np.int32]
) -> tuple[SequenceRows, Integers]:
    """Events as sequences, and the person of each: those of a person and a part, in order of time.

    Events of equal times stay in the order in which they are given; an event of person -1 is nobody's.
    """
    order = np.lexsort((time_n, part_n, person_n))
    order = order[np.count_nonzero(person_n < 0) :]
    person_n, part_n = person_n[order], part_n[order]
    starts = np.ones(len(order), dtype=np.bool_)
    starts[1:] = (np.diff(person_n) != 0) | (np.diff(part_n) != 0)
    first = np.flatnonzero(starts)
    return SequenceRows(np.append(first, len(order)).astype(np.int64), code_n[order]), person_n[first]


def _of_arrow(one: Any) -> Cells:
    """The cells of one sequence in an Arrow column of lists."""
    values = getattr(one, "values", None)  # of a struct a method
    return [] if values is None or callable(values) else arrow_cells(values)


def _cells(one: object) -> Cells:
    """The cells of one sequence; of what is none its class is asked, and nothing else."""
    kind: Any = type(one)
    if kind.__module__.startswith("pandas.") and is_column(one):
        return cells_of(one)
    if issubclass(kind, np.ndarray):
        plain = np.ndarray.view(one, np.ndarray)  # type: ignore[call-overload]
        one = plain[:, 0] if plain.ndim == 2 and plain.shape[1] == 1 else plain
    row = plain_row(one)
    return [] if row is None else row
