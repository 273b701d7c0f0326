"""Cases of this package's kinds of estimators: a file here for a file of `estimators`, of the same name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

from dpvb.audit.cases import Case
from dpvb.estimators import PrivateEstimator
from dpvb.guards.errors import check_choice


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """Ways to the cases of a kind, by its solver or form; none for a kind that has no file here."""
    kind = PrivateEstimator.kinds[name]
    home = kind.__module__.replace("dpvb.estimators.", "dpvb.audit.kinds.")
    if home == kind.__module__ or find_spec(home) is None:
        return {}
    found: Mapping[str, Callable[[], Case]] = import_module(home).forms(name)
    return found


#: Kinds that can be audited here; gradients where JAX is installed.
NAMES: tuple[str, ...] = tuple(name for name in PrivateEstimator.kinds if forms(name))


def shipped(name: str) -> list[Case]:
    """The cases of one of this package's kinds, one for each of its solvers or forms.

    Raises:
        ParameterError: for a name that is not one of NAMES.
    """
    check_choice("model class", name, NAMES)
    return [case() for case in forms(name).values()]
