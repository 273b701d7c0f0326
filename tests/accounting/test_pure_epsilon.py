"""Pure epsilon-differential privacy (delta = 0) is refused wherever a delta is accepted, before anything is charged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CliRunner

import dpvb
from dpvb import accounting
from dpvb.accounting import Event
from dpvb.cli.root import app
from dpvb.guards.errors import ParameterError

_RELATION: Any = {"neighboring_relation": "add_or_remove_one"}
_EVENTS = [Event("full_batch", 1.0, 1.0)]
_STEPS: Any = {"sampling_prob": 0.1}
_X, _Y = np.zeros((3, 2)), [0, 1, 0]
_LOGISTIC = dpvb.LogisticRegression(epsilon=1.0, delta=0, max_row_norm=1.0)

_CALLS: dict[str, Callable[[], object]] = {
    "epsilon": lambda: accounting.epsilon(delta=0, noise_multiplier=1.0, n_steps=2, **_STEPS),
    "noise_multiplier": lambda: accounting.noise_multiplier(epsilon=1.0, delta=0, n_steps=2, **_STEPS),
    "n_steps": lambda: accounting.n_steps(epsilon=1.0, delta=0, noise_multiplier=1.0, **_STEPS),
    "answer": lambda: accounting.answer(_EVENTS, delta=0, **_RELATION),
    "step_delta": lambda: accounting.answer(_EVENTS, delta=1e-6, step_delta=0, method="zcdp", **_RELATION),
    "compare": lambda: accounting.compare(_EVENTS, delta=0, **_RELATION),
    "curve": lambda: accounting.curve(_EVENTS, deltas=[0], **_RELATION),
    "calibrate": lambda: accounting.calibrate(lambda s: [Event("full_batch", 1.0, s)], epsilon=1, delta=0, **_RELATION),
    "best_order_of": lambda: accounting.best_order_of(_EVENTS, delta=0, **_RELATION),
    "covering_gaussian_of": lambda: accounting.covering_gaussian_of(_EVENTS, delta=0, **_RELATION),
    "optimal_composition": lambda: accounting.optimal_composition(epsilon=1, delta=0, n_steps=2, total_delta=0),
    "cross_check": lambda: accounting.cross_check(_EVENTS, epsilon=1.0, delta=0, **_RELATION),
    "fit": lambda: _LOGISTIC.fit(_X, _Y),
    "fit of private words": lambda: dpvb.LDA(2, epsilon=1.0, delta=0, vocabulary="private").fit(["a b"]),
    "words of a fit": lambda: dpvb.LDA(2, epsilon=1.0, delta=1e-6, vocabulary="private", vocabulary_delta=0).fit(
        ["a b"]
    ),
    "plan": lambda: dpvb.plan(_LOGISTIC, 100, width=2),
    "private_range": lambda: dpvb.private_range([1.0, 2.0], low=0, high=9, epsilon=1.0, delta=0),
    "select": lambda: dpvb.private_select(
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, max_row_norm=1.0), [{}, {}], _X, _Y, epsilon=1.0, delta=0
    ),
}


@pytest.mark.parametrize("call", _CALLS)
def test_delta_of_zero_is_refused_with_the_reason_and_an_alternative(call: str) -> None:
    with pytest.raises(ParameterError, match=r"delta must .*got 0.*normal noise.*Laplace.*Nothing was charged\."):
        _CALLS[call]()


def test_a_ledger_has_no_cap_of_pure_epsilon_and_no_fit_of_it_is_charged(tmp_path: Path) -> None:
    ledger = dpvb.Ledger(tmp_path / "budget.db")
    register: Any = {"unit": "row", "epsilon": 3.0, **_RELATION}
    with pytest.raises(ParameterError, match="normal noise"):
        ledger.register("people", delta=0, **register)
    ledger.register("people", delta=1e-6, **register)
    with pytest.raises(ParameterError, match="normal noise"):
        _LOGISTIC.fit(_X, _Y, run=dpvb.Run(ledger=ledger, dataset="people"))
    assert ledger.remaining("people").num_charges == 0


@pytest.mark.parametrize(
    "command",
    [
        "plan --epsilon 1 --delta 0",
        "plan --noise-multiplier 1 --delta 0",
        "plan logistic --n-units 99 --width 2 --max-row-norm 1 --epsilon 1 --delta 0",
    ],
)
def test_the_command_line_refuses_it_by_the_options_name(command: str) -> None:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code != 0
    said = " ".join(result.output.split())
    assert "--delta must be a number in (0, 1), got 0" in said
    assert "normal noise" in said


def test_a_pure_cost_of_another_tool_is_recorded_and_costs_its_epsilon_at_most() -> None:
    """The alternative that the refusal names: Laplace noise of scale 2 has epsilon 1/2 at every delta."""
    cost = accounting.LaplaceNoise(2.0, "add_or_remove_one")
    assert cost.epsilon(1e-12) <= 0.5 * (1 + 1e-9)
