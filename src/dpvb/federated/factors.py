"""The factors of partitioned variational inference: a running estimate for each client, whose sum an M-step reads.

In a model of this package a client's factor *is* its noisy expected statistic, τ_m ← (1-ρ)τ_m + ρ T_m/q_m: the fixed
points are those of partitioned variational inference (Ashman et al. 2022), with neither cavity nor inner optimisation.
A score is taken at the q of its request, and an older one stands until the client's next. Everything here is
post-processing of what clients have released.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpvb.core.estimate import Estimate
from dpvb.core.model import Model
from dpvb.core.released import Released


class Factors:
    """The factors of all clients.

    Args:
        model: public.
    """

    def __init__(self, model: Model[Any, Any]) -> None:
        self._empty = Estimate.empty(model.blocks)
        self._own: dict[str, Estimate] = {}

    def take(self, client: str, released: Released, rho: float) -> None:
        """Take in what a client released, with its step size."""
        self._own[client] = self._own.get(client, self._empty).update(released, rho)

    def drop(self, client: str) -> None:
        """Forget a client's factor."""
        self._own.pop(client, None)

    def complete(self, clients: Iterable[str], blocks: Iterable[str]) -> bool:
        """Whether each client has released each of the blocks: before that, no q is read from them."""
        needed = frozenset(blocks)
        return all(client in self._own and needed <= self._own[client].names for client in clients)

    def __len__(self) -> int:
        return len(self._own)

    def total(self) -> Estimate:
        """The sum of all factors."""
        return Estimate.total(list(self._own.values()))
