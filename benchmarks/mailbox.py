"""How fast federated runs are over the mailbox: whole runs with a process for each party, and large statistics.

    python -m benchmarks.mailbox [OTHER]

OTHER is the `src` of another version of dpvb, whose transport runs beside ours, in turn, on the same machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dpvb.federated.channel import Channel
from dpvb.federated.config import Certificate
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_server import Mailbox
from dpvb.federated.record import Recorded
from dpvb.federated.transport import Address

HERE = Path(__file__).parents[1]
ROUNDS, CLIENTS = 20, 20
#: Numbers of a release of 10 MB.
LARGE = 10_000_000
COMMAND = [sys.executable, "-c", "from dpvb.cli import app; app()", "federate"]


def write_files(folder: Path, names: list[str]) -> None:
    """The files of a federation with TLS, and each client's rows."""
    rng = np.random.default_rng(1)
    Certificate.generate("localhost").save(folder / "server.pem")
    keys = {name: Identity.generate(name) for name in ("server", *names)}
    for name, identity in keys.items():
        identity.save(folder / f"{name}.key")
    clients = "\n".join(f'{name} = "{keys[name].public.hex()}"' for name in names)
    (folder / "agreement.toml").write_text(
        f'kind = "LogisticRegression"\nepsilon = 1.0\ndelta = 1e-6\nnum_rounds = {ROUNDS}\n'
        f'trust = "secure_aggregation"\nwidth = 10\n[model]\nlow = -0.3\nhigh = 0.3\n[server]\n'
        f'key = "{keys["server"].public.hex()}"\n[clients]\n{clients}\n'
    )
    usual = 'agreement = "agreement.toml"\nidentity = "{name}.key"\naddress = "{address}"\n'
    (folder / "server.toml").write_text(
        usual.format(name="server", address="localhost:0")
        + 'certificate = "server.pem"\nprivate_key = "server.pem.key"\nout = "model.dpvb"\nfolder = "server.state"\n'
    )
    for name in names:
        x_nd = rng.uniform(-0.3, 0.3, (2000, 10))
        np.save(folder / f"{name}.x.npy", x_nd)
        np.save(folder / f"{name}.y.npy", (rng.random(2000) < 1 / (1 + np.exp(-3 * x_nd[:, 0]))).astype(int))
        (folder / f"{name}.toml").write_text(
            usual.format(name=name, address="ADDRESS")
            + f'certificate = "authority.pem"\nfolder = "{name}.state"\n[data]\nfile = "{name}.x.npy"\n'
            f'target = "{name}.y.npy"\n'
        )


def start(folder: Path, side: str, name: str, source: Path) -> subprocess.Popen[bytes]:
    with open(folder / f"{name}.err", "wb") as err:
        return subprocess.Popen(
            [*COMMAND, side, "--config", str(folder / f"{name}.toml")],
            stdout=subprocess.DEVNULL,
            stderr=err,
            env=os.environ | {"PYTHONPATH": str(source), "NO_COLOR": "1"},
        )


def whole_run(source: Path) -> str:
    """Seconds of the rounds, from the moment when all clients are there, and of the processes' ends after them."""
    names = [f"client-{number:02}" for number in range(CLIENTS)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, names)
        server = start(folder, "server", "server", source)
        said = folder / "server.err"
        while (address := re.search(r"clients at (\S+)\.\n", said.read_text())) is None:
            if server.poll() is not None:
                return f"no server: {said.read_text()[:200]} |"
            time.sleep(0.02)
        for name in names:
            path = folder / f"{name}.toml"
            path.write_text(path.read_text().replace("ADDRESS", address[1]))
        clients = [start(folder, "client", name, source) for name in names]
        while f"{CLIENTS} of {CLIENTS} have come" not in said.read_text():
            time.sleep(0.01)
        begun = time.monotonic()
        while "Next: dpvb show" not in said.read_text() and server.poll() is None:
            time.sleep(0.01)
        done = time.monotonic()
        if server.wait(120):
            for process in clients:
                process.kill()
                process.wait()
            return f"no model after {done - begun:.0f} s: {said.read_text().splitlines()[-1][:60]}..."
        for process in clients:
            process.wait(120)
        return f"{done - begun:.1f} | {time.monotonic() - done:.1f}"


def large_rounds(count: int = 5) -> list[float]:
    """Seconds of rounds in which three processes answer with 10 MB each, over TLS, all on record."""
    names = ["north", "south", "west"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        chain, key, authority = Certificate.generate("localhost").save(folder / "server.pem")
        server = Identity.generate("server")
        (folder / "server.pub").write_bytes(server.public)
        parties = {name: Identity.generate(name) for name in names}
        for name, identity in parties.items():
            identity.save(folder / f"{name}.key")
        channel = Channel(server, {name: identity.public for name, identity in parties.items()})
        crowd = [sys.executable, str(HERE / "tests" / "mailbox_crowd.py"), str(folder)]
        with (
            Mailbox(channel, names, address=Address("localhost", 0), tls=(chain, key)) as box,
            Recorded(box, folder / "state") as record,
        ):
            processes = [subprocess.Popen([*crowd, str(box.address), str(authority), name]) for name in names]
            assert box.wait(120.0) == ()
            seconds = []
            for _ in range(count):
                begun = time.monotonic()
                for name in record.clients:
                    record.send(name, f"{LARGE:<{LARGE}}".encode())
                answers = 0
                while answers < len(names):
                    answers += len(record.poll(1.0))
                seconds.append(time.monotonic() - begun)
            for name in box.clients:
                box.send(name, b"bye")
            for process in processes:
                process.wait(60)
            return seconds


def main() -> None:
    sources = {"mailbox": HERE / "src"}
    if sys.argv[1:]:
        sources["the SuperLink of Flower 1.41, as before"] = Path(sys.argv[1])
    print("## Federated runs across processes\n")
    print(
        f"{CLIENTS} clients and a server, a process each, on loopback with TLS; logistic regression, 10 columns, "
        f"{ROUNDS} rounds, secure aggregation, the server's run on record. Seconds from the moment when all clients "
        "are there until the model is written, and from then until all have printed their statements and ended.\n"
    )
    print("| transport | load before | rounds, s | ends, s |\n|---|---|---|---|")
    for name, source in sources.items():
        print(f"| {name} | {os.getloadavg()[0]:.0f} | {whole_run(source)} |", flush=True)
    print(
        "\nQuestions and answers of 10 MB, three clients of a process each, TLS, every answer on the disk before it "
        f"counts. Seconds of a round: {', '.join(f'{one:.2f}' for one in large_rounds())}."
    )


if __name__ == "__main__":
    main()
