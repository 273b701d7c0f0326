"""Running estimate of full-data statistics: post-processing of releases, and the only input of an M-step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import final

import numpy as np

from dpvb.core.blocks import PHASES, Block, Phase, row_blocks
from dpvb.core.counting import CLIPPED, COUNTS, INCLUDED, Counts
from dpvb.core.released import Released, ReleaseReceipt
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import PrivacyError

_SEAL = object()


def _between(fresh: Floats, before: Floats | None, step: float) -> Floats:
    """Return step · fresh + (1 - step) · before, with no other array of their size; None counts as 0."""
    new = step * fresh
    for rows in row_blocks(fresh.shape):
        new[rows] += 0.0 if before is None else (1 - step) * before[rows]
    return new


@final
@dataclass(frozen=True, repr=False)
class Estimate:
    """Running estimate of full-data statistics, S̄_t = (1-ρ)S̄_{t-1} + ρ T_t/p, linear and not projected.

    T_t is a release, and p its sampling probability. An M-step uses `noisy` (the linear estimate), `project` (its
    projection onto the domain) and `noise_std`. All three are corrected for the start S̄_0 = 0: they are divided by the
    sum of the weights of the releases. `Estimate.empty` and the wall create instances; models only use them.

    Attributes:
        rho: Step size of the newest release, in (0, 1]. Default: 1.
        phase: Phase of the blocks of the newest release. Default: "first".
        receipt: Receipt of the newest release. None (default): there is none yet.
        seal: Internal. Default: None.
        _blocks, _mean, _variance, _mass, _later: Internal: blocks, linear estimates, noise variances, sums of weights,
            and the same after the phase "midway". Default: none.

    Examples:
        >>> import dpvb
        >>> len(dpvb.Estimate.empty({"count": dpvb.Block((1,), 1.0)}).names)
        0
    """

    _blocks: Mapping[str, Block]
    _mean: Mapping[str, Floats] = field(default_factory=dict)
    _variance: Mapping[str, float] = field(default_factory=dict)
    _mass: Mapping[str, float] = field(default_factory=dict)
    # Mean of the releases after that of phase "midway", by block, weighted by precision; its variance; sum of weights.
    _later: Mapping[str, tuple[Floats, float, float]] = field(default_factory=dict)
    seal: InitVar[object] = None
    rho: float = 1.0
    receipt: ReleaseReceipt | None = None
    phase: Phase = "first"

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise PrivacyError("Estimate objects are created only by Estimate.empty and Estimate.update.")

    @classmethod
    def empty(cls, blocks: Mapping[str, Block]) -> Estimate:
        """Return the estimate before any release."""
        return cls(blocks, seal=_SEAL)

    @classmethod
    def total(cls, parts: Sequence[Estimate]) -> Estimate:
        """Return the estimate of sums over several data sets from the estimates of each."""
        last = parts[-1]
        names = frozenset[str].intersection(*(part.names for part in parts))
        mean = {name: np.add.reduce([part._mean[name] / part._mass[name] for part in parts]) for name in names}
        variance = {name: math.fsum(part._variance[name] / part._mass[name] ** 2 for part in parts) for name in names}
        mass = dict.fromkeys(names, 1.0)
        later = {}
        for name in names.intersection(*(part._later for part in parts)):
            mean_of_part, variance_of_part, _ = zip(*(part._later[name] for part in parts), strict=True)
            later[name] = (np.add.reduce(mean_of_part), math.fsum(variance_of_part), 1.0)
        phase = min((part.phase for part in parts), key=PHASES.index)
        return cls(last._blocks, mean, variance, mass, later, _SEAL, last.rho, last.receipt, phase)

    def update(self, released: Released, rho: float) -> Estimate:
        """Add one release with step size rho in (0, 1]; a score replaces the previous one.

        Raises:
            PrivacyError: If arrays of the release do not have the shapes of the blocks.
        """
        mean, variance, mass, later = dict(self._mean), dict(self._variance), dict(self._mass), dict(self._later)
        is_later = any(self._blocks[name].phase == "midway" for name in self._mean if name not in COUNTS)
        for name, total in released.total.items():
            block = COUNTS.get(name) or self._blocks[name]
            if total.shape != block.packed_shape:
                raise PrivacyError(f"block {name!r} has shape {block.packed_shape} when packed, not {total.shape}.")
            fresh = total if released.sampling_prob == 1 else total / released.sampling_prob
            fresh_variance = (released.noise_std[name] / released.sampling_prob) ** 2
            if name in COUNTS:
                rate = released.sampling_prob
                weight = 1.0 / fresh_variance if fresh_variance > 0 else 1.0
                drawn = max(float(fresh[0]), 0.0) * (1.0 - rate) / rate
                mean[name] = weight * fresh + mean.get(name, 0.0)
                variance[name] = weight**2 * (fresh_variance + drawn) + variance.get(name, 0.0)
                mass[name] = weight + mass.get(name, 0.0)
                continue
            if is_later and block.phase == "step":
                weight = 1.0 / fresh_variance if fresh_variance > 0 else 1.0
                before, before_variance, weights = later.get(name, (np.zeros(()), 0.0, 0.0))
                share = weight / (weights + weight)
                later[name] = (
                    share * fresh + (1 - share) * before,
                    share**2 * fresh_variance + (1 - share) ** 2 * before_variance,
                    weights + weight,
                )
            step = rho if block.average else 1.0
            mean[name] = _between(fresh, mean.get(name), step)
            variance[name] = step**2 * fresh_variance + (1 - step) ** 2 * variance.get(name, 0.0)
            mass[name] = step + (1 - step) * mass.get(name, 0.0)
        phase = max((self._blocks[name].phase for name in released.total if name not in COUNTS), key=PHASES.index)
        return Estimate(self._blocks, mean, variance, mass, later, _SEAL, rho, released.receipt, phase)

    @property
    def names(self) -> frozenset[str]:
        """Names of the blocks that have been released so far."""
        return frozenset(self._mean)

    @property
    def counts(self) -> Counts | None:
        """Numbers of included and clipped units over all releases; None if not released."""
        if not COUNTS.keys() <= self.names:
            return None
        return Counts(*(f(name) for name in (INCLUDED, CLIPPED) for f in (self._count, self.noise_std)))

    def _count(self, name: str) -> float:
        return float((self._mean[name] / self._mass[name])[0])

    def noisy(self, name: str) -> Floats:
        """Return the unbiased linear estimate of the full-data statistic, which may be outside the domain.

        Args:
            name: Name of the block.
        """
        return self._blocks[name].unpack(self._mean[name] / self._mass[name])

    def noisy_after_midway(self, name: str) -> tuple[Floats, float]:
        """Mean of a block's releases after that of phase "midway", weighted by their precision, and its noise std.

        It is for a model whose step blocks have another meaning from there on.
        """
        mean, variance, _ = self._later[name]
        return self._blocks[name].unpack(mean), math.sqrt(variance)

    def project(self, name: str) -> Floats:
        """Return the linear estimate, projected onto the domain of the block.

        Args:
            name: Name of the block.
        """
        return self._blocks[name].project(self.noisy(name))

    def noise_std(self, name: str) -> float:
        """Return the noise standard deviation of a scaled coordinate of `noisy(name)`.

        Args:
            name: Name of the block.
        """
        return math.sqrt(self._variance[name]) / self._mass[name]
