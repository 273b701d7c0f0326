"""Costs that add up and the filter: against closed forms, other accountants, and an adversary that plays its best."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills
from scipy.special import ndtr

from dpvb.accounting import Event, NeighboringRelation, costs, gaussian
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost
from dpvb.accounting.events import MAX_STEPS
from dpvb.accounting.forms import from_dict
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats

ADD: NeighboringRelation = "add_or_remove_one"
ORDERS = np.array(spending.ORDERS)
ZERO = (0,) * len(ORDERS)
EVENTS = st.builds(
    Event,
    sampler=st.sampled_from(["poisson", "fixed_size"]),
    sampling_prob=st.sampled_from([0.01, 0.05, 0.2]),
    noise_multiplier=st.floats(0.6, 20.0),
    n_steps=st.integers(1, 300),
)


def one(q: float, noise: float, n_steps: int = 1) -> Composition:
    return Composition([Event("poisson" if q < 1 else "full_batch", q, noise, n_steps)], ADD)


def spent(plans: Sequence[Cost], *, cap: float, delta: float) -> float:
    """The filter's epsilon of plans, the first of which chooses the order that it favours."""
    charged = [spending.cost_units(plan) for plan in plans]
    favoured = spending.favoured_order(charged[0], epsilon=spending.cap_units(cap), delta=delta)
    totals = ZERO
    for units in charged:
        totals = spending.add(totals, units)
    return spending.spent_units(totals, spending.offset_units(delta, favoured)) * spending.UNIT


# ---------------------------------------------------------------- the weights


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12, 1e-100])
@pytest.mark.parametrize("favoured", [0, 17, len(ORDERS) - 1])
def test_the_offsets_spend_delta_and_no_more(delta: float, favoured: int) -> None:
    """sum_a c_a e^{-(a-1) offset_a} <= delta, c_a = (1 - 1/a)^{a-1}/a, in 60 digits; and nearly all of it is used."""
    with mpmath.workdps(60):
        used = mpmath.mpf(0)
        for order, offset in zip(spending.ORDERS, spending.offset_units(delta, favoured), strict=True):
            a = mpmath.mpf(order)
            used += (1 - 1 / a) ** (a - 1) / a * mpmath.exp(-(a - 1) * mpmath.mpf(offset) / 10**9)
        assert used <= mpmath.mpf(delta)
        assert used > 0.99 * mpmath.mpf(delta)


def test_offsets_do_not_depend_on_the_decimal_context_of_the_caller() -> None:
    import decimal

    expected = spending.offset_units(1e-5, 7)
    spending.offset_units.cache_clear()
    spending._offset.cache_clear()
    with decimal.localcontext(decimal.Context(prec=5, rounding=decimal.ROUND_UP)):
        assert spending.offset_units(1e-5, 7) == expected
        assert spending.cap_units(0.1234567891234567) == 123456789


def test_conversion_constant() -> None:
    """c_a is the largest value of (1 - e^{-x}) e^{-(a-1)x}."""
    x = np.linspace(1e-6, 60, 400_001)
    for a in (1.25, 2.0, 7.0, 64.0):
        best = float(((1 - np.exp(-x)) * np.exp(-(a - 1) * x)).max())
        assert best == pytest.approx((1 - 1 / a) ** (a - 1) / a, rel=1e-5)


# ---------------------------------------------------------------- whole numbers


@kills("accountant", "charges of a ledger rounded down")
@edit("accounting/filter.py", "return math.ceil(units)", "return math.floor(units)")
def test_gaussian_costs_are_the_closed_form_rounded_up() -> None:
    for noise, steps in ((0.7, 1), (3.0, 17), (250.0, 1000), (1e6, 1)):
        units = spending.cost_units(one(1.0, noise, steps))
        for order, found in zip(spending.ORDERS, units, strict=True):
            exact = mpmath.mpf(order) * steps / (2 * mpmath.mpf(noise) ** 2) * 10**9
            assert exact <= found <= exact * (1 + 3e-9) + 1


def test_sampled_costs_agree_with_dp_accounting() -> None:
    from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    orders = [float(order) for order in ORDERS if 1.5 <= order <= 64]
    for q, noise, steps in ((0.01, 1.0, 1000), (0.2, 2.0, 20), (0.001, 0.8, 10)):
        accountant = RdpAccountant(orders)
        accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(q, GaussianDpEvent(noise)), steps))
        other = np.asarray(accountant._rdp)
        own = one(q, noise, steps).renyi(np.array(orders))
        assert np.all(own <= other * (1 + 1e-6))
        whole = np.array([order == int(order) for order in orders])
        np.testing.assert_allclose(own[whole], other[whole], rtol=1e-6)


@pytest.mark.guarantees("exact totals")
def test_ten_thousand_charges_add_up_exactly() -> None:
    units = spending.cost_units(one(0.01, 1.1))
    totals = ZERO
    for _ in range(10_000):
        totals = spending.add(totals, units)
    assert totals == tuple(10_000 * part for part in units)


def test_what_is_infinite_stays_so() -> None:
    units = spending.cost_units(one(1.0, 0.0))
    assert set(units) == {spending.SATURATED}
    assert spending.spent_units(units, spending.offset_units(1e-5, 3)) == spending.SATURATED
    back = (-1,) * len(units)
    assert spending.add(units, back) == units
    assert spending.add(units, units) == units
    assert spending.refund_units(one(1.0, 0.0)) == ZERO


@dataclass(frozen=True)
class Strange:
    """A cost that says the same number at every order."""

    rho: float
    neighboring_relation: NeighboringRelation = ADD
    added_delta: float = 0.0

    @property
    def noise(self) -> Cost:
        return self

    def renyi(self, orders: Floats) -> Floats:
        return np.full(len(orders), self.rho)

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        return self.rho

    def scaled(self, scale: float) -> Strange:
        return Strange(self.rho / scale)

    def to_dict(self) -> dict[str, Any]:
        return {"form": "strange"}


@pytest.mark.parametrize("rho", [math.nan, math.inf, -1e-300, -1.0, 1e308, 1e10])
def test_what_is_no_cost_counts_as_infinite(rho: float) -> None:
    assert set(spending.cost_units(Strange(rho))) == {spending.SATURATED}
    assert set(spending.refund_units(Strange(rho))) == {0}


@pytest.mark.guarantees("exact totals")
@given(st.floats(1e-300, 4e9))
def test_a_cost_is_rounded_up_and_a_refund_down(rho: float) -> None:
    exact = Fraction(rho) * 10**9
    up, down = spending.cost_units(Strange(rho))[0], spending.refund_units(Strange(rho))[0]
    assert down <= exact <= up
    assert up - exact <= 1 + exact / 10**8
    assert exact - down <= 1 + exact / 10**8


@pytest.mark.guarantees("refunds")
@given(st.lists(EVENTS, min_size=2, max_size=4), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_a_refund_never_returns_what_was_used(events: list[Event], index: int) -> None:
    """Charged less refunded covers the steps that started, and wastes a millionth at most."""
    gone, rest = events[: 1 + index % (len(events) - 1)], events[1 + index % (len(events) - 1) :]
    charged = spending.cost_units(Composition(events, ADD))
    back = spending.refund_units(Composition(rest, ADD))
    used = Composition(gone, ADD).renyi(ORDERS)
    for total, part, least in zip(charged, back, used, strict=True):
        if total < spending.SATURATED:
            assert total - part >= math.floor(least / spending.UNIT)
    kept = np.array([total - part for total, part in zip(charged, back, strict=True)]) * spending.UNIT
    near = ORDERS <= 8
    assert np.all(kept[near] <= used[near] + 1e-8 * Composition(events, ADD).renyi(ORDERS)[near] + 3e-9)


def test_caps_are_rounded_down() -> None:
    assert spending.cap_units(1e-320) == 0
    assert spending.cap_units(0.0) == 0
    assert spending.cap_units(3.0) == 3 * 10**9
    assert spending.cap_units(4.35) == 4_349_999_999  # the float 4.35 lies below 4.35
    assert spending.cap_units(1e6) == 10**15


# ---------------------------------------------------------------- against the tight accountant


@pytest.mark.guarantees("filter")
@given(st.lists(EVENTS, min_size=1, max_size=4), st.sampled_from(["add_or_remove_one", "replace_one"]))
@settings(max_examples=15, deadline=None)
def test_never_below_the_tight_accountant(events: list[Event], relation: NeighboringRelation) -> None:
    plans = [Composition([event], relation) for event in events]
    fixed = costs.total(plans).epsilon(1e-5)
    assert spent(plans, cap=2.0, delta=1e-5) >= fixed * (1 - 1e-9)


def test_price_of_adaptivity() -> None:
    """Five runs of noise 1, sampling probability 0.01, 1000 steps: near the tight total, half of a naive sum."""
    plans = [one(0.01, 1.0, 1000)] * 5
    found = spent(plans, cap=4.6, delta=1e-5)
    fixed = costs.total(plans).epsilon(1e-5)
    assert fixed == pytest.approx(4.20, abs=0.01)
    assert found <= 1.13 * fixed
    assert found < 0.55 * 5 * plans[0].epsilon(1e-5)


@given(EVENTS, st.floats(1.0, 4.0))
@settings(max_examples=20, deadline=None)
def test_more_noise_and_fewer_steps_never_cost_more(event: Event, scale: float) -> None:
    plan = Composition([event], ADD)
    units, less = spending.cost_units(plan), spending.cost_units(plan.scaled(scale))
    # Where quadrature ends a coarser bound takes over: only there may order be lost.
    smooth = [i for i, order in enumerate(ORDERS) if order / event.noise_multiplier * 2 < 300]
    assert all(less[i] <= units[i] * (1 + 1e-7) + 1 for i in smooth)
    more = Composition([event, event], ADD)
    assert all(a <= b for a, b in zip(units, spending.cost_units(more), strict=True))


@given(st.lists(st.integers(0, 10**10), min_size=len(ORDERS), max_size=len(ORDERS)), st.integers(0, len(ORDERS) - 1))
@settings(max_examples=50, deadline=None)
def test_spending_is_monotone(cost: list[int], favoured: int) -> None:
    offsets = spending.offset_units(1e-6, favoured)
    totals = spending.cost_units(one(0.05, 1.0, 20))
    assert spending.spent_units(spending.add(totals, cost), offsets) >= spending.spent_units(totals, offsets)


# ---------------------------------------------------------------- the best adversary


@dataclass(frozen=True)
class RandomizedResponse:
    """Says a bit, and the truth with odds e^loss: its privacy loss is +loss or -loss."""

    loss: float
    neighboring_relation: NeighboringRelation = ADD
    added_delta: float = 0.0

    @property
    def noise(self) -> Cost:
        return self

    def renyi(self, orders: Floats) -> Floats:
        truth, lie = -math.log1p(math.exp(-self.loss)), -math.log1p(math.exp(self.loss))
        moment = np.logaddexp(orders * truth + (1 - orders) * lie, orders * lie + (1 - orders) * truth)
        result: Floats = moment / (orders - 1)
        return result

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        return self.loss

    def scaled(self, scale: float) -> RandomizedResponse:
        return RandomizedResponse(self.loss / scale)

    def to_dict(self) -> dict[str, Any]:
        return {"form": "randomized_response", "loss": self.loss}


STRENGTHS = (0.15, 0.35, 0.8)


def best_delta(cap: float, delta: float, first: int, at: float | None = None) -> tuple[float, int]:
    """The largest delta at the cap over all adaptive strategies that begin with one mechanism, and a game's length."""
    units = [spending.cost_units(RandomizedResponse(loss)) for loss in STRENGTHS]
    limit = spending.cap_units(cap)
    offsets = spending.offset_units(delta, spending.favoured_order(units[first], epsilon=limit, delta=delta))

    @cache
    def allowed(counts: tuple[int, ...]) -> bool:
        totals = tuple(sum(n * u[i] for n, u in zip(counts, units, strict=True)) for i in range(len(ORDERS)))
        return spending.spent_units(totals, offsets) <= limit

    @cache
    def value(counts: tuple[int, ...], ups: tuple[int, ...]) -> float:
        """E_P of (1 - e^{cap - L})_+ from here on, with the best choices."""
        loss = sum(s * (2 * up - n) for s, n, up in zip(STRENGTHS, counts, ups, strict=True))
        found = max(0.0, 1 - math.exp((cap if at is None else at) - loss))
        for i, s in enumerate(STRENGTHS):
            more = tuple(n + (j == i) for j, n in enumerate(counts))
            if allowed(more) and (any(counts) or i == first):
                up = tuple(n + (j == i) for j, n in enumerate(ups))
                truth = 1 / (1 + math.exp(-s))
                found = max(found, truth * value(more, up) + (1 - truth) * value(more, ups))
        return found

    return value((0, 0, 0), (0, 0, 0)), max(n for n in range(500) if allowed((n, 0, 0)))


@pytest.mark.guarantees("filter")
@pytest.mark.parametrize(("cap", "delta"), [(1.5, 0.05), (0.8, 0.1), (2.5, 0.01)])
def test_no_adaptive_adversary_gets_more_than_delta(cap: float, delta: float) -> None:
    """By dynamic programming over every strategy.

    The adversary chooses each mechanism, of three strengths, after seeing every answer; it stops when it likes, and at
    the latest when the filter says so. Each mechanism is the same in both directions, so one of them is enough.
    """
    found, lengths = zip(*(best_delta(cap, delta, first) for first in range(3)), strict=True)
    assert 0 < max(found) <= delta
    assert min(lengths) >= 5  # The filter lets long games through.


def test_the_search_can_tell() -> None:
    """Let through up to cap 3, the best strategy beats delta at cap 1.2: a filter so much too lax would be found."""
    assert best_delta(3.0, 0.05, 2, at=1.2)[0] > 0.05


# ---------------------------------------------------------------- costs as things


def test_equal_plans_are_equal_costs() -> None:
    events = [Event("poisson", 0.1, 1.0, 3), Event("full_batch", 1.0, 5.0), Event("poisson", 0.1, 1.0, 4)]
    found = {Composition(list(order), ADD) for order in itertools.permutations(events)}
    assert len(found) == 1
    assert [event.n_steps for event in found.pop().events] == [1, 7]


def test_costs_survive_json() -> None:
    plan = Composition([Event("fixed_size", 0.1, 1.25, 3, 1.5), Event("full_batch", 1.0, 1 / 3)], "replace_one")
    assert from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    with pytest.raises(ParameterError, match="composition"):
        from_dict({"form": "unheard of"})


def test_totals() -> None:
    plan = one(0.05, 1.0, 20)
    assert costs.total([plan, plan]).epsilon(1e-5) == one(0.05, 1.0, 40).epsilon(1e-5)
    assert costs.total({plan: 3, one(0.05, 1.0, 10): -2}).epsilon(1e-5) == one(0.05, 1.0, 40).epsilon(1e-5)
    assert costs.total([]).epsilon(1e-5) == 0.0
    with pytest.raises(ParameterError, match="neighboring_relation"):
        costs.total([plan, Composition(plan.events, "replace_one")])


def test_a_curve_alone_is_converted_soundly() -> None:
    """A cost that has a curve only: above the tight epsilon, and near it for one Gaussian."""
    plan = one(1.0, 2.0)
    exact = plan.epsilon(1e-6)
    assert exact <= costs.from_renyi(plan.renyi, 1e-6) <= 1.1 * exact
    mixed = costs.total([plan, RandomizedResponse(0.5)])
    assert mixed.epsilon(1e-6) >= exact


@pytest.mark.parametrize("steps", [MAX_STEPS - 1, MAX_STEPS, MAX_STEPS + 1, 2 * MAX_STEPS])
def test_any_number_of_steps_is_one_cost(steps: int) -> None:
    """A release more than an event can count is another event; none is none."""
    half = Event("full_batch", 1.0, 1e6, n_steps=steps // 2)
    cost = Composition([half, replace(half, n_steps=steps - steps // 2)], "add_or_remove_one")
    assert sum(event.n_steps for event in cost.events) == steps
    assert from_dict(cost.to_dict()) == cost


# ---------------------------------------------------------------- Gaussians alone


def profile(m: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """The hockey-stick divergence of two normal laws m deviations apart (Balle & Wang 2018)."""
    return mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)


@pytest.mark.parametrize("delta", [0.01, 1e-6, 1e-12])
@pytest.mark.parametrize(("noise", "steps"), [(0.5, 3), (4.3, 1), (30.0, 12), (1e5, 1), (0.02, 7)])
def test_gaussians_spend_the_least_epsilon_of_three_quarters_of_delta(noise: float, steps: int, delta: float) -> None:
    found = spending.gaussian_units(spending.cost_units(one(1.0, noise, steps))[-1], 0, delta)
    with mpmath.workdps(80):
        m, share = mpmath.sqrt(steps) / mpmath.mpf(noise), mpmath.mpf(delta) * 3 / 4
        assert profile(m, mpmath.mpf(found) / 10**9) <= share
        # Costs are rounded up by a part in 10^9, and so is the result.
        less = mpmath.mpf(found) * (1 - mpmath.mpf(10) ** -8) / 10**9 - mpmath.mpf(3) / 10**9
        assert less < 0 or profile(m, less) > share
    assert found * spending.UNIT == pytest.approx(one(1.0, noise, steps).epsilon(0.75 * delta), rel=1e-8, abs=2e-9)


def test_the_log_of_delta_of_a_gaussian_is_exact() -> None:
    """To a hundredth of the difference from which on floating point decides what a ledger counts."""
    draw = np.random.default_rng(7)
    for _ in range(500):
        mu = 10 ** draw.uniform(-7, math.log10(375))
        a = draw.uniform(-mu / 2, 39)
        with mpmath.workdps(80):
            m, distance = mpmath.mpf(mu), mpmath.mpf(a)
            tail = mpmath.exp(m * (distance + m / 2)) * mpmath.ncdf(-distance - m)
            exact = mpmath.log(mpmath.ncdf(-distance) - tail)
            assert abs(exact - gaussian.log_delta(mu, a)) < spending._TIE / 100


@kills("accountant", "what Gaussians spend is rounded down where floating point decides")
@edit("accounting/filter.py", "            return difference < 0\n", "            return difference < 1e-6\n")
def test_floating_point_decides_as_decimal_digits_do(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(8)
    totals = [1, 2, 10, 2**61, 2**62 - 1, *(int(10**power) for power in draw.uniform(0, 18.6, 40))]
    cases = [(total, float(delta)) for total in totals for delta in (1e-300, 1e-15, 1e-5, 0.5)]
    units = [spending.gaussian_units(total, 0, delta) for total, delta in cases]
    monkeypatch.setattr(spending, "_TIE", math.inf)  # Everything is a tie.
    assert [spending.gaussian_units.__wrapped__(total, 0, delta) for total, delta in cases] == units


@kills("accountant", "a Gaussian that leaves out as much as it likes")
@edit("accounting/filter.py", "if left_out > _LEFT_OUT * 10**9:", "if left_out > 10**18:")
def test_what_gaussians_spend_has_no_gaps() -> None:
    cost = spending.cost_units(one(1.0, 1.0))[-1]
    assert spending.gaussian_units(0, 0, 1e-5) == 0
    assert spending.gaussian_units(spending.cost_units(one(1.0, 0.0))[-1], 0, 1e-5) == spending.SATURATED
    found = [spending.gaussian_units(k * cost, k * 10**7, 1e-5) for k in range(11)]
    assert found == sorted(found)
    assert found[-1] < spending.gaussian_units(cost, 10**8 + 1, 1e-5) == spending.SATURATED


@kills("accountant", "all of delta twice, for Gaussians and for the orders")
@edit(
    "accounting/filter.py",
    "left = 1 - _OF_GAUSSIANS - _LEFT_OUT if beside_gaussians else Decimal(1)",
    "left = Decimal(1)",
)
def test_the_orders_beside_gaussians_have_what_is_left_of_delta() -> None:
    """0.15 = 1 - 3/4 - 1/10."""
    with mpmath.workdps(60):
        for delta, favoured in ((1e-6, 25), (0.1, 3)):
            used = mpmath.mpf(0)
            for order, offset in zip(
                spending.ORDERS, spending.offset_units(delta, favoured, beside_gaussians=True), strict=True
            ):
                a = mpmath.mpf(order)
                used += (1 - 1 / a) ** (a - 1) / a * mpmath.exp(-(a - 1) * mpmath.mpf(offset) / 10**9)
            assert 0.99 * delta < used / mpmath.mpf("0.15") <= delta


STEP, PIECES = 0.08, 8  # m^2 of the least release, and how many may be made.
LOSS = np.linspace(-6.0, 9.0, 2001)


@cache
def moves(pieces: int) -> Floats:
    """Probabilities of each loss after a Gaussian of so many pieces, (before, after); the last is all beyond."""
    std = math.sqrt(pieces * STEP)
    distance = (LOSS - LOSS[:, None] - std**2 / 2) / std
    chance: Floats = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi) * (LOSS[1] - LOSS[0]) / std
    chance[:, -1] += np.maximum(0.0, ndtr(-distance[:, -1]) - chance[:, -1] / 2)
    return chance


def after(value_l: Floats, pieces: int) -> Floats:
    """Expectation of a value of the loss once a Gaussian of so many pieces was released, at each loss before."""
    result: Floats = moves(pieces) @ value_l
    return result


@pytest.mark.guarantees("filter")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.5])
def test_choosing_gaussians_by_what_was_seen_gains_nothing(epsilon: float) -> None:
    """By dynamic programming: releases of any size, any order, stopping at will, within one sum of m^2."""
    stop = np.maximum(0.0, 1 - np.exp(epsilon - LOSS))
    value = [stop]
    for left in range(1, PIECES + 1):
        value.append(np.maximum(stop, np.max([after(value[left - k], k) for k in range(1, left + 1)], axis=0)))
    found = float(np.interp(0.0, LOSS, value[PIECES]))
    exact = float(profile(mpmath.sqrt(PIECES * STEP), mpmath.mpf(epsilon)))
    assert found == pytest.approx(exact, rel=1e-3)
    # Whoever were let through a piece more would be found.
    assert float(profile(mpmath.sqrt((PIECES + 1) * STEP), mpmath.mpf(epsilon))) > 1.02 * exact


def best_of_gaussians_and_leaks(epsilon: float, allowed: Callable[[int, int], bool], leak: float) -> float:
    """The largest delta of all who choose, after each answer, a Gaussian or what says everything with a chance."""
    stop = np.maximum(0.0, 1 - np.exp(epsilon - LOSS))

    @cache
    def value(pieces: int, leaks: int) -> Any:
        found = stop
        if allowed(pieces + 1, leaks):
            found = np.maximum(found, after(value(pieces + 1, leaks), 1))
        if allowed(pieces, leaks + 1):
            found = np.maximum(found, leak + (1 - leak) * value(pieces, leaks + 1))
        return found

    return float(np.interp(0.0, LOSS, value(0, 0)))


@pytest.mark.guarantees("filter")
def test_limits_that_trade_are_beaten() -> None:
    """Separate limits on Gaussians and on what they leave out hold; one limit on the sum of both does not."""
    epsilon, leak = 1.0, 0.002
    exact = [float(profile(mpmath.sqrt(k * STEP), mpmath.mpf(epsilon))) if k else 0.0 for k in range(PIECES + 2)]
    most = exact[PIECES]
    apart = best_of_gaussians_and_leaks(epsilon, lambda g, k: g <= PIECES and k <= 5, leak)
    assert apart <= (most + 5 * leak) * (1 + 1e-3)
    trading = best_of_gaussians_and_leaks(epsilon, lambda g, k: g <= PIECES and exact[g] + k * leak <= most, leak)
    assert trading > 1.1 * most


@pytest.mark.guarantees("filter")
@pytest.mark.parametrize(("cap", "delta"), [(1.5, 0.05), (2.5, 0.01)])
def test_no_adversary_with_both_rules_gets_more_than_delta(cap: float, delta: float) -> None:
    """It begins with a Gaussian, and may go on with another mechanism, which a Gaussian covers by its curve."""
    strength = 0.35
    limit = spending.cap_units(cap)
    cap_of = {"epsilon": limit, "delta": delta}
    gaussian = spending.covered_units(
        Composition([Event("full_batch", 1.0, 1 / math.sqrt(STEP))], ADD), normal=True, **cap_of
    )
    other = spending.covered_units(RandomizedResponse(strength), normal=False, **cap_of)
    favoured = spending.favoured_order(gaussian[: len(ORDERS)], **cap_of)

    @cache
    def allowed(pieces: int, answers: int) -> bool:
        totals = tuple(pieces * a + answers * b for a, b in zip(gaussian, other, strict=True))
        return spending.counted_units(totals, favoured, delta) <= limit

    stop = np.maximum(0.0, 1 - np.exp(cap - LOSS))
    truth = 1 / (1 + math.exp(-strength))

    @cache
    def value(pieces: int, answers: int) -> Any:
        found = stop
        if allowed(pieces + 1, answers):
            found = np.maximum(found, after(value(pieces + 1, answers), 1))
        if pieces and allowed(pieces, answers + 1):
            said = value(pieces, answers + 1)
            up, down = (np.interp(LOSS + sign * strength, LOSS, said) for sign in (1, -1))
            found = np.maximum(found, truth * up + (1 - truth) * down)
        return found

    assert 0.5 * delta < float(np.interp(0.0, LOSS, value(0, 0))) <= delta
    assert allowed(4, 0)
    assert allowed(1, 1)
