"""Flower as transport, with real processes on loopback: a SuperLink here, SuperNodes that are killed and come back."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dpvb.errors import FederationError, ParameterError
from dpvb.federated.channel import Channel
from dpvb.federated.flower import Address, parse_address
from dpvb.federated.keys import Identity
from dpvb.federated.transport import Reply

pytestmark = pytest.mark.filterwarnings("ignore")  # What Flower's own imports warn of is not ours.

SERVER = Identity.generate("server")
LOOPBACK = Address("127.0.0.1", 0)


class Client:
    """A process that runs `flower_client.py`."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.identity, self.diary = identity, folder / f"{identity.name}.asked"
        self._key, self._folder = folder / f"{identity.name}.key", folder
        if not self._key.exists():
            identity.save(self._key)
        self.process: subprocess.Popen[str] | None = None

    def start(
        self, address: Address, *, certificate: str = "", server_key: bytes = SERVER.public, patience: float = 20.0
    ) -> None:
        script = Path(__file__).with_name("flower_client.py")
        arguments = [self._key, server_key.hex(), address, self.diary, certificate, patience]
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, timeout: float = 20.0) -> tuple[int, str]:
        """Exit code, and what it said."""
        assert self.process is not None
        said, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, said

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def federation(folder: Path, *names: str, **options: object) -> Iterator[tuple[object, dict[str, Client], list[str]]]:
    """A SuperLink, clients that are not started yet, and what the SuperLink tells."""
    from dpvb.federated.flower.superlink import SuperLink

    clients = {name: Client(folder, Identity.generate(name)) for name in names}
    channel = Channel(SERVER, {name: client.identity.public for name, client in clients.items()})
    told: list[str] = []
    with ExitStack() as stack:
        link = SuperLink(channel, names, tell=told.append, **{"address": LOOPBACK, **options})
        stack.callback(link.close)
        for client in clients.values():
            stack.callback(client.kill)
        yield link, clients, told


def polled(link: object, count: int, timeout: float = 40.0) -> list[Reply]:
    found: list[Reply] = []
    deadline = time.monotonic() + timeout
    while len(found) < count and time.monotonic() < deadline:
        found += link.poll(1.0)
    return found


def test_an_address() -> None:
    assert parse_address("localhost:80") == ("localhost", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert str(parse_address("[::1]:80")) == "[::1]:80"
    local = ["127.0.0.1:1", "127.3.2.1:1", "[::1]:1", "localhost:1"]
    others = ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example.org:1", "127.0.0.1.example.org:1"]
    assert [parse_address(text).is_loopback for text in local + others] == [True] * 4 + [False] * 5
    for text in ("localhost", "localhost:", ":80", "::1:80", "[::1]", "a:b", "a:65536", "[a]:80", ""):
        with pytest.raises(ParameterError, match="host:port"):
            parse_address(text)


def test_bytes_travel_whoever_starts_first_and_whoever_is_killed(tmp_path: Path) -> None:
    with federation(tmp_path, "a", "b") as (link, clients, told):
        assert link.clients == ("a", "b")
        early = link.send("a", b"before anybody is here")
        for client in clients.values():
            client.start(link.address)
        assert link.wait(40.0) == ()
        assert polled(link, 1) == [(early, "a", b"BEFORE ANYBODY IS HERE")]
        assert link.poll(0.0) == []

        large = bytes(range(97, 123)) * 400_000  # 10.4 MB: Flower cuts it into three pieces.
        tickets = link.broadcast(large)
        replies = polled(link, 2)
        assert sorted(replies) == sorted(zip(tickets, link.clients, [large.upper()] * 2, strict=True))

        # The slower one is not waited for.
        slow, quick = link.send("a", b"sleep"), link.send("b", b"quick")
        assert polled(link, 2) == [(quick, "b", b"QUICK"), (slow, "a", b"SLEEP")]

        # Killed while it answers; the same bytes reach it when it is back, and the answer comes.
        ticket = link.send("b", b"die")
        assert clients["b"].process.wait(20) == -9
        assert link.poll(0.5) == []
        clients["b"].start(link.address)
        assert polled(link, 1) == [(ticket, "b", b"DIE")]
        assert clients["b"].diary.read_bytes().splitlines()[-2:] == [b"die", b"die"]
        assert [line.split(",")[0] for line in told if line.startswith("b ")] == ["b is here", "b is back"]

        start = time.monotonic()
        for _ in range(10):
            link.broadcast(b"x" * 10_000)
            assert len(polled(link, 2)) == 2
        assert time.monotonic() - start < 30  # Seconds; a process for each message would take minutes.

        link.broadcast(b"bye")
        assert sorted(reply.data for reply in polled(link, 2)) == [b"BYE", b"BYE"]
        for client in clients.values():
            code, said = client.end()
            assert (code, said) == (0, f"connected to {link.address}.\n")
        with pytest.raises(ParameterError, match="'a', 'b', got 'c'"):
            link.send("c", b"")


def test_a_stranger_is_sent_away_and_nothing_is_sent_to_it(tmp_path: Path) -> None:
    with federation(tmp_path, "a", patience=12.0) as (link, clients, told):
        (tmp_path / "elsewhere").mkdir()
        stranger = Client(tmp_path / "elsewhere", Identity.generate("a"))  # The name, but not the key.
        misled = Client(tmp_path, clients["a"].identity)  # The key, but it expects another server.
        ticket = link.send("a", b"for a alone")
        stranger.start(link.address)
        misled.start(link.address, server_key=Identity.generate("other").public)
        found = polled(link, 1)
        assert found == [(ticket, "a", None)]  # The patience is over.
        for client in (stranger, misled):
            code, said = client.end()
            assert code == 1
            assert "sends 'a' away: no client of this name and key is known here" in said
            assert not client.diary.exists()
        assert len(told) == 2
        assert all("was not sealed with its key" in line for line in told)

        # What the outside can call is what nodes call.
        for path, status in (("/v1/control/list-runs", 404), ("/v1/runtime/acquire-task", 404), ("/docs", 404)):
            asked = http.client.HTTPConnection(link.address.host, link.address.port)
            asked.request("POST", path, b"")
            assert asked.getresponse().status == status
            asked.close()
        asked = http.client.HTTPConnection(link.address.host, link.address.port)
        asked.putrequest("POST", "/v1/fleet/register-node")
        asked.putheader("Content-Length", str(2**30))
        asked.endheaders()
        assert asked.getresponse().status == 413
        asked.close()


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.pem", folder / f"{name}.key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_tls(tmp_path: Path) -> None:
    own, key = certificate(tmp_path, "own")
    other, _ = certificate(tmp_path, "other")
    with federation(tmp_path, "a", tls=(own, key)) as (link, clients, _):
        clients["a"].start(link.address, certificate=str(own))
        (tmp_path / "elsewhere").mkdir()
        distrusting = Client(tmp_path / "elsewhere", Identity.generate("a"))
        distrusting.start(link.address, certificate=str(other), patience=1.0)
        assert link.wait(40.0) == ()
        ticket = link.send("a", b"bye")
        assert polled(link, 1) == [(ticket, "a", b"BYE")]
        assert clients["a"].end()[0] == 0
        code, said = distrusting.end()
        assert code == 1
        assert "out of reach" in said
        assert "CERTIFICATE_VERIFY_FAILED" in said


def test_faults_are_found_at_the_start(tmp_path: Path) -> None:
    from dpvb.federated.flower.superlink import SuperLink
    from dpvb.federated.flower.supernode import serve

    channel = Channel(SERVER, {})
    with pytest.raises(ParameterError, match="can be reached from other machines"):
        SuperLink(channel, (), address=Address("0.0.0.0", 0))
    own, key = certificate(tmp_path, "own")
    _, other = certificate(tmp_path, "other")
    with pytest.raises(FederationError, match="do not belong together"):
        SuperLink(channel, (), address=LOOPBACK, tls=(own, other))
    with pytest.raises(FederationError, match=r"certificate: .* cannot be read"):
        SuperLink(channel, (), address=LOOPBACK, tls=(tmp_path / "none", key))
    with SuperLink(channel, (), address=LOOPBACK) as link, pytest.raises(FederationError, match="in use"):
        SuperLink(channel, (), address=link.address)
    with pytest.raises(FederationError, match=r"out of reach for 0 s"):  # Nobody is there any more.
        serve(channel, "server", bytes.upper, address=link.address, patience=0.0, ended=lambda: False)
