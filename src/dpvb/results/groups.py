"""Estimates with intervals, by group of a mixture or by the symbols before; all of it is public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dpvb.guards import pages
from dpvb.guards.strangers import printable
from dpvb.results.figures import Intervals

_NUMBERS = ("estimate", "low", "high")


class Line(NamedTuple):
    """One number of a group or a class: an estimate, its standard deviation, and the ends of an interval."""

    group: int | str
    name: str
    mean: float
    std: float
    low: float
    high: float

    @classmethod
    def within(
        cls, group: int | str, name: str, mean: float, std: float, reach: float, ends: tuple[float, float]
    ) -> Line:
        """A line whose interval reaches so many standard deviations, and not beyond the ends of what is possible."""
        low, high = ends
        return cls(group, name, mean, std, max(mean - reach * std, low), min(mean + reach * std, high))


def head(number: int, what: str, level: float, noise_aware: bool) -> str:
    """What stands above a table: of how much it is, and what its intervals are."""
    aware = "noise counted in" if noise_aware else "privacy noise left out"
    return f"{number} {what}, {level:.0%} intervals, {aware}"


@dataclass(frozen=True, eq=False, repr=False)
class GroupTable:
    """Lines of all groups, the largest group first.

    Attributes:
        lines: public.
        head: what the table is of, in words.
        names: what its first two columns are.
    """

    lines: tuple[Line, ...]
    head: str
    names: tuple[str, str] = ("group", "what")

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def of(self, group: int | str) -> dict[str, Line]:
        """The lines of one group by name."""
        return {line.name: line for line in self.lines if line.group == group}

    def figures(self) -> Iterator[Intervals]:
        """What a report shows: the numbers of each group, whose share comes first, on one scale in all groups."""
        scales: dict[str, tuple[float, float]] = {}
        for line in self.lines:
            low, high = scales.get(line.name, (line.low, line.high))
            scales[line.name] = min(low, line.low), max(high, line.high)
        for group in dict.fromkeys(line.group for line in self.lines):
            share, *others = (line for line in self.lines if line.group == group)
            yield Intervals(
                title=f"{'Group ' if isinstance(group, int) else ''}{group}: "
                f"{share.mean:.1%} of all, {share.low:.1%} to {share.high:.1%}",
                note=f"{self.head}. The scale of a row is the same in all groups.",
                rows=tuple((line.name, line.mean, line.low, line.high, "") for line in others),
                scales=tuple(scales[line.name] for line in others),
            )

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                printable(str(line.group)),
                printable(line.name),
                *(f"{value:.4g}" for value in (line.mean, line.low, line.high)),
            )
            for line in self.lines
        ]

    def __str__(self) -> str:
        rows = [(*self.names, *_NUMBERS), *self._rows()]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.head, "", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        return f"<div>{pages.title(self.head)}{pages.table(self._rows(), head=(*self.names, *_NUMBERS))}</div>"
