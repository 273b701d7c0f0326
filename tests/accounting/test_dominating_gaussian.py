"""A Gaussian covers a plan: held against another accountant, and against what is known of Gaussians."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as peers
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.accounting import Event, gaussian, methods, pld
from dpvb.accounting.costs import Composition
from dpvb.accounting.dominating_gaussian import covering, distance, is_gaussian
from dpvb.accounting.events import dominating_pairs

DELTA, CAP = 1e-6, 5.0
REACH, MOST = distance(CAP, 0.75 * DELTA), 0.1 * DELTA
SAMPLED = [
    Event("poisson", 0.01, 0.9, 1000),
    Event("poisson", 0.05, 0.7, 20),
    Event("poisson", 0.25, 3.0, 20),
    Event("poisson", 0.9, 9.0, 5),
    Event("poisson", 1e-4, 0.5, 3000),
]


def covered(events: list[Event], relation: str = "add_or_remove_one", *, normal: bool = True) -> tuple[float, float]:
    return covering(Composition(events, relation), DELTA, REACH, MOST, normal=normal)  # type: ignore[arg-type]


@pytest.mark.guarantees("filter")
@pytest.mark.parametrize("event", SAMPLED, ids=repr)
def test_another_accountant_finds_the_profile_below_that_of_the_gaussian(event: Event) -> None:
    """Its optimistic estimate is a lower bound of the true profile, so that this one cannot fail by its rounding."""
    m, left_out = covered([event])
    assert 0 < left_out <= MOST
    peer = peers.from_gaussian_mechanism(
        event.noise_multiplier, sampling_prob=event.sampling_prob, value_discretization_interval=1e-3
    ).self_compose(event.n_steps)
    epsilons = np.linspace(0.0, 12.0, 240)
    above = np.array([left_out + (1 - left_out) * gaussian.delta(m, float(epsilon)) for epsilon in epsilons])
    found = np.array(peer.get_delta_for_epsilon(epsilons))
    # The peer is pessimistic: one step's losses are rounded up, by less than its interval on average.
    slack = 1e-3 * math.sqrt(event.n_steps)
    shifted = np.array(peer.get_delta_for_epsilon(epsilons + slack))
    assert (shifted <= above).all()
    # And a Gaussian two percent nearer does not cover it.
    nearer = np.array([left_out + (1 - left_out) * gaussian.delta(0.98 * m, float(epsilon)) for epsilon in epsilons])
    assert (found > nearer).any()


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("event", [*SAMPLED[:3], Event("fixed_size", 0.1, 2.0, 50, 1.5)], ids=repr)
def test_the_profile_is_that_of_the_tight_accountant(event: Event, relation: str) -> None:
    epsilons = np.linspace(0.0, 3.0, 7)
    for pairs in dominating_pairs([event], relation):
        found = pld.profile(pairs, epsilons, 1e-12)
        for epsilon, delta in zip(epsilons.tolist(), found.tolist(), strict=True):
            exact = pld.delta(pairs, epsilon, 1.0)
            assert exact * (1 - 1e-6) - 1e-12 <= delta <= exact * 1.03 + 1e-12


@kills("accountant", "a Gaussian that covers a plan between points of a grid only by luck")
@edit("accounting/dominating_gaussian.py", "(delta_g[:-1] - left_out)", "(0.9 * delta_g[:-1] - left_out)")
@given(
    st.lists(
        st.tuples(st.sampled_from([0.02, 0.1, 0.5, 1.0]), st.floats(0.8, 20.0), st.integers(1, 30)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["add_or_remove_one", "replace_one"]),
)
@settings(max_examples=15, deadline=None)
def test_no_epsilon_has_a_larger_delta_than_the_covering_release(
    parts: list[tuple[float, float, int]], relation: str
) -> None:
    events = [Event("poisson" if q < 1 else "full_batch", q, noise, steps) for q, noise, steps in parts]
    m, left_out = covered(events, relation)
    if m < math.inf:
        for epsilon in (0.0, 0.07, 0.5, 1.3, 4.0):
            exact = methods.delta_of(events, epsilon=epsilon, neighboring_relation=relation)
            assert exact <= (left_out + (1 - left_out) * gaussian.delta(m, epsilon)) * (1 + 1e-4) + 1e-15


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("event", [Event("poisson", 0.05, 1.0, 20), Event("poisson", 0.3, 2.0, 100)], ids=repr)
def test_small_plans_are_covered_far_out_too(event: Event, scale: float) -> None:
    """What a small plan may leave out is less than any share of delta; where the grid ends, its delta is no more."""
    plan = replace(event, noise_multiplier=scale * event.noise_multiplier)
    m, left_out = covered([plan])
    for epsilon in np.geomspace(1e-6, 50.0, 16).tolist():
        exact = methods.delta_of([plan], epsilon=epsilon, neighboring_relation="add_or_remove_one")
        assert exact <= (left_out + (1 - left_out) * gaussian.delta(m, epsilon)) * (1 + 1e-4)
    assert left_out <= 2 * MOST * max((m / REACH) ** 2, 1e-6)


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (Event("poisson", 7.735081560251277e-05, 7.025628246176884, 115), 2.7256104152610572e-11),
        (Event("poisson", 1e-4, 7.0, 100), 1e-10),
        pytest.param(Event("poisson", 1e-5, 3.0, 100), 1e-6, marks=pytest.mark.slow),
        (Event("fixed_size", 5.4e-6, 21.3, 258), 1e-9),
        (Event("poisson", 0.3, 0.02, 3, 0.02), 1e-6),
    ],
    ids=repr,
)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_no_tilt_hides_what_lies_far_below_it(event: Event, delta: float, relation: str) -> None:
    """Tilted back, masses below a steep tilt are beyond all numbers: there the other tilts must answer."""
    plan = Composition([event], relation)  # type: ignore[arg-type]
    top = plan.epsilon(1e-6 * delta)
    epsilons = np.linspace(0.0, top, 14)
    for pairs in dominating_pairs([event], relation):
        found = pld.profile(pairs, epsilons, 1e-7 * delta)
        exact = [pld.delta(pairs, float(epsilon), 1.0) for epsilon in epsilons]
        assert (found >= 0.998 * np.array(exact)).all()
        assert (np.diff(found) <= 0).all()
    m, left_out = covering(plan, delta, distance(1.0, 0.75 * delta), 0.1 * delta)
    for epsilon in epsilons.tolist():
        exact = methods.delta_of([event], epsilon=epsilon, neighboring_relation=relation)
        assert exact <= (left_out + (1 - left_out) * gaussian.delta(m, epsilon)) * 1.001


def test_a_rate_whose_digits_end_counts_as_one() -> None:
    almost = Event("poisson", 1 - 1e-15, 0.3)
    (pairs,) = {tuple(pairs) for pairs in dominating_pairs([almost], "replace_one")}
    assert methods.delta_of([almost], epsilon=64.24, neighboring_relation="replace_one") == pytest.approx(
        gaussian.delta(2 / 0.3, 64.24)
    )
    assert pairs[0].q == 1


@kills("accountant", "sampled plans that count as Gaussians")
@edit(
    "accounting/dominating_gaussian.py",
    "event.sampling_prob == 1 and event.noise_multiplier > 0",
    "event.noise_multiplier > 0",
)
def test_full_batches_cover_themselves() -> None:
    assert covered([Event("full_batch", 1.0, 4.0, 16)]) == pytest.approx((1.0, 0.0))
    assert covered([Event("full_batch", 1.0, 4.0, 16)], "replace_one") == pytest.approx((2.0, 0.0))
    assert is_gaussian(Composition([Event("full_batch", 1.0, 4.0, 16)], "add_or_remove_one"))
    assert not is_gaussian(Composition([Event("poisson", 0.1, 4.0)], "add_or_remove_one"))
    assert not is_gaussian(Composition([Event("full_batch", 1.0, 0.0)], "add_or_remove_one"))
    assert covered([Event("full_batch", 1.0, 0.0)]) == (math.inf, 0.0)


def test_many_small_steps_come_near_their_limit() -> None:
    """Of T steps at rate q with much noise the limit is a Gaussian of distance q sqrt(T (e^{1/sigma^2} - 1))."""
    m, _ = covered([Event("poisson", 0.01, 2.0, 10_000)])
    assert m == pytest.approx(0.01 * math.sqrt(10_000 * math.expm1(0.25)), rel=0.02)


def test_noise_that_is_not_normal_is_covered_by_the_curve_alone() -> None:
    for events in ([Event("full_batch", 1.0, 4.0, 4)], [SAMPLED[2]]):
        assert 1.0 < covered(events, normal=False)[0] / covered(events)[0] < 1.4


def test_what_is_left_out_grows_with_the_square_of_the_distance() -> None:
    found = {scale: covered([Event("poisson", 0.25, 8.0 * scale, 20)]) for scale in (1, 2, 4)}
    for scale in (2, 4):
        assert found[scale][1] / found[1][1] == pytest.approx((found[scale][0] / found[1][0]) ** 2, rel=0.1)
    assert max(left_out for _, left_out in found.values()) < MOST


@pytest.mark.parametrize("m", [1e-4, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_distance_inverts_epsilon(m: float, delta: float) -> None:
    if epsilon := gaussian.epsilon(m, delta):
        assert distance(epsilon, delta) == pytest.approx(m, rel=1e-6)
