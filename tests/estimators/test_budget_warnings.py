"""What is said of a budget that promises nothing, or buys nothing: before it is spent, from public facts alone."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.accounting import Event, budget_warnings
from dpvb.errors import DpvbWarning

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, (300, 3))
Y = (X[:, 0] > 0).astype(int)
ROWS: dict[str, Any] = {"unit": "row", "neighboring_relation": "add_or_remove_one"}
#: A budget, and what is said of it.
DOUBTFUL = {
    "delta of a half": ({"epsilon": 1.0, "delta": 0.5}, "delta = 0.5 is above 0.001"),
    "epsilon of a thousand": ({"epsilon": 1000.0, "delta": 1e-6}, "epsilon = 1000 is above 10"),
    "hardly any epsilon": ({"epsilon": 1e-5, "delta": 1e-6}, "fewer than about 180,000 rows"),
    "delta of one in n": ({"epsilon": 1.0, "delta": 1 / 300, "n_units": 300}, "not below 1 in 300, the public"),
    "more noise than n": ({"epsilon": 0.02, "delta": 1e-6, "n_units": 300}, "is expected for 300 rows"),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_doubtful_budget_is_spoken_of_before_it_is_spent(name: str, ledger: Path) -> None:
    budget, said = DOUBTFUL[name]
    model = dpvb.LogisticRegression(max_row_norm=1.0, **budget, n_steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        with pytest.raises(DpvbWarning, match=said):
            model.fit(X, Y, run=dpvb.Run(ledger=str(ledger), dataset="a"))
    assert dpvb.Ledger(ledger).remaining("a").num_charges == 0


@pytest.mark.parametrize("name", DOUBTFUL)
def test_it_is_a_warning_and_the_fit_goes_on(name: str) -> None:
    budget, said = DOUBTFUL[name]
    with pytest.warns(DpvbWarning) as found:
        fitted = dpvb.LogisticRegression(max_row_norm=1.0, **budget, n_steps=2).fit(X, Y)
    assert said in str(found[0].message)
    assert {one.filename for one in found} == {__file__}
    assert fitted.privacy_.epsilon <= budget["epsilon"]


def test_what_is_forecast_of_the_count_is_what_the_fit_then_says() -> None:
    with pytest.warns(DpvbWarning) as found:
        fitted = dpvb.LogisticRegression(max_row_norm=1.0, epsilon=1e-5, delta=1e-6, n_steps=2).fit(X, Y)
    (forecast,) = re.findall(
        r"Their released number will have an error of ± ([\d,]+)\. Use a larger epsilon\.", str(found[0].message)
    )
    (said,) = re.findall(r"rows included: [\d,]+ ± ([\d,]+) ", fitted.privacy_.counts.say("row"))
    assert float(forecast.replace(",", "")) == pytest.approx(float(said.replace(",", "")), rel=0.05)


@pytest.mark.guarantees("warnings")
@kills("public facts", "a warning that knows how many rows there are")
@edit(
    "estimators/base.py",
    "            num_units=self.n_units,\n            events=",
    "            num_units=task.source.count(),\n            events=",
)
def test_what_is_said_does_not_depend_on_the_data() -> None:
    said = []
    for rows in (300, 299, 0):
        with pytest.warns(DpvbWarning) as found:
            dpvb.LogisticRegression(max_row_norm=1.0, epsilon=0.001, delta=0.01, n_steps=2).fit(X[:rows], Y[:rows])
        # These two are of released numbers.
        released = ("rows included: ", "have not settled")
        said.append([text for text in (str(one.message) for one in found) if not any(map(text.count, released))])
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize(
    "budget", [{"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 10.0, "delta": 1e-3}, {"epsilon": math.inf, "delta": 0.5}]
)
def test_nothing_is_said_of_an_ordinary_budget_or_of_none(budget: dict[str, float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.filterwarnings("ignore", "The scores of 2 steps have not settled")
        dpvb.LogisticRegression(max_row_norm=1.0, **budget, n_steps=2).fit(X, Y)


def test_delta_is_held_against_a_number_that_was_released() -> None:
    """Of 3,000 rows a number is released whose noise is no tenth of the 2,000 that would have to be missing."""
    pixels = (RNG.random((3_000, 4)) < 0.5).astype(int)
    with pytest.warns(DpvbWarning, match="the released number of rows"):
        fitted = dpvb.SigmoidBeliefNetwork(2, epsilon=5.0, delta=1e-3, n_steps=2).fit(pixels)
    noise = {block.name: block.noise_std for release in fitted.privacy_.releases for block in release.blocks}
    assert noise["count"] < 200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        dpvb.SigmoidBeliefNetwork(2, epsilon=5.0, delta=1e-6, n_steps=2).fit(pixels)


def test_other_doors_say_it_too(tmp_path: Path) -> None:
    ledger = dpvb.Ledger(tmp_path / "budget.db")
    with pytest.warns(DpvbWarning, match="epsilon = 1000"):
        ledger.register("rows", **ROWS, epsilon=1000.0, delta=1e-6)
    with pytest.warns(DpvbWarning, match=r"delta = 0\.5"):
        dpvb.private_range(X[:, 0], low=-1.0, high=1.0, epsilon=1.0, delta=0.5)
    with pytest.warns(DpvbWarning, match=r"delta = 0\.5"):
        dpvb.private_select(
            dpvb.LogisticRegression(max_row_norm=1.0, epsilon=1.0, delta=0.5, n_steps=1),
            [{}],
            X,
            Y,
            epsilon=1.0,
            delta=0.5,
        )


@pytest.mark.parametrize("mechanisms", [[(1.0, 5.0, 1)], [(1.0, 40.0, 12), (1.0, 200.0, 1)], [(0.1, 2.0, 50)]])
def test_so_many_units_are_half_an_interval_of_the_best_average(mechanisms: list[tuple[float, float, int]]) -> None:
    """Of estimates T/p of a sum, each of variance (sigma/p)^2, the best average weighs by precision: by hand."""
    variances = np.concatenate([np.full(steps, (noise / q) ** 2) for q, noise, steps in mechanisms])
    weights = 1 / variances / (1 / variances).sum()
    std = math.sqrt((weights**2 * variances).sum())
    events = [Event("full_batch" if q == 1 else "poisson", q, noise, steps) for q, noise, steps in mechanisms]
    assert budget_warnings.units_in_noise(events) == pytest.approx(1.96 * std)


def test_noise_that_is_said_to_hide_rows_hides_them() -> None:
    """As many rows as are named, all alike, are half a 95 % interval of their noisy sum, and not more."""
    plan = dpvb.core.plan  # type: ignore[attr-defined]
    release = plan.Release({"sum": dpvb.Block((1,), 1.0)}, plan.Mechanism(plan.FullBatch(), 1.0))
    found = plan.calibrated(plan.Plan([release]), epsilon=1e-4, delta=1e-6)
    with pytest.warns(DpvbWarning) as said:
        budget_warnings.warn(1e-4, 1e-6, unit="row", events=found.events())
    (number,) = re.findall(r"about ([\d,]+) rows", str(said[0].message))
    std = found.releases[0].noise_std("sum")
    assert int(number.replace(",", "")) == pytest.approx(1.96 * std, rel=0.05)
