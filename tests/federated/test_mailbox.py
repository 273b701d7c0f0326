"""The mailbox, with real processes on loopback: its two ends, whole runs, and kills."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from federated_runs import (
    LOOPBACK,
    SERVER,
    TOP,
    Client,
    assert_simulated,
    begin_on_record,
    certificate,
    charges,
    connect,
    federation,
    join,
    parties,
    polled,
    rewrite,
)

import dpvb
from dpvb.errors import FederationError, ParameterError
from dpvb.federated.channel import Channel
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_client import serve
from dpvb.federated.mailbox_server import Mailbox
from dpvb.federated.transport import Address, parse_address


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
    own, key, authority = certificate(tmp_path, "own")
    with federation(tmp_path, "a", "b", tls=(own, key)) as (link, clients, told):
        assert link.clients == ("a", "b")
        early = link.send("a", b"before anybody is here")
        for client in clients.values():
            client.start(link.address, certificate=str(authority))
        assert link.wait(200.0) == ()
        assert polled(link, 1) == [(early, "a", b"BEFORE ANYBODY IS HERE")]
        assert link.poll(0.0) == []

        large = bytes(range(97, 123)) * 250_000  # 6.5 MB: Flower cuts it into two pieces.
        tickets = [link.send(name, large) for name in link.clients]
        replies = polled(link, 2)
        assert sorted(replies) == sorted(zip(tickets, link.clients, [large.upper()] * 2, strict=True))

        # The slower one, which answers when it is told to, is not waited for.
        slow, quick = link.send("a", b"wait"), link.send("b", b"quick")
        assert polled(link, 1) == [(quick, "b", b"QUICK")]
        clients["a"].diary.with_suffix(".go").touch()
        assert polled(link, 1) == [(slow, "a", b"WAIT")]

        # Killed while it answers; the same bytes reach it when it is back, and the answer comes.
        ticket = link.send("b", b"die")
        assert clients["b"].end()[0] == -9
        assert link.poll(0.5) == []
        clients["b"].start(link.address, certificate=str(authority))
        assert polled(link, 1) == [(ticket, "b", b"DIE")]
        assert clients["b"].diary.read_bytes().splitlines()[-2:] == [b"die", b"die"]
        assert [line.split(",")[0] for line in told if line.startswith("b ")] == ["b is here", "b is back"]

        start = time.monotonic()
        for _ in range(10):
            for name in link.clients:
                link.send(name, b"x" * 10_000)
            assert len(polled(link, 2)) == 2
        assert time.monotonic() - start < 30  # Seconds; a process for each message would take minutes.

        for name in link.clients:
            link.send(name, b"bye")
        assert sorted(reply.data for reply in polled(link, 2)) == [b"BYE", b"BYE"]
        for client in clients.values():
            code, said = client.end()
            assert (code, {*said.splitlines()}) == (0, {f"connected to {link.address}."})
        with pytest.raises(ParameterError, match="'a', 'b', got 'c'"):
            link.send("c", b"")


def test_a_stranger_is_sent_away_and_nothing_is_sent_to_it(tmp_path: Path) -> None:
    with federation(tmp_path, "a", patience=3.0) as (link, clients, told):
        (tmp_path / "elsewhere").mkdir()
        stranger = Client(tmp_path / "elsewhere", Identity.generate("a"))  # The name, but not the key.
        misled = Client(tmp_path, clients["a"].identity)  # The key, but it expects another server.
        ticket = link.send("a", b"for a alone")
        stranger.start(link.address)
        misled.start(link.address, server_key=Identity.generate("other").public)
        assert polled(link, 1) == [(ticket, "a", None)]  # The patience is over.
        deadline = time.monotonic() + 200
        while None in (stranger.process.poll(), misled.process.poll()) and time.monotonic() < deadline:
            assert link.poll(0.2) == []
        for client in (stranger, misled):
            code, said = client.end()
            assert code == 1
            assert "sends 'a' away: no client of this name and key is known here" in said
            assert not client.diary.exists()
        assert len(told) == 1  # Once for each reason: two million strangers fill no disk.
        assert "was not sealed with its key" in told[0]

        # Another version of the wire, and whatever else is called, gets a sentence; a body is not waited for.
        for path, status in (("/dpvb/4", 404), ("/v1/fleet/register-node", 404), ("/dpvb/5", 401)):
            asked = http.client.HTTPConnection(link.address.host, link.address.port)
            asked.putrequest("PUT", path)
            asked.putheader("Content-Length", str(2**31))
            asked.endheaders()
            answer = asked.getresponse()
            assert answer.status == status
            assert (b"has version 5 of the wire" in answer.read()) == (status == 404)
            asked.close()


@pytest.mark.slow
def test_a_client_that_does_not_trust_the_servers_certificate_says_so(tmp_path: Path) -> None:
    own, key, _ = certificate(tmp_path, "own")
    _, _, other = certificate(tmp_path, "other")
    with federation(tmp_path, "a", tls=(own, key)) as (link, clients, told):
        clients["a"].start(link.address, certificate=str(other), patience=1.0)
        assert link.wait(3.0) == ("a",)
        code, said = clients["a"].end()
        assert code == 1
        assert "The certificate of the server at" in said
        assert "self-signed certificate in certificate chain" in said
        assert told == []


def test_faults_are_found_at_the_start(tmp_path: Path) -> None:
    channel = Channel(SERVER, {})
    with pytest.raises(ParameterError, match="can be reached from other machines"):
        Mailbox(channel, (), address=Address("0.0.0.0", 0))
    own, key, _ = certificate(tmp_path, "own")
    _, other, _ = certificate(tmp_path, "other")
    with pytest.raises(FederationError, match="do not belong together"):
        Mailbox(channel, (), address=LOOPBACK, tls=(own, other))
    with pytest.raises(FederationError, match=r"certificate: .* cannot be read"):
        Mailbox(channel, (), address=LOOPBACK, tls=(tmp_path / "none", key))
    with Mailbox(channel, (), address=LOOPBACK) as link, pytest.raises(FederationError, match="in use"):
        Mailbox(channel, (), address=link.address)
    caller = Channel(Identity.generate("a"), {"server": SERVER.public})
    with pytest.raises(FederationError, match=r"out of reach for 0 s"):  # Nobody is there any more.
        serve(caller, "server", bytes.upper, address=link.address, patience=lambda: 0.0, ended=lambda: False)
    told: list[str] = []
    with pytest.raises(FederationError, match=r"out of reach for 0\.2 s"):
        serve(
            caller,
            "server",
            bytes.upper,
            address=link.address,
            patience=lambda: 0.2,
            ended=lambda: False,
            tell=told.append,
        )
    assert [one.partition("; ")[2] for one in told] == ["it is tried again for 0.2 s at most."]


#: Rounds that take seconds, so that a party which is killed early in a run is killed in it, on a busy machine too.
LONG = 200
#: Rounds that three kills and as many starts fit into.
MANY = 300


@pytest.mark.slow
def test_a_run_from_the_command_line_in_which_a_client_and_the_server_are_killed(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="secure_aggregation")) as found:
        begin_on_record(tmp_path, found)
        found["north"].process.kill()
        found["north"].end(-signal.SIGKILL)
        assert [found["server"].children(), found["south"].children()] == [[], []]
        found["north"].start()
        found["server"].wait_for("north is back")
        found["server"].process.kill()
        found["server"].end(-signal.SIGKILL)
        found["server"].start()
        for party in found.values():
            party.end()
        for name in names:
            assert "The run has ended: the run is complete." in found[name].said()
            assert charges(tmp_path / f"{name}.db") == 1
            assert "gets only sums over at least 2 of 2 clients" in found[name].out().replace("\n               ", " ")
        model = dpvb.load(tmp_path / "model.dpvb")
        assert model.privacy_.epsilon <= 1.0
        logs = {
            name: [json.loads(line) for line in party.log.read_text().splitlines()] for name, party in found.items()
        }
        starts = {name: sum(line["event"] == "start" for line in log) for name, log in logs.items()}
        assert starts == {"server": 2, "north": 2, "south": 1}
        assert {log[-1]["exit_code"] for log in logs.values()} == {0}
        assert logs["server"][-3]["message"] == model.privacy_.brief
        assert any(line["event"] == "step" and line["step"] == line["of"] for line in logs["server"])
        assert model.coef_.shape == (1, 3)
        assert "PRIVACY STATEMENT" in found["server"].out()
        assert not list((tmp_path / "server.state").iterdir())


def test_a_server_that_is_told_to_stop_stops(tmp_path: Path) -> None:
    with parties(tmp_path, ("north", "south"), TOP.format(epsilon=1, rounds=3, trust="none")) as found:
        connect(tmp_path, found)
        assert found["server"].children() == []
        found["server"].process.terminate()
        found["server"].end(128 + signal.SIGTERM)
        assert not (tmp_path / "model.dpvb").exists()


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_servers_that_die_reach_the_very_numbers_of_a_simulation(trust: str, tmp_path: Path) -> None:
    """Killed twice, stopped once, and started again each time; no client notices more than a pause."""
    names = ("north", "south", "west")
    model = "max_row_norm = 1\nrandom_state = 7"
    with parties(tmp_path, names, TOP.format(epsilon="inf", rounds=MANY, trust=trust), model) as found:
        begin_on_record(tmp_path, found, ledger=False)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            time.sleep(1.5)
            found["server"].process.send_signal(number)
            found["server"].end(-number if number == signal.SIGKILL else 128 + number)
            assert not (tmp_path / "model.dpvb").exists()
            found["server"].start()
            found["server"].wait_for("3 of 3 have come")
        for party in found.values():
            party.end()
        assert_simulated(tmp_path, names, trust, MANY)


@pytest.mark.slow
def test_a_server_that_was_killed_gives_its_run_up(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="none")) as found:
        begin_on_record(tmp_path, found)
        found["server"].process.kill()
        found["server"].end(-signal.SIGKILL)
        found["server"].start("--leave")
        for party in found.values():
            party.end()
        for name in names:
            assert "The run has ended: the server has given it up." in found[name].said()
            assert charges(tmp_path / f"{name}.db") == 1
        assert not (tmp_path / "model.dpvb").exists()
        assert not list((tmp_path / "server.state").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_processes_reach_the_very_numbers_of_a_simulation(trust: str, tmp_path: Path) -> None:
    names = ("north", "south", "west")
    model = "max_row_norm = 1\nrandom_state = 7"
    with parties(tmp_path, names, TOP.format(epsilon="inf", rounds=5, trust=trust), model) as found:
        connect(tmp_path, found, ledger=False)
        for name in names:
            found[name].start()
        for party in found.values():
            party.end()
        assert_simulated(tmp_path, names, trust, 5)


@pytest.mark.slow
def test_a_run_that_a_server_breaks_off_and_what_its_clients_do_then(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="none")) as found:
        connect(tmp_path, found)
        join(found)
        found["server"].process.terminate()
        found["server"].end(128 + signal.SIGTERM)
        for name in names:
            found[name].end()
            assert "The run has ended: the run was broken off." in found[name].said()
            assert charges(tmp_path / f"{name}.db") == 1


@pytest.mark.slow
def test_a_client_that_agrees_to_something_else_is_named_on_both_sides(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=3, trust="none")) as found:
        connect(tmp_path, found)
        (tmp_path / "other.toml").write_text((tmp_path / "agreement.toml").read_text().replace("3\ntrust", "4\ntrust"))
        rewrite(tmp_path / "south.toml", "agreement.toml", "other.toml")
        for name in names:
            found[name].start()
        found["server"].end(2)
        found["south"].end(2)
        found["north"].end(0)
        assert "south: The n_steps of the model differs" in found["server"].said()
        assert "error: This client does not take part: The n_steps of the model differs" in found["south"].said()
        assert [charges(tmp_path / f"{name}.db") for name in names] == [1, 0]


@pytest.mark.slow
def test_eight_clients_that_are_killed_all_the_time_give_exactly_what_is_charged(tmp_path: Path) -> None:
    names = tuple(f"site-{m}" for m in range(8))
    rng = np.random.default_rng(11)
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="secure_aggregation")) as found:
        connect(tmp_path, found)
        for name in names:
            found[name].start()
            time.sleep(0.5)
        found[names[0]].wait_for("offer is accepted")
        kills = 0
        while found["server"].process.poll() is None and kills < 5:
            victim = found[names[rng.integers(len(names))]]
            if "the run is over" not in victim.said():
                victim.kill()
                victim.start()
                kills += 1
            time.sleep(rng.uniform(0.5, 3))
        for party in found.values():
            party.end(timeout=400.0)
        assert kills >= 3
        # One charge of the plan each: what was interrupted is done again with the same noise, at no cost.
        assert [charges(tmp_path / f"{name}.db") for name in names] == [1] * 8
        assert dpvb.load(tmp_path / "model.dpvb").privacy_.epsilon <= 1.0


@pytest.mark.slow
def test_a_client_that_comes_back_after_the_end_is_told_at_once(tmp_path: Path) -> None:
    """By the server, which waits for it, or by its own folder; and both ends of a run end at once."""
    names = ("north", "south", "west")
    top = TOP.format(epsilon=1, rounds=20, trust="secure_aggregation") + "\nmax_missing = 1"
    with parties(tmp_path, names, top) as found:
        # Of these the server waits 10 before it writes the model; west starts in the rest, on a busy machine too.
        rewrite(tmp_path / "server.toml", "out = ", "answer_seconds = 60\nout = ")
        connect(tmp_path, found)
        for name in names:
            found[name].start()
        found["west"].wait_for("offer is accepted")
        found["west"].kill()
        found["server"].wait_for("west has not heard of that")
        found["west"].start()
        found["west"].wait_for("The run has ended: the run is complete.")
        ended = time.monotonic()
        for party in found.values():
            party.end()
        assert time.monotonic() - ended < 2 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert "PRIVACY STATEMENT" in found["west"].out()
        found["west"].start()  # Nobody is there any more.
        found["west"].end()
        assert "west.state is over, and no server is in reach" in found["west"].said()
        assert "PRIVACY STATEMENT" in found["west"].out()
        assert [charges(tmp_path / f"{name}.db") for name in names[:2]] == [2, 2]
