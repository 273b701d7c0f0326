"""The transport inside a process: who is answered, when, and in which order."""

from __future__ import annotations

import pytest

from dpvb.errors import ParameterError
from dpvb.federated.transport import InProcess, Reply, Transport


def drained(transport: Transport) -> list[Reply]:
    replies: list[Reply] = []
    while found := transport.poll(0.0):
        replies += found
    return replies


def echo(name: str) -> tuple[str, object]:
    return name, lambda data: name.encode() + b":" + data


def test_answers_are_computed_at_the_poll_in_the_order_sent() -> None:
    seen: list[bytes] = []

    def handler(data: bytes) -> bytes:
        seen.append(data)
        return data[::-1]

    transport = InProcess({"a": handler, "b": handler})
    assert transport.clients == ("a", "b")
    first = transport.send("b", b"12")
    tickets = [transport.send(name, b"34") for name in transport.clients]
    assert seen == []
    assert drained(transport) == [(first, "b", b"21"), (tickets[0], "a", b"43"), (tickets[1], "b", b"43")]
    assert seen == [b"12", b"34", b"34"]
    assert transport.poll(0.0) == []


def test_a_client_that_cannot_be_reached_and_one_that_breaks() -> None:
    def gone(data: bytes) -> bytes:
        raise ConnectionResetError

    def broken(data: bytes) -> bytes:
        raise ValueError("a fault of the client")

    transport = InProcess({"gone": gone, "broken": broken})
    assert transport.poll(0.0) == []
    ticket = transport.send("gone", b"")
    transport.send("broken", b"")
    assert transport.poll(0.0) == [(ticket, "gone", None)]
    with pytest.raises(ValueError, match="a fault of the client"):
        transport.poll(0.0)
    assert transport.poll(0.0) == []
    with pytest.raises(ParameterError, match="'gone', 'broken', got 'c'"):
        transport.send("c", b"")
