"""The facts that a server and its clients agree on before any budget is charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpvb.federated.trust import Trust
from dpvb.guards.errors import ParameterError


@dataclass(frozen=True)
class Federation:
    """Facts that a server and its clients must have in common; all are public.

    Attributes:
        kind: name of the estimator.
        columns: SHA-256 of the public facts about columns; see `columns_of`.
        trust: Trust model, with the numbers of clients, of missing clients and of colluding clients.
        epsilon, delta: the budget of each client.
        participants: public key by name; empty bytes where there are no masks.
        n_units: public number of units of each client, where there is one.
    """

    kind: str
    columns: str
    trust: Trust
    epsilon: float
    delta: float
    participants: Mapping[str, bytes] = field(default_factory=dict)
    n_units: int | None = None

    def __post_init__(self) -> None:
        if len(self.participants) != self.trust.num_clients:
            raise ParameterError(
                f"participants must be {self.trust.num_clients} clients with different names, "
                f"got {len(self.participants)}."
            )
