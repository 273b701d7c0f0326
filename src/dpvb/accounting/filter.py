"""The filter: when to stop spending, if every plan may be chosen after seeing what the earlier ones released.

A data set has a cap (epsilon, delta). Plan i costs rho_i(a) at Renyi order a. Over a grid of orders fixed in advance,
with weights w_a > 0 that sum to one and are fixed before anything is released, the rule is

    spend while there is an order a with  sum_i rho_i(a) + offset_a <= epsilon,
    offset_a = log((a - 1)/a) - (log(w_a delta) + log a)/(a - 1).

A data set in a file follows two rules, equations 6 and 7 of docs/method.md: 0.75 delta for Gaussians, of distance m
with sum m_i^2 <= m^2, 0.1 delta for D, what Gaussians leave out of plans (see `dominating_gaussian`), and the rest for
the orders. It may spend while D <= delta/10 and delta_Gauss(epsilon; m) <= 3/4 delta, or else while the orders allow
it. The addition of a release to delta (`Event.added_delta`) is part of D; at the orders its plan has no finite cost.
Two limits are
needed: one on the sum would be beaten by an analyst who exchanges m for D (`test_limits_that_trade_are_beaten`). Each
line of plans, those of the whole data set and of one part, has its own sums. docs/proofs.md, "Choosing what comes next:
the filter", has the proofs.

If a plan stops early, the releases that never ran are refunded at the orders and for full batches. For a plan that a
Gaussian covers as a whole, m and D are refunded only if none of it ran.

Amounts are integer multiples of 1e-9: costs and offsets are rounded up, caps down. Offsets come from decimal
arithmetic, whose logarithms are correctly rounded, so every machine decides alike.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from functools import lru_cache

import mpmath
import numpy as np

from dpvb.accounting import dominating_gaussian, gaussian
from dpvb.accounting.calibration import least_scale_and_slope
from dpvb.accounting.costs import Cost
from dpvb.guards.errors import ParameterError

#: One unit of epsilon.
UNIT = 1e-9
#: A number that is not below this limit is treated as infinite.
SATURATED = 2**62

#: The orders, exact in binary: steps of about a fifth of a - 1 from 2 to 70, where caps of ordinary size are met.
ORDERS: tuple[float, ...] = (
    *(1 + k / 64 for k in (1, 2, 4, 8, 16, 24, 32, 40, 48, 56)),
    *(2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.75, 5.5, 6.5, 7.5, 9.0, 10.5, 12.5, 15.0, 18.0, 21.0, 25.0, 30.0, 36.0),
    *(
        43.0,
        52.0,
        62.0,
        76.0,
        96.0,
        128.0,
        180.0,
        256.0,
        400.0,
        640.0,
        1024.0,
        2048.0,
        4096.0,
        8192.0,
        16384.0,
        65536.0,
    ),
)

# Shares of delta of the rule for Gaussians, where a data set counts by it, and of what Gaussians leave out of plans.
_OF_GAUSSIANS, _LEFT_OUT = Decimal("0.75"), Decimal("0.1")
# Digits of a profile; the number is rounded up to the ninth place.
_DIGITS = 60
# Beyond this difference of log delta floating point decides: a hundred times the error of `gaussian.log_delta`, which
# is below 1e-12 (`test_the_log_of_delta_of_a_gaussian_is_exact`).
_TIE = 1e-10
# Relative error of a curve, which rounding must cover.
_SAFETY = 1e-9
_TIGHT_ENOUGH = 0.998
_EXACT = Context(prec=40)
_FAVOUR = Decimal("0.75")
# Taken off every weight, so that rounding at the 40th digit leaves their sum below one.
_LESS = Decimal("1e-20")


def cost_units(cost: Cost) -> tuple[int, ...]:
    """A cost at each order, rounded up; SATURATED where it is infinite."""
    return tuple(_rounded_up(rho) for rho in cost.renyi(np.array(ORDERS)).tolist())


def covered_units(cost: Cost, *, epsilon: int, delta: float, normal: bool) -> tuple[int, ...]:
    """A cost at each order, that of a Gaussian which covers it at the largest order, and what this one leaves out.

    Args:
        cost: of a plan.
        epsilon: the cap, in units.
        delta: the cap's; what is left out counts in units of 1e-9 of it.
        normal: as in `dominating_gaussian`.
    """
    reach = _distance(epsilon, float(_OF_GAUSSIANS) * delta)
    distance, left_out = dominating_gaussian.covering(cost, delta, reach, float(_LEFT_OUT) * delta, normal=normal)
    return *cost_units(cost), _rounded_up(ORDERS[-1] * distance**2 / 2), math.ceil(left_out / delta / UNIT)


def refund_units(cost: Cost) -> tuple[int, ...]:
    """Return the refundable cost at each order for releases that never ran, rounded down; 0 where it is infinite."""
    return tuple(
        math.floor(rho / UNIT * (1 - _SAFETY)) if 0 <= rho < SATURATED * UNIT else 0
        for rho in cost.renyi(np.array(ORDERS)).tolist()
    )


def cap_units(epsilon: float) -> int:
    """A cap, rounded down."""
    return int(Decimal(epsilon).scaleb(9, _EXACT))


def add(totals: Sequence[int], cost: Sequence[int]) -> tuple[int, ...]:
    """Totals after a charge or a refund; a saturated one stays so."""
    if max(totals) < SATURATED and max(totals) + max(cost) < SATURATED:
        return tuple(map(operator.add, totals, cost))
    return tuple(
        SATURATED if total >= SATURATED else min(total + part, SATURATED)
        for total, part in zip(totals, cost, strict=True)
    )


def counted_units(totals: Sequence[int], favoured: int, delta: float) -> int:
    """Return the least cap that the totals keep, by the orders or, where they say it, also by the rule for Gaussians.

    Args:
        totals: as `cost_units` has them, or `covered_units`.
        favoured: index of the order that carries most of delta.
        delta: the cap's.
    """
    orders, covered = totals[: len(ORDERS)], totals[len(ORDERS) :]
    spent = spent_units(orders, offset_units(delta, favoured, beside_gaussians=bool(covered)))
    return min(spent, gaussian_units(*covered, delta)) if covered else spent


def spent_units(totals: Sequence[int], offsets: Sequence[int]) -> int:
    """The filter's epsilon by the orders: the least cap that the totals keep."""
    reachable = [total + offset for total, offset in zip(totals, offsets, strict=True) if total < SATURATED]
    return max(0, min(reachable, default=SATURATED))


@lru_cache(maxsize=4096)
def gaussian_units(total: int, left_out: int, delta: float) -> int:
    """The least cap, in units, that Gaussians keep by their own rule.

    Args:
        total: sum of their costs at the largest order.
        left_out: what they leave out of all plans, in units of 1e-9 of delta.
        delta: the cap's.
    """
    if left_out > _LEFT_OUT * 10**9:
        return SATURATED
    if not 0 < total < SATURATED:
        return min(total, SATURATED)
    mu, target = math.sqrt(2 * total * UNIT / ORDERS[-1]), math.log(_OF_GAUSSIANS) + math.log(delta)

    def excess(a: float) -> float:
        return gaussian.log_delta(mu, a) - target

    def keeps(units: int) -> bool:
        """Whether delta at this epsilon is within the share: in floating point, or at ties in decimal digits."""
        a = units * UNIT / mu - mu / 2
        difference = excess(a)
        # Rounding moves a by less than 4 units in the last place of its terms, and log delta by |a| + 1 times as much.
        rounding = (abs(a) + 1) * 4 * sys.float_info.epsilon * (units * UNIT / mu + mu / 2)
        if abs(difference) > _TIE + rounding:
            return difference < 0
        with mpmath.workdps(_DIGITS):
            m = mpmath.sqrt(mpmath.mpf(2 * total) / int(ORDERS[-1]) / 10**9)
            epsilon = mpmath.mpf(units) / 10**9
            tail = mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)
            return bool(tail <= mpmath.mpf(delta) * 3 / 4)

    # The search starts at a root in floating point; its result does not depend on the start.
    low, units = -mu / 2, 0
    high = max(low + 1, 1.0)
    while excess(high) > 0:
        high *= 2
    if excess(low) > 0:
        from scipy.optimize import brentq  # Here, as it takes long to import.

        units = math.ceil(mu * (brentq(excess, low, high) + mu / 2) / UNIT)
    while units > 0 and keeps(units - 1):
        units -= 1
    while not keeps(units):
        units += 1
    return units


def favoured_order(cost: Sequence[int], *, epsilon: int, delta: float) -> int:
    """Index of the order at which the cap holds most plans of this cost; it is to carry most of delta.

    Args:
        cost: of the first plan, in units.
        epsilon: the cap, in units.
        delta: the cap's.
    """
    alone = [_offset(order, _FAVOUR, delta) for order in ORDERS]
    return max(range(len(ORDERS)), key=lambda i: ((epsilon - alone[i]) / max(cost[i], 1), -alone[i]))


@lru_cache(maxsize=256)
def offset_units(delta: float, favoured: int, *, beside_gaussians: bool = False) -> tuple[int, ...]:
    """The offsets at each order, rounded up.

    Args:
        delta: the cap's.
        favoured: index of the order with weight 3/4; the rest falls with the square of the distance to it.
        beside_gaussians: whether the orders have what the rule for Gaussians leaves of delta, and not all of it.
    """
    left = 1 - _OF_GAUSSIANS - _LEFT_OUT if beside_gaussians else Decimal(1)
    distances = [abs(i - favoured) for i in range(len(ORDERS))]
    with localcontext(_EXACT):
        shares = [Decimal(1) / distance**2 if distance else Decimal(0) for distance in distances]
        rest = (1 - _FAVOUR) / sum(shares)
        weights = [rest * share if share else _FAVOUR for share in shares]
        return tuple(
            _offset(order, left * (weight - _LESS), delta) for order, weight in zip(ORDERS, weights, strict=True)
        )


@lru_cache(maxsize=4096)
def _offset(order: float, weight: Decimal, delta: float) -> int:
    with localcontext(_EXACT):
        a = Decimal(order)
        value = ((a - 1) / a).ln() - ((weight * Decimal(delta)).ln() + a.ln()) / (a - 1)
        return int((value * 10**9).to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=256)
def _distance(epsilon: int, delta: float) -> float:
    return dominating_gaussian.distance(epsilon * UNIT, delta)


def least_scale(spent: Callable[[float], float], target: float) -> float:
    """Return the least noise scale, to two thousandths, that spends at most a target; inf if none does.

    Args:
        spent: falls as the scale grows.
        target: above 0.
    """
    try:
        return least_scale_and_slope(spent, target, 1.0, _TIGHT_ENOUGH)[0]
    except ParameterError:
        return math.inf


def _rounded_up(rho: float) -> int:
    units = rho / UNIT * (1 + _SAFETY)
    return math.ceil(units) if 0 <= units < SATURATED else SATURATED
