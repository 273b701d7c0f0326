"""The other end of a LocalPool's pipes."""

from __future__ import annotations

import os
import pickle
from typing import Any, BinaryIO

from dpvb.cluster.engine import answered, opened

_HEAD = 8


def send(pipe: Any, message: bytes) -> None:
    """Write one message.

    Raises:
        OSError: if nobody reads the pipe any more.
    """
    pipe.write(len(message).to_bytes(_HEAD, "little"))
    pipe.write(message)
    pipe.flush()


def receive(pipe: Any) -> bytes:
    """Read one message.

    Raises:
        EOFError: if the pipe has ended.
    """
    head = pipe.read(_HEAD)
    message: bytes = pipe.read(int.from_bytes(head, "little")) if len(head) == _HEAD else b""
    if len(head) < _HEAD or len(message) < int.from_bytes(head, "little"):
        raise EOFError
    return message


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Hold a model and parts, and answer for them until the pipe ends."""
    parts: dict[int, Any] = {}
    model: Any = None
    while True:
        try:
            task, told, own = pickle.loads(receive(requests))
        except EOFError:
            return
        if task is None:
            parts, model = {}, opened(told)
            parts = {part: opened(data) for part, data in own.items()}
            send(answers, pickle.dumps(True))
        else:
            send(answers, pickle.dumps(answered(task, told, own, parts, model), protocol=5))


def main() -> None:
    """Serve on standard input and output, which nothing else in this process sees: a model's prints go nowhere."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    with requests, answers:
        serve(requests, answers)
