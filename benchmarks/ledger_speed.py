"""Time of charging and opening with 1,000,000 rows in the ledger, and of eight writers on PostgreSQL."""

import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from postgresql_server import running

from dpvb.accounting import Event
from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import cost_units
from dpvb.ledger import Ledger

ROWS, CHARGES, WRITERS, SECONDS = 1_000_000, 200, 8, 10.0
DATASETS, RELEASES = 10, 20
SMALL = Composition([Event("poisson", 0.001, 1e4)], "add_or_remove_one")


def charge(ledger: Ledger, run: str, dataset: str = "people 0") -> None:
    ledger.charge(dataset, SMALL, run=run, plan_digest="plan", unit="row")


def filled(address: str, rows: int) -> None:
    """Runs of a charge and 20 releases each, row by row as fits write them, many of them in one transaction."""
    units = cost_units(SMALL)
    with Ledger(address) as ledger:
        for k in range(DATASETS):
            name = f"people {k}"
            ledger.register(name, unit="row", neighboring_relation="add_or_remove_one", epsilon=1e6, delta=1e-6)
            charge(ledger, name, name)
        first = ledger.entries()[-1]
        body = {name: value for name, value in first.facts.items() if name != "favoured"}
        written = 2 * DATASETS
        while written < rows:
            with ledger._transaction(write=True) as (transaction, state):
                for _ in range(500):
                    run, name = secrets.token_hex(16), f"people {written % DATASETS}"
                    whose = {"dataset": name, "run": run}
                    price = state.price(name, units)
                    ledger._append(
                        transaction,
                        state,
                        kind="charge",
                        key=f"charge {run}",
                        form=first.form,
                        cost=units,
                        price=price,
                        body=body,
                        **whose,
                    )
                    for step in range(RELEASES):
                        released = {"state": "released", "step": step, "digest": secrets.token_hex(32)}
                        ledger._append(transaction, state, kind="event", key=f"{run} {step}", body=released, **whose)
                    written += 1 + RELEASES


def median_of(work: Callable[[int], object], times: int) -> float:
    """Median of the wall times of a piece of work, in milliseconds."""
    taken = []
    for k in range(times):
        start = time.perf_counter()
        work(k)
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def opened(address: str) -> None:
    with Ledger(address) as ledger:
        ledger.datasets()


def written_by(address: str, writers: int) -> float:
    """Charges a second of processes that all charge one data set."""
    ready, begin = os.pipe(), os.pipe()
    children = []
    for number in range(writers):
        child = os.fork()
        if child == 0:
            count = 0
            with Ledger(address) as ledger:
                charge(ledger, f"first of {number}")
                os.write(ready[1], b".")
                os.read(begin[0], 1)
                end = time.perf_counter() + SECONDS
                while time.perf_counter() < end:
                    charge(ledger, f"writer {number}, {count}")
                    count += 1
            os.write(ready[1], f"{count}\n".encode())
            os._exit(0)
        children.append(child)
    for _ in children:
        os.read(ready[0], 1)
    os.write(begin[1], b"." * writers)
    os.close(ready[1])
    counts = b""
    while part := os.read(ready[0], 4096):
        counts += part
    for child in children:
        os.waitpid(child, 0)
    return sum(map(int, counts.split())) / SECONDS


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    print(f"## Ledger\n\n{rows:,} rows, a charge and {RELEASES} releases a fit; durable on this machine's disk.\n")
    print("| | charge, median ms | asked | opening, median ms | asked | whole `verify`, s |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, running(on_disk=True) as server:
        team = server.new_database()
        for name, address in (("SQLite", f"{folder}/budget.db"), ("PostgreSQL", team)):
            filled(address, rows)
            opening = median_of(lambda _, address=address: opened(address), 15)
            with Ledger(address) as ledger:
                charging = median_of(lambda k, ledger=ledger: charge(ledger, f"timed {k}"), CHARGES)
                verifying = median_of(lambda _, ledger=ledger: ledger.verify(), 1)
            print(f"| {name} | {charging:.1f} | 20 | {opening:.0f} | 1000 | {verifying / 1e3:.0f} |", flush=True)
        rates = {writers: written_by(team, writers) for writers in (1, WRITERS)}
    print("\n| writers on PostgreSQL | charges / s | asked |\n|---|---|---|")
    for writers, rate in rates.items():
        print(f"| {writers} | {rate:.0f} | {200 if writers == WRITERS else ''} |")


if __name__ == "__main__":
    main()
