"""The errors that dpvb raises, and its warnings; every one of them speaks of public things only."""

from __future__ import annotations

import errno
import math
import os
from numbers import Number, Real
from pathlib import Path
from typing import Literal, TypeVar

#: A path that is wrong may be of any length; a message shows so many characters.
_SHOWN = 80
_NO_PURE_EPSILON = (
    "Pure epsilon-differential privacy (delta = 0) is not available, because normal noise exceeds every epsilon with a "
    "small probability. Choose a delta well below one over the number of units, for example 1e-6. Or use a tool with "
    "Laplace noise, such as OpenDP or diffprivlib, and record its cost with dpvb.accounting.LaplaceNoise. Nothing was "
    "charged."
)

Choice = TypeVar("Choice", bound=str)


class DpvbError(Exception):
    """Base of all errors of this package."""


class DpvbWarning(UserWarning):
    """Base of all warnings of this package: the call is allowed, but probably not intended."""


class FewUnitsWarning(DpvbWarning):
    """The released number of included units is hardly above 0. The fit was charged."""


class LostInNoiseWarning(DpvbWarning):
    """Noise hides the result: by the expected accuracy (not yet charged), or by released numbers (charged)."""


class NotSettledWarning(DpvbWarning):
    """The scores of a user-defined model have not settled after the last step. The fit was charged."""


class FewWordsWarning(DpvbWarning):
    """A private vocabulary has few words. The fit was charged."""


class SyntheticIntervalWarning(DpvbWarning):
    """An interval by synthetic tables does not include the error of the model from which they were drawn."""


class NotRecordedWarning(DpvbWarning):
    """A private fit is not recorded in a ledger, so no charge exists. Shown once per process."""


class DataDependentBoundWarning(DpvbWarning):
    """A public range has many digits: it may have been computed from private rows. Not yet charged."""


class ParameterError(DpvbError, ValueError):
    """A public argument is outside its allowed range. Nothing was charged."""


class DataFormatError(DpvbError, ValueError):
    """Data do not have the declared public form (type, width, file format). Nothing was charged."""


class PrivacyError(DpvbError, RuntimeError):
    """The call would break the privacy guarantee. It is refused without a charge; earlier charges remain."""


class PrivateComputationError(DpvbError, RuntimeError):
    """A computation on private data failed, for a reason that is private. The fit was charged."""


class OutOfMemoryError(DpvbError, MemoryError):
    """A computation on private data had not enough memory; the charge stands, and no unit was left out."""


class EmptyVocabularyError(DpvbError, RuntimeError):
    """A private vocabulary has no word. The selection of words was charged."""


class ModelFileError(DpvbError, ValueError):
    """A model file is missing, damaged, changed, or of another format. Nothing was charged."""


class CheckpointError(DpvbError, RuntimeError):
    """A run cannot be recorded in its folder, or resumed from it. Its charge, if it began, remains."""


class RunCompletedError(CheckpointError):
    """The run of a checkpoint has ended already; nothing was spent."""


class LedgerError(DpvbError, RuntimeError):
    """A ledger cannot be read, trusted or written. Only recorded charges count."""


class LedgerUnreachableError(LedgerError):
    """A ledger cannot be reached for now, as the server is down or another process holds the file; try again."""


class BudgetError(LedgerError):
    """The remaining budget of a data set does not suffice for a plan. Nothing was charged."""


class FederationError(DpvbError, RuntimeError):
    """A message, a party or a round of a federated run was refused. Only recorded charges count."""


def reason_of(error: OSError) -> str:
    """Why a file cannot be used, in words; empty where nobody says."""
    return "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or ""


def shown(value: object) -> str:
    """Return a public argument as an error shows it: numbers and short texts as they are, the type of anything else.

    A table, a matrix or a schema would fill the screen, and may be private.
    """
    is_plain = value is None or isinstance(value, (Number, str, bytes, Path))
    text = repr(value) if is_plain else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def check_number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    closed: Literal["both", "left", "right", "neither"] = "both",
    hint: str = "",
) -> float:
    """Return a public number as float if it lies in its allowed range.

    NaN is never allowed; infinity only where the closed range reaches it.

    Raises:
        ParameterError: naming the parameter, the range and the value.
    """
    left, right = "[" if closed in ("both", "left") else "(", "]" if closed in ("both", "right") else ")"
    number = math.nan
    if not isinstance(value, (bool, str, bytes)):
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    inside = (number >= low if left == "[" else number > low) and (number <= high if right == "]" else number < high)
    if not inside:
        if isinstance(value, str):
            hint = f"{hint} That is a text: numbers stand without quotes, and infinity is float('inf').".strip()
        way_out = f" {hint}" if hint else ""
        raise ParameterError(f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {shown(value)}.{way_out}")
    return number


def check_delta(value: object, name: str = "delta", *, high: float = 1, hint: str = "") -> float:
    """Return a public delta if it lies in (0, high): the one place where pure epsilon-DP is refused.

    Raises:
        ParameterError: naming the parameter, the range and the value; for 0 with the reason and an alternative.
    """
    pure = isinstance(value, Real) and value == 0
    return check_number(name, value, low=0, high=high, closed="neither", hint=_NO_PURE_EPSILON if pure else hint)


def check_integer(name: str, value: object, *, low: int, high: int = 2**53, hint: str = "") -> int:
    """Return a public whole number as int if it lies in [low, high].

    Raises:
        ParameterError: naming the parameter, the range and the value.
    """
    number = check_number(name, value, low=low, high=high, hint=hint)
    if number != int(number):
        way_out = f" {hint}" if hint else ""
        raise ParameterError(f"{name} must be a whole number in [{low}, {high}], got {shown(value)}.{way_out}")
    return int(number)


def check_choice(name: str, value: object, choices: tuple[Choice, ...], *, hint: str = "") -> Choice:
    """Return a public option if it is one of the choices.

    Raises:
        ParameterError: naming the parameter, the choices and the value.
    """
    for choice in choices if isinstance(value, str) else ():
        if choice == value:
            return choice
    way_out = f" {hint}" if hint else ""
    raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}.{way_out}")


def check_path(name: str, value: object) -> Path:
    """Return where a public argument says that a file or a folder is; a number, which `open` takes too, says no place.

    Whether something is there, and what, is for the caller to find out.

    Raises:
        ParameterError: naming the parameter and the value, also for a text that no file of this system can have as its
            path: one with a null character or half of a surrogate pair, too long a name.
    """
    place = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(place, str) or not place:
        raise ParameterError(f"{name} must be a path, as text or as pathlib has it, got {shown(value)}.")
    try:
        os.stat(place)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            reason = "null character or surrogate" if isinstance(error, ValueError) else error.strerror
            cut = f"{ascii(place)[:_SHOWN]}..." if len(ascii(place)) > _SHOWN else ascii(place)
            raise ParameterError(f"{name} must be a path that a file can have, got {cut} ({reason}).") from None
    return Path(place)


def check_target(name: str, value: object, *, overwrite: bool) -> Path:
    """Return where a file is to be written.

    Raises:
        ParameterError: for no path, or if a file is there that may not be replaced.
    """
    place = check_path(name, value)
    if not overwrite and place.exists():
        raise ParameterError(f"{str(place)!r} is already there. Name another file, or give overwrite=True.")
    return place
