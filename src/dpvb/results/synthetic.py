"""Synthetic tables: distances from released quantities, and one analysis of several tables.

Only released and synthetic values are used.
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
from dpvb.guards.missing_arguments import says_what_lacks
from dpvb.results.figures import Facts, Figure, Listing, frame, number


class Combined(NamedTuple):
    """Estimate, standard deviation, and limits of an interval.

    Examples:
        >>> import dpvb
        >>> combined = dpvb.combine_synthetic([1.0, 1.2, 1.1], [0.001, 0.001, 0.001])
        >>> combined.low < combined.mean < combined.high
        True
    """

    mean: float
    std: float
    low: float
    high: float


@says_what_lacks
def combine_synthetic(
    estimates: Sequence[float] | Floats, variances: Sequence[float] | Floats, *, level: float = 0.95
) -> Combined:
    """Combine estimates of one number from several synthetic tables with drawn parameters.

    The interval includes the privacy noise and the sampling of the private rows, but no error of the model that
    generated the tables, and warns of this. For a mean, measured coverage is near the nominal level. For regression
    coefficients of a table with many columns it can be below half: see docs/accuracy.md. If the interval must have its
    nominal coverage, fit the analysis itself, for example `dpvb.LogisticRegression`.

    The variance is (1 + 1/m) b - v, at least b/m, where b is the variance of the estimates and v the mean of the
    variances (Raghunathan, Reiter & Rubin 2003). The interval uses Student's t. The rule is stable for tables of many
    rows, for which v is small relative to b. It is valid only for rows from `sample(n, parameters="draw")`.

    Args:
        estimates: Estimates from each table, (m,), at least two.
        variances: Squared standard errors of the estimates, (m,), as an analysis of each table computes them.
        level: Probability inside the interval, in (0, 1). Default: 0.95.

    Returns:
        Mean, standard deviation, and limits of the interval.

    Raises:
        ParameterError: Unless there are equally many finite estimates and variances, at least two.

    Examples:
        >>> import dpvb
        >>> round(dpvb.combine_synthetic([1.0, 1.2, 1.1], [0.001, 0.001, 0.001]).mean, 3)
        1.1
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
    """One number of a column: released value, joint standard error of both values, and synthetic value.

    Examples:
        >>> from dpvb.results.synthetic import Marginal
        >>> Marginal("mean of age", released=41.2, std=0.3, synthetic=40.9).synthetic
        40.9
    """

    name: str
    released: float
    std: float
    synthetic: float


class PairOfColumns(NamedTuple):
    """Two columns: total variation distance of released and synthetic tables, and its expected value by chance.

    Examples:
        >>> from dpvb.results.synthetic import PairOfColumns
        >>> pair = PairOfColumns("age, sex", distance=0.05, by_chance=0.04)
        >>> pair.distance > 2 * pair.by_chance
        False
    """

    name: str
    distance: float
    by_chance: float


@dataclass(frozen=True, eq=False, repr=False)
class FidelityTable(Figure):
    """Comparison of released and synthetic values of single columns, and of tables of two columns.

    Attributes:
        lines: Comparisons of single columns.
        pairs: Comparisons of two columns; empty without `fidelity_share`.
        head: Description of the table.

    Examples:
        >>> from dpvb.results.synthetic import FidelityTable, Marginal
        >>> table = FidelityTable((Marginal("mean of age", 41.2, 0.3, 40.9),), (), "1,000 synthetic rows")
        >>> [round((line.synthetic - line.released) / line.std, 1) for line in table]
        [-1.0]
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
        """Return the lines of single "columns" or of "pairs" as a pandas data frame.

        Args:
            of: "columns" (default) or "pairs".

        Raises:
            ParameterError: If `of` is anything else.
            DpvbError: If pandas is not installed.
        """
        if check_choice("of", of, ("columns", "pairs")) == "columns":
            return super().to_frame()
        return frame(Listing(PairOfColumns._fields, self.pairs, facts={"head": self.head}))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.drawings()))

    def _repr_html_(self) -> str:
        """Return HTML of the tables for a notebook."""
        return f"<div>{''.join(one._repr_html_() for one in self.drawings())}</div>"
