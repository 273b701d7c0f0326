"""The accounting methods of the papers, for comparison, each as printed.

"moments", "moments_capped" and "wang" are proven upper bounds. "strong", "linear" and "zcdp" stand on the classical
Gaussian theorem, std = sqrt(2 log(1.25/delta)) / epsilon, which is proven for epsilon < 1 only (and false for a
noise multiplier below 0.5 or so); "zcdp" with amplification is unsound besides: it turns an amplified (epsilon, delta)
back into a zCDP parameter as if it were a Gaussian's, and can say less than the truth: epsilon 1.00 where the loss
distribution says 1.63. They show what the papers claimed, not what is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import gammaln

from dpvb.accounting import renyi
from dpvb.accounting.events import Event, Pair
from dpvb.guards.errors import ParameterError

# Orders up to this one are all tried; beyond it the bound is searched.
_EVERY_ORDER = 128
# The delta of one step in the authors' topic-model script.
DEFAULT_STEP_DELTA = 1e-6


def moments(pairs: Sequence[Pair], delta: float, cap: int | None = None) -> float:
    """Return epsilon by the moments accountant: least (alpha(lambda) + log 1/delta) / lambda (Abadi et al. 2016).

    Args:
        pairs: the plan's pairs, "sampled".
        delta: in (0, 1).
        cap: largest lambda, an integer; None for no cap.
    """
    log_inverse = -math.log(delta)

    def bound(lam: int) -> float:
        return (float(renyi.log_moments(pairs, np.array([float(lam)]))[0]) + log_inverse) / lam

    last = _EVERY_ORDER if cap is None else min(cap, _EVERY_ORDER)
    lam = np.arange(1.0, last + 1)
    best = float(((renyi.log_moments(pairs, lam) + log_inverse) / lam).min())
    if cap is None or cap > _EVERY_ORDER:
        high = max(1000, *(math.ceil(200 / p.mu) for p in pairs))
        best = min(best, _integer_minimum(bound, _EVERY_ORDER, min(high, cap or high)))
    return best


def paper_cap(plan: Sequence[Event]) -> int:
    """Return the papers' largest lambda, floor(sigma^2 log(1/(q sigma))), over a plan's events.

    Raises:
        ParameterError: if it is below 1, where the papers' method has no answer.
    """
    cap = min(
        math.floor(e.noise_multiplier**2 * -math.log(min(e.sampling_prob * e.noise_multiplier, 1e300))) for e in plan
    )
    if cap < 1:
        raise ParameterError(
            "method 'moments_capped' needs sigma^2 log(1/(q sigma)) >= 1 (q sampling_prob, sigma noise_multiplier), "
            f"got {cap}. Use method 'moments', which has no cap."
        )
    return cap


def wang(plan: Sequence[Event], delta: float) -> float:
    """Return epsilon by Wang, Balle and Kasiviswanathan 2019, Theorem 9, for fixed-size batches and replace-one.

    Integer orders, the conversion epsilon = R + log(1/delta)/(order - 1) of Mironov 2017 (Proposition 3). Their theorem
    is about a mechanism on the batch that was drawn. So its distance is that of any two batches: with the one unit,
    with the other, or with an empty place or a third unit instead.
    """
    log_inverse = -math.log(delta)

    def bound(lam: int) -> float:
        total = sum(
            event.n_steps
            * _wang_log_moment(event.sampling_prob, event.sensitivity("replace_one") / event.noise_multiplier, lam + 1)
            for event in plan
        )
        return (total + log_inverse) / lam

    return min(*(bound(lam) for lam in range(1, 65)), _integer_minimum(bound, 64, 4096))


def linear(plan: Sequence[Event], delta: float) -> float:
    """Return epsilon by linear composition with amplification (Dwork and Roth 2014, Theorem 3.16): delta/J a step."""
    n_steps = sum(event.n_steps for event in plan)
    return sum(event.n_steps * _amplified(event, min(0.999, delta / (n_steps * event.sampling_prob))) for event in plan)


def strong(plan: Sequence[Event], delta: float, step_delta: float | None = None) -> float:
    """Return epsilon by strong composition with amplification (Dwork and Roth 2014, Theorem 3.20).

    Args:
        plan: the events.
        delta: total; delta - sum of J q step_delta is the slack delta''.
        step_delta: delta of one step before amplification; by default 1e-6, or less where half of delta is not
            enough for it.
    """
    spent = sum(event.n_steps * event.sampling_prob for event in plan)
    if step_delta is None:
        step_delta = min(DEFAULT_STEP_DELTA, delta / (2 * spent))
    slack = delta - spent * step_delta
    if slack <= 0:
        raise ParameterError(
            f"step_delta must be below delta / (sum of n_steps * sampling_prob) = {delta / spent:g}, "
            f"got {step_delta!r}."
        )
    costs = [(event.n_steps, _amplified(event, step_delta)) for event in plan]
    if max(cost for _, cost in costs) > 300:
        return math.inf
    drift = sum(count * cost * math.expm1(cost) for count, cost in costs)
    return drift + math.sqrt(-2 * math.log(slack) * sum(count * cost * cost for count, cost in costs))


def zcdp(plan: Sequence[Event], delta: float, step_delta: float | None = None) -> float:
    """Return epsilon by zCDP (Bun and Steinke 2016, Proposition 1.3), with the papers' amplification where q < 1.

    Args:
        plan: the events.
        delta: total.
        step_delta: delta of one step in the amplification lemma. Free in the papers; the authors' scripts have 1e-6 and
            1e-4. None (default): 0.1, which is in no paper and shows how little the claim may be.
    """
    step_delta = 0.1 if step_delta is None else step_delta
    rho = 0.0
    for event in plan:
        variance = event.noise_multiplier**2
        if event.sampling_prob < 1:
            variance = 2 * math.log(1.25 / (event.sampling_prob * step_delta)) / _amplified(event, step_delta) ** 2
        rho += event.n_steps / (2 * variance)
    return rho + 2 * math.sqrt(rho * -math.log(delta))


def _amplified(event: Event, step_delta: float) -> float:
    """Classical epsilon of one Gaussian step at step_delta, amplified by sampling (Li et al. 2012, Theorem 1)."""
    step = math.sqrt(2 * math.log(1.25 / step_delta)) / event.noise_multiplier
    q = event.sampling_prob
    return math.log1p(q * math.expm1(step)) if step < 500 else step + math.log(q)


def _wang_log_moment(q: float, mu: float, order: int) -> float:
    # For a Gaussian the order-infinity divergence is infinite, which settles both minima but the first.
    half = mu**2 / 2
    j = np.arange(2, order + 1, dtype=np.float64)
    terms = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1) + j * math.log(q)
    terms += math.log(2) + j * (j - 1) * half
    first = 2 * half
    smaller = math.log(4 * math.expm1(first)) if first < 50 else math.log(4) + first
    terms[0] += min(smaller, math.log(2) + first) - (math.log(2) + first)
    peak = float(terms.max())
    return float(np.logaddexp(0.0, peak + math.log(float(np.exp(terms - peak).sum()))))


def _integer_minimum(function: Callable[[int], float], low: int, high: int) -> float:
    """Minimise a quasi-convex function over the integers low..high."""
    while high - low > 2:
        left = low + (high - low) // 3
        right = high - (high - low) // 3
        if function(left) <= function(right):
            high = right
        else:
            low = left
    return min(function(k) for k in range(low, high + 1))
