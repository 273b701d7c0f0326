"""The output of a wall: noised sums, sealed, and a receipt that says where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import final

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import PrivacyError

#: Only `core.wall` has it.
SEAL = object()


@final
@dataclass(frozen=True)
class ReleaseReceipt:
    """Where a release stands in its run; public.

    Attributes:
        run: random public name of the run.
        step: position in the plan, from 0.
        plan_digest: SHA-256 of the plan.
        private: False if the noise came from a test source.
    """

    run: str
    step: int
    plan_digest: str
    private: bool


@final
@dataclass(frozen=True, repr=False)
class Released:
    """Noisy sums of one batch, packed; made only by the wall.

    Attributes:
        total: clipped, noised sum of every block, in the block's units.
        noise_std: noise std of a scaled coordinate of every block, in the block's units.
        sampling_prob: public inclusion probability of the batch.
        receipt: where it belongs.
    """

    total: Mapping[str, Floats]
    noise_std: Mapping[str, float]
    sampling_prob: float
    receipt: ReleaseReceipt
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not SEAL:
            raise PrivacyError("Released objects are created only by Wall.release.")
