"""What public signatures say: nobody is told that records, responses, a ledger or a cluster may be anything."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from each import each

import dpvb
from dpvb import accounting, federated
from dpvb.estimators import PrivateEstimator
from dpvb.estimators.input_types import Records
from dpvb.guards.missing_arguments import described

#: What a caller hands over under these names; `rows` and `batch` are what a model has made of it.
_NAMED = {"X", "y", "ledger", "cluster", "documents", "texts"}


def _public() -> Iterator[tuple[str, Any]]:
    for room in (dpvb, accounting, federated):
        for name in dir(room):
            one = getattr(room, name)
            if inspect.isclass(one):
                for base in one.__mro__:
                    if base.__module__.startswith("dpvb."):
                        for own, value in vars(base).items():
                            if callable(value) and (own == "__init__" or not own.startswith("_")):
                                yield f"{base.__qualname__}.{own}", value
            elif callable(one) and not name.startswith("_"):
                yield f"{room.__name__}.{name}", one


SIGNATURES = dict(_public())


@each("name", [name for name, one in SIGNATURES.items() if inspect.isfunction(one)])
def test_no_public_signature_says_any(name: str) -> None:
    for parameter in inspect.signature(SIGNATURES[name]).parameters.values():
        if parameter.name in _NAMED:
            assert parameter.annotation not in ("Any", "Any | None", Any, inspect.Parameter.empty), parameter


def test_the_signatures_that_matter_are_looked_at() -> None:
    """Else a moved class would leave this file without anything to fail on."""
    ours = (one for one in PrivateEstimator._registered.values() if one.__module__.startswith("dpvb."))
    asked = {f"{one.__name__}.__init__" for one in ours}
    asked |= {"PrivateEstimator.fit", "LDA.transform", "dpvb.private_select"}
    assert asked <= {*SIGNATURES}
    assert inspect.signature(dpvb.LogisticRegression.fit).parameters["X"].annotation == "Records"
    assert dpvb.Table in Records.__args__


@each("name", sorted(one.__name__ for one in PrivateEstimator._registered.values() if one.__module__[:5] == "dpvb."))
def test_fit_lists_and_describes_its_row_arguments(name: str) -> None:
    """No `**rows`: those that a task gets, each under `Args:`; a bound that a class lacks has no argument."""
    kind = PrivateEstimator._registered[name]
    parameters = inspect.signature(kind.fit).parameters
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    assert [*parameters][1:] == [*dict.fromkeys([*parameters][1:])]
    assert {*parameters} - {"self", "run"} <= {*inspect.signature(kind._task).parameters}
    assert {*parameters} - {"self"} <= described(kind.fit).keys()
    fields = inspect.signature(kind).parameters
    for argument, bound in {"trials": "max_trials", "exposure": "max_exposure", "offset": "max_offset"}.items():
        assert (argument in parameters) == (bound in fields)
