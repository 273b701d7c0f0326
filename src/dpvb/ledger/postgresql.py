"""A ledger in PostgreSQL, for a team: `Ledger("postgresql://user@server/database")`.

One ledger per database, in the schema `dpvb`, which the first `Ledger(...)` makes and then owns. Others need
no more than this, and should have no more; `Ledger.grant("analyst")` gives it, and a role that only reads needs the
first two:

    GRANT USAGE ON SCHEMA dpvb TO analyst;
    GRANT SELECT ON dpvb.ledger, dpvb.entry, dpvb.head TO analyst;
    GRANT INSERT ON dpvb.entry TO analyst;
    GRANT UPDATE (seq) ON dpvb.head TO analyst;

Such a role can append and nothing else: triggers (`schema`) refuse to change, to remove or to reorder rows, a row that
would harm others, and a data set that anyone but the owner registers. Readers ignore a row that breaks another rule.
Events and refunds of a run are taken from the role that charged it, or from a member of that role;
`?options=-crole%3Dteam` in the addresses lets a team's members go on with each other's runs. The right to UPDATE the
head is one to lock it, and to have it moved by the rows.

The owner and superusers can take the triggers away; `verify` then finds a changed row, and what each client has seen,
as well as the receipts in released models, find a chain cut short. Make the server's cluster with `initdb
--data-checksums`, so that damage below the rows is found too.

Writers take turns at the row of `head`, which each locks before it reads anything. A writer's rows are committed
without waiting for the disk, so that the next writer starts at once; then it waits until the disk, and the standby
where the server is told to wait for one, have all that was written before, together with the other writers who wait.
Nothing is acknowledged before that.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

from dpvb.guards.errors import LedgerError, LedgerUnreachableError
from dpvb.guards.untrusted import printable
from dpvb.ledger import schema
from dpvb.ledger.address import without_password
from dpvb.ledger.chain import COLUMNS, Entry
from dpvb.ledger.head import Head
from dpvb.ledger.state import set_back
from dpvb.ledger.store import Transaction

if TYPE_CHECKING:
    import psycopg

#: Rights of a role that reads, and those that a role needs in addition to append.
_TO_LOOK = ("USAGE ON SCHEMA dpvb", "SELECT ON dpvb.ledger, dpvb.entry, dpvb.head")
_TO_APPEND = ("INSERT ON dpvb.entry", "UPDATE (seq) ON dpvb.head")
# PostgreSQL reserves these words for all roles or for the current one, in quotation marks too.
_NO_ROLES = ("public", "none", "current_role", "current_user", "session_user")

_NAMES = ", ".join(COLUMNS)
_BATCH = 2_000
# Before anything is done, these failures leave nothing behind: a deadlock, a serialization failure.
_TRANSIENT = ("40001", "40P01")
_ATTEMPTS = 5
# Psycopg's words for a name without an address, before the number of the resolver's error. Only where the resolver
# itself does not answer may the same name have an address later.
_UNRESOLVED = "failed to resolve host"
# In the server's words, which have no code where it refuses a connection: a later call may succeed.
_PASSING = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots")

_BEGIN = "BEGIN ISOLATION LEVEL {}; SET LOCAL search_path = pg_catalog, pg_temp"
_LOOK = _BEGIN.format("REPEATABLE READ READ ONLY")
_LOCK = (
    _BEGIN.format("READ COMMITTED")
    + "; SET LOCAL lock_timeout = '30s'; SET LOCAL synchronous_commit = off; SELECT FROM dpvb.head FOR UPDATE"
)
# A commit waits for the disk only if it has written something: the message has no reader.
_COMMIT = (
    "COMMIT; BEGIN; SET LOCAL synchronous_commit = on;"
    " SELECT pg_catalog.pg_logical_emit_message(true, 'dpvb', ''); COMMIT"
)
_INSERT = f"INSERT INTO dpvb.entry ({_NAMES}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
_LATER = "seq >= %s ORDER BY seq LIMIT %s"
_SINCE = f"SELECT {_NAMES} FROM dpvb.entry WHERE {_LATER}"
# The database moves the head by the rows, whatever it is told.
_MOVE = "UPDATE dpvb.head SET seq = seq"
_CUT = "SELECT seq FROM dpvb.head WHERE seq > coalesce((SELECT max(seq) FROM dpvb.entry), 0)"
_EARLIER = "the schema dpvb was made by an earlier version of dpvb; its owner must open the ledger once with this one"
_ONE_MAKER = "SELECT pg_advisory_xact_lock(hashtext('dpvb.ledger'))"


class PostgreSQLStore:
    """The schema `dpvb` of a PostgreSQL database.

    A schema of an earlier version is upgraded when its owner opens it to write, and is refused before.

    Raises:
        LedgerError: if psycopg is not installed, the server does not answer or refuses, the server may lose what it has
            acknowledged, or the database holds a ledger of another format, or one that another role may have made to
            deceive; with `read_only`, if it holds none.
    """

    uuid: str
    shared = True

    def __init__(self, url: str, *, uuid: str, created: str, read_only: bool) -> None:
        """Connect; where there is no ledger, make one with this uuid."""
        self._url, self._place = url, without_password(url)
        # The last row that this store has seen; from there on rows are asked for together with the beginning.
        self._seen = 2**62
        self._connection: psycopg.Connection[Any] | None = None
        self._warnings: list[str] = []
        if max(part.count("@") for part in (url.partition("?")[0], url.split("/")[2])) > 1:
            raise LedgerError("The address has a second @ before its ?; write one that belongs to a password as %40.")
        try:
            with self._typed():
                if not read_only:
                    self._build(uuid, created)
                with self._block():
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
                self._warnings.clear()
                transaction.send(_COMMIT if write else "COMMIT")
                if self._warnings:
                    raise LedgerError(
                        f"{self._place}: {self._warnings[0]}. The charge is recorded on this machine, but possibly "
                        "not on its standby. Repeat the call."
                    )
                self._seen = transaction.last
            except BaseException:
                with suppress(Exception):  # A lost connection has rolled back by itself.
                    self._run("ROLLBACK")
                raise

    def head(self) -> Head | None:
        """The head, which the database moves by the rows."""
        with self._typed():
            values = self._run("SELECT seq, hash, datasets FROM dpvb.head").fetchone()
        if values is None:
            return None
        seq, digest, numbers = values
        datasets = {name: (row, charge) for name, (row, charge) in numbers.items()}
        return Head(self.uuid, seq, digest, datasets) if seq else Head.first(self.uuid)

    def settle(self, head: Head) -> None:
        """Do nothing: the head was in the transaction that appended."""

    def check(self) -> Sequence[str]:
        """Compare the schema with the one that is made here, and the rows with their index."""
        with self._typed():
            with self._block():
                self._run("SET LOCAL quote_all_identifiers = off")  # Which definitions are spelled by.
                faults = schema.faults(self._run(schema.OBJECTS))
            counted = {self._count(without) for without in (("seqscan",), ("indexscan", "indexonlyscan", "bitmapscan"))}
        return faults if len(counted) == 1 else [*faults, "the table and its primary key do not hold the same rows"]

    def grant(self, role: str, *, append: bool) -> list[str]:
        """Give a role the right to look, and to append; what it has beyond that is taken away.

        Args:
            role: that exists.
            append: whether it may append.

        Returns:
            The statements, all of which were carried out.

        Raises:
            LedgerError: if this role does not own the ledger, or PostgreSQL refuses.
        """
        with self._typed(), self._block():
            owner, is_owner = self._owner()
            if not is_owner:
                raise LedgerError(f"{self._place}: the ledger's owner {owner!r} gives rights in it; connect as it.")
            if owner:
                self._run("SELECT set_config('role', %s, true)", (owner,))
            name = self._one("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = %s", (role,))
            if name is None or role in _NO_ROLES:
                raise LedgerError(
                    f"{self._place} has no role {printable(role)!r}. Make it first: CREATE ROLE ... LOGIN PASSWORD"
                )
            if role == self._one("SELECT tableowner FROM pg_tables WHERE schemaname = 'dpvb' LIMIT 1"):
                raise LedgerError(f"{self._place}: {printable(role)!r} owns the ledger, and has every right in it.")
            statements = [f"REVOKE ALL ON dpvb.ledger, dpvb.entry, dpvb.head FROM {name}"]
            statements += [f"GRANT {right} TO {name}" for right in (*_TO_LOOK, *(_TO_APPEND if append else ()))]
            for statement in statements:
                self._run(statement)
        return statements

    def close(self) -> None:
        """Let go of the database; calling it again does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _version(self) -> int | None:
        """Return the version of the schema: 0 if it is unknown, None if there is no schema."""
        if not self._one("SELECT count(*) FROM pg_tables WHERE schemaname = 'dpvb' AND tablename = 'ledger'"):
            return None
        formats = self._run("SELECT format FROM dpvb.ledger").fetchall()
        return int(formats[0][0]) if len(formats) == 1 else 0

    def _owner(self) -> tuple[str, bool]:
        """The role that owns the schema, and whether it is this role's own; asked before anything in it is touched."""
        schema_owner = self._run(schema.OWNERS).fetchone()
        if schema_owner is None:
            return "", True
        owner, is_owner, believed, others = schema_owner
        if not believed:
            raise LedgerError(
                f"{self._place} has a schema dpvb of the role {owner!r}, which is not yours, nor the database's "
                "owner, nor a superuser: another role may have made it before you. Connect as that role if it is the "
                f"keeper's (?options=-crole%3D{owner}), or drop the schema."
            )
        if others:
            raise LedgerError(
                f"{self._place}: {', '.join(others)} in the schema dpvb have another owner than the schema, "
                f"whose owner is {owner!r}. Make the ledger anew from a copy that you trust."
            )
        return owner, is_owner

    def _build(self, uuid: str, created: str) -> None:
        """Make or upgrade all tables, unless another process has just done so."""
        with self._block():
            self._owner()
            if self._version() not in (None, schema.EARLIER):
                return
        with self._block():
            self._run(_ONE_MAKER)
            (owner, is_owner), version = self._owner(), self._version()
            if version not in (None, schema.EARLIER):
                return
            if self._one("SHOW server_encoding") != "UTF8":
                raise LedgerError(f"{self._place} must have the encoding UTF8 to hold a ledger.")
            if not is_owner:
                missing = _EARLIER if version else f"the schema dpvb is empty; its owner {owner!r} makes a ledger in it"
                raise LedgerError(f"{self._place}: {missing}.")
            if owner:
                self._run("SELECT set_config('role', %s, true)", (owner,))
            else:
                self._run("CREATE SCHEMA dpvb")
            if version and self._one(_CUT):
                raise set_back(self._one(_CUT))
            for statement in schema.upgrade() if version else schema.make():
                self._run(statement)
            if not version:
                self._run("INSERT INTO dpvb.ledger VALUES (%s, %s, %s)", (uuid, schema.VERSION, created))

    def _identify(self) -> str:
        """The ledger's uuid, if it is one, may be believed, and keeps what it is told."""
        self._owner()
        if (version := self._version()) is None:
            raise LedgerError(f"{self._place} holds no ledger; `dpvb ledger init` makes one.")
        if "off" in (self._one("SHOW fsync"), self._one("SHOW full_page_writes")):
            raise LedgerError(
                f"{self._place} runs with fsync or full_page_writes off and may lose charges; turn both on."
            )
        if version == schema.EARLIER:
            raise LedgerError(f"{self._place}: {_EARLIER}.")
        if version != schema.VERSION:
            raise LedgerError(
                f"{self._place} holds a ledger of format {version or 'no known one'}; this version of dpvb reads "
                f"{schema.VERSION}."
            )
        return str(self._one("SELECT uuid FROM dpvb.ledger"))

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
        """Count rows without the named access methods, so that a damaged index shows."""
        with self._block():
            for way in without:
                self._run(f"SET LOCAL enable_{way} = off")
            return int(self._one("SELECT count(seq) FROM dpvb.entry WHERE seq > 0"))

    def _open(self) -> psycopg.Connection[Any]:
        """The connection, made when it is first needed or was lost."""
        if self._connection is None:
            psycopg = _driver()
            # Values are bound here, so that several statements are sent together, and through a connection pooler as
            # well.
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                cursor_factory=psycopg.ClientCursor,
                connect_timeout=10,
                client_encoding="UTF8",
            )
            self._connection.add_notice_handler(self._notice)
            self._connection.execute("SET lock_timeout = '30s'")
        return self._connection

    def _notice(self, said: psycopg.errors.Diagnostic) -> None:
        """Remember a warning: of a commit it says that the server did not wait for all that it was told to."""
        if said.severity_nonlocalized == "WARNING":
            self._warnings.append(said.message_primary or "the server warned")

    @contextmanager
    def _block(self) -> Iterator[None]:
        """A transaction in which names and operators are PostgreSQL's own."""
        with self._open().transaction():
            self._run("SET LOCAL search_path = pg_catalog, pg_temp")
            yield

    def _run(self, statement: str, values: Sequence[object] | None = None) -> psycopg.Cursor[Any]:
        return self._open().execute(statement, values)

    def _one(self, statement: str, values: Sequence[object] | None = None) -> Any:
        """The first value of the first row; None if there is no row."""
        row = self._run(statement, values).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn what the driver says into a typed error that tells no password."""
        psycopg = _driver()
        try:
            yield
        except psycopg.Error as error:
            reason, is_away = self._reason(error), _is_away(error)
        else:
            return
        raise (LedgerUnreachableError if is_away else LedgerError)(f"{self._place}: {reason}")

    def _reason(self, error: psycopg.Error) -> str:
        if error.diag.message_primary:
            return f"{error.diag.message_primary} ({error.sqlstate})."
        if not isinstance(error, _driver().OperationalError):
            return (
                "the address is not one that PostgreSQL understands: postgresql://user:password@server:port/database."
            )
        words = " ".join(str(error).split())
        if _UNRESOLVED in words:
            words += ". Correct the name of the server in the address, or the network's name server."
        for secret in ("password", "sslpassword"):
            if hidden := _driver().conninfo.conninfo_to_dict(self._url).get(secret):
                words = words.replace(str(hidden), "***")
        return words


def _is_away(error: psycopg.Error) -> bool:
    """Whether a server cannot be reached, or does not serve now: a later call may succeed.

    https://www.postgresql.org/docs/current/errcodes-appendix.html: no connection, no room, stopped or starting, locked.
    """
    if not isinstance(error, _driver().OperationalError):
        return False
    if error.sqlstate is not None:
        return bool(error.sqlstate.startswith(("08", "53", "57P", "55P03")))
    # A refused connection has no code, only the server's words: it answered, as to a wrong password, if they are fatal.
    words = str(error)
    if _UNRESOLVED in words:
        return f"[Errno {socket.EAI_AGAIN}]" in words
    return "FATAL:" not in words or any(passing in words for passing in _PASSING)


def _driver() -> ModuleType:
    """The module psycopg, imported where a ledger in PostgreSQL is first used."""
    try:
        import psycopg
    except ImportError:
        psycopg = None  # type: ignore[assignment]
    if psycopg is None:
        raise LedgerError("A ledger in PostgreSQL needs psycopg: pip install '.[postgresql]' in dpvb's source folder.")
    return psycopg


@final
class _Transaction(Transaction):
    """One consistent look at the rows, or the exclusive right to append."""

    _EARLIER = " AND writer = ''"

    def __init__(self, connection: psycopg.Connection[Any], seen: int, rows: list[Any]) -> None:
        self._connection = connection
        self._seen, self._known = seen, rows
        self._unsent: list[Entry] = []
        self.last = rows[-1][0] if rows else seen

    def since(self, seq: int) -> Iterator[Entry]:
        """The rows with this number and all later ones, in order."""
        rows = self._known if seq == self._seen and not self._unsent else self._query(_NAMES, _LATER, seq, _BATCH)
        while rows:
            yield from (Entry(*row) for row in rows)
            if len(rows) < _BATCH:
                return
            rows = self._query(_NAMES, _LATER, rows[-1][0] + 1, _BATCH)

    def append(self, entry: Entry, head: Head) -> None:
        """Insert a row, and move the head to it: at once before the next question, or else with the end."""
        self._unsent.append(entry)
        self.last = entry.seq

    def send(self, statement: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """Run a statement, after what was appended, in one round trip."""
        unsent, self._unsent = self._unsent, []
        bound = [getattr(entry, name) for entry in unsent for name in COLUMNS]
        before = [*[_INSERT] * len(unsent), _MOVE] if unsent else []
        cursor = self._connection.execute("; ".join([*before, statement]), [*bound, *values])
        while cursor.nextset():
            pass
        return cursor

    def _query(self, columns: str, condition: str, *values: object) -> list[Any]:
        """See `Transaction`."""
        return self.send(f"SELECT {columns} FROM dpvb.entry WHERE {condition.replace('?', '%s')}", values).fetchall()
