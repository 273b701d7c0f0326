"""`dpvb resume`: go on with a fit that was killed, as it was called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

import typer

from dpvb.cli import options
from dpvb.cli.root import app, fit
from dpvb.errors import CheckpointError

_CALL = "command.json"


def remember(folder: Path, command: str, given: Mapping[str, Any]) -> None:
    """Leave a fit's call in its checkpoint, names of files and public parameters; that of a run that began stays.

    Raises:
        CheckpointError: if the folder cannot be written.
    """
    plain = {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in given.items()}
    if plain["ledger"] is not None:
        plain["ledger"] = _without_password(plain["ledger"])
    if (folder / "run.json").exists():
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / _CALL).write_text(json.dumps({"command": command, "given": plain}, indent=1), encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot hold a checkpoint ({error.strerror}).") from error


@app.command()
def resume(
    checkpoint: Annotated[Path, typer.Argument(help="The folder that the fit was given as --checkpoint.")],
    read: Annotated[
        bool, typer.Option("--read", help="Read a run that has ended; its model is written again, nothing is spent.")
    ] = False,
    ledger: Annotated[
        str | None,
        typer.Option(help="The ledger, where its URL needs a password: that is not kept.", show_default=False),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Go on with a fit that was killed, from its last release.

    What was released is read from the folder and costs nothing. The fit is called as it was the first time, so data and
    ledger must be where they were.

        dpvb resume notes.run
    """
    try:
        call = json.loads((checkpoint / _CALL).read_text(encoding="utf-8"))
        command, given = str(call["command"]), dict(call["given"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{checkpoint}: holds no call of `dpvb fit`. A fit from Python goes on with the same call of fit."
        ) from error
    commands = {getattr(one.callback, "__name__", ""): one.callback for one in fit.registered_commands}
    if (callback := commands.get(command)) is None:
        raise CheckpointError(f"{checkpoint}: its call is of {command!r}, which this version does not know.")
    given |= {} if ledger is None else {"ledger": ledger}
    given |= {"overwrite": overwrite or given["overwrite"]} | ({"resume": "read"} if read else {})
    callback(**{name: Path(value) if name in _paths(callback) and value else value for name, value in given.items()})


def _without_password(ledger: str) -> str:
    """A path as it is from everywhere; a URL as anybody may see it."""
    if "://" not in ledger:
        return str(Path(ledger).absolute())
    parts = urlsplit(ledger)
    if parts.password is None:
        return ledger
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}"))


def _paths(callback: Any) -> set[str]:
    """Names of the parameters that are paths."""
    return {name for name, hint in callback.__annotations__.items() if "Path" in str(hint)}
