"""Plans in a ledger's file: full batches count by an exact rule, others by Gaussians that cover them; how many fit."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills
from postgresql_server import Server
from test_cli import run

import dpvb
from dpvb import accounting
from dpvb.accounting import Event
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost
from dpvb.errors import BudgetError, LedgerError
from dpvb.ledger import Ledger, is_address, verify_export
from dpvb.ledger.chain import Entry, canonical
from dpvb.ledger.run_history import Past
from dpvb.ledger.state import State

DELTA = 1e-6
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, (60, 2))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return made(Ledger(tmp_path / "budget.db"))


def made(ledger: Ledger, epsilon: float = 3.0) -> Ledger:
    ledger.register("rows", unit="row", neighboring_relation="add_or_remove_one", epsilon=epsilon, delta=DELTA)
    return ledger


def fit(ledger: Ledger, epsilon: float = 1.0, **options: Any) -> None:
    given = {"epsilon": epsilon, "delta": DELTA, "n_steps": 2, **options}
    dpvb.LogisticRegression(max_row_norm=1.0, **given).fit(X, Y, run=dpvb.Run(ledger=ledger, dataset="rows"))


def marks(ledger: Ledger) -> list[object]:
    """Of each charge and refund, whether it says that its noise is normal."""
    return [entry.facts.get("normal") for entry in ledger.entries() if entry.kind != "dataset" and entry.cost]


def units(cost: Cost, *, normal: bool = True) -> tuple[int, ...]:
    """A cost as a data set with cap 3 counts it."""
    return spending.covered_units(cost, epsilon=3 * 10**9, delta=DELTA, normal=normal)


def both_rules(entry: Entry, favoured: int) -> int:
    """The smaller of what both rules say of the totals of a row."""
    orders, covered = entry.total_units[: len(spending.ORDERS)], entry.total_units[len(spending.ORDERS) :]
    offsets = spending.offset_units(DELTA, favoured, beside_gaussians=True)
    return min(spending.spent_units(orders, offsets), spending.gaussian_units(*covered, DELTA))


def full(noise: float = 5.0) -> Composition:
    return Composition([Event("full_batch", 1.0, noise)], "add_or_remove_one")


def test_one_to_five_fits_count_at_most_two_percent_more_than_if_they_had_been_fixed(book: Ledger) -> None:
    for number in range(1, 6):
        fit(book, 0.8)
        left = book.remaining("rows")
        assert left.num_charges == number
        assert left.spent_if_fixed <= left.spent_adaptive <= 1.02 * left.spent_if_fixed
    assert marks(book) == [True] * 5
    book.verify()


def test_as_many_fits_like_the_last_one_fit_as_it_says(book: Ledger) -> None:
    assert book.remaining("rows").num_more is None
    fit(book, 1.0)
    more = book.remaining("rows").num_more
    assert more is not None
    assert more >= 3
    assert f"{more} more plans like the last one fit" in str(book.remaining("rows"))
    for left in reversed(range(more)):
        fit(book, 1.0)
        assert book.remaining("rows").num_more == left
    with pytest.raises(BudgetError):
        fit(book, 1.0)


@pytest.mark.parametrize("noise", [40.0, 60.0])
def test_so_it_does_for_sampled_plans(book: Ledger, noise: float) -> None:
    cost = Composition([Event("poisson", 0.2, noise / 10, 30)], "add_or_remove_one")
    book.charge("rows", cost, run="run", plan_digest="p", unit="row")
    more = book.remaining("rows").num_more
    assert more is not None
    for k in range(more):
        book.charge("rows", cost, run=f"run {k}", plan_digest="p", unit="row")
    assert book.remaining("rows").num_more == 0
    with pytest.raises(BudgetError):
        book.charge("rows", cost, run="one too many", plan_digest="p", unit="row")


def test_more_than_a_million_are_not_counted(book: Ledger) -> None:
    assert "like the last one" not in str(book.remaining("rows"))
    book.charge("rows", full(1e5), run="run", plan_digest="p", unit="row", normal=True)
    assert book.remaining("rows").num_more == 10**6
    assert "At least 1,000,000 more plans like the last one fit." in str(book.remaining("rows"))


def test_nothing_more_fits_behind_a_plan_that_takes_the_whole_cap(book: Ledger) -> None:
    fit(book, 3.0)
    assert book.remaining("rows").sole
    assert book.remaining("rows").num_more == 0


def test_the_command_line_says_how_many_more(book: Ledger) -> None:
    fit(book)
    (facts,) = json.loads(run("ledger", "show", book.url, "--json").stdout)
    assert facts["num_more"] == book.remaining("rows").num_more
    assert "more like the last one" not in run("ledger", "show", book.url).stderr
    assert "more: number of further plans like the last one that fit" in run("ledger", "show", book.url).stdout


def test_a_quote_comes_true(book: Ledger) -> None:
    fit(book)
    quote = book.quote(full())
    book.charge("rows", full(), run="run", plan_digest="p", unit="row", normal=True)
    assert book.remaining("rows").spent_adaptive == quote.total_adaptive
    assert quote.fits


def test_each_row_says_the_smaller_of_both_rules(book: Ledger) -> None:
    fit(book, 0.5)
    fit(book, 0.3, sampling_prob=0.5)
    fit(book, 0.3)
    rows = [entry for entry in book.entries() if entry.cost]
    favoured = spending.favoured_order(rows[0].cost_units[:-2], epsilon=3 * 10**9, delta=DELTA)
    assert [entry.units for entry in rows] == [both_rules(entry, favoured) for entry in rows]
    assert [entry.cost_units[-1] > 0 for entry in rows] == [False, True, False]
    book.verify()
    book.close()
    with Ledger(book.url) as again:
        assert again.remaining("rows").spent_adaptive == pytest.approx(rows[-1].units * 1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("event", "most"),
    [
        (Event("poisson", 0.01, 1.0, 1000), 1.07),
        (Event("poisson", 0.25, 1.0, 20), 1.07),
        (Event("fixed_size", 0.1, 1.0, 200), 1.08),
    ],
)
def test_one_to_five_sampled_plans_count_little_more_than_if_they_had_been_fixed(
    book: Ledger, event: Event, most: float
) -> None:
    scale = accounting.calibrate(
        lambda noise: [replace(event, noise_multiplier=noise)],
        epsilon=0.8,
        delta=DELTA,
        neighboring_relation="add_or_remove_one",
    )
    plan = Composition([replace(event, noise_multiplier=scale)], "add_or_remove_one")
    for number in range(5):
        book.charge("rows", plan, run=f"run {number}", plan_digest="p", unit="row", normal=True)
        left = book.remaining("rows")
        assert left.spent_if_fixed <= left.spent_adaptive <= most * left.spent_if_fixed
    book.verify()


@kills("accountant", "the Gaussian of a sampled plan comes back for steps that never ran")
@edit("ledger/run_history.py", "units[-1] if alone else 0, 0", "units[-1], 0")
def test_a_sampled_plan_that_stops_gets_back_what_the_orders_say_and_nothing_of_its_gaussian(book: Ledger) -> None:
    event = Event("poisson", 0.2, 4.0, 30)
    cost = Composition([event], "add_or_remove_one")
    book.charge("rows", cost, run="run", plan_digest="p", unit="row", normal=True)
    book.refund("run", unstarted=Composition([replace(event, n_steps=29)], "add_or_remove_one"))
    charge, refund = [entry for entry in book.entries() if entry.cost]
    assert refund.cost_units[-2:] == (0, 0)
    assert max(refund.cost_units[:-2]) < 0
    assert refund.total_units[-2:] == charge.cost_units[-2:]
    book.verify()


def test_noise_that_is_not_normal_is_covered_by_its_curve_and_gives_nothing_back(book: Ledger) -> None:
    cost = full(8.0)
    assert units(cost, normal=False)[-2] > 1.02 * units(cost)[-2]
    plan = Composition([*cost.events] * 2, "add_or_remove_one")
    book.charge("rows", plan, run="run", plan_digest="p", unit="row", normal=False)
    book.refund("run", unstarted=cost)
    charge, refund = [entry for entry in book.entries() if entry.cost]
    assert charge.cost_units == units(plan, normal=False)
    assert refund.cost_units[-2:] == (0, 0)


def test_a_plan_of_which_nothing_began_comes_back_whole(book: Ledger) -> None:
    cost = Composition([Event("poisson", 0.2, 4.0, 30)], "add_or_remove_one")
    book.charge("rows", cost, run="run", plan_digest="p", unit="row")
    book.refund("run", unstarted=cost)
    charge, refund = [entry for entry in book.entries() if entry.cost]
    assert min(charge.cost_units[-2:]) > 0
    assert refund.total_units[-2:] == (0, 0)


@pytest.mark.parametrize("width", [0, len(spending.ORDERS), len(spending.ORDERS) + 1, len(spending.ORDERS) + 3])
def test_a_row_of_another_width_is_refused(book: Ledger, width: int) -> None:
    fit(book, 0.5)
    fit(book, 0.5)
    state = State(book.uuid)
    *before, last = book.entries()
    while before[-1].kind == "event":
        before.pop()
    *before, last = [*before, last] if last.cost else before
    for entry in before:
        state.follow(entry)
    numbers = (*last.cost_units, 1)[:width]
    with pytest.raises(LedgerError, match="one whole number for each order"):
        state.copy().follow(replace(last, cost=canonical(numbers)).sealed())
    state.follow(last)


def test_a_ledger_of_an_earlier_version_counts_on_as_it_began(book: Ledger) -> None:
    """Rows with one number for each order: the data set stays with the orders, and the next row is as wide."""
    fit(book, 0.5)
    (first,) = [entry for entry in book.entries() if entry.cost]
    registered = book.entries()[0]
    orders = first.cost_units[: len(spending.ORDERS)]
    favoured = spending.favoured_order(orders, epsilon=3 * 10**9, delta=DELTA)
    spent = spending.spent_units(orders, spending.offset_units(DELTA, favoured))
    narrow = replace(first, cost=canonical(orders), totals=canonical(orders), units=spent).sealed()
    state = State(book.uuid)
    state.follow(registered)
    state.follow(narrow)
    assert state.units("rows", full(), normal=True) == spending.cost_units(full())
    assert state.price("rows").spent == spent


def as_written_before(ledger: Ledger, plan: Composition, then: tuple[int, ...], run: str) -> None:
    """Append a charge of a plan whose row states a lower cost, as a version with an earlier accountant wrote it."""
    digest = hashlib.sha256(canonical(plan.to_dict()).encode()).hexdigest()
    body = {"kind": "plan", "plan": "plan", "steps": None, "cost": plan.to_dict(), "payload": {}, "normal": True}
    with ledger._transaction(write=True) as (rows, state):
        given: Any = {"kind": "charge", "key": canonical(["charge", run, 0, "plan", None]), "run": run, "form": digest}
        ledger._append(rows, state, **given, dataset="rows", cost=then, body=body)


@pytest.mark.guarantees("exact totals")
@kills("neighbours", "charges of an earlier accountant are forgotten when a ledger is opened")
@edit(
    "ledger/state.py",
    "                        state.recount(entry)\n",
    "                        pass\n",
)
@kills("neighbours", "charges of an earlier accountant count with what they cost then")
@edit("ledger/state.py", "        self.recount(entry)\n        return odd\n", "        return odd\n")
@pytest.mark.parametrize("ratio", [0.25, 2.0])
def test_charges_of_an_earlier_accountant_count_with_what_they_cost_today(book: Ledger, ratio: float) -> None:
    """Their rows and the chain stay as they are; a row that was written today is not counted twice."""
    plan = Composition([Event("fixed_size", 0.05, 3.0, 10, ratio)], "add_or_remove_one")
    today, then = units(plan), units(plan.scaled(1.5))
    for name in ("a", "b"):
        as_written_before(book, plan, then, name)
    book.verify()
    with Ledger(book.url) as again:
        again.charge("rows", plan, run="c", plan_digest="plan", unit="row")
        assert [entry.cost_units for entry in again.entries() if entry.cost] == [then, then, today]
    three = tuple(3 * part for part in today)
    favoured = spending.favoured_order(then[: len(spending.ORDERS)], epsilon=3 * 10**9, delta=DELTA)
    with Ledger(book.url) as again:
        for one in (again, book):  # From the head, and row after row.
            assert (
                one.remaining("rows").spent_adaptive == spending.counted_units(three, favoured, DELTA) * spending.UNIT
            )
        again.verify()
        more = again.remaining("rows").num_more
        assert more is not None
        for number in range(more):
            again.charge("rows", plan, run=f"more-{number}", plan_digest="plan", unit="row")
        with pytest.raises(BudgetError):
            again.charge("rows", plan, run="last", plan_digest="plan", unit="row")


@pytest.mark.guarantees("exact totals")
@kills("releases", "charges of an earlier accountant forgotten where an order saturates today")
@edit("ledger/state.py", "if min(today[: len(spending.ORDERS)])", "if max(today[: len(spending.ORDERS)])")
def test_a_charge_of_an_earlier_accountant_counts_where_it_is_beyond_some_order_today(book: Ledger) -> None:
    """Nothing can be spent beside it: of a contribution against none the noise hides hardly anything."""
    plan = Composition([Event("fixed_size", 0.01, 0.05, 1000, 1e-3)], "add_or_remove_one")
    today = units(plan)
    assert max(today[: len(spending.ORDERS)]) == spending.SATURATED > min(today)
    as_written_before(book, plan, units(plan.scaled(1e3)), "a")
    assert book.remaining("rows").epsilon == 0
    book.verify()
    with Ledger(book.url) as again, pytest.raises(BudgetError):
        again.charge(
            "rows",
            Composition([Event("full_batch", 1.0, 100.0)], "add_or_remove_one"),
            run="b",
            plan_digest="plan",
            unit="row",
        )


def test_what_an_earlier_accountant_charged_comes_back_and_no_more(book: Ledger) -> None:
    plan = Composition([Event("fixed_size", 0.05, 3.0, 10, 2.0)], "add_or_remove_one")
    receipt = book.charge("rows", plan, run="today", plan_digest="plan", unit="row")
    assert receipt.seq == 2
    past = Past.of(book.history("today"))
    past.planned = tuple(part // 2 for part in past.planned)  # As if the row had stated half of it.
    assert past.back(plan)[: len(spending.ORDERS)] == past.planned[: len(spending.ORDERS)]


def test_an_interrupted_fit_gives_back_and_stays_gaussian(book: Ledger) -> None:
    def stop(step: int, plan: object) -> None:
        raise KeyboardInterrupt

    model = dpvb.LogisticRegression(max_row_norm=1.0, epsilon=1.0, delta=DELTA, n_steps=40)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, run=dpvb.Run(progress=stop, ledger=book, dataset="rows"))
    kinds = [entry.kind for entry in book.entries() if entry.cost]
    assert kinds == ["charge", "refund"]
    left = book.remaining("rows")
    assert 0 < left.spent_adaptive < 1.0
    assert left.spent_if_fixed <= left.spent_adaptive <= 1.02 * left.spent_if_fixed
    book.verify()


def parted(book: Ledger, whole: str = "rows") -> Ledger:
    """A whole data set with two parts: its name, and the same with "-north" and "-south" behind it."""
    for name in (whole, f"{whole}-north", f"{whole}-south"):
        book.register(
            name,
            unit="row",
            neighboring_relation="add_or_remove_one",
            epsilon=3.0,
            delta=DELTA,
            part_of=None if name == whole else whole,
        )
    return book


def exact(*plans: Composition) -> float:
    """What full batches alone count."""
    cost = Composition([event for plan in plans for event in plan.events], "add_or_remove_one")
    return spending.gaussian_units(spending.cost_units(cost)[-1], 0, DELTA) * 1e-9


def test_parts_and_their_whole_are_counted_on_lines(tmp_path: Path) -> None:
    sampled = Composition([Event("poisson", 0.2, 4.0, 30)], "add_or_remove_one")
    with parted(Ledger(tmp_path / "parts.db")) as book:
        for k, name in enumerate(("rows-north", "rows-south", "rows")):
            book.charge(name, full(), run=f"run {k}", plan_digest="p", unit="row", normal=True)
        found = [book.remaining(name).spent_adaptive for name in ("rows-north", "rows-south", "rows")]
        assert found == pytest.approx([exact(full(), full())] * 3, abs=1e-8)
        book.charge("rows-south", sampled, run="other", plan_digest="p", unit="row", normal=True)
        assert book.remaining("rows-south").spent_adaptive > found[1]
        assert book.remaining("rows-north").spent_adaptive == found[0]
        book.charge("rows", full(), run="all", plan_digest="p", unit="row", normal=True)
        assert book.remaining("rows-north").spent_adaptive == pytest.approx(exact(*[full()] * 3), abs=1e-8)
        book.verify()


PLANS = st.tuples(
    st.sampled_from(["", "-north", "-south"]),
    st.sampled_from(["full", "full", "sampled", "refund", "reopen"]),
    st.sampled_from([3.0, 5.0, 9.0]),
)


def spend(book: Ledger, whole: str, steps: list[tuple[str, str, float]]) -> None:
    """Charge plans one after the other, and look at all data sets behind each."""
    names, runs = [whole, f"{whole}-north", f"{whole}-south"], list[tuple[str, str, Composition]]()
    own: dict[str, list[Composition]] = {name: [] for name in names}
    normal = dict.fromkeys(names, True)
    for k, (part, action, noise) in enumerate(steps):
        name, before = whole + part, {one: book.remaining(one) for one in names}
        cost = full(noise) if action == "full" else Composition([Event("poisson", 0.2, noise, 20)], "add_or_remove_one")
        if action in ("full", "sampled"):
            run = f"{whole} {k}"
            with suppress(BudgetError):
                book.charge(name, cost, run=run, plan_digest="p", unit="row", normal=True)
                runs.append((run, name, cost))
                own[name].append(cost)
                normal[name] = normal[name] and action == "full"
        elif action == "refund" and runs:
            run, name, cost = runs.pop()
            with suppress(LedgerError):  # One that was charged by its own epsilon has none.
                book.refund(run, unstarted=cost)
                own[name].remove(cost)
        elif action == "reopen":
            book.close()
        for one in names:
            after = book.remaining(one)
            assert after.spent_adaptive <= 3.0
            if whole not in (name, one) and one != name:
                assert after == before[one]
            plans = own[whole] + own[one]
            if one != whole and plans and normal[whole] and normal[one] and not is_address(book.url):
                assert after.sole or after.spent_adaptive <= exact(*plans) + 1e-6
    book.verify()


@given(st.lists(PLANS, max_size=8))
@settings(max_examples=15)
def test_a_charge_to_a_part_changes_no_siblings_remaining(steps: list[tuple[str, str, float]]) -> None:
    """And full batches count exactly on a line of which all are such, whatever the other part was charged with."""
    with tempfile.TemporaryDirectory() as folder, parted(Ledger(Path(folder) / "parts.db")) as book:
        spend(book, "rows", steps)


def test_so_it_is_where_others_append(postgresql: Server) -> None:
    draw = random.Random(0)
    actions = ["full", "full", "sampled", "refund", "reopen"]
    with Ledger(postgresql.new_database()) as book:
        for k in range(4):
            parts = [(draw.choice(["", "-north", "-south"]), draw.choice(actions), 5.0) for _ in range(8)]
            spend(parted(book, f"rows-{k}"), f"rows-{k}", parts)


def test_an_export_is_followed_by_both_rules(book: Ledger, tmp_path: Path) -> None:
    fit(book, 0.5)
    fit(book, 0.3, sampling_prob=0.5)
    book.export(tmp_path / "chain.jsonl")
    verify_export(tmp_path / "chain.jsonl")


def test_where_others_append_the_orders_count(postgresql: Server) -> None:
    """Nobody but its writer knows of a row whether its noise was normal."""
    with made(Ledger(postgresql.new_database())) as book:
        fit(book, 0.5)
        (entry,) = [entry for entry in book.entries() if entry.cost]
        favoured = spending.favoured_order(entry.cost_units, epsilon=3 * 10**9, delta=DELTA)
        assert entry.units == spending.spent_units(entry.total_units, spending.offset_units(DELTA, favoured))


@kills("accountant", "discrete shares that count as Gaussians")
@edit("runs/journal.py", "normal: bool = False,", "normal: bool = True,")
def test_shares_of_several_owners_are_not_normal(book: Ledger, tmp_path: Path) -> None:
    """Under secure aggregation noise is made of discrete parts, which are priced by their curve alone."""
    from dpvb import federated

    books = [book, made(Ledger(tmp_path / "other.db")), made(Ledger(tmp_path / "third.db"))]
    model = dpvb.LogisticRegression(max_row_norm=1.0, epsilon=1.0, delta=DELTA, n_steps=2)
    federated.simulate(
        model,
        [(X, Y)] * 3,
        trust="secure_aggregation",
        num_rounds=4,
        accounts=[(one, "rows") for one in books],
    )
    assert [marks(one) for one in books] == [[None]] * 3
