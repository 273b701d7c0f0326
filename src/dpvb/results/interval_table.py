"""Estimates with intervals, by component of a mixture, class, or preceding symbol or state; all of it is public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from scipy.special import ndtri

from dpvb.guards.errors import check_number
from dpvb.results.figures import Figure, Grid, Intervals, Listing, number


class Line(NamedTuple):
    """One number of a component or class: estimate, standard deviation, and limits of an interval.

    Examples:
        >>> from dpvb.results.interval_table import Line
        >>> Line.within(0, "share", 0.98, 0.02, reach=2, ends=(0.0, 1.0)).high
        1.0
    """

    part: int | str
    name: str
    mean: float
    std: float
    low: float
    high: float

    @classmethod
    def within(
        cls, part: int | str, name: str, mean: float, std: float, reach: float, ends: tuple[float, float]
    ) -> Line:
        """Return a line whose interval is `reach` standard deviations to each side, limited to possible values."""
        low, high = ends
        return cls(part, name, mean, std, max(mean - reach * std, low), min(mean + reach * std, high))


def reach_of(level: float) -> float:
    """Return the half width of a normal interval in standard deviations.

    Raises:
        ParameterError: Unless level is in (0, 1).
    """
    return float(-ndtri((1 - check_number("level", level, low=0, high=1, closed="neither")) / 2))


def head(number: int, what: str, level: float, noise_aware: bool) -> str:
    """Return the text above a table: number of its parts, level, and whether intervals include the noise."""
    aware = "including the privacy noise" if noise_aware else "WITHOUT the privacy noise"
    return f"{number} {what}, {level:.0%} intervals, {aware}"


@dataclass(frozen=True, eq=False, repr=False)
class IntervalTable(Figure):
    """Table of estimates of all components or classes, largest first, or of all preceding symbols or states.

    Attributes:
        lines: Public estimates.
        head: Description of the table.
        names: Titles of its first two columns.
        title: Title of one plot of all lines. Empty (default): each component has a plot, whose first line is its
            share.
        name: As in `Figure`.
        grid: Picture of the same estimates before the plots. None (default): there is none.

    Examples:
        >>> from dpvb.results.interval_table import IntervalTable, Line
        >>> line = Line.within(0, "share", 0.5, 0.02, reach=2, ends=(0.0, 1.0))
        >>> table = IntervalTable((line,), "1 component, 95% intervals, including the privacy noise")
        >>> table.of(0)["share"].low
        0.46
    """

    lines: tuple[Line, ...]
    head: str
    names: tuple[str, str] = ("component", "quantity")
    title: str = ""
    name: str = "components"
    grid: Grid | None = None

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def of(self, part: int | str) -> dict[str, Line]:
        """Return the lines of one component by name."""
        return {line.name: line for line in self.lines if line.part == part}

    def drawings(self) -> Iterator[Grid | Intervals]:
        """Yield the grid, then all lines as one plot, or a plot per component with common axes."""
        if self.grid is not None:
            yield self.grid
        if self.title:
            rows = tuple((f"{line.part} → {line.name}", line.mean, line.low, line.high, "") for line in self.lines)
            yield Intervals(title=self.title, note=self.head.replace("\n", "; "), rows=rows)
            return
        scales: dict[str, tuple[float, float]] = {}
        for line in self.lines:
            low, high = scales.get(line.name, (line.low, line.high))
            scales[line.name] = min(low, line.low), max(high, line.high)
        for part in dict.fromkeys(line.part for line in self.lines):
            share, *others = (line for line in self.lines if line.part == part)
            yield Intervals(
                title=f"{'Component ' if isinstance(part, int) else ''}{part}: "
                f"{share.mean:.1%} of all, {share.low:.1%} to {share.high:.1%}",
                note=f"{self.head}. Each row has the same axis in all plots.",
                rows=tuple((line.name, line.mean, line.low, line.high, "") for line in others),
                scales=tuple(scales[line.name] for line in others),
            )

    def listing(self) -> Listing:
        """Return the lines."""
        cells = [[str(line.part), line.name, *map(number, (line.mean, line.low, line.high))] for line in self.lines]
        titles = *self.names, "estimate", "low", "high"
        return Listing(Line._fields, self.lines, self.head.splitlines(), (), titles, cells, numbers=(2, 3, 4))
