"""Every message on the page of faults is what a party prints when that fault is made."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from federated_runs import TOP, charges, parties, rewrite
from test_cli import run

from dpvb.cli import federate
from dpvb.cli.federate import lead, owner
from dpvb.errors import CheckpointError, FederationError
from dpvb.federated.channel import Channel
from dpvb.federated.config import Certificate, ClientConfig, ServerConfig
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_client import serve
from dpvb.federated.mailbox_server import Mailbox
from dpvb.federated.record import Recorded
from dpvb.federated.server import Server
from dpvb.federated.transport import Address, InProcess

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "federated-faults.md").read_text()
NAMES = ("north", "south")


class KilledError(BaseException):
    """The end of a server that does not see it coming."""


def messages(title: str) -> list[str]:
    """The messages under a heading of the page."""
    return re.findall(r"```text\n(.*?)\n```", PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0], re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The files of a server and two clients, which the server is to be reached by on a free port."""
    top = TOP.format(epsilon=1, rounds=8, trust="none")
    with parties(tmp_path, NAMES, top), socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        for name in NAMES:
            rewrite(tmp_path / f"{name}.toml", '"127.0.0.1:9092"', f'"localhost:{port}"\nserver_seconds = 20')
            rewrite(tmp_path / f"{name}.toml", "[data]", f'ledger = "{name}.db"\ndataset = "people"\n[data]')
        seconds = "join_seconds = 1\nanswer_seconds = 3\nout = "
        rewrite(tmp_path / "server.toml", '"127.0.0.1:0"', f'"localhost:{port}"')
        rewrite(tmp_path / "server.toml", "out = ", seconds)
        yield tmp_path


def said(folder: Path, side: str, name: str, code: int = 2) -> str:
    """What a party prints on standard error, with the names of the page."""
    text = run("federate", side, "--config", folder / f"{name}.toml", code=code).stderr
    return re.sub(r"localhost:\d+", "localhost:9317", text.replace(f"{folder}/", ""))


def with_tls(folder: Path, now: datetime | None = None, host: str = "localhost") -> None:
    """A certificate for the server, and its authority for north."""
    (folder / "tls").mkdir()
    chain, key, authority = Certificate.generate(host, now=now).save(folder / "tls" / "server.pem")
    for path, name in ((chain, "server.pem"), (key, "server.pem.key"), (authority, "authority.pem")):
        (folder / name).write_bytes(path.read_bytes())
    rewrite(folder / "server.toml", "out = ", 'certificate = "server.pem"\nprivate_key = "server.pem.key"\nout = ')
    rewrite(folder / "north.toml", "[data]", 'certificate = "authority.pem"\n[data]')


@contextmanager
def mailbox(folder: Path, tell: Callable[[str], None] = lambda text: None, **keys: bytes) -> Iterator[Mailbox]:
    settings = ServerConfig.load(folder / "server.toml")
    channel = Channel(settings.identity, {**settings.agreement.clients, **keys})
    with Mailbox(channel, NAMES, address=settings.address, tls=settings.tls, tell=tell) as box:
        yield box


@contextmanager
def leading(folder: Path) -> Iterator[list[str]]:
    """A server that offers its run, and what it ends with."""
    reasons: list[str] = []

    def learn() -> None:
        with suppress(FederationError), mailbox(folder) as box:
            try:
                lead(ServerConfig.load(folder / "server.toml"), lambda most: box, quiet=True)
            except FederationError as error:
                reasons.append(str(error))

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        yield reasons
    finally:
        thread.join()


def begun(folder: Path) -> None:
    """A run on record whose server was killed after the offer."""
    settings = ServerConfig.load(folder / "server.toml")
    task, federation = federate._agreed(settings.agreement, federate._no_rows(settings.agreement))
    with (
        owner(ClientConfig.load(folder / "north.toml")) as north,
        owner(ClientConfig.load(folder / "south.toml")) as south,
    ):
        answered: list[bytes] = []

        def once(data: bytes) -> bytes:
            answered.append(data)
            if len(answered) > 1:
                raise KilledError
            return south.answer(data)

        transport = InProcess({"north": north.answer, "south": once})
        with Recorded(transport, folder / "server.state") as record, pytest.raises(KilledError):
            Server(task, federation, record).run(np.random.default_rng(0))


def test_an_address_in_use(folder: Path) -> None:
    with mailbox(folder):
        assert said(folder, "server", "server") == messages("The address is in use")[0] + "\n"


def test_an_expired_certificate(folder: Path) -> None:
    with_tls(folder, datetime(2023, 1, 1, tzinfo=UTC))
    assert said(folder, "server", "server") == messages("The certificate has expired")[0] + "\n"


def test_a_certificate_that_is_not_trusted(folder: Path) -> None:
    with_tls(folder)
    (folder / "authority.pem").write_bytes(Certificate.generate("localhost").authority)
    with mailbox(folder):
        assert messages("The certificate is not trusted")[0] in said(folder, "client", "north")


def test_a_wrong_key(folder: Path) -> None:
    lines: list[str] = []
    client, server, own = messages("A key is wrong")
    with mailbox(folder, lines.append, north=Identity.generate("north").public):
        assert client in said(folder, "client", "north")
        assert lines == [server]
    agreement = folder / "agreement.toml"
    agreement.write_text(re.sub('north = "..', 'north = "00', agreement.read_text()))
    assert own in said(folder, "client", "north")


def test_two_processes_with_one_key(folder: Path) -> None:
    lines: list[str] = []
    with mailbox(folder, lines.append) as box:
        settings = ClientConfig.load(folder / "north.toml")
        channel = Channel(settings.identity, {"server": settings.agreement.server_key})
        asked, over = threading.Event(), threading.Event()

        def first(data: bytes) -> bytes:
            asked.set()
            over.wait(100)
            return data

        def serving(handler: Callable[[bytes], bytes]) -> None:
            serve(channel, "server", handler, address=box.address, patience=lambda: 20.0, ended=over.is_set)

        box.send("north", b"question")
        thread = threading.Thread(target=serving, args=(first,))
        thread.start()
        assert asked.wait(100)
        serving(lambda data: (over.set(), data)[1])
        thread.join(100)
        assert messages("Two processes have one key")[0] in lines


def test_a_full_disk(folder: Path) -> None:
    """Of the server's folder: as many pages of the database as the offer needs, and no more."""
    answer, place = bytes(10**6), folder / "server.state"
    with Recorded(InProcess({"north": lambda data: answer}), place) as record:
        record._file.execute("PRAGMA max_page_count = 20")
        record.send("north", b"question")
        with pytest.raises(CheckpointError) as full:
            record.poll(0.0)
    assert f"error: {full.value}".replace(f"{folder}/", "") == messages("A disk is full")[0]
    with Recorded(InProcess({"north": lambda data: answer}), place) as record:
        record.send("north", b"question")
        assert record.poll(0.0) == [(1, "north", answer)]


@pytest.mark.slow
def test_a_folder_of_another_run(folder: Path) -> None:
    begun(folder)
    client, server = messages("The folder is of another run")
    with leading(folder) as reasons:
        assert client in said(folder, "client", "north")
    assert "north: This client takes part in the run" in reasons[0]
    rewrite(folder / "server.toml", "out = ", 'folder = "server.state"\nout = ')
    rewrite(folder / "agreement.toml", "num_rounds = 8", "num_rounds = 9")
    assert server in said(folder, "server", "server")
    assert charges(folder / "north.db") == 1


@pytest.mark.slow
def test_an_agreement_that_differs_in_one_byte(folder: Path) -> None:
    (folder / "other.toml").write_text((folder / "agreement.toml").read_text().replace("rounds = 8", "rounds = 9"))
    rewrite(folder / "north.toml", "agreement.toml", "other.toml")
    with leading(folder) as reasons:
        assert messages("The agreement differs in one byte")[0] in said(folder, "client", "north")
    assert messages("The agreement differs in one byte")[0].partition("take part: ")[2].rstrip(".") in reasons[0]
    assert charges(folder / "north.db") == 0


@pytest.mark.parametrize("hours", [1, 3])
def test_clocks_that_differ(hours: int, folder: Path) -> None:
    """A certificate of a machine whose clock is ahead of this one's."""
    with_tls(folder, datetime.now(UTC) + timedelta(hours=hours))
    with mailbox(folder) as box:
        if hours == 1:
            box._channel = Channel(Identity.generate("server"), {})  # Whoever is sent away has connected.
            assert "sends 'north' away" in said(folder, "client", "north")
        else:
            assert messages("Clocks differ by an hour")[0] in said(folder, "client", "north")


def test_the_page_has_no_message_that_is_not_tested() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    source = Path(__file__).read_text()
    assert all(f'messages("{title}")' in source for title in titles if messages(title))
    assert Address("localhost", 9317).is_loopback
