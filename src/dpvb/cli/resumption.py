"""`dpvb resume`: go on with a fit that was killed, as it was called.

The call lies in the run's folder. Whoever could write it could have this user's rows fitted and files replaced, so it
is believed only where nobody else could, only for a run that was begun and is charged to a ledger, and it is shown.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app, fit
from dpvb.cli.terminal import remark
from dpvb.errors import CheckpointError, ParameterError
from dpvb.guards.own import check_own_folder, read_own, write_own
from dpvb.guards.strangers import parsed_json, printable
from dpvb.ledger.address import HIDDEN, Address, without_password

_CALL = "command.json"


def _of_every_fit(
    num_steps: options.NumSteps = None,
    sampling_prob: options.SamplingProb = None,
    batch_size: options.BatchSize = None,
    num_examples: options.NumExamples = None,
    noise_multiplier: options.NoiseMultiplier = None,
    neighboring_relation: options.Relation = options.ADD_OR_REMOVE,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    checkpoint: options.CheckpointFolder = None,
    resume: options.Resume = "continue",
) -> None:
    """Never called: `planned` copies these parameters onto every fit command."""


def planned(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every fit; it gets their values as one mapping, its argument `plan`.

    A fit with a checkpoint leaves in its folder how it was called, for `dpvb resume`.
    """
    shared = inspect.signature(_of_every_fit, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        if given["checkpoint"] is not None:
            remember(given["checkpoint"], command.__name__, given)
        plan = {name: given.pop(name) for name in shared}
        command(**given, plan=plan)

    parameters = [p for p in own.parameters.values() if p.name != "plan"] + list(shared.values())
    del run.__wrapped__  # Typer is to read the parameters below, not the command's.
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return run


def remember(folder: Path, command: str, given: Mapping[str, Any]) -> None:
    """Leave a fit's call in its checkpoint, names of files and public parameters; that of a run that began stays.

    Raises:
        CheckpointError: if the folder cannot hold a checkpoint, or others can write it.
        ParameterError: for a number that is not finite.
    """
    from dpvb.runs.checkpoint import Checkpoint

    plain = {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in given.items()}
    if plain["ledger"] is not None:
        plain["ledger"] = without_password(plain["ledger"])
        if "://" not in plain["ledger"]:
            plain["ledger"] = str(Path(plain["ledger"]).absolute())
    try:
        text = json.dumps({"command": command, "given": plain}, indent=1, allow_nan=False)
    except ValueError as error:
        raise ParameterError("a fit with checkpoint= takes finite numbers: without privacy none is needed.") from error
    if Checkpoint(folder).manifest() is None:
        try:
            write_own(folder / _CALL, text.encode())
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
    ledger must be where they were; the call is printed. Folder and files must be this user's, and nobody else's to
    write. A file that is where the model goes is replaced only with --overwrite.

        dpvb resume notes.run
    """
    command, given = _call(checkpoint)
    commands = {getattr(one.callback, "__name__", ""): one for one in fit.registered_commands}
    if command not in commands:
        raise CheckpointError(f"{checkpoint}: its call is of {command!r}, which this version does not know.")
    callback: Callable[..., None] | None = commands[command].callback
    assert callback is not None
    given |= {"checkpoint": str(checkpoint.absolute()), "overwrite": overwrite}
    given |= {} if ledger is None else {"ledger": ledger}
    # A way to go on that earlier versions had is left to this one's default.
    usual = inspect.signature(callback).parameters["resume"].default
    given |= {"resume": "read" if read or given.get("resume") == "read" else usual}
    call = _arguments(checkpoint, callback, given)
    _check_run(checkpoint, call)
    files.check_target(call["out"], overwrite)
    remark(f"going on with `fit {commands[command].name}` of {_shown(callback, call)}")
    callback(**call)


def _call(folder: Path) -> tuple[str, dict[str, Any]]:
    """The command and the values that a folder keeps.

    Raises:
        CheckpointError: if there are none, or somebody else could have written them.
    """
    try:
        check_own_folder(folder)
        call = parsed_json(read_own(folder / _CALL, secret=False))
        return str(call["command"]), dict(call["given"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder}: holds no call of `dpvb fit`. A fit from Python goes on with the same call of fit."
        ) from error


def _check_run(folder: Path, call: Mapping[str, Any]) -> None:
    """Refuse a call that belongs to no run in its folder; the run itself compares ledger, plan and parameters.

    Raises:
        CheckpointError: naming what is missing or damaged.
    """
    from dpvb.runs.checkpoint import Checkpoint

    run = Checkpoint(folder).manifest()
    if run is None:
        raise CheckpointError(f"{folder}: no run was begun here, so nothing was spent. Call `dpvb fit` again.")
    if call["ledger"] is None or call["dataset"] is None:
        raise CheckpointError(f"{folder}: its call names no ledger and data set, and a run that is kept has both.")
    if call["ledger"].endswith(f"://{HIDDEN}"):
        raise CheckpointError(f"{folder}: the address of its ledger could not be kept. Give it: --ledger.")
    if run["dataset"] != call["dataset"]:
        raise CheckpointError(f"{folder}: its call is of another data set than its run. Call `dpvb fit` again.")


def _arguments(folder: Path, callback: Callable[..., None], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a file as a command takes them.

    Raises:
        CheckpointError: if one is missing, unknown, or of another type than the command's.
    """
    parameters = inspect.signature(callback).parameters
    if odd := sorted(parameters.keys() ^ given.keys()):
        raise CheckpointError(f"{folder}: its call has not the parameters of this version: {', '.join(odd)}.")
    found = {}
    for name, parameter in parameters.items():
        try:
            found[name] = _argument(parameter.annotation, given[name])
        except (TypeError, OverflowError) as error:
            raise CheckpointError(f"{folder}: {name} of its call is of another type than the command's.") from error
    return found


def _argument(hint: Any, value: Any) -> Any:
    """A JSON value as the type that a command asks for.

    Raises:
        TypeError, OverflowError: if it is none.
    """
    if get_origin(hint) is Annotated:
        return _argument(get_args(hint)[0], value)
    for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if kind is NoneType and value is None:
            return None
        if kind is Path and type(value) is str and "\0" not in value:
            return Path(value)
        if kind is float and type(value) in (int, float):
            return float(value)
        if get_origin(kind) is tuple and type(value) is list and len(value) == len(get_args(kind)):
            return tuple(map(_argument, get_args(kind), value))
        if kind is not NoneType and type(value) is kind:
            return value
    raise TypeError


def _shown(callback: Callable[..., None], call: Mapping[str, Any]) -> str:
    """What a call says beside the defaults, for a terminal."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(callback).parameters.items()}
    given = {name: value for name, value in call.items() if value != defaults[name]} | {
        "ledger": Address(call["ledger"])
    }
    words = (f"{name}={str(value) if isinstance(value, Path) else value!r}" for name, value in given.items())
    return printable(", ".join(words))
