"""The wire: what is sent arrives bit for bit, and nothing but a FederationError comes of hostile bytes."""

from __future__ import annotations

import json
import math
import struct
import sys
import tracemalloc
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from planted import edit, kills
from small_models import CASES

from dpvb.audit import kinds
from dpvb.core import loop
from dpvb.core.estimate import Estimate
from dpvb.core.model import robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.response import Response
from dpvb.errors import FederationError, ParameterError
from dpvb.federated.messages import (
    MAX_BYTES,
    VERSION,
    Accepted,
    Farewell,
    Offer,
    Refusal,
    Request,
    Share,
    classes_in,
    decode,
    digest,
    encode,
)
from dpvb.federated.trust import Trust
from dpvb.models.belief_network.beta_normal import WeightScales
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.topics.lda import LDAModel, Topics
from dpvb.results.declared import declared

HEX = "ab" * 32
MESSAGES = "dpvb.federated.messages"
PREFIX = struct.Struct("<4sII")


def message(header: str | bytes, raw: bytes = b"", version: int = VERSION) -> bytes:
    """A message with any header."""
    text = header.encode("latin-1") if isinstance(header, str) else header
    return PREFIX.pack(b"dpvb", version, len(text)) + text + raw


def same(a: Any, b: Any) -> bool:
    """Equal in type, form and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if is_dataclass(a):
        return all(same(getattr(a, part.name), getattr(b, part.name)) for part in fields(a))
    return bool(a == b)


# --- anything that may travel -------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
DTYPES = st.sampled_from(["<f8", "<f4", "<i8", "<u8", "|b1"])
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
)
BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    BITS,
    TEXT,
    st.binary(max_size=8),
    ARRAYS,
    ARRAYS.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0]),
)
TREES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4), st.lists(parts, max_size=4).map(tuple), st.dictionaries(TEXT, parts, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES)
@settings(max_examples=150, deadline=None)
def test_trees_arrive_bit_for_bit_and_have_one_spelling(tree: Any) -> None:
    data = encode(tree)
    arrived = decode(data)
    assert same(arrived, tree)
    assert encode(arrived) == data
    assert digest(data) == digest(encode(arrived))


def test_the_bytes_are_those_of_the_docstring() -> None:
    content = {
        "b": (1, [2.0, None, "ü"]),
        "a": np.array([[1, 2], [3, 4]], dtype=np.int64),
        "c": b"xyz",
        "d": np.float32(1),
    }
    header = (
        '{"a":["a","<i8",[2,2]],"b":["t",1,["l",["f","4000000000000000"],null,"\\u00fc"]],"c":["b",3],"d":["s","<f4"]}'
    )
    raw = b"".join(struct.pack("<q", n) for n in (1, 2, 3, 4)) + b"xyz" + struct.pack("<f", 1.0)
    assert encode(content) == message(header, raw)
    assert same(decode(message(header, raw)), dict(sorted(content.items())))


def test_order_of_keys_and_layout_of_arrays_leave_no_trace() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    spread = np.zeros((4, 6))[::2, ::2]
    spread[:] = matrix
    for other in (np.asfortranarray(matrix), spread, matrix.astype(">f8")):
        assert encode({"x": 1, "y": other}) == encode({"y": matrix, "x": 1})
    arrived = decode(encode(np.asfortranarray(matrix)))
    assert arrived.flags.c_contiguous
    assert arrived.flags.writeable
    assert arrived.flags.aligned
    assert arrived.dtype.isnative


@each(
    "content",
    [
        2**63,
        -(2**63) - 1,
        1j,
        {1, 2},
        {1: 2},
        "\ud800",
        {"\udfff": 1},
        object(),
        np.array([1j]),
        np.array(["a"]),
        np.array([None]),
        np.array([1], dtype=np.int32),
        np.zeros(1, dtype="<f8,<i8"),
        np.float16(1),
        np.zeros((1, 1)).view(np.matrix),
        np.ma.masked_array([1.0]),
        np.zeros((0, 2**31)),
        lambda: 0,
        int,
        bytearray(b"a"),
        np.random.default_rng(0),
        InsecureNoise(0),
        Estimate.empty({}),
        Response(),
        math,
    ],
    ids=lambda content: type(content).__name__,
)
def test_what_may_not_travel_does_not(content: Any) -> None:
    for holding in (content, [content], {"x": (content,)}):
        with pytest.raises(FederationError):
            encode(holding)


@dataclass(frozen=True)
class Stranger:
    x: int = 1


@dataclass
class Changing:
    x: int = 1


@dataclass(frozen=True)
class Deriving:
    x: int = field(default=1, init=False)


class Pair(NamedTuple):
    x: Any
    y: int = 2


def test_a_class_travels_where_both_sides_have_listed_it() -> None:
    """Whoever wrote it; a list that names another one is of no use."""
    for content in (Stranger(3), Pair(1), {"a": [Pair(Stranger(2))]}):
        known = classes_in(content)
        assert same(decode(encode(content, known), known), content)
        with pytest.raises(FederationError, match="cannot travel"):
            encode(content)
        for other in ((), {Topics}, known - {Stranger, Pair}):
            with pytest.raises(FederationError, match=r"names the class 'test_federated_messages:(Pair|Stranger)'"):
                decode(encode(content, known), other)


@kills("queries", "a class of any kind made from a message")
@edit(
    "federated/messages.py",
    "for kind in (*classes, *_MESSAGES) if _fields(kind) is not None}",
    "for kind in (*classes, *_MESSAGES)}",
)
@pytest.mark.parametrize("kind", [Changing, Deriving, np.ndarray, dict, type])
def test_what_is_no_frozen_dataclass_or_named_tuple_is_never_made(kind: Any) -> None:
    """Also where a list has it."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    for fields_of in ("{}", '{"x":1}'):
        with pytest.raises(FederationError, match=f"names the class '{name}'"):
            decode(message(f'["o","{name}",{fields_of}]'), [kind])
    if kind in (Changing, Deriving):
        assert classes_in([kind()]) == set()
        with pytest.raises(FederationError, match="cannot travel"):
            encode(kind(), [kind])


@kills("queries", "a class that a message names, taken from whatever is loaded")
@edit(
    "federated/messages.py",
    "kind = self._known.get(form[0])",
    'place, _, own = form[0].partition(":")\n'
    "        kind = vars(__import__(place, fromlist=[own])).get(own) if place.isidentifier() else None\n"
    "        kind = kind or self._known.get(form[0])",
)
def test_a_name_is_looked_up_and_never_imported() -> None:
    """A module that was not loaded is not loaded for a message, and one that was gives no class."""
    sys.modules.pop("this", None)
    for name in ("this:Zen", "collections:OrderedDict", "dpvb.core.plan:FullBatch", f"{__name__}:Stranger"):
        with pytest.raises(FederationError, match=f"names the class '{name}'"):
            decode(message(f'["o","{name}",{{}}]'), [Topics])
    assert "this" not in sys.modules


@kills("queries", "a stranger's class that takes the name of a message")
@edit("federated/messages.py", "for kind in (*classes, *_MESSAGES)", "for kind in (*_MESSAGES, *classes)")
def test_nobody_takes_the_name_of_another_class() -> None:
    Forged: Any = make_dataclass("Refusal", ["request", "reason"], frozen=True)
    Forged.__module__ = MESSAGES
    with pytest.raises(FederationError, match="cannot travel"):
        encode(Forged(HEX, "no"), [Forged])
    assert same(decode(encode(REFUSAL), [Forged]), REFUSAL)
    Forged.__module__, Forged.__qualname__ = Topics.__module__, Topics.__qualname__
    with pytest.raises(FederationError, match="cannot travel"):
        encode(Forged(HEX, "no"), [Topics])


def test_the_name_of_a_stranger_is_shown_on_one_line_and_in_part() -> None:
    with pytest.raises(FederationError) as caught:
        decode(message(json.dumps(["o", "a\n\x1b[2J" + "b" * 10_000, {}], separators=(",", ":"))))
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


def test_limits_hold_on_both_sides() -> None:
    deep: Any = 1
    for _ in range(32):
        deep = [deep]
    assert same(decode(encode(deep)), deep)
    with pytest.raises(FederationError, match="nested"):
        encode([deep])
    with pytest.raises(FederationError, match="nested"):
        decode(message('["l",' * 33 + "1" + "]" * 33))
    with pytest.raises(FederationError, match="parts"):
        encode([0] * 2**20)
    with pytest.raises(FederationError, match="parts"):
        decode(message("[" + "0," * 2**20 + "0]"))
    with pytest.raises(FederationError, match="parts"):
        encode("x" * 2**24)
    data = encode([1.0] * 100)
    assert decode(data, max_bytes=len(data)) == [1.0] * 100
    with pytest.raises(FederationError, match=f"{len(data)} bytes, more than the {len(data) - 1}"):
        decode(data, max_bytes=len(data) - 1)


# --- hostile bytes ------------------------------------------------------------------------------------------

KNOWN = (Topics, Likelihood, WeightScales)
WHOLE = encode(
    Request(
        HEX,
        3,
        1,
        ("anna", "bert"),
        {"q": Topics(np.ones((2, 2)), np.ones((2, 2), np.float32), None, np.ones(2), np.ones(2))},
    ),
    KNOWN,
)


def refused_or_read(data: bytes) -> None:
    """Either one error, or contents that are spelled just so; of messages alone if no other class is listed."""
    for known in ((), KNOWN):
        try:
            content = decode(data, known)
        except FederationError:
            continue
        assert encode(content, known) == data
        assert all(kind in known or kind.__module__ == MESSAGES for kind in classes_in(content))


def test_every_cut_and_every_addition_is_refused() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(FederationError):
            decode(WHOLE[:length], KNOWN)
    with pytest.raises(FederationError, match="left over"):
        decode(WHOLE + b"\0", KNOWN)


def test_flipped_bits_raise_one_error_or_change_a_value() -> None:
    for place in range(len(WHOLE)):
        for bit in range(8):
            changed = bytearray(WHOLE)
            changed[place] ^= 1 << bit
            refused_or_read(bytes(changed))


@given(st.binary(max_size=200), st.binary(max_size=40))
@settings(max_examples=150, deadline=None)
def test_random_bytes_raise_one_error(header: bytes, raw: bytes) -> None:
    for data in (header, message(header, raw), WHOLE[:20] + header + WHOLE[60:]):
        refused_or_read(data)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=4),
        st.sampled_from(["f", "l", "t", "b", "a", "s", "o", "<f8", "|b1", "|O", "dpvb.models.topics.lda:Topics"]),
        st.sampled_from(
            [
                "dpvb.models.topics.lda:LDA",
                "dpvb.federated.messages:Share",
                "os:system",
                "dpvb.models.regression.descent:Descent",
            ]
        ),
    ),
    lambda parts: st.one_of(st.lists(parts, max_size=4), st.dictionaries(st.text(max_size=4), parts, max_size=3)),
    max_leaves=12,
)


@given(st.one_of(JSON, st.lists(JSON, min_size=2, max_size=4)), st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_json_raises_one_error_or_is_spelled_just_so(form: Any, raw: bytes) -> None:
    refused_or_read(message(json.dumps(form, sort_keys=True, separators=(",", ":")), raw))


@each(
    "header",
    [
        "",
        "NaN",
        "1.0",
        "1e5",
        "Infinity",
        "-0",
        " 1",
        "1 ",
        '{"a":1,"a":2}',
        '{"b":1,"a":2}',
        '"\\u0041"',
        '"\\ud800"',
        '"ü"',
        "9223372036854775808",
        "9" * 5000,
        "[]",
        "[[]]",
        '["x",1]',
        "[1]",
        '["f"]',
        '["f","40000000000000000"]',
        '["f","4G00000000000000"]',
        '["f","7FF0000000000000"]',
        '["f",1]',
        '["b"]',
        '["b",-1]',
        '["b",true]',
        '["b",9223372036854775807]',
        '["a","<f8"]',
        '["a","<f8",[1]]',
        '["a","<f8",[-1,-1]]',
        '["a","<f8",[true]]',
        '["a","<f8",[9223372036854775807,9223372036854775807]]',
        '["a","<f8",[0,9223372036854775807]]',
        '["a","<f8",[' + ",".join("1" * 33) + "]]",
        '["a","|O",[0]]',
        '["a","<M8[s]",[0]]',
        '["a",["<f8"],[0]]',
        '["a",[["x","<f8"]],[0]]',
        '["s","<f8",[]]',
        '["o","os:system",{}]',
        '["o","builtins:dict",{}]',
        '["o","dpvb.core.noise:SecureNoise",{}]',
        '["o","dpvb.core.wall:Wall",{}]',
        '["o","dpvb.models.nothing:Topics",{}]',
        '["o","dpvb.models.topics.lda.LDA:e_step",{}]',
        '["o","dpvb.models.:Topics",{}]',
        '["o","dpvb.models.topics.lda:LDA.e_step",{}]',
        '["o","dpvb.models.topics.lda:np",{}]',
        '["o","dpvb.models.topics.lda:digamma",{}]',
        '["o","dpvb.models.topics.lda:Block",{}]',
        '["o","dpvb.models.topics.lda:Likelihood",{}]',
        '["o","dpvb.models.belief_network.first_order:Scales",{}]',
        '["o","dpvb.models.topics.lda:Topics",{}]',
        '["o","dpvb.models.regression.likelihood:Likelihood",{"kind":"logistic"}]',
        '["o","dpvb.models.regression.likelihood:Likelihood",[]]',
        '["o",["t"],{}]',
        f'["o","{MESSAGES}:Farewell",{{"offer":"{HEX}"}}]',
        f'["o","{MESSAGES}:Farewell",{{"extra":1,"offer":"{HEX}","reason":"x"}}]',
        f'["o","{MESSAGES}:Farewell",{{"offer":"{HEX}","reason":1}}]',
        f'["o","{MESSAGES}:Farewell",{{"offer":"{HEX[1:]}","reason":"x"}}]',
        f'["o","{MESSAGES}:_Reader",{{"rest":1}}]',
        '["l",' * 100_000,
        "[" * 900_000,
        '{"a":' * 100_000,
        "\xff",
        "\0",
    ],
    ids=lambda header: header[:50],
)
def test_malformed_headers_are_refused(header: str) -> None:
    for known in ((), KNOWN):
        with pytest.raises(FederationError):
            decode(message(header), known)


def test_a_truth_value_is_one_of_two() -> None:
    header = '["a","|b1",[3]]'
    assert decode(message(header, b"\0\1\0")).tolist() == [False, True, False]
    with pytest.raises(FederationError, match="neither true nor false"):
        decode(message(header, b"\0\2\0"))


def test_no_memory_is_taken_for_what_is_not_there() -> None:
    claims = [
        message('["a","<f8",[200000000]]', bytes(8)),
        message('["b",2000000000]', bytes(8)),
        message('["l"' + ',["a","<f8",[100000000]]' * 1000 + "]", bytes(8)),
        PREFIX.pack(b"dpvb", VERSION, 2**32 - 1),
    ]
    tracemalloc.start()
    for claim in claims:
        with pytest.raises(FederationError):
            decode(claim)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_other_versions_and_other_files_are_told_apart() -> None:
    with pytest.raises(FederationError, match="version 1 of the wire, this is version 5"):
        decode(message("1", version=1))
    for data in (b"", b"PK\x03\x04" + bytes(30), b"dpvb"):
        with pytest.raises(FederationError, match="not a message of dpvb"):
            decode(data)
    for kind in ("text", bytearray(WHOLE), None, 3):
        with pytest.raises(FederationError, match="must be bytes"):
            decode(kind)  # type: ignore[arg-type]
    assert MAX_BYTES == 2**31


# --- messages -----------------------------------------------------------------------------------------------

OFFER = Offer(
    version="0.1.0",
    run="run-1",
    kind="LDA",
    model=declared(LDAModel(3, 12)),
    columns=("some", "words"),
    multipliers=(1.0, 2.0, math.inf),
    trust="secure_aggregation",
    participants={"anna": bytes(31) + b"\1", "bert": b""},
    max_missing=1,
    unit="one document",
    neighboring_relation="add_or_remove_one",
)
ACCEPTED = Accepted(HEX, "anna", bytes(32), {"epsilon": 1.0, "delta": 1e-5})
REQUEST = Request(HEX, 0, 2, ("anna", "bert"), np.zeros(3), {"bert": bytes(32)})
SHARE = Share(HEX, {"counts": np.arange(4), "words": np.zeros((2, 2), dtype=np.int64)}, True)
REFUSAL = Refusal(HEX, "the ledger has not enough budget left.")
FAREWELL = Farewell(HEX, "done.")


@pytest.mark.parametrize("sent", [OFFER, ACCEPTED, REQUEST, SHARE, REFUSAL, FAREWELL], ids=lambda m: type(m).__name__)
def test_messages_arrive(sent: Any) -> None:
    arrived = decode(encode(sent))
    assert same(arrived, sent)
    assert encode(arrived) == encode(sent)


@pytest.mark.parametrize(("trust", "max_colluding"), [("none", 0), ("secure_aggregation", 1), ("trusted_server", 0)])
def test_an_offer_says_how_many_may_collude(trust: str, max_colluding: int) -> None:
    """Also where it was not told: the number that a trust model takes by itself."""
    offer = replace(OFFER, trust=trust, max_colluding=None)
    assert offer.max_colluding == Trust(trust, 3).max_colluding == max_colluding
    assert same(decode(encode(offer)), replace(offer, max_colluding=max_colluding))


@each(
    ("whole", "changes"),
    [
        (OFFER, {"version": 1}),
        (OFFER, {"run": None}),
        (OFFER, {"kind": "x" * 5000}),
        (OFFER, {"model": "LDA"}),
        (OFFER, {"model": {"class": 3}}),
        (OFFER, {"model": {"class": "x" * 5000}}),
        (OFFER, {"multipliers": [1.0]}),
        (OFFER, {"multipliers": (1,)}),
        (OFFER, {"multipliers": (-1.0,)}),
        (OFFER, {"multipliers": (math.nan,)}),
        (OFFER, {"trust": "some"}),
        (OFFER, {"participants": ["anna"]}),
        (OFFER, {"participants": {"an na": b""}}),
        (OFFER, {"participants": {"anna": b"short"}}),
        (OFFER, {"participants": {"anna": "key"}}),
        (OFFER, {"max_missing": 3}),
        (OFFER, {"max_missing": -1}),
        (OFFER, {"max_missing": "1"}),
        (OFFER, {"max_colluding": 3}),
        (OFFER, {"max_colluding": -1}),
        (OFFER, {"max_colluding": "1"}),
        (OFFER, {"unit": 3}),
        (OFFER, {"neighboring_relation": "both"}),
        (OFFER, {"n_units": 0}),
        (ACCEPTED, {"offer": HEX.upper()}),
        (ACCEPTED, {"client": ""}),
        (ACCEPTED, {"facts": [1]}),
        (ACCEPTED, {"nonce": bytes(31)}),
        (ACCEPTED, {"nonce": "x" * 32}),
        (REQUEST, {"offer": HEX + "\n"}),
        (REQUEST, {"step": -1}),
        (REQUEST, {"step": 1.0}),
        (REQUEST, {"step": True}),
        (REQUEST, {"attempt": 2**53}),
        (REQUEST, {"participants": ()}),
        (REQUEST, {"participants": ("bert", "anna")}),
        (REQUEST, {"participants": ("anna", "anna")}),
        (REQUEST, {"participants": ["anna", "bert"]}),
        (REQUEST, {"participants": ("anna", 3)}),
        (REQUEST, {"participants": "anna"}),
        (REQUEST, {"nonces": {"anna": bytes(33)}}),
        (REQUEST, {"nonces": {"carl": bytes(32)}}),
        (REQUEST, {"nonces": (bytes(32), bytes(32))}),
        (SHARE, {"arrays": {"x": np.zeros(3)}}),
        (SHARE, {"arrays": {"x": [1, 2]}}),
        (SHARE, {"arrays": [np.zeros(3, dtype=np.int64)]}),
        (SHARE, {"private": 1}),
        (SHARE, {"request": None}),
        (REFUSAL, {"reason": b"x"}),
        (REFUSAL, {"request": "no"}),
        (FAREWELL, {"offer": "no"}),
        (FAREWELL, {"reason": None}),
    ],
    ids=lambda part: type(part).__name__ if is_dataclass(part) else str(part)[:30],
)
def test_malformed_messages_are_refused_where_they_are_made_and_where_they_are_read(whole: Any, changes: Any) -> None:
    with pytest.raises((ParameterError, FederationError)):
        replace(whole, **changes)
    own = replace(whole)
    for name, value in changes.items():
        object.__setattr__(own, name, value)  # as another program would send it
    with pytest.raises(FederationError):
        decode(encode(own))


# --- the models' distributions ------------------------------------------------------------------------------

FAMILIES = ("dpvb.models.topics", "dpvb.models.regression", "dpvb.models.belief_network")
MODELS: dict[str, Any] = {
    case.name: partial(replace, case) for case in CASES if type(case.model).__module__.startswith(FAMILIES)
}
MODELS |= {f"{name}, {form}": make for name in kinds.NAMES for form, make in kinds.forms(name).items()}


@pytest.mark.parametrize("name", MODELS)
def test_what_a_client_computes_from_a_received_q_is_the_same_bit_for_bit(name: str) -> None:
    case = MODELS[name]()
    model = case.model
    rng = np.random.default_rng(3)
    rows = case.records(rng, 40)
    source = case.source(rows)
    chunk = next(iter(source.chunks()))
    batch = chunk.rows if hasattr(chunk, "rows") else chunk
    plan = case.whole(FullBatch(), [0.5, 0.5, 0.5])
    wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(1))
    every = [case.model.init(np.random.default_rng(0)), case.start()]
    loop.fit(
        case.model,
        wall,
        plan,
        rho=robbins_monro(1.0, 0.7),
        rng=np.random.default_rng(0),
        on_step=lambda t, q: every.append(q),
    )
    assert len(every) == 2 + len(plan)
    for q in every:
        data = encode(q, classes_in(q))
        arrived = decode(data, classes_in(q))
        assert same(arrived, q)
        assert encode(arrived, classes_in(q)) == data
        for release in plan:
            sent = model.e_step(q, batch, release.asked)
            received = model.e_step(arrived, batch, release.asked)
            assert same(dict(received), dict(sent))
            for block in sent:
                assert same(received[block].norms(), sent[block].norms())
