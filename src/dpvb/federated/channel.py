"""Sealed envelopes: the sender of a message is certain, and no one in between reads or changes it.

    "dpvb" | version | sender | recipient | nonce (12 bytes) | ChaCha20-Poly1305 ciphertext with its tag (RFC 8439)

Sender and recipient are names of 64 bytes, padded with zeros. Each direction between two parties has a key of its own,
from the pair's secret (see `keys`), so that a message sent back to its sender does not open. Nonces are random: after n
messages in a direction two are equal with probability below n²·2⁻⁹⁷. All that stands before the ciphertext is
authenticated. An envelope opens any number of times: a repeated request is answered by the same bytes.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping
from typing import Final, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dpvb.federated.keys import Identity, check_name, check_public
from dpvb.federated.messages import MAX_BYTES
from dpvb.guards.errors import FederationError

_HEAD: Final = struct.Struct("<4sI64s64s")
_MAGIC: Final = b"dpvE"
_VERSION: Final = 1
_NONCE: Final = 12
_TAG: Final = 16


@final
class Channel:
    """One party's sealed connection to the others.

    Args:
        identity: whose it is.
        peers: public keys of the others by name, as configured, never as received.

    Raises:
        FederationError: for a public key that is none, is one's own or is of low order.
    """

    def __init__(self, identity: Identity, peers: Mapping[str, bytes]) -> None:
        self.name: Final = identity.name
        self._ciphers: dict[tuple[str, str], ChaCha20Poly1305] = {}
        for peer, public in peers.items():
            if check_name(peer) == identity.name:
                raise FederationError(
                    f"A peer has this party's own name, {peer!r}; give every party a name of its own."
                )
            check_public(peer, public)
            for ways, first in (((identity.name, peer), identity.public), ((peer, identity.name), public)):
                key = identity.secret_with(public, f"channel from {first.hex()}")
                self._ciphers[ways] = ChaCha20Poly1305(key)

    def seal(self, to: str, data: bytes) -> bytes:
        """Return an envelope for a peer; the same data give other bytes each time.

        Raises:
            FederationError: for an unknown peer or more than 2 GiB.
        """
        cipher = self._ciphers.get((self.name, to))
        if cipher is None:
            raise FederationError(f"{to!r} is not a configured peer of {self.name!r}.")
        head = _HEAD.pack(_MAGIC, _VERSION, self.name.encode("ascii"), to.encode("ascii"))
        if len(data) > MAX_BYTES - len(head) - _NONCE - _TAG - 1:
            raise FederationError(f"An envelope has at most {MAX_BYTES} bytes, its contents have {len(data)}.")
        nonce = secrets.token_bytes(_NONCE)
        return head + nonce + cipher.encrypt(nonce, data, head)

    def open(self, sealed: bytes, max_bytes: int = MAX_BYTES) -> tuple[str, bytes]:
        """Return the sender and the contents of an envelope.

        Raises:
            FederationError: if it is malformed, too large, for another receiver, not from a configured peer, or
                changed.
        """
        start = _HEAD.size + _NONCE
        if not isinstance(sealed, bytes) or not start + _TAG <= len(sealed) <= max_bytes:
            raise FederationError(f"An envelope has from {start + _TAG} to {max_bytes} bytes; this is not an envelope.")
        head, nonce = sealed[: _HEAD.size], sealed[_HEAD.size : start]
        magic, version, sender_bytes, recipient_bytes = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise FederationError("These bytes are not an envelope of this version of dpvb.")
        sender, recipient = (name.rstrip(b"\0").decode("latin-1") for name in (sender_bytes, recipient_bytes))
        if recipient != self.name:
            raise FederationError(f"An envelope is not for {self.name!r}.")
        cipher = self._ciphers.get((sender, self.name))
        if cipher is None:
            raise FederationError(f"An envelope for {self.name!r} is not from a configured peer.")
        try:
            return sender, cipher.decrypt(nonce, sealed[start:], head)
        except InvalidTag as error:
            raise FederationError(
                f"An envelope that names {sender!r} was not sealed with its key, or was changed on the way."
            ) from error
