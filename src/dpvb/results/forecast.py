"""Forecasts: how well a fit will know its result, from public facts alone, and what would be enough to know it well.

A kind of model answers one question: how well is its result known after a fit to n units under a calibrated plan? The
answer is a `Knowledge`: a name and a number. For every kind, sentences, tables, warnings and JSON are made of it here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpvb.core.counting import COUNTS
from dpvb.core.plan import Plan
from dpvb.guards.arrays import Floats
from dpvb.results.statement import percent

#: Largest number of units that is searched: more than there are people.
MOST = 10**12
#: Noise of a mean, over the bound of a unit, up to which the mean is not hidden.
CLEAR = 0.1
# Details that a text shows.
_MOST_DETAILS = 12


@dataclass(frozen=True)
class Knowledge:
    """How well a fit knows its result, as one number.

    Attributes:
        name: the quantity, as a heading.
        number: its value, which falls as the number of units grows, or rises with it.
        enough: value from which noise no longer hides the result; NaN: no value is known.
        unknown: value without any data, such as the standard deviation of a prior.
        rises: whether `number` rises with the number of units, as a number of groups does.
        details: other numbers by name, such as those of single columns.
    """

    name: str
    number: float
    enough: float = math.nan
    unknown: float = math.inf
    rises: bool = False
    details: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of_means(cls, plan: Plan, n: float) -> Knowledge:
        """The noise of the mean of what n units add to a block, over its bound: of the block where it is largest."""
        precision: dict[str, float] = {}
        for release in plan:
            for name in release.blocks.keys() - COUNTS.keys():
                block, std = release.blocks[name], release.noise_std(name) / release.mechanism.sampler.sampling_prob
                added = (block.bound / std) ** 2 / math.prod(block.packed_shape) if std > 0 else math.inf
                precision[name] = precision.get(name, 0.0) + added
        parts = {
            name: 1 / (math.sqrt(precision[name]) * n) for name in sorted(precision, key=lambda name: precision[name])
        }
        worst = next(iter(parts))
        return cls(f"noise of the mean of {worst!r}, over its bound", parts[worst], CLEAR, details=tuple(parts.items()))

    @property
    def strength(self) -> float:
        """`number` compared with `enough`: 1 or more where noise does not hide the result; NaN where `enough` is."""
        if self.rises:
            return self.number / self.enough
        return self.enough / self.number if self.number > 0 else self.enough * math.inf

    @property
    def is_weak(self) -> bool:
        """Whether `number` stays behind `enough`."""
        return self.strength < 1

    @property
    def shown(self) -> str:
        """`number` with two digits; of what is counted with one decimal."""
        return two_digits(round(self.number, 1) if self.rises else self.number)

    @property
    def needs(self) -> str:
        """`enough`, in words."""
        return f"{two_digits(self.enough)} or {'more' if self.rises else 'less'}"

    def __str__(self) -> str:
        """The name and the number; of a number that data do not make smaller, that too."""
        no_better = "" if self.number < self.unknown else ", as without data"
        return f"{self.name}: {self.shown}{no_better}"


@dataclass(frozen=True)
class Rung:
    """What one epsilon buys.

    Attributes:
        epsilon: the budget.
        knowledge: how well the result is known.
        belief: largest probability that an attacker with even prior odds can assign to the presence of a unit that is
            there, outside an event of probability delta.
        power: largest share of the units that are present that a test with 1 % false alarms finds.
    """

    epsilon: float
    knowledge: Knowledge
    belief: float
    power: float

    def cells(self) -> list[str]:
        """A line of the table."""
        return [
            two_digits(self.epsilon),
            self.knowledge.shown,
            percent(self.belief),
            percent(self.power),
        ]


@dataclass(frozen=True)
class Forecast:
    """What to expect of a fit, the answer of `dpvb.plan`; all of it is public.

    Attributes:
        kind: class of the estimator.
        unit, num_units: what is protected, and roughly how many there are.
        delta: of the budget.
        rung: what the estimator's own epsilon buys.
        ladder: the same for other budgets.
        needed_units: number of units from which noise no longer hides the result; infinite if there is none.
        needed_epsilon: epsilon from which it is; infinite above 100, NaN if other budgets were not asked for.
        size, needed_size: the parameter that is the size of the model, its value, and the largest value at which
            noise does not hide the result; 0 if there is none, or if other budgets were not asked for.
        releases: the plan, in words.
    """

    kind: str
    unit: str
    num_units: int
    delta: float
    rung: Rung
    ladder: tuple[Rung, ...]
    needed_units: float
    needed_epsilon: float
    size: tuple[str, int]
    needed_size: int
    releases: str

    @property
    def knowledge(self) -> Knowledge:
        """How well the result is known at the estimator's own budget."""
        return self.rung.knowledge

    def __str__(self) -> str:
        """One fact per line, then what other budgets buy."""
        rows = [["epsilon", self.knowledge.name, "certain at most", "found at 1 % false alarms"]]
        rows += [rung.cells() for rung in self.ladder]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(map(str.rjust, row, widths)) for row in rows] if self.ladder else []
        return "\n".join([*self._lines(), *([""] if table else []), *table])

    def _lines(self) -> list[str]:
        knowledge = str(self.knowledge)
        lines = [
            f"{knowledge[0].upper()}{knowledge[1:]}, forecast for {self.num_units:,} {self.unit}s at epsilon = "
            f"{self.rung.epsilon:g}."
        ]
        lines += [f"  {name}: {two_digits(number)}" for name, number in self.knowledge.details[:_MOST_DETAILS]]
        if self.knowledge.is_weak:
            ways = "; or ".join(self.alternatives()) or "more units together with a larger epsilon"
            lines.append(f"The noise no longer hides the result at {self.knowledge.needs}. This needs {ways}.")
        if math.isfinite(self.rung.epsilon):
            lines.append(attack(self.rung.belief, self.rung.power, self.unit, self.delta))
        return [*lines, self.releases]

    def alternatives(self) -> list[str]:
        """Changes each of which brings the result out of the noise, in words; none if it is, or no single one does."""
        if not self.knowledge.is_weak:
            return []
        ways = []
        if math.isfinite(self.needed_units):
            ways.append(f"about {_rounded_up(self.needed_units)} {self.unit}s instead of {self.num_units:,}")
        if math.isfinite(self.needed_epsilon):
            ways.append(f"epsilon = {two_digits(self.needed_epsilon)} instead of {self.rung.epsilon:g}")
        if self.needed_size:
            ways.append(f"{self.size[0]} = {self.needed_size} instead of {self.size[1]}")
        return ways

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "kind": self.kind,
            "unit": self.unit,
            "num_units": self.num_units,
            "epsilon": _plain(self.rung.epsilon),
            "delta": self.delta,
            "quantity": self.knowledge.name,
            "value": _plain(self.knowledge.number),
            "details": {name: _plain(number) for name, number in self.knowledge.details},
            "enough": _plain(self.knowledge.enough),
            "strength": _plain(self.knowledge.strength),
            "alternatives": self.alternatives(),
            "needed_units": _plain(self.needed_units),
            "needed_epsilon": _plain(self.needed_epsilon),
            "belief": self.rung.belief,
            "power_at_one_percent": self.rung.power,
            "releases": self.releases,
            "ladder": [
                {
                    "epsilon": _plain(rung.epsilon),
                    "value": _plain(rung.knowledge.number),
                    "strength": _plain(rung.knowledge.strength),
                    "belief": rung.belief,
                    "power_at_one_percent": rung.power,
                }
                for rung in self.ladder
            ],
        }

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of what epsilon buys; the suffix specifies the format (.png, .pdf, .svg).

        Raises:
            DpvbError: if matplotlib is not installed.
        """
        from dpvb.results import pictures
        from dpvb.results.figures import Curves

        values = {
            self.knowledge.name: [rung.knowledge.number for rung in self.ladder],
            "found by a test with 1 % false alarms": [rung.power for rung in self.ladder],
        }
        at = tuple(rung.epsilon for rung in self.ladder)
        axis: dict[str, Any] = {"x": "epsilon", "at": at, "mark": self.rung.epsilon, "log": True, "low": 0.0}
        curves = [
            Curves(title=title, lines=((title, tuple((value, value, value) for value in line)),), **axis)
            for title, line in values.items()
        ]
        pictures.save(path, curves, f"What epsilon buys: {self.kind}")


def attack(belief: float, power: float, unit: str, delta: float) -> str:
    """What a budget lets an attacker learn of one unit, in words; belief and power are those of a `Rung`."""
    return (
        f"An attacker with even odds on the presence of one {unit} becomes at most {percent(belief)} certain of it, "
        f"except with probability {delta:g}; a test with 1 % false alarms finds at most {percent(power)} of the "
        f"{unit}s that are present."
    )


def least(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number from which a condition holds, to 0.1 %; infinite if it does not hold at `high`.

    Args:
        is_enough: false at `low`, and true from some number on.
        low, high: ends of the search; positive.
    """
    reach = low
    while not is_enough(reach := min(4 * reach, high)):
        if reach == high:
            return math.inf
        low = reach
    while reach > 1.001 * low:
        middle = math.sqrt(low * reach)
        low, reach = (low, middle) if is_enough(middle) else (middle, reach)
    return reach


def geometric_mean(values: Floats) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values.tolist())) / len(values))


def two_digits(number: float) -> str:
    """Format a number with two digits."""
    return f"{number:.2g}" if number < 100 else f"{float(f'{number:.2g}'):,.0f}"


def _rounded_up(number: float) -> str:
    digits = 1 - math.floor(math.log10(number))
    return f"{math.ceil(round(number * 10.0**digits, 6)) / 10.0**digits:,.0f}"


def _plain(value: float) -> float | str | None:
    """A number as JSON can hold it: infinity is the text "inf", NaN is null."""
    return value if math.isfinite(value) else None if math.isnan(value) else "inf"
