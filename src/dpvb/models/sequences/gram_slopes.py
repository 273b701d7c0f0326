"""The law of windows of a linear dynamical system, and how it moves with every number of the system; all is public.

    cov z_t+1 = A (cov z_t) Aᵀ + Q,   cov(z_s+1, z_t) = A cov(z_s, z_t),   mean x = C mean z + d

and their derivatives, all numbers of the system at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import system_vector


class Slopes(NamedTuple):
    """Mean and covariance of what a window shows, (W D), and their derivatives by the P numbers of a system."""

    mean_f: Floats
    cov_ff: Floats
    mean_pf: Floats
    cov_pff: Floats


def slopes(vector_p: Floats, k: int, d: int, window: int, *, starts: bool, first: str) -> Slopes:
    """The law of windows whose first state has the law `first`, "pooled" or "start", as `system_vector` has them."""
    system = system_vector.unpacked(vector_p, k, d, starts=starts)
    place = dict(system_vector.parts(k, d, starts=starts))
    size = len(vector_p)
    a_kk, c_dk = system.step_kk, system.shown_dk
    step_pkk, noise_pkk, first_pkk = (np.zeros((size, k, k)) for _ in range(3))
    first_pk, shown_pdk = np.zeros((size, k)), np.zeros((size, d, k))
    step_pkk[place["step_kk"]] = np.eye(k * k).reshape(-1, k, k)
    shown_pdk[place["shown_dk"]] = np.eye(d * k).reshape(-1, d, k)
    noise_pkk[place["step_noise_kk"]] = system_vector.root_slopes(vector_p[place["step_noise_kk"]], k)
    if first == "start" and starts:
        first_pkk[place["start_kk"]] = system_vector.root_slopes(vector_p[place["start_kk"]], k)
    mean_k, cov_kk = getattr(system, f"{first}_k"), getattr(system, f"{first}_kk")
    first_pk[place[f"{first}_k" if starts else "pooled_k"]] = np.eye(k)

    mean_wk, mean_pwk = np.empty((window, k)), np.empty((size, window, k))
    cov_wkwk, cov_pwkwk = np.empty((window, k, window, k)), np.empty((size, window, k, window, k))
    for t in range(window):
        mean_wk[t], mean_pwk[:, t], later_kk, later_pkk = mean_k, first_pk, cov_kk, first_pkk
        cov_wkwk[t, :, t], cov_pwkwk[:, t, :, t] = cov_kk, first_pkk
        for s in range(t + 1, window):
            later_pkk, later_kk = step_pkk @ later_kk + a_kk @ later_pkk, a_kk @ later_kk
            cov_wkwk[s, :, t], cov_wkwk[t, :, s] = later_kk, later_kk.T
            cov_pwkwk[:, s, :, t], cov_pwkwk[:, t, :, s] = later_pkk, later_pkk.swapaxes(1, 2)
        both_pkk = step_pkk @ cov_kk @ a_kk.T
        first_pkk = both_pkk + both_pkk.swapaxes(1, 2) + a_kk @ first_pkk @ a_kk.T + noise_pkk
        first_pk = step_pkk @ mean_k + first_pk @ a_kk.T
        mean_k, cov_kk = a_kk @ mean_k, a_kk @ cov_kk @ a_kk.T + system.step_noise_kk

    f = window * d
    one_wkf = np.einsum("wkvj,dj->wkvd", cov_wkwk, c_dk).reshape(window, k, f)  # states with what is seen
    cov_ff = np.einsum("ck,wkf->wcf", c_dk, one_wkf).reshape(f, f) + np.diag(np.tile(system.noise_d, window))
    moved_pff = np.einsum("pck,wkf->pwcf", shown_pdk, one_wkf, optimize=True).reshape(size, f, f)
    cov_pff = moved_pff + moved_pff.swapaxes(1, 2)
    cov_pff += (c_dk @ (cov_pwkwk.reshape(size, window, k, window, k) @ c_dk.T).reshape(size, window, k, f)).reshape(
        size, f, f
    )
    at, spot = np.arange(f), np.tile(np.arange(d), window)
    cov_pff[place["noise_d"].start + spot, at, at] += system.noise_d[spot]
    mean_f = (mean_wk @ c_dk.T + system.shown_d).ravel()
    mean_pwd = mean_pwk @ c_dk.T + np.einsum("pdk,wk->pwd", shown_pdk, mean_wk)
    mean_pwd[place["shown_d"]] += np.eye(d)[:, None, :]
    return Slopes(mean_f, cov_ff, mean_pwd.reshape(size, f), cov_pff)
