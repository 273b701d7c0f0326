"""Where the server of a federated run is reached, and the files of its TLS."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509

from dpvb.guards.errors import FederationError, ParameterError, check_path, reason_of


class Address(NamedTuple):
    """Host and port of the server."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether the address can be reached from this machine only."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read host:port or [host]:port.

    Raises:
        ParameterError: if it is neither.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare) != host.startswith("[") or not port.isdecimal() or int(port) > 65535:
        raise ParameterError(f"address must be host:port, for example 127.0.0.1:9092 or [::1]:9092, got {text!r}.")
    return Address(bare, int(port))


def check_readable(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the path of a public file of TLS if it can be read.

    Raises:
        ParameterError, FederationError: naming it, if not.
    """
    place = check_path(name, path)
    try:
        with open(place, "rb"):
            return place
    except OSError as error:
        raise FederationError(f"{name}: {place} cannot be read ({reason_of(error)}).") from error


def check_certificate(certificate: str | os.PathLike[str], private_key: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what an HTTP server needs for TLS: the paths of its certificate chain and of its key.

    Raises:
        ParameterError, FederationError: if they cannot be used, or the certificate has expired.
    """
    chain, key = check_readable("certificate", certificate), check_readable("private_key", private_key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    except ssl.SSLError as error:
        raise FederationError(
            f"certificate {chain} and private_key {key} do not belong together, or are not PEM files."
        ) from error
    until = x509.load_pem_x509_certificate(chain.read_bytes()).not_valid_after_utc
    if until < datetime.now(UTC):
        raise FederationError(
            f"certificate {chain} expired on {until:%Y-%m-%d}. Make a new one with `dpvb federate certificate`, and "
            "give its authority.pem to all clients."
        )
    return {"ssl_certfile": chain, "ssl_keyfile": key}
