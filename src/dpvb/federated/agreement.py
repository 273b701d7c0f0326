"""What a server and its clients must agree on before anything is charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpvb.federated.trust import Trust
from dpvb.guards.errors import ParameterError


@dataclass(frozen=True)
class Federation:
    """What a server and its clients must agree on; public.

    Attributes:
        kind: name of the estimator.
        columns: what the data's columns are; see `columns_of`.
        trust: with the number of clients, and of those that may be missing or collude.
        epsilon, delta: the budget of each client.
        participants: public key by name; empty bytes where there are no masks.
        num_examples: public number of units of each client, where there is one.
    """

    kind: str
    columns: str
    trust: Trust
    epsilon: float
    delta: float
    participants: Mapping[str, bytes] = field(default_factory=dict)
    num_examples: int | None = None

    def __post_init__(self) -> None:
        if len(self.participants) != self.trust.num_clients:
            raise ParameterError(
                f"participants must be {self.trust.num_clients} clients with different names, "
                f"got {len(self.participants)}."
            )
