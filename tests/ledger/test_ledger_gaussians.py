"""Full batches in a ledger's file: counted by their exact rule for as long as they are alone; and how many more fit."""

from __future__ import annotations

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
from postgresql_server import Server
from test_cli import run

import dpvb
from dpvb.accounting import Event
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition
from dpvb.errors import BudgetError, LedgerError
from dpvb.ledger import Ledger, is_address, verify_export
from dpvb.ledger.chain import canonical
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
    given = {"epsilon": epsilon, "delta": DELTA, "num_steps": 2, **options}
    dpvb.LogisticRegression(row_norm=1.0, **given, ledger=ledger, dataset="rows").fit(X, Y)


def marks(ledger: Ledger) -> list[object]:
    return [entry.facts.get("gaussian") for entry in ledger.entries() if entry.kind != "dataset" and entry.cost]


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
    assert f"{more} more like the last one would fit" in str(book.remaining("rows"))
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
    book.charge("rows", full(1e5), run="run", plan_digest="p", unit="row", gaussian=True)
    assert book.remaining("rows").num_more == 10**6
    assert "At least 1,000,000 more like the last one would fit." in str(book.remaining("rows"))


def test_nothing_more_fits_behind_a_plan_that_takes_the_whole_cap(book: Ledger) -> None:
    fit(book, 3.0)
    assert book.remaining("rows").sole
    assert book.remaining("rows").num_more == 0


def test_the_command_line_says_how_many_more(book: Ledger) -> None:
    fit(book)
    (facts,) = json.loads(run("ledger", "show", book.url, "--json").stdout)
    assert facts["num_more"] == book.remaining("rows").num_more
    assert "more like the last one" not in run("ledger", "show", book.url).stderr
    assert "how many more plans" in run("ledger", "show", book.url).stdout


def test_a_quote_comes_true(book: Ledger) -> None:
    fit(book)
    quote = book.quote(full())
    book.charge("rows", full(), run="run", plan_digest="p", unit="row", gaussian=True)
    assert book.remaining("rows").spent_adaptive == quote.total_adaptive
    assert quote.fits


def test_another_plan_ends_it_for_good(book: Ledger) -> None:
    """From then on the orders count with a quarter of delta: by hand."""
    fit(book, 0.5)
    fit(book, 0.3, sampling_prob=0.5)
    fit(book, 0.3)
    assert marks(book) == [True, False, False]
    first, *_, last = [entry for entry in book.entries() if entry.cost]
    favoured = spending.favoured_order(first.cost_units, epsilon=3 * 10**9, delta=DELTA)
    offsets = spending.offset_units(DELTA, favoured, beside_gaussians=True)
    assert last.units == spending.spent_units(last.total_units, offsets)
    book.verify()
    book.close()
    with Ledger(book.url) as again:
        assert again.remaining("rows").spent_adaptive == pytest.approx(last.units * 1e-9, abs=1e-12)


def test_a_data_set_that_began_otherwise_counts_by_the_orders_as_before(book: Ledger) -> None:
    """So do rows of earlier versions, none of which says anything of Gaussians."""
    book.charge("rows", full(), run="run", plan_digest="p", unit="row")
    fit(book, 0.5)
    assert marks(book) == [None, None]
    first, last = [entry for entry in book.entries() if entry.cost]
    favoured = spending.favoured_order(first.cost_units, epsilon=3 * 10**9, delta=DELTA)
    assert last.units == spending.spent_units(last.total_units, spending.offset_units(DELTA, favoured))


@pytest.mark.parametrize("mark", [True, None, 1, "true"])
def test_a_row_that_says_it_is_gaussian_again_is_refused(book: Ledger, mark: object) -> None:
    fit(book, 0.5)
    book.charge("rows", full(), run="run", plan_digest="p", unit="row")  # Of noise that nobody says is normal.
    state = State(book.uuid)
    *before, last = book.entries()
    for entry in before:
        state.follow(entry)
    body = {name: value for name, value in last.facts.items() if name != "gaussian"}
    forged = body if mark is None else {**body, "gaussian": mark}
    units = spending.gaussian_units(last.total_units, DELTA)
    with pytest.raises(LedgerError, match="does not follow from its totals"):
        state.copy().follow(replace(last, body=canonical(forged), units=last.units).sealed())
    if mark is not True:
        with pytest.raises(LedgerError, match="does not follow from its totals"):
            state.copy().follow(replace(last, body=canonical(forged), units=units).sealed())
    state.follow(last)


def test_an_interrupted_fit_gives_back_and_stays_gaussian(book: Ledger) -> None:
    def stop(step: int, plan: object) -> None:
        raise KeyboardInterrupt

    model = dpvb.LogisticRegression(row_norm=1.0, epsilon=1.0, delta=DELTA, num_steps=40, ledger=book, dataset="rows")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, progress=stop)
    kinds = [entry.kind for entry in book.entries() if entry.cost]
    assert kinds == ["charge", "refund"]
    assert marks(book) == [True, True]
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
    return spending.gaussian_units(spending.cost_units(cost), DELTA) * 1e-9


def test_parts_and_their_whole_are_gaussian_together(tmp_path: Path) -> None:
    with parted(Ledger(tmp_path / "parts.db")) as book:
        for k, name in enumerate(("rows-north", "rows-south", "rows")):
            book.charge(name, full(), run=f"run {k}", plan_digest="p", unit="row", gaussian=True)
        found = [book.remaining(name).spent_adaptive for name in ("rows-north", "rows-south", "rows")]
        assert found == pytest.approx([exact(full(), full())] * 3, abs=1e-8)
        book.charge("rows-south", full(), run="other", plan_digest="p", unit="row")
        assert marks(book) == [True, True, True, False]
        assert book.remaining("rows-south").spent_adaptive > exact(full(), full(), full())
        assert book.remaining("rows-north").spent_adaptive == found[0]
        book.charge("rows", full(), run="all", plan_digest="p", unit="row", gaussian=True)
        assert book.remaining("rows-north").spent_adaptive == pytest.approx(exact(*[full()] * 3), abs=1e-8)
        book.charge("rows", full(), run="all again", plan_digest="p", unit="row")
        assert book.remaining("rows-north").spent_adaptive > exact(*[full()] * 4)
        book.verify()


def test_a_part_counts_exactly_behind_a_sampled_plan_on_another(tmp_path: Path) -> None:
    """The first plan of all is sampled, and another row is as earlier versions wrote it: a share kept for Gaussians."""
    sampled = Composition([Event("poisson", 0.2, 4.0, 30)], "add_or_remove_one")
    with parted(Ledger(tmp_path / "parts.db")) as book:
        book.charge("rows-north", sampled, run="a", plan_digest="p", unit="row", gaussian=True)
        assert book.method("rows-south", full().events) == "pld"
        assert book.method("rows-north", full().events) == book.method("rows", full().events) == "renyi"
        book.charge("rows-south", full(), run="b", plan_digest="p", unit="row", gaussian=True)
        assert marks(book) == [None, True]
        assert book.remaining("rows-south").spent_adaptive == pytest.approx(exact(full()), abs=1e-8)
        state = State(book.uuid)
        for entry in book.entries():
            state.follow(entry)
        before = parted(Ledger(tmp_path / "earlier.db"))
        before.charge("rows-south", full(), run="b", plan_digest="p", unit="row", gaussian=True)
        favoured = next(entry.facts["favoured"] for entry in before.entries() if entry.cost)
        before.charge("rows-north", sampled, run="a", plan_digest="p", unit="row")
        *rows, last = before.entries()
        state = State(before.uuid)
        for entry in rows:
            state.follow(entry)
        offsets = spending.offset_units(DELTA, favoured, beside_gaussians=True)
        units = spending.spent_units(last.total_units, offsets)
        earlier = replace(last, body=canonical({**last.facts, "gaussian": False}), units=units).sealed()
        assert marks(before) == [True, None]
        assert units > last.units
        state.follow(earlier)
        assert state.price("rows-north").spent == units


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
                book.charge(name, cost, run=run, plan_digest="p", unit="row", gaussian=True)
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
            spend(parted(book, f"rows {k}"), f"rows {k}", parts)


def test_an_export_is_followed_by_both_rules(book: Ledger, tmp_path: Path) -> None:
    fit(book, 0.5)
    fit(book, 0.3, sampling_prob=0.5)
    book.export(tmp_path / "chain.jsonl")
    verify_export(tmp_path / "chain.jsonl")


def test_where_others_append_the_orders_count(postgresql: Server) -> None:
    """Nobody but its writer knows of a row whether its noise was normal."""
    with made(Ledger(postgresql.new_database())) as book:
        fit(book, 0.5)
        assert marks(book) == [None]
        (entry,) = [entry for entry in book.entries() if entry.cost]
        favoured = spending.favoured_order(entry.cost_units, epsilon=3 * 10**9, delta=DELTA)
        assert entry.units == spending.spent_units(entry.total_units, spending.offset_units(DELTA, favoured))


def test_shares_of_several_owners_are_no_gaussians(book: Ledger, tmp_path: Path) -> None:
    """Under secure aggregation noise is made of discrete parts, which are priced at the orders alone."""
    from dpvb import federated

    books = [book, made(Ledger(tmp_path / "other.db")), made(Ledger(tmp_path / "third.db"))]
    model = dpvb.LogisticRegression(row_norm=1.0, epsilon=1.0, delta=DELTA, num_steps=2)
    federated.simulate(
        model,
        [(X, Y)] * 3,
        trust="secure_aggregation",
        num_rounds=4,
        accounts=[(one, "rows") for one in books],
    )
    assert [marks(one) for one in books] == [[None]] * 3
