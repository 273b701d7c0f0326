"""Hidden Markov models as the audit wants them: of symbols and of counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from dpvb.audit.cases import Case
from dpvb.audit.kinds.markov_chain import BUDGET, of_windows
from dpvb.estimators.hidden_markov import HiddenMarkovModel


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A model for each kind of emissions."""
    return {emissions: partial(of_emissions, emissions) for emissions in ("categorical", "poisson")}


def of_emissions(emissions: str) -> Case:
    """The case of a model with such emissions."""

    def made(width: int) -> HiddenMarkovModel:
        return HiddenMarkovModel(3, symbols=width, emissions=emissions, n_init=1, **BUDGET)

    return of_windows(f"HiddenMarkovModel, {emissions}", made, 3)
