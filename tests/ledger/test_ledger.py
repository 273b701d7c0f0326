"""The ledger: what it lets through, what it remembers, and what it finds out."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

import dpvb
from dpvb.accounting import Event, costs
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost
from dpvb.accounting.methods import rounded_down
from dpvb.errors import BudgetError, LedgerError, ParameterError
from dpvb.ledger import Ledger, Receipt, is_address, pricing, verify_export
from dpvb.ledger import sqlite as in_file
from dpvb.ledger.chain import Entry
from dpvb.ledger.head import Seen

ADD = "add_or_remove_one"
FACTS: dict[str, Any] = {"unit": "document", "neighboring_relation": ADD, "epsilon": 3.0, "delta": 1e-5}


def plan(noise: float = 4.0, steps: int = 20, q: float = 0.05) -> Composition:
    return Composition([Event("poisson", q, noise, steps)], ADD)


SMALL = plan()


def counts(cost: Cost) -> tuple[int, ...]:
    """A cost as a data set of a file with these facts counts it."""
    return spending.covered_units(cost, epsilon=3 * 10**9, delta=1e-5, normal=True)


def charge(ledger: Ledger, run: str, cost: Cost = SMALL, dataset: str = "notes", **more: Any) -> Receipt:
    return ledger.charge(dataset, cost, run=run, plan_digest="plan", unit="document", **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as made:
        made.register("notes", **FACTS)
        yield made


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked process; return its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---------------------------------------------------------------- what may be spent


def test_charges_until_the_cap(ledger: Ledger) -> None:
    """As many charges as the filter allows, not one more; the totals are sums of whole numbers."""
    units = spending.cost_units(SMALL) if is_address(ledger.url) else counts(SMALL)
    favoured = spending.favoured_order(units[: len(spending.ORDERS)], epsilon=3 * 10**9, delta=1e-5)

    def counted(number: int) -> int:
        return spending.counted_units(tuple(number * part for part in units), favoured, 1e-5)

    most = max(n for n in range(1000) if counted(n) <= 3 * 10**9)
    for i in range(most):
        charge(ledger, f"run {i}")
    with pytest.raises(BudgetError):
        charge(ledger, "one too many")
    left = ledger.remaining("notes")
    assert left.num_charges == most > 5
    expected = counted(most) * spending.UNIT
    assert left.spent_adaptive == pytest.approx(expected, abs=1e-12)
    assert left.epsilon == pytest.approx(3.0 - expected, abs=1e-9)
    assert left.spent_if_fixed == costs.total({SMALL: most}).epsilon(1e-5)
    assert left.spent_if_fixed <= left.spent_adaptive <= left.cap_epsilon
    assert ledger.history("run 3")[0].totals == json.dumps([4 * part for part in units], separators=(",", ":"))


def test_a_refusal_says_what_is_left_and_what_would_fit(ledger: Ledger) -> None:
    charge(ledger, "first", plan(1.2))
    before = ledger.remaining("notes")
    big = plan(0.8)
    quote = ledger.quote(big)
    assert not quote.fits
    left, largest = rounded_down(before.epsilon), rounded_down(quote.largest)
    with pytest.raises(BudgetError, match=rf"limit 3, left {left}.*Nothing was charged.*{largest}") as error:
        charge(ledger, "second", big)
    assert isinstance(error.value, LedgerError)
    assert ledger.remaining("notes") == before
    # The largest plan fits, and a hundredth less noise does not.
    assert ledger.quote(big.scaled(quote.noise_scale)).fits
    assert not ledger.quote(big.scaled(0.99 * quote.noise_scale)).fits
    assert quote.largest == pytest.approx(big.scaled(quote.noise_scale).epsilon(1e-5), rel=1e-3)
    charge(ledger, "third", big.scaled(quote.noise_scale))
    assert ledger.remaining("notes").epsilon < 0.01


def test_a_quote_spends_nothing_and_comes_true(ledger: Ledger) -> None:
    charge(ledger, "first")
    quote = ledger.quote(plan(2.0))
    assert quote.epsilon == plan(2.0).epsilon(1e-5)
    assert ledger.remaining("notes").num_charges == 1
    charge(ledger, "second", plan(2.0))
    left = ledger.remaining("notes")
    assert (quote.total_adaptive, quote.total_if_fixed) == (left.spent_adaptive, left.spent_if_fixed)
    assert ledger.quote([Event("poisson", 0.05, 2.0, 20)]) == ledger.quote(plan(2.0))


def test_the_first_plan_may_be_charged_by_its_own_epsilon(ledger: Ledger) -> None:
    """Beyond the filter, within the cap by the tight accountant: then nothing can follow, and nothing comes back."""
    quote = ledger.quote(plan())
    first = plan().scaled(quote.noise_scale)
    assert 0.995 * 3.0 <= first.epsilon(1e-5) <= 3.0
    assert (
        spending.spent_units(spending.cost_units(first), spending.offset_units(1e-5, 20)) > 3 * 10**9
    )  # no order is within
    assert ledger.quote(first).fits
    charge(ledger, "first", first)
    assert ledger.history("first")[0].kind == "sole"
    left = ledger.remaining("notes")
    assert left.epsilon == 0
    assert left.sole
    assert left.spent_adaptive == pytest.approx(first.epsilon(1e-5), rel=1e-3)
    assert "No further plan is possible" in str(left)
    with pytest.raises(BudgetError, match="No plan of this shape fits"):
        charge(ledger, "second", plan(1e6))
    with pytest.raises(LedgerError, match="own epsilon"):
        ledger.refund("first", unstarted=first)
    ledger.verify()


def test_a_first_plan_over_the_cap_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match=r"epsilon limit 3, left 3, cost of the plan by itself 10\.34, "):
        charge(ledger, "first", plan(0.5))
    assert ledger.remaining("notes").num_charges == 0
    assert ledger.remaining("notes").spent_adaptive == 0


def test_noise_scale_meets_what_is_asked_for(ledger: Ledger) -> None:
    """By its own epsilon for a first plan, by the rise of the total for a later one."""
    first = plan(steps=50)
    first = first.scaled(ledger.noise_scale(first, epsilon=1.0))
    assert 0.995 <= first.epsilon(1e-5) <= 1.0
    charge(ledger, "first", first)
    before = ledger.remaining("notes").spent_adaptive
    second = plan(q=0.2).scaled(ledger.noise_scale(plan(q=0.2), epsilon=0.5))
    charge(ledger, "second", second)
    assert 0.498 <= ledger.remaining("notes").spent_adaptive - before <= 0.5 + 1e-9
    with pytest.raises(ParameterError, match="epsilon"):
        ledger.noise_scale(first, epsilon=math.inf)


def test_an_empty_cap_allows_nothing(ledger: Ledger) -> None:
    for name, cap in (("none", 0.0), ("denormal", 1e-320)):
        ledger.register(name, **{**FACTS, "epsilon": cap})
        with pytest.raises(BudgetError, match="No plan"):
            charge(ledger, f"run {name}", dataset=name)


# ---------------------------------------------------------------- once and only once


def test_a_charge_is_made_once(ledger: Ledger) -> None:
    receipt = charge(ledger, "run")
    for _ in range(50):
        assert charge(ledger, "run") == receipt
    assert ledger.remaining("notes").num_charges == 1
    assert receipt == Receipt(ledger.uuid, 2, ledger.history("run")[0].hash, "notes")
    with pytest.raises(LedgerError, match="another plan"):
        ledger.charge("notes", SMALL, run="run", plan_digest="other", unit="document")
    with pytest.raises(LedgerError, match="another plan"):
        charge(ledger, "run", plan(5.0))
    assert charge(ledger, "run", kind="again", steps=[3]) != receipt
    assert charge(ledger, "run", kind="again", steps=[4]) != charge(ledger, "run", kind="again", steps=[3])
    assert ledger.remaining("notes").num_charges == 3


def test_events_of_a_run(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="never charged"):
        ledger.append("run", attempt=0, state="released", step=0, digest="aa")
    charge(ledger, "run")
    receipt = ledger.append("run", attempt=0, state="released", step=0, digest="aa")
    assert ledger.append("run", attempt=0, state="released", step=0, digest="aa") == receipt
    with pytest.raises(LedgerError, match="step 0"):
        ledger.append("run", attempt=0, state="released", step=0, digest="bb")
    ledger.append("run", attempt=1, state="resumed")
    with pytest.raises(LedgerError, match="taken over"):
        ledger.append("run", attempt=1, state="resumed")  # a second process with the same idea
    with pytest.raises(LedgerError, match="taken over"):
        ledger.append("run", attempt=0, state="released", step=1, digest="aa")
    with pytest.raises(LedgerError, match="taken over"):
        charge(ledger, "run", attempt=0, kind="again", steps=[1])
    with pytest.raises(LedgerError, match="attempt 1"):
        ledger.append("run", attempt=3, state="resumed")
    ledger.append("run", attempt=1, state="finished")
    with pytest.raises(LedgerError, match="ended"):
        ledger.append("run", attempt=1, state="released", step=1, digest="aa")
    with pytest.raises(LedgerError, match="ended"):
        charge(ledger, "run", attempt=1, kind="again", steps=[1])
    found = [(entry.kind, entry.state, entry.step, entry.attempt) for entry in ledger.history("run")]
    assert found == [
        ("charge", None, None, 0),
        ("event", "released", 0, 0),
        ("event", "resumed", None, 1),
        ("event", "finished", None, 1),
    ]
    with pytest.raises(ParameterError, match="state"):
        ledger.append("run", attempt=1, state="asleep")
    ledger.verify()


# ---------------------------------------------------------------- refunds


def test_a_refund_of_what_never_started(ledger: Ledger) -> None:
    """The total is then that of what was started, up to a few units of rounding."""
    charge(ledger, "earlier")
    charge(ledger, "run", plan(2.0, 20))
    ledger.append("run", attempt=0, state="released", step=6, digest="aa")
    receipt = ledger.refund("run", unstarted=plan(2.0, 13))
    assert ledger.refund("run", unstarted=plan(2.0, 13)) == receipt
    totals = json.loads(ledger.history("run")[-1].totals)
    started = spending.add(spending.cost_units(SMALL), spending.cost_units(plan(2.0, 7)))
    for total, least in zip(totals, started, strict=False):
        assert least - 1 <= total <= least * (1 + 1e-8) + 3 or total == spending.SATURATED
    assert ledger.remaining("notes").spent_if_fixed == costs.total([SMALL, plan(2.0, 7)]).epsilon(1e-5)
    assert [entry.state for entry in ledger.history("run")][-2:] == ["abandoned", None]
    for again in (
        lambda: charge(ledger, "run", kind="again", steps=[1]),
        lambda: ledger.append("run", attempt=0, state="started"),
    ):
        with pytest.raises(LedgerError, match="ended"):
            again()
    with pytest.raises(LedgerError, match="already"):
        ledger.refund("run", unstarted=plan(2.0, 1))
    ledger.verify()


def test_refunds_that_are_refused(ledger: Ledger) -> None:
    charge(ledger, "run", plan(2.0, 20))
    with pytest.raises(LedgerError, match="fewer releases left"):
        ledger.refund("run", unstarted=plan(2.0, 21))
    with pytest.raises(LedgerError, match="fewer releases left"):
        ledger.refund("run", unstarted=plan(1.9, 1))
    ledger.append("run", attempt=0, state="started", step=9)
    with pytest.raises(LedgerError, match="fewer releases left"):
        ledger.refund("run", unstarted=plan(2.0, 11))
    with pytest.raises(LedgerError, match="never charged"):
        ledger.refund("nobody", unstarted=SMALL)
    with pytest.raises(LedgerError, match="neighboring_relation"):
        ledger.refund("run", unstarted=Composition(plan(2.0, 3).events, "replace_one"))
    ledger.append("run", attempt=0, state="finished")
    with pytest.raises(LedgerError, match="finished"):
        ledger.refund("run", unstarted=plan(2.0, 1))
    assert ledger.remaining("notes").num_charges == 1


# ---------------------------------------------------------------- parts


@pytest.mark.guarantees("parts")
def test_parts_spend_side_by_side(ledger: Ledger) -> None:
    ledger.register("north", **FACTS, part_of="notes")
    ledger.register("south", **FACTS, part_of="notes")
    big = plan(1.3)
    charge(ledger, "a", big, dataset="north")
    charge(ledger, "b", big, dataset="south")
    one = ledger.remaining("north").spent_adaptive
    assert ledger.remaining("south").spent_adaptive == ledger.remaining("notes").spent_adaptive == one
    charge(ledger, "c", SMALL, dataset="notes")  # counts for every part
    assert ledger.remaining("south").spent_adaptive == ledger.remaining("notes").spent_adaptive > one
    assert ledger.remaining("south").spent_if_fixed == costs.total([big, SMALL]).epsilon(1e-5)
    charge(ledger, "d", SMALL, dataset="north")
    assert ledger.remaining("north").spent_adaptive > ledger.remaining("south").spent_adaptive
    assert ledger.remaining("notes").spent_adaptive == ledger.remaining("north").spent_adaptive  # the worst part
    # What no longer fits the fullest part does not fit the whole; the other part still has room.
    much = ledger.quote(big, dataset="north")
    rest = big.scaled(much.noise_scale)
    charge(ledger, "e", rest, dataset="north")
    with pytest.raises(BudgetError):
        charge(ledger, "f", SMALL, dataset="notes")
    charge(ledger, "g", SMALL, dataset="south")
    ledger.verify()


@pytest.mark.guarantees("parts")
def test_parts_are_fixed_beforehand(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="unit"):
        ledger.register("north", **{**FACTS, "epsilon": 2.0}, part_of="notes")
    with pytest.raises(LedgerError, match="registered"):
        ledger.register("north", **FACTS, part_of="nowhere")
    ledger.register("north", **FACTS, part_of="notes")
    with pytest.raises(LedgerError, match="whole"):
        ledger.register("north-west", **FACTS, part_of="north")
    charge(ledger, "a", dataset="north")
    with pytest.raises(LedgerError, match="beforehand"):
        ledger.register("south", **FACTS, part_of="notes")
    with pytest.raises(ParameterError, match="replace_one"):
        ledger.register("x", **{**FACTS, "neighboring_relation": "replace_one"}, part_of="notes")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("cap", [math.nan, math.inf, -1.0, -math.inf, "3", None, 1e7])
def test_caps_that_are_none(ledger: Ledger, cap: object) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        ledger.register("x", **{**FACTS, "epsilon": cap})


@pytest.mark.parametrize("delta", [math.nan, 0.0, 1.0, -0.1, math.inf])
def test_deltas_that_are_none(ledger: Ledger, delta: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        ledger.register("x", **{**FACTS, "delta": delta})


def test_data_sets_are_what_they_were_registered_as(ledger: Ledger) -> None:
    ledger.register("notes", **FACTS)
    assert [one.name for one in ledger.datasets()] == ["notes"]
    for other in ({"unit": "person"}, {"epsilon": 4.0}, {"delta": 1e-6}, {"neighboring_relation": "replace_one"}):
        with pytest.raises(LedgerError, match="other facts"):
            ledger.register("notes", **{**FACTS, **other})
    with pytest.raises(LedgerError, match=r"'notes'.*got 'letters'"):
        charge(ledger, "run", dataset="letters")
    with pytest.raises(LedgerError, match=r"unit 'document'.*'person'"):
        ledger.charge("notes", SMALL, run="run", plan_digest="plan", unit="person")
    with pytest.raises(LedgerError, match="neighboring_relation"):
        charge(ledger, "run", Composition(SMALL.events, "replace_one"))
    with pytest.raises(ParameterError, match="noise"):
        charge(ledger, "run", plan(0.0))
    with pytest.raises(ParameterError, match="payload"):
        charge(ledger, "run", payload={"x": math.nan})
    for name in ("", "a\nb", "x" * 300, None):
        with pytest.raises(ParameterError, match="name"):
            ledger.register(name, **FACTS)  # type: ignore[arg-type]
    assert len(ledger.history("run")) == 0
    ledger.register("letters", **FACTS)
    with pytest.raises(LedgerError, match="dataset"):
        ledger.quote(SMALL)  # whose?


@pytest.mark.parametrize("place", ["", 3, None, "http://x/y", b"x"])
def test_addresses_that_are_none(place: object) -> None:
    with pytest.raises(ParameterError, match="path_or_url"):
        Ledger(place)  # type: ignore[arg-type]


# ---------------------------------------------------------------- processes, threads, copies


def spend_all(ledger: Ledger, name: str) -> int:
    number = 0
    while True:
        try:
            charge(ledger, f"{name} {number}", plan(2.5))
        except BudgetError:
            return number
        number += 1


def most_charges(ledger: Ledger) -> int:
    """By one alone: in a file both rules count, where others may append the orders."""
    units = spending.cost_units(plan(2.5)) if is_address(ledger.url) else counts(plan(2.5))
    favoured = spending.favoured_order(units[: len(spending.ORDERS)], epsilon=3 * 10**9, delta=1e-5)
    spent = (spending.counted_units(tuple(n * part for part in units), favoured, 1e-5) for n in itertools.count(1))
    return sum(1 for _ in itertools.takewhile(lambda one: one <= 3 * 10**9, spent))


@pytest.mark.guarantees("races")
@pytest.mark.parametrize("number", [2, 8, pytest.param(32, marks=pytest.mark.slow)])
def test_processes_race_for_the_cap(ledger: Ledger, number: int) -> None:
    """All start with a fork of one open ledger; together they get exactly what one alone would get."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    processes = [
        context.Process(target=lambda k: results.put(spend_all(ledger, f"process {k}")), args=(k,))
        for k in range(number)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sum(results.get() for _ in processes) == ledger.remaining("notes").num_charges == most_charges(ledger)
    ledger.verify()


@kills("crashes", "two writers look before either writes")
@edit("ledger/sqlite.py", '"BEGIN IMMEDIATE" if write else "BEGIN"', '"BEGIN"')
def test_nobody_writes_between_a_look_and_its_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, written, checked = threading.Event(), threading.Event(), pricing.check_promise
    other, slow = copy.copy(ledger), threading.get_ident()

    def charge_too() -> None:
        looked.wait()
        charge(other, "second", plan(2.5))
        written.set()

    def wait_after_the_look(*given: Any) -> None:
        checked(*given)
        if threading.get_ident() == slow:
            looked.set()
            assert not written.wait(0.5)

    monkeypatch.setattr(pricing, "check_promise", wait_after_the_look)
    thread = threading.Thread(target=charge_too)
    thread.start()
    try:
        charge(ledger, "first", plan(2.5))
    finally:
        looked.set()
        thread.join()
        other.close()
    assert [entry.run for entry in ledger.entries() if entry.kind == "charge"] == ["first", "second"]


@pytest.mark.guarantees("races")
def test_threads_race_for_the_cap(ledger: Ledger) -> None:
    """Half of them share one ledger, half bring copies."""
    with ThreadPoolExecutor(8) as pool:
        ways = [ledger if k % 2 else copy.copy(ledger) for k in range(8)]
        counts = list(pool.map(spend_all, ways, [f"thread {k}" for k in range(8)]))
    assert sum(counts) == ledger.remaining("notes").num_charges == most_charges(ledger)
    for way in ways:
        way.close()


def test_a_fork_while_another_thread_is_charging(ledger: Ledger) -> None:
    stop = threading.Event()

    def keep_charging() -> None:
        number = 0
        while not stop.is_set():
            charge(ledger, f"thread {number}", plan(500.0))
            number += 1
            time.sleep(0.001)

    thread = threading.Thread(target=keep_charging)
    thread.start()
    try:
        for k in range(3):
            assert in_child(lambda k=k: charge(ledger, f"child {k}", plan(500.0))) == 0
    finally:
        stop.set()
        thread.join()
    assert all(len(ledger.history(f"child {k}")) == 1 for k in range(3))
    ledger.verify()


@pytest.mark.guarantees("copies")
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_another_way_into_the_same_ledger(ledger: Ledger, duplicate: Callable[[Ledger], Ledger]) -> None:
    with duplicate(ledger) as other:
        receipt = charge(other, "run")
        assert charge(ledger, "run") == receipt
        assert other.uuid == ledger.uuid == receipt.ledger
        assert ledger.remaining("notes") == other.remaining("notes")
        assert ledger.remaining("notes").num_charges == 1


def test_a_copy_never_makes_a_ledger(path: Path) -> None:
    with Ledger(path) as made:
        far = pickle.dumps(made)
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(LedgerError, match="gone"):
        pickle.loads(far).datasets()
    assert list(path.parent.iterdir()) == []
    with Ledger(path):
        pass
    other = pickle.loads(far)
    for _ in range(2):
        with pytest.raises(LedgerError, match="another ledger"):
            other.datasets()


def test_two_makers_at_once(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Ledger(path), range(8)))
    assert len({one.uuid for one in made}) == 1
    for one in made:
        one.close()
    with Ledger(path) as found:
        found.verify()


# ---------------------------------------------------------------- crashes


def acknowledged_after(
    path: Path, work: Callable[[Ledger, Callable[[str], None]], None], seconds: float | None
) -> set[str]:
    """Runs that a forked process was told are charged, before it died or was killed after so many seconds."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        try:
            work(Ledger(path), lambda name: os.write(outlet, f"{name}\n".encode()) and None)
        finally:
            os._exit(0)
    os.close(outlet)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(inlet) as pipe:
        names = {line.strip() for line in pipe}
    os.waitpid(child, 0)
    return names


def keep_charging(tag: str) -> Callable[[Ledger, Callable[[str], None]], None]:
    def work(ledger: Ledger, acknowledge: Callable[[str], None]) -> None:
        for k in range(10_000):
            charge(ledger, f"{tag}-{k}", plan(300.0))
            acknowledge(f"{tag}-{k}")

    return work


def check_all_there(path: Path, names: set[str]) -> None:
    """The ledger is whole, has every charge that was acknowledged, and at most one more for each crash."""
    with Ledger(path) as ledger:
        ledger.verify()
        for name in names:
            assert [entry.kind for entry in ledger.history(name)] == ["charge"]


@pytest.mark.guarantees("durable charges")
def test_killed_at_random_times(path: Path) -> None:
    with Ledger(path) as made:
        made.register("notes", **FACTS)
    names: set[str] = set()
    random.seed(1)
    counts(plan(300.0))  # The accountant's first look is slow: the child inherits it.
    for k in range(8):
        names |= acknowledged_after(path, keep_charging(f"c{k}"), random.uniform(0.0, 0.2))
        check_all_there(path, names)
    assert names
    with Ledger(path) as ledger:
        assert len(names) <= ledger.remaining("notes").num_charges <= len(names) + 8


POINTS = ["BEGIN IMMEDIATE", "INSERT INTO entry", "COMMIT", "before head", "in head", "after head", "after commit"]


@pytest.mark.guarantees("durable charges")
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point_of_a_charge(path: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenth charge dies there; nothing acknowledged is lost, and the same charge again is made once."""
    with Ledger(path) as made:
        made.register("notes", **FACTS)

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def arm(ledger: Ledger) -> None:
        store: Any = ledger._opened()
        if point == "before head":
            store.settle = die
        elif point == "in head":
            monkeypatch.setattr(in_file, "_SYNC", die)
        elif point == "after head":
            write = store._write_head
            store._write_head = lambda head: die(write(head))
        elif point == "after commit":
            settle = store.settle
            store.settle = lambda head: die(settle(head))
        else:
            store._connection.set_trace_callback(lambda sql: die() if sql.startswith(point) else None)

    def work(ledger: Ledger, acknowledge: Callable[[str], None]) -> None:
        for k in range(10):
            if k == 9:
                arm(ledger)
            charge(ledger, f"run-{k}", plan(300.0))
            acknowledge(f"run-{k}")

    def die_at_once(ledger: Ledger, acknowledge: Callable[[str], None]) -> None:
        arm(ledger)
        charge(ledger, "first")
        acknowledge("first")

    assert acknowledged_after(path, die_at_once, None) == set()
    for _ in range(2):  # The file was signed before it, and is not the one that was signed.
        check_all_there(path, set())
    names = acknowledged_after(path, work, None)
    assert names == {f"run-{k}" for k in range(9)}
    check_all_there(path, names)
    with Ledger(path) as ledger:
        on_record = point not in ("BEGIN IMMEDIATE", "INSERT INTO entry", "COMMIT")
        assert len(ledger.history("run-9")) == on_record
        charge(ledger, "run-9", plan(300.0))
        assert ledger.remaining("notes").num_charges == 10 + on_record


@pytest.mark.guarantees("durable charges")
@pytest.mark.parametrize("room", [0, 1, 4096, 9000, 20_000, 33_000, 70_000, 150_000])
def test_a_full_disk(path: Path, room: int) -> None:
    """No file may grow beyond a limit: a typed error, and every charge that was acknowledged is there."""
    with Ledger(path) as made:
        made.register("notes", **FACTS)
    size = path.stat().st_size
    limit = room if room < 4096 else size + room - 4096

    def work(ledger: Ledger, acknowledge: Callable[[str], None]) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            keep_charging("full")(ledger, acknowledge)
        except LedgerError:
            acknowledge("typed")

    names = acknowledged_after(path, work, None)
    assert "typed" in names
    check_all_there(path, names - {"typed"})
    if room == 150_000:
        assert len(names) > 4


def as_nobody(work: Callable[[], object]) -> None:
    """Do something without the rights of root, which ignores permissions."""
    if os.geteuid():
        work()
        return
    os.seteuid(65534)
    try:
        work()
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_written_to() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with Ledger(folder / "budget.db") as made:
            made.register("notes", **FACTS)
            charge(made, "run")
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)

        def work() -> None:
            with pytest.raises(LedgerError, match="ermission"):
                charge(Ledger(folder / "budget.db"), "other")
            with pytest.raises(LedgerError, match="ermission"):
                Ledger(folder / "new.db")
            with Ledger(folder / "budget.db", read_only=True) as found:
                assert found.remaining("notes").num_charges == 1
                found.verify()

        as_nobody(work)
        folder.chmod(0o000)
        with pytest.raises(LedgerError):
            as_nobody(lambda: Ledger(folder / "budget.db"))
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


NETWORK = [
    *("9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda"),
    *("davfs", "davfs2", "drvfs", "fuse", "gfs2", "glusterfs", "gpfs", "gvfsd-fuse"),
    *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs"),
    *("pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "webdav"),
    *(
        "fuse.sshfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.davfs2",
        "fuse.curlftpfs",
        "fuse.gvfsd-fuse",
        "fuse.vmhgfs-fuse",
        "fuse.glusterfs",
    ),
    *("fuse.ceph", "fuse.grpcfuse", "fuse.whatever"),
]
LOCAL = [
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs"),
    *("overlay", "vfat", "exfat", "ntfs3", "fuseblk", "fuse.fuse-overlayfs", "fuse.ntfs-3g"),
]
FOLDERS = [
    "share",
    "my share",
    "donn\u00e9es",
    "\u30c7\u30fc\u30bf",
    "tab\there",
    "line\nend",
    "back\\slash",
    "a\\040b",
    "#5",
]
FOLDERS += [os.fsdecode(b"latin-\xe9"), "\u0130stanbul", "x\u00a0y", "re\rturn", "\u2028", "\x1c"]


def mounted(lines: str, place: Path) -> str:
    """A list of mounts as the kernel writes it, with this folder's name in it."""
    name = b"".join(b"\\%03o" % byte if byte in b" \t\n\\#" else bytes([byte]) for byte in os.fsencode(place))
    return lines.replace("%", os.fsdecode(name))


@pytest.mark.guarantees("network drives")
@kills("names", "a network drive at a folder that is not ASCII")
@edit("ledger/sqlite.py", "os.fsencode(point))", 'point.encode("latin-1", "replace"))')
@pytest.mark.parametrize("folder", FOLDERS, ids=ascii)
def test_network_drives_are_seen_whatever_their_folder_is_called(folder: str) -> None:
    place = Path("/mnt") / folder
    mounts = mounted("/dev/vda / ext4 rw 0 0\nserver:/x % nfs4 rw 0 0\n/dev/vdb %/disk xfs rw 0 0\n", place)
    assert in_file.file_system(place / "budget.db", mounts) == "nfs4"
    assert in_file.file_system(place / "disk" / "budget.db", mounts) == "xfs"
    assert in_file.file_system(Path("/mnt/other/budget.db"), mounts) == "ext4"
    assert in_file.file_system(Path(f"{place}s") / "budget.db", mounts) == "ext4"
    over = mounted("home % nfs4 rw 0 0\nnone % tmpfs rw 0 0\n", place)
    assert in_file.file_system(place / "budget.db", over) == "tmpfs"


@pytest.mark.guarantees("network drives")
@kills("names", "a network drive of a host or of an unknown program")
@edit("ledger/sqlite.py", "return kind in _NETWORK or", "return kind in _NETWORK and")
def test_kinds_of_network_drives() -> None:
    assert [kind for kind in NETWORK if not in_file.is_network(kind)] == []
    assert [kind for kind in LOCAL if in_file.is_network(kind)] == []


# ---------------------------------------------------------------- changes that must be found


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger closed in order, with registrations, charges, events and a refund."""
    folder = tmp_path_factory.mktemp("original")
    with Ledger(folder / "budget.db") as made:
        made.register("notes", **FACTS)
        made.register("letters", **{**FACTS, "epsilon": 5.0})
        made.register("north", **{**FACTS, "epsilon": 5.0}, part_of="letters")
        for k in range(6):
            charge(made, f"run {k}", plan(2.0 + k), dataset=("notes", "letters", "north")[k % 3])
            made.append(f"run {k}", attempt=0, state="released", step=0, digest="ab" * 32)
        made.refund("run 4", unstarted=plan(6.0, 3))
    return folder / "budget.db"


def taken(original: Path, folder: Path) -> Path:
    """A copy of the original's files, under the same name."""
    for file in original.parent.glob("budget.db*"):
        shutil.copy(file, folder / file.name)
    return folder / original.name


def verified(path: Path) -> None:
    with Ledger(path, read_only=True) as found:
        found.verify()


def left_of(path: Path) -> dict[str, float]:
    with Ledger(path) as found:
        return {one.name: found.remaining(one.name).epsilon for one in found.datasets()}


def check_found(path: Path, before: dict[str, float]) -> None:
    """`verify` finds a change; and where opening does not, nothing more may be spent."""
    with pytest.raises(LedgerError):
        verified(path)
    try:
        after = left_of(path)
    except LedgerError:
        return
    assert after.keys() == before.keys()
    assert all(after[name] <= before[name] for name in before)


def flip_bits(original: Path, folder: Path, number: int, seed: int) -> None:
    before = left_of(taken(original, folder))
    draw = random.Random(seed)
    for k in range(number):
        path = taken(original, folder)
        target = path if k % 8 else path.with_name("budget.db.head")
        content = bytearray(target.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        target.write_bytes(content)
        check_found(path, before)


def test_flipped_bits(original: Path, tmp_path: Path) -> None:
    flip_bits(original, tmp_path, 48, seed=1)


def test_an_index_that_leads_astray(original: Path, tmp_path: Path) -> None:
    """A flipped bit makes the charge of "plan" answer to "plao": what is asked for is never what was not charged."""
    content = taken(original, tmp_path).read_bytes()
    key = b'["charge","run 0",0,"plan",null]'
    places = [at for at in range(len(content)) if content.startswith(key, at)]
    assert len(places) == 2  # in the row, and in the index
    refused = 0
    for at in places:
        for kind in ("plan", "plao"):
            path = taken(original, tmp_path)
            path.write_bytes(content[:at] + key.replace(b"plan", b"plao") + content[at + len(key) :])
            with pytest.raises(LedgerError):
                verified(path)
            try:
                with Ledger(path) as found:
                    receipt = charge(found, "run 0", plan(2.0), kind=kind)
                    assert receipt.seq > 17 or kind == "plan"
            except LedgerError:
                refused += 1
    assert refused >= 1


@pytest.mark.guarantees("verify")
@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_many_flipped_bits(original: Path, tmp_path: Path, seed: int) -> None:
    flip_bits(original, tmp_path, 1000, seed)


@pytest.mark.guarantees("verify")
@pytest.mark.parametrize("column", ["body", "cost", "totals"])
@pytest.mark.parametrize("text", ["", "5", "null", "[[", "[" * 100_000, "{}", "[]"])
def test_a_column_that_holds_something_else_is_refused_and_not_read(column: str, text: str) -> None:
    """Whatever stands there: the words of the ledger, and never those of the reader of JSON."""
    entry = Entry(seq=3, kind="charge", key="k", dataset="d", **{column: text})
    read = {"body": "facts", "cost": "cost_units", "totals": "total_units"}[column]
    if text == ("{}" if column == "body" else "[]"):
        assert not getattr(entry, read)
    else:
        with pytest.raises(LedgerError, match=f"row 3: its {column} cannot be read"):
            getattr(entry, read)


@pytest.mark.guarantees("verify")
def test_truncated_at_each_page(original: Path, tmp_path: Path) -> None:
    before = left_of(taken(original, tmp_path))
    size = original.stat().st_size
    for end in range(0, size, 4096):
        path = taken(original, tmp_path)
        os.truncate(path, end)
        check_found(path, before)
        with pytest.raises(LedgerError):
            left_of(path)


def edited(path: Path, *statements: str) -> None:
    """Change a database behind the ledger's back, triggers aside, and sign the file anew as the ledger would."""
    head = path.with_name(f"{path.name}.head")
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    kept = in_file.Head.read(head.read_bytes()[: head.stat().st_size // 2].decode().rstrip())
    head.write_bytes(in_file._doubled(kept.of_file(hashlib.sha256(path.read_bytes()).hexdigest())))


@pytest.mark.guarantees("verify")
@kills("crashes", "a row of a ledger taken without a look at its hash")
@edit("ledger/chain.py", "if entry.hash != entry.digest_of_row:", "if not entry.hash:")
@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["UPDATE entry SET created = 'x' WHERE seq = 5"], "row 5: its hash"),
        (["UPDATE entry SET units = units - 1 WHERE seq = 6"], "row 6"),
        (["UPDATE entry SET seq = 99 WHERE seq = 4", "UPDATE entry SET seq = 4 WHERE seq = 5",
          "UPDATE entry SET seq = 5 WHERE seq = 99"], "row 4"),
        (["DELETE FROM entry WHERE seq = 7"], "row 7 is missing"),
        (["DELETE FROM entry WHERE seq > 15"], "Row 16 is missing"),
        (["DROP INDEX entry_run"], "entry_run"),
        (["UPDATE ledger SET uuid = 'x'"], "row 1: its chain"),
        (["UPDATE entry SET prev = hash WHERE seq = 1"], "row 1: its chain"),
    ],
)  # fmt: skip
def test_edited_rows(original: Path, tmp_path: Path, statements: list[str], found: str) -> None:
    """By somebody who can sign the file, and does not know the chain's rules."""
    path = taken(original, tmp_path)
    before = left_of(path)
    edited(path, *statements)
    with pytest.raises(LedgerError, match=found):
        verified(path)
    check_found(path, before)


def test_the_database_itself_refuses(original: Path, tmp_path: Path) -> None:
    """Another program that writes into the file: no change, no gap, no total but the sum, nothing above the cap."""
    connection = sqlite3.connect(taken(original, tmp_path), isolation_level=None)
    names = [row[1] for row in connection.execute("PRAGMA table_info(entry)")]
    last = dict(zip(names, connection.execute("SELECT * FROM entry ORDER BY seq DESC LIMIT 1").fetchone(), strict=True))
    one = connection.execute(
        "SELECT cost, totals FROM entry WHERE dataset = 'notes' AND totals <> '' ORDER BY seq DESC"
    ).fetchone()
    cost, totals = json.loads(one[0]), json.loads(one[1])
    good = {
        **last, "seq": last["seq"] + 1, "kind": "charge", "key": "new", "dataset": "notes", "prev": last["hash"],
        "cost": json.dumps(cost), "totals": json.dumps([a + b for a, b in zip(totals, cost, strict=True)]),
        "units": 3 * 10**9,
    }  # fmt: skip

    def insert(**changes: object) -> None:
        row = {**good, **changes}
        connection.execute(
            f"INSERT INTO entry ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
        )

    for changes in (
        {"seq": last["seq"] + 2},
        {"prev": "x"},
        {"key": last["key"]},
        {"totals": json.dumps(totals)},
        {"totals": json.dumps([totals[0] + cost[0], *totals[1:]])},
        {"units": 3 * 10**9 + 1},
        {"units": "many"},
    ):
        with pytest.raises(sqlite3.IntegrityError):
            insert(**changes)
    for statement in (
        "DELETE FROM entry",
        "UPDATE entry SET units = 0",
        "DELETE FROM ledger",
        "UPDATE ledger SET uuid = 'x'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="appended"):
            connection.execute(statement)
    insert()
    connection.close()


@pytest.mark.guarantees("set back")
def test_a_lost_log(path: Path, tmp_path: Path) -> None:
    """A copy of the file while it is open, without its -wal: the head knows more."""
    for closed_before in (False, True):
        with Ledger(path) as made:
            made.register("notes", **FACTS)
            for k in range(5):
                charge(made, f"run {k + 5 * closed_before}")
            half, whole = tmp_path / f"half {closed_before}", tmp_path / f"whole {closed_before}"
            half.mkdir()
            for name in ("budget.db", "budget.db.head"):
                shutil.copy(path.with_name(name), half / name)
            whole.mkdir()
            taken(path, whole)
        with pytest.raises(LedgerError, match=r"-wal file|set back"):
            Ledger(half / "budget.db")
        with pytest.raises(LedgerError, match=r"was lost|is missing"):
            verified(half / "budget.db")
        with Ledger(whole / "budget.db") as found:
            assert found.remaining("notes").num_charges == 5 + 5 * closed_before


@pytest.mark.guarantees("set back")
@kills("crashes", "a restored backup taken for the ledger")
@edit(
    "ledger/state.py",
    "state = State.at(head, rows.row, rows.first_charge if store.shared else None)",
    "from dpvb.ledger.verify import walk\n\n    return walk(store.uuid, rows.since(1))",
)
@edit("ledger/state.py", "    if head.uuid != uuid:\n", "    if True:\n        return\n    if head.uuid != uuid:\n")
def test_a_restored_backup(path: Path, tmp_path: Path) -> None:
    with Ledger(path) as made:
        made.register("notes", **FACTS)
        charge(made, "early")
    (tmp_path / "backup").mkdir()
    taken(path, tmp_path / "backup")
    with Ledger(path) as made:
        receipt = charge(made, "late")
    shutil.copy(tmp_path / "backup" / "budget.db", path)
    with pytest.raises(LedgerError, match="set back"):
        Ledger(path)
    with pytest.raises(LedgerError, match="set back"):
        verified(path)
    # With the head restored too, this user still knows.
    shutil.copy(tmp_path / "backup" / "budget.db.head", path.with_name("budget.db.head"))
    seen = Seen(receipt.ledger).path
    with pytest.raises(LedgerError, match=f"set back.*{seen}"):
        Ledger(path)
    with pytest.raises(LedgerError, match=f"set back.*{seen}"):
        verified(path)
    # And where that is lost as well, the receipt of a released model.
    seen.unlink()
    with Ledger(path) as found:
        found.verify()
        with pytest.raises(LedgerError, match=f"Row {receipt.seq} is missing"):
            found.verify([receipt])
        assert charge(found, "other").seq == receipt.seq
        with pytest.raises(LedgerError, match=f"Row {receipt.seq}.*another hash"):
            found.verify([receipt])
        with pytest.raises(LedgerError, match=f"Row {receipt.seq}.*another hash"):
            found.verify([receipt, charge(found, "other")])
        with pytest.raises(LedgerError, match="another ledger"):
            found.verify([Receipt("x", 1, "y", "notes")])


def test_set_back_while_it_is_open(path: Path, tmp_path: Path) -> None:
    made = Ledger(path)
    made.register("notes", **FACTS)
    made.close()
    backup = path.read_bytes()
    charge(made, "run")
    made.close()
    path.write_bytes(backup)
    with pytest.raises(LedgerError, match="set back"):
        charge(made, "other")
    made.close()


@pytest.mark.guarantees("set back")
def test_a_lost_head(original: Path, tmp_path: Path) -> None:
    path = taken(original, tmp_path)
    path.with_name("budget.db.head").unlink()
    with pytest.raises(LedgerError, match="head is missing"):
        Ledger(path)
    with pytest.raises(LedgerError, match="head is missing"):
        verified(path)


def test_a_lost_file(original: Path, tmp_path: Path) -> None:
    path = taken(original, tmp_path)
    path.unlink()
    with pytest.raises(LedgerError, match="was lost"):
        Ledger(path)
    assert not path.exists()


def test_other_formats_and_other_files(original: Path, tmp_path: Path) -> None:
    path = taken(original, tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(LedgerError, match="format 2"):
        Ledger(path)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    content = foreign.read_bytes()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(foreign)
    assert foreign.read_bytes() == content
    text = tmp_path / "text.db"
    text.write_text("Dear diary, " * 100)
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(text)
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(tmp_path / "nothing.db", read_only=True)
    with pytest.raises(LedgerError):
        Ledger(tmp_path)
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.guarantees("clocks")
def test_the_clock_decides_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    charge(ledger, "run 0")
    for k, year in enumerate((1971, 2099, 2016)):
        monkeypatch.setattr("dpvb.ledger._now", lambda year=year: f"{year}-01-01T00:00:00+00:00")
        charge(ledger, f"run {k + 1}")
    left = ledger.remaining("notes")
    ledger.close()
    assert left.num_charges == 4
    with Ledger(ledger.url) as found:
        found.verify()
        assert found.remaining("notes") == left


# ---------------------------------------------------------------- exports


def checked_by_hand(path: Path) -> int:
    """What `verify_export` proves, written down again from the rules alone; returns the number of rows."""
    lines = path.read_text().splitlines()
    uuid = json.loads(lines[0])["ledger"]
    end = hashlib.sha256(f"dpvb ledger 1 {uuid}".encode()).hexdigest()
    caps: dict[str, tuple[int, float, str]] = {}
    totals: dict[str, list[int]] = {}
    favoured: dict[str, int] = {}
    for seq, line in enumerate(lines[1:], 1):
        row = json.loads(line)
        claimed = row.pop("hash")
        assert (row["seq"], row["prev"]) == (seq, end)
        end = hashlib.sha256(json.dumps(row, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        assert end == claimed
        body, name = json.loads(row["body"]), row["dataset"]
        if row["kind"] == "dataset":
            caps[name] = (row["units"], body["delta"], body["part_of"] or name)
            assert row["units"] <= body["epsilon"] * 10**9
        elif row["kind"] != "event":
            cap, delta, whole = caps[name]
            cost = json.loads(row["cost"])
            before = totals.get(name, [0] * len(cost))
            totals[name] = [min(a + b, 2**62) if a < 2**62 else a for a, b in zip(before, cost, strict=True)]
            assert json.loads(row["totals"]) == totals[name]
            assert favoured.setdefault(whole, body["favoured"]) == body["favoured"]
            parts = [one for one, facts in caps.items() if facts[2] == whole and one != whole] or [whole]
            worst = 0
            for part in [name] if name in parts else parts:
                both = [totals.get(one, [0] * len(cost)) for one in {part, whole}]
                worst = max(worst, by_hand([sum(t) for t in zip(*both, strict=True)], delta, body["favoured"]))
            assert worst == row["units"] <= cap
    return len(lines) - 1


def by_hand(totals: list[int], delta: float, favoured: int) -> int:
    """The filter's epsilon, in whole numbers, with 40 digits of mpmath; 0.15 of delta are those of the orders."""
    if not any(totals):
        return 0
    orders, covered = totals[: len(spending.ORDERS)], totals[len(spending.ORDERS) :]
    part = mpmath.mpf("0.15") if covered else 1
    with mpmath.workdps(40):
        shares = [mpmath.mpf(1) / (i - favoured) ** 2 if i != favoured else 0 for i in range(len(orders))]
        found = []
        for total, order, share in zip(orders, spending.ORDERS, shares, strict=True):
            weight = (share / sum(shares) / 4 if share else mpmath.mpf(3) / 4) - mpmath.mpf(10) ** -20
            a, own = mpmath.mpf(order), weight * mpmath.mpf(delta) * part
            offset = mpmath.log((a - 1) / a) - (mpmath.log(own) + mpmath.log(a)) / (a - 1)
            found.append(total + int(mpmath.ceil(offset * 10**9)))
        if not covered:
            return max(0, min(found))
        normal, left_out = covered
        m = mpmath.sqrt(mpmath.mpf(normal) * 2 / 65536 / 10**9)
        share = mpmath.mpf(delta) * 3 / 4

        def beyond(units: int) -> mpmath.mpf:
            epsilon = mpmath.mpf(units) / 10**9
            far = mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)
            return mpmath.ncdf(m / 2 - epsilon / m) - far - share

        low, high = -1, 2**40
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if beyond(middle) <= 0 else (middle, high)
        return max(0, min([*found, high if left_out <= 10**8 else high * 2**40]))


def test_an_export_proves_itself(original: Path, tmp_path: Path) -> None:
    out = tmp_path / "chain.jsonl"
    with Ledger(original, read_only=True) as found:
        found.export(out)
        receipt = Receipt(found.uuid, 4, found.history("run 0")[0].hash, "notes")
    verify_export(out, [receipt])
    assert checked_by_hand(out) == 17
    lines = out.read_text().splitlines(keepends=True)
    for k, change in enumerate(
        (
            [*lines[:5], *lines[6:]],
            [*lines[:5], lines[6], lines[5], *lines[7:]],
            [*lines[:5], lines[5].replace("20", "19"), *lines[6:]],
            lines[:4],
            lines[1:],
            [*lines, "{}\n"],
            [*lines, "nonsense\n"],
            [],
        )
    ):
        broken = tmp_path / f"broken{k}.jsonl"
        broken.write_text("".join(change))
        with pytest.raises(LedgerError):
            verify_export(broken, [receipt])


def test_a_damaged_ledger_can_still_be_exported(original: Path, tmp_path: Path) -> None:
    path = taken(original, tmp_path)
    edited(path, "UPDATE entry SET created = 'x' WHERE seq = 17")
    with pytest.raises(LedgerError, match="read_only=True"):
        Ledger(path)
    with Ledger(path, read_only=True) as found:
        found.export(tmp_path / "chain.jsonl")
        with pytest.raises(LedgerError, match="read_only"):
            charge(found, "run")
    assert len((tmp_path / "chain.jsonl").read_text().splitlines()) == 18
    with pytest.raises(LedgerError, match="row 17"):
        verify_export(tmp_path / "chain.jsonl")


def test_an_export_goes_as_far_as_the_rows_can_be_read(original: Path, tmp_path: Path) -> None:
    path = taken(original, tmp_path)
    content = bytearray(path.read_bytes())
    page = content.rindex(b'"state":"released"') // 4096  # a leaf of the table of rows
    content[4096 * page : 4096 * page + 8] = b"\xff" * 8
    path.write_bytes(content)
    with Ledger(path, read_only=True) as found:
        found.export(tmp_path / "chain.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "chain.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines[1:-1]] == list(range(1, len(lines) - 1))
    assert 1 < len(lines) < 18
    assert "unreadable" in lines[-1]
    with pytest.raises(LedgerError, match="damaged"):
        verify_export(tmp_path / "chain.jsonl")


# ---------------------------------------------------------------- any sequence


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["notes", "whole", "north", "south"]),
            st.sampled_from(["charge", "refund", "same", "reopen", "release"]),
            st.sampled_from([2.0, 4.0, 9.0]),
            st.integers(1, 12),
        ),
        max_size=14,
    )
)
@settings(max_examples=12)
def test_any_sequence_keeps_the_books(steps: list[tuple[str, str, float, int]]) -> None:
    """Against plain sums: totals are those of what was charged and not refunded; no line of parts is over its cap."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "budget.db"
        ledger = Ledger(path)
        for name, whole in (("notes", None), ("whole", None), ("north", "whole"), ("south", "whole")):
            ledger.register(name, **FACTS, part_of=whole)
        books: dict[str, list[int]] = {
            name: [0] * (len(spending.ORDERS) + 2) for name in ("notes", "whole", "north", "south")
        }
        runs: list[tuple[str, str, float, int]] = []
        for k, (name, action, noise, number) in enumerate(steps):
            if action == "charge":
                with suppress(BudgetError):
                    charge(ledger, f"run {k}", plan(noise, number), dataset=name)
                    runs.append((f"run {k}", name, noise, number))
                    books[name] = [a + b for a, b in zip(books[name], counts(plan(noise, number)), strict=True)]
            elif action == "refund" and runs:
                run, name, noise, number = runs.pop(number % len(runs))
                ledger.refund(run, unstarted=plan(noise, number))
                back = (*spending.refund_units(plan(noise, number)), *counts(plan(noise, number))[-2:])
                books[name] = [a - b for a, b in zip(books[name], back, strict=True)]
            elif action == "same" and runs:
                run, name, noise, number = runs[-1]
                charge(ledger, run, plan(noise, number), dataset=name)
            elif action == "reopen":
                ledger.close()
                ledger, runs = Ledger(path), []  # Whoever opens it anew holds no token.
            elif action == "release" and runs:
                ledger.append(runs[-1][0], attempt=0, state="released", step=0, digest=f"{k:02x}") if k % 2 else None
                runs = runs[:-1] if k % 2 else runs
        state = ledger._state
        assert state is not None
        for name, total in books.items():
            assert list(state.totals(name)) == total
            assert state.price(name).spent <= 3 * 10**9
        ledger.verify()
        ledger.close()
        verified(path)


# ---------------------------------------------------------------- many rows


def test_opening_and_charging_do_not_depend_on_the_number_of_rows(path: Path) -> None:
    """Twenty thousand rows are read back by their keys alone: counted in steps of SQLite's machine, not in seconds."""
    with Ledger(path) as made:
        made.register("notes", **FACTS)
        for k in range(3):
            charge(made, f"run {k}", plan(1e5))

    def steps(name: str) -> int:
        count = 0

        def tick() -> None:
            nonlocal count
            count += 1

        with Ledger(path) as found:
            charge(found, f"{name} warm", plan(1e5))
            found._opened()._connection.set_progress_handler(tick, 10)  # type: ignore[attr-defined]
            charge(found, name, plan(1e5))
        return count

    few = steps("few")
    with Ledger(path) as made, made._transaction(write=True) as (rows, state):
        for k in range(3000):
            made._append(
                rows, state, kind="event", key=f"x{k}", dataset="notes", run=f"r{k % 7}", body={"state": "started"}
            )
    assert steps("many") <= 1.5 * few + 20


def test_the_package_knows_it() -> None:
    assert dpvb.Ledger is Ledger


@pytest.mark.guarantees("check notes")
def test_a_look_is_on_record_costs_nothing_and_nothing_follows_it(ledger: Ledger) -> None:
    charge(ledger, "a")
    before = ledger.remaining("notes")
    receipt = ledger.record_data_check("notes")
    assert ledger.record_data_check("notes").seq == receipt.seq + 1
    assert ledger.remaining("notes") == before
    entry = ledger.entries()[receipt.seq - 1]
    assert (entry.kind, entry.dataset, entry.state, entry.cost, entry.units) == ("event", "notes", "looked", "", 0)
    ledger.verify([receipt])
    with pytest.raises(LedgerError, match="has ended"):
        charge(ledger, entry.run)
    with pytest.raises(LedgerError, match="has ended"):
        ledger.append(entry.run, attempt=0, state="started", step=0)
    with pytest.raises(LedgerError, match="never charged"):
        ledger.refund(entry.run, unstarted=SMALL)
    with pytest.raises(LedgerError, match="registered"):
        ledger.record_data_check("others")
    charge(ledger, "b")
    ledger.verify()


@pytest.mark.guarantees("check notes")
def test_a_look_leaves_the_first_plan_its_place(ledger: Ledger) -> None:
    """A first plan may be charged by its own epsilon; a note before it is no plan."""
    ledger.record_data_check("notes")
    assert ledger.remaining("notes").num_charges == 0
    large = Composition([Event("full_batch", 1.0, 1.4)], ADD)
    assert 2.5 < large.epsilon(1e-5) <= 3.0
    charge(ledger, "first", large)
    assert ledger.remaining("notes").sole
