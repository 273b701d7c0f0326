"""Expected accuracy of a fit, from public facts only, and the budget at which noise no longer hides the result.

Each estimator class returns an `ExpectedAccuracy`, a name and a number, for a fit to n units under a calibrated plan.
Sentences, tables, warnings and JSON of `dpvb.plan` are computed from it here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpvb.core.counting import COUNTS
from dpvb.core.model import StepSize
from dpvb.core.plan import Plan
from dpvb.guards.arrays import Floats
from dpvb.results.statement import percent

#: Largest number of units that is searched: more than 100 times the number of people alive.
MOST = 10**12
#: Largest standard deviation of the noise of a mean, relative to the bound of a unit, at which the mean is useful.
#: A convention: 0.1 of the largest contribution.
CLEAR = 0.1
# Number of details in a printed text; JSON has all of them.
_MOST_DETAILS = 12
# Footnotes of the budget table.
_FOOT = (
    "attack accuracy: largest probability of a right guess whether a unit is present, if both are as likely beforehand",
    "TPR at 1 % FPR: largest true positive rate of a test for a unit's presence at a false positive rate of 1 %",
)


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Expected accuracy of a fit, as one number.

    Attributes:
        name: Name of the quantity, as a heading.
        number: Value of the quantity, which falls or rises with the number of units.
        enough: Value at which noise no longer hides the result. NaN (default): not known.
        unknown: Value without any data, for example the standard deviation of a prior. Infinity (default): none.
        rises: Whether `number` rises with the number of units, for example a number of components. Default: False.
        details: Other numbers by name, for example those of single columns. Default: none.

    Examples:
        >>> from dpvb.results.expected_accuracy import ExpectedAccuracy
        >>> ExpectedAccuracy("standard deviation of the rate", 0.4, enough=0.1).is_weak
        True
    """

    name: str
    number: float
    enough: float = math.nan
    unknown: float = math.inf
    rises: bool = False
    details: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of_means(cls, plan: Plan, n: float, rho: StepSize) -> ExpectedAccuracy:
        """Return the noise of the mean of n units, relative to the bound of a block, for the block with the most noise.

        The mean is that of the last M-step: a step that uses only the newest release has the noise of one release.

        Args:
            plan: Calibrated releases of the fit.
            n: Public number of units.
            rho: Step sizes of the fit.
        """
        blocks = {name: block for release in plan for name, block in release.blocks.items() if name not in COUNTS}
        noise = {
            name: plan.noise_std_at_end(name, rho) * math.sqrt(math.prod(block.packed_shape)) / (block.bound * n)
            for name, block in sorted(blocks.items())
        }
        worst = max(noise, key=lambda name: noise[name])
        parts = {name: noise[name] for name in sorted(noise, key=lambda name: -noise[name])}
        return cls(f"noise of the mean of {worst!r}, over its bound", parts[worst], CLEAR, details=tuple(parts.items()))

    @property
    def strength(self) -> float:
        """`number` relative to `enough`: at least 1 if noise does not hide the result; NaN if `enough` is NaN."""
        if self.rises:
            return self.number / self.enough
        return self.enough / self.number if self.number > 0 else self.enough * math.inf

    @property
    def is_weak(self) -> bool:
        """Whether noise hides the result: `strength` is below 1."""
        return self.strength < 1

    @property
    def shown(self) -> str:
        """`number` with two significant digits, or with one decimal if it rises with the number of units."""
        return two_digits(round(self.number, 1) if self.rises else self.number)

    @property
    def needs(self) -> str:
        """`enough` in words, for example "0.1 or less"."""
        return f"{two_digits(self.enough)} or {'more' if self.rises else 'less'}"

    def __str__(self) -> str:
        """Return the name and the number, and whether data improve on the number."""
        no_better = "" if self.number < self.unknown else ", the same as without data"
        return f"{self.name}: {self.shown}{no_better}"


@dataclass(frozen=True)
class BudgetRow:
    """Accuracy and privacy of one epsilon: a row of the budget table.

    Attributes:
        epsilon: Privacy budget of the fit.
        expected_accuracy: Expected accuracy of the fit.
        attack_accuracy: Largest probability of a right guess whether a unit is present, for an attacker with a prior
            probability of 0.5.
        power: Largest true positive rate of a test for the presence of a unit at a false positive rate of 1 %.

    Examples:
        >>> from dpvb.results.expected_accuracy import BudgetRow, ExpectedAccuracy
        >>> expected = ExpectedAccuracy("standard deviation of the rate", 0.4)
        >>> BudgetRow(1.0, expected, attack_accuracy=0.73, power=0.027).cells()
        ['1', '0.4', '73.0 %', '2.7 %']
    """

    epsilon: float
    expected_accuracy: ExpectedAccuracy
    attack_accuracy: float
    power: float

    def cells(self) -> list[str]:
        """Return the cells of this row."""
        return [
            two_digits(self.epsilon),
            self.expected_accuracy.shown,
            percent(self.attack_accuracy),
            percent(self.power),
        ]


@dataclass(frozen=True)
class MemoryForecast:
    """Expected peak memory of a fit and its process, and its temporary files, in bytes: a smallest and a largest value.

    It is public.

    Attributes:
        held: With the data in memory.
        streamed: With data that are read in parts (`stream=True`), or from temporary files.
        disk: Largest expected temporary file of streamed data. If less than twice as much space is free, each pass may
            parse the data.

    Examples:
        >>> from dpvb.results.expected_accuracy import MemoryForecast
        >>> print(MemoryForecast(held=(1e9, 2e9), streamed=(0.3e9, 0.4e9), disk=1.1e9))
        Peak memory: 1.00 to 2.00 GB with the data in memory, 0.30 to 0.40 GB with streamed data.
        Temporary file of streamed data: at most 1.10 GB.
    """

    held: tuple[float, float]
    streamed: tuple[float, float]
    disk: float

    def __str__(self) -> str:
        """Return all ranges in GB."""
        held, streamed = (f"{low / 1e9:.2f} to {high / 1e9:.2f} GB" for low, high in (self.held, self.streamed))
        return (
            f"Peak memory: {held} with the data in memory, {streamed} with streamed data.\n"
            f"Temporary file of streamed data: at most {math.ceil(self.disk / 1e7) / 100:.2f} GB."
        )


@dataclass(frozen=True)
class PlanSummary:
    """Expected accuracy and privacy of a fit, returned by `dpvb.plan`. All of it is public.

    Attributes:
        kind: Class name of the estimator.
        unit: Protected unit: "row", "document" or "person".
        n_units: Approximate number of units, as given to `dpvb.plan`.
        delta: Delta of the budget.
        own: Row of the estimator's own epsilon.
        budget_table: Rows of the epsilons that are compared; empty if none are.
        needed_units: Smallest number of units at which noise does not hide the result; infinite if there is none.
        needed_epsilon: Smallest such epsilon; infinite above 100, NaN if budgets are not compared.
        size: Name and value of the parameter that is the size of the model; ("", 0) if there is none.
        needed_size: Largest size at which noise does not hide the result; 0 if there is none or sizes are not compared.
        releases: The releases of the plan, in words.
        memory: Expected peak memory of the fit.

    Examples:
        >>> import dpvb
        >>> model = dpvb.LogisticRegression(low=0.0, high=1.0, epsilon=1.0, delta=1e-6)
        >>> summary = dpvb.plan(model, n=10_000, width=3)
        >>> summary.n_units, summary.own.epsilon, summary.expected_accuracy.is_weak
        (10000, 1.0, False)
    """

    kind: str
    unit: str
    n_units: int
    delta: float
    own: BudgetRow
    budget_table: tuple[BudgetRow, ...]
    needed_units: float
    needed_epsilon: float
    size: tuple[str, int]
    needed_size: int
    releases: str
    memory: MemoryForecast

    @property
    def expected_accuracy(self) -> ExpectedAccuracy:
        """Expected accuracy at the estimator's own budget."""
        return self.own.expected_accuracy

    def __str__(self) -> str:
        """Return one fact per line, then the budget table."""
        rows = [["epsilon", self.expected_accuracy.name, "attack accuracy", "TPR at 1 % FPR"]]
        rows += [row.cells() for row in self.budget_table]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(map(str.rjust, row, widths)) for row in rows] if self.budget_table else []
        return "\n".join([*self._lines(), *(["", *table, *_FOOT] if table else [])])

    def _lines(self) -> list[str]:
        knowledge = str(self.expected_accuracy)
        lines = [
            f"{knowledge[0].upper()}{knowledge[1:]}, expected for {self.n_units:,} {self.unit}s at epsilon = "
            f"{self.own.epsilon:g}."
        ]
        lines += [f"  {name}: {two_digits(number)}" for name, number in self.expected_accuracy.details[:_MOST_DETAILS]]
        if self.expected_accuracy.is_weak:
            ways = "; or ".join(self.alternatives()) or "more units together with a larger epsilon"
            lines.append(f"Noise hides the result. It would not at {self.expected_accuracy.needs}. This needs {ways}.")
        if math.isfinite(self.own.epsilon):
            lines.append(attack(self.own.attack_accuracy, self.own.power, self.unit))
        return [*lines, self.releases, str(self.memory)]

    def alternatives(self) -> list[str]:
        """Return single changes at which noise would not hide the result, in words; possibly none."""
        if not self.expected_accuracy.is_weak:
            return []
        ways = []
        if math.isfinite(self.needed_units):
            ways.append(f"about {_rounded_up(self.needed_units)} {self.unit}s instead of {self.n_units:,}")
        if math.isfinite(self.needed_epsilon):
            ways.append(f"epsilon = {two_digits(self.needed_epsilon)} instead of {self.own.epsilon:g}")
        if self.needed_size:
            ways.append(f"{self.size[0]} = {self.needed_size} instead of {self.size[1]}")
        return ways

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain JSON values."""
        return {
            "kind": self.kind,
            "unit": self.unit,
            "n_units": self.n_units,
            "epsilon": _plain(self.own.epsilon),
            "delta": self.delta,
            "quantity": self.expected_accuracy.name,
            "value": _plain(self.expected_accuracy.number),
            "details": {name: _plain(number) for name, number in self.expected_accuracy.details},
            "enough": _plain(self.expected_accuracy.enough),
            "strength": _plain(self.expected_accuracy.strength),
            "alternatives": self.alternatives(),
            "needed_units": _plain(self.needed_units),
            "needed_epsilon": _plain(self.needed_epsilon),
            "attack_accuracy": self.own.attack_accuracy,
            "power_at_one_percent": self.own.power,
            "releases": self.releases,
            "memory": {"held": list(self.memory.held), "streamed": list(self.memory.streamed)},
            "budget_table": [
                {
                    "epsilon": _plain(row.epsilon),
                    "value": _plain(row.expected_accuracy.number),
                    "strength": _plain(row.expected_accuracy.strength),
                    "attack_accuracy": row.attack_accuracy,
                    "power_at_one_percent": row.power,
                }
                for row in self.budget_table
            ],
        }

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Plot accuracy and attack power against epsilon, and write the plot.

        Args:
            path: File to write; its suffix is the format: .png, .pdf or .svg.

        Raises:
            DpvbError: If matplotlib is not installed.
        """
        from dpvb.results import plots
        from dpvb.results.figures import Curves

        values = {
            self.expected_accuracy.name: [row.expected_accuracy.number for row in self.budget_table],
            "true positive rate of an attacker at a false positive rate of 1 %": [
                row.power for row in self.budget_table
            ],
        }
        at = tuple(row.epsilon for row in self.budget_table)
        axis: dict[str, Any] = {"x": "epsilon", "at": at, "mark": self.own.epsilon, "log": True, "low": 0.0}
        curves = [
            Curves(title=title, lines=((title, tuple((value, value, value) for value in line)),), **axis)
            for title, line in values.items()
        ]
        plots.save(path, curves, f"Accuracy and privacy by epsilon: {self.kind}")


def attack(attack_accuracy: float, power: float, unit: str) -> str:
    """Return what an attacker can learn about one unit, in words.

    Args:
        attack_accuracy, power: As in `BudgetRow`.
        unit: Protected unit.
    """
    return (
        f"An attacker who believes with probability 50 % that a {unit} is in the data guesses right with a "
        f"probability of at most {percent(attack_accuracy)}. At a false positive rate of 1 %, the true "
        f"positive rate is at most {percent(power)}."
    )


def least(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number at which a condition holds, to 0.1 %; infinite if it does not hold at `high`.

    Args:
        is_enough: Condition that is false at `low` and remains true once it is true.
        low, high: Limits of the search; positive.
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
    """Return the geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values.tolist())) / len(values))


def two_digits(number: float) -> str:
    """Format a number with two significant digits."""
    return f"{number:.2g}" if number < 100 else f"{float(f'{number:.2g}'):,.0f}"


def _rounded_up(number: float) -> str:
    digits = 1 - math.floor(math.log10(number))
    return f"{math.ceil(round(number * 10.0**digits, 6)) / 10.0**digits:,.0f}"


def _plain(value: float) -> float | str | None:
    """Return a number as JSON allows it: infinity is the text "inf", NaN is null."""
    return value if math.isfinite(value) else None if math.isnan(value) else "inf"
