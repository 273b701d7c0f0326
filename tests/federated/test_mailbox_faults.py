"""The mailbox under load and attack: crowds, silent and slow strangers, bad envelopes, a man in the middle."""

from __future__ import annotations

import base64
import gc
import gzip
import http.client
import os
import random
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from federated_runs import LOOPBACK, SERVER, TOP, assert_simulated, certificate, parties, polled, rewrite
from planted import edit, kills

from dpvb.cli.federate import lead, owner
from dpvb.errors import DpvbError, FederationError
from dpvb.federated import letters
from dpvb.federated.channel import Channel
from dpvb.federated.config import ClientConfig, ServerConfig
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_client import serve
from dpvb.federated.mailbox_server import _AT_ONCE, _MOST_STRANGERS, STRANGER_SECONDS, Mailbox
from dpvb.federated.transport import Address

MANY = pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
A, B = Identity.generate("a"), Identity.generate("b")


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Caller:
    """Requests to a mailbox, well formed and not."""

    def __init__(self, address: Address) -> None:
        self.address, self.turn = address, 0
        self._connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
        self.close = self._connection.close
        self.session = bytes.fromhex(self.call("GET", "")[1])

    def call(self, method: str, header: str, body: bytes = b"") -> tuple[int, str]:
        """Status, and the session that the server names."""
        self._connection.request(method, letters.PATH, body, {"authorization": header})
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get(letters.SESSION_HEADER, "")

    def request(self) -> letters.Call:
        self.turn += 1
        return letters.Call(self.session, 7, self.turn)


def header_of(party: Identity, request: letters.Call, length: int) -> str:
    channel = Channel(party, {"server": SERVER.public})
    return base64.b64encode(letters.seal(channel, "server", letters.HEADER, request, length)).decode()


def body_of(party: Identity, request: letters.Call, number: int) -> bytes:
    channel = Channel(party, {"server": SERVER.public})
    return letters.seal(channel, "server", letters.ANSWER, request, number, b"a share")


def flipped(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


@pytest.mark.guarantees("messages")
@kills("queries", "a request of a client opens again for whoever repeats it", "100")
@edit("federated/mailbox_server.py", "request.turn <= newest or ", "")
@kills("strangers", "an answer that another client sealed is taken for a client's own", "100")
@edit("federated/mailbox_server.py", "(letter.sender, letter.request) != (name, request)", "letter.request != request")
@MANY
def test_envelopes_that_are_cut_changed_repeated_or_of_others_reach_nobody(count: int) -> None:
    rng, old = random.Random(1), letters.Call(b"o" * 32, 7, 1)
    channel = Channel(SERVER, {"a": A.public, "b": B.public})
    with Mailbox(channel, ("a", "b"), address=LOOPBACK) as box, ExitStack() as stack:
        number = box.send("a", b"a question")
        caller = stack.enter_context(closing(Caller(box.address)))
        first = caller.request()
        used = header_of(A, first, 0)
        assert caller.call("GET", used) == (200, "")
        before = memory()
        for turn in range(count):
            request = caller.request()
            body = body_of(A, request, number)
            header = header_of(A, request, len(body))
            sealed = base64.b64decode(header)
            cases: list[tuple[str, bytes, int]] = [
                (base64.b64encode(sealed[: rng.randrange(len(sealed))]).decode(), body, 401),
                (base64.b64encode(flipped(sealed, rng)).decode(), body, 401),
                (used, b"", 409),
                (header_of(Identity.generate("a"), request, len(body)), body, 401),
                (header_of(A, old, len(body)), body, 401),
                (header, body[: rng.randrange(1, len(body))], 400),
                (header, flipped(body, rng), 400),
                (header, body_of(A, first, number), 400),
                (header, body_of(B, request, number), 400),
                (header, body_of(A, old, number), 400),
            ]
            bad, sent, status = cases[turn % len(cases)]
            assert caller.call("PUT", bad, sent)[0] == status
        assert memory() - before < 2**24  # What pools and buffers of this process take.
        assert box.poll(0.0) == []
        assert len(box._told) < 20
        assert box.unheard() == ("a",)
        request = caller.request()
        body = body_of(A, request, number)
        assert caller.call("PUT", header_of(A, request, len(body)), body)[0] == 200
        assert box.poll(1.0) == [(number, "a", b"a share")]


@pytest.mark.guarantees("messages")
@kills("queries", "a client answers what its server has sealed for another request", "100")
@edit(
    "federated/mailbox_client.py",
    "(letter.sender, letter.request) == (self._server, request)",
    "letter.sender == self._server",
)
@MANY
def test_a_client_hears_nothing_but_its_servers_answer_to_its_request(count: int) -> None:
    from dpvb.federated.mailbox_client import _Calls

    rng, channels = random.Random(2), {"a": Channel(A, {"server": SERVER.public}), "b": Channel(B, {"a": A.public})}
    box = Channel(SERVER, {"a": A.public, "b": B.public})
    turns = iter(range(10**9))
    old: list[bytes] = []

    class Liar(BaseHTTPRequestHandler):
        protocol_version, wbufsize = "HTTP/1.1", 2**16

        def do_GET(self) -> None:
            sealed = base64.b64decode(self.headers["authorization"])
            request = letters.unseal(box, sealed, letters.HEADER).request
            answer = letters.seal(box, "a", letters.QUESTION, request, 5, b"a question")
            old.append(answer)
            lies = [
                answer[: rng.randrange(len(answer))],
                flipped(answer, rng),
                old[0],
                letters.seal(box, "b", letters.QUESTION, request, 5, b"a question"),
                letters.seal(channels["b"], "a", letters.QUESTION, request, 5, b"a question"),
                letters.seal(box, "a", letters.QUESTION, request._replace(session=b"o" * 32), 5, b"a question"),
                letters.seal(box, "a", letters.HEADER, request, 5, b"a question"),
            ]
            del old[1:]
            lie = lies[next(turns) % len(lies)]
            self.send_response(200)
            self.send_header("Content-Length", str(len(lie)))
            self.end_headers()
            self.wfile.write(lie)

        def log_message(self, *arguments: object) -> None:
            pass

    import httpx

    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as liar:
        thread = threading.Thread(target=liar.serve_forever, daemon=True)
        thread.start()
        with httpx.Client() as client:
            calls = _Calls(client, f"http://127.0.0.1:{liar.server_port}", channels["a"], "server")
            old.append(b"")
            for _ in range(count):
                with pytest.raises(ConnectionError, match="not the server's to this request"):
                    calls.call()
        liar.shutdown()
        thread.join()


@contextmanager
def strangers(
    address: Address, count: int, said: bytes, context: ssl.SSLContext | None = None
) -> Iterator[list[socket.socket]]:
    """Connections of one address that say something, and then nothing."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((address.host, address.port), timeout=30))
            with suppress(OSError):  # It may be sent away before it has said all, in its handshake too.
                if context is not None:
                    connection = stack.enter_context(context.wrap_socket(connection, server_hostname=address.host))
                connection.sendall(said)
            connections.append(connection)
        yield connections


def ended(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


KEYLESS = {
    b"GET PATH HTTP/1.1\r\nhost: [\r\n\r\n": 401,
    b"GET PATH HTTP/1.1\r\nhost: x\r\nauthorization: \xff\xfe\r\n\r\n": 401,
    b"GET PATH HTTP/1.1\r\nhost: x\r\nauthorization: x\r\nauthorization: y\r\n\r\n": 401,
    b"GET PATH HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n": 401,
    b"PUT PATH HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n": 401,
    b"PUT PATH HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffff\r\n": 401,
    b"PUT PATH HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n": 401,
    b"PUT PATH HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd": 400,
    b"PUT PATH HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n": 400,
    b"PUT PATH HTTP/1.1\r\nhost: x\r\ncontent-length: -3\r\n\r\n": 400,
    b"GET /%00%ff/../ HTTP/1.1\r\nhost: x\r\n\r\n": 404,
    b"GET / HTTP/1.1\r\nhost: xPATH?\r\n\r\n": 404,
    b"GET http://xPATH HTTP/1.1\r\nhost: x\r\n\r\n": 404,
    b"DELETE PATH HTTP/1.1\r\nhost: x\r\n\r\n": 404,
    b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n": 404,
    b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n": 404,
}


def test_strangers_requests_get_a_sentence_each_and_a_client_is_served_between_them() -> None:
    """Hosts, lengths and encodings that make readers of HTTP disagree; nothing after the first request is read."""
    with Mailbox(Channel(SERVER, {"a": A.public}), ("a",), address=LOOPBACK) as box:
        caller = Caller(box.address)
        for said, status in KEYLESS.items():
            said = said.replace(b"PATH", letters.PATH.encode())
            with strangers(box.address, 1, said * 3) as (connection,):
                answer = b"".join(iter(lambda: connection.recv(2**16), b""))
            assert answer.startswith(b"HTTP/1.1 %d " % status), said
            assert answer.count(b"HTTP/1.1 ") == 1
            assert caller.call("PUT", header_of(A, caller.request(), 5), b"short")[0] == 400
        caller.close()
        for size in range(1, 200):  # What is said of them does not depend on their lengths.
            stranger = Caller(box.address)
            assert stranger.call("GET", "x" * size)[0] == 401
            stranger.close()
        assert len(box._told) == 1


def test_two_processes_with_one_key_are_named() -> None:
    told: list[str] = []
    with Mailbox(Channel(SERVER, {"a": A.public}), ("a",), address=LOOPBACK, tell=told.append) as box:
        caller = Caller(box.address)
        for process, lines in ((1, 1), (2, 2), (2, 2), (1, 3), (2, 3)):  # One that was started anew is not told of.
            request = caller.request()._replace(process=process)
            assert caller.call("PUT", header_of(A, request, 0))[0] == 400
            assert len([line for line in told if "refused" not in line]) == lines
        assert told[-1] == "a calls from two processes. Each client needs a key of its own."
        caller.close()


def most_memory(clients: int) -> float:
    """Bytes of the connections of TLS of a mailbox, 0.4 MiB each, of which CPython's buffers are 0.25."""
    # Clients, strangers, and those that came since cycles were collected last, and before.
    return 0.4 * 2**20 * (clients + _MOST_STRANGERS + 2 * _AT_ONCE)


def test_connections_that_end_in_their_handshake_take_bounded_memory(tmp_path: Path) -> None:
    chain, key, _ = certificate(tmp_path, "own")
    with Mailbox(Channel(SERVER, {"a": A.public}), ("a",), address=LOOPBACK, tls=(chain, key)) as box:
        gc.collect()
        before, most, held = memory(), 0, deque[socket.socket]()
        for _ in range(2500):
            held.append(socket.create_connection((box.address.host, box.address.port), timeout=60))
            if len(held) > 100:
                held.popleft().close()
            most = max(most, memory())
        for connection in held:
            connection.close()
        assert most - before < most_memory(clients=0)


def test_the_time_of_an_answer_is_no_outage(tmp_path: Path) -> None:
    """A client answers for longer than it has patience with a server, which is started anew meanwhile."""
    channel, over = Channel(SERVER, {"a": A.public}), list[bool]()
    with ExitStack() as stack:
        first = stack.enter_context(Mailbox(channel, ("a",), address=LOOPBACK))
        boxes = [first]

        def handler(data: bytes) -> bytes:
            if len(boxes) == 1:
                time.sleep(2.5)
                boxes[0].close()
                boxes.append(stack.enter_context(Mailbox(channel, ("a",), address=first.address)))
                boxes[1].send("a", b"again")
            over.append(data == b"again")
            return data.upper()

        first.send("a", b"question")
        serve(
            Channel(A, {"server": SERVER.public}),
            "server",
            handler,
            address=first.address,
            patience=lambda: 2.0,
            ended=lambda: over[-1:] == [True],
        )
        assert boxes[1].poll(1.0) == [(1, "a", b"AGAIN")]


@pytest.mark.parametrize("limit", ["MAX_BYTES", "_LONGEST"])
def test_a_response_that_does_not_end_is_given_up(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a liar that sends pieces without end, of other bytes than were asked for."""
    import httpx

    from dpvb.federated import mailbox_client

    encodings: list[str | None] = []

    class Liar(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            encodings.append(self.headers["accept-encoding"])
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(gzip.compress(bytes(10**6)))
                    time.sleep(0.01)

        def log_message(self, *arguments: object) -> None:
            pass

    monkeypatch.setattr(mailbox_client, limit, {"MAX_BYTES": 10_000, "_LONGEST": 0.2}[limit])
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as liar, httpx.Client() as http:
        liar.daemon_threads = True
        threading.Thread(target=liar.serve_forever, daemon=True).start()
        channel = Channel(A, {"server": SERVER.public})
        calls = mailbox_client._Calls(http, f"http://127.0.0.1:{liar.server_port}", channel, "server")
        with pytest.raises(ConnectionError, match="does not end"):
            calls.call()
        assert encodings == ["identity"]
        liar.shutdown()


def crowd(
    folder: Path, names: list[str], processes: int, box: Mailbox, authority: Path
) -> list[subprocess.Popen[bytes]]:
    """Clients, so many processes, the rest as their threads."""
    script = Path(__file__).parents[1] / "mailbox_crowd.py"
    call = [sys.executable, str(script), str(folder), str(box.address), str(authority)]
    return [subprocess.Popen([*call, *names[first::processes]]) for first in range(processes)]


def keys(folder: Path, count: int) -> tuple[list[str], Channel]:
    names = [f"client-{number:03}" for number in range(count)]
    (folder / "server.pub").write_bytes(SERVER.public)
    identities = {name: Identity.generate(name) for name in names}
    for name, identity in identities.items():
        identity.save(folder / f"{name}.key")
    return names, Channel(SERVER, {name: identity.public for name, identity in identities.items()})


def rounds(box: Mailbox, count: int, size: int) -> list[float]:
    """Seconds of rounds in which every client answers with so many bytes."""
    seconds = []
    for _ in range(count):
        begun = time.monotonic()
        tickets = {box.send(name, str(size).encode()) for name in box.clients}
        replies = polled(box, len(tickets))
        assert {reply.ticket for reply in replies} == tickets
        assert all(len(reply.data) == size for reply in replies)
        seconds.append(time.monotonic() - begun)
    return seconds


@pytest.mark.slow
def test_two_hundred_clients_in_a_crowd_of_strangers(tmp_path: Path) -> None:
    """Forty processes of five threads: all have a key; 500 strangers are silent, others slow, others announce 2 GiB."""
    chain, key, authority = certificate(tmp_path, "own")
    names, channel = keys(tmp_path, 200)
    head = f"PUT {letters.PATH} HTTP/1.1\r\nhost: x\r\n".encode()
    huge = head + b"content-length: 2147483648\r\n\r\n" + bytes(2**16)
    with Mailbox(channel, names, address=LOOPBACK, tls=(chain, key), max_bytes=2**20) as box, ExitStack() as stack:
        context = ssl.create_default_context(cafile=str(authority))
        before = memory()
        silent = stack.enter_context(strangers(box.address, 500, b""))
        processes = crowd(tmp_path, names, 40, box, authority)
        for process in processes:
            stack.callback(process.wait)
            stack.callback(process.kill)
        stack.enter_context(strangers(box.address, 50, head, context))
        stack.enter_context(strangers(box.address, 50, huge, context))
        assert box.wait(400.0) == ()
        # Twice the time of a stranger: the public time within which a client with a key is heard.
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert max(rounds(box, 3, 10_000)) < 2 * STRANGER_SECONDS * load
        time.sleep(STRANGER_SECONDS)
        assert sum(map(ended, silent)) == 500
        assert memory() - before < most_memory(clients=200)
        for name in box.clients:
            box.send(name, b"bye")
        assert len(polled(box, 200)) == 200
        for process in processes:
            assert process.wait(60) == 0


STARVED = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from dpvb.federated.transport import Address
from dpvb.federated.channel import Channel
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_server import Mailbox
server, a = Identity.load(sys.argv[1]), bytes.fromhex(sys.argv[2])
with Mailbox(Channel(server, {"a": a}), ("a",), address=Address("127.0.0.1", 0)) as box:
    held = []
    print(box.address.port, flush=True)
    sys.stdin.readline()
    for _ in range(200):  # Descriptors of other parts of the process, until there are none left.
        try:
            held.append(open("/dev/null"))
        except OSError:
            time.sleep(0.01)
    print(len(held), flush=True)
    sys.stdin.readline()
    del held[:3]
    box.send("a", b"question")
    answers = []
    while not answers:
        answers = box.poll(1.0)
    print(answers[0].data, flush=True)
"""


@pytest.mark.slow
def test_a_server_without_descriptors_comes_back_when_there_are_some(tmp_path: Path) -> None:
    SERVER.save(tmp_path / "server.key")
    call = [sys.executable, "-c", STARVED, str(tmp_path / "server.key"), A.public.hex()]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            address = Address("127.0.0.1", int(process.stdout.readline()))
            with strangers(address, 100, b""):
                process.stdin.write("\n")
                process.stdin.flush()
                assert int(process.stdout.readline()) > 10
                with strangers(address, 100, b""):
                    over: list[bool] = []
                    process.stdin.write("\n")
                    process.stdin.flush()
                    serve(
                        Channel(A, {"server": SERVER.public}),
                        "server",
                        lambda data: (over.append(True), data.upper())[1],
                        address=address,
                        patience=lambda: 100.0,
                        ended=lambda: bool(over),
                    )
            assert process.stdout.readline() == "b'QUESTION'\n"
        finally:
            process.kill()


class Middle:
    """A man in the middle of HTTP who does what `change` says to each request and to each response."""

    def __init__(
        self,
        upstream: Address,
        mischief: Callable[[Middle, str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]],
    ) -> None:
        self.upstream, self.rng, self.seen = upstream, random.Random(3), list[tuple[str, dict[str, str], bytes]]()
        self.last: tuple[int, dict[str, str], bytes] = (503, {}, b"")
        middle = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", 2**16

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                header = {"authorization": self.headers.get("authorization", "")}
                try:
                    status, answered, content = mischief(middle, self.command, header, body)
                except OSError:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in answered.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_PUT = do_GET  # noqa: N815

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = Address("127.0.0.1", self.http.server_port)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def passed(self, method: str, header: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.upstream.host, self.upstream.port, timeout=60)
        try:
            connection.request(method, letters.PATH, body, header)
            answer = connection.getresponse()
            session = answer.headers.get(letters.SESSION_HEADER)
            return answer.status, {} if session is None else {letters.SESSION_HEADER: session}, answer.read()
        finally:
            connection.close()


Passed = tuple[int, dict[str, str], bytes]


def read(middle: Middle, method: str, header: dict[str, str], body: bytes) -> Passed:
    answer = middle.passed(method, header, body)
    middle.seen.append((method, header, body + answer[2]))
    return answer


def change(middle: Middle, method: str, header: dict[str, str], body: bytes) -> Passed:
    """One body of five, in either direction."""
    if body and middle.rng.random() < 0.2:
        return middle.passed(method, header, flipped(body, middle.rng))
    status, headers, content = middle.passed(method, header, body)
    return status, headers, flipped(content, middle.rng) if middle.rng.random() < 0.2 else content


def repeat(middle: Middle, method: str, header: dict[str, str], body: bytes) -> Passed:
    answer = middle.passed(method, header, body)
    middle.seen.append((method, header, body))
    if header["authorization"] and answer[0] == 200:
        assert middle.passed(*middle.rng.choice(middle.seen))[0] in (401, 409)
    return answer


def delay(middle: Middle, method: str, header: dict[str, str], body: bytes) -> Passed:
    time.sleep(middle.rng.random() * 0.3)
    return middle.passed(method, header, body)


def truncate(middle: Middle, method: str, header: dict[str, str], body: bytes) -> Passed:
    status, headers, content = middle.passed(method, header, body)
    if middle.rng.random() < 0.2:
        raise OSError("the line is cut")
    return status, headers, content[: len(content) // 2] if middle.rng.random() < 0.2 else content


def swap(middle: Middle, method: str, header: dict[str, str], body: bytes) -> Passed:
    """One response of three is the last that anybody got; one body of five is one that was sent before."""
    if body and middle.seen and middle.rng.random() < 0.2:
        body = middle.rng.choice(middle.seen)[2]
    if body:
        middle.seen.append((method, header, body))
    middle.last, before = middle.passed(method, header, body), middle.last
    return before if before[0] == 200 and middle.rng.random() < 0.3 else middle.last


@pytest.mark.guarantees("messages")
@pytest.mark.slow
@pytest.mark.parametrize("mischief", [read, change, repeat, delay, truncate, swap], ids=lambda one: one.__name__)
def test_a_man_in_the_middle_gets_a_failed_or_a_correct_run(mischief: object, tmp_path: Path) -> None:
    """The parties of a run in threads, over plain HTTP on loopback: nothing but their keys protects them."""
    names = ("north", "south", "west")
    top = TOP.format(epsilon="inf", rounds=6, trust="secure_aggregation")
    with parties(tmp_path, names, top, "max_row_norm = 1\nrandom_state = 7"):
        rewrite(tmp_path / "server.toml", "out = ", "answer_seconds = 60\nout = ")
        settings = ServerConfig.load(tmp_path / "server.toml")
        channel = Channel(settings.identity, settings.agreement.clients)
        box = Mailbox(channel, names, address=LOOPBACK, patience=settings.answer_seconds)
        middle = Middle(box.address, mischief)  # type: ignore[arg-type]

        def client(name: str) -> None:
            own = ClientConfig.load(tmp_path / f"{name}.toml")
            with owner(own) as party:
                sealed = Channel(own.identity, {"server": settings.agreement.server_key})
                with suppress(FederationError):
                    serve(
                        sealed,
                        "server",
                        party.answer,
                        address=middle.address,
                        patience=lambda: 30.0,
                        ended=lambda: party.is_over,
                    )

        threads = [threading.Thread(target=client, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        try:
            lead(settings, lambda most: box, quiet=True)
        except DpvbError:
            assert mischief in (change, truncate, swap)
        else:
            assert_simulated(tmp_path, names, "secure_aggregation", 6)
        for thread in threads:
            thread.join(100)
        middle.http.shutdown()
        middle.http.server_close()
        assert mischief is not read or np.load(tmp_path / "north.x.npy").tobytes()[:64] not in b"".join(
            one[2] for one in middle.seen
        )
        begun = [path.name for name in names for path in (tmp_path / f"{name}.state").glob("runs/*/*.request")]
        assert {*begun} <= {f"{step}-0.request" for step in range(6)}  # No release was given for two requests.
