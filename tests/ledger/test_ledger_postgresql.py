"""A ledger in a real PostgreSQL server: what the database itself refuses, and what it may not tell."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CliRunner
from planted import edit, kills
from postgresql_server import Server, running

import dpvb
from dpvb import cli
from dpvb.accounting.costs import Composition
from dpvb.accounting.events import Event
from dpvb.core.noise import InsecureNoise
from dpvb.errors import BudgetError, LedgerError, LedgerUnreachableError, ParameterError
from dpvb.ledger import Ledger, Receipt
from dpvb.ledger.address import without_password
from dpvb.ledger.chain import COLUMNS, Entry
from dpvb.ledger.postgresql import PostgreSQLStore
from dpvb.runs.run import opened

psycopg = pytest.importorskip("psycopg")

GRANTS = (
    "GRANT USAGE ON SCHEMA dpvb TO analyst",
    "GRANT SELECT ON dpvb.ledger, dpvb.entry, dpvb.head TO analyst",
    "GRANT INSERT ON dpvb.entry TO analyst",
    "GRANT UPDATE (seq) ON dpvb.head TO analyst",
)
PEOPLE = {"unit": "row", "neighboring_relation": "add_or_remove_one", "epsilon": 2.0, "delta": 1e-5}


def cost(noise_multiplier: float = 20.0) -> Composition:
    return Composition([Event("full_batch", 1.0, noise_multiplier)], "add_or_remove_one")


def charge(ledger: Ledger, run: str, noise_multiplier: float = 20.0, digest: str = "plan") -> int:
    return ledger.charge("people", cost(noise_multiplier), run=run, plan_digest=digest, unit="row").seq


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away is not asked again, unless a test is about that."""
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 0.0)


@pytest.fixture
def url(postgresql: Server) -> str:
    """Address of a database without a ledger."""
    return postgresql.new_database()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """A ledger with one data set and two charges."""
    with Ledger(url) as made:
        made.register("people", **PEOPLE)
        charge(made, "a")
        charge(made, "b")
        yield made


def rows(ledger: Ledger) -> list[Entry]:
    """All rows, as they are."""
    store = PostgreSQLStore(ledger.url, uuid="", created="", read_only=True)
    with store.transaction(write=False) as transaction:
        found = list(transaction.since(1))
    store.close()
    return found


@pytest.mark.guarantees("append only")
@kills("crashes", "PostgreSQL: the head is what a client says")
@edit("ledger/schema.py", "    NEW := OLD;\n", "")
def test_nobody_moves_the_head_but_to_the_last_row(ledger: Ledger, postgresql: Server) -> None:
    """Whoever updates it: the owner, or a role that may append."""
    query = "SELECT * FROM dpvb.head"
    kept = postgresql.execute(query, database=database(ledger.url))
    theirs, earlier = appender(ledger, postgresql), appender(ledger, postgresql, "earlier")
    postgresql.execute("GRANT UPDATE ON dpvb.head TO earlier", database=database(ledger.url))
    for address in (ledger.url, theirs, earlier):
        with psycopg.connect(address, autocommit=True) as connection:
            for change in ("seq = 1", "seq = 99", "hash = 'x'", "datasets = '{}'", "one = NULL", "one = false"):
                refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
                with refused if address == theirs and "seq" not in change else nullcontext():
                    connection.execute(f"UPDATE dpvb.head SET {change}")
                assert connection.execute(query).fetchall() == kept
    with psycopg.connect(theirs, autocommit=True) as connection:
        for mode in ("ACCESS EXCLUSIVE", "EXCLUSIVE", "SHARE"):
            for table in ("head", "entry", "ledger"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"BEGIN; LOCK TABLE dpvb.{table} IN {mode} MODE")
                connection.execute("ROLLBACK")
    ledger.verify()


def appender(ledger: Ledger, server: Server, name: str = "analyst") -> str:
    """Address of a ledger for a role that may append and nothing else."""
    made = role(server, name)
    server.execute(*(grant.replace("analyst", made) for grant in GRANTS), database=database(ledger.url))
    return server.url(database(ledger.url), made, made)


def role(server: Server, name: str) -> str:
    if not server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
        server.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
    return name


def database(url: str) -> str:
    return url.split("/")[3].split("?")[0]


# The database itself


@pytest.mark.guarantees("verify")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dpvb.entry SET units = 0",
        "UPDATE dpvb.entry SET units = 0 WHERE false",
        "DELETE FROM dpvb.entry",
        "TRUNCATE dpvb.entry",
        "UPDATE dpvb.ledger SET format = 2",
        "DELETE FROM dpvb.ledger",
        "TRUNCATE dpvb.ledger",
        "DELETE FROM dpvb.head",
        "TRUNCATE dpvb.head",
    ],
)
def test_nothing_is_changed_or_removed(ledger: Ledger, postgresql: Server, statement: str) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="only ever appended"):
        postgresql.execute(statement, database=database(ledger.url))
    ledger.verify()


def test_a_role_can_append_and_nothing_else(ledger: Ledger, postgresql: Server) -> None:
    grants = [
        line.strip(" ;") for line in sys.modules[PostgreSQLStore.__module__].__doc__.splitlines() if "GRANT" in line
    ]
    assert tuple(grants) == GRANTS
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert all(f"\n{grant};" in page for grant in GRANTS)
    name = role(postgresql, "analyst")
    postgresql.execute("GRANT ALL ON dpvb.entry, dpvb.head TO analyst", database=database(ledger.url))
    assert ledger.grant("analyst")[1:] == list(GRANTS)
    theirs = postgresql.url(database(ledger.url), name, name)
    with Ledger(theirs) as found:
        charge(found, "c")
        assert found.remaining("people").num_charges == 3
        with pytest.raises(BudgetError):
            charge(found, "d", 0.5)
        found.verify()
    with psycopg.connect(theirs, autocommit=True) as connection:
        for statement in (
            "UPDATE dpvb.entry SET units = 0",
            "DELETE FROM dpvb.entry",
            "TRUNCATE dpvb.entry",
            "ALTER TABLE dpvb.entry DISABLE TRIGGER ALL",
            "DROP TRIGGER entry_stays ON dpvb.entry",
            "CREATE OR REPLACE FUNCTION dpvb.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "SET session_replication_role = replica",
            "DELETE FROM dpvb.head",
            "INSERT INTO dpvb.head VALUES (false)",
            "CREATE FUNCTION dpvb.digest(text) RETURNS text LANGUAGE sql AS 'SELECT 1'",
            "CREATE TABLE children () INHERITS (dpvb.entry)",
            "INSERT INTO dpvb.ledger VALUES ('x', 1, '')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    ledger.verify()


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("ALTER TABLE dpvb.entry DISABLE TRIGGER entry_stays", "entry_stays"),
        ("DROP TRIGGER entry_follows ON dpvb.entry", "entry_follows"),
        (
            "CREATE OR REPLACE FUNCTION dpvb.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "refuse",
        ),
        ("ALTER FUNCTION dpvb.check_entry() SECURITY DEFINER", "check_entry"),
        ("ALTER FUNCTION dpvb.digest(dpvb.entry) RESET search_path", "digest"),
        ("CREATE FUNCTION dpvb.digest(text) RETURNS text LANGUAGE sql AS 'SELECT 1::text'", "digest"),
        (
            "CREATE TRIGGER z BEFORE INSERT ON dpvb.entry FOR EACH ROW"
            " EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
            "trigger z",
        ),
        ("ALTER TRIGGER entry_follows ON dpvb.entry RENAME TO follows", "entry_follows"),
        ("ALTER TABLE dpvb.entry ENABLE ROW LEVEL SECURITY", "table entry"),
        ("CREATE RULE nothing AS ON INSERT TO dpvb.entry DO INSTEAD NOTHING", "table entry"),
        ("ALTER TABLE dpvb.entry SET UNLOGGED", "table entry"),
        ("ALTER TABLE dpvb.entry OWNER TO pg_monitor", "entry, .* have another owner"),
        ("ALTER FUNCTION dpvb.refuse() OWNER TO pg_monitor", "refuse in the schema dpvb have another owner"),
        ("DROP INDEX dpvb.entry_run", "entry_run"),
        ("DELETE FROM dpvb.entry WHERE seq = 3", "Row 3 is missing"),
        ("UPDATE dpvb.head SET hash = 'x'", "the head says otherwise"),
        ("UPDATE dpvb.head SET datasets = '{}'", "the head says otherwise"),
        ("UPDATE dpvb.head SET seq = 4", "Row 4 is missing"),
        ("DELETE FROM dpvb.entry WHERE seq = 2", "row 2 is missing"),
        ("UPDATE dpvb.entry SET units = units - 1 WHERE seq = 2", "row 2: .*hash"),
        ("UPDATE dpvb.entry SET seq = 5 - seq WHERE seq IN (2, 3)", "row 2: .*"),
        ("DELETE FROM dpvb.head", "head"),
        ("DELETE FROM dpvb.ledger", "format"),
        ("UPDATE dpvb.ledger SET format = 99", "format 99"),
    ],
)
def test_verify_finds_what_a_superuser_did(ledger: Ledger, postgresql: Server, statement: str, match: str) -> None:
    if "seq = 5 - seq" in statement:  # Unique keys are checked row by row.
        statement = "UPDATE dpvb.entry SET seq = -seq WHERE seq > 1; UPDATE dpvb.entry SET seq = 5 + seq WHERE seq < 0"
    commands = [statement] if "FUNCTION" in statement else statement.split("; ")
    behind = "SET session_replication_role = replica"  # No trigger fires.
    postgresql.execute(behind, *commands, database=database(ledger.url))
    with pytest.raises(LedgerError, match=match), Ledger(ledger.url, read_only=True) as found:
        found.verify()


@kills("crashes", "PostgreSQL: a part of which a charge was changed is forgotten")
@edit(
    "ledger/state.py",
    "first = {name: first(name) for name, (_, charge) in head.datasets.items() if charge}.get",
    "pass",
)
@pytest.mark.parametrize("column", ["units", "totals", "run"])
def test_a_changed_charge_of_a_part_is_found_when_a_ledger_is_opened(
    ledger: Ledger, postgresql: Server, column: str
) -> None:
    ledger.register("all", **PEOPLE)
    ledger.register("north", **PEOPLE, part_of="all")
    for run in ("first", "second"):
        first = ledger.charge("north", cost(), run=run, plan_digest="plan", unit="row").seq
    value = "units + 1" if column == "units" else f"{column} || 'x'"
    behind = "SET session_replication_role = replica"
    postgresql.execute(
        behind, f"UPDATE dpvb.entry SET {column} = {value} WHERE seq = {first - 1}", database=database(ledger.url)
    )
    with pytest.raises(LedgerError, match=f"row {first - 1}: its hash does not fit"):
        Ledger(ledger.url, read_only=True).remaining("all")


def test_a_server_that_may_lose_charges_is_refused() -> None:
    with running(fsync="off") as server, pytest.raises(LedgerError, match="fsync"):
        Ledger(server.new_database())


# Whose the schema is


@pytest.fixture
def maker(postgresql: Server, url: str) -> str:
    """Address of the same database for a role that may make schemas in it, and does not own it."""
    name = role(postgresql, "maker")
    postgresql.execute(f"GRANT CREATE ON DATABASE {database(url)} TO {name}")
    return postgresql.url(database(url), name, name)


@pytest.mark.guarantees("foreign schemas")
@kills("crashes", "PostgreSQL: a ledger that somebody else made beforehand")
@edit("ledger/postgresql.py", "        if not believed:\n", "        if not owner:\n")
def test_a_ledger_that_somebody_else_made_beforehand_is_refused(postgresql: Server, url: str, maker: str) -> None:
    """By the administrator, by the database's owner and by another role that may make schemas."""
    with Ledger(maker) as trap:
        trap.register("people", **PEOPLE)
    with psycopg.connect(maker, autocommit=True) as connection:
        for grant in GRANTS:
            connection.execute(grant.replace("analyst", "PUBLIC"))
    for name in ("owner", "another_maker"):
        role(postgresql, name)
    postgresql.execute(
        f"ALTER DATABASE {database(url)} OWNER TO owner",
        f"GRANT CREATE ON DATABASE {database(url)} TO another_maker",
        f"GRANT CREATE ON DATABASE {database(url)} TO maker",
    )
    others = ("owner", "another_maker")
    for address in (url, *(postgresql.url(database(url), name, name) for name in others)):
        for read_only in (False, True):
            with pytest.raises(LedgerError, match="schema dpvb of the role 'maker'"):
                Ledger(address, read_only=read_only)
    with Ledger(f"{url}&options=-crole%3Dmaker") as found:
        assert found.remaining("people").epsilon == PEOPLE["epsilon"]
    with Ledger(maker) as trap:
        charge(trap, "its own")


@pytest.mark.guarantees("foreign schemas")
def test_an_empty_schema_of_somebody_else_is_not_built_in(postgresql: Server, url: str, maker: str) -> None:
    with psycopg.connect(maker, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA dpvb")
        connection.execute("GRANT ALL ON SCHEMA dpvb TO PUBLIC")
    with pytest.raises(LedgerError, match="schema dpvb of the role 'maker'"):
        Ledger(url)
    assert not postgresql.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'dpvb'", database=database(url))


def test_a_schema_made_for_its_keeper_is_built_in(postgresql: Server, url: str) -> None:
    """By the keeper itself, who may make nothing else, or by a member of the role that keeps it."""
    for name in ("keeper", "deputy"):
        role(postgresql, name)
    postgresql.execute("GRANT keeper TO deputy")
    for name in ("keeper", "deputy"):
        postgresql.execute(
            "DROP SCHEMA IF EXISTS dpvb CASCADE", "CREATE SCHEMA dpvb AUTHORIZATION keeper", database=database(url)
        )
        with Ledger(postgresql.url(database(url), name, name)) as made:
            made.register("people", **PEOPLE)
            charge(made, "a")
            made.verify()
            with Ledger(appender(made, postgresql)) as theirs:
                charge(theirs, "b")
    owners = "SELECT DISTINCT tableowner::text FROM pg_tables WHERE schemaname = 'dpvb'"
    assert postgresql.execute(owners, database=database(url)) == [("keeper",)]


def test_a_role_that_looks_charges_nothing(ledger: Ledger, postgresql: Server) -> None:
    name = role(postgresql, "auditor")
    ledger.grant(name)
    assert ledger.grant(name, append=False)[1:] == [grant.replace("analyst", name) for grant in GRANTS[:2]]
    theirs = postgresql.url(database(ledger.url), name, name)
    with Ledger(theirs, read_only=True) as found:
        assert found.remaining("people") == ledger.remaining("people")
        found.verify()
        with pytest.raises(LedgerError, match="gives rights in it"):
            found.grant("analyst")
    with pytest.raises(LedgerError, match="permission denied"), Ledger(theirs) as found:
        charge(found, "more")
    ledger.verify()


def test_rights_are_given_to_one_role_by_the_owner_and_in_a_database(
    ledger: Ledger, postgresql: Server, tmp_path: Path
) -> None:
    postgresql.execute('CREATE ROLE "Ana ""x"" y"')
    assert ledger.grant('Ana "x" y')[1] == 'GRANT USAGE ON SCHEMA dpvb TO "Ana ""x"" y"'
    for nobody in ("public", "PUBLIC", "current_user", "no_such_role", "analyst; DROP TABLE dpvb.entry", ""):
        with pytest.raises(LedgerError, match="has no role"):
            ledger.grant(nobody)
    (owner,) = {row[0] for row in postgresql.execute(OWNER, database=database(ledger.url))}
    with pytest.raises(LedgerError, match="owns the ledger"):
        ledger.grant(owner)
    with Ledger(tmp_path / "budget.db") as file, pytest.raises(ParameterError, match="has no roles"):
        file.grant("analyst")
    ledger.verify()


OWNER = "SELECT DISTINCT tableowner::text FROM pg_tables WHERE schemaname = 'dpvb'"


# Ledgers of earlier versions

EARLIER = Path(__file__).parents[1] / "golden" / "earlier_postgresql.sql"


@pytest.fixture
def earlier(postgresql: Server, url: str) -> str:
    """Address of a ledger as version 0.2 made it: runs a (finished), b (under way) and c (refunded)."""
    postgresql.execute(EARLIER.read_text(), database=database(url))
    return url


def raw(postgresql: Server, url: str) -> list[Any]:
    return postgresql.execute(f"SELECT {', '.join(COLUMNS)} FROM dpvb.entry ORDER BY seq", database=database(url))


def test_a_ledger_of_an_earlier_version_is_upgraded_by_its_owner(postgresql: Server, earlier: str) -> None:
    """`dpvb ledger init` does it; rows and rights stay, and repeating the command changes nothing."""
    before = raw(postgresql, earlier)
    role(postgresql, "analyst")
    postgresql.execute(*GRANTS, database=database(earlier))
    theirs = postgresql.url(database(earlier), "analyst", "analyst")
    for address, read_only in ((theirs, False), (theirs, True), (earlier, True)):
        with pytest.raises(LedgerError, match="its owner must open the ledger once"):
            Ledger(address, read_only=read_only)
    for _ in range(2):
        done = CliRunner().invoke(cli.app, ["ledger", "init", earlier])
        assert (done.exit_code, done.stderr) == (0, "")
        assert "is ready, with 1 data set." in done.stdout
    with Ledger(earlier) as upgraded:
        upgraded.verify()
        assert raw(postgresql, earlier) == before
        assert 0 < upgraded.remaining("people").epsilon < PEOPLE["epsilon"]
        with Ledger(theirs) as found:
            with pytest.raises(LedgerError, match="only the owner"):
                found.register("more", **PEOPLE)
            charge(found, "d")
            found.append("b", attempt=0, state="finished")
            found.verify()
        with pytest.raises(LedgerError):
            upgraded.refund("b", unstarted=cost(40.0))
    with Ledger(earlier) as again:
        again.verify()


def test_an_earlier_ledger_that_was_cut_short_is_not_upgraded(postgresql: Server, earlier: str) -> None:
    behind = "SET session_replication_role = replica"
    postgresql.execute(behind, "DELETE FROM dpvb.entry WHERE seq > 8", database=database(earlier))
    with pytest.raises(LedgerError, match="Row 10 is missing"):
        Ledger(earlier)


def test_several_upgrade_one_ledger(earlier: str) -> None:
    context = multiprocessing.get_context("fork")
    start, ends = context.Barrier(4), context.SimpleQueue()

    def upgrade() -> None:
        start.wait(60)
        try:
            with Ledger(earlier) as found:
                found.verify()
                ends.put("")
        except LedgerError as error:
            ends.put(str(error))

    workers = [context.Process(target=upgrade) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [ends.get() for _ in workers] == [""] * 4
    for worker in workers:
        worker.join()


# What was there and is gone


def test_a_chain_cut_short_is_found_out_by_who_has_seen_more(ledger: Ledger, postgresql: Server) -> None:
    with Ledger(ledger.url) as found:
        receipt = found.charge("people", cost(), run="c", plan_digest="plan", unit="row")
    behind = "SET session_replication_role = replica"
    charge(ledger, "d")
    postgresql.execute(behind, "DELETE FROM dpvb.entry WHERE seq > 3", database=database(ledger.url))
    for what in (lambda: charge(ledger, "e"), lambda: ledger.remaining("people")):
        with pytest.raises(LedgerError, match="Row 5 is missing"):
            what()
    with pytest.raises(LedgerError, match="Row 4 is missing"), Ledger(ledger.url, read_only=True) as found:
        found.verify([receipt])


@pytest.mark.guarantees("set back")
def test_an_older_dump_is_found_out_by_who_has_seen_more(ledger: Ledger, postgresql: Server) -> None:
    """By the process that was there, and by every later one of the same user."""
    ledger.close()  # A restore needs the schema for itself; what the process has seen stays with it.
    dump = postgresql.run("pg_dump", ledger.url)
    charge(ledger, "later")
    ledger.close()
    postgresql.execute("DROP SCHEMA dpvb CASCADE", database=database(ledger.url))
    postgresql.run("psql", "-q", "-v", "ON_ERROR_STOP=1", ledger.url, feed=dump)
    for what in (lambda: charge(ledger, "e"), lambda: ledger.remaining("people")):
        with pytest.raises(LedgerError, match="Row 4 is missing"):
            what()
    for read_only in (False, True):
        with pytest.raises(LedgerError, match="Row 4 is missing"), Ledger(ledger.url, read_only=read_only) as found:
            found.remaining("people")


@pytest.mark.guarantees("set back")
@pytest.mark.slow
def test_a_standby_that_lags_is_found_out_by_who_has_seen_more() -> None:
    """It knows nothing of the last charge when it takes over."""
    with running() as primary:
        url = primary.new_database()
        with Ledger(url) as before, primary.standby() as standby:
            before.register("people", **PEOPLE)
            charge(before, "a")
            primary.wait_for(standby)
            standby.stop()
            charge(before, "b")
            primary.stop()
            standby.start()
            standby.execute("SELECT pg_promote()")
            # As after a failover: the same address leads to the other server.
            before.close()
            (primary.folder / ".s.PGSQL.5432").unlink(missing_ok=True)
            (primary.folder / ".s.PGSQL.5432").symlink_to(standby.folder / ".s.PGSQL.5432")
            for what in (lambda: charge(before, "c"), lambda: before.remaining("people")):
                with pytest.raises(LedgerError, match=r"(?i)row 3 is missing"):
                    what()
            with pytest.raises(LedgerError, match=r"(?i)row 3 is missing"):
                Ledger(url)


@pytest.mark.guarantees("standbys")
@kills("crashes", "PostgreSQL: a commit that did not wait for its standby")
@edit(
    "ledger/postgresql.py", "                if self._warnings:\n", "                if self._warnings and not write:\n"
)
def test_a_commit_that_did_not_wait_for_its_standby_is_not_acknowledged() -> None:
    """Nor is one whose connection is cut; asked again, the charge is acknowledged, once, when the standby has it."""
    with running() as server:
        url = server.new_database()
        with Ledger(url) as ledger:
            ledger.register("people", **PEOPLE)
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
        server.until("SELECT 1 FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = 'standby'")
        waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        for run, how in (("a", "pg_cancel_backend"), ("b", "pg_terminate_backend")):
            said = []

            def ask(run: str = run, said: list[object] = said) -> None:
                try:
                    with Ledger(url, read_only=True) as looking:  # Opening for writing would wait as well.
                        looking._read_only = False
                        said.append(charge(looking, run))
                except LedgerError as error:
                    said.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            server.until(f"SELECT 1 {waiting}")
            assert not said
            server.execute(f"SELECT {how}(pid) {waiting}")
            asking.join()
            assert isinstance(said[0], LedgerError)
            assert how == "pg_terminate_backend" or "possibly not on its standby" in str(said[0])
        server.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        server.until("SELECT 1 FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = ''")
        with Ledger(url) as ledger:
            assert [charge(ledger, run) for run in "ab"] == [2, 3]
            ledger.verify()


# Several at once


def race(url: str, number: int, start: Any) -> None:
    with Ledger(url) as found:
        start.wait(60)
        for turn in range(100):
            try:
                charge(found, f"{number}-{turn}", 5.0)
            except BudgetError:
                return
        raise AssertionError("never refused")


@pytest.mark.guarantees("races")
def test_writers_stop_exactly_at_the_cap(postgresql: Server) -> None:
    """As many charges as one writer alone gets, however many write at once."""
    counts = []
    for writers in (1, 8):
        with Ledger(postgresql.new_database()) as found:
            found.register("people", **PEOPLE)
            context = multiprocessing.get_context("fork")
            start = context.Barrier(writers)
            racers = [context.Process(target=race, args=(found.url, number, start)) for number in range(writers)]
            for racer in racers:
                racer.start()
            for racer in racers:
                racer.join()
                assert racer.exitcode == 0
            found.verify()
            counts.append(found.remaining("people").num_charges)
    assert counts[0] == counts[1] > 3


def test_several_make_one_ledger(url: str) -> None:
    """Ledgers made at the same time are one."""
    context = multiprocessing.get_context("fork")
    start, ends = context.Barrier(4), context.SimpleQueue()

    def make() -> None:
        start.wait(60)
        try:
            with Ledger(url) as made:
                ends.put(made.uuid)
        except LedgerError as error:
            ends.put(str(error))

    makers = [context.Process(target=make) for _ in range(4)]
    for maker in makers:
        maker.start()
    assert len({ends.get() for _ in makers}) == 1
    for maker in makers:
        maker.join()
        assert maker.exitcode == 0


def test_a_lost_connection_is_made_again(ledger: Ledger, postgresql: Server) -> None:
    before = ledger.remaining("people").num_charges
    postgresql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    charge(ledger, "c")
    assert ledger.remaining("people").num_charges == before + 1


def test_a_forked_process_has_a_connection_of_its_own(ledger: Ledger) -> None:
    child = os.fork()
    if child == 0:
        try:
            charge(ledger, "child")
            ledger.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    charge(ledger, "parent")
    assert ledger.remaining("people").num_charges == 4
    ledger.verify()


# What may not be told


def test_passwords_stay_out_of_messages(postgresql: Server, url: str) -> None:
    secret = "s3cr3t"
    wrong = [
        postgresql.url(database(url), "admin", secret),
        postgresql.url("no_such_database", "nobody", secret),
        f"postgresql://admin:{secret}@/x?host=/no/such/folder",
        f"postgresql://admin:{secret}%ret@server/x",
        f"postgresql://admin:{secret}/x@server/x",
        f"postgresql://admin:{secret}@server:port/x",
        f"postgresql://admin@/x?host=/no/such/folder&password={secret}",
        f"postgresql://[admin:{secret}@server/x",
        f"postgresql://admin:x@{secret}@127.0.0.1:1/x",
        f"postgresql://admin:x?@{secret}@127.0.0.1:1/x",
    ]
    for address in wrong:
        with pytest.raises(LedgerError) as caught:
            Ledger(address)
        shown = [str(caught.value), repr(caught.value), str(caught.value.__cause__), without_password(address)]
        assert caught.value.__cause__ is None
        assert not any(secret in text for text in shown), shown
    assert without_password("postgresql://keeper:x@server:5433/b?sslmode=require&password=x") == (
        "postgresql://keeper@server:5433/b?sslmode=require"
    )


OF_ANOTHER_FORM = [
    "postgresql+psycopg://admin:s3cr3t@server/x",
    "Postgresql://admin:s3cr3t@server/x",
    "mysql://admin:s3cr3t@server/x",
    "://admin:s3cr3t@server/x",
    "postgresql:/admin:s3cr3t@server/x",
    Path("postgresql://admin:s3cr3t@server/x"),
    "host=server user=admin password=s3cr3t",
    "host=server password = s3cr3t",
]


@kills("leaks", "a password in the refusal of an address")
@edit("ledger/address.py", "return bool(_MEANT.search(place))", 'return place.startswith("postgresql://")')
@pytest.mark.parametrize("address", OF_ANOTHER_FORM)
def test_addresses_of_another_form_are_refused_and_not_shown(address: str | Path) -> None:
    """Whoever asks: a ledger of one's own, a fit."""
    with pytest.raises(ParameterError, match="another form") as caught:
        Ledger(address)
    with pytest.raises(ParameterError, match="another form") as of_a_fit, opened(address):
        pass
    for error in (caught.value, of_a_fit.value):
        assert "s3cr3t" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


def test_no_command_shows_an_address_of_another_form() -> None:
    program = """
import sys
from dpvb.cli import app
for address in sys.argv[1:]:
    try:
        app(["ledger", "show", address])
    except SystemExit as end:
        print("ended with", end.code)
"""
    addresses = [str(address) for address in OF_ANOTHER_FORM]
    done = subprocess.run([sys.executable, "-c", program, *addresses], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.count("ended with") == len(addresses) - done.stdout.count("ended with 0")
    assert "s3cr3t" not in done.stdout + done.stderr


def test_without_psycopg_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from dpvb import Ledger
from dpvb.errors import LedgerError
try:
    Ledger("postgresql://keeper@/x")
except LedgerError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install '.[postgresql]'" in done.stdout


def test_an_export_is_checked_without_a_server(ledger: Ledger, tmp_path: Path) -> None:
    from dpvb.ledger import verify_export

    out = tmp_path / "chain.jsonl"
    ledger.export(out)
    verify_export(out)
    out.write_text(out.read_text().replace('"run":"a"', '"run":"x"'))
    with pytest.raises(LedgerError, match="row 2"):
        verify_export(out)


# A server that is away for a while


@pytest.fixture
def patient(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 60.0)


@pytest.mark.guarantees("durable charges")
@kills("crashes", "PostgreSQL: a fit that a restart of the server ends")
@edit("ledger/__init__.py", "if not is_address(self.url) or left <= 0:", "if True:")
def test_a_fit_waits_for_a_server_that_restarts(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped without a farewell at each release: charged once, and the model is that of a fit without restarts."""
    rng = np.random.default_rng(0)
    x_nd, y_n = rng.uniform(-1, 1, (300, 2)), np.arange(300) % 2
    models: list[Any] = []
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: InsecureNoise(3))
    with running() as server:
        for restarts in (False, True):
            url = server.new_database()
            with Ledger(url) as ledger:
                ledger.register("people", **PEOPLE)

            def stop(step: int, plan: object, restarts: bool = restarts) -> None:
                if restarts:
                    server.stop()
                    threading.Timer(1.0, server.start).start()

            run = dpvb.Run(ledger=url, dataset="people", checkpoint=tmp_path / f"run {restarts}", progress=stop)
            model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=3, low=-1, high=1)
            models.append(model.fit(x_nd, y_n, run=run))
            with Ledger(url) as ledger:
                ledger.verify([Receipt(**vars(model.privacy_.charge))])
                kinds = [entry.state or entry.kind for entry in ledger.entries()]
            assert kinds == ["dataset", "charge", *["released"] * (len(kinds) - 3), "finished"]
            assert len(kinds) > 5
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert "Trying again for 60 s." in capsys.readouterr().err


def test_a_server_that_stays_away_is_given_up(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a public time, which does not depend on how often it was asked."""
    pauses: list[float] = []
    clock = iter([0.0, 1.0, 4.0, 9.0, 30.0, 31.0, 31.0, 32.0, 33.0, 34.0, 64.0])
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 30.0)
    monkeypatch.setattr("dpvb.ledger.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("dpvb.ledger.time.sleep", pauses.append)

    def away() -> None:
        raise LedgerUnreachableError("gone.")

    with pytest.raises(LedgerUnreachableError):
        ledger._patiently(away)
    assert pauses == [0.1, 0.2, 0.4]
    with pytest.raises(LedgerUnreachableError):  # A fit that ends asks again what is left, and does not wait again.
        ledger._patiently(away)
    assert pauses == [0.1, 0.2, 0.4]
    assert ledger._patiently(lambda: 3) == 3
    with pytest.raises(LedgerUnreachableError):
        ledger._patiently(away)
    assert pauses == [0.1, 0.2, 0.4, 0.1]


@pytest.mark.parametrize(
    ("code", "pauses"), [(socket.EAI_NONAME, []), (socket.EAI_AGAIN, [0.1])], ids=["no such name", "no resolver"]
)
def test_only_a_resolver_that_does_not_answer_is_asked_again(
    code: int, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name is wrong a second later."""
    waited: list[float] = []
    clock = iter([0.0, 1.0, 31.0])
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 30.0)
    monkeypatch.setattr("dpvb.ledger.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("dpvb.ledger.time.sleep", waited.append)

    def resolve(*given: object, **named: object) -> list[Any]:
        raise socket.gaierror(code, "no address")

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    with pytest.raises(LedgerError, match=r"'wrong\.invalid'.* Correct the name of the server") as raised:
        Ledger("postgresql://analyst@wrong.invalid/budgets")
    assert isinstance(raised.value, LedgerUnreachableError) == bool(pauses)
    assert waited == pauses


@pytest.mark.guarantees("durable charges")
@kills("crashes", "PostgreSQL: a run that takes its own lost answer for another process")
@edit("ledger/__init__.py", 'if before and state == "resumed" and before.hash == self._sent:', "if False:")
def test_what_was_committed_and_whose_answer_was_lost_is_done_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """Each kind of row: the server has it, the connection breaks, and the call is made again."""
    from dpvb.ledger.postgresql import _Transaction

    send, lost = _Transaction.send, []

    def answer_lost(self: Any, statement: str, values: Any = ()) -> Any:
        found = send(self, statement, values)
        if statement.startswith("COMMIT; BEGIN") and lost:
            lost.clear()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return found

    monkeypatch.setattr(_Transaction, "send", answer_lost)
    calls = [
        lambda: ledger.register("more", **PEOPLE),
        lambda: ledger.charge("people", cost(), unit="row"),
        lambda: ledger.append("a", attempt=0, state="started", step=0),
        lambda: ledger.append("a", attempt=1, state="resumed"),
        lambda: ledger.append("a", attempt=1, state="finished"),
        lambda: ledger.refund("b", unstarted=cost()),
        lambda: ledger.record_data_check("people"),
    ]
    for number, call in enumerate(calls):
        before = len(ledger.entries())
        lost.append(True)
        call()
        assert not lost
        assert len(ledger.entries()) == before + (2 if number == 5 else 1)
    with pytest.raises(LedgerError, match="has ended"):
        ledger.append("a", attempt=1, state="resumed")
    charge(ledger, "last")
    ledger.append("last", attempt=1, state="resumed")
    with pytest.raises(LedgerError, match="taken over"):  # It is another call that says the same.
        ledger.append("last", attempt=1, state="resumed")
    ledger.verify()
