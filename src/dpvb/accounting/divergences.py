"""Bounds of a plan of releases besides (epsilon, delta): log-moments, Renyi divergences, zCDP, Gaussian privacy.

Each is the largest over the plan's neighbours, by the dominating pairs of `events`. The log-moment at lambda is
alpha(lambda) = lambda D_{lambda+1}(P || Q), the quantity of the moments accountant (Abadi et al. 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpvb.accounting.events import Event, NeighboringRelation, Pair, check_plan, dominating_pairs
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_delta, check_integer, check_number

# Orders minus one among which the best is looked for; neighbours differ by 5 %, which moves epsilon by less than 1e-3.
_LAMBDAS = np.geomspace(1e-3, 1e5, 400)
# Share of delta that a covering Gaussian may leave out, as in ledgers (`filter`).
_LEFT_OUT = 0.1


def log_moments_of(events: Sequence[Event], lambdas: Sequence[float], *, neighboring_relation: str) -> Floats:
    """Return alpha(lambda) of a plan at each lambda, upper bounds.

    Args:
        events: the plan; public.
        lambdas: orders minus one, above 0.
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Raises:
        ParameterError: for a value outside its range.
    """
    from dpvb.accounting import renyi

    values = np.array([check_number("lambdas", one, low=0, high=1e6, closed="right") for one in lambdas])
    plan = check_plan(events)
    alternatives = [renyi.log_moments(pairs, values) for pairs in dominating_pairs(plan, neighboring_relation)]
    return np.asarray(np.minimum.reduce(alternatives))


def renyi_divergences_of(events: Sequence[Event], orders: Sequence[float], *, neighboring_relation: str) -> Floats:
    """Return the Renyi divergence of a plan at each order above 1; arguments and errors as in `log_moments_of`."""
    lambdas = [check_number("orders", order, low=1, high=1e6, closed="right") - 1.0 for order in orders]
    return np.asarray(log_moments_of(events, lambdas, neighboring_relation=neighboring_relation) / np.array(lambdas))


def best_order_of(events: Sequence[Event], *, delta: float, neighboring_relation: str) -> float:
    """Return the order at which (alpha(lambda) + log(1/delta)) / lambda is least, the moments accountant's.

    Arguments and errors as in `log_moments_of`; delta is in (0, 1).
    """
    check_delta(delta)
    moments = log_moments_of(events, _LAMBDAS.tolist(), neighboring_relation=neighboring_relation)
    return float(1.0 + _LAMBDAS[np.argmin((moments - math.log(delta)) / _LAMBDAS)])


def gaussian_mu_of(events: Sequence[Event], *, neighboring_relation: str) -> float:
    """Return mu, with which a plan of full batches is exactly one Gaussian release of sensitivity mu and noise 1.

    Arguments and errors as in `log_moments_of`.

    Raises:
        ParameterError: for a plan with batches, which no Gaussian equals: see `covering_gaussian_of`.

    Examples:
        >>> from dpvb.accounting import Event, gaussian_mu_of
        >>> gaussian_mu_of([Event("full_batch", 1.0, 2.0, n_steps=16)], neighboring_relation="add_or_remove_one")
        2.0
    """
    return math.sqrt(sum(pair.n_steps * pair.mu**2 for pair in _gaussian(events, neighboring_relation)))


def zcdp_rho_of(events: Sequence[Event], *, neighboring_relation: str) -> float:
    """Return rho, with which a plan of full batches is rho-zCDP (Bun & Steinke 2016): mu^2 / 2; errors as above."""
    return 0.5 * gaussian_mu_of(events, neighboring_relation=neighboring_relation) ** 2


def covering_gaussian_of(
    events: Sequence[Event], *, delta: float, neighboring_relation: NeighboringRelation
) -> tuple[float, float]:
    """Return (mu, d): the Gaussian that covers a plan, with or without batches, and what it leaves out.

    The plan's delta at every epsilon is at most d + (1 - d) delta_G(epsilon), with delta_G of one Gaussian release of
    sensitivity mu and noise 1. So plans add up by their mu, even if each is chosen after the results of the others.

    Args:
        events: the plan; public.
        delta: in (0, 1), at which the Gaussian is to be as small as possible; d is about 0.1 of it, and 0 for full
            batches.
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Raises:
        ParameterError: for a value outside its range.

    Examples:
        >>> from dpvb.accounting import Event, covering_gaussian_of
        >>> plan = [Event("poisson", 0.05, 1.24, n_steps=20)]
        >>> mu, left_out = covering_gaussian_of(plan, delta=1e-4, neighboring_relation="add_or_remove_one")
        >>> round(mu, 3), left_out <= 1e-5
        (0.301, True)
    """
    from dpvb.accounting.costs import Composition
    from dpvb.accounting.dominating_gaussian import covering, distance

    cost = Composition(check_plan(events), neighboring_relation)
    return covering(cost, delta, distance(cost.epsilon(delta), delta), _LEFT_OUT * delta)


def _gaussian(events: Sequence[Event], neighboring_relation: str) -> Sequence[Pair]:
    pairs, *_ = dominating_pairs(check_plan(events), neighboring_relation)
    if any(pair.q < 1 for pair in pairs):
        raise ParameterError(
            "events must have sampling_prob=1 in every step: amplification by sampling has no exact rho or mu. "
            "covering_gaussian_of returns a Gaussian that covers batches."
        )
    return pairs


def optimal_composition(*, epsilon: float, delta: float, n_steps: int, total_delta: float) -> float:
    """Return the least epsilon of so many (epsilon, delta)-private steps (Kairouz, Oh & Viswanath 2015, Theorem 3.3).

    It is exact if nothing else is known of the steps; of Gaussian steps more is known, and `epsilon` is smaller.

    Args:
        epsilon, delta: of each step; at least 0, and in [0, 1).
        n_steps: number of steps.
        total_delta: delta of all steps together, in (0, 1).

    Raises:
        ParameterError: for a value outside its range, or a total_delta that the steps' own deltas exceed.
    """
    from scipy.special import gammaln, logsumexp

    check_number("epsilon", epsilon, low=0, high=1e3)
    check_number("delta", delta, low=0, high=1, closed="left")
    check_delta(total_delta, "total_delta")
    k = check_integer("n_steps", n_steps, low=1, high=10**5)
    some_fail = -math.expm1(k * math.log1p(-delta))  # 1 - (1 - delta)^k
    if some_fail > total_delta:
        raise ParameterError(
            f"total_delta must be at least 1 - (1 - delta)^n_steps = {some_fail:.3g}, got {total_delta}."
        )
    steps = np.arange(k + 1, dtype=np.float64)
    # The number of steps that lean to one side: its loss is (k - 2l) epsilon, with these probabilities.
    log_binomial = gammaln(k + 1) - gammaln(steps + 1) - gammaln(k - steps + 1) - k * np.logaddexp(0.0, epsilon)
    for i in range(k // 2, -1, -1):
        reach = (k - 2 * i) * epsilon
        beyond = steps[:i]
        lost = 0.0
        if i and epsilon > 0:
            first = log_binomial[:i] + (k - beyond) * epsilon
            lost = math.exp(float(logsumexp(first + np.log(-np.expm1(reach - (k - 2 * beyond) * epsilon)))))
        if some_fail + (1.0 - some_fail) * lost <= total_delta:
            return reach
    return k * epsilon
