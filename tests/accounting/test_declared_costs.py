"""Costs that are declared of analyses which are not fits: they hold, and compose, as dp-accounting says."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from dp_accounting.pld import common, privacy_loss_distribution
from planted import edit, kills

import dpvb
from dpvb.accounting import Event, LaplaceNoise, StatedGuarantee, gaussian_noise
from dpvb.accounting.costs import FINE_ORDERS, total
from dpvb.accounting.forms import from_dict
from dpvb.errors import BudgetError, LedgerError, ParameterError
from dpvb.ledger import Ledger

RELATION: Any = "add_or_remove_one"
DELTA = 1e-6


def loss(cost: Any) -> Any:
    """dp-accounting's privacy loss distribution of a cost, not below the true one."""
    if isinstance(cost, LaplaceNoise):
        one = privacy_loss_distribution.from_laplace_mechanism(cost.noise_multiplier)
        return one.self_compose(cost.num_releases)
    if isinstance(cost, StatedGuarantee):
        stated = common.DifferentialPrivacyParameters(cost.stated_epsilon, cost.stated_delta)
        return privacy_loss_distribution.from_privacy_parameters(stated)
    [event] = cost.events
    return privacy_loss_distribution.from_gaussian_mechanism(event.noise_multiplier).self_compose(event.n_steps)


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 7.0, 200.0])
def test_the_curve_of_laplace_noise_is_that_of_dp_accounting(scale: float) -> None:
    orders = [1.5, 2.0, 3.0, 8.0, 64.0, 512.0]
    accountant = rdp.RdpAccountant(orders).compose(dp_event.LaplaceDpEvent(scale), 3)
    np.testing.assert_allclose(LaplaceNoise(scale, RELATION, 3).renyi(np.array(orders)), accountant._rdp, rtol=1e-9)


@pytest.mark.guarantees("declared costs")
@pytest.mark.parametrize(
    "cost",
    [
        LaplaceNoise(0.5, RELATION),
        LaplaceNoise(9.0, RELATION, 40),
        StatedGuarantee(0.4, 0.0, RELATION),
        StatedGuarantee(1.3, 4e-7, RELATION),
        gaussian_noise(3.0, RELATION, 5),
    ],
)
def test_a_cost_is_no_less_than_dp_accounting_says_and_hardly_more(cost: Any) -> None:
    assert from_dict(cost.to_dict()) == cost
    for delta in (1e-6, 1e-4, 0.01):
        # What dp-accounting says is not below the truth, by its grid of losses.
        least = loss(cost).get_epsilon_for_delta(delta)
        assert 0.999 * least - 1e-3 <= cost.epsilon(delta) <= 1.25 * least + 1e-3
    rest = 1e-4 - cost.added_delta
    lam = FINE_ORDERS - 1
    curve = cost.noise.renyi(FINE_ORDERS) - (math.log(rest) + np.log(FINE_ORDERS)) / lam + np.log(lam / FINE_ORDERS)
    assert curve.min() >= loss(cost).get_epsilon_for_delta(1e-4) - 1e-3


@pytest.mark.guarantees("declared costs")
@kills("releases", "the delta that an analysis states, left out of what it costs")
@edit("accounting/declared_costs.py", "        return float(self.stated_delta)\n", "        return 0.0\n")
def test_declared_costs_and_fits_compose_as_dp_accounting_says(tmp_path: Path) -> None:
    """A ledger says no less of all of them together than the composed losses, and hardly more if all were fixed."""
    costs: list[Any] = [
        LaplaceNoise(4.0, RELATION),
        StatedGuarantee(0.2, 3e-8, RELATION),
        gaussian_noise(6.0, RELATION),
        LaplaceNoise(20.0, RELATION, 10),
        StatedGuarantee(0.1, 0.0, RELATION),
    ]
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation=RELATION, epsilon=4.0, delta=DELTA)
        composed = None
        for number, cost in enumerate(costs, start=1):
            receipt = ledger.charge("people", cost, unit="row", kind=f"analysis {number}")
            composed = loss(cost) if composed is None else composed.compose(loss(cost))
            left, least = ledger.remaining("people"), composed.get_epsilon_for_delta(DELTA)
            assert left.num_charges == number
            assert least * 0.999 <= left.spent_if_fixed <= 1.3 * least
            assert least * 0.999 <= left.spent_adaptive <= 5 * least
            ledger.verify([receipt])
        x = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
        model = dpvb.LogisticRegression(epsilon=0.5, delta=DELTA, n_steps=2, low=-0.5, high=0.5)
        model.fit(x, x[:, 0] > 0, run=dpvb.Run(ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == len(costs) + 1
        with pytest.raises(BudgetError, match="total after it"):
            ledger.charge("people", LaplaceNoise(0.2, RELATION), unit="row")
        with pytest.raises(BudgetError, match="The plan adds 1e-07 to delta in addition to its noise"):
            ledger.charge("people", StatedGuarantee(0.01, 1e-7, RELATION), unit="row")
        ledger.verify()
    assert total(costs[:2]).epsilon(DELTA) >= total(costs[:1]).epsilon(DELTA)


def test_each_declared_charge_counts_unless_it_is_of_the_same_run(tmp_path: Path) -> None:
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation=RELATION, epsilon=4.0, delta=DELTA)
        cost = LaplaceNoise(10.0, RELATION)
        first, second = (ledger.charge("people", cost, unit="row") for _ in range(2))
        assert first != second
        named = [ledger.charge("people", cost, unit="row", run="a count of visits") for _ in range(2)]
        assert named[0] == named[1]
        assert ledger.remaining("people").num_charges == 3


@pytest.mark.guarantees("declared costs")
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1", None, True, 1e400, [1.0], 10**400])
def test_hostile_declarations_are_refused(value: Any) -> None:
    makers = {
        "noise_multiplier": [lambda: gaussian_noise(value, RELATION), lambda: LaplaceNoise(value, RELATION)],
        "stated_epsilon": [lambda: StatedGuarantee(value, 0.0, RELATION)],
        "num_releases|n_steps": [
            lambda: LaplaceNoise(1.0, RELATION, value),
            lambda: gaussian_noise(1.0, RELATION, value),
        ],
        "neighboring_relation": [lambda: LaplaceNoise(1.0, value), lambda: StatedGuarantee(1.0, 0.0, value)],
    }
    if value != 0:
        makers["stated_delta"] = [lambda: StatedGuarantee(1.0, value, RELATION)]
    for name, tried in makers.items():
        for make in tried:
            if value is True and name != "neighboring_relation":
                continue  # A number of Python's, and what check_number takes.
            with pytest.raises(ParameterError, match=name):
                make()


def test_a_declared_charge_of_another_promise_costs_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation=RELATION, epsilon=4.0, delta=DELTA)
        cost = LaplaceNoise(10.0, RELATION)
        for given, error in (
            ({"cost": {"epsilon": 1.0}}, ParameterError),
            ({"cost": [Event("full_batch", 1.0, 1.0)]}, ParameterError),
            ({"unit": "person"}, LedgerError),
            ({"cost": LaplaceNoise(10.0, "replace_one")}, LedgerError),
            ({"dataset": "others"}, LedgerError),
        ):
            arguments: dict[str, Any] = {"dataset": "people", "cost": cost, "unit": "row", **given}
            with pytest.raises(error):
                ledger.charge(arguments.pop("dataset"), arguments.pop("cost"), **arguments)
        assert ledger.remaining("people").num_charges == 0


def test_facts_of_a_declared_cost_are_checked_when_they_are_read() -> None:
    facts = [LaplaceNoise(1.0, RELATION).to_dict(), StatedGuarantee(1.0, 0.0, RELATION).to_dict()]
    for one, (name, value) in itertools.product(facts, [("noise_multiplier", 0), ("stated_epsilon", -1), ("more", 1)]):
        with pytest.raises(ParameterError):
            from_dict({**one, name: value})
