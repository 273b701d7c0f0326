"""Changed files of a ledger: one typed error, nothing else, in little time; `make fuzz` does the same for longer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from effort import at_most
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import fuzz

READERS = ["ledger file", "ledger head", "exported chain"]
SEEDS = {name: fuzz.READERS[name].seeds()[0] for name in READERS}


def refused(name: str, content: bytes) -> bool:
    """Whether a reader refuses a file; any error but dpvb's own comes through."""
    with TemporaryDirectory() as folder, at_most(30):
        return fuzz.refuses(fuzz.READERS[name], content, Path(folder))


@pytest.mark.parametrize("name", READERS)
def test_files_as_they_are_written_are_read(name: str) -> None:
    assert not refused(name, SEEDS[name])


@settings(max_examples=60)
@given(st.data())
@pytest.mark.parametrize("name", READERS)
def test_changed_bytes(name: str, data: st.DataObject) -> None:
    content = bytearray(SEEDS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    if bytes(content[:end]) != SEEDS[name]:
        assert refused(name, bytes(content[:end])) or name == "exported chain"


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), number=st.integers(1, 3))
def test_changed_rows_with_right_hashes(seed: int, number: int) -> None:
    """A forger who keeps the hashes still keeps to the rules, or is refused."""
    draw = random.Random(seed)
    lines = [json.loads(line) for line in SEEDS["exported chain"].splitlines()]
    for _ in range(number):
        at = draw.randrange(1, len(lines))
        lines[at] = fuzz.with_another_leaf(lines[at], draw)
    refused("exported chain", fuzz.chained(b"\n".join(json.dumps(line).encode() for line in lines)))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_changed_heads_with_right_hashes(seed: int) -> None:
    draw = random.Random(seed)
    half = SEEDS["ledger head"][: len(SEEDS["ledger head"]) // 2]
    body = fuzz.with_another_leaf(json.loads(json.loads(half)["head"]), draw)
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    refused("ledger head", text + b" " * (1 - len(text) % 2))
