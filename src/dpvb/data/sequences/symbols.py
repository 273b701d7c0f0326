"""Public symbols, of which private sequences are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpvb.data.sequences.content import Content, plain_cells
from dpvb.data.slabs import Integers
from dpvb.data.spelling import Categories, Cells
from dpvb.data.tables.columns import check_categories
from dpvb.guards.errors import ParameterError, check_integer
from dpvb.rows import SequenceRows

# Most symbols; a model has a number for each pair of them at least, and a file of a few bytes may say any number.
_MOST = 10_000


class Symbols(Content[SequenceRows]):
    """A public set of symbols, compared in the spelling of categories.

    Args:
        given: the symbols; a number V for 0 to V - 1; or one text with commas between.

    Raises:
        ParameterError: fewer than two, or more than 10,000, one twice, or what is neither text nor number.
    """

    things: ClassVar[str] = "symbols"

    def __init__(self, symbols: object) -> None:
        if isinstance(symbols, str):
            symbols = [name.strip() for name in symbols.split(",")]
        if isinstance(symbols, (int, np.integer)) and not isinstance(symbols, bool):
            symbols = [*range(check_integer("symbols", symbols, low=2, high=_MOST))]
        if isinstance(symbols, (list, tuple)) and len(symbols) > _MOST:
            raise ParameterError(f"symbols must be at most {_MOST}, got {len(symbols)}. Join symbols that are alike.")
        self.values = check_categories("symbols", "values", symbols)
        if len(self.values) < 2:
            raise ParameterError(
                f"symbols must be at least two, as a list or one text with commas between, got {symbols!r}."
            )
        self._categories = Categories(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, cells: Cells) -> NDArray[np.int32]:
        """The place of each cell among the symbols; -1, a gap, for what is none of them."""
        return self._categories.places(cells, other=-1, missing=-1).astype(np.int32)

    def made(self, indptr: Integers, held: NDArray[Any]) -> SequenceRows:
        """Sequences of places of symbols."""
        return SequenceRows(indptr, held)

    def encoded(self, cells: Cells) -> NDArray[np.int32]:
        """As `codes`."""
        return self.codes(cells)

    def of_columns(self, cells: Mapping[str, Cells], names: Sequence[str]) -> NDArray[np.int32]:
        """The codes of one column."""
        (name,) = names
        return self.codes(cells[name])

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """One cell."""
        return ((),)

    def own(self, one: object) -> Cells:
        """The cells of a list or a column."""
        return plain_cells(one)
