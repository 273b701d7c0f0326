"""What a plan comes to before any data are touched: what to expect, what must give, and what an attacker gains."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from dpvb.results.forecast import Forecast, plain, rounded, two_digits
from dpvb.results.statement import percent


@dataclass(frozen=True)
class Rung:
    """What one epsilon buys.

    Attributes:
        epsilon: the budget.
        forecast: of the same units.
        belief: how sure whoever gives even odds to a unit's presence can become, outside an event of probability delta.
        power: largest share of those who are there that a test with 1 % false alarms finds.
    """

    epsilon: float
    forecast: Forecast
    belief: float
    power: float


@dataclass(frozen=True)
class Outlook:
    """What `dpvb.plan` says; all of it is public.

    Attributes:
        kind: the estimator's name.
        delta: of the budget.
        own: what the estimator's own epsilon buys.
        ladder: what other values of epsilon would buy.
        needed_epsilon: epsilon from which on the forecast's strength is 1; NaN where that was not asked.
        releases, why: the plan, and why it is so, in words.
    """

    kind: str
    delta: float
    own: Rung
    ladder: tuple[Rung, ...]
    needed_epsilon: float
    releases: str
    why: str

    def __str__(self) -> str:
        """The forecast, what must give, what an attacker gains, and the plan, a sentence each; then a table."""
        heads = ["epsilon", self.own.forecast.values[0][0], "strength", "sure at most", "found at 1 % false alarms"]
        rows = [[two_digits(rung.epsilon), *self._cells(rung)] for rung in self.ladder]
        widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
        table = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]
        ]
        return "\n".join([*self.sentences(), "", *table] if rows else self.sentences())

    def sentences(self) -> list[str]:
        """All but the table."""
        forecast, own, many = self.own.forecast, self.own, f"{self.own.forecast.num_units:,.0f}"
        told = [f"{many} {forecast.unit}s, {forecast.facts}, ε = {own.epsilon:g}: {forecast}."]
        if forecast.strength < 1:
            told.append(self.must_give())
        if math.isfinite(own.epsilon):
            told.append(
                f"Whoever gives even odds to one {forecast.unit}'s presence becomes at most {percent(own.belief)} sure "
                f"of it, but for a probability of {self.delta:g}; a test with 1 % false alarms finds at most "
                f"{percent(own.power)} of those who are there."
            )
        return [*told, f"{self.releases} {self.why}"]

    def must_give(self) -> str:
        """Which of units, epsilon and model size must give, and by how much."""
        forecast, ways = self.own.forecast, []
        if math.isfinite(forecast.needed):
            ways.append(f"about {rounded(forecast.needed)} {forecast.unit}s instead of {forecast.num_units:,.0f}")
        if math.isfinite(self.needed_epsilon):
            ways.append(f"ε = {two_digits(self.needed_epsilon)} instead of {self.own.epsilon:g}")
        if 1 <= forecast.affordable < forecast.parts:
            ways.append(f"about {math.floor(forecast.affordable):,} {forecast.size} instead of {forecast.parts:,}")
        if not ways:
            return "No number of units, no ε up to 100 and no smaller model alone is enough: several must give."
        return f"For more, one of these must give: {'; or '.join(ways)}."

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "kind": self.kind,
            "epsilon": plain(self.own.epsilon),
            "delta": self.delta,
            "forecast": self.own.forecast.to_dict(),
            "must_give": self.must_give() if self.own.forecast.strength < 1 else None,
            "needed_epsilon": None if math.isnan(self.needed_epsilon) else plain(self.needed_epsilon),
            "belief": self.own.belief,
            "power_at_one_percent": self.own.power,
            "releases": self.releases,
            "why": self.why,
            "ladder": [
                {
                    "epsilon": plain(rung.epsilon),
                    "value": plain(rung.forecast.values[0][1]),
                    "strength": plain(rung.forecast.strength),
                    "belief": rung.belief,
                    "power_at_one_percent": rung.power,
                }
                for rung in self.ladder
            ],
        }

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of what epsilon buys; the suffix tells the format (.png, .pdf, .svg).

        Raises:
            DpvbError: if matplotlib is not installed.
        """
        from dpvb.results import pictures
        from dpvb.results.figures import Curves

        values = {
            self.own.forecast.measure: [rung.forecast.values[0][1] for rung in self.ladder],
            "found by a test with 1 % false alarms": [rung.power for rung in self.ladder],
        }
        at = tuple(rung.epsilon for rung in self.ladder)
        axis: dict[str, Any] = {"x": "epsilon", "at": at, "mark": self.own.epsilon, "log": True, "low": 0.0}
        curves = [
            Curves(title=title, lines=((title, tuple((value, value, value) for value in line)),), **axis)
            for title, line in values.items()
        ]
        pictures.save(path, curves, f"What epsilon buys: {self.kind}")

    @staticmethod
    def _cells(rung: Rung) -> list[str]:
        value, strength = rung.forecast.values[0][1], rung.forecast.strength
        return [two_digits(value), two_digits(strength), percent(rung.belief), percent(rung.power)]
