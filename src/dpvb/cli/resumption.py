"""How a fit was called: kept beside its run, and read again by `dpvb resume`.

The call lies in the run's folder. Whoever could write it could have this user's rows fitted and files replaced, so it
is believed only where nobody else could, only for a run that was begun and is charged to a ledger, and it is shown.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

from dpvb.guards.errors import CheckpointError, ParameterError
from dpvb.guards.own import check_own_folder, read_own, write_own
from dpvb.guards.strangers import parsed_json, printable
from dpvb.ledger.address import HIDDEN, Address, without_password

_CALL = "command.json"


def remember(folder: Path, command: str, given: Mapping[str, Any]) -> None:
    """Leave a fit's call in its checkpoint, names of files and public parameters; that of a run that began stays.

    Raises:
        CheckpointError: if the folder cannot hold a checkpoint, or others can write it.
        ParameterError: for a number that is not finite.
    """
    from dpvb.runs.checkpoint import Checkpoint

    plain = {name: _lasting(value) if isinstance(value, Path) else value for name, value in given.items()}
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


def _lasting(path: Path) -> str:
    """A path from everywhere; the name of a word list, or of the words that are found, is one already."""
    from dpvb.data.documents import word_lists
    from dpvb.data.documents.vocabulary import PRIVATE

    return str(path if word_lists.is_name(path) or str(path) == PRIVATE else path.absolute())


def kept(folder: Path) -> tuple[str, dict[str, Any]]:
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


def check_run(folder: Path, call: Mapping[str, Any]) -> None:
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


def arguments(folder: Path, callback: Callable[..., None], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a file as a command takes them; an option that an earlier version had not is left to its default.

    Raises:
        CheckpointError: if one is missing, unknown, or of another type than the command's.
    """
    parameters = inspect.signature(callback).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    if odd := sorted((needed - given.keys()) | (given.keys() - parameters.keys())):
        raise CheckpointError(f"{folder}: its call has not the parameters of this version: {', '.join(odd)}.")
    values = {name: parameter.default for name, parameter in parameters.items()}
    for name in given:
        try:
            values[name] = _argument(parameters[name].annotation, given[name])
        except (TypeError, OverflowError) as error:
            raise CheckpointError(f"{folder}: {name} of its call is of another type than the command's.") from error
    return values


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


def shown(callback: Callable[..., None], call: Mapping[str, Any]) -> str:
    """What a call says beside the defaults, for a terminal."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(callback).parameters.items()}
    given = {name: value for name, value in call.items() if value != defaults[name]} | {
        "ledger": Address(call["ledger"])
    }
    words = (f"{name}={str(value) if isinstance(value, Path) else value!r}" for name, value in given.items())
    return printable(", ".join(words))
