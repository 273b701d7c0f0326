"""The base of models of one's own; the models of this package have the same members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats


class Model(ABC):
    """A conjugate-exponential model: one declaration and three methods.

    A subclass is a frozen dataclass. Its fields are public: numbers, texts, None, and tuples of them. Its q is made of
    finite numbers and arrays, in dataclasses, named tuples, tuples, lists and dicts with names for keys; a field's type
    may declare a narrower domain (`dpvb.guards.domains`).

    Attributes:
        num_steps: number of releases of the steps; a field of the subclass where users may choose it.
        score_range: public ends of a row's score; a model that has them and `score` can be selected.
    """

    num_steps: int = 20
    score_range: ClassVar[tuple[float, float] | None] = None

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Block]:
        """The statistic that one unit contributes, and the bound of each of its parts."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> Any:
        """Q at the start; it depends on no data."""

    @abstractmethod
    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Expected statistics of every row of a batch, for the blocks that are asked for.

        Each row's come from that row, q and public constants alone, bit for bit. So no row is multiplied by BLAS
        (`@`, einsum), whose rounding depends on the rest of the batch: use `dpvb.kernels.linear`. And nothing is
        divided by the number of rows in the batch.
        """

    @abstractmethod
    def m_step(self, s: Estimate, q: Any) -> Any:
        """New q from released statistics: post-processing, outside the wall."""

    @property
    def schedule(self) -> Schedule:
        """Equal noise at every step; each step keeps only the newest release."""
        return Schedule((1.0,) * self.num_steps)

    def score(self, q: Any, batch: Any) -> Floats:
        """Score of each row, in nats, from that row alone, bit for bit; by it models are selected."""
        raise NotImplementedError
