"""Envelopes: they open for whom they are, from whom they are, as they were sealed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvb.errors import FederationError, ParameterError
from dpvb.federated.channel import Channel
from dpvb.federated.keys import Identity

NAMES = ("server", "anna", "bert", "a" * 64)
PARTIES = {name: Identity.generate(name) for name in NAMES}
CHANNELS = {
    name: Channel(own, {other: PARTIES[other].public for other in NAMES if other != name})
    for name, own in PARTIES.items()
}


@given(st.binary(max_size=300), st.permutations(NAMES))
@settings(max_examples=50, deadline=None)
def test_an_envelope_opens_for_its_recipient_alone(data: bytes, names: list[str]) -> None:
    sender, recipient, *others = names
    sealed = CHANNELS[sender].seal(recipient, data)
    assert CHANNELS[recipient].open(sealed) == (sender, data)
    assert CHANNELS[recipient].open(sealed) == (sender, data)
    assert CHANNELS[sender].seal(recipient, data) != sealed
    for other in (sender, *others):
        with pytest.raises(FederationError, match=f"not for '{other}'"):
            CHANNELS[other].open(sealed)


def test_every_changed_bit_and_every_cut_is_noticed() -> None:
    sealed = CHANNELS["anna"].seal("server", b"a share")
    for place, bit in itertools.product(range(len(sealed)), range(8)):
        changed = bytearray(sealed)
        changed[place] ^= 1 << bit
        with pytest.raises(FederationError):
            CHANNELS["server"].open(bytes(changed))
    for length in range(len(sealed)):
        with pytest.raises(FederationError):
            CHANNELS["server"].open(sealed[:length])
    with pytest.raises(FederationError, match="was changed"):
        CHANNELS["server"].open(sealed + b"\0")


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_one_error(data: bytes) -> None:
    head = CHANNELS["anna"].seal("server", b"")[:136]
    for sealed in (data, head + data):
        with pytest.raises(FederationError):
            CHANNELS["server"].open(sealed)


def names_swapped(sealed: bytes, sender: str, recipient: str) -> bytes:
    return sealed[:8] + sender.encode().ljust(64, b"\0") + recipient.encode().ljust(64, b"\0") + sealed[136:]


def test_nobody_speaks_for_another() -> None:
    sealed = CHANNELS["anna"].seal("server", b"mine")
    assert names_swapped(sealed, "anna", "server") == sealed
    for name in NAMES:
        for sender, recipient in ((name, "server"), ("anna", name), (name, "anna")):
            if (sender, recipient) != ("anna", "server") and sender != recipient:
                with pytest.raises(FederationError, match="not sealed with its key"):
                    CHANNELS[recipient].open(names_swapped(sealed, sender, recipient))


def test_a_message_sent_back_does_not_open() -> None:
    """Both directions have the same pair secret; the key tells them apart, the names alone would not."""
    sealed = CHANNELS["anna"].seal("server", b"hello")
    with pytest.raises(FederationError, match="not sealed with its key"):
        CHANNELS["anna"].open(names_swapped(sealed, "server", "anna"))


def test_strangers_and_other_keys_are_refused() -> None:
    stranger = Identity.generate("carol")
    toward = Channel(stranger, {"server": PARTIES["server"].public})
    with pytest.raises(FederationError, match="not from a configured peer"):
        CHANNELS["server"].open(toward.seal("server", b"let me in"))
    liar = Channel(Identity.generate("anna"), {"server": PARTIES["server"].public})
    with pytest.raises(FederationError, match="not sealed with its key"):
        CHANNELS["server"].open(liar.seal("server", b"I am anna"))
    with pytest.raises(FederationError, match="'carol' is not a configured peer of 'server'"):
        CHANNELS["server"].seal("carol", b"")


def test_sizes_are_held() -> None:
    sealed = CHANNELS["anna"].seal("server", bytes(1000))
    assert len(sealed) == 1000 + 136 + 12 + 16
    assert CHANNELS["server"].open(sealed, max_bytes=len(sealed))[1] == bytes(1000)
    for bad in (sealed, b"", "text", None, bytearray(sealed)):
        with pytest.raises(FederationError, match="An envelope has from"):
            CHANNELS["server"].open(bad, max_bytes=len(sealed) - 1)  # type: ignore[arg-type]


def test_bad_peers_are_refused() -> None:
    anna = PARTIES["anna"]
    for peers, error in (
        ({"anna": PARTIES["bert"].public}, FederationError),
        ({"bert": anna.public}, FederationError),
        ({"bert": bytes(32)}, FederationError),
        ({"bert": b"short"}, FederationError),
        ({"b t": PARTIES["bert"].public}, ParameterError),
    ):
        with pytest.raises(error):
            Channel(anna, peers)
