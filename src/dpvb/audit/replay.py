"""Record and replay: one release on neighbouring data, with the same draws, so that the noise cancels exactly."""

from __future__ import annotations

from typing import Any

from dpvb.audit.cases import Case
from dpvb.audit.integers import difference, in_steps
from dpvb.core.plan import Release
from dpvb.core.sampling import Sampler
from dpvb.guards.arrays import Floats, Ints


class Replay:
    """One release of a case, at one q, with the same draws whatever the data."""

    def __init__(self, case: Case, sampler: Sampler | None = None, noise: float = 1.0, seed: int = 1) -> None:
        self.case, self.plan = case, case.plan(sampler, noise=noise)
        self.q = case.start(seed)

    @property
    def release(self) -> Release:
        """What is released."""
        return self.plan.releases[0]

    def __call__(self, matrix: Floats, group: Any = None) -> dict[str, Ints]:
        """The release on a matrix of records, as integers.

        Raises:
            WallError: if the computation failed on these data.
            ValueError: if the release is off its grid.
        """
        [released] = self.case.run(matrix, self.plan, q=self.q, group=group)
        return in_steps(released, self.release)

    def alone(self, record: Floats) -> dict[str, Ints]:
        """What a record adds to an empty data set, exactly."""
        return difference(self(record[None]), self(record[None][:0]))
