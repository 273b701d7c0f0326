"""The forecast of any model at all: how far noise moves the mean of what its units add."""

from __future__ import annotations

import math

from dpvb.core.counting import COUNTS
from dpvb.core.plan import Plan
from dpvb.guards.arrays import Floats
from dpvb.results.forecast import Forecast, two_digits

#: A mean that noise moves by this part of what one unit may add at most.
CLEAR = 0.1


def of_means(unit: str, plan: Plan, n: float) -> Forecast:
    """The length of the noise of every block's mean over all its releases, as a part of the block's bound.

    Args:
        unit: in words.
        plan: its releases, calibrated.
        n: number of units; public.
    """
    precision: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for release in plan:
        for name in release.blocks.keys() - COUNTS.keys():
            block, std = release.blocks[name], release.noise_std(name) / release.mechanism.sampler.sampling_prob
            sizes[name] = math.prod(block.packed_shape)
            precision[name] = precision.get(name, 0.0) + (block.bound / std) ** 2 if std > 0 else math.inf
    parts = {name: math.sqrt(sizes[name] / precision[name]) / n for name in precision}
    worst = max(parts, key=lambda name: parts[name])
    strength = CLEAR / parts[worst] if parts[worst] > 0 else math.inf
    return Forecast(
        num_units=n,
        unit=unit,
        facts=f"{sum(sizes.values()):,} released numbers",
        measure="noise of the mean of what units add, over its bound",
        values=((worst, parts[worst]), *((name, part) for name, part in parts.items() if name != worst)),
        expected=f"noise of {two_digits(parts[worst])} of a {unit}'s bound in the mean of {worst!r}",
        strength=strength,
        then="a tenth",
        size="released numbers",
        parts=sum(sizes.values()),
        affordable=sum(sizes.values()) * strength**2,
    )


def averaged(stds: list[float]) -> float:
    """Noise std of the mean of several releases, each by its precision."""
    return 0.0 if min(stds) == 0 else math.fsum(std**-2 for std in stds) ** -0.5


def stds_of(plan: Plan, name: str) -> list[float]:
    """Noise std of the full-data sum of a block by each of its releases, in their order."""
    return [
        release.noise_std(name) / release.mechanism.sampler.sampling_prob for release in plan if name in release.blocks
    ]


def middle(values: Floats) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values.tolist())) / len(values))
