"""Log-moments, Renyi divergences, zCDP and optimal composition, against quadrature and enumeration."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
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

    plan = [Event("poisson", q, sigma, n_steps=20)]
    found = accounting.log_moments_of(plan, [lam], **RELATION)[0]
    assert found == pytest.approx(20 * max(moment(lam + 1), moment(-lam)), rel=1e-6)
    assert accounting.renyi_divergences_of(plan, [lam + 1], **RELATION)[0] == pytest.approx(found / lam, rel=1e-12)


def test_the_best_order_gives_the_papers_epsilon() -> None:
    """Headline setting: N = 400,000, S = 20,000, sigma = 1.24, one epoch; 1.6451 over integer orders without a cap."""
    plan = [Event("poisson", 0.05, 1.24, n_steps=20)]
    order = accounting.best_order_of(plan, delta=1e-4, **RELATION)
    near = [round(order) - 1, round(order)]
    values = (accounting.log_moments_of(plan, near, **RELATION) + math.log(1e4)) / np.array(near)
    assert values.min() == pytest.approx(1.6451, abs=1e-4)


def test_the_best_order_minimises_the_bound_by_quadrature() -> None:
    """Among real orders; neighbouring orders of the search differ by 5 %."""
    q, sigma, delta = 0.05, 1.24, 1e-4

    def ratio(y: float) -> float:
        return 1 - q + q * math.exp(y / sigma - 0.5 / sigma**2)

    def bound(lam: float) -> float:
        value, _ = quad(lambda y: ratio(y) ** (lam + 1) * float(norm.pdf(y)), -20, 40, limit=1000, points=[0, 10])
        return (20 * math.log(value) - math.log(delta)) / lam

    best = minimize_scalar(bound, bounds=(2.0, 20.0), method="bounded", options={"xatol": 1e-4})
    order = accounting.best_order_of([Event("poisson", q, sigma, n_steps=20)], delta=delta, **RELATION)
    assert order - 1 == pytest.approx(best.x, rel=0.05)
    assert bound(order - 1) == pytest.approx(best.fun, rel=1e-3)


def test_rho_of_zcdp_is_the_renyi_divergence_over_the_order_at_every_order() -> None:
    """By quadrature of two unit Gaussians sqrt(2 rho) apart."""
    plan = [Event("full_batch", 1.0, 2.0, n_steps=8), Event("full_batch", 1.0, 1.0)]
    rho = accounting.zcdp_rho_of(plan, **RELATION)
    mu = math.sqrt(8 / 4 + 1)
    for order in (1.5, 3.0, 8.0):
        moment, _ = quad(
            lambda y, a: math.exp(a * (mu * y - mu**2 / 2) - y * y / 2), -20, 40, (order,), points=[0, order * mu]
        )
        divergence = math.log(moment / math.sqrt(2 * math.pi)) / (order - 1)
        assert divergence / order == pytest.approx(rho, rel=1e-8)
        assert accounting.renyi_divergences_of(plan, [order], **RELATION)[0] == pytest.approx(divergence, rel=1e-8)


@pytest.mark.parametrize(("q", "sigma"), [(0.05, 1.24), (0.3, 2.0), (0.5, 0.8)])
def test_the_covering_gaussian_covers_a_batch_at_every_epsilon(q: float, sigma: float) -> None:
    """Both hockey-stick divergences of (1-q) N(0, 1) + q N(1/sigma, 1) and N(0, 1), by quadrature."""
    mu, left_out = accounting.covering_gaussian_of([Event("poisson", q, sigma)], delta=1e-5, **RELATION)
    assert 0 < left_out <= 1e-5

    def sampled(y: float) -> float:
        return (1 - q) * float(norm.pdf(y)) + q * float(norm.pdf(y, 1 / sigma))

    for epsilon in np.linspace(0.0, 3.0, 13):
        above, _ = quad(lambda y, e: max(0.0, sampled(y) - e * norm.pdf(y)), -12, 14, (math.exp(epsilon),), limit=500)
        below, _ = quad(lambda y, e: max(0.0, norm.pdf(y) - e * sampled(y)), -12, 14, (math.exp(epsilon),), limit=500)
        gaussian = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert max(above, below) <= left_out + (1 - left_out) * gaussian + 1e-9
    assert mu < 1 / sigma  # sampling helps


def test_full_batches_are_one_gaussian() -> None:
    plan = [Event("full_batch", 1.0, 2.0, n_steps=8), Event("full_batch", 1.0, 1.0)]
    mu = accounting.gaussian_mu_of(plan, **RELATION)
    assert mu == pytest.approx(math.sqrt(8 / 4 + 1))
    assert accounting.zcdp_rho_of(plan, **RELATION) == pytest.approx(mu**2 / 2)
    assert accounting.covering_gaussian_of(plan, delta=1e-5, **RELATION) == pytest.approx((mu, 0.0))
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
        for chosen in combinations_with_replacement(range(4), k):
            ways = math.factorial(k) / math.prod(math.factorial(chosen.count(one)) for one in range(4))
            p, q = (math.prod(outcomes[one][side] for one in chosen) for side in (0, 1))
            total += ways * max(0.0, p - math.exp(reach) * q)
        return total

    total_delta = 1 - (1 - delta) ** k + 0.02
    least = accounting.optimal_composition(epsilon=epsilon, delta=delta, n_steps=k, total_delta=total_delta)
    assert 0 <= least <= k * epsilon
    assert profile(least) <= total_delta * (1 + 1e-9)
    assert least == 0 or profile(least - 2 * epsilon) > total_delta


@pytest.mark.parametrize(
    "change", [{"epsilon": -1.0}, {"delta": 1.0}, {"n_steps": 0}, {"total_delta": 0.0}, {"total_delta": 1e-9}]
)
def test_optimal_composition_refuses_what_is_outside(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"epsilon": 0.1, "delta": 1e-6, "n_steps": 10, "total_delta": 1e-4}
    with pytest.raises(ParameterError, match=next(iter(change))):
        accounting.optimal_composition(**{**usual, **change})
