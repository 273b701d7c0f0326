"""Posterior means of numbers seen through noise, under a prior that is a mixture of normals on a grid, compiled.

Everything is in units of an entry's own noise: u = x/sd was seen, w = m/sd is the prior mean. Atom g is
N(w r_g, (width_g w r_g)²). A number's dtype is that of `ratios_g`. All of it is finite, and public.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

from functools import partial

import numpy as np

from dpvb.kernels.compiled import compiled

_fast = partial(compiled, fastmath=True)


@_fast
def _likelihood(u, w, ratios_g, width_g, out_g):
    """Marginal likelihood of an entry under every atom, over the factor that makes its largest exponential 1."""
    one, half = ratios_g.dtype.type(1), ratios_g.dtype.type(0.5)
    most, scale = ratios_g.dtype.type(80), ratios_g.dtype.type(-1 / 256)
    c2, c3, c4, c5 = half, ratios_g.dtype.type(1 / 6), ratios_g.dtype.type(1 / 24), ratios_g.dtype.type(1 / 120)
    least = ratios_g.dtype.type(1e37)
    for g in range(ratios_g.size):
        center, tau = w * ratios_g[g], width_g[g] * w * ratios_g[g]
        out_g[g] = half * (u - center) * (u - center) / (one + tau * tau)
        least = min(least, out_g[g])
    for g in range(ratios_g.size):
        tau = width_g[g] * w * ratios_g[g]
        # exp(-t) = exp(-t/256)^256: no call and no table, so that the loop stays in vector registers.
        t = min(out_g[g] - least, most) * scale
        e = one + t * (one + t * (c2 + t * (c3 + t * (c4 + t * c5))))
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        out_g[g] = e / np.sqrt(one + tau * tau)


@_fast
def likelihoods(u_n, w_n, ratios_g, width_g, out_ng):
    """Marginal likelihood of every entry under every atom, up to a factor of the entry."""
    for n in range(u_n.size):
        _likelihood(u_n[n], w_n[n], ratios_g, width_g, out_ng[n])


@_fast
def posterior_means(u_n, w_n, bin_n, weights_bg, ratios_g, width_g, likelihood_g, out_n):
    """Posterior mean of every entry, in units of its noise, under the weights of its bin; `likelihood_g` is scratch."""
    one, zero = ratios_g.dtype.type(1), ratios_g.dtype.type(0)
    for n in range(u_n.size):
        u, w, weights_g = u_n[n], w_n[n], weights_bg[bin_n[n]]
        _likelihood(u, w, ratios_g, width_g, likelihood_g)
        total, mean = zero, zero
        for g in range(ratios_g.size):
            center = w * ratios_g[g]
            spread = (width_g[g] * center) * (width_g[g] * center)
            share = weights_g[g] * likelihood_g[g]
            total += share
            mean += share * (center + spread / (one + spread) * (u - center))
        out_n[n] = mean / total
