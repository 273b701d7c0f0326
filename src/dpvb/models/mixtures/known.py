"""Groups of an earlier model as the prior of a fit: each of their parameters counts as rows that make it as sure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import categorical, gaussian
from dpvb.models.mixtures.components import Components


@dataclass(frozen=True)
class Known:
    """Earlier groups; public.

    Attributes:
        groups: the components.
        share_k: rows that their weights count as.
        row_k: rows that their means, rates and covariances count as.
        cell_kv: rows that their probabilities count as, in each category.
    """

    groups: Components
    share_k: Floats
    row_k: Floats
    cell_kv: Floats

    def start(self, number: float, sizes: tuple[int, ...]) -> Components:
        """The groups, of so many rows together."""
        now = self.groups
        number_k = number * now.number_k / now.number_k.sum()
        expected_kv = np.maximum(number_k, 1.0)[:, None] * categorical.normalised(now.expected_kv, sizes)
        return replace(now, number_k=number_k, expected_kv=expected_kv, wander_k=np.zeros(len(number_k)))

    def joined(self, old: Components, new: Components, number_k: Floats, rho: float, inefficiency: float) -> Components:
        """Components after a step of rho towards what the rows say and what was known, each by its precision.

        Args:
            old, new: before and after the step that the rows alone make.
            number_k: their rows.
            inefficiency: variance of a mean of clipped rows over that of a mean of rows.
        """
        seen_k = inefficiency / (inefficiency / np.maximum(number_k, 1.0) + new.wander_k)
        to_k = self.row_k / (self.row_k + seen_k)

        def between(before: Floats, after: Floats, known: Floats) -> Floats:
            to = to_k.reshape(-1, *(1,) * (before.ndim - 1))
            return np.asarray((1 - to) * after + to * (before + rho * (known - before)))

        covariances = (root_kdd @ np.swapaxes(root_kdd, 1, 2) for root_kdd in
                       (old.root_kdd, new.root_kdd, self.groups.root_kdd))  # fmt: skip
        return replace(
            new,
            mean_kd=between(old.mean_kd, new.mean_kd, self.groups.mean_kd),
            root_kdd=gaussian.root(between(*covariances)),
            rate_kp=between(old.rate_kp, new.rate_kp, self.groups.rate_kp),
        )
