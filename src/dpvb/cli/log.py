"""`--log-file`: messages of a command, as lines of JSON with times; only public facts, as on standard error.

A line is one write at the end of the file, so that several processes may share a file. When a line was written tells
how long a step took, which the guarantee does not cover; so only this user may read the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from dpvb.guards import untrusted
from dpvb.guards.errors import ParameterError, reason_of
from dpvb.guards.version import version_with_commit

#: The words of this call of the program, as they were typed.
words: tuple[str, ...] = ()
# The open file of this process's command; None: there is none.
_file: int | None = None


def begin(context: typer.Context, path: Path | None) -> Path | None:
    """Open the log of a command, at its end if it is there, and write the first line.

    Raises:
        ParameterError: if the file cannot be written, or is a link.
    """
    global _file
    if path is None or context.resilient_parsing:
        return None
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        _file = os.open(path, flags, 0o600)
    except OSError as error:
        reason = reason_of(error)
        raise ParameterError(f"--log-file must be a file that can be written, got {path}: {reason}.") from None
    write("start", command=context.command_path, arguments=arguments(), version=version_with_commit())
    return path


def arguments() -> list[str]:
    """Return the words of the call after the name of the program, without passwords of addresses."""
    from dpvb.ledger.address import without_password

    shown = []
    for word in words:
        option, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
        shown.append(f"{option}{sign}{without_password(value)}")
    return shown


def write(event: str, *, level: str = "info", **facts: Any) -> None:
    """Add a line, where a log is open; a log that can take no more is closed, and the command goes on.

    Args:
        event: "start", "step", "message", "statement" or "end".
        level: "info", "warning" or "error".
        facts: public values that JSON can hold.
    """
    global _file
    if _file is None:
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": now, "level": level, "event": event, "process": os.getpid(), **facts}
    try:
        os.write(_file, (json.dumps(line) + "\n").encode())
    except OSError as error:
        _close()
        untrusted.say(f"warning: the log ends here: {reason_of(error)}.")


untrusted.hearers.append(lambda line: write("message", message=line))


@contextmanager
def ended() -> Iterator[None]:
    """Write the last line when the block is left, with the exit code, and close the log."""
    code: object = 0
    try:
        yield
    except SystemExit as stop:
        code = stop.code
        raise
    except BaseException as stop:
        code = getattr(stop, "exit_code", 1)
        raise
    finally:
        write("end", level="info" if code == 0 else "error", exit_code=code)
        _close()


def _close() -> None:
    global _file
    if _file is not None:
        with suppress(OSError):
            os.close(_file)
    _file = None
