"""Renyi accounting: log-moments of the dominating pairs, at every real order, and both conversions.

The log-moment at lambda is log E_P[(P/Q)^lambda] = lambda R_{lambda+1}(P || Q). The variable is lambda, not the order
lambda + 1, so that orders near one, which huge epsilon needs, keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from dpvb.accounting.events import Pair, grouped
from dpvb.guards.arrays import Floats

# Quadrature covers orders with (lambda + 1) mu up to _REACH and pairs with mu up to _MAX_MU; outside it closed-form
# upper bounds stand in. The best order lies outside only where amplification by sampling is already lost.
_REACH = 400.0
_MAX_MU = 10.0
# Plans of more levels choose the order by a plan of fewer.
_FEW = 12
# Beyond so many standard deviations an integrand has no mass in any digit.
_TAIL = 15.0


def epsilon(pairs: Sequence[Pair], delta: float) -> float:
    """Return the smallest epsilon over real orders, improved conversion (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    target = math.log(delta)

    def bound(plan: Sequence[Pair], lam: Floats) -> Floats:
        log_order = np.log1p(lam)
        return (log_moments(plan, lam) - target - log_order) / lam + np.log(lam) - log_order

    return max(0.0, _minimum(bound, pairs)) * (1 + 1e-12)


def log_delta(pairs: Sequence[Pair], epsilon: float) -> float:
    """Return log of the smallest delta over real orders, same conversion; never above 0."""

    def bound(plan: Sequence[Pair], lam: Floats) -> Floats:
        log_order = np.log1p(lam)
        result: Floats = log_moments(plan, lam) - lam * epsilon + lam * (np.log(lam) - log_order) - log_order
        return result

    return min(0.0, _minimum(bound, pairs) + 1e-10)


def log_moments(pairs: Sequence[Pair], lam: Floats) -> Floats:
    """Return the plan's log-moments at each lambda, upper bounds where quadrature does not reach.

    Args:
        pairs: dominating pairs of the plan.
        lam: (L,) positive lambdas, order minus one.
    """
    total = np.zeros_like(lam)
    for pair in pairs:
        total += pair.n_steps * _log_moment(pair, lam)
    return total


def _minimum(bound: Callable[[Sequence[Pair], Floats], Floats], pairs: Sequence[Pair]) -> float:
    """Minimise over lambda: a geometric grid, then finer ones around its best point.

    A bound holds at every lambda, so that a plan of many levels may choose it by a plan of few.
    """
    few = pairs if len(pairs) <= _FEW else grouped(pairs)
    spread = math.sqrt(sum(pair.n_steps * (pair.q * pair.mu) ** 2 for pair in few))
    low = min(1e-3, 1e-3 / max(spread, max(pair.mu for pair in few) ** 2, 1e-300))
    high = max(100.0, *(2 * _REACH / pair.mu for pair in few))
    grid = np.geomspace(low, high, 48)
    # Where quadrature ends the bound jumps, so that its best order can be the last one inside.
    last = np.array([_REACH / _shift(pair) * (1 - 1e-12) - 1 for pair in few])
    tried, bounds = [last[last > low]], [_finite(bound(few, last[last > low]))]
    for count in (9, 9, 9, 0):
        tried.append(grid)
        bounds.append(_finite(bound(few, grid)))
        i = int(np.argmin(bounds[-1]))
        grid = np.geomspace(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)], count)
    if len(few) == len(pairs):
        return float(np.concatenate(bounds).min())
    best = float(np.concatenate(tried)[np.concatenate(bounds).argmin()])
    inside = min(best, max(low, min(_REACH / _shift(pair) * (1 - 1e-12) - 1 for pair in pairs)))
    return float(_finite(bound(pairs, np.array([0.97 * best, best, 1.03 * best, inside]))).min())


def _finite(values: Floats) -> Floats:
    """Return the values with inf, which bounds anything, in the place of NaN."""
    return np.where(np.isnan(values), np.inf, values)


def _log_moment(pair: Pair, lam: Floats) -> Floats:
    order = lam + 1
    if pair.q == 1:
        return lam * order * pair.mu**2 / 2
    result = _closed_bound(pair, lam)
    if pair.mu <= _MAX_MU:
        near = order * _shift(pair) <= _REACH
        result[near] = np.minimum(result[near], _integrated(pair, lam[near]))
    return result


def _shift(pair: Pair) -> float:
    """Distance of the pair's outer means: the integrand at an order peaks at most order times as far out."""
    return 2 * pair.mu if pair.kind == "opposite" else pair.mu


def _closed_bound(pair: Pair, lam: Floats) -> Floats:
    """Joint convexity, and Minkowski's inequality in L_order(Q) for the "sampled" pair."""
    order, half = lam + 1, pair.mu**2 / 2
    mixture = log_mix(pair.q, order * lam * half)
    if pair.kind == "sampled":
        return np.minimum(mixture, order * log_mix(pair.q, lam * half))
    return mixture if pair.kind == "swapped" else log_mix(pair.q, order * lam * _shift(pair) ** 2 / 2)


def _integrated(pair: Pair, lam: Floats) -> Floats:
    """Quadrature of the moment minus one, an integral over Q of a nonnegative function for every kind."""
    q, mu = pair.q, pair.mu
    if len(lam) == 0:
        return lam
    u, log_weight = _panels(
        0.0 if pair.kind == "swapped" else -_TAIL - _MAX_MU, _REACH + _TAIL, 0.5 if mu < 2 else 0.25
    )
    needed = slice(*np.searchsorted(u, [-_TAIL - mu, (float(lam.max()) + 1) * _shift(pair) + _TAIL]))
    u, log_weight = u[needed], log_weight[needed]
    if pair.kind == "swapped":
        u = u + mu / 2
    log_weight = log_weight - math.log(2 * math.pi) / 2
    loss = log_mix(q, mu * u - mu**2 / 2)
    if pair.kind == "opposite":
        loss = loss - log_mix(q, -mu * u - mu**2 / 2)
        log_weight = log_weight + np.logaddexp(math.log1p(-q) - u * u / 2, math.log(q) - (u + mu) ** 2 / 2)
    else:
        log_weight = log_weight - u * u / 2
    decay = -np.expm1(-loss)
    result = np.empty_like(lam)
    for i, x in enumerate(lam):
        order = x + 1
        cut = slice(int(np.searchsorted(u, order * _shift(pair) + _TAIL)))
        loss_cut = loss[cut]
        if pair.kind == "swapped":
            # The symmetric profile's two halves together: (e^{lam l} - 1)(e^l - e^{-lam l}) over l > 0.
            with np.errstate(divide="ignore"):
                factors = np.log(-np.expm1(-x * loss_cut)) + np.log(-np.expm1(-order * loss_cut))
            terms = log_weight[cut] + order * loss_cut + factors
        else:
            terms = log_weight[cut] + _log_excess(loss_cut, decay[cut], float(x))
        peak = float(terms.max())
        result[i] = np.logaddexp(0.0, peak + math.log(float(np.exp(terms - peak).sum())))
    return result


def _log_excess(loss: Floats, decay: Floats, lam: float) -> Floats:
    """Return log(e^{order l} - 1 - order (e^l - 1)), order = lam + 1: nonnegative, its Q-mean the moment minus one.

    Args:
        loss: (U,) increasing losses l.
        decay: (U,) 1 - e^{-l}.
        lam: order minus one.
    """
    order = lam + 1
    low, high, large = np.searchsorted(loss, [-1e-3 / order, 1e-3 / order, 30 / lam])
    large = max(high, large)
    result = np.empty_like(loss)
    # Divided by e^l it is expm1(lam l) - lam (1 - e^{-l}), which cancels near l = 0 only.
    for part in (slice(0, low), slice(high, large)):
        result[part] = loss[part] + np.log(np.maximum(np.expm1(lam * loss[part]) - lam * decay[part], 1e-300))
    y = np.expm1(loss[low:high])
    series = 1 + (order - 2) / 3 * y * (1 + (order - 3) / 4 * y)
    result[low:high] = math.log(order * lam / 2) + np.log(y * y + 1e-300) + np.log(series)
    end = slice(large, None)
    exponent = lam * loss[end]
    result[end] = loss[end] + exponent + np.log1p(-(1 + lam * decay[end]) * np.exp(-exponent))
    return result


def log_mix(q: float, y: Floats) -> Floats:
    """Return log(1 - q + q e^y) without overflow, or loss at small q y."""
    if q == 1:
        return y
    near = np.log1p(q * np.expm1(np.minimum(y, 30.0)))
    return np.where(y < 30, near, y + math.log(q) + np.log1p((1 - q) / q * np.exp(-np.maximum(y, 30.0))))


@cache
def _panels(low: float, high: float, width: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(low, high, math.ceil((high - low) / width) + 1)
    half = np.diff(edges)[:, None] / 2
    u = ((edges[:-1] + edges[1:])[:, None] / 2 + half * nodes).ravel()
    return u, np.log((half * weights).ravel())
