"""Secure aggregation: masks that hide every participant's sum and cancel in the sum over all of them.

For every pair of participants and every request there is one string of uniform 64-bit words. The one of the two with
the smaller public key adds it, the other subtracts it, modulo 2⁶⁴; so the sum of all participants' masked arrays is,
modulo 2⁶⁴, the sum of the arrays, and a proper part of them is uniform but for its own sum (Bonawitz et al. 2017,
without recovery: when one is missing the round is lost, not its secret).

**No word of keystream hides two things.** A pair has a secret of its own for masks (see `keys`), from which HKDF-Expand
(RFC 5869) makes two keys: one of ChaCha20, one of nonces. The 96-bit nonce of a request is HKDF-Expand under the
second key of the SHA-256 of all that names what is masked, each field with its length: participants with their public
keys, digest of the request, name and shape of every block. Within a nonce, word j of the stream goes to entry j of the
blocks, one after the other in the order of their names; they have at most 2³⁵ words together, where the 32-bit counter
ends. For others to meet the same words the nonces must collide.
Nonces are pseudorandom to everyone outside the pair, and a server can only have one made by a request that is answered
and charged: after n requests a collision has probability below n²·2⁻⁹⁷, 2⁻⁵⁷ after a million. The same request with
other contents is refused here; across processes the client sees to it, for it stores an answer before it sends it, and
a request names what it drew when it accepted: one that has lost what it stored draws anew.

Keeping a pair's cipher and moving its nonce takes a third of the time of making a cipher for every request.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import NDArray

from dpvb.federated.keys import Identity, check_name, check_public, fields
from dpvb.guards.arrays import Ints
from dpvb.guards.errors import FederationError

_WORDS: Final = 2**12  # words that are taken of all streams at a time
_ZEROS: Final = bytes(8 * _WORDS)
_MAX_WORDS: Final = 2**35


@final
class Masks:
    """The masks of one participant.

    Args:
        identity: whose they are.
        participants: public keys of all participants by name, one's own among them; as configured, never as received.

    Raises:
        FederationError: if there are fewer than two, if one's own key is missing or another, or if two keys are equal.
    """

    def __init__(self, identity: Identity, participants: Mapping[str, bytes]) -> None:
        every = {check_name(name): check_public(name, public) for name, public in sorted(participants.items())}
        if every.get(identity.name) != identity.public:
            raise FederationError(f"{identity.name!r} is not among the participants under its own public key.")
        if len(every) < 2:
            raise FederationError("masks need two participants at least: the sum of one would be its own.")
        if len(set(every.values())) < len(every):
            raise FederationError("Two participants have the same public key; give every party a key of its own.")
        self._participants = b"".join(fields(name.encode("ascii"), public) for name, public in every.items())
        streams = {
            public: _Stream(identity.secret_with(public, "masks"))
            for public in every.values()
            if public != identity.public
        }
        self._added = [stream for public, stream in streams.items() if identity.public < public]
        self._subtracted = [stream for public, stream in streams.items() if identity.public > public]
        self._hidden: dict[bytes, bytes] = {}
        self._turn = threading.Lock()

    def conceal(self, request_digest: bytes, blocks: Mapping[str, Ints]) -> dict[str, Ints]:
        """Return the blocks that are given for a request, masked.

        Arrays are int64, of any shape; private before, uniform to parties without another participant's after. The
        digest, names and shapes are public, and the same for all participants. The same call gives the same bits.

        Raises:
            FederationError: for other arrays, or if other contents were masked for the request before.
        """
        ordered = sorted(blocks.items())
        size = sum(ints.size for _, ints in ordered)
        if any(ints.dtype != np.int64 for _, ints in ordered) or size > _MAX_WORDS:
            raise FederationError(f"Only int64 arrays of at most {_MAX_WORDS} entries together are masked.")
        names = [part for name, ints in ordered for part in (name.encode(), repr(ints.shape).encode())]
        info = hashlib.sha256(fields(b"dpvb masks 1", self._participants, request_digest, *names)).digest()
        total = np.empty(size, dtype=np.uint64)
        hidden, first = {}, 0
        for name, ints in ordered:
            words = total[first : first + ints.size]
            words[:] = ints.reshape(-1).view(np.uint64)
            hidden[name] = words.view(np.int64).reshape(ints.shape)
            first += ints.size
        self._mask(info, total)
        return hidden

    def _mask(self, info: bytes, total: NDArray[np.uint64]) -> None:
        """Add, in place, what the pairs' streams have under these names."""
        with self._turn:
            contents = hashlib.sha256(total.astype("<u8", copy=False).data).digest()
            if self._hidden.setdefault(info, contents) != contents:
                raise FederationError(
                    "Other sums were masked for this request before, and the difference would show. Begin a new "
                    "attempt at this step."
                )
            for stream in (*self._added, *self._subtracted):
                stream.begin(info)
            for first in range(0, total.size, _WORDS):
                part = total[first : first + _WORDS]
                part += _sum_of_next(self._added, part.size)
                part -= _sum_of_next(self._subtracted, part.size)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise FederationError("Masks cannot be pickled or copied: two copies could hide two sums under the same masks.")


class _Stream:
    """The keystream of one pair."""

    def __init__(self, secret: bytes) -> None:
        keys = HKDFExpand(algorithm=hashes.SHA256(), length=64, info=b"dpvb masks: stream and nonces 1").derive(secret)
        self._cipher = Cipher(algorithms.ChaCha20(keys[:32], bytes(16)), mode=None).encryptor()
        self._nonces = HMAC(keys[32:], hashes.SHA256())
        self.next = self._cipher.update

    def begin(self, info: bytes) -> None:
        """Go to the beginning of a request: the nonce is the first 12 bytes of HKDF-Expand, the counter is 0."""
        nonces = self._nonces.copy()
        nonces.update(info + b"\x01")
        self._cipher.reset_nonce(b"\0\0\0\0" + nonces.finalize()[:12])


def _sum_of_next(streams: Sequence[_Stream], count: int) -> NDArray[np.uint64]:
    """The sum modulo 2⁶⁴ of the next words of all streams, (count,)."""
    zeros = _ZEROS[: 8 * count]
    words = np.frombuffer(b"".join([stream.next(zeros) for stream in streams]), dtype="<u8")
    return np.asarray(words.reshape(len(streams), count).sum(axis=0, dtype=np.uint64))
