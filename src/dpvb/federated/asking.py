"""Asking clients: a message goes out to them, and their answers are read; why one gives none is kept."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, final

from dpvb.federated import messages
from dpvb.federated.messages import Refusal
from dpvb.federated.record import Recorded
from dpvb.federated.transport import Reply, Transport
from dpvb.guards.errors import DpvbError
from dpvb.guards.strangers import printable

_POLL_SECONDS: Final = 1.0
#: How often bytes are sent again whose answer was lost or damaged: the same bytes cost a client nothing.
RETRIES: Final = 2


@final
class Asking:
    """A server's way to its clients.

    Args:
        transport: how bytes get to the clients.
        timeout: seconds after which a client that has not answered counts as missing.

    Attributes:
        reasons: why a client has given no answer, by its name; for a terminal.
    """

    def __init__(self, transport: Transport, timeout: float) -> None:
        self.transport: Final = transport
        self.reasons: dict[str, str] = {}
        self._timeout: Final = timeout
        self._now = transport.now if isinstance(transport, Recorded) else time.monotonic

    def deadline(self, most: float = float("inf")) -> float:
        """The time until which an answer is waited for, if all that was asked is asked now."""
        return self._now() + min(self._timeout, most)

    def is_over(self, deadline: float) -> bool:
        """Whether a time has passed."""
        return self._now() > deadline

    def poll(self) -> list[Reply]:
        """The answers that have come, after a second at most."""
        return self.transport.poll(_POLL_SECONDS)

    def all(self, names: Iterable[str], data: bytes, most: float = float("inf")) -> dict[str, Any]:
        """Answers to one message, of those who could be reached in time.

        Args:
            names: who is asked.
            data: the message.
            most: seconds that are waited at most.
        """
        again = dict.fromkeys(names, RETRIES)
        tickets = {self.transport.send(name, data): name for name in again}
        answers: dict[str, Any] = {}
        deadline = self.deadline(most)
        while tickets and not self.is_over(deadline):
            for ticket, _, answer in self.poll():
                name = tickets.pop(ticket, None)
                if name is None:
                    continue
                read = self.read(name, answer)
                if read is not None:
                    answers[name] = read
                elif again[name]:
                    again[name] -= 1
                    tickets[self.transport.send(name, data)] = name
        for name in tickets.values():
            self.late(name)
        return answers

    def read(self, name: str, answer: bytes | None) -> Any:
        """What a client says, or None; a reason for None is kept."""
        if answer is None:
            self.reasons[name] = "it could not be reached"
            return None
        try:
            read = messages.decode(answer)
        except DpvbError as error:
            self.reasons[name] = printable(str(error))
            return None
        if isinstance(read, Refusal):
            self.reasons[name] = printable(read.reason)
        return read

    def late(self, name: str) -> None:
        """Remember that a client was waited for in vain."""
        self.reasons[name] = f"no answer within {self._timeout:g} seconds"
