"""An estimator's fit in the hands of another conductor: it brings model, data and relative plan, and takes q back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from dpvb.core import loop
from dpvb.core.blocks import Block
from dpvb.core.plan import SHARES, Plan, phased
from dpvb.core.source import Source
from dpvb.estimators.base import PrivateEstimator


class Data(NamedTuple):
    """Private rows as an estimator's fit takes them."""

    X: Any
    y: Any
    rows: Mapping[str, Any]


class Task(NamedTuple):
    """What a fit would do: the model, its private data, its plan with relative noise, and how it steps."""

    model: loop.Model[Any, Any]
    source: Source[Any]
    plan: Plan
    rho: loop.StepSize
    projection: Any
    public: list[str]


def conduct(kind: type, params: Mapping[str, Any], data: Data, conductor: Callable[[Task], Any]) -> Any:
    """An estimator after its fit, whose plan was run by the conductor: from task to q."""
    trial = _conducted(kind)(**params)
    trial._conduct = conductor
    return trial.fit(data.X, data.y, **data.rows)


def fitted(trial: Any) -> dict[str, Any]:
    """What a conducted fit has left on its estimator, parameters aside."""
    params = trial.get_params(deep=False)
    return {name: value for name, value in vars(trial).items() if name not in params and name != "_conduct"}


def rehearsed(kind: type, params: Mapping[str, Any], data: Data) -> Task:
    """The task of a fit that goes no further; nothing is spent.

    Raises:
        ParameterError, DataFormatError: as the fit would.
    """

    def stop(task: Task) -> None:
        raise _Ready(task)

    try:
        conduct(kind, params, data, stop)
    except _Ready as ready:
        return ready.task
    raise AssertionError("a fit runs its plan")


class _Ready(Exception):  # noqa: N818
    """Carries a task out of a fit that was only rehearsed."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task


class _Conducted(PrivateEstimator):
    """An estimator whose plan is relative, and is run by whoever conducts its fit."""

    _conduct: Callable[[Task], Any]

    def _plan(
        self, blocks: Mapping[str, Block], schedule: Sequence[float], *, unit: str, shares: Mapping[str, float] = SHARES
    ) -> Plan:
        relation = self.neighboring_relation
        return phased(blocks, self._sampler(), schedule, shares=shares, neighboring_relation=relation, unit=unit)

    def _fit(self, model: Any, source: Any, plan: Plan, *, rho: Any, projection: str, public: Any, **_: Any) -> Any:
        return self._conduct(Task(model, source, plan, rho, projection, public))


@cache
def _conducted(kind: type) -> Any:
    return type(kind)(kind.__name__, (_Conducted, kind), {})
