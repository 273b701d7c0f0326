"""How much noise the weights of a belief network will hold, from public numbers alone; unit: a binary vector."""

from __future__ import annotations

import math

from dpvb.core.schedule import StepSize
from dpvb.models.belief_network.first_order import SBN

# Curvature of a visible unit that is as often on as off; how much more noise weights hold at ridge 1, as hidden units
# are seldom as spread and lean on each other. Benchmark `forecasts` chose it.
_CURVATURE, _LEANING = 0.25, 6.5


def seen(model: SBN, std: float) -> float:
    """Noise in a weight as fits show it, from that of the steps alone; weights beyond 1 are drawn back."""
    return min(_LEANING / max(model.ridge, 1.0) * std, 1.0)


def noise_of_weights(model: SBN, stds: list[float], rho: StepSize, n: float) -> float:
    """Standard deviation of what the noise of all steps adds to a weight whose unit stands alone.

    Args:
        model: with its bounds.
        stds: noise std of a gradient at each step.
        rho: step sizes; the first release makes no step.
        n: number of examples.
    """
    spread, variance = model.start_mean * (1 - model.start_mean), 0.0
    for t, std in enumerate(stds, start=2):
        noise, step = std / n, rho(t)
        kept = 1.0 - step * spread / (spread + model.ridge * noise)
        variance = kept**2 * variance + (step * noise / (_CURVATURE * (spread + model.ridge * noise))) ** 2
    return math.sqrt(variance)
