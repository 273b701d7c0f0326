"""The server's end of the mailbox: messages stay here until their clients have fetched and answered them."""

from __future__ import annotations

import asyncio
import base64
import errno
import gc
import logging
import os
import resource
import secrets
import socket
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dpvb.federated import letters
from dpvb.federated.channel import Channel
from dpvb.federated.messages import MAX_BYTES, VERSION
from dpvb.federated.transport import Address, Reply, check_certificate
from dpvb.guards.errors import FederationError, ParameterError

#: Seconds in which a new connection has to show a key; a handshake of TLS over a slow line takes one or two.
STRANGER_SECONDS: Final = 10.0
# Limit of connections that have shown no key yet; at most a quarter of the file descriptors of the process.
_MOST_STRANGERS: Final = 512
# Number of new connections between collections of reference cycles. A connection that ends during its TLS handshake
# leaves 0.3 MiB in such a cycle. Meanwhile, the event loop can close ended connections.
_AT_ONCE: Final = 256
# Connections of a client: one in use, and others that its process or its network has left.
_MOST_CONNECTIONS: Final = 4
# Processes of a client in a session, each started anew; no further one is heard.
_MOST_PROCESSES: Final = 10_000
# Seconds between looks for descriptors when there are none.
_PAUSE: Final = 0.01
# Seconds that an HTTP server may take to start, and to end.
_STARTING, _ENDING = 60.0, 1
_OTHER_WIRE: Final = f"this server has version {VERSION} of the wire; use the same version of dpvb everywhere."
_NO_KEY: Final = "no client of this name and key is known here; compare names and public keys."


class _Door(socket.socket):
    """A listening socket that ends connections which show no key in time, or are too many."""

    def __init__(self, address: Address) -> None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listening = socket.create_server((address.host, address.port), family=family)
        super().__init__(family, listening.type, fileno=listening.detach())
        self._strangers: dict[tuple[str, int], tuple[socket.socket, float]] = {}
        self._clients = defaultdict[str, deque[socket.socket]](deque)
        self._most = min(_MOST_STRANGERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._new = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; of too many, the oldest ends of the address that has most of them."""
        if self._new >= _AT_ONCE:
            self._new = 0
            gc.collect()
            raise BlockingIOError
        try:
            connection, peer = super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # Without descriptors the loop of CPython 3.11 would try 2,048 times and log each: it is sent to its other
            # work, in which it closes the connections that have ended.
            self.sweep(len(self._strangers) // 2)
            time.sleep(_PAUSE)
            raise BlockingIOError from error
        self._new += 1
        self._strangers[peer[:2]] = connection, time.monotonic() + STRANGER_SECONDS
        self.sweep(self._most)
        return connection, peer

    def admit(self, peer: tuple[str, int], client: str) -> None:
        """Count a connection as a client's, which has shown its key."""
        if (stranger := self._strangers.pop(peer, None)) is not None:
            self._clients[client].append(stranger[0])
            if len(self._clients[client]) > _MOST_CONNECTIONS:
                _end(self._clients[client].popleft())

    def sweep(self, most: int) -> None:
        """End the connections whose time is over, and the oldest ones above the limit `most`."""
        now = time.monotonic()
        for peer in [peer for peer, (one, until) in self._strangers.items() if one.fileno() < 0 or until < now]:
            _end(self._strangers.pop(peer)[0])
        while len(self._strangers) > most:
            (crowded, _), *_ = Counter(host for host, _ in self._strangers).most_common(1)
            _end(self._strangers.pop(next(peer for peer in self._strangers if peer[0] == crowded))[0])


def _end(connection: socket.socket) -> None:
    """End a connection; the loop finds that, and closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Mailbox:
    """A transport to clients in other processes.

    A message stays until it is answered: a client that is killed and comes back gets it again, the same bytes.
    """

    def __init__(
        self,
        channel: Channel,
        clients: Iterable[str],
        *,
        address: Address,
        tls: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        patience: float = 600.0,
        max_bytes: int = MAX_BYTES - letters.ENVELOPE_BYTES,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Listen.

        Args:
            channel: of the server, with the pinned keys of the clients.
            clients: names of those who take part.
            address: where to listen; port 0 takes a free one, see `address`.
            tls: paths of the certificate chain and of its key; None only on a loopback address.
            patience: seconds after which a client that has not answered counts as out of reach.
            max_bytes: most bytes of an answer. At most four of them are held for a client that sends them at once.
            tell: gets a line about each client that comes, and one about each kind of refusal; from another thread.

        Raises:
            ParameterError: no TLS where others can listen.
            FederationError: the address or the certificate cannot be used.
        """
        if tls is None and not address.is_loopback:
            raise ParameterError(
                f"address {address} can be reached from other machines, and there is no certificate. Give certificate "
                "and private_key, or a local address such as 127.0.0.1:9092."
            )
        self.clients = tuple(clients)
        self._channel, self._patience, self._max_bytes, self._tell = channel, patience, max_bytes, tell
        self._session = secrets.token_bytes(len(letters.NO_SESSION))
        self._news = threading.Condition()  # For a client that has come, and for an answer.
        self._count, self._messages, self._landed = 0, dict[int, letters.Question](), list[Reply]()
        self._turns: dict[str, dict[int, int]] = {name: {} for name in self.clients}  # The newest of each process.
        self._events = {name: asyncio.Event() for name in self.clients}  # A message waits, or the server ends.
        self._present, self._told = set[str](), set[str]()
        for name in ("asyncio", "uvicorn"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        files = {} if tls is None else check_certificate(*tls)
        try:
            self._door = _Door(address)
        except OSError as error:
            reason = f"{error.strerror}".partition(" (while")[0]  # As `socket.create_server` adds to it.
            raise FederationError(f"address {address} cannot be used ({reason}).") from error
        self.address = Address(address.host, self._door.getsockname()[1])
        self._http = uvicorn.Server(
            uvicorn.Config(
                self._called, interface="asgi3", loop="asyncio", http="h11", ws="none", lifespan="off",
                log_config=None, access_log=False, proxy_headers=False, server_header=False, date_header=False,
                timeout_keep_alive=int(2 * letters.POLL_SECONDS), timeout_graceful_shutdown=_ENDING, **files,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _STARTING
        while not self._http.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise FederationError(f"No server could be started at {self.address}.")
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait(self, timeout: float, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Wait until clients have called, at most `timeout` seconds; return the names of those that are missing."""
        awaited = self.clients if names is None else tuple(names)
        with self._news:
            self._news.wait_for(lambda: self._present.issuperset(awaited), timeout)
        return tuple(name for name in awaited if name not in self._present)

    def send(self, client: str, data: bytes) -> int:
        """Leave bytes for one client; return the number of the message."""
        if client not in self.clients:
            raise ParameterError(f"client must be one of {', '.join(map(repr, self.clients))}, got {client!r}.")
        with self._news:
            self._count += 1
            self._messages[self._count] = letters.Question(client, data, time.monotonic() + self._patience)
        self._loop.call_soon_threadsafe(self._events[client].set)
        return self._count

    def poll(self, timeout: float) -> list[Reply]:
        """Return the answers that have come since, waiting up to `timeout` seconds for the first."""
        with self._news:
            until = min([time.monotonic() + timeout, *(message.deadline for message in self._messages.values())])
            self._news.wait_for(lambda: self._landed, max(0.0, until - time.monotonic()))
            replies, self._landed, now = self._landed, [], time.monotonic()
            late = [number for number, message in self._messages.items() if message.deadline <= now]
            return replies + [Reply(number, self._messages.pop(number).client, None) for number in late]

    def unheard(self) -> tuple[str, ...]:
        """Names of the clients that have called and not ended, and have a message that they have not answered."""
        with self._news:
            waiting = {message.client for message in self._messages.values()}
        return tuple(name for name in self.clients if name in waiting & self._present)

    def close(self) -> None:
        """Stop listening; messages without an answer are lost."""
        self._http.should_exit = True
        with suppress(RuntimeError):  # The loop has ended by itself.
            for event in self._events.values():
                self._loop.call_soon_threadsafe(event.set)
        self._thread.join(10)
        self._door.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = self._loop.create_task(self._http.serve(sockets=[self._door]))
        while not serving.done():
            await asyncio.wait([serving], timeout=1.0)
            self._door.sweep(_MOST_STRANGERS)

    async def _called(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, http: Request) -> Response:
        """Answer a request; its body is read if its header shows a client's key, for the first time."""
        close = {"connection": "close"}
        if http.scope["path"] != letters.PATH or http.method not in ("GET", "PUT"):
            return Response(_OTHER_WIRE, 404, close)
        name, request, length = "", letters.Call(letters.NO_SESSION, 0, 0), 0
        header, sealed = http.headers.get("authorization", ""), b""
        with suppress(ValueError):  # The error would repeat numbers from a stranger's header.
            sealed = base64.b64decode(header, validate=True)
        try:
            name, _, request, length, _ = letters.unseal(self._channel, sealed, letters.HEADER)
        except FederationError as error:  # For a client without a key, or of another version.
            if header:
                self._tell_once(f"a request was refused: {error}")
        if request.session != self._session or name not in self.clients:
            return Response(_NO_KEY, 401, close | {letters.SESSION_HEADER: self._session.hex()})
        turns = self._turns[name]
        newest = turns.get(request.process, -1)
        if request.turn <= newest or len(turns) > _MOST_PROCESSES:
            self._tell_once(f"a request was refused: a request of {name} came twice.")
            return Response("this request came before.", 409, close)
        with self._news:
            if newest < 0:
                self._present.add(name)
                comes, come = "back" if turns else "here", f"{len(self._present)} of {len(self.clients)}"
                self._tell(f"{name} is {comes}, {come} have come.")
            turns[request.process] = request.turn
            if request.process != next(reversed(turns)):
                self._tell_once(f"{name} calls from two processes. Each client needs a key of its own.")
            self._news.notify_all()
        self._door.admit((http.scope["client"][0], http.scope["client"][1]), name)
        status, number, contents = 200, 0, b""
        if http.method == "PUT":
            status = await self._take(http, name, request, length)
        elif (waiting := await self._waiting(name)) is not None:
            number, contents = waiting
        return Response(letters.seal(self._channel, name, letters.QUESTION, request, number, contents), status)

    async def _waiting(self, name: str) -> tuple[int, bytes] | None:
        """The oldest message for a client, as soon as there is one."""
        until, event = self._loop.time() + letters.POLL_SECONDS, self._events[name]
        while not self._http.should_exit:
            event.clear()
            with self._news:
                for number, message in self._messages.items():
                    if message.client == name:
                        return number, message.data
            try:
                await asyncio.wait_for(event.wait(), until - self._loop.time())
            except TimeoutError:
                break
        return None

    async def _take(self, http: Request, name: str, request: letters.Call, length: int) -> int:
        """Take an answer; return the status."""
        if length > self._max_bytes + letters.ENVELOPE_BYTES:
            return 413
        sealed = bytearray()
        try:
            async with asyncio.timeout(self._patience):
                async for chunk in http.stream():
                    sealed += chunk[: length + 1 - len(sealed)]
            letter = letters.unseal(self._channel, bytes(sealed), letters.ANSWER, letters.LAST_ANSWER)
            if len(sealed) != length or (letter.sender, letter.request) != (name, request):
                raise FederationError(f"An envelope of {letter.sender!r} is out of place.")
        except FederationError as error:
            self._tell_once(f"a request was refused: {error}")
            return 400
        except (ClientDisconnect, TimeoutError):
            return 400
        with self._news:
            if letter.kind == letters.LAST_ANSWER:
                self._present.discard(name)
            message = self._messages.get(letter.number)
            if message is not None and message.client == name:
                del self._messages[letter.number]
                self._landed.append(Reply(letter.number, name, letter.contents))
            self._news.notify_all()
        return 200

    def _tell_once(self, text: str) -> None:
        """Tell a line for the first time; there are a few for each party."""
        if text not in self._told:
            self._told.add(text)
            self._tell(text)
