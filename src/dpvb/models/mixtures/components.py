"""What a mixture has learned: its components, and the running sums that they are read from; all of it is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Domain, Nonnegative, Nonnegatives, Positives

_SOME: Final = Domain("0 or more, and not all 0", lambda values: bool((values >= 0).all() and (values > 0).any()))


class MixedRows(Protocol):
    """Rows as the model reads them.

    Attributes:
        x_nd: numbers in [-1, 1], NaN where they are missing, (n, d).
        count_np: counts, (n, P).
        code_nj: places of categories, (n, D).
        sound_n: 1, or NaN for a faulty row, (n,).
    """

    @property
    def x_nd(self) -> Floats:
        """Numbers."""

    @property
    def count_np(self) -> Floats:
        """Counts."""

    @property
    def code_nj(self) -> Ints:
        """Places of categories."""

    @property
    def sound_n(self) -> Floats:
        """1, or NaN for a faulty row."""


@dataclass(frozen=True)
class Components:
    """The components.

    Attributes:
        number_k: rows of each, (K,); 0: the component is left out.
        mean_kd, root_kdd: means and Cholesky factors of the covariances of numbers in [-1, 1].
        rate_kp: rates of counts.
        expected_kv: expected counts of categories, the prior's among them.
        wander_k: variance that noise leaves in each mean, in variances of the component.
    """

    number_k: Annotated[Floats, _SOME]
    mean_kd: Floats
    root_kdd: Floats
    rate_kp: Positives
    expected_kv: Positives
    wander_k: Nonnegatives

    @classmethod
    def public(cls, numbers: int, most_p: Floats, sizes: Sequence[int]) -> Components:
        """One component in the middle of the ranges, with a deviation of a quarter of them; categories alike."""
        uniform_v = np.repeat([1.0 / size for size in sizes], [*sizes])
        root_kdd, rate_kp = 0.5 * np.eye(numbers)[None], np.sqrt(most_p)[None]
        return cls(np.ones(1), np.zeros((1, numbers)), root_kdd, rate_kp, uniform_v[None], np.zeros(1))

    def taken(self, places: Ints) -> Components:
        """The components at these places."""
        return Components(*(array[places] for array in vars(self).values()))

    @property
    def used(self) -> tuple[int, ...]:
        """Places of those that are not left out."""
        return tuple(np.flatnonzero(self.number_k).tolist())


@dataclass(frozen=True)
class Sums:
    """Noisy counts, averaged over releases; linear, so that their noise is known.

    Attributes:
        count_k, cell_kv: of components, and of categories in each.
        count_std, cell_std: their noise.
        share: sum of the squared weights of the releases in them.
        releases: how many there are.
    """

    count_k: Floats
    cell_kv: Floats
    count_std: Nonnegative = 0.0
    cell_std: Nonnegative = 0.0
    share: Nonnegative = 0.0
    releases: Nonnegative = 0.0


@dataclass(frozen=True)
class Posterior:
    """Components, the one that came first, the sums behind both, the public directions of the start, and the check.

    The check is the released cells of `pairs.Pairs` and their noise; there are none without it.
    """

    now: Components
    home: Components
    sums: Sums
    home_sums: Sums
    direction_kd: Floats
    tilt_kv: Floats
    tilt_kp: Floats
    cell_c: Floats
    cell_std: Nonnegative = 0.0
