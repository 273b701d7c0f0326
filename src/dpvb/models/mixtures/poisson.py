"""Counts of a mixture: Poisson columns, their scores (x - λ_k)/√λ_k, and updates."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import tuned


def log_density(count_np: Floats, rate_kp: Floats) -> Floats:
    """Log-probability of every row under every component, (n, K), in nats."""
    # Row by row in memory: sums over an array's last axis follow its layout, and one row has another than many.
    count_np = np.ascontiguousarray(count_np)
    each_nkp = count_np[:, None, :] * np.log(rate_kp) - rate_kp - gammaln(count_np + 1)[:, None, :]
    return np.asarray(np.add.reduce(each_nkp, axis=2))


def moved(rate_kp: Floats, shift_kp: Floats, most_p: Floats) -> Floats:
    """Rates after a step of so many standard deviations, within public limits."""
    return np.clip(rate_kp + np.sqrt(rate_kp) * shift_kp, tuned.LEAST_RATE * np.minimum(most_p, 1.0), most_p)
