"""Identities and the secrets that pairs of them share."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvb.errors import FederationError, ParameterError
from dpvb.federated.keys import Identity, check_name, check_public, fields

# RFC 7748, section 6.1: Bob's secret, both public keys, and the shared point.
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
PRIME = 2**255 - 19


def test_the_secret_is_hkdf_of_the_shared_point_of_the_standard() -> None:
    bob = Identity("bob", BOB)
    assert bob.public == BOB_PUBLIC
    key = hmac.digest(bytes(32), SHARED, "sha256")
    info = b""
    for part in (b"dpvb pair 1", b"masks", min(ALICE_PUBLIC, BOB_PUBLIC), max(ALICE_PUBLIC, BOB_PUBLIC)):
        info += len(part).to_bytes(8, "little") + part
    assert bob.secret_with(ALICE_PUBLIC, "masks") == hmac.digest(key, info + b"\x01", hashlib.sha256)


def test_both_of_a_pair_have_one_secret_for_each_purpose_and_no_other_pair_has_it() -> None:
    parties = [Identity.generate(f"party-{i}") for i in range(5)]
    found = set()
    for a, b in itertools.combinations(parties, 2):
        for purpose in ("masks", "mask", "seal"):
            assert a.secret_with(b.public, purpose) == b.secret_with(a.public, purpose)
            found.add(a.secret_with(b.public, purpose))
    assert len(found) == 10 * 3
    assert {len(secret) for secret in found} == {32}


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.binary(max_size=20), max_size=5))
@settings(max_examples=200, deadline=None)
def test_other_fields_give_other_bytes(some: list[bytes], others: list[bytes]) -> None:
    assert (fields(*some) == fields(*others)) == (some == others)


def test_points_that_give_secrets_away_are_refused() -> None:
    bob = Identity("bob", BOB)
    low_order = [0, 1, PRIME - 1, 325606250916557431795983626356110631294008115727848805560023387167927233504]
    for point in low_order:
        with pytest.raises(FederationError, match="low order"):
            bob.secret_with(point.to_bytes(32, "little"), "masks")
    with pytest.raises(FederationError, match="with itself"):
        bob.secret_with(bob.public, "masks")


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33), b"\xff" * 32, PRIME.to_bytes(32, "little"), "key", None])
def test_a_public_key_has_one_spelling(public: object) -> None:
    with pytest.raises(FederationError, match="public key of 'carol'"):
        check_public("carol", public)


@pytest.mark.parametrize("name", ["", " a", "a b", "ä", "a" * 65, "-a", "a/b", "a\n", "a\0", 3, None])
def test_names_are_plain(name: object) -> None:
    with pytest.raises(ParameterError, match="name of a party"):
        check_name(name)


def test_a_file_keeps_an_identity_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    party = Identity.generate("St.Anna_2")
    party.save(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    again = Identity.load(path)
    other = Identity.generate("other").public
    assert (again.name, again.public) == (party.name, party.public)
    assert again.secret_with(other, "masks") == party.secret_with(other, "masks")
    with pytest.raises(FederationError, match="cannot be written"):
        Identity.generate("thief").save(path)
    assert Identity.load(path).public == party.public
    for mode in (0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(FederationError, match="others may read"):
            Identity.load(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    Identity.generate("anna").save(path)
    whole = path.read_bytes()
    damaged = [whole[:-1], whole + b"\n", whole[1:], b"", whole.replace(b"anna", b"an/na"), whole.upper(), b"\xff" * 90]
    for text in damaged:
        path.write_bytes(text)
        with pytest.raises(FederationError, match="damaged, or not an identity"):
            Identity.load(path)
    with pytest.raises(FederationError, match=r"(?i)no identity can be read"):
        Identity.load(tmp_path / "missing")
    with pytest.raises(FederationError, match=r"(?i)no identity can be read"):
        Identity.load(tmp_path)


def test_an_identity_shows_no_secret_and_is_not_pickled() -> None:
    bob = Identity("bob", BOB)
    assert BOB.hex() not in repr(bob) + str(vars(bob))
    with pytest.raises(TypeError):
        pickle.dumps(bob)
    with pytest.raises(ParameterError, match="secret must have 32 bytes, got 31"):
        Identity("bob", BOB[:31])
