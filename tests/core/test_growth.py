"""Time and memory in the number of units: exponents of few small points; all points are in `benchmarks growth`."""

from __future__ import annotations

import pytest

from benchmarks.growth import AXES, above_limits, exponents, point

LIMITED = [name for name, axis in AXES.items() if axis.most_time is not None]


def test_exponents_are_those_of_powers() -> None:
    sizes = (10, 100, 1000)
    assert exponents(sizes, [n**1.5 for n in sizes]) == pytest.approx((1.5, 1.5))
    axis = AXES["fixed_size"]
    assert above_limits(axis, sizes, [1e-3 * n**1.2 for n in sizes], [5.0] * 3) == ["time: 1.20 above 1.1"]
    assert above_limits(axis, sizes, [1.0] * 3, [20.0 * n for n in sizes]) == ["memory: 1.00 above 0.1"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITED)
def test_cost_grows_no_faster_than_the_number_of_units(name: str) -> None:
    sizes = AXES[name].short
    seconds, memory = zip(*(point(name, size) for size in sizes), strict=True)
    assert above_limits(AXES[name], sizes, [*seconds], [*memory]) == []
