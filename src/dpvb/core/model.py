"""The interface of a model: one declaration, a start, an E-step, and methods that follow each release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate

#: Result of a fit: a posterior, or a point estimate from expectation maximisation.
PosteriorOrMAP = Literal["posterior", "map"]
ESTIMATES: tuple[PosteriorOrMAP, ...] = get_args(PosteriorOrMAP)

Q = TypeVar("Q")
Batch = TypeVar("Batch", contravariant=True)


class Model(Protocol[Q, Batch]):
    """A conjugate-exponential model; all its fields are public.

    The class of its q declares the domain of every field (see `guards.domains`).
    """

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Block]:
        """The statistic that one unit contributes, and the bound of each of its parts."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> Q:
        """Q at the start; it depends on no data."""

    @abstractmethod
    def e_step(self, q: Q, batch: Batch, blocks: Mapping[str, Block]) -> Contributions:
        """Expected statistics of every row of a batch, for the blocks that are asked for.

        Each row's come only from that row, q and public constants, bit for bit, or from all rows of its person if rows
        have persons (`source.RowsOfPersons`). So no row is multiplied by BLAS (`@`, einsum), whose rounding depends on
        the rest of the batch: use `dpvb.kernels.linear`, or sums of rows. And the number of rows in the batch enters no
        statistic. The audit compares bits.
        """

    # The methods after a release are post-processing of released statistics, outside the wall.

    def started(self, s: Estimate, q: Q) -> Q:
        """Return q after a release of blocks of phase "first", "second", "third" or "midway"; see `s.phase`."""
        return q

    def m_step(self, s: Estimate, q: Q) -> Q:
        """Return q after a step: a release of blocks of phase "step"."""
        return q

    def finished(self, s: Estimate, q: Q) -> Q:
        """Return q after the release of the blocks of phase "last"."""
        return q


def updated(model: Model[Q, Batch], s: Estimate, q: Q) -> Q:
    """Return q after the newest release: the one place where its phase chooses the model's method."""
    match s.phase:
        case "step":
            return model.m_step(s, q)
        case "last":
            return model.finished(s, q)
        case _:
            return model.started(s, q)
