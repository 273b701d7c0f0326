"""Private choice among settings: its price against exact enumeration, the law of its runs, and what comes out of it."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpvb import accounting
from dpvb.accounting import Event, costs
from dpvb.accounting.costs import Composition
from dpvb.accounting.selection import NumberOfRuns, Selection, best_of, selection_scale
from dpvb.errors import ParameterError

LAWS = [NumberOfRuns.expecting(mean, eta) for eta in (-0.5, 0.0, 0.5, 1.0, 3.0) for mean in (1.5, 5.0, 50.0, 1000.0)]
ORDERS = np.array([1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])


def name(law: NumberOfRuns) -> str:
    return f"eta {law.eta:g}, {law.mean:.4g} runs"


# --- the law of K -----------------------------------------------------------------------------------------------


def generating(law: NumberOfRuns, x: Any) -> Any:
    """E[x^K], in closed form (Papernot & Steinke 2022, Definition 1)."""
    y, whole = -np.log1p(-(1 - law.gamma) * x), -math.log(law.gamma)
    return y / whole if law.eta == 0 else np.expm1(law.eta * y) / np.expm1(law.eta * whole)


@pytest.mark.parametrize("law", LAWS, ids=name)
def test_the_law_of_runs_has_its_generating_function_and_mean(law: NumberOfRuns) -> None:
    x = 0.6
    assert math.fsum(law.pmf(k) * x**k for k in range(1, 120)) == pytest.approx(generating(law, x), rel=1e-12)
    h = 1e-6 * law.gamma
    slope = (generating(law, 1.0) - generating(law, 1.0 - h)) / h
    assert slope == pytest.approx(law.mean, rel=1e-3)


def test_known_laws_are_special_cases() -> None:
    geometric, logarithmic = NumberOfRuns(1.0, 0.2), NumberOfRuns(0.0, 0.2)
    for k in range(1, 30):
        assert geometric.pmf(k) == pytest.approx(stats.geom.pmf(k, 0.2), rel=1e-12)
        assert logarithmic.pmf(k) == pytest.approx(stats.logser.pmf(k, 0.8), rel=1e-12)
    assert NumberOfRuns(0.5, 1.0).pmf(1) == 1.0
    assert NumberOfRuns(0.5, 1.0).pmf(2) == 0.0


def test_draws_invert_the_distribution_function_at_its_edges() -> None:
    law = NumberOfRuns(0.0, 0.05)
    below = 0.0
    for k in range(1, 20):
        edge = int((below + law.pmf(k) / 2) * 2**64)
        assert law.draw(iter([edge, 0]).__next__) == k
        below += law.pmf(k)
    assert law.draw(iter([0, 0]).__next__) == 1
    assert law.draw(iter([2**64 - 1, 2**64 - 1]).__next__) > 300


@pytest.mark.parametrize("law", [NumberOfRuns(1.0, 0.3), NumberOfRuns(0.0, 0.05)], ids=name)
def test_draws_follow_the_law(law: NumberOfRuns) -> None:
    """Chi-square over 3,000 secure draws; false-alarm rate 1e-7."""
    draws = [law.draw(lambda: secrets.randbits(64)) for _ in range(3000)]
    expected = 3000 * np.array([law.pmf(k) for k in range(1, 6)])
    seen = np.bincount(np.minimum(draws, 6), minlength=7)[1:]
    expected = np.append(expected, 3000 - expected.sum())
    assert ((seen - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-7, 5)


@pytest.mark.parametrize(
    "wrong", [{"mean": 0.5, "eta": 1.0}, {"mean": math.nan, "eta": 1.0}, {"mean": 2.0, "eta": -1.0}]
)
def test_laws_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        NumberOfRuns.expecting(**wrong)
    with pytest.raises(ParameterError, match="gamma"):
        NumberOfRuns(1.0, 0.0)


# --- the price ----------------------------------------------------------------------------------------------------


def divergence(p: Any, q: Any, orders: Any) -> Any:
    """Rényi divergence of two finite distributions, exactly."""
    a = np.asarray(orders)[:, None]
    terms = a * np.log(p) + (1 - a) * np.log(q)
    peak = terms.max(axis=1)
    return (peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))) / (a[:, 0] - 1)


def both_ways(p: Any, q: Any) -> Any:
    return lambda orders: np.maximum(divergence(p, q, orders), divergence(q, p, orders))


def best(law: NumberOfRuns, p: Any) -> Any:
    """Distribution of the best, that is last, outcome of K draws from p, exactly."""
    return np.diff(generating(law, np.append(0.0, np.minimum(np.cumsum(p), 1.0))))


def neighbours(rng: np.random.Generator, extreme: bool) -> tuple[Any, Any]:
    """Two distributions over few outcomes; extreme ones put e^±ε on rare outcomes at the top."""
    epsilon = rng.choice([0.05, 0.3, 1.0, 2.0])
    if extreme:
        u = 10.0 ** rng.uniform(-4, -1.5)
        p = np.array([1 - u - u / 3, u / 3, u])
        q = p * np.exp(epsilon * rng.choice([-1, 1], 3))
        q[0] = 1 - q[1:].sum()
        return p, q
    p = rng.dirichlet(np.full(rng.integers(2, 6), rng.choice([0.2, 1.0]))) + 1e-9
    q = p * np.exp(epsilon * rng.uniform(-1, 1, len(p)))
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize("law", LAWS, ids=name)
def test_the_best_of_a_random_number_of_runs_costs_no_more_than_its_bound(law: NumberOfRuns) -> None:
    """All outcomes enumerated: the choice's exact divergence, both ways, against the curve of the base's own."""
    rng = np.random.default_rng(0)
    nearest = 0.0
    for trial in range(60):
        p, q = neighbours(rng, extreme=trial % 2 == 1)
        exact = both_ways(best(law, p), best(law, q))(ORDERS)
        bound = best_of(both_ways(p, q), law)(ORDERS)
        assert (exact <= bound * (1 + 1e-9)).all()
        nearest = max(nearest, float((exact / bound).max()))
    assert nearest > 0.5  # and no idle bound


def test_one_term_less_is_no_bound() -> None:
    """The enumeration sees a price that leaves out the factor 1 + η, or the mean of K."""
    rng = np.random.default_rng(1)
    without_factor = without_mean = 0.0
    for law in LAWS:
        for trial in range(60):
            p, q = neighbours(rng, extreme=trial % 2 == 1)
            exact = both_ways(best(law, p), best(law, q))(ORDERS)
            bound, base = best_of(both_ways(p, q), law)(ORDERS), both_ways(p, q)(ORDERS)
            mean = math.log(law.mean) / (ORDERS - 1)
            price = bound - base - mean
            without_factor = max(without_factor, (exact / (base + mean + price * law.eta / (1 + law.eta))).max())
            without_mean = max(without_mean, (exact / (base + price)).max())
    assert without_factor > 1.2
    assert without_mean > 1.0


def test_the_enumeration_agrees_with_the_runs_themselves() -> None:
    """Sum over k of P[K = k] times the law of the best of k, which needs no generating function."""
    law, p = NumberOfRuns.expecting(3.0, 0.0), np.array([0.5, 0.3, 0.15, 0.05])
    whole = np.append(0.0, np.cumsum(p))
    summed = sum(law.pmf(k) * np.diff(whole**k) for k in range(1, 200))
    np.testing.assert_allclose(best(law, p), summed, rtol=1e-9)


def gaussian(noise: float) -> Composition:
    return Composition([Event("full_batch", 1.0, noise)], "add_or_remove_one")


def test_one_run_costs_what_the_run_costs() -> None:
    plan = Composition([Event("poisson", 0.1, 2.0, 50)], "add_or_remove_one")
    for eta in (0.0, 1.0):
        alone = Selection([plan], NumberOfRuns(eta, 1.0))
        np.testing.assert_allclose(alone.renyi(ORDERS), plan.renyi(ORDERS), rtol=1e-12)


def test_a_selection_costs_by_hand_what_the_theorem_says() -> None:
    """Gaussian base, ε(a) = a/2σ²: the minimum over â is at √(2σ² log(1/γ))."""
    noise, law = 8.0, NumberOfRuns(1.0, 0.1)
    rho = 1 / (2 * noise**2)
    hat = math.sqrt(math.log(10.0) / rho)
    by_hand = rho * ORDERS + math.log(10.0) / (ORDERS - 1) + 2 * (rho * (hat - 1) + math.log(10.0) / hat)
    np.testing.assert_allclose(Selection([gaussian(noise)], law).renyi(ORDERS), by_hand, rtol=1e-3)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_agreement_with_the_accountant_of_other_authors(eta: float) -> None:
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    law = NumberOfRuns.expecting(20.0, eta)
    orders = 1 + np.geomspace(0.05, 2000, 150)
    base = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 30)
    other = RdpAccountant(orders).compose(dp_event.RepeatAndSelectDpEvent(base, 20.0, eta))
    own = Selection([Composition([Event("poisson", 0.1, 2.0, 30)], "add_or_remove_one")], law)
    assert own.epsilon(1e-5) == pytest.approx(other.get_epsilon(1e-5), rel=5e-3)


def test_alternatives_cost_the_dearest_of_them() -> None:
    law = NumberOfRuns(1.0, 0.1)
    few, many = gaussian(4.0), Composition([Event("poisson", 0.01, 0.6, 200)], "add_or_remove_one")
    both = Selection([few, many, few], law).renyi(ORDERS)
    each = [Selection([plan], law).renyi(ORDERS) for plan in (few, many)]
    assert (both >= np.max(each, axis=0) * (1 - 1e-12)).all()
    assert Selection([few, many], law) == Selection([many, few, many], law)
    with pytest.raises(ParameterError, match="neighboring_relation"):
        Selection([few, Composition(few.events, "replace_one")], law)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_calibration_lands_just_below_the_target(epsilon: float) -> None:
    plan = Composition([Event("poisson", 0.05, 1.0, 100), Event("full_batch", 1.0, 5.0)], "add_or_remove_one")
    law = NumberOfRuns.expecting(30.0, 1.0)
    relative = Selection([plan, gaussian(3.0)], law)
    made = relative.scaled(selection_scale(relative, epsilon=epsilon, delta=1e-6))
    assert 0.998 * epsilon <= made.epsilon(1e-6) <= epsilon
    assert max(part.epsilon(1e-6) for part in made.alternatives) < epsilon


def test_no_noise_has_no_epsilon() -> None:
    relative = Selection([gaussian(3.0)], NumberOfRuns(1.0, 0.1))
    made = relative.scaled(selection_scale(relative, epsilon=math.inf, delta=1e-6))
    assert made.epsilon(1e-6) == math.inf
    assert np.isinf(made.renyi(ORDERS)).all()


def test_a_selection_is_a_cost_like_any_other() -> None:
    law = NumberOfRuns.expecting(10.0, 0.0)
    made, plain = Selection([gaussian(6.0), gaussian(5.0)], law), gaussian(9.0)
    assert isinstance(made, costs.Cost)
    assert costs.from_dict(made.to_dict()) == made
    together = costs.total([made, plain, made])
    np.testing.assert_allclose(together.renyi(ORDERS), 2 * made.renyi(ORDERS) + plain.renyi(ORDERS), rtol=1e-12)
    assert (
        together.epsilon(1e-5)
        > made.epsilon(1e-5)
        > accounting.epsilon_of(made.alternatives[0].events, delta=1e-5, neighboring_relation="add_or_remove_one")
    )
