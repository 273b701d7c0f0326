"""Masks: they cancel in the sum over all, and nowhere else."""

from __future__ import annotations

import copy
import hashlib
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.errors import FederationError
from dpvb.federated.keys import Identity
from dpvb.federated.masks import Masks
from dpvb.guards.arrays import Ints

PARTIES = [Identity.generate(f"client-{i}") for i in range(12)]
DIGEST = bytes(range(32))
# A normal statistic is beyond 5.7 standard deviations with probability 1.2e-8. Keys are new in every run: no seeds.
_BEYOND = 5.7


def masks(count: int) -> list[Masks]:
    publics = {party.name: party.public for party in PARTIES[:count]}
    return [Masks(party, publics) for party in PARTIES[:count]]


def masked(every: list[Masks], arrays: list[Ints], *, digest: bytes = DIGEST, name: str = "x") -> list[Ints]:
    return [one.conceal(digest, {name: array})[name] for one, array in zip(every, arrays, strict=True)]


def total(arrays: list[Ints]) -> Ints:
    """The sum modulo 2⁶⁴, by Python's whole numbers."""
    sums = [sum(int(a) for a in entry) for entry in zip(*(array.reshape(-1) for array in arrays), strict=True)]
    wrapped = [(s + 2**63) % 2**64 - 2**63 for s in sums]
    return np.array(wrapped, dtype=np.int64).reshape(arrays[0].shape)


def zeros(count: int, *shape: int) -> list[Ints]:
    return [np.zeros(shape, dtype=np.int64)] * count


@each("count", [2, 3, 5, 12])
@each("shape", [(), (0,), (1,), (7, 3), (2, 0, 3), (4097,), (3, 4096)])
def test_the_masks_of_all_cancel(count: int, shape: tuple[int, ...]) -> None:
    every = masks(count)
    rng = np.random.default_rng(count)
    for digest, name in ((DIGEST, "counts"), (DIGEST[::-1], "counts"), (DIGEST, "words"), (DIGEST, "ψ")):
        arrays = [rng.integers(-(2**63), 2**63, shape, dtype=np.int64) for _ in range(count)]
        hidden = masked(every, arrays, digest=digest, name=name)
        assert [array.shape for array in hidden] == [shape] * count
        np.testing.assert_array_equal(total(hidden), total(arrays))
        wrapping = np.add.reduce(np.stack(hidden), axis=0, dtype=np.int64)  # the way a server adds
        np.testing.assert_array_equal(wrapping, total(arrays))


def test_blocks_of_a_request_are_masked_by_words_of_their_own() -> None:
    """One stream over all blocks, in the order of their names, however they are given; 3 statistics: 3.6e-8."""
    shapes = {"b": (3000, 2), "a": (), "c": (0,), "d": (4096,)}
    rng = np.random.default_rng(5)
    parts = [{name: rng.integers(-(2**63), 2**63, shape) for name, shape in shapes.items()} for _ in range(3)]
    hidden = [one.conceal(DIGEST, blocks) for one, blocks in zip(masks(3), parts, strict=True)]
    for name, shape in shapes.items():
        assert [given[name].shape for given in hidden] == [shape] * 3
        np.testing.assert_array_equal(
            total([given[name] for given in hidden]), total([blocks[name] for blocks in parts])
        )
    one, *_ = masks(3)
    turned = one.conceal(DIGEST, dict(reversed(parts[0].items())))
    assert all(np.array_equal(turned[name], hidden[0][name]) for name in shapes)
    nothing = one.conceal(DIGEST[::-1], {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()})
    flat = np.concatenate([nothing[name].reshape(-1) for name in sorted(shapes)])
    for lag in (1, shapes["d"][0], shapes["b"][0]):  # no block begins the stream again
        assert abs(bit_bias(flat[lag:] - flat[:-lag])) < _BEYOND


@given(
    st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3), min_size=1, max_size=4),
    st.binary(min_size=32, max_size=32),
)
@settings(max_examples=30, deadline=None)
def test_sums_wrap_exactly_near_the_limits(rows: list[tuple[int, int, int]], digest: bytes) -> None:
    rows = [*rows, (2**63 - 1, -(2**63), 2**62)]
    arrays = [np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)]
    np.testing.assert_array_equal(total(masked(masks(3), arrays, digest=digest)), total(arrays))


def test_a_sum_within_the_limits_arrives_although_its_parts_wrapped() -> None:
    arrays = [np.array([2**62, -(2**62)]), np.array([2**62 - 1, -(2**62)]), np.array([0, 0])]
    np.testing.assert_array_equal(total(masked(masks(3), arrays)), [2**63 - 1, -(2**63)])


def test_a_mask_is_the_keystream_of_the_standard_cipher() -> None:
    """Two parties; the words are ChaCha20's under HKDF-Expand, found here from the pair's secret."""
    a, b = sorted(PARTIES[:2], key=lambda party: party.public)
    publics = {a.name: a.public, b.name: b.public}
    blocks = {"block": np.zeros((5000, 2), dtype=np.int64), "a": np.zeros((), dtype=np.int64)}  # more than is at a time

    def flat(hidden: dict[str, Ints]) -> Ints:
        return np.concatenate([hidden["a"].reshape(-1), hidden["block"].reshape(-1)])

    found = flat(Masks(a, publics).conceal(DIGEST, blocks))

    def joined(*parts: bytes) -> bytes:
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    names = b"".join(joined(name.encode(), publics[name]) for name in sorted(publics))
    info = hashlib.sha256(joined(b"dpvb masks 1", names, DIGEST, b"a", b"()", b"block", b"(5000, 2)")).digest()
    secret = b.secret_with(a.public, "masks")
    keys = HKDFExpand(hashes.SHA256(), 64, b"dpvb masks: stream and nonces 1").derive(secret)
    nonce = HKDFExpand(hashes.SHA256(), 12, info).derive(keys[32:])
    cipher = Cipher(algorithms.ChaCha20(keys[:32], bytes(4) + nonce), mode=None).encryptor()
    expected = np.frombuffer(cipher.update(bytes(8 * 10_001)), dtype="<i8")
    np.testing.assert_array_equal(found, expected)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(flat(Masks(b, publics).conceal(DIGEST, blocks)), -expected)


def bit_bias(words: Ints) -> float:
    """Standardised excess of ones among the bits; about normal for uniform words."""
    bits = 64 * words.size
    ones = int(np.bitwise_count(words.view(np.uint64)).sum())
    return float((2 * ones - bits) / np.sqrt(bits))


def byte_excess(words: Ints) -> float:
    """Standardised chi-square of the bytes (Wilson & Hilferty 1931): about normal for uniform words."""
    counts = np.bincount(words.reshape(-1).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    ratio = float(((counts - expected) ** 2 / expected).sum()) / 255
    return float((ratio ** (1 / 3) - (1 - 2 / (9 * 255))) / np.sqrt(2 / (9 * 255)))


def test_all_but_one_of_the_shares_tell_nothing_of_it() -> None:
    """Every share, and every sum of some but not all, looks uniform.

    14 sums with 2 statistics each: a false alarm in 3.4e-7 of all runs.
    """
    arrays = [np.full(40_000, value, dtype=np.int64) for value in (0, 1, -5, 2**40)]
    hidden = masked(masks(4), arrays)
    for size in (1, 2, 3):
        for some in itertools.combinations(hidden, size):
            seen = np.add.reduce(np.stack(some), axis=0, dtype=np.int64)
            assert abs(bit_bias(seen)) < _BEYOND
            assert abs(byte_excess(seen)) < _BEYOND
    np.testing.assert_array_equal(total([array[:50] for array in hidden]), np.full(50, 2**40 - 4))


def test_a_missing_participant_leaves_noise() -> None:
    """5 statistics: a false alarm in 6e-8 of all runs."""
    arrays = [np.full(4000, 1000, dtype=np.int64)] * 5
    hidden = masked(masks(5), arrays)
    for missing in range(5):
        rest = np.add.reduce(np.stack(hidden[:missing] + hidden[missing + 1 :]), axis=0, dtype=np.int64)
        assert abs(bit_bias(rest)) < _BEYOND
        assert not np.any(rest == 4000)


@kills("parties", "masks that are the same for every request")
@edit("federated/masks.py", "self._participants, request_digest, *names", "self._participants, *names")
def test_whatever_names_a_request_gives_masks_of_its_own() -> None:
    """The difference of two masks of one party is uniform; 9 statistics: 1.1e-7."""
    nothing = np.zeros(20_000, dtype=np.int64)
    first, *_ = masks(3)
    base = first.conceal(DIGEST, {"x": nothing})["x"]
    smaller, *_ = masks(2)
    publics = {party.name: party.public for party in PARTIES[:3]}
    renamed = Masks(PARTIES[0], {PARTIES[0].name: PARTIES[0].public, "b": PARTIES[1].public, "c": PARTIES[2].public})
    others = {
        "request": first.conceal(DIGEST[::-1], {"x": nothing})["x"],
        "shorter request": first.conceal(DIGEST[:-1], {"x": nothing})["x"],
        "block": first.conceal(DIGEST, {"y": nothing})["y"],
        "one more block": first.conceal(DIGEST, {"x": nothing, "y": nothing[:0]})["x"],
        "shape": first.conceal(DIGEST, {"x": nothing.reshape(2, -1)})["x"].reshape(-1),
        "participants": smaller.conceal(DIGEST, {"x": nothing})["x"],
        "their names": renamed.conceal(DIGEST, {"x": nothing})["x"],
        "party": Masks(PARTIES[1], publics).conceal(DIGEST, {"x": nothing})["x"],
        "its own further words": np.roll(base, 1),
    }
    for name, other in others.items():
        assert abs(bit_bias(other - base)) < _BEYOND, name
        assert not np.any(other == base), name


def test_two_contents_are_never_hidden_by_the_same_masks() -> None:
    one, _ = masks(2)
    ints = np.arange(5)
    first = one.conceal(DIGEST, {"x": ints})["x"]
    np.testing.assert_array_equal(one.conceal(DIGEST, {"x": ints.copy()})["x"], first)
    with pytest.raises(FederationError, match=r"Other sums were masked for this request before.* new attempt"):
        one.conceal(DIGEST, {"x": ints + 1})
    one.conceal(DIGEST[::-1], {"x": ints + 1})
    assert np.array_equal(ints, np.arange(5))  # what is masked is left as it was


def test_parties_who_see_other_participants_learn_nothing_together() -> None:
    """A server that tells two clients of different participants gets no sum: 1 statistic: 1.2e-8."""
    small = {party.name: party.public for party in PARTIES[:2]}
    large = {party.name: party.public for party in PARTIES[:3]}
    blocks = {"x": np.zeros(5000, dtype=np.int64)}
    seen = Masks(PARTIES[0], small).conceal(DIGEST, blocks)["x"]
    seen = seen + Masks(PARTIES[1], large).conceal(DIGEST, blocks)["x"]
    assert abs(bit_bias(seen)) < _BEYOND


def test_every_pair_of_participants_has_masks_of_its_own() -> None:
    """Whoever works together, the others stay linked among themselves, by secrets that two alone can make."""
    parties = PARTIES[:8]
    publics = {party.name: party.public for party in parties}
    for party in parties:
        own = Masks(party, publics)
        smaller = sum(public < party.public for public in publics.values())
        assert (len(own._subtracted), len(own._added)) == (smaller, 7 - smaller)


def test_threads_take_turns() -> None:
    every = masks(3)
    arrays = [np.arange(9000)] * 3
    with ThreadPoolExecutor(6) as pool:
        jobs = [[pool.submit(one.conceal, bytes([step] * 32), {"x": arrays[0]}) for one in every] for step in range(30)]
        for answers in jobs:
            np.testing.assert_array_equal(sum(job.result()["x"] for job in answers), 3 * np.arange(9000))


def test_bad_participants_are_refused() -> None:
    own, other = PARTIES[:2]
    for participants, match in (
        ({own.name: own.public}, "two participants at least"),
        ({other.name: other.public, "x": own.public}, "not among the participants"),
        ({own.name: other.public, other.name: other.public}, "not among the participants"),
        ({own.name: own.public, "a": other.public, "b": other.public}, "the same public key"),
        ({own.name: own.public, "a": bytes(32)}, "low order"),
        ({own.name: own.public, "a": b"short"}, "not an X25519 key"),
    ):
        with pytest.raises(FederationError, match=match):
            Masks(own, participants)


def test_only_whole_numbers_are_masked_and_masks_are_not_copied() -> None:
    one, _ = masks(2)
    for array in (np.zeros(3), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.uint64)):
        with pytest.raises(FederationError, match="Only int64"):
            one.conceal(DIGEST, {"x": array})  # type: ignore[dict-item]
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(FederationError, match="cannot be pickled or copied"):
            make(one)
