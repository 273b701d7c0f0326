"""How near synthetic rows are to what was released of the private ones; released and synthetic values only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dpvb.guards.errors import check_choice
from dpvb.results.figures import Facts, Figure, Listing, frame, number


class Marginal(NamedTuple):
    """One number of one column: released, the chance error of released and synthetic value together, synthetic."""

    name: str
    released: float
    std: float
    synthetic: float


class PairOfColumns(NamedTuple):
    """Two columns: total variation between released and synthetic tables, and what chance alone would make of it."""

    name: str
    distance: float
    by_chance: float


@dataclass(frozen=True, eq=False, repr=False)
class FidelityTable(Figure):
    """Released values of single columns beside the synthetic rows', and distances of tables of two columns.

    Attributes:
        lines: of single columns.
        pairs: of two columns; empty where `check_share` paid for none.
        head: what the table is of, in words.
    """

    lines: tuple[Marginal, ...]
    pairs: tuple[PairOfColumns, ...]
    head: str

    name = "fidelity"

    def __iter__(self) -> Iterator[Marginal]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def listing(self) -> Listing:
        """Return the lines of single columns."""
        return Listing(Marginal._fields, self.lines, facts={"head": self.head})

    def drawings(self) -> Iterator[Facts]:
        """Yield both tables."""
        cells = [(line.name, *map(number, line[1:])) for line in self.lines]
        yield Facts(title=self.head, head=("what", "released", "± chance", "synthetic"), rows=tuple(cells))
        if self.pairs:
            pairs = [(pair.name, *(f"{value:.4f}" for value in pair[1:])) for pair in self.pairs]
            yield Facts(title="Pairs of columns", head=("columns", "distance", "by chance"), rows=tuple(pairs))

    def to_frame(self, of: Literal["columns", "pairs"] = "columns") -> Any:
        """The lines of single "columns", or those of "pairs", as a pandas data frame by name.

        Raises:
            ParameterError: for anything else.
            DpvbError: if pandas is not installed.
        """
        if check_choice("of", of, ("columns", "pairs")) == "columns":
            return super().to_frame()
        return frame(Listing(PairOfColumns._fields, self.pairs, facts={"head": self.head}))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.drawings()))

    def _repr_html_(self) -> str:
        """The tables for a notebook."""
        return f"<div>{''.join(one._repr_html_() for one in self.drawings())}</div>"
