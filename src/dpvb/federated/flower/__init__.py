"""Flower as transport: its SuperLink at the server, a SuperNode at each client, and bytes that it cannot read.

Of Flower (1.41) the message passing is used and nothing else. Its own SuperNode runs the program that a SuperLink hands
to it, and its own SuperLink runs what anybody who reaches its port hands in; here no program ever travels, neither side
starts another process, and of the SuperLink's doors only the one for nodes is open. Both ends are long-lived processes,
so that a message takes a fraction of a second.

Importing this package turns off Flower's telemetry and its look-ups for newer versions, for the whole process.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from dpvb.guards.errors import FederationError, ParameterError, check_path, reason_of

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_HOME": os.path.join(os.devnull, "flwr"),  # It has nothing to keep.
    "FLWR_DATABASE": ":flwr-in-memory:",
    # A proxy of the organisation is for other hosts.
    "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1", "localhost", "::1"])),
}

#: Kinds of messages: who are you; a question, sealed; go away, in words.
GREET, ASK, REFUSE = "query.greet", "query.ask", "query.refuse"
#: The error by which a client says that it does not answer; other errors are Flower's.
REFUSED: Final = 2
#: What a client seals, with the server's random bytes behind it, to say who it is.
GREETING: Final = b"dpvb greeting 1\n"
_RECORD: Final = "bytes"


class Address(NamedTuple):
    """Where the server is reached."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this machine can be meant."""
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


def packed(data: bytes) -> Any:
    """Bytes as content of a Flower message; it cuts long ones into pieces."""
    from flwr.app import Array, ArrayRecord, RecordDict

    return RecordDict({_RECORD: ArrayRecord({_RECORD: Array("uint8", (len(data),), "bytes", data)})})


def unpacked(message: Any) -> bytes:
    """The bytes of such a message.

    Raises:
        FederationError: for any other message.
    """
    try:
        return bytes(message.content[_RECORD][_RECORD].data)
    except Exception as error:  # Whatever Flower makes of what a stranger sent.
        raise FederationError("a message of Flower that holds no bytes for us.") from error
