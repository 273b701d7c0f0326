"""What clients of one process share: results of what is equal, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from small_models import D, Location, table

from dpvb.core.model import constant
from dpvb.core.plan import Plan, phased
from dpvb.core.sampling import FullBatch
from dpvb.errors import FederationError
from dpvb.estimators.base import Task
from dpvb.federated.client import FormOfQ
from dpvb.federated.shared import Shared


def plan_of(steps: int = 3, unit: str = "row") -> Plan:
    return phased(Location().blocks, FullBatch(), [1.0] * steps, unit=unit)


def task_of(model: Any) -> Task:
    return Task(model, table(np.zeros((3, D))), plan_of(), constant(1.0), [], {}, lambda plan: plan)


@dataclass(frozen=True)
class Wide(Location):
    """A model whose q is as wide as a function says, which is the same function by its name and source."""

    width: Callable[[], int] = lambda: 1

    def init(self, rng: np.random.Generator) -> Any:
        return np.zeros(self.width())

    def m_step(self, s: Any, q: Any) -> Any:
        return q


@dataclass(frozen=True)
class Lying(Wide):
    """A model that cannot be compared."""

    start: Any = field(default_factory=lambda: np.zeros(2))


def wide(width: int) -> Callable[[], int]:
    return lambda: width


@pytest.mark.parametrize("kind", [Wide, Lying])
def test_a_q_has_the_form_of_ones_own_model_whatever_is_shared(kind: type) -> None:
    """Two functions of one name and source make models of two widths: neither client takes the other's q."""
    shared = Shared()
    forms = {width: FormOfQ(task_of(kind(width=wide(width))), shared) for width in (2, D, 20)}
    release = plan_of().releases[0]
    forms[D].check(np.zeros(D), release)
    for width in (2, 20):
        with pytest.raises(FederationError, match="q is not one of this model's"):
            forms[D].check(np.zeros(width), release)


def test_equal_models_are_tried_once() -> None:
    shared, made = Shared(), []

    def dry_run(model: Any, plan: Plan) -> int:
        made.append(model)
        return len(made)

    first = shared.once(dry_run, Location(), plan_of())
    assert shared.once(dry_run, Location(), plan_of()) == first
    others: list[tuple[Any, Plan]] = [
        (Location(2.0), plan_of()),
        (Wide(), plan_of()),
        (Location(), plan_of(4)),
        (Location(), plan_of(unit="person")),
        (Lying(), plan_of()),
    ]
    for number, given in enumerate(others):
        assert shared.once(dry_run, *given) == 2 + number
    assert Shared().once(dry_run, Location(), plan_of()) == 2 + len(others)


def test_what_is_shared_has_an_end() -> None:
    shared, made = Shared(), []
    for number in [*range(100), 0]:
        shared.once(made.append, number)
    assert len(made) == 101


def test_settings_tell_results_apart() -> None:
    shared = Shared()
    assert shared.once(round, 2.25, ndigits=1) == 2.2
    assert shared.once(round, 2.25) == 2
    assert shared.once(round, 2.25, ndigits=0) == 2.0
