"""Identity of a party of a federated run: a name and an X25519 key, and the secrets that two parties share.

Public keys are exchanged outside this package and written into every party's configuration; none is ever taken from a
message. A pair's secret is HKDF-SHA256 (RFC 5869) of the X25519 shared point (RFC 7748), bound to both public keys and
to a purpose, so that what masks is independent of what seals.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpvb.guards.errors import CheckpointError, FederationError, ParameterError, check_path, reason_of
from dpvb.guards.file_ownership import read_own, write_own

_HEAD: Final = b"dpvb identity 1\n"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LENGTH: Final = 32
_FIELD_PRIME: Final = 2**255 - 19


def fields(*parts: bytes) -> bytes:
    """Return byte strings joined so that no two lists of them give the same bytes: each after its length."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def check_name(name: object) -> str:
    """Return the name of a party if it is one: up to 64 letters, digits, dots, hyphens and underscores.

    Raises:
        ParameterError: if it is not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(
            "name of a party must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit, got "
            f"{name!r}."
        )
    return name


def check_public(name: str, public: object) -> bytes:
    """Return the public key of a party if it can be one: 32 bytes in the one spelling of RFC 7748.

    Raises:
        FederationError: if it cannot.
    """
    if not isinstance(public, bytes) or len(public) != _LENGTH or int.from_bytes(public, "little") >= _FIELD_PRIME:
        raise FederationError(f"The public key of {name!r} is not an X25519 key; ask its owner for a new copy.")
    return public


@final
class Identity:
    """A party's name with its secret key; it cannot be pickled.

    Args:
        name: see `check_name`.
        secret: 32 secret bytes.

    Raises:
        ParameterError: for a bad name or a secret of another length.
    """

    def __init__(self, name: str, secret: bytes) -> None:
        self.name = check_name(name)
        if len(secret) != _LENGTH:
            raise ParameterError(f"secret must have {_LENGTH} bytes, got {len(secret)}.")
        self._private = X25519PrivateKey.from_private_bytes(secret)
        #: The public key, 32 bytes; for the others' configurations.
        self.public: Final = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, name: str) -> Identity:
        """A new identity, from the operating system's generator.

        Raises:
            ParameterError: for a bad name.
        """
        return cls(name, X25519PrivateKey.generate().private_bytes_raw())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the secret key to a new file that only its owner can read.

        Raises:
            FederationError: if the file is there already or cannot be written.
        """
        text = _HEAD + f"{self.name} {self._private.private_bytes_raw().hex()}\n".encode("ascii")
        try:
            write_own(check_path("path", path), text, new=True)
        except OSError as error:
            raise FederationError(
                f"{Path(path)}: an identity cannot be written here ({error.strerror}). Name another file."
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Identity:
        """Read an identity that `save` wrote.

        Raises:
            FederationError: if the file is missing, damaged, or open to other users.
        """
        try:
            text = read_own(check_path("path", path))
        except FileNotFoundError as error:
            raise FederationError(f"{Path(path)}: no identity can be read here ({reason_of(error)}).") from error
        except CheckpointError as error:
            raise FederationError(
                f"No identity can be read here: {error} A secret key that others could read is one no longer."
            ) from error
        match = re.fullmatch(re.escape(_HEAD) + rb"(\S{1,64}) ([0-9a-f]{64})\n", text)
        if match is None or not _NAME.fullmatch(match[1].decode("latin-1")):
            raise FederationError(f"{Path(path)}: damaged, or not an identity of dpvb.")
        return cls(match[1].decode("ascii"), bytes.fromhex(match[2].decode("ascii")))

    def secret_with(self, public: bytes, purpose: str) -> bytes:
        """Return the 32 secret bytes that this party and another share for a purpose.

        Both get the same; another pair, or purpose, has independent ones.

        Raises:
            FederationError: if the public key is malformed, one's own, or of low order (the secret would be known).
        """
        if check_public("the peer", public) == self.public:
            raise FederationError("A party shares no secret with itself; give every party a key of its own.")
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:  # an all-zero point (RFC 7748, section 6.1)
            raise FederationError("The peer's public key is of low order and protects nothing.") from error
        info = fields(b"dpvb pair 1", purpose.encode(), *sorted((self.public, public)))
        return HKDF(algorithm=hashes.SHA256(), length=_LENGTH, salt=None, info=info).derive(shared)

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, public={self.public.hex()})"
