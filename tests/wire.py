"""Messages as a stranger between the parties reads and writes them: with the q of any model."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from inspect import isclass
from typing import Any

import dpvb.models
from dpvb.core.plan import Plan
from dpvb.federated import messages
from dpvb.federated.agreement import Federation
from dpvb.federated.messages import Offer, classes_in
from dpvb.guards.version import __version__
from dpvb.results.declared import declared


def _declared() -> frozenset[type]:
    """The classes of the package's models, of which a q may be made."""
    modules = [import_module(found.name) for found in pkgutil.walk_packages(dpvb.models.__path__, "dpvb.models.")]
    return frozenset(kind for module in modules for kind in vars(module).values() if isclass(kind))


EVERY = _declared()


def decode(data: bytes) -> Any:
    """What a message holds, whichever of the package's models it speaks of."""
    return messages.decode(data, EVERY)


def encode(content: Any) -> bytes:
    """The bytes of a message with any q."""
    return messages.encode(content, EVERY | classes_in(content))


def offered(federation: Federation, model: Any, plan: Plan, run: str, **more: Any) -> Offer:
    """What a server offers for a plan of a federation."""
    return Offer(
        version=__version__,
        run=run,
        kind=federation.kind,
        model=declared(model),
        columns=federation.columns,
        multipliers=tuple(release.mechanism.noise_multiplier for release in plan),
        trust=federation.trust.name,
        participants=dict(federation.participants),
        max_missing=federation.trust.max_missing,
        max_colluding=federation.trust.max_colluding,
        unit=plan.unit,
        neighboring_relation=plan.neighboring_relation,
        **more,
    )
