"""JSON and texts that somebody else wrote."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpvb
from dpvb import storage
from dpvb.errors import DataFormatError, ModelFileError, ParameterError
from dpvb.strangers import parsed_json, printable

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(PLAIN)
def test_what_json_writes_is_read(value: Any) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert parsed_json(text) == value
        assert parsed_json(text.encode()) == value


HOSTILE = [
    '{"a": 1, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '[{"b": {"a": 1, "c": 2, "a": 3}}]',
    "NaN",
    '{"a": Infinity}',
    "[-Infinity]",
    "1e999",
    "[[-1e400]]",
    '"\\ud800"',
    '{"\\udfff": 1}',
    '[{"a": ["\\udc00\\ud800"]}]',
    "[" * 65 + "]" * 65,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 70 + "1" + "}" * 70,
    "1" * 100_000,
    "",
    "{",
    "[1] [2]",
    "'a'",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
def test_json_that_readers_could_take_for_different_things_is_refused(text: str) -> None:
    for one in (text, text.encode()):
        with pytest.raises(ValueError):
            parsed_json(one)
    with pytest.raises(DataFormatError, match="not JSON"):
        dpvb.data.Schema.from_json(text)


@pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', '"a"'.encode("utf-16"), b'"\x80"'])
def test_bytes_that_are_not_utf_8_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parsed_json(data)


def test_nesting_as_deep_as_is_allowed_is_read() -> None:
    text = "[" * 64 + "]" * 64
    assert json.dumps(parsed_json(text)) == text


@pytest.mark.parametrize("word", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_half_surrogate_pairs_are_neither_saved_nor_loaded(word: str, tmp_path: Any) -> None:
    with pytest.raises(ParameterError, match="whole characters"):
        storage.save(tmp_path / "m", kind="LDA", arrays={}, facts={"vocabulary": [word]})
    assert not (tmp_path / "m").exists()
    with pytest.raises(ModelFileError, match="surrogates"):
        storage._parse(b'{"format": 1, "kind": "LDA", "arrays": {}, "facts": {"a": "\\ud800"}}')


def test_only_visible_characters_are_shown() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    for one in every:
        shown = printable(one)
        assert shown == (one if one.isprintable() else "?")
    shown = printable("".join(every))
    assert shown.isprintable()
    assert len(shown) == len(every)
    shown.encode()
    for command in "\x00\x07\x08\n\r\x1b\x7f\x9b\u200b\u200e\u202a\u202e\u2066\u2028\ud800\ufeff\U000e0041":
        assert printable(f"a{command}b") == "a?b"
    assert printable("Ünïcode, 中文, עברית and 😀") == "Ünïcode, 中文, עברית and 😀"
