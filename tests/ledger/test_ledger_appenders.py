"""Appenders who mean harm: roles that may append to a ledger in PostgreSQL, and write what dpvb never would.

Either the database refuses such a row, or everybody goes on with it and what is spent is no less than before.
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
from dpvb.ledger import Dataset, Ledger, chain, pricing, schema, turns
from dpvb.ledger.chain import COLUMNS, Entry, canonical
from dpvb.ledger.state import State, dataset_key
from dpvb.ledger.verify import walk

psycopg = pytest.importorskip("psycopg")

_INSERT = f"INSERT INTO dpvb.entry ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
_NOT_THEIRS = r"another role|belongs to somebody else|has no owner"
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
    return rows, walk(connection.execute("SELECT uuid FROM dpvb.ledger").fetchone()[0], rows)


def state(connection: Any) -> State:
    """What all rows amount to."""
    return everything(connection)[1]


def insert(connection: Any, entry: Entry) -> None:
    connection.execute(_INSERT, [getattr(entry, name) for name in COLUMNS])


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
    key = turns.refund_key(run)
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


@kills("releases", "charges of an earlier accountant forgotten behind a stranger's row")
@edit("ledger/turns.py", "(store.shared and _has_another_form(one))", "False")
def test_a_form_that_a_stranger_takes_hides_no_charge_of_an_earlier_version(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Composition([Event("fixed_size", 0.05, 3.0, 10, 2.0)], PEOPLE["neighboring_relation"])
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        insert(connection, replace(charged(state(connection), "stranger"), form=chain.form(plan)).sealed())
        before = charged(state(connection), "earlier", plan=plan.scaled(2.0))
        body = canonical({**before.facts, "cost": plan.to_dict()})
        insert(connection, replace(before, body=body, form=chain.form(plan)).sealed())
        counted = state(connection).price("people").counted * spending.UNIT
        connection.execute("UPDATE dpvb.head SET seq = seq")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # Who has never seen the ledger begins at its last row.
    with Ledger(team.theirs) as again:
        assert again.remaining("people").spent_adaptive == counted


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
            lambda end: registered(end, Dataset("others/äя組", "row", "add_or_remove_one", 0.3, 1e-6, "others")),
            lambda end: charged(end, "own", "people.a", kind="refund"),
            lambda end: event(end, "look", _LOOK),
        ]
        for one in make:
            insert(connection, one(state(connection)))
    team.keeper.verify()


# One row each that must be refused, with the words of the refusal


def forged(end: State) -> dict[str, list[Entry]]:
    new, mine = charged(end, "new"), charged(end, "own", "people.a", kind="refund")
    zero = canonical([0] * len(spending.ORDERS))
    everything = canonical([-part for part in end.totals("people")])
    taken = {"cost": everything, "totals": zero, "units": 0}
    people = Dataset("others", "row", "add_or_remove_one", 0.3, 1e-6)
    many = registered(end, people)

    def told(entry: Entry, **facts: object) -> Entry:
        return replace(entry, body=canonical({**entry.facts, **facts}))

    return {
        "does not follow": [replace(new, seq=new.seq + 1), replace(new, seq=new.seq - 1), replace(new, prev="0" * 64)],
        "unknown kind": [row(end, "nonsense", "people", "", "x", {}), replace(new, kind="Charge")],
        "not registered": [replace(new, dataset="nobody"), event(end, "own", _EVENT, dataset="nobody")],
        "never charged": [event(end, "nobody", _EVENT), replace(charged(end, "nobody", kind="refund"), **taken)],
        "belongs to another role": [
            event(end, "b", _EVENT),
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
        "a run of its own": [event(end, "own", _LOOK, dataset="people.a"), event(end, "b", _LOOK)],
        "no turn": [event(end, "own", _EVENT, attempt, "people.a") for attempt in (1, 2**40)],
        "more than its run has left": [
            charged(end, "own", "people.a", cost(10.0), kind="refund"),
            replace(mine, cost=everything, totals=zero),
        ],
        "what a refund says": [
            replace(mine, key="x"),
            replace(mine, cost=canonical([1] * len(spending.ORDERS))),
            told(mine, cost={"form": "composition", "neighboring_relation": "add_or_remove_one", "events": []}),
        ],
        "totals": [
            replace(new, totals=zero),
            replace(new, totals=new.cost),
            replace(new, totals=new.totals.replace(",", ", ", 1)),
            replace(new, cost=zero),
        ],
        "not one whole number": [
            replace(new, cost="[]", totals="[]"),
            replace(new, cost=canonical(json.loads(new.cost)[1:])),
            replace(new, cost=new.cost.replace("[", "[-", 1)),
            replace(new, cost=new.cost.replace(",", ".0,", 1)),
            replace(new, cost=new.cost.replace("]", "]\n")),
        ],
        "above the cap": [replace(new, units=2 * 10**9 + 1), replace(new, units=-1)],
        "first plan and is none": [charged(end, "new", kind="sole"), charged(end, "new", "people.a", kind="sole")],
        "what a charge says": [
            replace(new, key="x"),
            replace(new, key=turns.refund_key("b")),
            told(new, kind="again"),
            told(new, steps=[-1]),
            told(new, plan=None),
            told(new, cost=None),
            told(new, owner="short"),
        ],
        "most of delta": [told(new, favoured=None), told(new, favoured=len(spending.ORDERS)), replace(new, form="")],
        "what an event says": [
            event(end, "own", {**_EVENT, "state": "done"}, dataset="people.a"),
            event(end, "own", {**_EVENT, "step": -1}, dataset="people.a"),
            event(end, "own", {**_EVENT, "step": 1.5}, dataset="people.a"),
            event(end, "own", {**_EVENT, "more": 1}, dataset="people.a"),
            event(end, "look", {**_LOOK, "step": 1}),
            event(end, "look", {**_LOOK, "digest": "x"}),
            event(end, "look", {**_LOOK, "key": None}),
            event(end, "look", _LOOK, attempt=1),
            replace(event(end, "look", _LOOK), units=1),
            replace(event(end, "own", _EVENT, dataset="people.a"), units=1),
            replace(event(end, "own", _EVENT, dataset="people.a"), cost=zero),
            replace(event(end, "own", _EVENT, dataset="people.a"), key=turns.refund_key("b")),
        ],
        "what a registration says": [
            replace(many, key="x"),
            replace(many, dataset="people"),
            replace(many, run="b"),
            told(many, more=1),
            told(many, unit=None),
            told(many, neighboring_relation="none"),
            told(many, name="others\n"),
        ],
        "its cap is none": [told(many, epsilon=-1), told(many, delta=1), replace(many, units=many.units + 1)],
        "keeper of the ledger alone": [
            told(replace(many, dataset=name, key=f"dataset/{name}"), name=name)
            for name in ("\u200b", "x\u00ad", "\ue000", "\u0378", "\u2028", "a\u00a0b", "\U0001f600")
        ],
        "cannot become a part": [
            registered(end, replace(people, name="p", part_of="nobody")),
            registered(end, replace(people, name="p", part_of="people.a", epsilon=2.0, delta=1e-5)),
            registered(end, replace(people, name="p", part_of="people", epsilon=2.0, delta=1e-5)),
            registered(end, replace(people, name="p", part_of="free")),
        ],
        "reads alike": [
            told(replace(many, dataset="x\\u0001", key="dataset/x\\u0001"), name="x\\u0000"),
            told(many, unit="\\u0000"),
            told(many, unit="\0"),
            *(
                replace(one, body=one.body.replace("{", f'{{"{name}":{value},', 1))
                for one, name in ((many, "unit"), (many, "name"), (new, "kind"), (new, "cost"), (new, "plan"))
                for value in ("1" * 5000, '"x"', '"\\u0000"', "{}")
            ),
            replace(new, body=new.body.replace('"form":', '"form":"none","form":', 1)),
            *(replace(new, body=new.body.replace(":", f":{blank}", 1)) for blank in " \t\n"),
            replace(new, body=new.body + " " * 1000),
            replace(new, body=new.body.replace("row", "r\u00f6w") + "\u00e4"),
            told(new, payload={"x": "y" * 2**18}),
            replace(new, body=new.body.replace("{", '{"x":1e99999,', 1)),
            replace(new, body="[]"),
            replace(new, body='{"x":' + "[" * 100 + "]" * 100 + "}"),
            replace(new, body=f'{{"x":{"9" * 5000}}}'),
        ],
        "spelled as they must be": [
            replace(new, created="\x1b[2J"),
            replace(new, form="x"),
        ],
        "invalid|Unicode": [
            *(replace(new, body=body) for body in ("", "{", '{"x":NaN}', '{"x":"\\ud800"}')),
        ],
        "different releases": [
            told(new, cost={**new.facts["cost"], "events": new.facts["cost"]["events"] * 1001}),
        ],
    }


@kills("crashes", "PostgreSQL: rows of a run on another data set than its first charge")
@edit("ledger/schema.py", "IF one.dataset <> beginning.dataset THEN", "IF false THEN")
@kills("crashes", "PostgreSQL: a refund beyond what its run was charged")
@edit("ledger/schema.py", "(SELECT min(part) FROM parts) >= 0 AND ", "")
@kills("crashes", "PostgreSQL: a body that two readers read in two ways")
@edit("ledger/schema.py", "(SELECT count(*) FROM regexp_matches(bones, '\":', 'g')) = (", "0 <= (")
def test_what_dpvb_never_writes_is_refused(team: Team) -> None:
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        for words, entries in forged(state(connection)).items():
            for entry in entries:
                with pytest.raises(psycopg.Error, match=words):
                    insert(connection, entry.sealed())
        with pytest.raises(psycopg.Error, match="its hash"):
            insert(connection, replace(charged(state(connection), "new"), hash="0" * 64))
    charge(team.keeper, "d")
    team.keeper.verify()


def test_a_run_has_one_end_and_one_refund(team: Team) -> None:
    def says(words: str) -> dict[str, Any]:
        return {"digest": None, "state": words, "step": None}

    with psycopg.connect(team.theirs, autocommit=True) as connection:
        for run in ("x", "y"):
            insert(connection, charged(state(connection), run, plan=cost(200.0)))
        insert(connection, event(state(connection), "x", says("finished")))
        insert(connection, charged(state(connection), "y", plan=cost(200.0), kind="refund"))
        for run in ("x", "y"):
            for what in ("started", "resumed", "finished", "abandoned"):
                with pytest.raises(psycopg.Error, match="has ended"):
                    insert(connection, event(state(connection), run, says(what), attempt=int(what == "resumed")))
            with pytest.raises(psycopg.Error, match="has ended"):
                insert(connection, charged(state(connection), run, plan=cost(200.0), kind="refund"))
    team.keeper.verify()


def test_what_has_begun_or_was_done_again_never_comes_back(team: Team) -> None:
    """Steps in events and in charges of steps that are done again count, and such charges give nothing back."""
    plan, one = (Composition([Event("full_batch", 1.0, 200.0, n)], "add_or_remove_one") for n in (4, 1))
    with Ledger(team.theirs) as honest, psycopg.connect(team.theirs, autocommit=True) as connection:
        honest.charge("people", plan, run="x", plan_digest="plan", unit="row")
        honest.append("x", attempt=0, state="released", step=0, digest="d")
        honest.charge("people", one, run="x", plan_digest="plan", unit="row", kind="again", steps=[1])
        for steps, fits in ((4, False), (3, False), (2, True)):
            back = Composition([Event("full_batch", 1.0, 200.0, steps)], "add_or_remove_one")
            entry = charged(state(connection), "x", plan=back, kind="refund")
            if fits:
                insert(connection, entry)
            else:
                with pytest.raises(psycopg.Error, match="more than its run has left"):
                    insert(connection, entry)
    team.keeper.verify()


@kills("crashes", "PostgreSQL: a refund beyond what counts as infinite")
@edit("ledger/schema.py", "SELECT least({SATURATED}, sum(part)", "SELECT greatest(0, sum(part)")
def test_no_more_comes_back_than_counts_as_infinite(team: Team) -> None:
    """Readers cut what a run was charged there; whatever is asked back above it stops nobody."""
    much = canonical([spending.SATURATED + 1] * len(spending.ORDERS))
    totals = canonical([spending.SATURATED] * len(spending.ORDERS))
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        end = replace(state(connection), shared=True)
        paid = replace(charged(end, "x", "free"), cost=much, totals=totals).sealed()
        insert(connection, paid)
        end.follow(paid)
        back = replace(charged(end, "x", "free", kind="refund"), totals=totals, units=0)
        for part, fits in ((spending.SATURATED + 1, False), (spending.SATURATED, True)):
            entry = replace(back, cost=canonical([-part] * len(spending.ORDERS))).sealed()
            if fits:
                insert(connection, entry)
            else:
                with pytest.raises(psycopg.Error, match="more than its run has left"):
                    insert(connection, entry)
    charge(team.keeper, "last")


@kills("crashes", "PostgreSQL: the writer is who the client says")
@edit("ledger/schema.py", "NEW.writer := current_user;", "NEW.writer := coalesce(NEW.writer, current_user);")
@kills("crashes", "PostgreSQL: a run that anybody may end or take back")
@edit("ledger/schema.py", "(beginning.writer = current_user OR", "(true OR")
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


def computed(entry: Entry, end: State) -> Entry:
    """The row with what the database cannot compute, as every reader does."""
    if not entry.totals:
        return entry
    price = end.price(entry.dataset, tuple(json.loads(entry.cost)))
    facts = {**entry.facts, "favoured": price.favoured}
    return replace(entry, units=price.spent, body=canonical(facts)).sealed()


def mutate(team: Team, seed: int, number: int) -> tuple[int, int]:
    """Try to append so many changed rows; how many were refused, and how many were taken."""
    draw, taken = random.Random(seed), 0
    with psycopg.connect(team.theirs, autocommit=True) as connection:
        rows, end = everything(connection)
        for _ in range(number):
            entry = changed(draw, end)
            try:
                with connection.transaction():
                    insert(connection, entry)
                    as_read = computed(entry, end)
                    over = entry.kind == "charge" and as_read.units > end.datasets[entry.dataset].cap
                    if over or as_read.units != entry.units or as_read.facts != entry.facts:
                        if not over:
                            walk(end.uuid, [*rows, as_read])
                        raise psycopg.Rollback
            except psycopg.Error:
                continue
            taken += 1
            before, (rows, end) = end, everything(connection)
            for name in before.datasets:
                if not (entry.kind == "refund" and entry.run in ("own", "new")):
                    assert all(map(int.__le__, before.totals(name), end.totals(name))), entry
    return number - taken, taken


@kills("crashes", "PostgreSQL: one row that no reader takes", "0")
@edit(
    "ledger/schema.py",
    "WHEN (NEW.kind IN ('event', 'charge', 'sole', 'refund')) IS NOT TRUE THEN 'it has an unknown kind'",
    "WHEN (NEW.kind IN ('event', 'charge', 'sole', 'refund')) IS NOT TRUE THEN NULL",
)
@edit("ledger/schema.py", "ELSE dpvb.charge_fault(NEW, facts)", "WHEN 'charge' THEN NULL")
@edit("ledger/schema.py", "IF NEW.kind <> 'event' AND fault IS NULL THEN", "IF NEW.kind = 'charge' THEN")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_row_is_changed_it_is_refused_or_stops_nobody(team: Team, seed: int) -> None:
    refused, taken = mutate(team, seed, 150)
    assert refused > 50
    assert taken > 5
    with Ledger(team.keeper.url) as newcomer:
        assert newcomer.remaining("people").epsilon <= PEOPLE["epsilon"]
        newcomer.register("last", **PEOPLE)
        newcomer.charge("last", cost(), run="last", plan_digest="plan", unit="row")
        newcomer.verify()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_changed_rows_are_refused_or_stop_nobody(team: Team, seed: int) -> None:
    test_whatever_row_is_changed_it_is_refused_or_stops_nobody(team, seed)


def test_wrong_claims_stop_nobody_and_lower_nothing(team: Team) -> None:
    """What the database cannot compute, readers do: a charge counts with its cost, and `verify` names the row."""
    before = team.keeper.remaining("people").epsilon
    claims: list[dict[str, Any]] = [
        {"units": 0},
        {"units": 2 * 10**9},
        {"facts": {"favoured": 0}},
        {"facts": {"cost": {"form": "composition"}}},
        {"facts": {"cost": {"form": "x", "events": [{"num_steps": "x"}]}}, "form": "0" * 64},
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
@edit("ledger/pricing.py", "            except ODD:\n", "            except LookupError:\n")
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
    claim = {"sampler": sampler, "sampling_prob": prob, "noise_multiplier": noise, "num_steps": 10**8}
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


@given(epsilon=st.floats(0, 1e6) | st.decimals(0, 1000, places=9).map(float))
def test_a_cap_is_rounded_as_python_rounds_it(functions: Any, epsilon: float) -> None:
    found = functions.execute("SELECT dpvb.cap((%s::jsonb #>> '{}')::float8)", [json.dumps(epsilon)]).fetchone()[0]
    assert found == spending.cap_units(epsilon)


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


@kills("crashes", "PostgreSQL: operators of the caller's decide in the triggers")
@edit(
    "ledger/schema.py",
    '            f" SET search_path = {_PATH} AS $body${body}$body$"',
    '            f" AS $body${body}$body$"',
)
@edit("ledger/schema.py", 'body, False, f"search_path={_PATH}", "plpgsql")', 'body, False, None, "plpgsql")')
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
        rows = forged(state(other))
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


def test_letters_of_names_are_printable_to_everybody(team: Team) -> None:
    """Appenders register no name of one character that a reader could refuse."""
    codes = [*range(1, 0xD800), *range(0xE000, 0x110000, 97)]
    query = "SELECT one FROM unnest(%s::text[]) AS t (one) WHERE one ~ %s"
    with psycopg.connect(team.theirs) as connection:
        found = connection.execute(query, [[chr(code) for code in codes], f"^[{schema._LETTERS}]$"]).fetchall()
    assert len(found) > 30_000
    assert all(one.isprintable() for (one,) in found)
    with Ledger(team.theirs) as honest, pytest.raises(LedgerError, match="keeper of the ledger alone"):
        honest.register("people.2", **{**PEOPLE, "unit": "\U0001f601"})
