"""Forecasts of every kind of model from public facts alone, and their sentences."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from user_models import mixture as user_models

import dpvb
from dpvb import accounting
from dpvb.accounting import Event
from dpvb.core.model import constant, robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.data import Categorical, Numeric, Target
from dpvb.errors import LostInNoiseWarning, ParameterError
from dpvb.estimators import PrivateEstimator
from dpvb.results.expected_accuracy import ExpectedAccuracy, least

NUMBERS = [Numeric("age", 18, 90), Numeric("height", 100, 220)]
TABLE = dpvb.Schema([*NUMBERS, Categorical("job", ["a", "b", "c"])])


def answered(kind: Any, **more: Any) -> dpvb.Schema:
    return dpvb.Schema(TABLE.columns, target=Target("y", kind, **more))


@pytest.fixture
def no_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """No estimator can build a wall, behind which alone data are read."""
    monkeypatch.setattr("dpvb.estimators.base.Wall", None)


def density(theta: Any, x: Any) -> Any:
    return -0.5 * ((x - theta) ** 2).sum()


#: By the class of every kind: parameters, and what is declared of its columns.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "LDA": ({"n_components": 5, "public_vocabulary": True}, {"width": 500}),
    "LogisticRegression": ({}, {"schema": answered("logistic", classes=(0, 1))}),
    "BinomialRegression": ({"max_trials": 5}, {"schema": answered("binomial", trials="t", max_trials=5)}),
    "PoissonRegression": ({"max_count": 20}, {"schema": answered("poisson", max_count=20)}),
    "NegativeBinomialRegression": ({"max_count": 20}, {"schema": answered("negative_binomial", max_count=20)}),
    "LinearRegression": ({}, {"schema": answered("numeric", low=0, high=9)}),
    "FactorAnalysis": ({}, {"schema": TABLE}),
    "PCA": ({"max_row_norm": 3.0}, {"width": 12}),
    "Mixture": ({}, {"schema": TABLE}),
    "GaussianMixture": ({"low": -1.0, "high": 1.0}, {"width": 4}),
    "NaiveBayes": ({"response": "job"}, {"schema": TABLE}),
    "MarkovChain": ({"symbols": 6}, {}),
    "HiddenMarkovModel": ({"symbols": 6, "n_states": 2}, {}),
    "GaussianHiddenMarkovModel": ({"n_states": 2, "columns": 2, "low": -1.0, "high": 1.0}, {}),
    "LinearDynamicalSystem": ({"n_states": 2, "columns": 2, "low": -1.0, "high": 1.0}, {}),
    "SigmoidBeliefNetwork": ({"n_components": 10}, {"width": 30}),
    "DPVI": ({"log_density": density, "parameters": 2, "n_steps": 20}, {"width": 2}),
    "PrivateModel": ({"max_row_norm": 1.0}, {"width": 2}),
}
#: JAX takes its time to compile.
EVERY_KIND = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "DPVI")) for name in CASES]
)


def made(name: str, epsilon: float = 1.0, **more: Any) -> Any:
    if name == "PrivateModel":
        more["model"] = user_models.Mixture(2, 2)
    if name == "DPVI":
        pytest.importorskip("jax")
    return getattr(dpvb, name)(epsilon=epsilon, delta=1e-6, **{**CASES[name][0], **more})


def columns_of(name: str) -> dict[str, Any]:
    return CASES[name][1]


def test_every_kind_is_here() -> None:
    known = {name for name, kind in PrivateEstimator._registered.items() if getattr(dpvb, name, None) is kind}
    assert known == CASES.keys()


def forecast(name: str, n: int = 2_000, epsilon: float = 1.0, **more: Any) -> ExpectedAccuracy:
    """The forecast of a kind alone, without other budgets."""
    return dpvb.plan(made(name, epsilon, **more), n, **columns_of(name), epsilons=()).expected_accuracy


@pytest.mark.guarantees("forecasts")
@EVERY_KIND
def test_more_units_and_more_epsilon_never_promise_less(name: str, no_wall: None) -> None:
    strengths = [forecast(name, n).strength for n in (30, 1_000, 30_000, 1_000_000)]
    assert strengths == sorted(strengths)
    assert strengths[0] < strengths[-1]
    by_epsilon = [forecast(name, 1_000, epsilon).strength for epsilon in (0.1, 0.5, 1.0, 3.0, 10.0)]
    assert by_epsilon == sorted(by_epsilon)
    assert by_epsilon[0] < by_epsilon[-1]


#: Regressions of one plan, whose noise at the least ε takes a search of its own.
LIKE_LOGISTIC = ("BinomialRegression", "PoissonRegression", "NegativeBinomialRegression")


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        pytest.param(name, epsilon, marks=[pytest.mark.slow] * (epsilon < 1 and name in LIKE_LOGISTIC))
        for name in CASES
        if name != "DPVI"
        for epsilon in (5e-324, math.inf)
    ],
)
def test_a_budget_beyond_reason_has_a_forecast(name: str, epsilon: float) -> None:
    """The least of all numbers, and no noise at all; nothing overflows and nothing is divided by no noise."""
    more = {"n_steps": 4} if name == "HiddenMarkovModel" else {}
    found = dpvb.plan(made(name, epsilon, **more), 2_000, **columns_of(name), epsilons=())
    assert found.expected_accuracy.is_weak == (epsilon < 1)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.guarantees("forecasts")
@EVERY_KIND
def test_a_forecast_is_words_and_finite_numbers_and_leaves_nothing_behind(
    name: str, no_wall: None, tmp_path: Path
) -> None:
    kind = made(name)
    before = dict(vars(kind))
    with dpvb.Run(ledger=str(tmp_path / "budget.db"), dataset="people", checkpoint=tmp_path / "run"):
        found = dpvb.plan(kind, 2_000, **columns_of(name), epsilons=())
    assert vars(kind) == before
    assert not list(tmp_path.iterdir())
    assert found.n_units == 2_000
    assert all(
        math.isfinite(number) for _, number in [("", found.expected_accuracy.number), *found.expected_accuracy.details]
    )
    assert 0 < found.expected_accuracy.strength < math.inf
    assert found.expected_accuracy.name[1:] in str(found)
    assert ("This needs" in str(found)) == found.expected_accuracy.is_weak
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("bad", [0, -3, 1.5, "many", None, math.nan, 10**13])
def test_a_number_of_units_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match=r"^n must be"):
        dpvb.plan(made("MarkovChain"), bad)


def test_what_a_fit_would_be_refused_is_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon must"):
        dpvb.plan(made("LDA", -1.0), 100, 500)
    with pytest.raises(ParameterError, match="columns must be declared: give schema= for a table, width="):
        dpvb.plan(made("LogisticRegression", low=0, high=1), 100)
    with pytest.raises(ParameterError, match="epsilons must"):
        dpvb.plan(made("LDA"), 100, 500, epsilons=[0])
    with pytest.raises(ParameterError, match="estimator must be an estimator of dpvb"):
        dpvb.plan(3, 100)  # type: ignore[arg-type]


def test_a_result_that_data_do_not_improve_is_said_to_be_as_without_data() -> None:
    for name in ("MarkovChain", "HiddenMarkovModel", "LogisticRegression", "PCA"):
        hopeless = forecast(name, 30, 0.01)
        assert str(hopeless).endswith(", the same as without data")
        assert hopeless.is_weak


def test_texts_of_classes_are_planned_by_the_number_of_their_words() -> None:
    kind = dpvb.NaiveBayes(classes=("a", "b"), epsilon=1.0, delta=1e-6)
    by_width = dpvb.plan(kind, 10_000, 10, epsilons=())
    assert by_width == dpvb.plan(kind, 10_000, vocabulary=[f"w{letter}" for letter in "abcdefghij"], epsilons=())


def test_a_strangers_model_may_forecast_in_its_own_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name and a number, of which a tenth is enough."""
    monkeypatch.setattr(
        user_models.Mixture, "expected_accuracy", lambda model, noise, n: ("error of a mean", 3 / n), raising=False
    )
    found = dpvb.plan(made("PrivateModel"), 1_000, 2)
    assert found.expected_accuracy == ExpectedAccuracy("error of a mean", 3 / 1_000, 0.1)
    assert str(found).startswith("Error of a mean: 0.003, expected for 1,000 rows")
    assert found.to_dict()["enough"] == 0.1


@dataclass(frozen=True)
class Deviations(dpvb.Model):
    """q holds the noise of what the M-step got; the forecast is that of one block."""

    rho: str = "newest"
    told: str = "averaged"
    n_steps: int = 16

    @property
    def blocks(self) -> dict[str, dpvb.Block]:
        return {"averaged": dpvb.Block((2,), 1.0), "newest": dpvb.Block((2,), 1.0, average=False)}

    @property
    def schedule(self) -> dpvb.Schedule:
        noise = tuple(np.linspace(2.0, 1.0, self.n_steps))
        return dpvb.Schedule(noise, rho={"newest": constant(1.0), "decaying": robbins_monro(1.0, 0.7)}[self.rho])

    def init(self, rng: np.random.Generator) -> Any:
        return dict.fromkeys(self.blocks, 0.0)

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {name: dpvb.Rows(batch) for name in blocks}

    def m_step(self, s: dpvb.Estimate, q: Any) -> Any:
        return {name: s.noise_std(name) for name in self.blocks}


@pytest.mark.guarantees("forecasts")
@pytest.mark.parametrize("rho", ["newest", "decaying"])
@pytest.mark.parametrize("told", ["averaged", "newest"])
def test_the_noise_of_a_forecast_is_that_of_the_last_step_of_the_fit(
    rho: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, kind = 1_000, dpvb.PrivateModel(Deviations(rho, told), max_row_norm=1.0, epsilon=1.0, delta=1e-6)
    of_fit = kind.dry_run(n_units=n, width=2).q_
    worst = max(of_fit.values()) * math.sqrt(2) / n  # Of both entries, over the bound of 1.
    assert dpvb.plan(kind, n, 2, epsilons=()).expected_accuracy.number == pytest.approx(worst, rel=1e-12)
    assert (of_fit["averaged"] < of_fit["newest"]) == (rho == "decaying")
    own = lambda model, noise, n: ("noise", noise[model.told])  # noqa: E731
    monkeypatch.setattr(Deviations, "expected_accuracy", own)
    assert dpvb.plan(kind, n, 2, epsilons=()).expected_accuracy.number == pytest.approx(of_fit[told], rel=1e-12)


def test_a_fit_warns_before_its_charge_of_a_result_that_is_lost_in_noise(tmp_path: Path) -> None:
    """Of every kind, where the number of units is public; the fit is stopped by the warning."""
    ledger = dpvb.Ledger(tmp_path / "budget.db")
    ledger.register("people", unit="sequence", neighboring_relation="add_or_remove_one", epsilon=9, delta=1e-3)
    kind = made("MarkovChain", 0.1, n_units=100)
    with warnings.catch_warnings(), dpvb.Run(ledger=ledger, dataset="people"):
        warnings.simplefilter("error", LostInNoiseWarning)
        with pytest.raises(LostInNoiseWarning, match=r"is expected for 100 sequences\. .*dpvb\.plan"):
            kind.fit([[0, 1]])
        kind.set_params(n_units=10_000).dry_run()
    assert ledger.remaining("people").num_charges == 0


def test_the_least_number_is_found_to_a_thousandth() -> None:
    assert least(lambda n: n >= 777.7, 3, 1e6) == pytest.approx(777.7, rel=1e-3)
    assert least(lambda n: n >= 777.7, 3, 777) == math.inf


# --- forecasts against fits ---------------------------------------------------------------------------------


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of these fits is fixed, so that no test has a false alarm."""
    noise = InsecureNoise(3)
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)


def people(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    age_n, height_n, job_n = rng.normal(50, 10, n), rng.normal(170, 9, n), rng.choice(["a", "b", "c"], n)
    odds_n = 0.04 * (age_n - 50) + (job_n == "b")
    return {
        "age": age_n,
        "height": height_n,
        "job": job_n,
        "y": (rng.random(n) < 1 / (1 + np.exp(-odds_n))).astype(int),
    }


def close(forecast: float, found: float) -> bool:
    return bool(max(forecast / found, found / forecast) < 1.5)


def test_coefficients_are_known_as_well_as_was_said(fixed_noise: None) -> None:
    kind, schema = made("LogisticRegression"), columns_of("LogisticRegression")["schema"]
    known = dict(forecast("LogisticRegression", 20_000).details)
    table = {row.name: row.std for row in kind.fit(dpvb.Table(people(20_000), schema)).coefficients()}
    assert close(known["age"], 10 * table["age"])
    assert close(known["height"], 9 * table["height"])


@pytest.mark.parametrize("dispersion", [0.2, 5.0])
def test_coefficients_of_counts_are_known_as_well_as_was_said_of_their_dispersion(
    dispersion: float, fixed_noise: None
) -> None:
    """A dispersion that is to be learned is assumed, and the forecast says what it is."""
    n, rng, schema = 20_000, np.random.default_rng(5), columns_of("NegativeBinomialRegression")["schema"]
    columns = people(n)
    mean_n = 2.5 * np.exp(0.03 * (columns["age"] - 50) - 0.045)
    columns["y"] = rng.poisson(mean_n * rng.gamma(dispersion, 1 / dispersion, n))
    given = dict(forecast("NegativeBinomialRegression", n, dispersion=dispersion).details)
    assert given["assumed mean of the counts"] == 2.5
    assert "assumed dispersion" not in given
    learned = dict(forecast("NegativeBinomialRegression", n).details)
    assert learned["assumed dispersion"] == 1.0
    assert (learned["age"] > given["age"]) == (dispersion > 1)
    kind = made("NegativeBinomialRegression", dispersion=dispersion)
    table = {row.name: row.std for row in kind.fit(dpvb.Table(columns, schema)).coefficients()}
    assert close(given["age"], 10 * table["age"])


def test_directions_are_hidden_as_was_said(fixed_noise: None) -> None:
    from dpvb.models.factors import denoising

    rng = np.random.default_rng(1)
    fitted = made("PCA").fit(rng.normal(0, 0.5, (4_000, 12)))
    edge = denoising.noise_edge(fitted._moments.noise, 12) / np.trace(fitted._moments.second_dd)
    assert close(forecast("PCA", 4_000).number, float(np.hypot(edge, 2 * math.sqrt(12 / 4_000) / 12)))


@pytest.mark.parametrize("noise", [0.001, 0.004, 0.008, 0.04])
def test_components_keep_as_much_as_noise_leaves(noise: float) -> None:
    """Against drawn matrices: what the leading directions hold of the variance, those that no noise would show."""
    from dpvb.models.factors import denoising
    from dpvb.models.factors.denoising import captured

    rng, d, k = np.random.default_rng(2), 100, 3
    own_d = np.repeat([0.5 / k, 0.5 / (d - k)], [k, d - k])
    kept = []
    for _ in range(20):
        noise_dd = rng.standard_normal((d, d)) * noise
        value_e, vector_de = np.linalg.eigh(np.diag(own_d) + (noise_dd + noise_dd.T) / math.sqrt(2))
        held_e = (vector_de**2 * own_d[:, None]).sum(axis=0)
        seen = value_e - own_d[-1] > denoising.noise_edge(math.sqrt(2) * noise, d)
        kept.append(held_e[seen][-k:].sum() / 0.5)
    assert captured(d, k, math.sqrt(2) * noise) == pytest.approx(np.mean(kept), abs=0.03)


def test_groups_are_as_many_as_was_said(fixed_noise: None) -> None:
    columns = {name: cells for name, cells in people(600).items() if name != "y"}
    fitted = made("Mixture", n_steps=1).fit(dpvb.Table(columns, TABLE))
    assert forecast("Mixture", 600, n_steps=1).number == len(fitted.weights_)


# --- plans --------------------------------------------------------------------------------------------------


def test_each_alternative_would_be_enough() -> None:
    found = dpvb.plan(made("LDA"), 800, 500)
    assert found.expected_accuracy.is_weak
    assert not forecast("LDA", math.ceil(found.needed_units)).is_weak
    assert forecast("LDA", math.floor(0.99 * found.needed_units)).is_weak
    assert not forecast("LDA", 800, found.needed_epsilon).is_weak
    assert forecast("LDA", 800, 0.98 * found.needed_epsilon).is_weak
    assert 1 <= found.needed_size < 5
    assert not forecast("LDA", 800, n_components=found.needed_size).is_weak
    assert forecast("LDA", 800, n_components=found.needed_size + 1).is_weak
    assert [way.split()[-1] for way in found.alternatives()] == ["800", "1", "5"]
    assert f"This needs {'; or '.join(found.alternatives())}." in str(found)


def test_a_budget_that_is_enough_has_no_alternatives_and_one_that_is_hopeless_no_epsilon() -> None:
    enough = dpvb.plan(made("LDA", 10.0), 100_000, 500)
    assert enough.alternatives() == enough.to_dict()["alternatives"] == []
    assert "needs" not in str(enough)
    hopeless = dpvb.plan(made("LDA", 0.01), 2, 500)
    assert "documents instead of 2" in " ".join(hopeless.alternatives())
    assert "epsilon" not in " ".join(hopeless.alternatives())
    assert math.isinf(hopeless.needed_epsilon)


def test_a_ladder_shows_other_budgets_and_the_own_one() -> None:
    found = dpvb.plan(made("MarkovChain", 2.0), 1_000, epsilons=(0.5, 8.0))
    assert [rung.epsilon for rung in found.budget_table] == [0.5, 2.0, 8.0]
    assert found.budget_table[1] is found.own
    for name in ("attack_accuracy", "power"):
        values = [getattr(rung, name) for rung in found.budget_table]
        assert values == sorted(values)
    for rung in found.budget_table:
        assert rung.expected_accuracy == forecast("MarkovChain", 1_000, rung.epsilon)
    table = str(found).split("\n\n")[1].split("\n")
    assert [line.split()[0] for line in table] == ["epsilon", "0.5", "2", "8", "attack", "TPR"]


def test_noise_that_was_given_has_no_ladder() -> None:
    assert dpvb.plan(made("MarkovChain", noise_multiplier=50.0), 1_000).budget_table == ()
    told = dpvb.plan(made("MarkovChain", math.inf), 1_000)
    assert told.budget_table == ()
    assert "An attacker" not in str(told)
    json.dumps(told.to_dict(), allow_nan=False)


def test_a_plan_says_why_its_releases_are_what_they_are() -> None:
    assert "One release of all sequences." in str(dpvb.plan(made("MarkovChain"), 1_000))
    assert "22 full-batch releases." in str(dpvb.plan(made("LDA"), 1_000, 500, epsilons=()))


@pytest.mark.slow
def test_a_plan_says_why_there_are_batches() -> None:
    batches = dpvb.plan(made("LDA", sampling_prob=0.1, n_steps=5), 1_000, 500, epsilons=())
    assert "6 releases, 5 of them of random batches: a share of 0.1 of the documents." in str(batches)


def test_a_plan_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    dpvb.plan(made("MarkovChain"), 1_000).plot(tmp_path / "ladder.svg")
    assert "epsilon" in (tmp_path / "ladder.svg").read_text()


# --- what an attacker gains ---------------------------------------------------------------------------------

RELATION = "add_or_remove_one"


@pytest.mark.parametrize("noise", [0.5, 2.0, 30.0])
def test_the_power_against_gaussian_noise_is_exact(noise: float) -> None:
    events = [Event("full_batch", 1.0, noise, 4)]
    for alarm in (1e-4, 0.01, 0.5):
        expected = norm.cdf(norm.ppf(alarm) + 2 / noise)
        found = accounting.power(events, neighboring_relation=RELATION, false_positive_rate=alarm)
        assert found == pytest.approx(expected, rel=1e-9)


def test_the_power_of_a_sampled_plan_is_within_every_bound_and_above_a_test() -> None:
    """A test of one step's sum that looks for its own noise plus 1 finds so many; the bound is above."""
    events = [Event("poisson", 0.2, 1.0, 1)]
    found = accounting.power(events, neighboring_relation=RELATION)
    attained = 0.8 * 0.01 + 0.2 * norm.cdf(norm.ppf(0.01) + 1.0)
    assert attained <= found <= accounting.power([Event("full_batch", 1.0, 1.0, 1)], neighboring_relation=RELATION)


def test_without_noise_everybody_is_found() -> None:
    assert accounting.power([Event("full_batch", 1.0, 0.0, 1)], neighboring_relation=RELATION) == 1.0
    with pytest.raises(ParameterError, match="false_positive_rate must"):
        accounting.power([Event("full_batch", 1.0, 1.0, 1)], neighboring_relation=RELATION, false_positive_rate=2.0)
