"""A real PostgreSQL server of one's own, in a temporary folder, for as long as a block runs."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote


def programs() -> Path | None:
    """The folder of the newest server's programs; None where there is none."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb")
    return installed[-1].parent if installed else Path(found).parent if found else None


@dataclass(frozen=True)
class Server:
    """Answers on a socket in a folder; the administrator `admin` has a password.

    `stop` does so without a farewell: what is not on the disk by then is lost. `start` recovers.
    """

    folder: Path
    password: str
    owner: pwd.struct_passwd | None
    settings: Mapping[str, str]

    def start(self) -> None:
        """Start it."""
        options = {"listen_addresses": "", "unix_socket_directories": self.folder, **self.settings}
        chosen = " ".join(f"-c {key}='{value}'" for key, value in options.items())
        self.control("-l", self.folder / "log", "-o", chosen, "start")

    def stop(self) -> None:
        """Stop it as a power cut would."""
        self.control("-m", "immediate", "stop")

    def control(self, *words: object) -> None:
        """Run `pg_ctl` on its data."""
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-s", *words, owner=self.owner)

    @contextmanager
    def standby(self) -> Iterator[Server]:
        """Another server, which follows this one; it is stopped in the end."""
        other = replace(self, folder=self.folder / "standby")
        other.folder.mkdir()
        if self.owner is not None:
            os.chown(other.folder, self.owner.pw_uid, self.owner.pw_gid)
        copied = (
            "-D",
            other.folder / "data",
            "-d",
            self.url("postgres"),
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        )
        self.run("pg_basebackup", *copied, owner=self.owner)
        other.start()
        try:
            yield other
        finally:
            with suppress(AssertionError):
                other.stop()

    def wait_for(self, standby: Server) -> None:
        """Return once a standby has all that this server has written."""
        [(end,)] = self.execute("SELECT pg_current_wal_flush_lsn()")
        standby.until(f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{end}'")

    def run(self, program: str, *arguments: object, feed: str = "", owner: pwd.struct_passwd | None = None) -> str:
        """What one of PostgreSQL's programs says, fed with a text; run as its owner, or else as this user."""
        found = programs()
        assert found is not None, "no PostgreSQL server is installed: setup/debian.sh"
        as_user = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        words = [str(word) for word in (found / program, *arguments)]
        with tempfile.TemporaryFile("w+") as said:  # Not a pipe: a server that was started would hold it open.
            done = subprocess.run(words, cwd=self.folder, input=feed, stdout=said, stderr=said, text=True, **as_user)
            said.seek(0)
            assert done.returncode == 0, f"{words[0]}: {said.read()}"
            return said.read()

    def until(self, query: str) -> None:
        """Return once a query finds something, each time over a new connection."""
        deadline = time.monotonic() + 60
        while not self.execute(query):
            assert time.monotonic() < deadline, f"never: {query}"
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The process that starts all others of the server."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def url(self, database: str, user: str = "admin", password: str | None = None) -> str:
        """Address of one of its databases."""
        secret = quote(self.password if password is None else password, safe="")
        return f"postgresql://{user}:{secret}@/{database}?host={quote(str(self.folder), safe='')}"

    def new_database(self) -> str:
        """Address of a database made now."""
        name = f"ledger_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements as the administrator; the rows of the last one."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running(*, on_disk: bool = False, **settings: str) -> Iterator[Server]:
    """Start a server with these settings; stop it and remove its folder in the end.

    Its files lie in memory where that is possible and nobody asks for the disk. It runs as this user, or, since
    PostgreSQL refuses to run as root, as the user `postgres` (`nobody` where there is none).
    """
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) and not on_disk else None
    with tempfile.TemporaryDirectory(prefix="dpvb-postgresql-", dir=place) as name:
        folder, secret = Path(name), secrets.token_hex(16) + "/@: %"
        owner = _owner() if os.geteuid() == 0 else None
        server, password = Server(folder, secret, owner, settings), folder / "password"
        password.write_text(secret)
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            os.chown(password, owner.pw_uid, owner.pw_gid)
        server.run(
            *("initdb", "-D", folder / "data", "-U", "admin", "--auth=scram-sha-256", f"--pwfile={password}"),
            *("-E", "UTF8", "--no-locale", "--no-sync", "--data-checksums", "--wal-segsize=1"),
            owner=owner,
        )
        server.start()
        try:
            yield server
        finally:
            with suppress(AssertionError):  # It may lie down already.
                server.stop()


def _owner() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
