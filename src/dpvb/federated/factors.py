"""The factors of partitioned variational inference: a running estimate for each client, whose sum an M-step reads.

In a model of this package a client's factor *is* its noisy expected statistic, τ_m ← (1-ρ)τ_m + ρ T_m/q_m: the fixed
points are those of partitioned variational inference (Ashman et al. 2022), with neither cavity nor inner optimisation.
Everything here is post-processing of what clients have released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dpvb.blocks import Floats
from dpvb.estimate import Estimate
from dpvb.loop import Model
from dpvb.wall import Released


@runtime_checkable
class Moving(Protocol):
    """A model that can tell how a score changes with q, as one is wanted that was taken at an older q."""

    def moved(self, s: Estimate, then: Any, now: Any) -> Mapping[str, Floats]:
        """Expected change of the scores in a client's estimate from one q to another, in the blocks' shapes."""


class Factors:
    """The factors of all clients.

    Args:
        model: public.
        projection: as in `loop.fit`.
    """

    def __init__(self, model: Model[Any, Any], projection: Any) -> None:
        self._model = model
        self._empty = Estimate.empty(model.blocks, projection)
        self._own: dict[str, Estimate] = {}
        self._at: dict[str, Any] = {}

    def take(self, client: str, released: Released, rho: float, q: Any) -> None:
        """Take in what a client released at q, with its step size."""
        self._own[client] = self._own.get(client, self._empty).update(released, rho)
        self._at[client] = q

    def complete(self, clients: frozenset[str], blocks: frozenset[str]) -> bool:
        """Whether each client has released each of the blocks: before that, no q is read from them."""
        return all(client in self._own and blocks <= self._own[client].names for client in clients)

    def total(self, q: Any) -> Estimate:
        """The sum of all factors, scores moved to q."""
        moved: dict[str, Any] = {}
        if isinstance(self._model, Moving):
            for client, own in self._own.items():
                if self._at[client] is q:
                    continue
                for name, change in self._model.moved(own, self._at[client], q).items():
                    moved[name] = moved.get(name, np.zeros(())) + change
        return Estimate.total(list(self._own.values()), moved)
