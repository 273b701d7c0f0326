"""Errors and warnings of dpvb. Their texts contain only public values."""

from __future__ import annotations

import errno
import math
import os
from numbers import Number, Real
from pathlib import Path
from typing import Literal, TypeVar

#: Number of characters of a value in a message.
_SHOWN = 80
_NO_PURE_EPSILON = (
    "Pure epsilon-differential privacy (delta = 0) is not available, because normal noise exceeds every epsilon with a "
    "small probability. Choose a delta well below one over the number of units, for example 1e-6. Or use a tool with "
    "Laplace noise, such as OpenDP or diffprivlib, and record its cost with dpvb.accounting.LaplaceNoise. Nothing was "
    "charged."
)

Choice = TypeVar("Choice", bound=str)


class DpvbError(Exception):
    """Base class of all errors of dpvb."""


class DpvbWarning(UserWarning):
    """Base class of warnings: a call is allowed, but probably not intended."""


class FewUnitsWarning(DpvbWarning):
    """Warning that a fit included few or no units, according to the released number. The budget was spent."""


class LostInNoiseWarning(DpvbWarning):
    """Warning that noise hides the result of a fit, by expected accuracy (before the charge) or released numbers."""


class NotSettledWarning(DpvbWarning):
    """Warning that a regression, or a model of your own, has not converged. The budget was spent."""


class FewWordsWarning(DpvbWarning):
    """Warning that a private vocabulary has few words. The budget was spent."""


class SyntheticIntervalWarning(DpvbWarning):
    """Warning that an interval by synthetic tables does not include the error of the model that generated them."""


class NotRecordedWarning(DpvbWarning):
    """Warning that a private fit is not recorded in a ledger, so that no charge exists; shown once per process."""


class DataDependentBoundWarning(DpvbWarning):
    """Warning before the charge that a public range may have been computed from private rows: it has many digits."""


class ParameterError(DpvbError, ValueError):
    """Raised if a public argument is outside its allowed range. No budget was spent."""


class DataFormatError(DpvbError, ValueError):
    """Raised if data do not have the declared form (type, width, file format). No budget was spent."""


class PrivacyError(DpvbError, RuntimeError):
    """Raised if a call would violate the privacy guarantee. No budget was spent."""


class PrivateComputationError(DpvbError, RuntimeError):
    """Raised if a computation on private data failed. The budget was spent. The reason is not released."""


class OutOfMemoryError(DpvbError, MemoryError):
    """Raised if a computation on private data has too little memory. No unit is left out.

    The budget was spent unless the message states otherwise.
    """


class EmptyVocabularyError(DpvbError, RuntimeError):
    """Raised if a private vocabulary is empty. The budget of the selection was spent."""


class ModelFileError(DpvbError, ValueError):
    """Raised if a model file is missing, damaged, modified or of another format. No budget was spent."""


class CheckpointError(DpvbError, RuntimeError):
    """Raised if a run cannot use a checkpoint folder. A recorded charge remains."""


class RunCompletedError(CheckpointError):
    """Raised if the run of a checkpoint has ended already. No budget was spent."""


class LedgerError(DpvbError, RuntimeError):
    """Raised if a ledger cannot be read or written, or fails a check. No unrecorded budget was spent."""


class LedgerUnreachableError(LedgerError):
    """Raised if a ledger cannot be reached now: the server is down, or another process holds the file. Try again."""


class BudgetError(LedgerError):
    """Raised if a data set has not enough budget left for a plan. No budget was spent."""


class FederationError(DpvbError, RuntimeError):
    """Raised if a message, party or round of a federated run is refused. No unrecorded budget was spent."""


def reason_of(error: OSError) -> str:
    """Return why a file cannot be used, in words; empty if unknown."""
    return "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or ""


def shown(value: object) -> str:
    """Return a public argument for a message: a number or a short text, or the type of anything else.

    A table, a matrix or a schema would be too long, and may be private.
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
    """Return a public number as float if it is in its allowed range.

    NaN is never allowed, infinity only if the closed range includes it.

    Raises:
        ParameterError: If it is not, with parameter, range and value.
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
            hint = f"{hint} The value is a text. Write numbers without quotes, and infinity as float('inf').".strip()
        way_out = f" {hint}" if hint else ""
        limits = f"at least {low:g}" if (left, high) == ("[", 2**53) else f"in {left}{low:g}, {high:g}{right}"
        raise ParameterError(f"{name} must be a number {limits}, got {shown(value)}.{way_out}")
    return number


def check_delta(value: object, name: str = "delta", *, high: float = 1, hint: str = "") -> float:
    """Return a public delta if it is in (0, high). Pure ε-differential privacy is refused here.

    Raises:
        ParameterError: If it is not, with parameter, range and value; for 0 with the reason and an alternative.
    """
    pure = isinstance(value, Real) and value == 0
    return check_number(name, value, low=0, high=high, closed="neither", hint=_NO_PURE_EPSILON if pure else hint)


def check_integer(name: str, value: object, *, low: int, high: int = 2**53, hint: str = "") -> int:
    """Return a public integer as int if it is in [low, high].

    Raises:
        ParameterError: If it is not, with parameter, range and value.
    """
    number = check_number(name, value, low=low, high=high, hint=hint)
    if number != int(number):
        way_out = f" {hint}" if hint else ""
        raise ParameterError(f"{name} must be an integer in [{low}, {high}], got {shown(value)}.{way_out}")
    return int(number)


def check_choice(name: str, value: object, choices: tuple[Choice, ...], *, hint: str = "") -> Choice:
    """Return a public option if it is one of the choices.

    Raises:
        ParameterError: If it is not, with parameter, choices and value.
    """
    for choice in choices if isinstance(value, str) else ():
        if choice == value:
            return choice
    way_out = f" {hint}" if hint else ""
    raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}.{way_out}")


def check_path(name: str, value: object) -> Path:
    """Return a public argument as a path. Numbers, which `open` accepts, are refused.

    The path need not exist.

    Raises:
        ParameterError: If it is not a path, or not valid on this system, for example too long.
    """
    place = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(place, str) or not place:
        raise ParameterError(f"{name} must be a path (a text or a pathlib.Path), got {shown(value)}.")
    try:
        os.stat(place)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            reason = "null character or surrogate" if isinstance(error, ValueError) else error.strerror
            cut = f"{ascii(place)[:_SHOWN]}..." if len(ascii(place)) > _SHOWN else ascii(place)
            raise ParameterError(f"{name} must be a valid path, got {cut} ({reason}).") from None
    return Path(place)


def check_target(name: str, value: object, *, overwrite: bool) -> Path:
    """Return the path of a file to write.

    Raises:
        ParameterError: If it is not a path, or the file exists and `overwrite` is False.
    """
    place = check_path(name, value)
    if not overwrite and place.exists():
        raise ParameterError(f"{str(place)!r} is already there. Name another file, or pass overwrite=True.")
    return place
