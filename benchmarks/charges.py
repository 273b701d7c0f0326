"""Time of a charge in a file and in PostgreSQL, alone and among eight writers, of several versions in turns.

    python benchmarks/charges.py SRC [SRC ...]

Each SRC is the folder `src` of a checkout; one row each, medians over the rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from postgresql_server import running

ROUNDS, CHARGES, WRITERS, SECONDS = 5, 300, 8, 2.0


def measured(address: str) -> list[float]:
    """Milliseconds of a charge, of a look and of an opening, and charges a second of eight writers."""
    from dpvb.accounting import Event
    from dpvb.accounting.costs import Composition
    from dpvb.ledger import Ledger

    cost = Composition([Event("full_batch", 1.0, 1e4)], "add_or_remove_one")

    def charge(ledger: Ledger, run: str) -> None:
        ledger.charge("people", cost, run=run, plan_digest="plan", unit="row")

    with Ledger(address) as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1e6, delta=1e-6)
        charge(ledger, "first")
        start = time.perf_counter()
        for k in range(CHARGES):
            charge(ledger, f"run {k}")
        charging = (time.perf_counter() - start) / CHARGES
        start = time.perf_counter()
        for _ in range(CHARGES):
            ledger.datasets()
        looking = (time.perf_counter() - start) / CHARGES
    start = time.perf_counter()
    with Ledger(address):
        opening = time.perf_counter() - start
    inlet, outlet = os.pipe()
    for number in range(WRITERS):
        if os.fork() == 0:
            count, end = 0, time.perf_counter() + SECONDS
            with Ledger(address) as ledger:
                while time.perf_counter() < end:
                    charge(ledger, f"writer {number}, {count}")
                    count += 1
            os.write(outlet, f"{count}\n".encode())
            os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet) as lines:
        rate = sum(map(int, lines)) / SECONDS
    for _ in range(WRITERS):
        os.wait()
    return [1e3 * charging, 1e3 * looking, 1e3 * opening, rate]


def main(sources: list[str]) -> None:
    found: dict[tuple[str, str], list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, running(fsync="on") as server:
        for number in range(ROUNDS):
            for which, source in enumerate(sources):
                place = f"{Path(folder).resolve()}/{number}-{which}"
                environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve()), "XDG_STATE_HOME": place}
                for store, address in (("file", f"{place}.db"), ("PostgreSQL", server.new_database())):
                    command = [sys.executable, __file__, "--one", address]
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                    found.setdefault((store, source), []).append([float(part) for part in done.stdout.split()])
    print("| | | charge, ms | look, ms | opening, ms | charges / s of eight writers |\n|---|---|---|---|---|---|")
    for (store, source), rounds in found.items():
        charging, looking, opening, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"| {store} | {source} | {charging:.2f} | {looking:.2f} | {opening:.1f} | {rate:.0f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(*measured(sys.argv[2]))
    else:
        main(sys.argv[1:])
