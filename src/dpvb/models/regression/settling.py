"""How far only noise moves the points of a path: the null distribution of the warning of few steps; public.

The warning is a test. Null hypothesis: the path has settled, so that only the noise of the scores, whose variance is
known exactly, moves its points u_t about the weights m. Statistic: Q = Σ_t w_t ‖u_t - m‖², the mean square over rows of
the ways in ψ, w_t the weights of the scores. In direction e of the eigenbasis the path then is

    u_{t+1} = x_{t+1} + β (x_{t+1} - x_t),   x_{t+1} = u_t - q u_t + (noise of variance n),   0 < q ≤ 1,

an autoregression of order 2. Its variance grows towards the steady one, n times

    ((1 + β)² + β² (1 + βs)/(1 - βs)) / (q (1 + s + 2βs)),   s = 1 - q.

m has noise of its own: the standard deviations of both are added (Minkowski's inequality). Q is a quadratic form of
normal numbers; in each direction it is compared with one square of its mean, the longest tail of that mean. The sum has
a scaled χ² with the first two moments of the sum (Satterthwaite 1946). A fit whose Q is beyond the quantile 1 - 1e-3
has not settled.
"""

from __future__ import annotations

import numpy as np
from scipy.special import chdtri

from dpvb.guards.arrays import Floats

# convention: the largest rate at which only noise makes a fit warn.
FALSE_ALARM = 1e-3


def steady_variance(slope_e: Floats, bound_e: Floats, noise_e: Floats, momentum: float) -> Floats:
    """Variances of the points of a path that only noise moves, (e,).

    Args:
        slope_e: minus the derivative of the gradient.
        bound_e: what gradients are divided by, at least `slope_e`.
        noise_e: noise variances of the gradient.
        momentum: β.
    """
    q_e = slope_e / bound_e
    kept_e = momentum * (1.0 - q_e)
    grown_e = (1.0 + momentum) ** 2 + momentum**2 * (1.0 + kept_e) / (1.0 - kept_e)
    return np.asarray(noise_e / bound_e**2 * grown_e / (q_e * (2.0 - q_e + 2.0 * kept_e)))


def farthest(mean_e: Floats) -> float:
    """Return the quantile 1 - `FALSE_ALARM` of Q from its mean in each direction, (e,)."""
    total = float(mean_e.sum())
    if total <= 0.0:
        return 0.0
    unit = float(mean_e @ mean_e) / total
    return unit * float(chdtri(total / unit, FALSE_ALARM))
