"""Time of a charge on this machine's disk, alone and among eight writers, of several versions in turns.

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

ROUNDS, CHARGES, WRITERS, SECONDS = 5, 300, 8, 2.0


def measured() -> None:
    """Print milliseconds of a charge, of a look and of an opening, and charges a second of eight writers."""
    from dpvb.accounting import Event
    from dpvb.accounting.costs import Composition
    from dpvb.ledger import Ledger

    cost = Composition([Event("full_batch", 1.0, 1e4)], "add_or_remove_one")

    def charge(ledger: Ledger, run: str) -> None:
        ledger.charge("people", cost, run=run, plan_digest="plan", unit="row")

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        path = f"{folder}/budget.db"
        with Ledger(path) as ledger:
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
        with Ledger(path):
            opening = time.perf_counter() - start
        inlet, outlet = os.pipe()
        for number in range(WRITERS):
            if os.fork() == 0:
                count, end = 0, time.perf_counter() + SECONDS
                with Ledger(path) as ledger:
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
    print(1e3 * charging, 1e3 * looking, 1e3 * opening, rate)


def main(sources: list[str]) -> None:
    found: dict[str, list[list[float]]] = {source: [] for source in sources}
    for _ in range(ROUNDS):
        for source in sources:
            environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve())}
            command = [sys.executable, __file__]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found[source].append([float(part) for part in done.stdout.split()])
    print("| | charge, ms | look, ms | opening, ms | charges / s of eight writers |\n|---|---|---|---|---|")
    for source, rounds in found.items():
        charging, looking, opening, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"| {source} | {charging:.2f} | {looking:.2f} | {opening:.1f} | {rate:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else measured()
