"""The posterior of a linear dynamical system, with what the clip takes of its own people put back; all of it is public.

A clip shortens windows that are long, and so makes a system look stiller than it is. How much it takes of the moments
follows from the system (`drawn_windows`), and is put back: the posterior is found anew, until both agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import drawn_windows, gram_posterior
from dpvb.models.sequences.gram_posterior import Moments, Shape
from dpvb.models.sequences.kalman import LinearSystem

# Times that people are drawn, how often weights are set each time, and parts of a deviation below which this ends.
_TIMES, _AGAIN, _NEAR = 10, 2, 0.1


def unclipped_posterior(
    blocks: Sequence[Moments], shape: Shape, system: LinearSystem, share_l: Floats, clip: float, draws: int
) -> dict[str, Any]:
    """The system at the middle of its posterior, and `drawn_sp`, systems that are drawn from it.

    Args:
        blocks: released moments, of "pooled" windows first.
        shape: sizes.
        system: where to start.
        share_l: shares of the lengths of people's sequences.
        clip: C, in the model's units.
        draws: S.
    """
    found = gram_posterior.fit(blocks, shape, system)
    for _ in range(_TIMES):
        made, before_e = found.system(shape), found.shown(blocks, shape)
        # The same people each time: so they end where they agree with the system.
        people = drawn_windows.drawn(made, share_l, shape.window, shape.unit_e, clip, np.random.default_rng(0))
        blocks = [
            replace(one, taken=taken_e.reshape(one.gram.shape))
            for one, taken_e in zip(blocks, people.taken_be, strict=False)
        ]
        found = gram_posterior.fit(blocks, shape, made, _AGAIN)
        if np.abs(found.shown(blocks, shape) - before_e).max() < _NEAR:
            break
    variance_pp = found.covariance(blocks, people.covariance(found.score_bpe, float(found.number_b[0])))
    drawn_sp = found.drawn(variance_pp, shape, draws, np.random.default_rng(1))
    return {"system": found.system(shape), "drawn_sp": drawn_sp}
