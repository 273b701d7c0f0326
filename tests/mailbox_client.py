"""A client in a process of its own that answers in capitals, for tests of the transport alone.

What it is asked is written down line by line: a file is what a process that is killed leaves behind.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from dpvb.errors import FederationError
from dpvb.federated.channel import Channel
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_client import serve
from dpvb.federated.transport import parse_address


def main(identity: str, server_key: str, address: str, diary: str, certificate: str, patience: str) -> None:
    """Answer; b"die" is answered the second time only, b"wait" once there is a file .go, b"bye" ends it."""
    channel = Channel(Identity.load(identity), {"server": bytes.fromhex(server_key)})
    asked = Path(diary)

    def handler(data: bytes) -> bytes:
        before = asked.read_bytes() if asked.exists() else b""
        with open(asked, "ab") as file:
            file.write(data[:20] + b"\n")
        if data == b"die" and b"die\n" not in before:
            os.kill(os.getpid(), signal.SIGKILL)
        while data == b"wait" and not asked.with_suffix(".go").exists():
            time.sleep(0.02)
        return data.upper()

    def ended() -> bool:
        return asked.exists() and asked.read_bytes().endswith(b"bye\n")

    try:
        serve(
            channel,
            "server",
            handler,
            address=parse_address(address),
            certificate=certificate or None,
            patience=lambda: float(patience),
            ended=ended,
            tell=lambda text: print(text, flush=True),
        )
    except FederationError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main(*sys.argv[1:])
