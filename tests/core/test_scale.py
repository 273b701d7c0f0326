"""The simulation of a cluster, against costs that are known."""

from __future__ import annotations

import math

import pytest

from benchmarks.scale import ADDED_A_SECOND, BYTES_A_SECOND, CORES, EFFICIENCY, Plan, simulated

PLAN = Plan(work=1e6, told=4e8, sums=8e8, driver=5.0, steps=3)


@pytest.mark.parametrize(("workers", "levels"), [(1, []), (4, [3]), (16, [3, 3]), (6, [3, 1])])
def test_ideal_workers_take_what_the_costs_add_up_to(workers: int, levels: list[int]) -> None:
    told = math.ceil(math.log2(workers + 1)) * PLAN.told / BYTES_A_SECOND
    total = sum(levels) * PLAN.sums * (1 / BYTES_A_SECOND + 1 / ADDED_A_SECOND)
    step = told + PLAN.work / (workers * CORES * EFFICIENCY) + total + PLAN.sums / BYTES_A_SECOND + PLAN.driver
    assert simulated(PLAN, workers, 0, faults=False) == (pytest.approx(3 * step), 0)


def test_failures_are_done_again_and_cost_time() -> None:
    plan = PLAN._replace(work=1e9)
    ideal, none = simulated(plan, 20, 0, faults=False)
    real, again = simulated(plan, 20, 0, faults=True)
    assert none == 0 < again
    assert real > ideal
