"""What public facts let one expect of a fit, in words and numbers; nothing here has seen data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

#: More units than anybody has: what needs as many is out of reach.
MOST = 10**12


@dataclass(frozen=True)
class Forecast:
    """What to expect of a fit to so many units.

    Attributes:
        num_units, unit: how many, and what one is.
        facts: the model's size, in words.
        measure: what the values are, in words.
        values: names and numbers of what is expected; the first sums the others up.
        expected: the same as the end of a sentence that begins with "expect".
        strength: what is expected over what makes a fit worth its budget; it grows with units and with epsilon.
        then: what can be expected from a strength of 1 on, in words.
        size, parts: which part of the model could be smaller, in words, and how many of it the model has.
        affordable: how many of it would leave a strength of 1.
        needed: number of units from which on the strength is 1; infinite where none is enough.
    """

    num_units: float
    unit: str
    facts: str
    measure: str
    values: tuple[tuple[str, float], ...]
    expected: str
    strength: float
    then: str
    size: str
    parts: int
    affordable: float
    needed: float = math.nan

    def __str__(self) -> str:
        """One sentence."""
        if self.strength >= 1 or math.isnan(self.needed):
            return f"expect {self.expected}"
        enough = "at this noise no number of them is enough"
        if math.isfinite(self.needed):
            enough = f"from about {rounded(self.needed)} {self.unit}s on, {self.then}"
        return f"expect {self.expected}; {enough}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        numbers = {"strength": self.strength, "affordable": self.affordable, "needed": self.needed}
        return {
            "num_units": self.num_units,
            "unit": self.unit,
            "measure": self.measure,
            "values": {name: plain(value) for name, value in self.values},
            "said": str(self),
            **{name: plain(value) for name, value in numbers.items()},
        }


def searched(at: Callable[[float], Forecast], number: int) -> Forecast:
    """The forecast for so many units, with the number of units that would be enough.

    Args:
        at: the forecast for a number of units under one calibrated plan.
        number: of units; public.
    """
    found = at(number)
    return replace(found, needed=number if found.strength >= 1 else least(lambda n: at(n).strength >= 1, number, MOST))


def least(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    """The least number from which on something is enough, to 0.1 %; infinite if `high` is not.

    Args:
        is_enough: false at `low`, and true from some number on.
        low, high: where it is looked for; positive.
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


def rounded(number: float) -> str:
    """A number to two digits, rounded up."""
    digits = 1 - math.floor(math.log10(number))
    return f"{math.ceil(round(number * 10.0**digits, 6)) / 10.0**digits:,.0f}"


def two_digits(number: float) -> str:
    """A number to two digits, as a sentence has it."""
    return f"{number:.2g}"


def plain(value: float) -> float | str:
    """A number as JSON can hold it: infinity is the text "inf"."""
    return value if math.isfinite(value) else "inf"
