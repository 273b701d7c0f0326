"""How near synthetic rows are to what was released of the private ones; released and synthetic values only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpvb.guards import pages
from dpvb.guards.errors import check_choice
from dpvb.guards.strangers import printable
from dpvb.results import exports


class Marginal(NamedTuple):
    """One number of one column: released, the chance error of released and synthetic value together, synthetic."""

    name: str
    released: float
    std: float
    synthetic: float


class Pair(NamedTuple):
    """Two columns: total variation between released and synthetic tables, and what chance alone would make of it."""

    name: str
    distance: float
    by_chance: float


_TITLES, _PAIR_TITLES = ("what", "released", "± chance", "synthetic"), ("columns", "distance", "by chance")


@dataclass(frozen=True, eq=False, repr=False)
class FidelityTable:
    """Released values of single columns beside the synthetic rows', and distances of tables of two columns.

    Attributes:
        lines: of single columns.
        pairs: of two columns; empty where `check_share` paid for none.
        head: what the table is of, in words.
    """

    lines: tuple[Marginal, ...]
    pairs: tuple[Pair, ...]
    head: str

    def __iter__(self) -> Iterator[Marginal]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def to_frame(self, of: str = "columns") -> Any:
        """The lines of single "columns", or those of "pairs", as a pandas data frame by name.

        Raises:
            ParameterError: for anything else.
            DpvbError: if pandas is not installed.
        """
        of = check_choice("of", of, ("columns", "pairs"))
        names, rows = (Marginal._fields, self.lines) if of == "columns" else (Pair._fields, self.pairs)
        return exports.frame(names, [*rows], {"head": self.head})

    def __str__(self) -> str:
        parts = [self.head, _aligned(_TITLES, self._shown)]
        return "\n\n".join(parts + ([_aligned(_PAIR_TITLES, self._shown_pairs)] if self.pairs else []))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The tables for a notebook."""
        pairs = pages.table(self._shown_pairs, head=_PAIR_TITLES, numbers=(1, 2)) if self.pairs else ""
        columns = pages.table(self._shown, head=_TITLES, numbers=(1, 2, 3))
        return f"<div>{pages.title(self.head)}{columns}{pairs}</div>"

    @property
    def _shown(self) -> list[tuple[str, ...]]:
        return [(printable(line.name), *(f"{value:.4g}" for value in line[1:])) for line in self.lines]

    @property
    def _shown_pairs(self) -> list[tuple[str, ...]]:
        return [(printable(pair.name), *(f"{value:.4f}" for value in pair[1:])) for pair in self.pairs]


def _aligned(titles: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    rows = [titles, *body]
    widths = [max(len(row[place]) for row in rows) for place in range(len(titles))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
