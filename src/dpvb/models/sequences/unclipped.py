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
from dpvb.models.sequences.gram_weights import Moments, Shape
from dpvb.models.sequences.kalman import LinearSystem

# Times that people are drawn, how often weights are set each time, and the deviations of all moments together below
# which this ends. A change of what is put back is taken so much further, as the next one goes the same way.
_TIMES, _AGAIN, _NEAR, _FURTHER = 12, 2, 0.5, 0.5
# What the clip leaves of a person at least, if the system is to be believed.
_LEFT = 0.4


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
    # The same people each time: so they end where they agree with the system.
    given = share_l, shape.window, shape.unit_e, clip
    found, moved = gram_posterior.fit(blocks, shape, system), np.inf
    people = drawn_windows.drawn(found.system(shape), *given, np.random.default_rng(0))
    for _ in range(_TIMES):
        if people.left(shape.unit_e[-1]) < _LEFT:
            break
        with_more = [_further(one, taken_e) for one, taken_e in zip(blocks, people.taken_be, strict=False)]
        other = gram_posterior.fit(with_more, shape, found.system(shape), _AGAIN)
        before, moved = moved, float(np.linalg.norm(other.shown(with_more, shape) - found.shown(blocks, shape)))
        if not moved < before:  # Noise, or a clip that takes nearly all: what is put back has no end.
            break
        blocks, found = with_more, other
        people = drawn_windows.drawn(found.system(shape), *given, np.random.default_rng(0))
        if moved < _NEAR:
            break
    variance_pp = found.covariance(blocks, people, shape)
    drawn_sp = found.drawn(variance_pp, shape, draws, np.random.default_rng(1))
    return {"system": found.system(shape), "drawn_sp": drawn_sp}


def _further(block: Moments, taken_e: Floats) -> Moments:
    """A block with what is taken, and some more."""
    taken_ee = taken_e.reshape(block.gram.shape)
    return replace(block, taken=taken_ee + _FURTHER * (taken_ee - block.taken))
