"""Log-moments, Renyi divergences, zCDP and optimal composition, against quadrature and enumeration."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpvb import accounting
from dpvb.accounting import Event
from dpvb.guards.errors import ParameterError

RELATION: Any = {"neighboring_relation": "add_or_remove_one"}


@pytest.mark.parametrize(
    ("q", "sigma", "lam"), [(0.05, 1.24, 3.0), (0.01, 1.0, 20.0), (0.3, 2.0, 0.5), (1.0, 1.5, 7.0)]
)
def test_a_log_moment_is_that_of_quadrature(q: float, sigma: float, lam: float) -> None:
    """The larger of both directions of (1-q) N(0, 1) + q N(1/sigma, 1) against N(0, 1), 20 times."""

    def log_p(y: float) -> float:
        return float(np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + y / sigma - 0.5 / sigma**2))

    def moment(order: float) -> float:
        value, _ = quad(
            lambda y: math.exp(order * log_p(y) + float(norm.logpdf(y))),
            -40,
            60 + abs(order) / sigma,
            limit=2000,
            points=[0, order / sigma],
        )
        return math.log(value)

    plan = [Event("poisson", q, sigma, num_steps=20)]
    found = accounting.log_moments_of(plan, [lam], **RELATION)[0]
    assert found == pytest.approx(20 * max(moment(lam + 1), moment(-lam)), rel=1e-6)
    assert accounting.renyi_divergences_of(plan, [lam + 1], **RELATION)[0] == pytest.approx(found / lam, rel=1e-12)


def test_the_best_order_gives_the_papers_epsilon() -> None:
    """Headline setting: N = 400,000, S = 20,000, sigma = 1.24, one epoch; 1.6451 over integer orders without a cap."""
    plan = [Event("poisson", 0.05, 1.24, num_steps=20)]
    order = accounting.best_order_of(plan, delta=1e-4, **RELATION)
    near = [round(order) - 1, round(order)]
    values = (accounting.log_moments_of(plan, near, **RELATION) + math.log(1e4)) / np.array(near)
    assert values.min() == pytest.approx(1.6451, abs=1e-4)


def test_full_batches_are_one_gaussian() -> None:
    plan = [Event("full_batch", 1.0, 2.0, num_steps=8), Event("full_batch", 1.0, 1.0)]
    mu = accounting.gaussian_mu_of(plan, **RELATION)
    assert mu == pytest.approx(math.sqrt(8 / 4 + 1))
    assert accounting.zcdp_rho_of(plan, **RELATION) == pytest.approx(mu**2 / 2)
    alone = [Event("full_batch", 1.0, 1 / mu)]
    exact = accounting.epsilon_of(plan, delta=1e-5, **RELATION)
    assert accounting.epsilon_of(alone, delta=1e-5, **RELATION) == pytest.approx(exact, rel=1e-9)
    with pytest.raises(ParameterError, match="sampling_prob=1"):
        accounting.zcdp_rho_of([Event("poisson", 0.1, 1.0)], **RELATION)


@pytest.mark.parametrize(("epsilon", "delta", "k"), [(0.3, 0.0, 7), (1.0, 0.01, 4), (0.05, 1e-3, 10)])
def test_optimal_composition_is_that_of_all_outcomes(epsilon: float, delta: float, k: int) -> None:
    """Randomised response that fails with probability delta dominates; its hockey stick is summed over all outcomes."""
    truth = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    outcomes = [(delta, 0.0), (truth, truth * math.exp(-epsilon)), (truth * math.exp(-epsilon), truth), (0.0, delta)]

    def profile(reach: float) -> float:
        total = 0.0
        for chosen in product(outcomes, repeat=k) if k <= 7 else ():
            p, q = math.prod(one for one, _ in chosen), math.prod(other for _, other in chosen)
            total += max(0.0, p - math.exp(reach) * q)
        return total

    total_delta = 1 - (1 - delta) ** k + 0.02
    least = accounting.optimal_composition(epsilon=epsilon, delta=delta, num_steps=k, total_delta=total_delta)
    assert 0 <= least <= k * epsilon
    if k <= 7:
        assert profile(least) <= total_delta * (1 + 1e-9)
        assert least == 0 or profile(least - 2 * epsilon) > total_delta


@pytest.mark.parametrize(
    "change", [{"epsilon": -1.0}, {"delta": 1.0}, {"num_steps": 0}, {"total_delta": 0.0}, {"total_delta": 1e-9}]
)
def test_optimal_composition_refuses_what_is_outside(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"epsilon": 0.1, "delta": 1e-6, "num_steps": 10, "total_delta": 1e-4}
    with pytest.raises(ParameterError, match=next(iter(change))):
        accounting.optimal_composition(**{**usual, **change})
