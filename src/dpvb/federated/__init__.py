"""Data that cannot move: several owners learn one posterior, and each protects its own people.

    from dpvb import federated
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, low=0.0, high=1.0)
    federated.simulate(model, [(X1, y1), (X2, y2), (X3, y3)], trust="secure_aggregation", num_rounds=20)

Partitioned variational inference (Ashman et al. 2022): each client keeps its data behind its own wall, with an
accountant and a ledger of its own, and sends only noisy statistics; the server keeps the factors that they are.
`simulate` runs all parties in one process, with the very messages and keys of a real run; `dpvb federate` runs them
where they live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpvb.federated.simulation import simulate

__all__ = ["simulate"]


def __getattr__(name: str) -> Any:
    if name == "simulate":
        from dpvb.federated.simulation import simulate

        return simulate
    raise AttributeError(f"module 'dpvb.federated' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
