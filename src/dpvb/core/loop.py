"""The loop of private variational Bayes: any model, any plan, and no data in scope."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import numpy as np

from dpvb.core.blocks import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.model import Batch, Model, Q, StepSize, e_step_q, m_step_q, updated
from dpvb.core.plan import Plan, Release
from dpvb.core.wall import Wall
from dpvb.guards import domains


def query(model: Model[Q, Batch], q: Q, release: Release) -> Callable[[Batch], Contributions]:
    """Compute what a release needs of private rows: the model's statistics at q, for the blocks of the release.

    Rows meet copies of the model and of the part of q that the E-step reads, which end with the release: what an E-step
    writes into them is lost.

    Raises:
        PrivacyError: for a q with a number that is not finite or outside the domain that its class declares.
    """
    model, q = deepcopy((model, e_step_q(model, domains.checked(q), release.asked)))
    return partial(model.e_step, q, blocks=release.asked)


def fit(
    model: Model[Q, Batch],
    wall: Wall[Batch],
    plan: Plan,
    *,
    rho: StepSize,
    rng: np.random.Generator,
    on_step: Callable[[int, Q], object] = lambda t, q: None,
) -> tuple[Q, Estimate]:
    """Run the plan to its end and return the last q with the last estimate.

    Args:
        model: public.
        wall: holds the private data and this very plan.
        plan: public, fixed beforehand.
        rho: public step sizes.
        rng: public randomness of the start.
        on_step: called with (t, q) after each step; both are public by then.

    Raises:
        PrivateComputationError: if a computation behind the wall failed; what was charged stays charged.
        PrivacyError: if a q left its domain, as far too much noise can make it; what was charged stays charged.
    """
    q = model.init(rng)
    s = Estimate.empty(model.blocks)
    for t, release in enumerate(plan, start=1):
        asked, q = query(model, q, release), m_step_q(model, q, release.asked)
        s = s.update(wall.release(asked, release), rho(t))
        del asked  # Memory holds one q at a time, and parts of it.
        q = updated(model, s, q)
        on_step(t, q)
    return q, s
