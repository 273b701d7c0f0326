"""Rows drawn from components: what a synthetic table is made of, in the model's own numbers."""

from __future__ import annotations

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.mixtures import categorical
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Components


def drawn_rows(
    now: Components, columns: Columns, number: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Ints, Ints]:
    """So many rows: numbers and counts within their public ranges, places of categories, and the component of each."""
    k_n = rng.choice(len(now.number_k), size=number, p=now.number_k / now.number_k.sum())
    normal_nd = rng.standard_normal((number, columns.numbers))
    x_nd = now.mean_kd[k_n] + np.einsum("nij,nj->ni", now.root_kdd[k_n], normal_nd)
    count_np = np.minimum(rng.poisson(now.rate_kp[k_n]), columns.most_p)
    probability_kv = categorical.normalised(now.expected_kv, columns.sizes)
    code_nj = categorical.drawn_codes(probability_kv, k_n, columns.sizes, rng)
    return np.clip(x_nd, -1, 1), count_np, code_nj, k_n
