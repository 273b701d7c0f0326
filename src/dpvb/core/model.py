"""What a model is: one declaration and three methods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol, TypeVar

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate

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

        Each row's come from that row, q and public constants alone, bit for bit. So no row is multiplied by BLAS
        (`@`, einsum), whose rounding depends on the rest of the batch: use `dpvb.kernels.linear`, or sums of rows. And
        the number of rows in the batch enters no statistic. The audit compares bits.
        """

    @abstractmethod
    def m_step(self, s: Estimate, q: Q) -> Q:
        """New q from released statistics: post-processing, outside the wall."""
