"""The Flower app, with `flwr run`, a SuperLink and SuperNodes of an environment of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from federated_runs import TOP, assert_simulated, parties

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-flower" / "bin"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN.parent / "ready").exists(), reason="make .venv-flower/ready makes it"),
]


@contextmanager
def started(folder: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Flower, with the processes that it starts; all are ended."""
    environment = os.environ | {"FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "NO_COLOR": "1"}
    environment |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    with open(folder / f"{name}.log", "ab") as log:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_ports(count: int) -> list[int]:
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in with_ports]
    for one in with_ports:
        one.close()
    return ports


def test_a_run_of_flower_in_which_a_supernode_is_killed(tmp_path: Path) -> None:
    names, rounds = ("north", "south"), 3
    top = TOP.format(epsilon="inf", rounds=rounds, trust="none")
    with parties(tmp_path, names, top, "max_row_norm = 1\nrandom_state = 7"):
        port, *nodes = free_ports(4)
        (tmp_path / "flwr").mkdir()
        (tmp_path / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        link = ["flower-superlink", "--insecure", "--port", f"{port}", "--disable-runtime-dependency-installation"]

        def node(number: int) -> list[str]:
            config = f'config="{tmp_path / names[number]}.toml"'
            call = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--node-config", config]
            return [*call, "--port", f"{nodes[number]}"]

        run = [
            "flwr",
            "run",
            str(ROOT / "flower"),
            "here",
            "--stream",
            "--run-config",
            f'server="{tmp_path}/server.toml"',
        ]
        with started(tmp_path, "superlink", *link):
            wait_until(lambda: said(tmp_path, "superlink", "running on"), tmp_path)
            with (
                started(tmp_path, "north", *node(0)),
                started(tmp_path, "south", *node(1)) as victim,
                started(tmp_path, "run", *run),
            ):
                state = tmp_path / "south.state" / "runs"
                wait_until(lambda: state.is_dir() and any(state.iterdir()), tmp_path)
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
                nodes[1] = free_ports(1)[0]
                with started(tmp_path, "south", *node(1)):
                    wait_until((tmp_path / "model.dpvb").exists, tmp_path)
        assert_simulated(tmp_path, names, "none", rounds)


def said(folder: Path, name: str, word: str) -> bool:
    return word in (folder / f"{name}.log").read_text()


def wait_until(done: Callable[[], bool], folder: Path, timeout: float = 900.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        logs = "\n".join(f"{path}: {path.read_text()[-2000:]}" for path in folder.glob("*.log"))
        assert time.monotonic() < deadline, logs
        assert "Exit Code" not in logs, logs
        time.sleep(0.2)
