"""Standard deviations of a chain's probabilities, by the delta method: of the sample, and of the privacy noise.

A row of counts T_b with total R gives P_b = (T_b + α m_b) / (R + α). The noise, of std σ on each of V counts, adds

    Var P_b = σ² (1 - 2 P_b + V P_b²) / (R + α)²,

and the sample adds P_b (1 - P_b) w / (R + α), with w = Σ M^(2p-1) / Σ M^p over persons of M windows each, as each
window counts M^(p-1). Σ M^p is the block's total S. Σ M^(2p-1) is N (S/N)^((2p-1)/p), N the released number of persons:
exact for p = 1/2 and p = 1, and where all persons have the same M; otherwise too much. It takes lengths to be
independent of symbols, and nobody to be shortened by the clip.
"""

from __future__ import annotations

import numpy as np

from dpvb.guards.arrays import Floats


def window_weight(total: float, persons: float, power: float) -> float:
    """The w of the head of this file."""
    total, persons = max(total, 1e-200), max(persons, 1e-200)
    return float((total / persons) ** ((2 * power - 1) / power) * persons / total)


def deviations(law: Floats, counts: Floats, prior_weight: float, weight: float, noise_std: float) -> Floats:
    """Standard deviation of each probability of a law, of its shape.

    Args:
        law: conditional probabilities, (..., V).
        counts: as they were read, of the same shape.
        prior_weight: α.
        weight: w.
        noise_std: σ; 0 leaves the noise out.
    """
    total = counts.sum(axis=-1, keepdims=True) + prior_weight
    total = np.maximum(total, 1e-150)
    noise = (noise_std / total) ** 2 * (1 - 2 * law + law.shape[-1] * law**2)
    return np.asarray(np.sqrt(np.maximum(noise + law * (1 - law) * weight / total, 0.0)))
