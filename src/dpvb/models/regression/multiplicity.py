"""Rows that count as several: what a row of weight w adds is w times what it would add alone, and so are its bounds.

So a row of weight 2 is the row twice, a row of weight 0 is none, and the likelihood of a row is raised to its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.forms import Gram, Rows, ScaledRows, SparseRows
from dpvb.guards.arrays import Floats
from dpvb.models.regression.likelihood import Likelihood


def bounded(blocks: Mapping[str, Block], likelihood: Likelihood) -> dict[str, Block]:
    """Blocks of rows that count once, for rows of weights up to the bound that a likelihood states."""
    most = likelihood.max_weight or 1.0
    return {name: replace(block, bound=most * block.bound) for name, block in blocks.items()}


def times(e_step: Callable[..., Contributions]) -> Callable[..., Contributions]:
    """An E-step of rows that count once, made one of rows of any weight."""

    @wraps(e_step)
    def weighted(model: Any, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        found = e_step(model, q, batch, blocks)
        if batch.weight_n is None:
            return found
        # A row of weight 0 is none, in the number of units that counted, too.
        weight_n = np.where(batch.weight_n > 0, batch.weight_n, np.nan)
        return {name: _times(one, weight_n) for name, one in found.items()}

    return weighted


def _times(form: Any, weight_n: Floats) -> Any:
    """What rows add, times their weights."""
    match form:
        case Rows():
            return replace(form, values=form.values * weight_n[:, None])
        case SparseRows():
            return replace(form, values=form.values * np.repeat(weight_n, np.diff(form.indptr)))
        case Gram() | ScaledRows():
            return replace(form, scale_n=form.scale_n * weight_n)
    raise TypeError(type(form))  # Regressions have no other form.
