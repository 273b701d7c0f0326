"""Hostile appenders: roles that may append to a ledger in PostgreSQL, and write rows that dpvb never writes.

Either the database refuses such a row, or readers go on with it: it stops no one, and lowers no total.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from postgresql_server import Server
from test_ledger_postgresql import PEOPLE, appender, charge, cost, database, role

from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition
from dpvb.accounting.events import Event
from dpvb.errors import LedgerError
from dpvb.ledger import Dataset, Ledger, chain, pricing
from dpvb.ledger.chain import COLUMNS, Entry, canonical
from dpvb.ledger.run_history import Past
from dpvb.ledger.state import State, dataset_key

psycopg = pytest.importorskip("psycopg")

_INSERT = f"INSERT INTO dpvb.entry ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
_NOT_THEIRS = r"another role|belongs to another owner|has no owner"
_EVENT = {"digest": None, "state": "started", "step": 0}
_LOOK = {"digest": None, "state": "looked", "step": None}


@dataclass
class Team:
    """A keeper's ledger, and the address of it for a role that may append and nothing else."""

    keeper: Ledger
    theirs: str
    server: Server

    @property
    def name(self) -> str:
        return database(self.theirs)


@pytest.fixture
def team(postgresql: Server) -> Iterator[Team]:
    with at_work(postgresql) as team:
        yield team


@contextmanager
def at_work(server: Server) -> Iterator[Team]:
    """A ledger with a whole, a part of it and another data set; the keeper has charged some, and finished one run."""
    with Ledger(server.new_database()) as keeper:
        keeper.register("people", **PEOPLE)
        keeper.register("people.a", **PEOPLE, part_of="people")
        keeper.register("free", **PEOPLE)
        for run in "abc":
            charge(keeper, run)
        keeper.append("a", attempt=0, state="finished")
        theirs = appender(keeper, server)
        with Ledger(theirs) as honest:
            honest.charge("people.a", cost(), run="own", plan_digest="plan", unit="row")
        yield Team(keeper, theirs, server)


def everything(connection: Any) -> tuple[list[Entry], State]:
    """All rows, and what they amount to."""
    rows = [Entry(*row) for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM dpvb.entry ORDER BY seq")]
    end = State(connection.execute("SELECT uuid FROM dpvb.ledger").fetchone()[0], shared=True)
    for number, entry in enumerate(rows):
        go_on(end, rows[:number], entry)
    return rows, end


def go_on(end: State, rows: list[Entry], entry: Entry) -> str:
    """Follow a row, and check that a row which breaks a rule lowers nothing; return the rule."""
    before = {name: end.price(name).counted for name in end.datasets}
    odd = end.follow(entry, lambda run: Past.of(one for one in rows if one.run == run))
    if entry.kind != "refund" or (odd and "says is spent" not in odd):  # The rest of that row may be as it must be.
        assert all(end.price(name).counted >= counted for name, counted in before.items()), entry
    return odd


def counted(ledger: Ledger) -> dict[str, int]:
    """What counts against the cap of each data set."""
    with ledger._transaction() as (_, end):
        return {name: end.price(name).counted for name in end.datasets}


def state(connection: Any) -> State:
    """What all rows amount to."""
    return everything(connection)[1]


def insert(connection: Any, entry: Entry) -> None:
    connection.execute(_INSERT, [getattr(entry, name) for name in COLUMNS])


def insert_by_whom(team: Team, connection: Any, entry: Entry) -> None:
    """Registrations by the keeper, who alone may register; every other row by the role that may only append."""
    if entry.kind != "dataset":
        insert(connection, entry)
        return
    with psycopg.connect(team.keeper.url, autocommit=True) as keeping:
        insert(keeping, entry)


def row(end: State, kind: str, dataset: str, run: str, key: str, body: dict[str, Any], **columns: Any) -> Entry:
    empty: dict[str, Any] = {"attempt": 0, "form": "", "cost": "", "totals": "", "units": 0, "created": ""}
    facts = {**empty, **columns, "kind": kind, "dataset": dataset, "run": run, "key": key}
    return Entry(seq=end.seq + 1, body=canonical(body), prev=end.hash, **facts).sealed()


def charged(
    end: State, run: str, dataset: str = "people", plan: Composition | None = None, kind: str = "charge"
) -> Entry:
    """A charge, or a refund of a plan, as dpvb writes it."""
    plan = plan or cost()
    units = spending.cost_units(plan)
    if kind == "refund":
        units = tuple(-part for part in spending.refund_units(plan))
    price = end.price(dataset, units)
    body: dict[str, Any] = {"cost": plan.to_dict(), "favoured": price.favoured}
    key = chain.refund_key(run)
    if kind != "refund":
        body |= {"kind": "plan", "plan": "plan", "steps": None, "payload": {}}
        key = canonical(["charge", run, 0, "plan", None])
    if kind == "sole":
        body["epsilon"] = 1.0
    numbers = {"cost": canonical(units), "totals": canonical(price.totals), "units": price.spent}
    return row(end, kind, dataset, run, key, body, form=chain.form(plan), **numbers)


def event(end: State, run: str, facts: dict[str, Any], attempt: int = 0, dataset: str = "people") -> Entry:
    key = canonical(["event", run, attempt, facts["state"], facts["step"]])
    return row(end, "event", dataset, run, key, facts, attempt=attempt)


@pytest.mark.guarantees("foreign claims")
@kills("releases", "charges of an earlier accountant forgotten behind a stranger's row")
@edit("ledger/postgresql.py", "_EARLIER = \" AND writer = ''\"", '_EARLIER = ""')
def test_a_form_that_a_stranger_takes_hides_no_charge_of_an_earlier_version(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Composition([Event("fixed_size", 0.05, 3.0, 10, 2.0)], PEOPLE["neighboring_relation"])
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        insert(connection, replace(charged(state(connection), "stranger"), form=chain.form(plan)).sealed())
        end = state(connection)
        before = charged(end, "earlier", plan=plan.scaled(2.0))
        body = canonical({**before.facts, "cost": plan.to_dict()})
        earlier = replace(before, body=body, form=chain.form(plan)).sealed()
    with psycopg.connect(team.keeper.url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # No trigger fires: the row has no writer.
        insert(connection, earlier)
        connection.execute("RESET session_replication_role")
        connection.execute("UPDATE dpvb.head SET seq = seq")
    end.follow(earlier)
    as_said = end.price("people").counted
    end.recount(earlier)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # Who has never seen the ledger begins at its last row.
    with Ledger(team.theirs) as again:
        assert counted(again)["people"] == end.price("people").counted > as_said


def registered(end: State, facts: Dataset) -> Entry:
    return row(end, "dataset", facts.name, "", dataset_key(facts.name), facts.to_dict(), units=facts.cap)


def test_rows_as_dpvb_writes_them_are_accepted(team: Team) -> None:
    """So that each refusal below is one of the change that was made, and not of the rest of the row."""
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        make = [
            lambda end: charged(end, "new"),
            lambda end: charged(end, "first", "free", cost(1e6), kind="sole"),
            lambda end: event(end, "new", _EVENT),
            lambda end: event(end, "new", {"digest": None, "state": "resumed", "step": None}, attempt=1),
            lambda end: registered(end, Dataset("others", "row", "add_or_remove_one", 0.3, 1e-6)),
            lambda end: registered(end, Dataset("others.1", "row", "add_or_remove_one", 0.3, 1e-6, "others")),
            lambda end: charged(end, "own", "people.a", kind="refund"),
            lambda end: event(end, "look", _LOOK),
        ]
        for one in make:
            insert_by_whom(team, connection, one(state(connection)))
    team.keeper.verify()


# Rows that dpvb never writes


def told(entry: Entry, **facts: object) -> Entry:
    return replace(entry, body=canonical({**entry.facts, **facts}))


def refused(end: State) -> dict[str, list[Entry]]:
    """Rows that the database refuses, by the words of the refusal."""
    new, mine = charged(end, "new"), charged(end, "own", "people.a", kind="refund")
    zero = canonical([0] * len(spending.ORDERS))
    everything = canonical([-part for part in end.totals("people")])
    taken = {"cost": everything, "totals": zero, "units": 0}
    many = registered(end, Dataset("others", "row", "add_or_remove_one", 0.3, 1e-6))
    mine_again = event(end, "own", _EVENT, dataset="people.a")
    return {
        "does not follow": [replace(new, seq=new.seq + 1), replace(new, seq=new.seq - 1), replace(new, prev="0" * 64)],
        "unknown kind": [row(end, "nonsense", "people", "", "x", {}), replace(new, kind="Charge")],
        "not registered": [replace(new, dataset="nobody"), event(end, "own", _EVENT, dataset="nobody")],
        "never charged": [
            event(end, "nobody", _EVENT),
            event(end, "look", {**_LOOK, "step": 1}),
            event(end, "look", _LOOK, attempt=1),
            replace(charged(end, "nobody", kind="refund"), **taken),
            replace(charged(end, ""), run=""),
        ],
        "belongs to another role": [
            event(end, "b", _EVENT),
            event(end, "b", _LOOK),
            event(end, "b", {**_EVENT, "state": "finished", "step": None}),
            event(end, "b", {**_EVENT, "state": "resumed", "step": None}, attempt=1),
            charged(end, "b", kind="refund"),
            told(replace(charged(end, "b"), key=canonical(["charge", "b", 0, "again", None])), kind="again"),
        ],
        "another data set": [
            event(end, "own", _EVENT),
            told(replace(charged(end, "own"), key=canonical(["charge", "own", 0, "again", None])), kind="again"),
            *(charged(end, "own", dataset, kind="refund") for dataset in ("people", "free")),
        ],
        "not one of its run": [
            replace(mine, key="x"),
            replace(mine, key='["refund","own" ]'),
            replace(new, key="x"),
            replace(new, key=canonical(["charge", "b", 0, "again", None])),
            replace(new, key='["charge","new"]'),
            replace(new, key=chain.refund_key("b")),
            replace(mine_again, key=chain.refund_key("own")),
        ],
        "totals": [
            replace(new, totals=zero),
            replace(new, totals=new.cost),
            replace(new, totals=new.totals.replace(",", ", ", 1)),
            replace(new, cost=zero),
            replace(mine, cost=everything, totals=zero),
            charged(end, "own", "people.a", cost(10.0), kind="refund"),
        ],
        "not one whole number|invalid input": [
            replace(mine, cost=canonical([1] * len(spending.ORDERS))),
            replace(new, cost="[]", totals="[]"),
            replace(new, cost=canonical(json.loads(new.cost)[1:])),
            replace(new, cost=new.cost.replace("[", "[-", 1)),
            replace(new, cost=new.cost.replace(",", ".0,", 1)),
            replace(new, cost=new.cost.replace(",", ",NULL,", 1)),
            replace(new, cost=new.cost.replace("]", "]\n")),
        ],
        "above the cap": [replace(new, units=2 * 10**9 + 1), replace(new, units=-1)],
        "event with a cost": [
            replace(event(end, "look", _LOOK), units=1),
            *(replace(mine_again, **change) for change in ({"units": 1}, {"cost": zero}, {"totals": zero})),
        ],
        "columns are not those of a registration": [
            replace(many, key="x"),
            replace(many, dataset="people"),
            replace(many, run="b"),
            replace(many, cost=zero, totals=zero),
        ],
        "only the owner of the ledger registers": [
            many,
            registered(end, Dataset("people.b", *PEOPLE.values(), "people")),
            *(
                told(replace(many, dataset=name, key=f"dataset/{name}"), name=name)
                for name in ("\u200b", "x\u00ad", "\u2028", "a\u00a0b", "\U0001f600", "others\n")
            ),
        ],
        "too long": [
            told(new, payload={"x": "y" * 2**18}),
            replace(new, created="\x1b[2J"),
            *(replace(new, **{name: "x" * 201}) for name in ("run", "form")),
            replace(many, dataset="x" * 201, key=f"dataset/{'x' * 201}"),
        ],
    }


def harmless(end: State, number: int) -> list[Entry]:
    """Rows that the database takes, although dpvb never writes them; `number` makes their names unique."""
    new, people = charged(end, f"new {number}"), Dataset(f"set{number}", "row", "add_or_remove_one", 0.3, 1e-6)
    many = registered(end, people)
    own = {"dataset": "people.a"}
    return [
        # Events of one's own run.
        event(end, "own", {**_LOOK, "step": number}, **own),
        *(event(end, "own", {**_EVENT, "step": number}, attempt, **own) for attempt in (1, 2**40)),
        *(
            event(end, "own", {**_EVENT, "step": number, **change}, **own)
            for change in ({"state": f"done {number}"}, {"step": -1 - number}, {"step": number + 0.5}, {"more": 1})
        ),
        *(event(end, f"look {number}", {**_LOOK, **change}) for change in ({"digest": "x"}, {"key": None})),
        # Charges.
        *(charged(end, f"new {number}", name, cost(1e4), kind="sole") for name in ("people", "people.a")),
        *(
            told(new, **change)
            for change in (
                {"kind": "again"},
                {"steps": [-1]},
                {"plan": None},
                {"cost": None},
                {"owner": "short"},
                {"favoured": None},
                {"favoured": len(spending.ORDERS)},
                {"cost": {**new.facts["cost"], "events": []}},
                {"cost": {**new.facts["cost"], "events": new.facts["cost"]["events"] * 1001}},
            )
        ),
        *(replace(new, form=form) for form in ("", "x")),
        # Registrations.
        *(told(many, **change) for change in ({"more": 1}, {"unit": None}, {"neighboring_relation": "none"})),
        *(told(many, **change) for change in ({"name": "people"}, {"epsilon": -1}, {"delta": 1})),
        replace(many, units=many.units + 1),
        *(
            registered(end, replace(people, **change))
            for change in (
                {"part_of": "nobody"},
                {"part_of": "people.a", "epsilon": 2.0, "delta": 1e-5},
                {"part_of": "people", "epsilon": 2.0, "delta": 1e-5},
                {"part_of": "free"},
            )
        ),
        # Bodies that are not canonical JSON, or no JSON.
        *(
            replace(one, body=one.body.replace("{", f'{{"{name}":{value},', 1))
            for one, name in ((many, "unit"), (many, "name"), (new, "kind"), (new, "cost"), (new, "plan"))
            for value in ("1" * 5000, '"x"', "{}")
        ),
        *(replace(new, body=new.body.replace(":", f":{blank}", 1)) for blank in " \t\n"),
        *(
            replace(one, body=body)
            for one in (new, many)
            for body in ("", "{", "[]", '{"x":NaN}', f'{{"x":{"9" * 5000}}}', '{"x":' + "[" * 10**5 + "]" * 10**5 + "}")
        ),
        *(replace(new, body=body) for body in ('{"x":"\\ud800"}', '{"\u00e4":1}', '{"x":"\\u0000"}')),
    ]


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: rows of a run on another data set than its first charge")
@edit("ledger/schema.py", '"beginning.seq IS NULL OR NEW.dataset = beginning.dataset"', '"true"')
@kills("crashes", "PostgreSQL: totals below zero")
@edit("ledger/schema.py", "strpos(NEW.totals, '-') = 0 AND ", "")
@kills("crashes", "PostgreSQL: a row that takes the key of another run")
@edit("ledger/schema.py", "dpvb.canonical_text(NEW.run) || ',')", "'')")
def test_what_would_harm_others_is_refused(team: Team) -> None:
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        for words, entries in refused(state(connection)).items():
            for entry in entries:
                with pytest.raises(psycopg.Error, match=words):
                    insert(connection, entry.sealed())
        with pytest.raises(psycopg.Error, match="its hash"):
            insert(connection, replace(charged(state(connection), "new"), hash="0" * 64))
    charge(team.keeper, "d")
    team.keeper.verify()


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: a registration that breaks a rule stands for a data set")
@edit("ledger/state.py", "        check_registration(facts, self)\n", "")
def test_what_else_dpvb_never_writes_stops_nobody_and_lowers_nothing(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has seen nothing yet, who has seen some of the rows, and who follows row by row find the same."""
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        rows, end = everything(connection)
        for number in range(len(harmless(end, 0))):
            entry = harmless(end, number)[number].sealed()
            insert_by_whom(team, connection, entry)
            go_on(end, rows, entry)
            rows.append(entry)
            if entry.kind == "dataset":  # Also if readers do not take it for a data set.
                paid = charged(end, f"of {entry.dataset}", "free")
                paid = replace(paid, dataset=entry.dataset, totals=paid.cost, units=0).sealed()
                insert(connection, paid)
                go_on(end, rows, paid)
                rows.append(paid)
        connection.execute("UPDATE dpvb.head SET seq = seq")
    expected = {name: end.price(name).counted for name in end.datasets}
    assert counted(team.keeper) == expected
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for address in (team.keeper.url, team.theirs):
        with Ledger(address) as newcomer:
            assert counted(newcomer) == expected
            newcomer.quote(cost(), dataset="people")
            assert newcomer.remaining("people").spent_if_fixed <= newcomer.remaining("people").spent_adaptive
            with pytest.raises(LedgerError, match="dpvb did not write these"):
                newcomer.verify()
    with pytest.raises(LedgerError, match="holds this name"):
        team.keeper.register(
            next(row.dataset for row in rows if row.kind == "dataset" and row.dataset not in end.rows), **PEOPLE
        )
    charge(team.keeper, "last")


@pytest.mark.guarantees("refunds")
@kills("crashes", "PostgreSQL: a refund that breaks a rule is believed")
@edit(
    "ledger/state.py",
    "            self.understate(entry.dataset, [-part for part in cost])\n",
    "            pass\n",
)
@kills("crashes", "PostgreSQL: a newcomer believes a refund that breaks a rule")
@edit("ledger/state.py", "state.understate(name, [-part for part in entry.cost_units])", "pass")
def test_only_what_never_began_comes_back_whoever_writes_the_row(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what began, was done again or finished, no first plan, no more than was charged, and nothing twice."""

    def plan(steps: int, noise: float = 200.0) -> Composition:
        return Composition([Event("full_batch", 1.0, noise, steps)], "add_or_remove_one")

    refunds = {
        "begun": plan(3),
        "again": plan(3),
        "finished": plan(1),
        "first": plan(1, 1e6),
        "more": plan(5),
        "other": plan(1, 100.0),
        "all": plan(1),
    }
    datasets = {"first": "free", "all": "people.a"}
    with Ledger(team.theirs) as honest, psycopg.connect(team.theirs, autocommit=True) as connection:
        for run in (*refunds.keys() - {"first"}, "left"):
            honest.charge(datasets.get(run, "people"), plan(4), run=run, plan_digest="plan", unit="row")
        for run, steps in (("begun", [0, 1]), ("again", [1]), ("left", [0, 1])):
            for step in steps:
                if run == "again":
                    honest.charge("people", plan(1), run=run, plan_digest="plan", unit="row", kind="again", steps=steps)
                else:
                    honest.append(run, attempt=0, state="released", step=step, digest="d")
        honest.append("finished", attempt=0, state="finished")
        insert(connection, charged(state(connection), "first", "free", cost(1e6), kind="sole"))
        for run, back in refunds.items():
            rows, end = everything(connection)
            entry = charged(end, run, datasets.get(run, "people"), back, kind="refund")
            if run == "all":
                everything_charged = [-part for part in end.totals("people.a")]
                totals = canonical([0] * len(spending.ORDERS))
                entry = replace(entry, cost=canonical(everything_charged), totals=totals, units=0).sealed()
            insert(connection, entry)
            assert go_on(end, rows, entry), run
        rows, end = everything(connection)
        before = end.price("people").counted
        insert(connection, charged(end, "left", "people", plan(2), kind="refund"))
        end = state(connection)
        assert end.price("people").counted < before
        with pytest.raises(psycopg.Error, match="duplicate key"):
            insert(connection, charged(end, "left", "people", plan(1), kind="refund"))
        connection.execute("UPDATE dpvb.head SET seq = seq")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    expected = {name: end.price(name).counted for name in end.datasets}
    for ledger in (team.keeper, Ledger(team.keeper.url)):
        assert counted(ledger) == expected
    charge(team.keeper, "last")


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: the writer is who the client says")
@edit("ledger/schema.py", "NEW.writer := current_user;", "NEW.writer := coalesce(NEW.writer, current_user);")
@kills("crashes", "PostgreSQL: a run that anybody may end or take back")
@edit("ledger/schema.py", "OR beginning.writer = current_user\n", "OR true\n")
def test_the_writer_is_who_wrote(team: Team) -> None:
    """Whatever a client sends: a row says which role appended it, and that role's runs are nobody else's."""
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        entry = charged(state(connection), "new")
        names = ", ".join([*COLUMNS, "writer"])
        values = [*(getattr(entry, name) for name in COLUMNS), "admin"]
        connection.execute(f"INSERT INTO dpvb.entry ({names}) VALUES ({', '.join(['%s'] * len(values))})", values)
    found = team.server.execute("SELECT run, writer FROM dpvb.entry ORDER BY seq DESC LIMIT 2", database=team.name)
    assert found == [("new", "analyst"), ("own", "analyst")]
    stranger = appender(team.keeper, team.server, "stranger")
    with Ledger(stranger) as found_by_another:
        for run, dataset in (("own", "people.a"), ("b", "people"), ("new", "people")):
            for attempt, what in ((0, "finished"), (1, "resumed"), (0, "abandoned")):
                with pytest.raises(LedgerError, match=_NOT_THEIRS):
                    found_by_another.append(run, attempt=attempt, state=what)
            with pytest.raises(LedgerError, match=_NOT_THEIRS):
                found_by_another.refund(run, unstarted=cost())
            with pytest.raises(LedgerError, match=_NOT_THEIRS):
                found_by_another.charge(
                    dataset, cost(), run=run, plan_digest="plan", unit="row", kind="again", steps=[0]
                )


def test_members_of_a_role_go_on_with_its_runs(team: Team) -> None:
    role(team.server, "squad")
    appender(team.keeper, team.server, "squad")
    for member in ("member_a", "member_b"):
        team.server.execute(f"GRANT squad TO {role(team.server, member)}")
    addresses = [
        team.server.url(team.name, member, member) + "&options=-crole%3Dsquad" for member in ("member_a", "member_b")
    ]
    with psycopg.connect(addresses[0], autocommit=True) as connection:
        insert(connection, charged(state(connection), "ours"))
    with psycopg.connect(addresses[1], autocommit=True) as connection:
        insert(connection, event(state(connection), "ours", _EVENT))
        connection.execute("RESET ROLE")
        connection.execute("SET ROLE member_b")  # A member of the role that wrote the run, and as such itself allowed.
        insert(connection, event(state(connection), "ours", {**_EVENT, "step": 1}))
    team.keeper.verify()


# Any row


_PIECES = [
    *(
        "",
        "people",
        "people.a",
        "free",
        "nobody",
        "a",
        "b",
        "own",
        "new",
        "x",
        "0",
        "[]",
        "[0]",
        "{}",
        "null",
        "\x01",
        "ä",
    ),
    *("dataset", "charge", "sole", "refund", "event", "\U0001f600\ud7ff", "dataset/people", "\\u0000", '"', "\u200b"),
]
_JSON: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**9,
    1e300,
    "",
    "people",
    "again",
    "plan",
    [],
    [0],
    [1, 2],
    {},
    {"a": [{}]},
]


def changed(draw: random.Random, end: State) -> Entry:
    """A row as dpvb would write it, with up to three of its columns, or facts in its body, exchanged for others."""
    run, dataset = draw.choice([("own", "people.a"), ("b", "people"), ("new", "free"), ("new", "people")])
    plan = cost(draw.choice([20.0, 200.0, 2.0, 1e5]))
    first = entry = draw.choice(
        [
            lambda: charged(end, draw.choice([run, f"run {draw.random()}"]), dataset, plan),
            lambda: charged(end, f"run {draw.random()}", dataset, plan, kind="sole"),
            lambda: charged(end, run, dataset, plan, kind="refund"),
            lambda: event(end, run, {**_EVENT, "step": draw.randrange(9)}, dataset=dataset),
            lambda: registered(end, Dataset(f"set {draw.random()}", "row", "add_or_remove_one", draw.random(), 1e-6)),
        ]
    )()
    for _ in range(draw.randrange(4)):
        name = draw.choice([*COLUMNS, *["body"] * 6, *["cost", "totals"] * 3])
        value = getattr(entry, name)
        if name == "body":
            facts = dict(first.facts)
            field = draw.choice([*facts, "more", "owner", "steps"])
            if draw.random() < 0.3:
                facts.pop(field, None)
            else:
                facts[field] = draw.choice(_JSON)
            new: object = draw.choice([json.dumps(facts)] * 5 + ["[]", "{", '{"x":NaN}', '{"\\u0000":"\\u0000"}'])
        elif name in ("cost", "totals") and value:
            numbers = [int(part) for part in value.strip("[]").split(",") if part.lstrip("-").isdigit()] or [0]
            factor, by = draw.choice([1, -1, 0, 2, 0.5]), draw.choice([0, 1, -1, 10**9])
            new = canonical([int(factor * part) + by for part in numbers][draw.choice([0, 0, 0, 1]) :])
        elif COLUMNS[name] is int:
            new = draw.choice([value + 1, value - 1, 0, -1, 10**9, 2**62, 2**63 - 1])
        else:
            new = draw.choice([*_PIECES, value + " "])
        if name != "hash" or draw.random() < 0.1:
            entry = replace(entry, **{name: new})
    return entry if draw.random() < 0.05 else entry.sealed()


def mutate(team: Team, seed: int, number: int) -> tuple[int, int]:
    """Try to append changed rows; return how many were refused, and how many were taken."""
    draw, taken = random.Random(seed), 0
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        rows, end = everything(connection)
        for _ in range(number):
            entry = changed(draw, end)
            try:
                insert_by_whom(team, connection, entry)
            except psycopg.Error:
                continue
            taken += 1
            go_on(end, rows, entry)
            rows.append(entry)
        connection.execute("UPDATE dpvb.head SET seq = seq")
    assert counted(team.keeper) == {name: end.price(name).counted for name in end.datasets}
    return number - taken, taken


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: one row that no reader takes", "0")
@edit("ledger/schema.py", "f\"NEW.kind IN ('dataset', {', '.join(map(repr, _OF_RUNS))})\"", '"true"')
@pytest.mark.parametrize("seed", range(3))
def test_whatever_row_is_changed_it_is_refused_or_stops_nobody(
    team: Team, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, taken = mutate(team, seed, 150)
    assert refused > 50
    assert taken > 5
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Ledger(team.keeper.url) as newcomer:
        assert counted(newcomer) == counted(team.keeper)
        assert newcomer.remaining("people").epsilon <= PEOPLE["epsilon"]
        newcomer.register("last", **PEOPLE)
        newcomer.charge("last", cost(), run="last", plan_digest="plan", unit="row")
        with pytest.raises(LedgerError, match="dpvb did not write these"):
            newcomer.verify()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_changed_rows_are_refused_or_stop_nobody(
    team: Team, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_whatever_row_is_changed_it_is_refused_or_stops_nobody(team, seed, tmp_path, monkeypatch)


def test_wrong_claims_stop_nobody_and_lower_nothing(team: Team) -> None:
    """What the database cannot compute, readers do: a charge counts with its cost, and `verify` names the row."""
    before = team.keeper.remaining("people").epsilon
    claims: list[dict[str, Any]] = [
        {"units": 0},
        {"units": 2 * 10**9},
        {"facts": {"favoured": 0}},
        {"facts": {"cost": {"form": "composition"}}},
        {"facts": {"cost": {"form": "x", "events": [{"n_steps": "x"}]}}, "form": "0" * 64},
    ]
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        rows, end = everything(connection)
        for number, claim in enumerate(claims):
            honest = charged(end, f"run {number}")
            facts = {**honest.facts, **claim.pop("facts", {})}
            wrong = replace(honest, body=canonical(facts), **claim).sealed()
            insert(connection, wrong)
            end.follow(honest)
            end.hash = wrong.hash
    for ledger in (team.keeper, Ledger(team.keeper.url), Ledger(team.theirs)):
        left = ledger.remaining("people").epsilon
        assert left < before
        assert left == pytest.approx(pricing.left(end, "people") * spending.UNIT)
        with pytest.raises(LedgerError, match=f"row {rows[-1].seq + 1}: .*row {rows[-1].seq + 3}: "):
            ledger.verify()
        ledger.quote(cost(), dataset="people")
    charge(team.keeper, "last")


@kills(
    "crashes",
    "PostgreSQL: a cost that nobody can calculate stops who asks what remains",
    "fixed_size-1e-300-1e+100-1e-300",
)
@edit("ledger/pricing.py", "    except ODD:\n", "    except LookupError:\n")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("sampler", "prob", "noise", "ratio"),
    [
        ("fixed_size", 1e-300, 1e100, 1e-300),
        ("fixed_size", 0.999999999999, 0.1, 1e-300),
        ("poisson", 1e-5, 1e9, 1e-300),
    ],
)
def test_a_cost_that_nobody_can_calculate_stops_nobody(
    team: Team, sampler: str, prob: float, noise: float, ratio: float
) -> None:
    """What all plans would have cost, had they been fixed beforehand, is then what they count as."""
    claim = {"sampler": sampler, "sampling_prob": prob, "noise_multiplier": noise, "n_steps": 10**8}
    said = {**cost().to_dict(), "events": [{**claim, "swap_ratio": ratio}]}
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        wrong = charged(state(connection), "new")
        insert(connection, replace(wrong, body=canonical({**wrong.facts, "cost": said}), form="1" * 64).sealed())
    left = team.keeper.remaining("people")
    assert left.spent_if_fixed <= left.spent_adaptive
    team.keeper.quote(cost(), dataset="people")
    charge(team.keeper, "last")


# What PostgreSQL computes as Python does


@pytest.fixture(scope="module")
def functions(postgresql: Server) -> Iterator[Any]:
    """A connection to a database with a ledger's functions."""
    with Ledger(postgresql.new_database()) as made, psycopg.connect(made.url, autocommit=True) as connection:
        yield connection


def spelled(connection: Any, text: str) -> str:
    return str(connection.execute("SELECT dpvb.canonical_text(%s::text)", [text]).fetchone()[0])


@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_texts_are_spelled_as_python_spells_them(functions: Any, text: str) -> None:
    assert spelled(functions, text) == canonical(text)


def test_every_character_is_spelled_as_python_spells_it(functions: Any) -> None:
    """All of them below 0x3000 and at the ends of each plane, and of the others every 61st."""
    codes = sorted(
        {
            *range(1, 0x3000),
            *range(0x3000, 0x110000, 61),
            *(p + k for p in range(0, 0x110000, 65536) for k in (1, 65535)),
        }
    )
    texts = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    query = "SELECT dpvb.canonical_text(one) FROM unnest(%s::text[]) WITH ORDINALITY AS t (one, n) ORDER BY n"
    assert functions.execute(query, [texts]).fetchall() == [(canonical(text),) for text in texts]


# What a session can change about itself


def _operator(kind: str, sign: str, answer: str) -> tuple[str, str]:
    """One that always gives the same answer."""
    return (
        f"CREATE FUNCTION HERE.always({kind}, {kind}) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT {answer}'",
        f"CREATE OPERATOR HERE.{sign} (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = HERE.always)",
    )


def _function(name: str, arguments: str, value: str) -> tuple[str]:
    """One named as PostgreSQL's."""
    kind = "boolean" if value in ("true", "false") else "integer"
    return (f"CREATE FUNCTION HERE.{name}({arguments}) RETURNS {kind} LANGUAGE sql IMMUTABLE AS 'SELECT {value}'",)


_PLANTED = [
    *(_operator(kind, "=", "true") for kind in ("bigint", "integer", "numeric", "text", "jsonb", "name")),
    *(_operator(kind, "<=", "true") for kind in ("bigint", "integer", "double precision")),
    *(_operator(*one) for one in (("numeric", ">=", "true"), ("text", "~", "true"), ("text", "<>", "false"))),
    _function("jsonb_path_exists", "jsonb, jsonpath", "false"),
    _function("pg_has_role", "oid, text", "true"),
    _function("octet_length", "text", "1"),
]


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: operators of the caller's decide in the triggers")
@edit(
    "ledger/schema.py",
    '            f" SET search_path = {_PATH} AS $body${body}$body$"',
    '            f" AS $body${body}$body$"',
)
@edit("ledger/schema.py", "f plpgsql search_path={_PATH} {body}", "f plpgsql {body}")
def test_nothing_that_a_session_can_change_decides_in_the_triggers(team: Team) -> None:
    """Operators, functions and tables of the caller's, in a schema of its own and in the temporary one."""
    team.server.execute(
        f"GRANT CREATE ON DATABASE {team.name} TO analyst",
        f"ALTER ROLE analyst IN DATABASE {team.name} SET search_path = evil, pg_temp, pg_catalog",
        f"ALTER ROLE analyst IN DATABASE {team.name} SET standard_conforming_strings = off",
        f"ALTER ROLE analyst IN DATABASE {team.name} SET transform_null_equals = on",
        f"ALTER ROLE analyst IN DATABASE {team.name} SET bytea_output = escape",
        f"ALTER ROLE analyst IN DATABASE {team.name} SET quote_all_identifiers = on",
        database=team.name,
    )
    with psycopg.connect(team.keeper.url) as other:
        rows = refused(state(other))
    for planted in _PLANTED:
        with psycopg.connect(team.theirs, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS evil CASCADE")
            connection.execute("CREATE SCHEMA evil")
            for place in ("evil", "pg_temp"):
                for statement in planted:
                    connection.execute(statement.replace("HERE", place))
            for table in ("ledger", "entry", "head"):
                connection.execute(f"CREATE TEMP TABLE {table} (LIKE dpvb.{table})")
            connection.execute("CREATE TEMP VIEW pg_roles AS SELECT 'b'::name AS rolname, 10::oid AS oid")
            for entries in rows.values():
                for entry in entries:
                    with pytest.raises(psycopg.Error):
                        insert(connection, entry.sealed())
            connection.execute("UPDATE dpvb.head SET seq = 0")
    with Ledger(team.theirs) as honest:
        charge(honest, "e")
        honest.verify()
    team.keeper.verify()


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: an analyst chooses the limit")
@edit(
    "ledger/schema.py",
    "\"pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'dpvb.entry'::regclass), 'MEMBER')\"",
    '"true"',
)
def test_only_the_owner_registers_data_sets(team: Team) -> None:
    """Not a new name for the same people, no part, and no higher limit; saying the same again changes nothing."""
    with Ledger(team.theirs) as theirs:
        for name, more in (("people.2", {}), ("free.a", {"part_of": "free"})):
            with pytest.raises(LedgerError, match="only the owner of the ledger registers data sets"):
                theirs.register(name, **PEOPLE, **more)
        with pytest.raises(LedgerError, match="registered with other facts"):
            theirs.register("people", **{**PEOPLE, "epsilon": 9.0})
        theirs.register("people", **PEOPLE)
        charge(theirs, "e")
    team.keeper.register("people.2", **{**PEOPLE, "unit": "\U0001f601"})
    team.keeper.verify()
