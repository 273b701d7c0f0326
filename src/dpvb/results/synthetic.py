"""Synthetic tables: their distance from what was released of the private rows, and one analysis of several of them.

Released and synthetic values only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, SyntheticIntervalWarning, check_choice, check_number
from dpvb.guards.lacking import says_what_lacks
from dpvb.results.figures import Facts, Figure, Listing, frame, number


class Combined(NamedTuple):
    """An estimate, its standard deviation, and the ends of an interval."""

    mean: float
    std: float
    low: float
    high: float


@says_what_lacks
def combine_synthetic(
    estimates: Sequence[float] | Floats, variances: Sequence[float] | Floats, *, level: float = 0.95
) -> Combined:
    """Combine one number that was estimated from each of several synthetic tables whose parameters were drawn.

    The interval includes the privacy noise and the sampling of the private rows, but no error of the model from which
    the tables were drawn, and warns of this. For a mean, measured coverage is near the nominal level. For regression
    coefficients of a table with many columns it can be below half: see docs/accuracy.md. Fit the analysis itself, for
    example `dpvb.LogisticRegression`, if its interval must hold.

    The variance is (1 + 1/m) b - v, b being that of the estimates and v the mean of the variances, and at least b/m
    (Raghunathan, Reiter & Rubin 2003); the interval is Student's. Tables of many rows make v small beside b, and the
    rule steady. Rows that were not made by `sample(n, parameters="draw")` make it wrong.

    Args:
        estimates: from each table, (m,), at least two.
        variances: the square of each one's standard error, as an analysis of data gives it, (m,).
        level: probability inside the interval, in (0, 1).

    Raises:
        ParameterError: for others than as many finite numbers, two at least.
    """
    from scipy.stats import t

    level = check_number("level", level, low=0, high=1, closed="neither")
    try:
        value_m, variance_m = (np.asarray(numbers, dtype=np.float64) for numbers in (estimates, variances))
    except (TypeError, ValueError):
        value_m, variance_m = np.full(0, math.nan), np.full(0, math.nan)
    m = value_m.size
    if value_m.shape != variance_m.shape or value_m.ndim != 1 or m < 2:
        raise ParameterError(
            "estimates and variances must be as many numbers, one of each table, and of two tables at least, got "
            f"shapes {value_m.shape} and {variance_m.shape}. sample(n, parameters='draw') makes tables; of several "
            "numbers of each table, such as coefficients, combine one at a time."
        )
    if not (np.isfinite(value_m).all() and np.isfinite(variance_m).all() and (variance_m >= 0).all()):
        raise ParameterError("estimates and variances must be finite, and variances squares of standard errors.")
    between, within = float(value_m.var(ddof=1)), float(variance_m.mean())
    whole = (1 + 1 / m) * between
    variance = max(whole - within, between / m)
    freedom = (m - 1) * (1 - within / whole) ** 2 if 0 < within < whole else float(m - 1)
    warnings.warn(
        "This interval does not include the error of the model from which the synthetic tables were drawn: intervals "
        "of regression coefficients can cover far less than stated. Fit the analysis itself, for example "
        "dpvb.LogisticRegression, if its interval must hold.",
        SyntheticIntervalWarning,
        stacklevel=3,
    )
    mean, std = float(value_m.mean()), math.sqrt(variance)
    reach = float(t.ppf(0.5 + level / 2, max(freedom, 1.0))) * std
    return Combined(mean, std, mean - reach, mean + reach)


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
        pairs: of two columns; empty where `fidelity_share` paid for none.
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
