"""A ledger in PostgreSQL, for a team: `Ledger("postgresql://user@server/database")`.

One ledger a database, in the schema `dpvb`, which the first `Ledger(...)` makes. Whoever makes it owns it. Others need
no more than this, and should have no more:

    GRANT USAGE ON SCHEMA dpvb TO analyst;
    GRANT SELECT ON dpvb.ledger, dpvb.entry, dpvb.head TO analyst;
    GRANT INSERT ON dpvb.entry TO analyst;
    GRANT UPDATE ON dpvb.head TO analyst;

Such a role can append and nothing else: triggers refuse to change, to remove or to reorder rows, and a row above its
cap. The owner and superusers can take the triggers away; `verify` then finds a changed row, and the receipts in
released models find a chain cut short. Make the server's cluster with `initdb --data-checksums`, so that damage
below the rows is found too.

Writers take turns at the row of `head`, which each locks before it reads anything. A writer's rows are committed
without waiting for the disk, so that the next writer starts at once; then it waits until the disk has all that was
written before, together with the other writers who wait. Nothing is acknowledged before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dpvb.errors import LedgerError
from dpvb.ledger.chain import COLUMNS, FORMAT, Entry
from dpvb.ledger.head import Head

if TYPE_CHECKING:
    import psycopg

_TYPES = {int: "bigint", str: "text"}
_NAMES = ", ".join(COLUMNS)
_BATCH = 2_000
# Before anything is done, these failures leave nothing behind: a deadlock, a serialization failure.
_TRANSIENT = ("40001", "40P01")
_ATTEMPTS = 5

# In every function names are qualified, so that nobody's search path decides what they mean.
_FUNCTIONS = {
    "refuse": """
BEGIN
    RAISE EXCEPTION 'rows of a ledger are only ever appended';
END""",
    "check_entry": f"""
DECLARE
    last dpvb.entry;
    newest text;
    cap bigint;
BEGIN
    SELECT * INTO last FROM dpvb.entry ORDER BY seq DESC LIMIT 1;
    IF NEW.seq <> coalesce(last.seq, 0) + 1 OR NEW.prev <> coalesce(last.hash, NEW.prev) THEN
        RAISE EXCEPTION 'row % does not follow the last row', NEW.seq;
    END IF;
    IF NEW.totals = '' THEN
        RETURN NEW;
    END IF;
    SELECT totals INTO newest FROM dpvb.entry
        WHERE dataset = NEW.dataset AND totals <> '' ORDER BY seq DESC LIMIT 1;
    IF EXISTS (
        SELECT FROM ROWS FROM (
            json_array_elements_text(NEW.totals::json),
            json_array_elements_text(NEW.cost::json),
            json_array_elements_text(coalesce(newest, NEW.totals)::json)
        ) AS orders (total, cost, before)
        WHERE total IS NULL OR cost IS NULL OR before IS NULL OR total::numeric < 0 OR total::numeric <> CASE
            WHEN newest IS NULL THEN least({2**62}, cost::numeric)
            WHEN before::numeric >= {2**62} THEN {2**62}
            ELSE least({2**62}, before::numeric + cost::numeric)
        END
    ) THEN
        RAISE EXCEPTION 'the totals of row % are not those before it and its cost', NEW.seq;
    END IF;
    SELECT units INTO cap FROM dpvb.entry WHERE key = 'dataset/' || NEW.dataset;
    IF cap IS NULL OR (NEW.units > cap AND NEW.kind <> 'sole') THEN
        RAISE EXCEPTION 'row % is above the cap of its data set', NEW.seq;
    END IF;
    RETURN NEW;
END""",
    "check_head": """
BEGIN
    IF NEW.seq < OLD.seq OR NEW.seq <> (SELECT max(seq) FROM dpvb.entry) THEN
        RAISE EXCEPTION 'the head is not the last row';
    END IF;
    RETURN NEW;
END""",
}
_CHANGES = "BEFORE UPDATE OR DELETE OR TRUNCATE ON dpvb.{} FOR EACH STATEMENT EXECUTE FUNCTION dpvb.refuse()"
_TRIGGERS = {
    "ledger_stays": _CHANGES.format("ledger"),
    "entry_stays": _CHANGES.format("entry"),
    "head_stays": "BEFORE DELETE OR TRUNCATE ON dpvb.head FOR EACH STATEMENT EXECUTE FUNCTION dpvb.refuse()",
    "entry_follows": "BEFORE INSERT ON dpvb.entry FOR EACH ROW EXECUTE FUNCTION dpvb.check_entry()",
    "head_follows": "BEFORE UPDATE ON dpvb.head FOR EACH ROW EXECUTE FUNCTION dpvb.check_head()",
}
_INDICES = {
    "entry_run": "dpvb.entry (run, seq)",
    "entry_dataset": "dpvb.entry (dataset, seq) WHERE totals <> ''",
    "entry_form": "dpvb.entry (dataset, form, kind) WHERE totals <> ''",
}
_KEYS = {"seq": " PRIMARY KEY", "key": " UNIQUE"}
_SCHEMA = [
    "CREATE SCHEMA IF NOT EXISTS dpvb",
    "CREATE TABLE dpvb.ledger (uuid text PRIMARY KEY, format bigint NOT NULL, created text NOT NULL)",
    "CREATE TABLE dpvb.entry ("
    + ", ".join(f"{name} {_TYPES[kind]} NOT NULL{_KEYS.get(name, '')}" for name, kind in COLUMNS.items())
    + ")",
    "CREATE TABLE dpvb.head (one boolean PRIMARY KEY CHECK (one), seq bigint NOT NULL, text text NOT NULL)",
    *(f"CREATE INDEX {name} ON {where}" for name, where in _INDICES.items()),
    *(
        f"CREATE FUNCTION dpvb.{name}() RETURNS trigger LANGUAGE plpgsql AS $body${body}$body$"
        for name, body in _FUNCTIONS.items()
    ),
    *(f"CREATE TRIGGER {name} {rule}" for name, rule in _TRIGGERS.items()),
]
_BEGIN = "BEGIN ISOLATION LEVEL {}; SET LOCAL search_path = pg_catalog, pg_temp"
_LOOK = _BEGIN.format("REPEATABLE READ READ ONLY")
_LOCK = (
    _BEGIN.format("READ COMMITTED")
    + "; SET LOCAL lock_timeout = '30s'; SET LOCAL synchronous_commit = off; SELECT FROM dpvb.head FOR UPDATE"
)
# The message is one that nobody reads: a commit waits for the disk only if it has written something.
_COMMIT = (
    "COMMIT; BEGIN; SET LOCAL synchronous_commit = on;"
    " SELECT pg_catalog.pg_logical_emit_message(true, 'dpvb', ''); COMMIT"
)
_INSERT = f"INSERT INTO dpvb.entry ({_NAMES}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
_MOVE = "UPDATE dpvb.head SET seq = %s, text = %s"
_LATER = "seq >= %s ORDER BY seq LIMIT %s"
_SINCE = f"SELECT {_NAMES} FROM dpvb.entry WHERE {_LATER}"
_ONE_MAKER = "SELECT pg_advisory_xact_lock(hashtext('dpvb.ledger'))"


def place(url: str) -> str:
    """An address as messages may show it: server and database, nothing secret."""
    try:
        parts = urlsplit(url)
        shown = f"postgresql://{parts.hostname or ''}{parts.path}"
    except ValueError:
        return "postgresql://..."
    return "postgresql://..." if "@" in shown else shown


class PostgreSQLStore:
    """The schema `dpvb` of a PostgreSQL database.

    Raises:
        LedgerError: if psycopg is not installed, the server does not answer or refuses, the server may lose what it has
            acknowledged, or the database holds a ledger of another format; with `read_only` also if it holds none.
    """

    uuid: str
    shared = True

    def __init__(self, url: str, *, uuid: str, created: str, read_only: bool) -> None:
        """Connect; where there is no ledger, make one with this uuid."""
        self._url = url
        # The last row that this store has seen; from there on rows are asked for together with the beginning.
        self._seen = 2**62
        self._connection: psycopg.Connection[Any] | None = None
        if url.partition("?")[0].count("@") > 1:
            raise LedgerError("the address has a second @ before its ?; write one that belongs to a password as %40.")
        try:
            with self._typed():
                if not self._exists():
                    if read_only:
                        raise LedgerError(f"{place(url)} holds no ledger; `dpvb ledger init` makes one.")
                    self._make(uuid, created)
                self.uuid = self._identify()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[_Transaction]:
        """Begin; commit durably at the end, or roll back if an exception passes."""
        with self._typed():
            try:
                seen, cursor = self._seen, self._begin(_LOCK if write else _LOOK)
                while cursor.nextset():
                    pass
                transaction = _Transaction(self._open(), seen, cursor.fetchall())
                yield transaction
                transaction.send(_COMMIT if write else "COMMIT")
                self._seen = transaction.last
            except BaseException:
                with suppress(Exception):  # A lost connection has rolled back by itself.
                    self._run("ROLLBACK")
                raise

    def head(self) -> Head | None:
        """The head, of a table of its own."""
        with self._typed():
            text = self._one("SELECT text FROM dpvb.head")
        return None if text is None else Head.read(text)

    def settle(self, head: Head) -> None:
        """Do nothing: the head was in the transaction that appended."""

    def check(self) -> Sequence[str]:
        """Compare triggers, functions and indices with those that are made here, and the rows with their index."""
        with self._typed():
            functions = dict(self._run("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'dpvb'::regnamespace"))
            triggers = self._run(
                "SELECT tgname, relname, proname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
                " JOIN pg_proc ON pg_proc.oid = tgfoid WHERE relnamespace = 'dpvb'::regnamespace"
                " AND tgenabled IN ('O', 'A') AND tgqual IS NULL"
            ).fetchall()
            indices = self._run(
                "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
                " WHERE relnamespace = 'dpvb'::regnamespace AND indisvalid"
            ).fetchall()
            counted = {self._count(without) for without in (("seqscan",), ("indexscan", "indexonlyscan", "bitmapscan"))}
        found = [f"function {name} was changed" for name, body in _FUNCTIONS.items() if functions.get(name) != body]
        found += [
            f"trigger {name} is missing or was changed"
            for name, rule in _TRIGGERS.items()
            if not any(
                name == row[0] and f" ON dpvb.{row[1]} " in rule and rule.endswith(f"dpvb.{row[2]}()")
                for row in triggers
            )
        ]
        found += [f"index {name} is missing or invalid" for name in _INDICES if (name,) not in indices]
        return found if len(counted) == 1 else [*found, "the table and its primary key do not hold the same rows"]

    def close(self) -> None:
        """Let go of the database; calling it again does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exists(self) -> bool:
        return bool(self._one("SELECT count(*) FROM pg_tables WHERE schemaname = 'dpvb' AND tablename = 'ledger'"))

    def _identify(self) -> str:
        if "off" in (self._one("SHOW fsync"), self._one("SHOW full_page_writes")):
            raise LedgerError(
                f"{place(self._url)} runs with fsync or full_page_writes off and may lose charges; turn both on."
            )
        kept = self._run("SELECT uuid, format FROM dpvb.ledger").fetchall()
        if len(kept) != 1 or kept[0][1] != FORMAT:
            found = ", ".join(str(row[1]) for row in kept) or "no known one"
            raise LedgerError(
                f"{place(self._url)} holds a ledger of format {found}; this version of dpvb reads {FORMAT}."
            )
        return str(kept[0][0])

    def _make(self, uuid: str, created: str) -> None:
        """Make all tables, unless somebody else did so a moment ago."""
        head = Head.first(uuid)
        with self._open().transaction():
            self._run(_ONE_MAKER)
            if not self._exists():
                for statement in _SCHEMA:
                    self._run(statement)
                self._run("INSERT INTO dpvb.ledger VALUES (%s, %s, %s)", (uuid, FORMAT, created))
                self._run("INSERT INTO dpvb.head VALUES (true, 0, %s)", (head.text(),))

    def _begin(self, statement: str) -> psycopg.Cursor[Any]:
        """Begin, and again where nothing was done yet: after a lost connection, a deadlock, a failed serialization."""
        psycopg = _driver()
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._run(f"{statement}; {_SINCE}", (self._seen, _BATCH))
            except psycopg.Error as error:
                if self._open().broken:
                    self._connection = None
                elif error.sqlstate in _TRANSIENT:
                    self._run("ROLLBACK")
                else:
                    raise
                if not left:
                    raise
        raise AssertionError

    def _count(self, without: Sequence[str]) -> int:
        """Number of rows, found without some of the ways to find them."""
        with self._open().transaction(force_rollback=True):
            for way in without:
                self._run(f"SET LOCAL enable_{way} = off")
            return int(self._one("SELECT count(seq) FROM dpvb.entry WHERE seq > 0"))

    def _open(self) -> psycopg.Connection[Any]:
        """The connection, made when it is first needed or was lost."""
        if self._connection is None:
            psycopg = _driver()
            # Values are bound here, so that several statements travel together, also through a connection pooler.
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                cursor_factory=psycopg.ClientCursor,
                connect_timeout=10,
                client_encoding="UTF8",
            )
        return self._connection

    def _run(self, statement: str, values: Sequence[object] | None = None) -> psycopg.Cursor[Any]:
        return self._open().execute(statement, values)

    def _one(self, statement: str) -> Any:
        """The first value of the first row; None if there is no row."""
        row = self._run(statement).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn what the driver says into a typed error that tells no password."""
        psycopg = _driver()
        try:
            yield
        except psycopg.Error as error:
            reason = self._reason(error)
        else:
            return
        raise LedgerError(f"{place(self._url)}: {reason}")

    def _reason(self, error: psycopg.Error) -> str:
        if error.diag.message_primary:
            return f"{error.diag.message_primary} ({error.sqlstate})."
        if not isinstance(error, _driver().OperationalError):
            return (
                "the address is not one that PostgreSQL understands: postgresql://user:password@server:port/database."
            )
        words = " ".join(str(error).split())
        for secret in ("password", "sslpassword"):
            if hidden := _driver().conninfo.conninfo_to_dict(self._url).get(secret):
                words = words.replace(str(hidden), "***")
        return words


def _driver() -> ModuleType:
    """The module psycopg, imported where a ledger in PostgreSQL is first used."""
    try:
        import psycopg
    except ImportError:
        psycopg = None  # type: ignore[assignment]
    if psycopg is None:
        raise LedgerError("a ledger in PostgreSQL needs psycopg: pip install 'dpvb[postgresql]'.")
    return psycopg


class _Transaction:
    """One consistent look at the rows, or the exclusive right to append."""

    def __init__(self, connection: psycopg.Connection[Any], seen: int, rows: list[Any]) -> None:
        self._connection = connection
        self._seen, self._known = seen, rows
        self._unsent: list[tuple[Entry, Head]] = []
        self.last = rows[-1][0] if rows else seen

    def since(self, seq: int) -> Iterator[Entry]:
        """The rows with this number and all later ones, in order."""
        rows = self._known if seq == self._seen and not self._unsent else self._rows(_LATER, seq, _BATCH)
        while rows:
            yield from (Entry(*row) for row in rows)
            if len(rows) < _BATCH:
                return
            rows = self._rows(_LATER, rows[-1][0] + 1, _BATCH)

    def row(self, seq: int) -> Entry | None:
        """The row of this number."""
        return self._entry("seq = %s", seq)

    def keyed(self, key: str) -> Entry | None:
        """The row of this key."""
        return self._entry("key = %s", key)

    def of_run(self, run: str) -> list[Entry]:
        """The rows of a run, in order."""
        return [Entry(*row) for row in self._rows("run = %s ORDER BY seq", run)]

    def first_of_run(self, run: str) -> Entry | None:
        """The first row of a run."""
        return self._entry("run = %s ORDER BY seq LIMIT 1", run)

    def newest_of_run(self, run: str) -> Entry | None:
        """The last row of a run."""
        return self._entry("run = %s ORDER BY seq DESC LIMIT 1", run)

    def first_charge(self, dataset: str) -> Entry | None:
        """The first charge of a data set."""
        return self._entry("dataset = %s AND totals <> '' ORDER BY seq LIMIT 1", dataset)

    def forms(self, dataset: str) -> list[tuple[int, int]]:
        """For each form and kind of charges of a data set: the number of one such row, and how many there are."""
        query = "SELECT min(seq), count(*) FROM dpvb.entry WHERE dataset = %s AND totals <> '' GROUP BY form, kind"
        return self.send(query, (dataset,)).fetchall()

    def append(self, entry: Entry, head: Head) -> None:
        """Insert a row, and move the head to it: at once before the next question, or else with the end."""
        self._unsent.append((entry, head))
        self.last = entry.seq

    def send(self, statement: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """Run a statement, after what was appended, in one round trip."""
        unsent, self._unsent = self._unsent, []
        before = [(_INSERT, tuple(getattr(entry, name) for name in COLUMNS)) for entry, _ in unsent]
        if unsent:
            head = unsent[-1][1]
            before.append((_MOVE, (head.seq, head.text())))
        texts = [text for text, _ in before]
        bound = [value for _, part in before for value in part]
        cursor = self._connection.execute("; ".join([*texts, statement]), [*bound, *values])
        while cursor.nextset():
            pass
        return cursor

    def _rows(self, condition: str, *values: object) -> list[Any]:
        return self.send(f"SELECT {_NAMES} FROM dpvb.entry WHERE {condition}", values).fetchall()

    def _entry(self, condition: str, *values: object) -> Entry | None:
        rows = self._rows(condition, *values)
        return Entry(*rows[0]) if rows else None
