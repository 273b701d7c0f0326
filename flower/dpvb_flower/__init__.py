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
from typing import Self

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
# Seconds before new nodes are looked for, and a message is sent again whose ClientApp failed.
_AGAIN = 2.0
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
        greeting = letters.seal(channel, name, letters.HEADER, letters.Call(data[1:], 0, 0), 0)
        return Message(_record(greeting), reply_to=message)
    letter = letters.unseal(channel, data[1:], letters.QUESTION)
    with owner(settings) as party:
        reply = party.answer(letter.contents)
        if party.is_over:
            print(party.statement)
    sealed = letters.seal(channel, name, letters.ANSWER, letter.request, letter.number, reply)
    return Message(_record(sealed), reply_to=message)


class Nodes:
    """A transport to the clients behind Flower's nodes; each client says who it is before anything is sent to it."""

    def __init__(self, grid: Grid, settings: ServerConfig) -> None:
        self.clients = tuple(settings.agreement.clients)
        self._channel = Channel(settings.identity, settings.agreement.clients)
        self._grid, self._patience = grid, settings.answer_seconds
        self._request = letters.Call(secrets.token_bytes(len(letters.NO_SESSION)), 0, 0)
        self._nodes: dict[str, int] = {}  # Where a client was last.
        self._greeted: set[int] = set()
        self._open: dict[int, letters.Question] = {}
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.clear()

    def wait(self, timeout: float, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Wait until clients have said who they are; return the names of those that are missing."""
        awaited, deadline = self.clients if names is None else tuple(names), time.monotonic() + timeout
        while not self._nodes.keys() >= {*awaited} and time.monotonic() < deadline:
            self.poll(0.0)  # Nothing is sent before it is waited for: no answer is lost.
        return tuple(name for name in awaited if name not in self._nodes)

    def send(self, client: str, data: bytes) -> int:
        """Keep bytes for one client until it is polled; return the number of the message."""
        self._count += 1
        self._open[self._count] = letters.Question(client, data, time.monotonic() + self._patience)
        return self._count

    def poll(self, timeout: float) -> list[Reply]:
        """Greet new nodes, ask what is open, and return the answers; what failed is asked again in the next poll."""
        new = {*self._grid.get_node_ids()} - self._greeted
        self._greeted |= new
        asked = [self._message(node, _GREETING + self._request.session) for node in new]
        for number, (name, data, _) in self._open.items():
            if name in self._nodes:
                sealed = letters.seal(self._channel, name, letters.QUESTION, self._request, number, data)
                asked.append(self._message(self._nodes[name], _SEALED + sealed))
        answers = self._grid.send_and_receive(asked, timeout=self._patience) if asked else ()
        replies = [reply for message in answers if not message.has_error() for reply in self._taken(message)]
        now = time.monotonic()
        late = [number for number, question in self._open.items() if question.deadline < now]
        if not replies and not late:
            time.sleep(_AGAIN)
        return replies + [Reply(number, self._open.pop(number).client, None) for number in late]

    def unheard(self) -> tuple[str, ...]:
        """Names of the clients that have said who they are, and have a message that they have not answered."""
        return tuple({question.client for question in self._open.values()} & self._nodes.keys())

    def _taken(self, message: Message) -> list[Reply]:
        try:
            letter = letters.unseal(self._channel, _bytes_of(message), letters.HEADER, letters.ANSWER)
        except FederationError as error:
            print(f"a message was refused: {error}")
            return []
        if letter.request != self._request or letter.sender not in self.clients:
            return []
        if letter.kind == letters.HEADER:
            self._nodes[letter.sender] = message.metadata.src_node_id
        elif letter.number in self._open and self._open[letter.number].client == letter.sender:
            del self._open[letter.number]
            return [Reply(letter.number, letter.sender, letter.contents)]
        return []

    def _message(self, node: int, data: bytes) -> Message:
        return Message(_record(data), dst_node_id=node, message_type="query", ttl=self._patience)


def _record(data: bytes) -> RecordDict:
    return RecordDict({"dpvb": ArrayRecord({"dpvb": Array("uint8", (len(data),), "bytes", data)})})


def _bytes_of(message: Message) -> bytes:
    return bytes(message.content["dpvb"]["dpvb"].data)
