"""A real PostgreSQL server of one's own, in a temporary folder, for as long as a block runs."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
    start: Callable[[], None]
    stop: Callable[[], None]

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
    found = programs()
    assert found is not None, "no PostgreSQL server is installed: setup/debian.sh"
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) and not on_disk else None
    with tempfile.TemporaryDirectory(prefix="dpvb-postgresql-", dir=place) as name:
        folder, secret = Path(name), secrets.token_hex(16) + "/@: %"
        owner = _owner() if os.geteuid() == 0 else None
        data, password = folder / "data", folder / "password"
        password.write_text(secret)
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            os.chown(password, owner.pw_uid, owner.pw_gid)

        def run(*command: object) -> None:
            as_user = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            words = [str(word) for word in command]
            done = subprocess.run(
                words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, **as_user
            )
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"

        run(
            *(found / "initdb", "-D", data, "-U", "admin", "--auth=scram-sha-256", f"--pwfile={password}"),
            *("-E", "UTF8", "--no-locale", "--no-sync", "--data-checksums", "--wal-segsize=1"),
        )
        options = {"listen_addresses": "", "unix_socket_directories": name, "max_connections": "100", **settings}
        chosen = " ".join(f"-c {key}='{value}'" for key, value in options.items())
        control = (found / "pg_ctl", "-D", data, "-w", "-s")
        server = Server(
            folder,
            secret,
            start=lambda: run(*control, "-l", folder / "log", "-o", chosen, "start"),
            stop=lambda: run(*control, "-m", "immediate", "stop"),
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
