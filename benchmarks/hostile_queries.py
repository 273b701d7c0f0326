"""Ten thousand hostile q for each model: `python -m benchmarks.hostile_queries [count]`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from dpvb.audit import NAMES, shipped
from dpvb.audit.queries import check_queries

COUNT = 10_000


def ask(which: tuple[str, int, int]) -> list[tuple[str, bool, str, float]]:
    name, place, count = which
    start = time.perf_counter()
    found = [*check_queries(shipped(name)[place], count)]
    return [(check.subject, check.passed, check.measured, time.perf_counter() - start) for check in found]


def main(count: int) -> None:
    asked = [(name, place, count) for name in NAMES for place in range(len(shipped(name)))]
    print("## Hostile q\n")
    print("Every q is an honest one with some numbers changed, or the accepted one at which two records were farthest")
    print(
        "apart. Norms are over the bound, distances over what is accounted; sums of alone = sum of all, bit for bit.\n"
    )
    print("| model | law | found | s |\n|---|---|---|---|")
    broken = 0
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for rows in pool.map(ask, asked):
            for subject, passed, measured, seconds in rows:
                broken += not passed
                print(f"| {subject} | {'holds' if passed else 'BROKEN'} | {measured} | {seconds:.0f} |", flush=True)
    print(f"\n{len(asked)} models, {broken} broken.")
    if broken:
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else COUNT)
