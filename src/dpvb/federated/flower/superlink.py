"""The server's end: Flower's SuperLink in this process, as a transport to named clients."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import uvicorn
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID, SubStatus
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.main import create_app

from dpvb.federated.channel import Channel
from dpvb.federated.flower import ASK, GREET, GREETING, REFUSE, REFUSED, Address, check_readable, packed, unpacked
from dpvb.federated.transport import Reply
from dpvb.guards.errors import FederationError, ParameterError

_PAUSE = 0.05  # seconds
_STARTING = 60.0  # seconds
_MAX_BODY = 2**23  # Flower cuts what it sends into pieces of 5 MiB.
_MAX_PIECES = 8  # of the answer to a greeting: it is short, and anybody can give one


class _Sent(NamedTuple):
    """What is behind a message of Flower: the server's random bytes, or a ticket."""

    node: int
    what: bytes | int


class _Question(NamedTuple):
    """A client's message on its way."""

    client: str
    data: bytes
    deadline: float


class SuperLink:
    """Clients in other processes, over HTTP; each says who it is before anything is sent to it.

    A client that is killed and comes back gets its open messages again, the same bytes.
    """

    def __init__(
        self,
        channel: Channel,
        clients: Iterable[str],
        *,
        address: Address,
        tls: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        patience: float = 600.0,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open the door.

        Args:
            channel: the server's, with the pinned keys of the clients.
            clients: names of those who take part.
            address: where to listen; port 0 takes a free one, see `address`.
            tls: paths of the certificate chain and of its key; None on a loopback address alone.
            patience: seconds after which a client that has not answered counts as out of reach.
            tell: gets a line about who comes and who is refused.

        Raises:
            ParameterError: no TLS where others can listen.
            FederationError: the address or the certificate cannot be used.
        """
        if tls is None and not address.is_loopback:
            raise ParameterError(
                f"address {address} can be reached from other machines, and there is no certificate. Give certificate "
                "and private_key, or an address of this machine alone, like 127.0.0.1:9092."
            )
        self._channel, self.clients, self._patience, self._tell = channel, tuple(clients), patience, tell
        self._nodes: dict[str, int] = {}  # Where a client was last seen.
        self._known: set[int] = set()
        self._open: dict[int, _Question] = {}  # By ticket.
        self._sent: dict[str, _Sent] = {}  # By Flower's name of the message.
        self._landed: list[Reply] = []
        self._tickets = 0
        for name in ("flwr", "httpx", "httpcore", "uvicorn"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._arriving: dict[str, tuple[_Sent, Message]] = {}  # Answers whose pieces may be still on their way.
        with contextlib.ExitStack() as stack:
            app = create_app()
            self._state: Any = app.state.linkstate_factory.state()
            self._run = self._started(stack)
            serving = _Serving(_for_nodes(app), address, tls)
            stack.callback(serving.close)
            self.address = serving.address
            self._opened = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the clients that have said who they are."""
        return tuple(name for name in self.clients if name in self._nodes)

    def wait(self, timeout: float) -> tuple[str, ...]:
        """Wait until all clients are present, at most `timeout` seconds; return the names of those that are missing."""
        deadline = time.monotonic() + timeout
        while len(self.present) < len(self.clients) and time.monotonic() < deadline:
            self._landed += self._receive()
            time.sleep(_PAUSE)
        return tuple(name for name in self.clients if name not in self._nodes)

    def send(self, client: str, data: bytes) -> int:
        """Send bytes to one client, at once or when it comes; return the ticket."""
        if client not in self.clients:
            raise ParameterError(f"client must be one of {', '.join(map(repr, self.clients))}, got {client!r}.")
        self._tickets += 1
        self._open[self._tickets] = _Question(client, data, time.monotonic() + self._patience)
        self._ask(self._tickets)
        return self._tickets

    def broadcast(self, data: bytes) -> tuple[int, ...]:
        """Send the same bytes to all clients."""
        return tuple(self.send(client, data) for client in self.clients)

    def poll(self, timeout: float) -> list[Reply]:
        """Return the answers that have come since, waiting up to `timeout` seconds for the first."""
        deadline = time.monotonic() + timeout
        while True:
            found, self._landed = [*self._landed, *self._receive()], []
            now = time.monotonic()
            late = [ticket for ticket, question in self._open.items() if question.deadline < now]
            found += [Reply(ticket, self._open.pop(ticket).client, None) for ticket in late]
            if found or now >= deadline:
                return found
            time.sleep(_PAUSE)

    def close(self) -> None:
        """Close the door; open messages are lost."""
        self._opened.close()

    def _started(self, stack: contextlib.ExitStack) -> int:
        """A run of Flower, and this process as what carries it out."""
        state = self._state
        run = int(state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP))
        task = state.get_run_info(run_ids=[run])[0].primary_task_id
        if not state.claim_task(task) or not state.activate_task(task):
            raise FederationError("Flower's SuperLink did not start a run.")
        stack.callback(state.finish_task, task, SubStatus.COMPLETED, "")
        alive = HeartbeatSender(lambda: bool(state.acknowledge_task_heartbeat(task)))
        alive.start()
        stack.callback(alive.stop)
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = run, task, SUPERLINK_NODE_ID
        return run

    def _receive(self) -> list[Reply]:
        """Greet who is new; take what has come."""
        online = set(self._state.get_nodes(self._run))
        for node in online - self._known:
            nonce = secrets.token_bytes(32)
            self._push(node, GREET, nonce, nonce)
        self._known = online
        replies: list[Reply] = []
        for sent, message in self._pulled():
            if isinstance(sent.what, bytes):
                self._meet(sent.node, sent.what, message)
            elif sent.what in self._open:
                replies += self._answer(sent.node, sent.what, message)
        return replies

    def _pulled(self) -> list[tuple[_Sent, Any]]:
        """Answers that are there as a whole; nobody is waited for whose answer comes slowly, or never."""
        for head in self._state.get_message_res(set(self._sent), self._run) if self._sent else ():
            if sent := self._sent.pop(head.metadata.reply_to_message_id, None):
                self._arriving[head.metadata.message_id] = sent, head
        whole = []
        for name, (sent, head) in list(self._arriving.items()):
            try:
                pieces = [one.object_id for one in iterate_object_tree(self._state.object_store.get_object_tree(name))]
                if isinstance(sent.what, bytes) and len(pieces) > _MAX_PIECES:
                    raise ValueError("too long for a greeting")
                contents = {piece: self._state.get_object(self._run, piece) for piece in pieces}
                if b"" in contents.values():
                    continue
                message: Any = inflate_object_from_contents(name, contents)
            except Exception:  # Lost, or no message: whatever Flower makes of what a stranger sent.
                message = None
            del self._arriving[name]
            self._state.object_store.delete(name)
            self._state.delete_messages({head.metadata.reply_to_message_id})
            whole.append((sent, message))
        return whole

    def _meet(self, node: int, nonce: bytes, message: Any) -> None:
        """Believe a node that it is a client, or send it away."""
        if _was_lost(message):  # It left before it answered.
            return
        try:
            client, data = self._channel.open(unpacked(message))
            if data != GREETING + nonce or client not in self.clients:
                raise FederationError(f"{client!r} does not take part, or repeats an old greeting.")
        except FederationError as error:
            self._tell(f"a peer was refused: {error}")
            self._push(node, REFUSE, b"no client of this name and key is known here; compare names and public keys.")
            return
        back, self._nodes[client] = client in self._nodes, node
        count = f"{len(self._nodes)} of {len(self.clients)}"
        self._tell(f"{client} is {'back' if back else 'here'}, {count} have come.")
        for ticket in [ticket for ticket, question in self._open.items() if question.client == client]:
            self._ask(ticket)

    def _answer(self, node: int, ticket: int, message: Any) -> list[Reply]:
        """The reply to a ticket; none yet if it was lost on the way."""
        client = self._open[ticket].client
        if _was_lost(message):
            if node == self._nodes.get(client) and node in self._known:
                self._ask(ticket)
            return []
        try:
            sender, data = self._channel.open(unpacked(message))
            if sender != client:
                raise FederationError(f"its answer is signed by {sender!r}.")
        except FederationError as error:
            self._tell(f"{client}: {error}")
            data = None
        del self._open[ticket]
        return [Reply(ticket, client, data)]

    def _ask(self, ticket: int) -> None:
        question = self._open[ticket]
        if (node := self._nodes.get(question.client)) is not None:
            self._push(node, ASK, self._channel.seal(question.client, question.data), ticket)

    def _push(self, node: int, kind: str, data: bytes, what: bytes | int | None = None) -> None:
        """Hand a message to Flower; it does not take it if the node has gone."""
        state = self._state
        message = Message(packed(data), dst_node_id=node, message_type=kind, ttl=self._patience + _STARTING)
        with no_object_id_recompute():
            name = message.metadata.__dict__["_message_id"] = message.object_id
            session = state.start_session(self._run)
            taken, missing = state.store_message_and_object_tree(
                remove_content_from_message(message), get_object_tree(message), session
            )
            if not taken:
                return
            pieces = get_all_nested_objects(message)
            for piece in missing:
                state.store_object(self._run, session, piece, pieces[piece].deflate())
        if what is not None:
            self._sent[name] = _Sent(node, what)


def _was_lost(message: Any) -> bool:
    """Whether an answer is Flower's, which says that none will come."""
    return message is not None and message.has_error() and message.error.code != REFUSED


class _Serving:
    """An HTTP server in a thread."""

    def __init__(self, app: Any, address: Address, tls: Any) -> None:
        files: dict[str, str] = {}
        if tls is not None:
            certificate, key = (check_readable(name, path) for name, path in zip(_TLS_FILES, tls, strict=True))
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise FederationError(
                    f"certificate {certificate} and private_key {key} do not belong together, or are not PEM files."
                ) from error
            files = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        try:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            self._socket = socket.create_server((address.host, address.port), family=family)
        except OSError as error:
            raise FederationError(f"address {address} cannot be used ({error.strerror}).") from error
        self.address = Address(address.host, self._socket.getsockname()[1])
        config: dict[str, Any] = {"lifespan": "off", "ws": "none", "log_config": None, "access_log": False, **files}
        self._server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=2, **config))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _STARTING
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise FederationError(f"no server could be started at {self.address}.")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()


_TLS_FILES = ("certificate", "private_key")


def _for_nodes(app: Any) -> Any:
    """The SuperLink as the outside sees it: what nodes call, and nothing by which runs are started or stopped."""

    async def door(scope: Any, receive: Any, send: Any) -> None:
        length = dict(scope.get("headers", ())).get(b"content-length", b"").decode("latin-1")
        if scope["type"] == "http" and scope["path"].startswith("/v1/fleet/"):
            if length.isdecimal() and int(length) <= _MAX_BODY:
                await app(scope, receive, send)
                return
            status = 413
        elif scope["type"] == "http":
            status = 404
        else:
            return
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return door
