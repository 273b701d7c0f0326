"""One analysis of several synthetic tables: their estimates, and how sure they are together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_number
from dpvb.guards.lacking import says_what_lacks


class Combined(NamedTuple):
    """An estimate, its standard deviation, and the ends of an interval."""

    mean: float
    std: float
    low: float
    high: float


@says_what_lacks
def combine(
    estimates: Sequence[float] | Floats, variances: Sequence[float] | Floats, *, level: float = 0.95
) -> Combined:
    """Combine one number that was estimated from each of several synthetic tables whose parameters were drawn.

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
    mean, std = float(value_m.mean()), math.sqrt(variance)
    reach = float(t.ppf(0.5 + level / 2, max(freedom, 1.0))) * std
    return Combined(mean, std, mean - reach, mean + reach)
