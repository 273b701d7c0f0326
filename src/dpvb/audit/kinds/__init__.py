"""Cases of this package's kinds of estimators: one file for each form of data, with a table of its kinds' forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpvb.audit.cases import Case
from dpvb.audit.kinds import documents, gradients, sequences, tables
from dpvb.estimators import PrivateEstimator
from dpvb.guards.errors import check_choice


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """Ways to the cases of a kind, by its solver or form; none for a kind without a case."""
    files = (tables, documents, sequences, gradients)
    return {form: case for file in files for form, case in file.FORMS.get(name, {}).items()}


#: Kinds that can be audited here; gradients where JAX is installed.
NAMES: tuple[str, ...] = tuple(name for name in PrivateEstimator.kinds if forms(name))


def shipped(name: str) -> list[Case]:
    """The cases of one of this package's kinds, one for each of its solvers or forms.

    Raises:
        ParameterError: for a name that is not one of NAMES.
    """
    check_choice("model class", name, NAMES)
    return [case() for case in forms(name).values()]
