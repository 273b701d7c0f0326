"""A ledger in one file: SQLite with a write-ahead log, and the head in a second file of the same folder.

PATH         the database
PATH.head    the head (see `head`) twice, in two places of equal size: after every commit the older one is overwritten,
             so that a torn write leaves the other; signed with the database file's SHA-256 when the last writer closes
PATH-wal, PATH-shm   SQLite's own, while a process has it open; they belong to PATH

A commit is durable in the log before the head is written, and acknowledged after that. So after a crash the head may be
behind the rows, which then follow from it one by one; a head ahead of the rows means that rows were lost.

The writer of the head has it locked, and first checks whether it is of this file's rows: of two copies that went apart
one is acknowledged. Files that were replaced while they were open are found out before anything is read or written.

Nothing here opens the database but SQLite: closing any other descriptor of a file would drop all locks that the process
holds on it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, final

from dpvb.guards.errors import LedgerError, LedgerUnreachableError, ParameterError
from dpvb.guards.file_ownership import new_own
from dpvb.ledger.chain import COLUMNS, FORMAT, WAY_OUT, Entry
from dpvb.ledger.head import Head
from dpvb.ledger.state import RESTORE, check_kept
from dpvb.ledger.store import Transaction, entry_of

_Identity = tuple[int, int]

_APPLICATION = 0x64707662  # "dpvb"
_WAIT = 30.0
_LOOKS = 5
# Places of the head begin where disks begin to write.
_PLACE = 4096
# Overwriting in place changes no facts of a file that need to be durable.
_SYNC = getattr(os, "fdatasync", os.fsync)
_NAMES = ", ".join(COLUMNS)
# With which SQLite makes a database, but for the bits that the umask takes.
_MODE = 0o644
# Files that this process had open with a log that is no longer there.
_abandoned: set[_Identity | None] = set()
_TYPES = {int: "INTEGER", str: "TEXT"}
_KEYS = {"seq": " PRIMARY KEY", "key": " UNIQUE"}
# File systems where locks or memory maps are not what SQLite's log needs: another machine writes to them, too, or their
# type is unknown.
_NETWORK = {
    *("9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "davfs2", "drvfs", "fuse", "gfs2"),
    *("glusterfs", "gpfs", "gvfsd-fuse", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs"),
    *("pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "webdav", "fuse.ceph", "fuse.curlftpfs"),
    *("fuse.davfs2", "fuse.glusterfs", "fuse.gvfsd-fuse", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.vmhgfs-fuse"),
}
# What any other program mounts ("fuse.NAME") may lie anywhere; these read disks of this machine.
_LOCAL_PROGRAMS = {"fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.exfat"}
_ADVICE = {
    "SQLITE_BUSY": f"another process has held it for {_WAIT:g} s; try again",
    "SQLITE_FULL": "the disk is full; make room and try again",
    "SQLITE_READONLY": "it may not be written to; check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; check that it exists, and the permissions of the file and its folder",
    "SQLITE_IOERR": "the disk could not be read or written",
    "SQLITE_NOTADB": "it is not a ledger",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_CONSTRAINT": "the database refused a row",
}

# Temporary errors, after which a later call may succeed.
_PASSING = ("SQLITE_BUSY", "SQLITE_IOERR")

_SCHEMA = {
    "ledger": "CREATE TABLE ledger (uuid TEXT PRIMARY KEY, format INTEGER NOT NULL, created TEXT NOT NULL) STRICT",
    "entry": "CREATE TABLE entry ("
    + ", ".join(f"{name} {_TYPES[kind]}{_KEYS.get(name, '')} NOT NULL" for name, kind in COLUMNS.items())
    + ") STRICT",
    "entry_run": "CREATE INDEX entry_run ON entry (run, seq)",
    "entry_dataset": "CREATE INDEX entry_dataset ON entry (dataset, seq) WHERE totals <> ''",
    "entry_form": "CREATE INDEX entry_form ON entry (dataset, form, kind) WHERE totals <> ''",
    **{
        f"{table}_{verb}": f"CREATE TRIGGER {table}_{verb} BEFORE {verb.upper()} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'rows of a ledger are only ever appended'); END"
        for table in ("ledger", "entry")
        for verb in ("update", "delete")
    },
    "entry_follows": """CREATE TRIGGER entry_follows BEFORE INSERT ON entry BEGIN
    SELECT RAISE(ABORT, 'a row does not follow the last row')
    FROM (SELECT max(seq) AS seq FROM entry) AS last
    WHERE NEW.seq <> ifnull(last.seq, 0) + 1
    OR NEW.prev <> ifnull((SELECT hash FROM entry WHERE seq = last.seq), NEW.prev);
END""",
    "charge_adds_up": """CREATE TRIGGER charge_adds_up BEFORE INSERT ON entry WHEN NEW.totals <> '' BEGIN
    SELECT RAISE(ABORT, 'totals are not those before plus the cost')
    FROM (SELECT (
        SELECT totals FROM entry WHERE dataset = NEW.dataset AND totals <> '' ORDER BY seq DESC LIMIT 1
    ) AS was)
    WHERE json_array_length(NEW.totals) <> json_array_length(NEW.cost) OR EXISTS (
        SELECT 1 FROM json_each(NEW.totals) AS total
        WHERE total.value <> min(4611686018427387904,
            ifnull(json_extract(was, total.fullkey), 0) + json_extract(NEW.cost, total.fullkey)));
    SELECT RAISE(ABORT, 'over the cap')
    WHERE NEW.kind <> 'sole' AND NEW.units > (SELECT units FROM entry WHERE key = 'dataset/' || NEW.dataset);
END""",
}


class SqliteStore:
    """A database file with its head.

    Args:
        path: the file; made if neither it nor its head is there.
        uuid, created: of a new ledger, if one is made.
        read_only: never write, not even to make it.

    Raises:
        LedgerError: if it is missing, lost, foreign, of another format, on a network drive, or cannot be opened.
    """

    shared = False

    def __init__(self, path: Path, *, uuid: str, created: str, read_only: bool) -> None:
        self._path, self._read_only = path, read_only
        self._head_path = path.with_name(f"{path.name}.head")
        self._wal_path = path.with_name(f"{path.name}-wal")
        self._places: tuple[_Identity | None, ...] = ()
        mounts = _mounts()
        _check_drive(path, mounts)
        _check_one_name(path, self._head_path, mounts)
        with self._typed():
            if not path.exists() or path.stat().st_size == 0:
                self._begin_head(uuid)
            self._connection = self._connected()
            try:
                if self._is_blank():
                    self._make(created)
                self.uuid = self._identify()
                self._places = self._file, _identity(self._wal_path)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[_Rows]:
        """Begin; commit durably at the end, or roll back if an exception passes."""
        with self._typed():
            self._check_place()
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield _Rows(self._connection)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")

    def head(self) -> Head | None:
        """The newer one of the two in the head's file."""
        try:
            for _ in range(_LOOKS):  # Another process may be writing one, and then the other.
                if head := _newest(self._head_path.read_bytes()):
                    return head
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self._head_path}: cannot be read ({error.strerror}).") from error
        raise LedgerError(f"{self._head_path}: it was changed, its own hash does not fit. {WAY_OUT}")

    def settle(self, head: Head) -> None:
        """Write the head, unless another writer has written a later one of this chain."""
        with self._typed(), self._locked_head() as file:
            self._check_place()
            stored = self._checked(file)
            if stored.seq < head.seq:
                self._write_head(file, head)

    def check(self) -> Sequence[str]:
        """Look at pages, indices and triggers, and at every byte of a file that was closed in order."""
        with self._typed():
            faults = [f"database: {row[0]}" for row in self._connection.execute("PRAGMA integrity_check(10)")]
            faults = [] if faults == ["database: ok"] else faults
            head = self.head()
            last = _Rows(self._connection).last_seq()
            if head is not None and head.file and head.seq == last and not self._log_size():
                changed = self._digest() != head.file
                if changed and self.head() == head:  # Nobody has written meanwhile.
                    faults.append("the file is not the one that was closed: a byte of it was changed")
                if self.head() == head and self._head_path.read_bytes() != _doubled(head):
                    faults.append("the head was changed")
        return faults

    def grant(self, role: str, *, append: bool) -> list[str]:
        """Refuse: a file has no roles."""
        raise ParameterError(
            f"{self._path} is a file, which has no roles: every user who may write the file may append. A team shares "
            "a ledger in PostgreSQL: Ledger('postgresql://...')."
        )

    def close(self) -> None:
        """Let go of the file; the last writer to do so signs it."""
        if self._is_moved():
            # SQLite would write its own log over the file that is there now: only the end of the process ends this one.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            _abandoned.add(self._file)
            return
        with suppress(sqlite3.Error, LedgerError, OSError, UnicodeError):
            if not self._read_only:
                self._sign()
        self._connection.close()

    @contextmanager
    def _locked_head(self) -> Iterator[BinaryIO]:
        """The head file, and the right to write it; its lock, unlike SQLite's, holds across copies of the database."""
        deadline = time.monotonic() + _WAIT
        while True:
            try:
                file = self._head_path.open("rb+")
            except FileNotFoundError as error:
                text = f"{self._head_path} is missing; it distinguishes a ledger from an older copy."
                raise LedgerError(text) from error
            except OSError as error:
                raise self._unwritten(error) from error
            with file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise LedgerUnreachableError(f"{self._head_path}: {_ADVICE['SQLITE_BUSY']}.") from error
                else:
                    if _identity(self._head_path) == _identity(file.fileno()):
                        yield file
                        return
            time.sleep(0.0005)

    def _checked(self, file: BinaryIO) -> Head:
        """The newest head in the file, if it is one of this database's rows."""
        head = _newest(file.read())
        if head is None:
            raise LedgerError(f"{self._head_path}: it was changed, its own hash does not fit. {WAY_OUT}")
        row = _Rows(self._connection).row(head.seq)
        check_kept(head, self.uuid, None if row is None else row.hash, RESTORE)
        return head

    def _is_moved(self) -> bool:
        """Whether other files lie where those that were opened did."""
        return bool(self._places) and (_identity(self._path), _identity(self._wal_path)) != self._places

    def _check_place(self) -> None:
        if self._is_moved():
            raise LedgerError(
                f"{self._path}: the file or its -wal was replaced or removed while it was open. Nothing is read from "
                "it and nothing acknowledged. Close it, and open it again when no other program replaces it."
            )

    def _digest(self) -> str:
        """SHA-256 of the database file, of which a fresh connection has no page in memory."""
        fresh = self._connect("ro" if self._mode == "rwc" else self._mode)
        try:
            return hashlib.sha256(fresh.serialize()).hexdigest()
        finally:
            fresh.close()

    def _begin_head(self, uuid: str) -> None:
        """Write the head of a new ledger, before the ledger: so a file that is gone is never taken for a new one."""
        if self._read_only:
            raise LedgerError(f"{self._path}: there is no ledger here.")
        if self.head() is None:
            with suppress(FileExistsError):  # Another process was faster: its ledger is used.
                self._replace_head(_doubled(Head.first(uuid)), new=True)
        self._first_head()

    def _first_head(self) -> Head:
        head = self.head()
        if head is None:
            raise LedgerError(f"{self._path}: this file is not a ledger; it was left as it is.")
        if head.seq > 0:
            raise LedgerError(
                f"{self._path} was lost: {self._head_path} lists {head.seq} rows, but this file has none. Restore "
                "the newest copy of it, with its -wal file if there was one."
            )
        return head

    def _write_head(self, file: BinaryIO, head: Head) -> None:
        """Overwrite the older head in its place, or both with a new file; only for who has it locked."""
        place = head.text().encode()
        try:
            file.seek(0)
            old = file.read()
            if head.file or len(place) >= len(old) // 2:
                self._replace_head(_doubled(head))
                return
            first, second = (one.seq if one else -1 for one in _heads(old))
            file.seek(0 if first <= second else len(old) // 2)
            file.write(place.ljust(len(old) // 2 - 1) + b"\n")
            file.flush()
            _SYNC(file.fileno())
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"{self._head_path}: cannot be written ({error.strerror}). The charge is recorded; the next charge will "
            "write this file."
        )

    def _replace_head(self, content: bytes, *, new: bool = False) -> None:
        with new_own(self._head_path, new=new, mode=_MODE) as file:
            _open_to_the_same(file.fileno(), self._path)
            file.write(content)

    def _connected(self) -> sqlite3.Connection:
        """A connection to the very file that lies at the path."""
        for _ in range(_LOOKS):
            self._file = _identity(self._path)
            if self._file in _abandoned:
                raise LedgerError(
                    f"{self._path}: its -wal file was replaced or removed while this process had it open, and part of "
                    "it is still in memory here. Begin a new process."
                )
            connection = self._configured()
            if self._file == _identity(self._path):
                return connection
            connection.close()
        raise LedgerError(
            f"{self._path}: the file is replaced again and again. Open it when no other program replaces it."
        )

    def _configured(self) -> sqlite3.Connection:
        self._mode = "ro" if self._read_only else "rwc"
        connection = self._connect(self._mode)
        try:
            if self._read_only:
                connection.execute("PRAGMA query_only = ON")
                try:
                    connection.execute("SELECT count(*) FROM sqlite_schema")
                except sqlite3.OperationalError:
                    # In a folder that cannot be written to there is no place for SQLite's shared memory.
                    if self._log_size():
                        raise
                    connection.close()
                    self._mode = "ro&immutable=1"
                    connection = self._connect(self._mode)
            else:
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cell_size_check = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}", uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
        )

    def _is_blank(self) -> bool:
        tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        return not tables and self._pragma("application_id") == 0

    def _make(self, created: str) -> None:
        """Make all tables in one transaction, unless another process has just made them."""
        head = self._first_head()
        self._patiently("PRAGMA journal_mode = WAL")
        with self.transaction(write=True):
            if self._is_blank():
                for statement in _SCHEMA.values():
                    self._connection.execute(statement)
                self._connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (head.uuid, FORMAT, created))
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def _patiently(self, statement: str) -> None:
        """Execute what SQLite does not wait for by itself."""
        deadline = time.monotonic() + _WAIT
        while True:
            try:
                self._connection.execute(statement)
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _identify(self) -> str:
        if self._pragma("application_id") != _APPLICATION:
            raise LedgerError(f"{self._path}: this file is not a ledger; it was left as it is.")
        if self._pragma("user_version") != FORMAT:
            version = self._pragma("user_version")
            raise LedgerError(f"{self._path}: this ledger has format {version}; this version of dpvb reads {FORMAT}.")
        schema = dict(self._connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
        for name in sorted(_SCHEMA.keys() | schema.keys()):
            if schema.get(name) != _SCHEMA.get(name):
                raise LedgerError(f"{self._path}: its {name} is not as it was made.")
        rows = self._connection.execute("SELECT uuid, format FROM ledger").fetchall()
        if len(rows) != 1 or rows[0][1] != FORMAT:
            raise LedgerError(f"{self._path}: its table `ledger` was changed.")
        return str(rows[0][0])

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _log_size(self) -> int:
        try:
            return self._wal_path.stat().st_size
        except FileNotFoundError:
            return 0

    def _sign(self) -> None:
        """Bring the whole log into the file and put the file's hash into the head, unless others are at it."""
        head = self.head()
        if head is None or head.file:
            return
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        with self.transaction(write=True) as rows, self._locked_head() as file:
            head = self._checked(file)
            if not self._log_size() and rows.last_seq() == head.seq:
                self._write_head(file, head.of_file(hashlib.sha256(self._connection.serialize()).hexdigest()))

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            advice = next((text for start, text in _ADVICE.items() if name.startswith(start)), "it cannot be used")
            kind = LedgerUnreachableError if name.startswith(_PASSING) else LedgerError
            raise kind(f"{self._path}: {advice} ({error}).") from error
        except UnicodeError as error:  # Names in a damaged file, in SQLite's own words about it.
            raise LedgerError(f"{self._path}: {_ADVICE['SQLITE_CORRUPT']}.") from error
        except OSError as error:
            raise LedgerError(f"{self._path}: {error.strerror}.") from error


@final
class _Rows(Transaction):
    """The rows within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def since(self, seq: int) -> Iterator[Entry]:
        """The rows with this number and all later ones, in order."""
        return map(
            entry_of, self._connection.execute(f"SELECT {_NAMES} FROM entry WHERE seq >= ? ORDER BY seq", (seq,))
        )

    def append(self, entry: Entry, head: Head) -> None:
        """Insert a row; the head follows after the commit."""
        marks = ", ".join("?" * len(COLUMNS))
        values = [getattr(entry, name) for name in COLUMNS]
        self._connection.execute(f"INSERT INTO entry ({_NAMES}) VALUES ({marks})", values)

    def last_seq(self) -> int:
        """The number of the last row."""
        return int(self._connection.execute("SELECT ifnull(max(seq), 0) FROM entry").fetchone()[0])

    def _query(self, columns: str, condition: str, value: int | str) -> list[Any]:
        """See `Transaction`."""
        return self._connection.execute(f"SELECT {columns} FROM entry WHERE {condition}", (value,)).fetchall()


def _open_to_the_same(descriptor: int, database: Path) -> None:
    """Give a file the mode, the group and, as root, the owner of its database, as SQLite does for its own."""
    with suppress(FileNotFoundError):
        state = os.stat(database)
        with suppress(PermissionError):
            os.fchown(descriptor, state.st_uid if os.geteuid() == 0 else -1, state.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(state.st_mode))


def _identity(place: Path | int) -> _Identity | None:
    """Return the device and inode of a file; None if there is no file."""
    try:
        state = os.stat(place)
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino


def _newest(content: bytes) -> Head | None:
    """The newer head of a head file, if one of them is whole."""
    return max((head for head in _heads(content) if head), key=lambda head: head.seq, default=None)


def _heads(content: bytes) -> tuple[Head | None, Head | None]:
    """The heads in both places; None where one is torn."""
    half = len(content) // 2
    return _readable(content[:half]), _readable(content[half:])


def _readable(place: bytes) -> Head | None:
    try:
        return Head.read(place.decode("ascii").rstrip())
    except (LedgerError, UnicodeDecodeError):
        return None


def _doubled(head: Head) -> bytes:
    """A head file with a head in both places, and room to grow."""
    text = head.text().encode()
    return (text.ljust(_PLACE * (1 + 2 * len(text) // _PLACE) - 1) + b"\n") * 2


def _check_one_name(path: Path, head_path: Path, mounts: str) -> None:
    """Refuse a file that has another name elsewhere: there another log and another head would be used."""
    links, points = 1, {root for root, _ in _mounted(mounts)}
    with suppress(OSError):
        links = os.stat(path).st_nlink
    if links != 1 or points & {path, head_path}:
        why = "has another name (a hard link)" if links != 1 else "or its head is mounted by itself"
        raise LedgerError(
            f"{path}: this file {why}, so other processes could spend without this process noticing. Mount the "
            "folder of the ledger and its head, or copy both files and use only the copies."
        )


def _mounts() -> str:
    """File systems that are mounted for this process; "" on a system that does not list them."""
    try:
        return os.fsdecode(Path("/proc/self/mounts").read_bytes())
    except OSError:
        return ""


def _mounted(mounts: str) -> Iterator[tuple[Path, str]]:
    """The places where something is mounted, with its type, from the text of /proc/mounts."""
    for line in filter(None, mounts.split("\n")):
        point, name = line.split(" ")[1:3]
        # The kernel writes a blank, a line end or a backslash of a name in octal, and every other byte as it is.
        plain = re.sub(rb"\\([0-3][0-7]{2})", lambda found: bytes([int(found[1], 8)]), os.fsencode(point))
        yield Path(os.fsdecode(plain)), name


def _check_drive(path: Path, mounts: str) -> None:
    kind = file_system(path, mounts)
    if is_network(kind):
        raise LedgerError(
            f"{path}: this is a network drive ({kind}), where file locks are not reliable. Use a local disk, or "
            "PostgreSQL: Ledger('postgresql://...')."
        )


def is_network(kind: str) -> bool:
    """Return whether another machine may write to a file system of this type."""
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_PROGRAMS)


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that a path lies on, from the text of /proc/mounts; the last entry counts."""
    where, kind = -1, ""
    for root, name in _mounted(mounts):
        if path.is_relative_to(root) and len(root.parts) >= where:
            where, kind = len(root.parts), name
    return kind
