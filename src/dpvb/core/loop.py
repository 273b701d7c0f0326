"""The loop of private variational Bayes: any model, any plan, and no data in scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.plan import Plan, Release
from dpvb.core.schedule import StepSize
from dpvb.core.wall import Wall
from dpvb.guards import domains

Q = TypeVar("Q")
Batch = TypeVar("Batch", contravariant=True)


class Model(Protocol[Q, Batch]):
    """A conjugate-exponential model: one declaration and three methods; all its fields are public.

    The class of its q declares the domain of every field (see `domains`).
    """

    @property
    def blocks(self) -> Mapping[str, Block]:
        """The statistic that one unit contributes."""

    def init(self, rng: np.random.Generator) -> Q:
        """Data-independent start."""

    def e_step(self, q: Q, batch: Batch, blocks: Mapping[str, Block]) -> Contributions:
        """Expected statistics of every row of a batch, each from that row, q and public constants alone, bit for bit.

        No BLAS on rows: `batch @ matrix` rounds a row's product by the size of the batch. `kernels.linear.product` does
        not, nor do row sums. The number of rows in a batch enters no statistic. The audit compares bits.
        """

    def m_step(self, s: Estimate, q: Q) -> Q:
        """New q from released statistics: post-processing, outside the wall."""


def query(model: Model[Q, Batch], q: Q, release: Release) -> Callable[[Batch], Contributions]:
    """What a release asks of private rows: the model's statistics at q, for the blocks of the release.

    Rows meet copies of the model and of q, which end with the release: what an E-step writes into them reaches nobody.

    Raises:
        PrivacyError: for a q with a number that is not finite or outside the domain that its class declares.
    """
    model, q = deepcopy((model, domains.checked(q)))
    return partial(model.e_step, q, blocks=release.asked)


def fit(
    model: Model[Q, Batch],
    wall: Wall[Batch],
    plan: Plan,
    *,
    rho: StepSize,
    rng: np.random.Generator,
    projection: Any = "read",
    on_step: Callable[[int, Q], object] = lambda t, q: None,
) -> tuple[Q, Estimate]:
    """Run the plan to its end and return the last q with the last estimate.

    Args:
        model: public.
        wall: holds the private data and this very plan.
        plan: public, fixed beforehand.
        rho: public step sizes.
        rng: public randomness of the start.
        projection: "read" keeps the running estimate linear; "step" projects it at every step (the papers).
        on_step: called with (t, q) after each step; both are public by then.

    Raises:
        WallError: if a computation behind the wall failed; what was charged stays charged.
        PrivacyError: if a q left its domain, as far too much noise can make it; what was charged stays charged.
    """
    q = model.init(rng)
    s = Estimate.empty(model.blocks, projection)
    for t, release in enumerate(plan, start=1):
        released = wall.release(query(model, q, release), release)
        s = s.update(released, rho(t))
        q = model.m_step(s, q)
        on_step(t, q)
    return q, s
