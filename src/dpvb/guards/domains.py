"""Domains of q: what its numbers must be before it meets private data.

The invariant of queries: *for every q that a wall or a client accepts, a unit's contribution stays within its bound, in
the norm and in the distance that are accounted.* A q need not be an honest M-step's: servers send it, and model files
and folders of interrupted runs bring what it is made of. So the class of a q declares the domain of each of its fields,

    @dataclass(frozen=True)
    class Topics:
        lambda_vk: Positives

and every number in it must be finite, whatever is declared. `loop.query` refuses any other q.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from numbers import Number
from typing import Annotated, Any, Final, TypeAlias, TypeVar, final, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.errors import PrivacyError

Q = TypeVar("Q")

#: Stands for infinity in a q: the variance of what has not been seen yet, the least of no values.
UNSEEN: Final = 1e300
# How far sums and transposes may be off by rounding, relative to the largest entry.
_ROUNDING = 1e-6


@final
@dataclass(frozen=True)
class Domain:
    """Conditions on finite numbers, in words and as a test of an array."""

    words: str
    holds: Callable[[NDArray[Any]], bool]


def _is_symmetric(values: NDArray[Any]) -> bool:
    if values.ndim < 2:
        return True
    room = _ROUNDING * float(np.abs(values).max(initial=0.0))
    return values.shape[-1] == values.shape[-2] and bool((np.abs(values - np.swapaxes(values, -1, -2)) <= room).all())


def _has_nonnegative_diagonal(values: NDArray[Any]) -> bool:
    diagonal = values if values.ndim < 2 else np.diagonal(values, axis1=-2, axis2=-1)
    return _is_symmetric(values) and bool((diagonal >= 0).all())


FINITE: Final = Domain("finite", lambda values: True)
POSITIVE: Final = Domain("positive", lambda values: bool((values > 0).all()))
NONNEGATIVE: Final = Domain("0 or more", lambda values: bool((values >= 0).all()))
PROBABILITIES: Final = Domain(
    "between 0 and 1, ends left out", lambda values: bool(((values > 0) & (values < 1)).all())
)
SIMPLEX: Final = Domain(
    "0 or more with sum 1",
    lambda values: bool((values >= 0).all()) and abs(float(values.sum()) - 1.0) <= _ROUNDING,
)
#: A symmetric matrix, or a vector that stands for a diagonal one.
SYMMETRIC: Final = Domain("symmetric", _is_symmetric)
#: The same with variances on its diagonal.
COVARIANCE: Final = Domain("symmetric with a diagonal of 0 or more", _has_nonnegative_diagonal)

#: Types for the fields of a q.
Positive: TypeAlias = Annotated[float, POSITIVE]
Positives: TypeAlias = Annotated[NDArray[np.float64], POSITIVE]
Nonnegative: TypeAlias = Annotated[float, NONNEGATIVE]
Nonnegatives: TypeAlias = Annotated[NDArray[np.float64], NONNEGATIVE]
Symmetric: TypeAlias = Annotated[NDArray[np.float64], SYMMETRIC]
Covariance: TypeAlias = Annotated[NDArray[np.float64], COVARIANCE]


def checked(q: Q) -> Q:
    """Return q, unless a number in it is not finite or outside the domain that its class declares.

    Args:
        q: public: dataclasses, named tuples, mappings, lists and tuples of numbers and arrays.

    Raises:
        PrivacyError: naming the first part that is outside; what is private has not been looked at.
    """
    fault = outside(q)
    if fault is not None:
        raise PrivacyError(
            f"{fault}. The wall does not answer such a q. Either the noise is too large for this model (use a larger "
            "epsilon, or a smaller model), or the q is from an untrusted file, folder or server."
        )
    return q


def outside(q: object, domain: Domain = FINITE, name: str = "q") -> str | None:
    """The first part of q that is outside its domain, in words; None: there is none.

    Args:
        q: as in `checked`.
        domain: of parts whose classes declare none.
        name: of q.
    """
    for place, part, declared in _parts(name, q, domain):
        if isinstance(part, _Unknown):
            return f"{place} must be made of numbers, arrays, mappings, tuples and dataclasses, but is {part.kind}"
        array = np.asarray(part)
        if array.dtype.kind not in "biuf":
            return f"{place} must be numbers, but has dtype {array.dtype}"
        if not np.isfinite(array).all():
            return f"{place} must be finite"
        if not declared.holds(array):
            return f"{place} must be {declared.words}"
    return None


@dataclass(frozen=True)
class _Unknown:
    """A part of a kind that cannot be looked into."""

    kind: str


def _parts(name: str, value: Any, domain: Domain) -> Iterator[tuple[str, object, Domain]]:
    """Numbers and arrays of a tree, with their names and domains."""
    if value is None or isinstance(value, (str, bytes)):
        return
    if isinstance(value, (Number, np.generic, np.ndarray)) or hasattr(value, "__array__"):
        yield name, value, domain
        return
    inner: Mapping[Any, object]
    if isinstance(value, Mapping):
        inner = value
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        inner = dict(zip(value._fields, value, strict=True))
    elif isinstance(value, (tuple, list, set, frozenset)):
        inner = dict(enumerate(value))
    elif is_dataclass(type(value)):
        inner = {part.name: getattr(value, part.name) for part in fields(value)}
    elif type(value).__module__ != "builtins" and not callable(value) and hasattr(value, "__dict__"):
        inner = vars(value)
    else:
        yield name, _Unknown(type(value).__name__), domain
        return
    declared = declared_by(value.__class__)
    for part, fault in inner.items():
        yield from _parts(f"{name}.{part}", fault, declared.get(part, domain))


@cache
def declared_by(kind: type) -> Mapping[str, Domain]:
    """The domains that a class declares for its fields."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # A class of others' may name types that are not there when it runs.
        hints = {}
    faults = {}
    for name, hint in hints.items():
        parts = (hint, *get_args(hint))  # The other part of a type that may be None.
        declared = [extra for part in parts for extra in getattr(part, "__metadata__", ()) if isinstance(extra, Domain)]
        if declared:
            faults[name] = declared[0]
    return faults
