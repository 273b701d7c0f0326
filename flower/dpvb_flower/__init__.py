"""Federated runs of dpvb as a Flower app, for those who run Flower: it carries sealed bytes between the parties.

The ServerApp reads the server's file, which `server` of the run's configuration names; each SuperNode names its
client's file: `flower-supernode --node-config 'config="/srv/north.toml"'`. Address and certificates in these files are
not used. A ClientApp is a process for each message, so that a client goes on from its folder every time; under secure
aggregation it needs its ledger for that.

Flower's operator carries the bytes and cannot read or change them. But Flower runs the code that its operator sends.
Where the operator is not trusted with a client's rows, run `dpvb federate`: there no code travels.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from dpvb.cli.federate import lead, owner
from dpvb.errors import FederationError
from dpvb.federated import letters
from dpvb.federated.channel import Channel
from dpvb.federated.config import ClientConfig, ServerConfig
from dpvb.federated.transport import Reply

server = ServerApp()
client = ClientApp()
# Seconds between looks for answers, and before a message is sent again whose ClientApp failed.
_LOOK, _AGAIN = 0.5, 5.0
# The first byte of a message: a session, to which a client answers with its name; or a sealed question.
_GREETING, _SEALED = b"g", b"s"


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Learn the model, and write it."""
    settings = ServerConfig.load(str(context.run_config["server"]))
    lead(settings, lambda max_bytes: Nodes(grid, settings), quiet=True)


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one message of the server."""
    settings = ClientConfig.load(str(context.node_config["config"]))
    name = settings.agreement.server
    channel = Channel(settings.identity, {name: settings.agreement.server_key})
    data = _bytes_of(message)
    if data[:1] == _GREETING:
        return Message(_record(_greeting(channel, name, data[1:])), reply_to=message)
    letter = letters.unseal(channel, data[1:], letters.QUESTION)
    if letter.sender != name:
        raise FederationError(f"a question of {letter.sender!r}, who is not the server.")
    with owner(settings) as party:
        reply = party.answer(letter.contents)
        if party.is_over:
            print(party.statement)
    sealed = letters.seal(channel, name, letters.ANSWER, letter.request, letter.number, reply)
    return Message(_record(sealed), reply_to=message)


class _Question(NamedTuple):
    """A message on its way to a client."""

    client: str
    data: bytes
    deadline: float


class Nodes:
    """A transport to the clients behind Flower's nodes; each client says who it is before anything is sent to it."""

    def __init__(self, grid: Grid, settings: ServerConfig) -> None:
        self.clients = tuple(settings.agreement.clients)
        self._channel = Channel(settings.identity, settings.agreement.clients)
        self._grid, self._patience = grid, settings.answer_seconds
        self._request = letters.Call(secrets.token_bytes(len(letters.NO_SESSION)), 0, 0)
        self._nodes: dict[str, int] = {}  # Where a client was last.
        self._greeted: set[int] = set()
        self._open: dict[int, _Question] = {}
        self._sent: dict[str, tuple[int, int]] = {}  # Node and number by Flower's name of a message; 0: a greeting.
        self._again: list[tuple[float, int]] = []
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait(self, timeout: float, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Wait until clients have said who they are; return the names of those that are missing."""
        awaited, deadline = self.clients if names is None else tuple(names), time.monotonic() + timeout
        while not self._nodes.keys() >= {*awaited} and time.monotonic() < deadline:
            self._receive()
            time.sleep(_LOOK)
        return tuple(name for name in awaited if name not in self._nodes)

    def send(self, client: str, data: bytes) -> int:
        """Send bytes to one client, at once or when it comes; return the number of the message."""
        self._count += 1
        self._open[self._count] = _Question(client, data, time.monotonic() + self._patience)
        self._ask(self._count)
        return self._count

    def poll(self, timeout: float) -> list[Reply]:
        """Return the answers that have come since, waiting up to `timeout` seconds for the first."""
        deadline = time.monotonic() + timeout
        while not (replies := self._receive()) and time.monotonic() < deadline:
            time.sleep(_LOOK)
        return replies

    def unheard(self) -> tuple[str, ...]:
        """Names of the clients that have said who they are, and have a message that they have not answered."""
        return tuple({question.client for question in self._open.values()} & self._nodes.keys())

    def close(self) -> None:
        """Forget what is open."""
        self._open.clear()

    def _receive(self) -> list[Reply]:
        """Greet new nodes, take what has come, and send again what failed."""
        for node in {*self._grid.get_node_ids()} - self._greeted:
            self._greeted.add(node)
            self._push(node, 0, _GREETING + self._request.session)
        replies = [reply for message in self._grid.pull_messages([*self._sent]) for reply in self._taken(message)]
        now = time.monotonic()
        due = {number for when, number in self._again if when <= now}
        self._again = [(when, number) for when, number in self._again if when > now]
        for number in due & self._open.keys():
            self._ask(number)
        late = [number for number, question in self._open.items() if question.deadline < now]
        return replies + [Reply(number, self._open.pop(number).client, None) for number in late]

    def _taken(self, message: Any) -> list[Reply]:
        node, number = self._sent.pop(message.metadata.reply_to_message_id, (0, 0))
        if message.has_error():
            if number:
                self._again.append((time.monotonic() + _AGAIN, number))
            return []
        try:
            letter = letters.unseal(self._channel, _bytes_of(message), letters.HEADER, letters.ANSWER)
        except FederationError as error:
            print(f"a message was refused: {error}")
            return []
        if letter.request != self._request or letter.sender not in self.clients:
            return []
        if letter.kind == letters.HEADER:
            self._nodes[letter.sender] = node
            for waiting, question in self._open.items():
                if question.client == letter.sender:
                    self._ask(waiting)
            return []
        if letter.number not in self._open or self._open[letter.number].client != letter.sender:
            return []
        del self._open[letter.number]
        return [Reply(letter.number, letter.sender, letter.contents)]

    def _ask(self, number: int) -> None:
        name, data, _ = self._open[number]
        if name in self._nodes:
            sealed = letters.seal(self._channel, name, letters.QUESTION, self._request, number, data)
            self._push(self._nodes[name], number, _SEALED + sealed)

    def _push(self, node: int, number: int, data: bytes) -> None:
        message = Message(_record(data), dst_node_id=node, message_type="query", ttl=self._patience)
        for name in self._grid.push_messages([message]):
            self._sent[name] = node, number


def _greeting(channel: Channel, server_name: str, session: bytes) -> bytes:
    """Who a client is, for the session of the server."""
    if len(session) != len(letters.NO_SESSION):
        raise FederationError("a greeting names no session.")
    return letters.seal(channel, server_name, letters.HEADER, letters.Call(session, 0, 0), 0)


def _record(data: bytes) -> RecordDict:
    return RecordDict({"dpvb": ArrayRecord({"dpvb": Array("uint8", (len(data),), "bytes", data)})})


def _bytes_of(message: Message) -> bytes:
    return bytes(message.content["dpvb"]["dpvb"].data)
