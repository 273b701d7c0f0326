"""Cases of this package's kinds of estimators.

A kind's cases stand in the file here that is named as the file of `estimators` where the kind, or the nearest class
that the kind is built on, is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

from dpvb.audit.cases import Case
from dpvb.estimators import PrivateEstimator
from dpvb.guards.errors import check_choice


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """Ways to the cases of a kind, by its solver or form; none for a kind that has no file here."""
    for kind in PrivateEstimator.kinds[name].__mro__:
        home = kind.__module__.replace("dpvb.estimators.", "dpvb.audit.kinds.")
        if home != kind.__module__ and find_spec(home) is not None:
            found: Mapping[str, Callable[[], Case]] = import_module(home).forms(name)
            return found
    return {}


#: Kinds that can be audited here; gradients where JAX is installed.
NAMES: tuple[str, ...] = tuple(name for name in PrivateEstimator.kinds if forms(name))


def shipped(name: str) -> list[Case]:
    """The cases of one of this package's kinds, one for each of its solvers or forms.

    Raises:
        ParameterError: for a name that is not one of NAMES.
    """
    check_choice("model class", name, NAMES)
    return [case() for case in forms(name).values()]
