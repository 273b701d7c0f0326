"""What is learned of topics, all of it public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import NONNEGATIVE, SIMPLEX, Nonnegative, Positives
from dpvb.models.expfam import dirichlet_expectedstats

# So that a topic whose mode is nowhere is the same everywhere.
_TINY: Final = 1e-300


def met(lambda_vk: Floats, *, means: bool, mode: bool) -> Floats:
    """What documents meet of topics with these Dirichlet parameters, (V, K): exp⟨log β⟩, or a point.

    Args:
        lambda_vk: the parameters.
        means: whether it is the mean.
        mode: whether it is the mode, where every parameter is 1 or more, and else the mean.
    """
    if not (means or mode):
        return np.exp(dirichlet_expectedstats(lambda_vk, axis=0))
    point_vk = lambda_vk - float(mode and lambda_vk.min() >= 1) + _TINY
    return np.asarray(point_vk / point_vk.sum(axis=0))


@dataclass(frozen=True)
class Earlier:
    """What was released of other people: linear sums, (V,) and (V, K), noise std of an entry, and units.

    Nothing may have been released of the topics.
    """

    words_v: Floats
    words_std: float
    sum_vk: Floats | None
    sum_std: float
    num_units: float


@dataclass(frozen=True)
class Topics:
    """q(β): λ and exp⟨log β⟩, (V, K), with released word probabilities and word weights, (V,), and α, (K,).

    What was released, as it came: words_v, (V,), and sum_vk, (V, K), are linear estimates, un-projected and unweighted,
    with the noise std of their words' entries; num_units is the released number of units.
    """

    lambda_vk: Positives
    beta_vk: Annotated[NDArray[np.floating], NONNEGATIVE]
    background_v: Annotated[Floats | None, SIMPLEX]
    word_weight_v: Positives
    alpha_k: Positives
    words_v: Floats | None = None
    words_std: Nonnegative = 0.0
    sum_vk: Floats | None = None
    sum_std_v: Annotated[Floats | None, NONNEGATIVE] = None
    num_units: float = 0.0
