"""A unit that can be absent counts with its whole contribution, and an empty place is a unit like any other."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb import accounting
from dpvb.accounting import Event
from dpvb.core.plan import Mechanism
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.guards.errors import PrivacyError

ROWS = json.loads((Path(__file__).parents[1] / "golden" / "empty_places.json").read_text())["rows"]


def event_of(row) -> Event:
    return Event(row["sampler"], row["sampling_prob"], row["noise_multiplier"], row["num_steps"], row["swap_ratio"])


def row_name(row) -> str:
    return f"{row['sampler']}-{row['neighboring_relation']}-{row['swap_ratio']:.3g}-{row['num_steps']}"


def is_sampled_pair(row) -> bool:
    """Whether the neighbours are those of the largest shift, and the batch without the unit is one of the laws."""
    shift = math.dist(row["one"], row["absent"])
    return row["other"] == row["absent"] and math.isclose(shift, max(1.0, row["swap_ratio"]))


@pytest.mark.guarantees("absent units")
@each("row", ROWS[::5], ids=row_name)
def test_no_neighbours_with_an_empty_place_lose_more_than_is_accounted(row):
    """The true deltas are from quadrature (benchmarks/empty_places.py), good to 1e-3 of themselves."""
    relation = row["neighboring_relation"]
    for epsilon, true in row["profile"]:
        said = accounting.delta_of([event_of(row)], epsilon=epsilon, neighboring_relation=relation)
        assert said >= true * (1 - 1e-3)
        if row["num_steps"] == 1 and is_sampled_pair(row):
            assert said <= true * (1 + 5e-3)  # One step attains the profile.


@each("row", [row for row in ROWS[::11] if row["num_steps"] < 1000], ids=row_name)
def test_the_cross_check_contradicts_no_truth(row):
    relation = row["neighboring_relation"]
    for epsilon, true in row["profile"][1:2]:
        opinion = accounting.cross_check([event_of(row)], epsilon=epsilon, delta=true, neighboring_relation=relation)
        assert opinion.upper >= epsilon * (1 - 1e-3)
        said = accounting.epsilon_of([event_of(row)], delta=true, neighboring_relation=relation)
        assert opinion.lower <= said


def true_delta(q: float, sigma: float, centres: np.ndarray, epsilon: float) -> float:
    """One step's delta in the worse direction, by quadrature in the plane; centres: absent, one, other."""
    means = centres / sigma
    grid = [np.linspace(low - 9, high + 9, 500) for low, high in zip(means.min(0), means.max(0), strict=True)]
    weight = math.prod(float(x[1] - x[0]) for x in grid) / (2 * math.pi)
    absent, one, other = (
        np.outer(*(np.exp(-((x - mean) ** 2) / 2) for x, mean in zip(grid, centre, strict=True))) for centre in means
    )
    first, second = (1 - q) * absent + q * one, (1 - q) * absent + q * other
    both = (first - math.exp(epsilon) * second, second - math.exp(epsilon) * first)
    return max(float(np.maximum(excess, 0).sum()) for excess in both) * weight


def neighbours(draw, sampler: str, relation: str, q: float, ratio: float) -> np.ndarray:
    """Three sums that a sampler, a relation and a swap ratio allow: contributions within C, ratio * C apart at most."""

    def contribution() -> np.ndarray:
        angle, length = draw(st.floats(0, 2 * math.pi)), draw(st.sampled_from([1.0, 1.0, 0.5, 0.0]))
        return length * np.array([math.cos(angle), math.sin(angle)])

    def near(centre: np.ndarray) -> np.ndarray:
        """Another contribution, as far away as is allowed or less."""
        if draw(st.booleans()):
            return centre * (
                1 - min(ratio / max(float(np.linalg.norm(centre)), 1e-9), 2.0)
            )  # On the line through nothing.
        found = contribution()
        away = float(np.linalg.norm(found - centre))
        return found if away <= ratio else centre + (found - centre) * ratio / away

    none, one = np.zeros(2), contribution()
    if relation == "replace_one":
        other = near(one)
        absent = none
        if sampler == "fixed_size" and draw(st.booleans()):  # Another unit is drawn instead.
            absent = draw(st.sampled_from([other, one, (one + other) / 2]))
        return np.array([absent, one, other])
    if sampler == "fixed_size":
        absent = near(one)
        full = draw(st.booleans())
        if draw(st.booleans()):
            absent, full = none, False  # The unit is alone.
        return np.array([absent, one, absent if full else none])
    return np.array([none, one, none])


@st.composite
def steps(draw):
    sampler = draw(st.sampled_from(["poisson", "fixed_size", "full_batch"]))
    relation = draw(st.sampled_from(["add_or_remove_one", "replace_one"]))
    q = 1.0 if sampler == "full_batch" else draw(st.sampled_from([0.01, 0.1, 0.5, 0.9, 1.0]))
    ratio = draw(st.one_of(st.floats(0.05, 1.0), st.floats(0.05, 2.0)))
    event = Event(sampler, q, draw(st.sampled_from([0.4, 0.7, 1.0, 3.0])), 1, ratio)
    return event, relation, neighbours(draw, sampler, relation, q, ratio)


@pytest.mark.guarantees("absent units")
@settings(max_examples=80, deadline=None)
@given(step=steps(), epsilon=st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0]))
def test_any_step_of_any_sampler_relation_and_ratio_is_accounted_for(step, epsilon):
    event, relation, centres = step
    true = true_delta(event.sampling_prob, event.noise_multiplier, centres, epsilon)
    said = accounting.delta_of([event], epsilon=epsilon, neighboring_relation=relation)
    assert said >= true * (1 - 1e-3) - 1e-12


@settings(max_examples=25, deadline=None)
@given(step=steps())
def test_the_cross_check_holds_for_any_step(step):
    event, relation, centres = step
    delta = 1e-3 * event.sampling_prob
    said = accounting.epsilon_of([event], delta=delta, neighboring_relation=relation)
    opinion = accounting.confirm([event], epsilon=said, delta=delta, neighboring_relation=relation)
    if opinion.upper < 20:
        true = true_delta(event.sampling_prob, event.noise_multiplier, centres, opinion.upper)
        assert true <= delta * (1 + 1e-3)


@pytest.mark.guarantees("absent units")
@kills("neighbours", "the second opinion takes a ratio below one for an empty place")
@edit(
    "accounting/independent.py",
    '    return 1.0, 1.0 - event.swap_ratio if relation == "replace_one" else 0.0\n',
    "    return event.swap_ratio, 0.0\n",
)
@kills("neighbours", "a unit that is not drawn is forgotten under replace-one")
@edit(
    "accounting/events.py",
    '        one_from_none = 1.0 if relation == "add_or_remove_one" or self.sampling_prob < 1 else 0.0\n',
    '        one_from_none = 1.0 if relation == "add_or_remove_one" else 0.0\n',
)
@pytest.mark.parametrize(
    ("event", "relation", "claimed"),
    [
        (Event("poisson", 0.1, 1.0, 1, 0.5), "replace_one", 0.4909),
        (Event("poisson", 0.1, 1.0, 1, 0.25), "replace_one", 0.1),
        (Event("fixed_size", 0.1, 1.0, 1, 0.5), "add_or_remove_one", 0.4909),
        (Event("fixed_size", 0.1, 1.0, 100, 0.1), "add_or_remove_one", 0.4053),
    ],
)
def test_a_ratio_below_one_is_contradicted_where_it_stands_for_a_unit_that_is_absent(event, relation, claimed):
    """The epsilons that a plan would have if no contribution were farther from none than from another one."""
    with pytest.raises(PrivacyError, match="Two accountants disagree"):
        accounting.confirm([event], epsilon=claimed, delta=1e-6, neighboring_relation=relation)
    assert accounting.epsilon_of([event], delta=1e-6, neighboring_relation=relation) > 2 * claimed


@kills("neighbours", "a fixed-size batch without empty places")
@edit(
    "accounting/events.py",
    'Pair("swapped" if event._takes_a_place(relation) and q < 1',
    'Pair("swapped" if relation == "replace_one" and q < 1',
)
@pytest.mark.parametrize("ratio", [0.05, 0.5, 1.0, 1.1, 2.0])
def test_a_fixed_size_batch_has_one_epsilon_under_both_relations(ratio):
    """To fill an empty place is to replace nothing."""
    plan = [Event("fixed_size", 0.05, 1.2, 10, ratio)]
    add, replace = (
        accounting.epsilon_of(plan, delta=1e-5, neighboring_relation=relation)
        for relation in ("add_or_remove_one", "replace_one")
    )
    assert add == replace
    nothing = accounting.epsilon_of(
        [Event("poisson", 0.05, 1.2, 10)], delta=1e-5, neighboring_relation="add_or_remove_one"
    )
    assert add > nothing


@kills("neighbours", "the distance of two contributions for that of one from none")
@edit(
    "accounting/events.py",
    '        one_from_none = 1.0 if relation == "add_or_remove_one" or self.sampling_prob < 1 else 0.0\n',
    "        one_from_none = 0.0 if self._takes_a_place(relation) else 1.0\n",
)
@pytest.mark.parametrize(
    ("sampler", "relation", "ratio", "sensitivity"),
    [
        (FullBatch(), "add_or_remove_one", 0.5, 1.0),
        (FullBatch(), "replace_one", 0.5, 0.5),
        (Poisson(1.0), "replace_one", 0.5, 0.5),
        (Poisson(0.5), "replace_one", 0.5, 1.0),
        (Poisson(0.5), "add_or_remove_one", 2.0, 1.0),
        (Poisson(0.5), "replace_one", 2.0, 2.0),
        (FixedSize(2, 2), "replace_one", 0.5, 0.5),
        (FixedSize(2, 2), "add_or_remove_one", 0.5, 1.0),
        (FixedSize(2, 2), "add_or_remove_one", 1.5, 1.5),
        (FixedSize(1, 2), "replace_one", 0.5, 1.0),
        (FixedSize(1, 2), "add_or_remove_one", 0.5, 1.0),
    ],
    ids=str,
)
def test_a_unit_that_can_be_absent_counts_with_all_of_its_contribution(sampler, relation, ratio, sensitivity):
    assert Mechanism(sampler, 1.0).sensitivity(relation, ratio) == sensitivity


@kills("neighbours", "Wang et al. with batches that are nearer than an empty place")
@edit(
    "accounting/papers.py",
    'event.sensitivity("replace_one") / event.noise_multiplier',
    "event.swap_ratio / event.noise_multiplier",
)
def test_wang_counts_a_unit_that_is_not_drawn():
    by = {"delta": 1e-5, "neighboring_relation": "replace_one", "method": "wang"}
    near, far = (accounting.epsilon_of([Event("fixed_size", 0.05, 1.2, 10, ratio)], **by) for ratio in (0.1, 1.0))
    assert near == far
