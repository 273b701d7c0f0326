"""Clients of a mailbox, each in a thread of this process, that answer in kind: for tests of load and for benchmarks.

    python mailbox_crowd.py FOLDER ADDRESS CERTIFICATE NAME...

A question is a length in text; the answer has so many bytes. b"bye" ends a client. Secret keys are in FOLDER/NAME.key,
the server's public key is in FOLDER/server.pub.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from dpvb.federated.channel import Channel
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_client import serve
from dpvb.federated.transport import parse_address


def answer_all(folder: Path, address: str, certificate: str, name: str) -> None:
    """Answer until b"bye"."""
    channel = Channel(Identity.load(folder / f"{name}.key"), {"server": (folder / "server.pub").read_bytes()})
    over: list[bool] = []

    def handler(data: bytes) -> bytes:
        if data == b"bye":
            over.append(True)
            return b""
        return bytes(int(data[:20]))

    serve(
        channel,
        "server",
        handler,
        address=parse_address(address),
        certificate=certificate or None,
        patience=lambda: 300.0,
        ended=lambda: bool(over),
    )


def main(folder: str, address: str, certificate: str, *names: str) -> None:
    """Start a thread for each name, and wait for all."""
    threads = [threading.Thread(target=answer_all, args=(Path(folder), address, certificate, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
