"""The forms that a cost can have, by the names under which ledgers keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dpvb.accounting.costs import Composition, Cost
from dpvb.accounting.declared_costs import LaplaceNoise, StatedGuarantee
from dpvb.accounting.selection import Selection
from dpvb.guards.errors import ParameterError

#: How each form is read back, by the name that its `to_dict` gives it.
FORMS: Final[Mapping[str, Callable[..., Cost]]] = {
    "composition": Composition.of,
    "selection": Selection.of,
    "laplace": LaplaceNoise,
    "stated": StatedGuarantee,
}


def from_dict(facts: Mapping[str, Any]) -> Cost:
    """The cost that `to_dict` wrote.

    Raises:
        ParameterError: for a form that this version does not know, or facts that no cost has.
    """
    try:
        return FORMS[facts["form"]](**{name: value for name, value in facts.items() if name != "form"})
    except (KeyError, TypeError) as error:
        raise ParameterError(f"facts must be those of a cost of form {', '.join(FORMS)}, got others.") from error
