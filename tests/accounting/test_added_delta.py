"""Releases that add to delta beside their noise: what they cost alone, together, and in a ledger."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills
from postgresql_server import Server

from dpvb import accounting
from dpvb.accounting import Event, gaussian
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, total
from dpvb.accounting.dominating_gaussian import covering
from dpvb.accounting.forms import from_dict
from dpvb.errors import BudgetError, LedgerError, ParameterError
from dpvb.ledger import Ledger, pricing

ADD = "add_or_remove_one"
DELTA = 1e-5
FULL, SAMPLED = Event("full_batch", 1.0, 6.0), Event("poisson", 0.1, 2.0, 30)
FINDS = replace(FULL, noise_multiplier=9.0, added_delta=4e-7)


def cost(*events: Event) -> Composition:
    return Composition(events, ADD)


def shown(delta: float) -> Event:
    return replace(FULL, noise_multiplier=30.0, added_delta=delta)


def book(place: Path | str, epsilon: float = 2.0) -> Ledger:
    ledger = Ledger(place)
    ledger.register("notes", unit="document", neighboring_relation=ADD, epsilon=epsilon, delta=DELTA)
    return ledger


def charge(ledger: Ledger, run: str, *events: Event) -> None:
    ledger.charge("notes", cost(*events), run=run, plan_digest="p", unit="document", normal=True)


# --- one plan -----------------------------------------------------------------------------------------------


@pytest.mark.guarantees("added delta")
@kills("factor", "what names add to delta is in no plan's epsilon")
@edit("accounting/methods.py", "answer(noise, delta=delta - added, **how)", "answer(noise, delta=delta, **how)")
@pytest.mark.parametrize("method", ["pld", "renyi", "moments"])
@pytest.mark.parametrize("others", [[], [FULL], [SAMPLED]], ids=["alone", "full", "sampled"])
def test_noise_has_what_the_releases_leave_of_delta(others: list[Event], method: str) -> None:
    how = {"neighboring_relation": ADD, "method": method}
    found = accounting.epsilon_of([FINDS, *others], delta=DELTA, **how)
    noise = [replace(FINDS, added_delta=0.0), *others]
    assert found == accounting.epsilon_of(noise, delta=DELTA - 4e-7, **how) > 0
    twice = accounting.epsilon_of([replace(FINDS, n_steps=2), *others], delta=DELTA, **how)
    noise[0] = replace(noise[0], n_steps=2)
    assert twice == pytest.approx(accounting.epsilon_of(noise, delta=DELTA - 8e-7, **how), rel=1e-12)


def test_where_they_leave_nothing_no_epsilon_holds() -> None:
    for delta in (4e-7, 1e-8):
        assert accounting.epsilon_of([FINDS], delta=delta, neighboring_relation=ADD) == math.inf
    with pytest.raises(ParameterError, match="within reach of some noise"):
        accounting.calibrate(
            lambda scale: [replace(FINDS, noise_multiplier=scale)], epsilon=1, delta=4e-7, neighboring_relation=ADD
        )


@pytest.mark.parametrize("events", [[FINDS], [FINDS, SAMPLED]], ids=["alone", "sampled"])
def test_delta_is_that_of_the_noise_and_what_is_added(events: list[Event]) -> None:
    noise = [replace(event, added_delta=0.0) for event in events]
    for epsilon in (0.0, 0.5, 2.0):
        found = accounting.delta_of(events, epsilon=epsilon, neighboring_relation=ADD)
        assert found == accounting.delta_of(noise, epsilon=epsilon, neighboring_relation=ADD) + 4e-7
    assert accounting.delta_of(events, epsilon=50, neighboring_relation=ADD) == pytest.approx(4e-7, rel=1e-6)


def test_a_plan_is_calibrated_to_all_of_delta() -> None:
    def events(scale: float) -> list[Event]:
        noisy = (replace(one, noise_multiplier=scale * one.noise_multiplier) for one in (FINDS, SAMPLED))
        return [*noisy]

    scale = accounting.calibrate(events, epsilon=1.0, delta=DELTA, neighboring_relation=ADD)
    assert 0.995 < accounting.epsilon_of(events(scale), delta=DELTA, neighboring_relation=ADD) <= 1.0


def test_what_adds_nothing_is_written_as_it_ever_was() -> None:
    assert "added_delta" not in FULL.to_dict()
    assert Event.from_dict(FULL.to_dict()) == FULL
    found = cost(FINDS, SAMPLED)
    assert from_dict(found.to_dict()) == found
    assert found != cost(replace(FINDS, added_delta=0.0), SAMPLED)


@pytest.mark.parametrize("added", [-1e-9, 1.0, math.nan, "x"])
def test_what_is_no_chance_is_refused(added: float) -> None:
    with pytest.raises(ParameterError, match="added_delta"):
        replace(FULL, added_delta=added)


# --- many plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [[], [SAMPLED]], ids=["alone", "sampled"])
def test_a_gaussian_covers_such_a_plan_but_for_what_it_adds(others: list[Event]) -> None:
    m, left_out = covering(cost(FINDS, *others), DELTA, 1.0, DELTA / 10)
    bare, before = covering(cost(FINDS, *others).noise, DELTA, 1.0, DELTA / 10)
    assert (m, left_out) == (bare, before + 4e-7)
    for epsilon in np.linspace(0.0, 6.0, 25).tolist():
        # The worst such release: with a chance of 4e-7 it says everything, and else it is the noise.
        noise = accounting.delta_of(cost(FINDS, *others).noise.events, epsilon=epsilon, neighboring_relation=ADD)
        worst = 4e-7 + (1 - 4e-7) * noise
        assert worst <= (left_out + (1 - left_out) * gaussian.delta(m, epsilon)) * (1 + 1e-4)


@kills("releases", "a plan that adds to delta counts by Rényi orders, which do not see it")
@edit(
    "accounting/costs.py",
    "event.noise_multiplier == 0 or event.added_delta for event",
    "event.noise_multiplier == 0 for event",
)
def test_no_order_has_a_cost_for_it() -> None:
    units = spending.covered_units(cost(FINDS), epsilon=2 * 10**9, delta=DELTA, normal=True)
    assert set(units[:-2]) == {spending.SATURATED}
    assert units[-1] == pytest.approx(4e-7 / DELTA * 1e9, abs=1)
    assert total([cost(FINDS)] * 2).epsilon(DELTA) < math.inf


plans = st.lists(
    st.tuples(
        st.sampled_from([2.0, 3.5, 6.0, 15.0, 60.0]),
        st.sampled_from([0.0, 1e-8, 2e-7, 5e-7, 1e-6, 2e-6]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def never_beyond_the_cap(ledger: Ledger, given: list[tuple[float, float, bool]]) -> None:
    """Whatever was accepted keeps the cap, had it been fixed beforehand; adaptive choice is the filter's own proof."""
    accepted: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        # A refusal does not search for the largest plan that fits, which takes longer than all the rest.
        patch.setattr(pricing, "noise_scale", lambda *_, **__: math.inf)
        for n, (noise, added, sampled) in enumerate(given):
            event = replace(SAMPLED if sampled else FULL, noise_multiplier=noise, added_delta=added)
            try:
                charge(ledger, f"run {n}", event)
            except BudgetError:
                continue
            accepted.append(event)
    if accepted:
        assert accounting.epsilon_of(accepted, delta=DELTA, neighboring_relation=ADD) <= 2.0 * (1 + 1e-3)
        left = ledger.remaining("notes")
        assert left.spent_if_fixed <= left.spent_adaptive * (1 + 1e-3)
        assert left.epsilon + left.spent_adaptive == pytest.approx(2.0) or left.sole


@pytest.mark.guarantees("added delta")
@settings(max_examples=4)
@given(plans)
def test_a_files_cap_is_never_passed(given: list[tuple[float, float, bool]]) -> None:
    with TemporaryDirectory() as folder, book(Path(folder) / "budget.db") as ledger:
        never_beyond_the_cap(ledger, given)
        ledger.verify()


def test_so_it_is_where_others_append(postgresql: Server) -> None:
    rng = np.random.default_rng(4)
    for _ in range(5):
        given = [
            (float(rng.choice([4.0, 6.0, 15.0, 60.0])), float(rng.choice([0.0, 5e-7])), bool(rng.integers(2)))
            for _ in range(6)
        ]
        with book(postgresql.new_database()) as ledger:
            never_beyond_the_cap(ledger, given)


@pytest.mark.guarantees("added delta")
@kills("releases", "what plans add to delta is not charged")
@edit("accounting/dominating_gaussian.py", "return m, left_out + added", "return m, left_out")
def test_a_tenth_of_a_caps_delta_is_kept_for_all_that_plans_add(tmp_path: Path) -> None:
    with book(tmp_path / "budget.db") as ledger:
        charge(ledger, "first", shown(5e-7))
        charge(ledger, "second", shown(5e-7))
        charge(ledger, "noise alone", FULL)
        before = ledger.remaining("notes")
        with pytest.raises(
            BudgetError, match=r"adds 1e-08 to delta in addition to its noise\. A tenth of the cap's delta"
        ):
            charge(ledger, "third", shown(1e-8))
        assert ledger.remaining("notes") == before
        assert before.epsilon > 0
        charge(ledger, "more noise", FULL)
        ledger.verify()


def test_a_plan_within_the_cap_may_be_the_first_and_only_one(tmp_path: Path) -> None:
    with book(tmp_path / "budget.db", epsilon=1.0) as ledger:
        charge(ledger, "all", replace(FINDS, noise_multiplier=4.5, added_delta=2e-6))
        assert ledger.remaining("notes").sole
        with pytest.raises(BudgetError):
            charge(ledger, "more", shown(1e-9))


def test_a_shared_ledger_takes_such_a_plan_first_or_not_at_all(postgresql: Server) -> None:
    with book(postgresql.new_database()) as ledger:
        charge(ledger, "noise", replace(FULL, noise_multiplier=30.0))
        with pytest.raises(BudgetError, match="may append takes such a plan as the first and only one"):
            charge(ledger, "finds", FINDS)
    with book(postgresql.new_database()) as ledger:
        charge(ledger, "finds", FINDS)
        assert ledger.remaining("notes").sole


def test_releases_that_never_began_come_back_without_what_was_added(tmp_path: Path) -> None:
    with book(tmp_path / "budget.db") as ledger:
        steps = replace(FULL, n_steps=20, noise_multiplier=30.0)
        plan = cost(FINDS, steps)
        begins = [FINDS, *[replace(steps, n_steps=1)] * 20]
        given = {"run": "run", "plan_digest": "p", "unit": "document", "normal": True, "releases": begins}
        ledger.charge("notes", plan, **given)
        ledger.append("run", attempt=0, state="started", step=0)
        with pytest.raises(LedgerError):
            ledger.refund("run", unstarted=plan)  # The release that adds to delta has begun.
        ledger.refund("run", unstarted=cost(steps))
        _, left_out = ledger.entries()[-1].total_units[-2:]
        assert left_out == pytest.approx(0.04e9, abs=1)
        alone = spending.covered_units(cost(FINDS), epsilon=2 * 10**9, delta=DELTA, normal=True)
        assert alone[-2] <= ledger.entries()[-1].total_units[-2] <= alone[-2] * (1 + 1e-6)
        ledger.verify()
