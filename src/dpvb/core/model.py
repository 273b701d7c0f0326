"""The interface of a model: its schedule, one declaration, a start, an E-step, and methods that follow each release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.guards.errors import check_number

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

        The statistics of a row depend only on that row, q and public constants, bit for bit; or on all rows of its
        person, if rows have persons (`source.RowsOfPersons`). So no row is multiplied by BLAS (`@`, einsum), whose
        rounding depends on the rest of the batch: use `dpvb.kernels.linear`, or sums of rows. And the number of rows
        in the batch enters no statistic. The audit compares bits.
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


def e_step_q(model: Model[Q, Batch], q: Q, blocks: Mapping[str, Block]) -> Q:
    """Return the part of q that the E-step reads for these blocks: workers and clients get no more than this part.

    A model may have a method `e_step_q(q, blocks)`; if it has none, the part is q. The E-step has the same bits at q
    and at the part. The part of the part is itself.
    """
    of_model = getattr(model, "e_step_q", None)
    return q if of_model is None else of_model(q, blocks)


def m_step_q(model: Model[Q, Batch], q: Q, blocks: Mapping[str, Block]) -> Q:
    """Return the part of q that is read after a release of these blocks: a fit holds no more than this meanwhile.

    A model may have a method `m_step_q(q)`; if it has none, the part is q. `m_step` has the same bits at q and at the
    part. The part of a q after which `started` or `finished` is called is q.
    """
    of_model = getattr(model, "m_step_q", None)
    return of_model(q) if of_model is not None and all(b.phase == "step" for b in blocks.values()) else q


def updated(model: Model[Q, Batch], s: Estimate, q: Q) -> Q:
    """Return q after the newest release: the one place where its phase chooses the model's method."""
    match s.phase:
        case "step":
            return model.m_step(s, q)
        case "last":
            return model.finished(s, q)
        case _:
            return model.started(s, q)


#: Default part of the budget for the release of each phase other than the steps.
SHARES: Mapping[str, float] = MappingProxyType({"first": 0.1, "second": 0.1, "third": 0.1, "midway": 0.01, "last": 0.1})
#: Part of the steps that are released before blocks of phase "midway". Benchmark `topics_or_words` shows its effect.
MIDWAY = 0.4

#: The step size of step t = 1, 2, ...
StepSize = Callable[[int], float]


def robbins_monro(learning_offset: float, learning_decay: float) -> StepSize:
    """Return step sizes ρ_t = (τ0 + t)^-κ for t = 1, 2, ... (Hoffman et al. 2010)."""
    check_number("learning_offset", learning_offset, low=0, high=1e12)
    check_number("learning_decay", learning_decay, low=0, high=1)
    return lambda t: float((learning_offset + t) ** -learning_decay)


def constant(rho: float) -> StepSize:
    """Return the same step size ρ for every step; 1 uses only the newest release."""
    check_number("rho", rho, low=0, high=1, closed="right")
    return lambda t: rho


@dataclass(frozen=True)
class Schedule:
    """Schedule of a model: noise, budget and step sizes; all of it is public.

    Attributes:
        noise: Noise multiplier of each step, relative to the other steps, greater than 0; the length is the number of
            steps.
        budget: Share of the privacy budget of each phase other than "step", by phase; shares of Σ p²/σ². Default: those
            of `dpvb.core.model.SHARES`.
        rho: Function from the number of a step to its step size in (0, 1]. Default: 1, only the newest release.

    Examples:
        >>> import dpvb
        >>> len(dpvb.Schedule((1.0,) * 20).noise)
        20
    """

    noise: Sequence[float]
    budget: Mapping[str, float] = field(default_factory=lambda: SHARES)
    rho: StepSize = field(default_factory=lambda: constant(1.0))
