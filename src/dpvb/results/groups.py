"""Estimates with intervals, by group of a mixture or by the symbols before; all of it is public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from scipy.special import ndtri

from dpvb.guards.errors import check_number
from dpvb.results.figures import Figure, Intervals, Listing, number


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


def reach_of(level: float) -> float:
    """Return how many standard deviations a normal interval reaches to each side.

    Raises:
        ParameterError: unless level is in (0, 1).
    """
    return float(-ndtri((1 - check_number("level", level, low=0, high=1, closed="neither")) / 2))


def head(number: int, what: str, level: float, noise_aware: bool) -> str:
    """What stands above a table: of how much it is, and what its intervals are."""
    aware = "including the privacy noise" if noise_aware else "WITHOUT the privacy noise"
    return f"{number} {what}, {level:.0%} intervals, {aware}"


@dataclass(frozen=True, eq=False, repr=False)
class GroupTable(Figure):
    """Lines of all groups, the largest group first; or of all symbols or states before.

    Attributes:
        lines: public.
        head: what the table is of, in words.
        names: what its first two columns are.
        title: of one drawing for all lines; "": each group has a drawing, whose first line is its share.
        name: as of every `Figure`.
    """

    lines: tuple[Line, ...]
    head: str
    names: tuple[str, str] = ("group", "what")
    title: str = ""
    name: str = "groups"

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def of(self, group: int | str) -> dict[str, Line]:
        """The lines of one group by name."""
        return {line.name: line for line in self.lines if line.group == group}

    def drawings(self) -> Iterator[Intervals]:
        """Yield all lines as one drawing; or the numbers of each group, on one scale in all groups."""
        if self.title:
            rows = tuple((f"{line.group} → {line.name}", line.mean, line.low, line.high, "") for line in self.lines)
            yield Intervals(title=self.title, note=self.head.replace("\n", "; "), rows=rows)
            return
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

    def listing(self) -> Listing:
        """Return the lines."""
        cells = [[str(line.group), line.name, *map(number, (line.mean, line.low, line.high))] for line in self.lines]
        titles = *self.names, "estimate", "low", "high"
        return Listing(Line._fields, self.lines, self.head.splitlines(), (), titles, cells, numbers=(2, 3, 4))
