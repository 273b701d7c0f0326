"""The wire: messages of a federated run as bytes, read without trusting one of them.

    "dpvb" | version | length of the header | header | raw bytes of arrays and byte strings, in the header's order

Version and length are little-endian 32-bit numbers. The header is JSON in its one spelling (ASCII, sorted keys, no
spaces) and tells the form of what is sent; numbers and text stand in it, the contents of arrays behind it:

    null, true, false, whole numbers of 64 bits, text    themselves
    {name: ...}                                          dict
    ["f", hex]                                           float, as the 16 digits of its IEEE bits
    ["l", ...], ["t", ...]                               list, tuple
    ["b", length]                                        bytes
    ["a", dtype, shape], ["s", dtype]                    array in C order, NumPy scalar
    ["o", "module:Class", {field: ...}]                  a message, or another class that its reader expects

Equal contents give equal bytes, and every float arrives with all its bits, NaN and infinity included. Nothing is
unpickled and nothing is imported: a class is looked up by its name among those that the reader has handed over, which
are the parts of its own model's q, and the class's own checks run as ever. An array's size is held against the bytes
that are there before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

import numpy as np

from dpvb.federated.keys import check_name, check_public
from dpvb.federated.trust import TRUST, colluding
from dpvb.guards.arrays import Ints
from dpvb.guards.errors import FederationError, ParameterError, check_choice, check_integer
from dpvb.guards.untrusted import printable

#: Version of the wire; a reader refuses another one.
VERSION: Final = 5
#: Most bytes of a message, unless the reader says otherwise.
MAX_BYTES: Final = 2**31
#: Length of what a client draws for a run.
NONCE_BYTES: Final = 32

_PREFIX: Final = struct.Struct("<4sII")
_MAGIC: Final = b"dpvb"
_DTYPES: Final = ("<f8", "<f4", "<i8", "<u8", "|b1")
_MAX_HEADER: Final = 2**24
_MAX_PARTS: Final = 2**20
_MAX_DEPTH: Final = 32
_MAX_DIMENSIONS: Final = 32
# Most characters of a stranger's name that an error shows.
_MOST_SHOWN: Final = 200
_HEX: Final = re.compile(r"[0-9a-f]{64}")


def digest(data: bytes) -> str:
    """Return the SHA-256 of the very bytes of a message, as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


# --- messages -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offer:
    """Proposal of a server to every client; public.

    Attributes:
        version: version of dpvb.
        run: name of the run.
        kind: name of the estimator.
        model: what the model declares, in words; see `models.declared`.
        columns: what the data's columns must be.
        multipliers: noise multiplier of every release, in order.
        trust: "none", "secure_aggregation" or "trusted_server".
        participants: public key of every client by name; empty bytes where a client has none.
        max_missing: number of participants that may be missing.
        unit: what is protected, in words.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        n_units: public number of units of each client, where there is one.
        max_colluding: number of participants that may, besides, work against the others; None: as in `Trust`.

    Raises:
        ParameterError: for a field outside its range.
        FederationError: for a public key that is none.
    """

    version: str
    run: str
    kind: str
    model: Mapping[str, str]
    columns: Any
    multipliers: tuple[float, ...]
    trust: str
    participants: Mapping[str, bytes]
    max_missing: int
    unit: str
    neighboring_relation: str
    n_units: int | None = None
    max_colluding: int | None = None

    def __post_init__(self) -> None:
        for name in ("version", "run", "kind", "unit"):
            _check_text(name, getattr(self, name))
        if not isinstance(self.model, Mapping):
            raise ParameterError("model must be text by name.")
        for name, value in self.model.items():
            _check_text(f"{name} of model", value)
        if type(self.multipliers) is not tuple or not all(type(m) is float and m >= 0 for m in self.multipliers):
            raise ParameterError("multipliers must be a tuple of floats, at least 0.")
        check_choice("trust", self.trust, TRUST)
        if not isinstance(self.participants, Mapping):
            raise ParameterError("participants must be public keys by name.")
        for name, public in self.participants.items():
            if check_name(name) and public != b"":
                check_public(name, public)
        check_integer("max_missing", self.max_missing, low=0, high=len(self.participants))
        object.__setattr__(self, "max_colluding", colluding(self.trust, self.max_colluding))
        check_integer("max_colluding", self.max_colluding, low=0, high=len(self.participants))
        check_choice("neighboring_relation", self.neighboring_relation, ("add_or_remove_one", "replace_one"))
        if self.n_units is not None:
            check_integer("n_units", self.n_units, low=1)


@dataclass(frozen=True)
class Accepted:
    """A client's consent to an offer.

    Attributes:
        offer: digest of the offer's bytes.
        client: name of the client.
        nonce: what the client drew for this run, NONCE_BYTES; public.
        facts: public facts of the client's own guarantee.

    Raises:
        ParameterError: for a field outside its range.
    """

    offer: str
    client: str
    nonce: bytes
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_digest("offer", self.offer)
        check_name(self.client)
        _check_nonce(self.nonce)
        if not isinstance(self.facts, Mapping):
            raise ParameterError("facts must be a mapping.")

    @property
    def multipliers(self) -> tuple[float, ...] | None:
        """How much noise the client adds in each release; None where it says nothing of that form."""
        said = self.facts.get("multipliers")
        return said if isinstance(said, tuple) and all(type(one) is float for one in said) else None


@dataclass(frozen=True)
class Request:
    """Request of a server to its clients in one attempt at one step; public.

    Attributes:
        offer: digest of the offer's bytes.
        step, attempt: which release this is.
        participants: names of those who are asked, sorted.
        q: the variational distribution at which statistics are wanted.
        nonces: under secure aggregation, what each participant drew for this run, by name: a client that has forgotten
            what it said drew another, so that no request meets the same masks twice.

    Raises:
        ParameterError: for a field outside its range.
    """

    offer: str
    step: int
    attempt: int
    participants: tuple[str, ...]
    q: Any
    nonces: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_digest("offer", self.offer)
        _check_count("step", self.step)
        _check_count("attempt", self.attempt)
        names = self.participants
        if type(names) is not tuple or not names or [check_name(name) for name in names] != sorted(set(names)):
            raise ParameterError("participants must be a tuple of one or more different names, sorted.")
        if not isinstance(self.nonces, Mapping) or not self.nonces.keys() <= set(names):
            raise ParameterError("nonces must be byte strings by participants' names.")
        for nonce in self.nonces.values():
            _check_nonce(nonce)


@dataclass(frozen=True)
class Share:
    """A client's answer.

    Attributes:
        request: digest of the request's bytes.
        arrays: int64 sums on the common grid by block, with the noise and the masks that the trust model asks for.
        private: whether the noise is of a secret source; False only in tests.

    Raises:
        ParameterError: for a field outside its range.
    """

    request: str
    arrays: Mapping[str, Ints]
    private: bool

    def __post_init__(self) -> None:
        _check_digest("request", self.request)
        if not isinstance(self.arrays, Mapping) or not all(
            type(name) is str and type(array) is np.ndarray and array.dtype == np.int64
            for name, array in self.arrays.items()
        ):
            raise ParameterError("arrays must be int64 arrays by name.")
        if type(self.private) is not bool:
            raise ParameterError("private must be True or False.")


@dataclass(frozen=True)
class Refusal:
    """A client's no; it tells public things only.

    Attributes:
        request: digest of the bytes that are refused.
        reason: one sentence.

    Raises:
        ParameterError: for a field outside its range.
    """

    request: str
    reason: str

    def __post_init__(self) -> None:
        _check_digest("request", self.request)
        _check_text("reason", self.reason)


@dataclass(frozen=True)
class Farewell:
    """The run is over.

    Attributes:
        offer: digest of the offer's bytes.
        reason: one sentence.

    Raises:
        ParameterError: for a field outside its range.
    """

    offer: str
    reason: str

    def __post_init__(self) -> None:
        _check_digest("offer", self.offer)
        _check_text("reason", self.reason)


def _check_text(name: str, value: object) -> None:
    if type(value) is not str or len(value) > 4096:
        raise ParameterError(f"{name} must be text of at most 4096 characters.")


def _check_digest(name: str, value: object) -> None:
    if type(value) is not str or not _HEX.fullmatch(value):
        raise ParameterError(f"{name} must be a SHA-256 digest in hexadecimal.")


def _check_nonce(value: object) -> None:
    if type(value) is not bytes or len(value) != NONCE_BYTES:
        raise ParameterError(f"A nonce must be {NONCE_BYTES} bytes.")


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ParameterError(f"{name} must be a whole number, at least 0.")


# Classes that every reader has.
_MESSAGES: Final = (Offer, Accepted, Request, Share, Refusal, Farewell)


# --- writing --------------------------------------------------------------------------------------------------


def encode(content: Any, classes: Collection[type] = ()) -> bytes:
    """Return the bytes of a message.

    `content` is a tree of None, bool, int, float, str, bytes, list, tuple, dict (its keys are text), of arrays and
    NumPy scalars (float64, float32, int64, uint64, bool), of messages, and of the frozen dataclasses and named tuples
    in `classes`. All of it is public but the arrays of a `Share`, which are what a client may let go.

    Raises:
        FederationError: if it holds anything else, or is too large, too deep, or has too many parts.
    """
    raw: list[bytes] = []
    header = _spelled(_form(content, raw, 0, _by_name(classes)))
    _check_header(header)
    size = _PREFIX.size + len(header) + sum(map(len, raw))
    if size > MAX_BYTES:
        raise FederationError(f"A message has at most {MAX_BYTES} bytes, this one would have {size}.")
    return b"".join([_PREFIX.pack(_MAGIC, VERSION, len(header)), header, *raw])


def _form(content: Any, raw: list[bytes], depth: int, known: Mapping[str, type]) -> Any:
    """The part of the header that tells of `content`; what stands behind the header is appended to `raw`."""
    if depth > _MAX_DEPTH:
        raise FederationError(f"A message is nested at most {_MAX_DEPTH} deep.")
    kind = type(content)
    if content is None or kind is bool:
        return content
    if kind is int and -(2**63) <= content < 2**63:
        return content
    if kind is str:
        return _text(content)
    if kind is float:
        return ["f", struct.pack(">d", content).hex()]
    if kind is bytes:
        raw.append(content)
        return ["b", len(content)]
    if kind is list or kind is tuple:
        return ["l" if kind is list else "t", *(_form(part, raw, depth + 1, known) for part in content)]
    if kind is np.ndarray or isinstance(content, np.generic):
        return _array_form(content, raw)
    if isinstance(content, Mapping):
        return {name: _form(content[name], raw, depth + 1, known) for name in sorted(map(_text, content))}
    if known.get(name := _name(kind)) is not kind:
        raise FederationError(
            f"A value of type {kind.__module__}.{kind.__qualname__} cannot travel; only numbers, text, arrays, and the "
            "frozen dataclasses and named tuples of which the model makes its q can."
        )
    content_of_part = {part: getattr(content, part) for part in _fields(kind) or ()}
    return ["o", name, _form(content_of_part, raw, depth, known)]


def _array_form(content: Any, raw: list[bytes]) -> list[Any]:
    array = np.asarray(content)
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in _DTYPES or not _fits(dtype.str, list(array.shape)):
        raise FederationError(
            f"An array of dtype {array.dtype} and shape {array.shape} cannot travel; convert it to one of "
            f"{', '.join(_DTYPES)}, with at most {_MAX_DIMENSIONS} dimensions and {MAX_BYTES} bytes."
        )
    raw.append(array.astype(dtype, copy=False).tobytes())
    return ["a", dtype.str, list(array.shape)] if type(content) is np.ndarray else ["s", dtype.str]


def _fits(dtype: str, shape: list[int]) -> bool:
    """Whether an array is not too large; of an empty one, the other lengths are bounded too, as NumPy bounds them."""
    within = len(shape) <= _MAX_DIMENSIONS
    return within and math.prod(max(n, 1) for n in shape) * np.dtype(dtype).itemsize <= MAX_BYTES


def _spelled(form: Any) -> bytes:
    return json.dumps(form, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _check_header(header: bytes) -> None:
    """Bound the time and memory that reading a header takes, by counts that are never below its number of parts."""
    if len(header) > _MAX_HEADER or header.count(b",") + header.count(b"[") + header.count(b"{") > _MAX_PARTS:
        raise FederationError(f"A message has at most {_MAX_PARTS} parts and {_MAX_HEADER} bytes before its arrays.")


def _text(content: Any) -> str:
    """The text, if it is text that can be written."""
    if type(content) is not str or any("\ud800" <= letter <= "\udfff" for letter in content):
        raise FederationError("names and text in a message must be valid Unicode text.")
    return content


# --- classes --------------------------------------------------------------------------------------------------


def classes_in(content: Any) -> frozenset[type]:
    """The classes that a reader of this content must know, messages aside: its frozen dataclasses and named tuples."""
    return frozenset(kind for kind in _kinds(content) if _fields(kind) is not None)


def _kinds(content: Any) -> Iterator[type]:
    yield type(content)
    named = _fields(type(content))
    if named is not None:
        parts: Collection[Any] = [getattr(content, name) for name in named]
    elif isinstance(content, Mapping):
        parts = content.values()
    else:
        parts = content if isinstance(content, list | tuple) else ()
    for part in parts:
        yield from _kinds(part)


def _by_name(classes: Collection[type]) -> Mapping[str, type]:
    """Classes that may occur, by their names in a header; no other class has the name of a message."""
    return {_name(kind): kind for kind in (*classes, *_MESSAGES) if _fields(kind) is not None}


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _fields(kind: type) -> list[str] | None:
    """Names of the fields of a frozen dataclass or a named tuple; None for any other class."""
    if is_dataclass(kind) and kind.__dataclass_params__.frozen and all(part.init for part in fields(kind)):  # type: ignore[attr-defined]
        return [part.name for part in fields(kind)]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields)
    return None


# --- reading --------------------------------------------------------------------------------------------------


def decode(data: bytes, classes: Collection[type] = (), max_bytes: int = MAX_BYTES) -> Any:
    """Return what a message holds, trusting nothing in it.

    Arrays are fresh, in C order and of the machine's byte order.

    Args:
        data: what came.
        classes: frozen dataclasses and named tuples that may occur in it, messages aside; no other one is made.
        max_bytes: most bytes that are looked at.

    Raises:
        FederationError: if the message is malformed in any way, of another version, or larger than `max_bytes`; or if
            it names another class.
    """
    if not isinstance(data, bytes):
        raise FederationError(f"A message must be bytes, got {type(data).__name__}.")
    if len(data) > max_bytes:
        raise FederationError(f"A message has {len(data)} bytes, more than the {max_bytes} that are allowed.")
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        raise FederationError("These bytes are not a message of dpvb.")
    _, version, length = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise FederationError(
            f"A message has version {version} of the wire, this is version {VERSION}; use the same dpvb everywhere."
        )
    start = _PREFIX.size + length
    if start > len(data):
        raise _malformed("its header is cut short")
    form = _parsed(data[_PREFIX.size : start])
    reader = _Reader(memoryview(data)[start:], _by_name(classes))
    content = reader.content(form, 0)
    if reader.rest:
        raise _malformed("bytes are left over")
    return content


def _malformed(what: str) -> FederationError:
    return FederationError(f"A message is malformed: {what}. It was damaged, or is not of dpvb.")


def _parsed(header: bytes) -> Any:
    """The header, if it is JSON of whole numbers and text in its one spelling."""
    _check_header(header)
    try:
        form = json.loads(header.decode("ascii"), parse_float=_no_float, parse_constant=_no_float, parse_int=_integer)
        spelled = _spelled(form)
    except (ValueError, RecursionError) as error:
        raise _malformed("its header cannot be read") from error
    if spelled != header:
        raise _malformed("its header is not in the one spelling allowed")
    return form


def _no_float(text: str) -> Any:
    raise ValueError("floats travel as their bits")


def _integer(text: str) -> int:
    number = int(text) if len(text) <= 20 else 2**63
    if not -(2**63) <= number < 2**63:
        raise ValueError("whole numbers have 64 bits")
    return number


class _Reader:
    """Turns a header into contents, and takes the bytes that it tells of, in order."""

    def __init__(self, rest: memoryview, known: Mapping[str, type]) -> None:
        self.rest, self._known = rest, known

    def content(self, form: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _malformed(f"it is nested more than {_MAX_DEPTH} deep")
        if form is None or isinstance(form, (bool, int)):
            return form
        if isinstance(form, str):
            return _text(form)
        if isinstance(form, dict):
            return {_text(name): self.content(part, depth + 1) for name, part in form.items()}
        read = _READERS.get(form[0]) if form and isinstance(form[0], str) else None
        if read is None:
            raise _malformed("it has a part of an unknown kind")
        return read(self, form[1:], depth)

    def read_list(self, form: list[Any], depth: int) -> list[Any]:
        return [self.content(part, depth + 1) for part in form]

    def read_tuple(self, form: list[Any], depth: int) -> tuple[Any, ...]:
        return tuple(self.read_list(form, depth))

    def read_float(self, form: list[Any], depth: int) -> float:
        if len(form) != 1 or type(form[0]) is not str or not re.fullmatch("[0-9a-f]{16}", form[0]):
            raise _malformed("a float has not 16 hexadecimal digits")
        return float(struct.unpack(">d", bytes.fromhex(form[0]))[0])

    def read_bytes(self, form: list[Any], depth: int) -> bytes:
        if len(form) != 1 or type(form[0]) is not int:
            raise _malformed("a byte string has no length")
        return bytes(self._take(form[0]))

    def read_array(self, form: list[Any], depth: int) -> Any:
        if len(form) != 2 or type(form[1]) is not list:
            raise _malformed("an array has no dtype or no shape")
        dtype, shape = form
        if dtype not in _DTYPES or any(type(n) is not int or n < 0 for n in shape) or not _fits(dtype, shape):
            raise _malformed("an array has a dtype or a shape that is not allowed")
        flat = np.frombuffer(self._take(math.prod(shape) * np.dtype(dtype).itemsize), dtype)
        if dtype == "|b1" and np.any(flat.view(np.uint8) > 1):
            raise _malformed("a truth value is neither true nor false")
        return flat.reshape(shape).astype(np.dtype(dtype).newbyteorder("="))

    def read_scalar(self, form: list[Any], depth: int) -> Any:
        return self.read_array([*form, []], depth)[()]

    def read_object(self, form: list[Any], depth: int) -> Any:
        if len(form) != 2 or type(form[0]) is not str or type(form[1]) is not dict:
            raise _malformed("an object has no class or no fields")
        kind = self._known.get(form[0])
        if kind is None:
            raise FederationError(
                f"A message names the class {printable(form[0][:_MOST_SHOWN])!r}, which is neither a message nor a "
                "part of a q of this model; the message is refused. Use the same model and the same dpvb everywhere."
            )
        if form[1].keys() != set(_fields(kind) or ()):
            raise _malformed(f"the fields of {_name(kind)} are not those of this version")
        parts = self.content(form[1], depth)
        try:
            return kind(**parts)
        except Exception as error:  # a class's own checks meet hostile values of any type
            raise _malformed(f"the fields of {_name(kind)} hold what they must not") from error

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self.rest):
            raise _malformed("an array or byte string is cut short")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


_READERS: Final[Mapping[str, Callable[[_Reader, list[Any], int], Any]]] = {
    "f": _Reader.read_float,
    "l": _Reader.read_list,
    "t": _Reader.read_tuple,
    "b": _Reader.read_bytes,
    "a": _Reader.read_array,
    "s": _Reader.read_scalar,
    "o": _Reader.read_object,
}
