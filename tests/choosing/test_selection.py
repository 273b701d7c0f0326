"""Private choice among settings: its price against exact enumeration, the law of its runs, and what comes out of it."""

from __future__ import annotations

import itertools
import logging
import math
import secrets
import traceback
import warnings
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills
from scipy import special, stats

import dpvb
from dpvb import accounting
from dpvb.accounting import Event, costs
from dpvb.accounting.costs import Composition
from dpvb.accounting.forms import from_dict
from dpvb.accounting.selection import NumberOfRuns, Selection, best_of, selection_scale
from dpvb.core.noise import InsecureNoise
from dpvb.data import BagOfWords, BinaryMatrix, Design
from dpvb.errors import (
    DpvbError,
    FewUnitsWarning,
    ModelFileError,
    ParameterError,
    PrivacyError,
    PrivateComputationError,
)
from dpvb.estimators import choosing
from dpvb.models.regression.likelihood import Likelihood
from dpvb.results.statement import PrivacyStatement

LAWS = [NumberOfRuns.expecting(mean, eta) for eta in (-0.5, 0.0, 0.5, 1.0, 3.0) for mean in (1.5, 5.0, 50.0, 1000.0)]
ORDERS = np.array([1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])


def name(law: NumberOfRuns) -> str:
    return f"eta {law.eta:g}, {law.mean:.4g} runs"


# --- the law of K -----------------------------------------------------------------------------------------------


def pmf(law: NumberOfRuns, k: int) -> float:
    """P[K = k], by the ratios that are drawn from."""
    return float(math.prod([law._ratio(before) for before in range(1, k)], start=law._first()))


def generating(law: NumberOfRuns, x: Any) -> Any:
    """E[x^K], in closed form (Papernot & Steinke 2022, Definition 1)."""
    y, whole = -np.log1p(-(1 - law.gamma) * x), -math.log(law.gamma)
    return y / whole if law.eta == 0 else np.expm1(law.eta * y) / np.expm1(law.eta * whole)


@each("law", LAWS, ids=name)
def test_the_law_of_runs_has_its_generating_function_and_mean(law: NumberOfRuns) -> None:
    x = 0.6
    assert math.fsum(pmf(law, k) * x**k for k in range(1, 120)) == pytest.approx(generating(law, x), rel=1e-12)
    h = 1e-6 * law.gamma
    slope = (generating(law, 1.0) - generating(law, 1.0 - h)) / h
    assert slope == pytest.approx(law.mean, rel=1e-3)


def test_known_laws_are_special_cases() -> None:
    geometric, logarithmic = NumberOfRuns(1.0, 0.2), NumberOfRuns(0.0, 0.2)
    for k in range(1, 30):
        assert pmf(geometric, k) == pytest.approx(stats.geom.pmf(k, 0.2), rel=1e-12)
        assert pmf(logarithmic, k) == pytest.approx(stats.logser.pmf(k, 0.8), rel=1e-12)
    assert pmf(NumberOfRuns(0.5, 1.0), 1) == 1.0
    assert pmf(NumberOfRuns(0.5, 1.0), 2) == 0.0


def test_draws_invert_the_distribution_function_at_its_edges() -> None:
    law = NumberOfRuns(0.0, 0.05)
    below = 0.0
    for k in range(1, 20):
        edge = int((below + pmf(law, k) / 2) * 2**64)
        assert law.draw(iter([edge, 0]).__next__) == k
        below += pmf(law, k)
    assert law.draw(iter([0, 0]).__next__) == 1
    assert law.draw(iter([2**64 - 1, 2**64 - 1]).__next__) > 300


@pytest.mark.parametrize("law", [NumberOfRuns(1.0, 0.3), NumberOfRuns(0.0, 0.05)], ids=name)
def test_draws_follow_the_law(law: NumberOfRuns) -> None:
    """Chi-square over 3,000 secure draws; false-alarm rate 1e-7."""
    draws = [law.draw(lambda: secrets.randbits(64)) for _ in range(3000)]
    expected = 3000 * np.array([pmf(law, k) for k in range(1, 6)])
    seen = np.bincount(np.minimum(draws, 6), minlength=7)[1:]
    expected = np.append(expected, 3000 - expected.sum())
    assert ((seen - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-7, 5)


@pytest.mark.parametrize(
    "wrong", [{"mean": 0.5, "eta": 1.0}, {"mean": math.nan, "eta": 1.0}, {"mean": 2.0, "eta": -1.0}]
)
def test_laws_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        NumberOfRuns.expecting(**wrong)
    with pytest.raises(ParameterError, match="gamma"):
        NumberOfRuns(1.0, 0.0)


# --- the price ----------------------------------------------------------------------------------------------------


def divergence(p: Any, q: Any, orders: Any) -> Any:
    """Rényi divergence of two finite distributions, exactly."""
    a = np.asarray(orders)[:, None]
    terms = a * np.log(p) + (1 - a) * np.log(q)
    peak = terms.max(axis=1)
    return (peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))) / (a[:, 0] - 1)


def both_ways(p: Any, q: Any) -> Any:
    return lambda orders: np.maximum(divergence(p, q, orders), divergence(q, p, orders))


def best(law: NumberOfRuns, p: Any) -> Any:
    """Distribution of the best, that is last, outcome of K draws from p, exactly."""
    return np.diff(generating(law, np.append(0.0, np.minimum(np.cumsum(p), 1.0))))


def neighbours(rng: np.random.Generator, extreme: bool) -> tuple[Any, Any]:
    """Two distributions over few outcomes; extreme ones put e^±ε on rare outcomes at the top."""
    epsilon = rng.choice([0.05, 0.3, 1.0, 2.0])
    if extreme:
        u = 10.0 ** rng.uniform(-4, -1.5)
        p = np.array([1 - u - u / 3, u / 3, u])
        q = p * np.exp(epsilon * rng.choice([-1, 1], 3))
        q[0] = 1 - q[1:].sum()
        return p, q
    p = rng.dirichlet(np.full(rng.integers(2, 6), rng.choice([0.2, 1.0]))) + 1e-9
    q = p * np.exp(epsilon * rng.uniform(-1, 1, len(p)))
    return p / p.sum(), q / q.sum()


@pytest.mark.guarantees("selection")
@kills("choices", "the best of several runs at the price of one")
@edit("accounting/selection.py", "choice = (1.0 + law.eta) * min(price, rest)", "choice = 0.0")
@pytest.mark.parametrize("law", LAWS, ids=name)
def test_the_best_of_a_random_number_of_runs_costs_no_more_than_its_bound(law: NumberOfRuns) -> None:
    """All outcomes enumerated: the choice's exact divergence, both ways, against the curve of the base's own."""
    rng = np.random.default_rng(0)
    nearest = 0.0
    for trial in range(60):
        p, q = neighbours(rng, extreme=trial % 2 == 1)
        exact = both_ways(best(law, p), best(law, q))(ORDERS)
        bound = best_of(both_ways(p, q), law)(ORDERS)
        assert (exact <= bound * (1 + 1e-9)).all()
        nearest = max(nearest, float((exact / bound).max()))
    assert nearest > 0.5  # and no idle bound


def test_one_term_less_is_no_bound() -> None:
    """The enumeration sees a price that leaves out the factor 1 + η, or the mean of K."""
    rng = np.random.default_rng(1)
    without_factor = without_mean = 0.0
    for law in LAWS:
        for trial in range(60):
            p, q = neighbours(rng, extreme=trial % 2 == 1)
            exact = both_ways(best(law, p), best(law, q))(ORDERS)
            bound, base = best_of(both_ways(p, q), law)(ORDERS), both_ways(p, q)(ORDERS)
            mean = math.log(law.mean) / (ORDERS - 1)
            price = bound - base - mean
            without_factor = max(without_factor, (exact / (base + mean + price * law.eta / (1 + law.eta))).max())
            without_mean = max(without_mean, (exact / (base + price)).max())
    assert without_factor > 1.2
    assert without_mean > 1.0


def test_the_enumeration_agrees_with_the_runs_themselves() -> None:
    """Sum over k of P[K = k] times the law of the best of k, which needs no generating function."""
    law, p = NumberOfRuns.expecting(3.0, 0.0), np.array([0.5, 0.3, 0.15, 0.05])
    whole = np.append(0.0, np.cumsum(p))
    summed = sum(pmf(law, k) * np.diff(whole**k) for k in range(1, 200))
    np.testing.assert_allclose(best(law, p), summed, rtol=1e-9)


def gaussian(noise: float) -> Composition:
    return Composition([Event("full_batch", 1.0, noise)], "add_or_remove_one")


def test_one_run_costs_what_the_run_costs() -> None:
    plan = Composition([Event("poisson", 0.1, 2.0, 50)], "add_or_remove_one")
    for eta in (0.0, 1.0):
        alone = Selection([plan], NumberOfRuns(eta, 1.0))
        np.testing.assert_allclose(alone.renyi(ORDERS), plan.renyi(ORDERS), rtol=1e-12)


def test_a_selection_costs_by_hand_what_the_theorem_says() -> None:
    """Gaussian base, ε(a) = a/2σ²: the minimum over â is at √(2σ² log(1/γ))."""
    noise, law = 8.0, NumberOfRuns(1.0, 0.1)
    rho = 1 / (2 * noise**2)
    hat = math.sqrt(math.log(10.0) / rho)
    by_hand = rho * ORDERS + math.log(10.0) / (ORDERS - 1) + 2 * (rho * (hat - 1) + math.log(10.0) / hat)
    np.testing.assert_allclose(Selection([gaussian(noise)], law).renyi(ORDERS), by_hand, rtol=1e-3)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_agreement_with_the_accountant_of_other_authors(eta: float) -> None:
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    law = NumberOfRuns.expecting(20.0, eta)
    orders = 1 + np.geomspace(0.05, 2000, 150)
    base = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 30)
    other = RdpAccountant(orders).compose(dp_event.RepeatAndSelectDpEvent(base, 20.0, eta))
    own = Selection([Composition([Event("poisson", 0.1, 2.0, 30)], "add_or_remove_one")], law)
    assert own.epsilon(1e-5) == pytest.approx(other.get_epsilon(1e-5), rel=5e-3)


def test_alternatives_cost_the_dearest_of_them() -> None:
    law = NumberOfRuns(1.0, 0.1)
    few, many = gaussian(4.0), Composition([Event("poisson", 0.01, 0.6, 200)], "add_or_remove_one")
    both = Selection([few, many, few], law).renyi(ORDERS)
    each = [Selection([plan], law).renyi(ORDERS) for plan in (few, many)]
    assert (both >= np.max(each, axis=0) * (1 - 1e-12)).all()
    assert Selection([few, many], law) == Selection([many, few, many], law)
    with pytest.raises(ParameterError, match="neighboring_relation"):
        Selection([few, Composition(few.events, "replace_one")], law)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_calibration_lands_just_below_the_target(epsilon: float) -> None:
    plan = Composition([Event("poisson", 0.05, 1.0, 100), Event("full_batch", 1.0, 5.0)], "add_or_remove_one")
    law = NumberOfRuns.expecting(30.0, 1.0)
    relative = Selection([plan, gaussian(3.0)], law)
    made = relative.scaled(selection_scale(relative, epsilon=epsilon, delta=1e-6))
    assert 0.998 * epsilon <= made.epsilon(1e-6) <= epsilon
    assert max(part.epsilon(1e-6) for part in made.alternatives) < epsilon


def test_no_noise_has_no_epsilon() -> None:
    relative = Selection([gaussian(3.0)], NumberOfRuns(1.0, 0.1))
    made = relative.scaled(selection_scale(relative, epsilon=math.inf, delta=1e-6))
    assert made.epsilon(1e-6) == math.inf
    assert np.isinf(made.renyi(ORDERS)).all()


def test_a_selection_is_a_cost_like_any_other() -> None:
    law = NumberOfRuns.expecting(10.0, 0.0)
    made, plain = Selection([gaussian(6.0), gaussian(5.0)], law), gaussian(9.0)
    assert isinstance(made, costs.Cost)
    assert from_dict(made.to_dict()) == made
    together = costs.total([made, plain, made])
    np.testing.assert_allclose(together.renyi(ORDERS), 2 * made.renyi(ORDERS) + plain.renyi(ORDERS), rtol=1e-12)
    assert (
        together.epsilon(1e-5)
        > made.epsilon(1e-5)
        > accounting.epsilon_of(made.alternatives[0].events, delta=1e-5, neighboring_relation="add_or_remove_one")
    )


# --- selecting ------------------------------------------------------------------------------------------------------


class Sources:
    """Noise from seeds 1000·s, 1000·s + 1, ...: a new one whenever a selection asks for one."""

    def __init__(self, seed: int) -> None:
        self.seeds = count(1000 * seed)

    def __call__(self) -> InsecureNoise:
        return InsecureNoise(next(self.seeds))


def binary(n: int = 1500, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.5, 0.5, (n, 3))
    return x, (rng.random(n) < special.expit(x @ [9.0, -6.0, 0.0])).astype(int)


LOGISTIC = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=4, max_row_norm=1.0)
#: The first leaves the features nothing but rounding.
SETTINGS = [{"max_row_norm": 1e4}, {"max_row_norm": 1.0}]
BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def chosen(estimator: Any, settings: Any, X: Any, y: Any = None, seed: int = 1, **options: Any) -> Any:
    """A selection with noise from a seed."""
    rows = {name: options.pop(name) for name in ("group", "trials") if name in options}
    data = {"X": X, "y": y, **rows}
    choice = choosing._fixed(estimator, settings, data, **{**BUDGET, **options})
    return choosing._charged(choice, data, Sources(seed), dpvb.Run())


@pytest.mark.filterwarnings("ignore::dpvb.errors.NotSettledWarning")
def test_the_better_setting_wins() -> None:
    X, y = binary()
    fresh, labels = binary(seed=1)
    won = 0
    for seed in range(1, 5):
        found = chosen(LOGISTIC, SETTINGS, X, y, seed, expected_runs=12)
        won += found.max_row_norm == 1.0
        assert found.get_params() == {**LOGISTIC.get_params(), **BUDGET, "max_row_norm": found.max_row_norm}
    assert won == 4
    assert found.score(fresh, labels, public=True) > 0.75


def test_the_better_setting_wins_on_handwritten_digits() -> None:
    """Odd digits from even ones, 1,797 scans: a norm that drowns them against one that keeps them."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    X, y = digits.data / 16, digits.target % 2
    for distribution in ("geometric", "logarithmic"):
        found = chosen(LOGISTIC, SETTINGS, X, y, distribution=distribution, expected_runs=8)
        assert found.max_row_norm == 1.0
        assert found.score(X, y, public=True) > 0.8


@pytest.mark.filterwarnings("ignore::dpvb.errors.NotSettledWarning")
def test_all_estimators_can_be_selected() -> None:
    rng = np.random.default_rng(3)
    X, y = binary(200)
    counts = rng.poisson(1.0, (60, 8))
    pixels = rng.integers(0, 2, (80, 6))
    given = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 2}
    cases: list[tuple[Any, list[dict[str, Any]], tuple[Any, ...], dict[str, Any]]] = [
        (dpvb.LDA(2, public_vocabulary=True, **given), [{"n_components": 3}, {"clip_scale": 0.1}], (counts,), {}),
        (dpvb.LogisticRegression(max_row_norm=1.0, **given), [{"alpha": 2.0}], (X, y), {}),
        (dpvb.SigmoidBeliefNetwork(2, **given), [{"n_components": 3}, {"n_steps": 3}], (pixels,), {}),
        (dpvb.LogisticRegression(covariance="diagonal", max_row_norm=1.0, **given), [{}, {"alpha": 1.0}], (X, y), {}),
        (dpvb.LogisticRegression(low=-9, high=9, **given), [{}, {"low": -5}], (X, y), {}),
        (
            dpvb.BinomialRegression(max_trials=4, max_row_norm=1.0, **given),
            [{}],
            (X, 2 * y),
            {"trials": np.full(200, 3)},
        ),
        (dpvb.NegativeBinomialRegression(dispersion=2.0, max_count=9, max_row_norm=1.0, **given), [{}], (X, 3 * y), {}),
    ]
    for estimator, settings, rows, more in cases:
        for relation in ("add_or_remove_one", "replace_one"):
            estimator.set_params(neighboring_relation=relation)
            found = chosen(estimator, settings, *rows, **more)
            assert type(found) is type(estimator)
            assert found.privacy_.neighboring_relation == relation
            assert 0.998 * 2 <= found.privacy_.epsilon <= 2
            direct = estimator.fit(*rows[:2], **more)
            assert set(vars(found)) == set(vars(direct))


def test_the_winner_goes_to_a_file_and_back(tmp_path: Any) -> None:
    X, y = binary(200)
    found = chosen(LOGISTIC, SETTINGS, X, y)
    found.save(tmp_path / "model")
    again = dpvb.load(tmp_path / "model")
    assert again.privacy_ == found.privacy_
    assert "best of K runs" in str(again.privacy_)
    again.privacy_.verify()
    np.testing.assert_array_equal(again.coef_, found.coef_)
    cheaper = replace(found.privacy_, epsilon=0.9 * found.privacy_.epsilon)
    with pytest.raises(PrivacyError, match="its releases cost"):
        cheaper.verify()
    facts = found.privacy_.to_dict()
    for name in facts["selection"]:
        for wrong in (None, "x", -1, [], {"form": "selection"}):
            with pytest.raises(ModelFileError):
                PrivacyStatement.from_dict(facts | {"selection": facts["selection"] | {name: wrong}})


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_runs_of_every_sampler_cost_what_was_asked_for(relation: str) -> None:
    X, y = binary(300)
    estimator = dpvb.LogisticRegression(
        epsilon=1, delta=1e-5, max_row_norm=1.0, n_units=300, neighboring_relation=relation
    )
    settings = [{"sampling_prob": 0.1, "n_steps": 8}, {"batch_size": 60, "n_steps": 8}, {"n_steps": 4}, {}]
    choice = choosing._fixed(estimator, settings, {"X": X, "y": y}, **BUDGET)
    by_hand = [Composition(plan.events(), relation) for plan in (*choice.plans, choice.scoring)]  # type: ignore[arg-type]
    law = NumberOfRuns.expecting(20.0, 1.0)
    assert 0.998 * 2 <= Selection(by_hand, law).epsilon(1e-5) == choice.cost.epsilon(1e-5) <= 2
    assert {release.event().sampler for plan in choice.plans for release in plan} > {"poisson", "fixed_size"}
    # The batch is a share of those that are fitted.
    assert {release.mechanism.sampler.sampling_prob for release in choice.plans[1]} == {1.0, 60 / 225}
    assert choice.scoring.releases[0].noise_std("score") == pytest.approx(
        choice.scoring.releases[0].mechanism.noise_multiplier * 2 * math.log(2)
    )


def test_each_unit_is_either_fitted_or_scored() -> None:
    """One more row, same secrets: if its coin says so the fit keeps its bits and the score moves by that row's."""
    X, y = binary(60)
    data = {"X": X[:-1], "y": y[:-1]}
    seen = set()
    for seed in range(12):
        choice = choosing._fixed(LOGISTIC, SETTINGS, data, **BUDGET)
        runs = []
        for n in (59, 60):
            sources = Sources(seed)
            coins = sources().words(step=0, purpose="holdout")
            runs.append(choosing._run(choice, 1, {"X": X[:n], "y": y[:n]}, coins, sources))
        before, after = runs
        fits = [choice.winner(1), choice.winner(1)]
        for fit, run in zip(fits, runs, strict=True):
            fit._take(run.task, run.q)
        same_fit = np.array_equal(fits[0].coef_, fits[1].coef_)
        moved = abs(after.score - before.score)
        if same_fit:
            # What predicts, which is not the table; rows are delivered behind a constant.
            psi = fits[1]._weights.mean_d @ np.append(fits[1]._columns.constant, X[59] / fits[1]._columns.max_row_norm)
            own = special.log_expit((2 * y[59] - 1) * psi)
            assert after.score - before.score == pytest.approx(max(own, -4 * math.log(2)) + 2 * math.log(2), abs=3e-6)
            assert 0 < moved <= 2 * math.log(2)
        seen.add(same_fit)
    assert seen == {True, False}


def test_a_share_of_the_units_is_scored() -> None:
    """40,000 coins at 1/4: five standard deviations, false-alarm rate 6e-7 (and repeatable, from a seed)."""
    source = Design(np.zeros((40_000, 1)), np.zeros(40_000))
    coins = InsecureNoise(0).words(step=0, purpose="holdout")
    parts = [choosing.Side(source, coins, 0.25, scored=scored) for scored in (True, False)]
    sizes = [part.count() for part in parts]
    assert sum(sizes) == 40_000
    assert abs(sizes[0] - 10_000) < 5 * math.sqrt(40_000 * 0.25 * 0.75)
    assert [sum(chunk.num_units for chunk in part.chunks()) for part in parts] == sizes


def test_neighbours_make_the_same_choices_until_a_release_differs() -> None:
    """K, candidates and coins owe nothing to the data: with equal secrets both data sets go through the same runs."""
    X, y = binary(100)
    asked: list[list[tuple[int, str]]] = []
    original = choosing._words
    for n in (99, 100):
        words: list[tuple[int, str]] = []

        def heard(noise: Any, words: Any = words) -> Any:
            word, place = original(noise), itertools.count()

            def told() -> int:
                words.append((next(place), noise.run_id))
                return word()

            return told

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choosing, "_words", heard)
            chosen(LOGISTIC, SETTINGS, X[:n], y[:n])
        asked.append(words)
    assert asked[0] == asked[1]
    runs = NumberOfRuns.expecting(10.0, 1.0).draw(choosing._words(InsecureNoise(1000)))
    assert [place for place, _ in asked[0]] == list(range(2 + runs))  # two words for K, one for each candidate


def test_candidates_are_drawn_alike() -> None:
    """Chi-square over 6,000 words of a stream, false-alarm rate 1e-7; words that would favour some are drawn again."""
    word = choosing._words(InsecureNoise(0))
    seen = np.bincount([choosing._uniform(word, 3) for _ in range(6000)], minlength=3)
    assert ((seen - 2000) ** 2 / 2000).sum() < stats.chi2.isf(1e-7, 2)
    assert choosing._uniform(iter([2**64 - 1, 5]).__next__, 3) == 2
    assert choosing._uniform(iter([2**64 - 1]).__next__, 4) == 3


# --- scores ---------------------------------------------------------------------------------------------------------


def scored(trial: Any, chunk: Any) -> Any:
    low, high = trial._quality_range(trial._fitted_model) if hasattr(trial, "_fitted_model") else (-3, 0)
    with np.errstate(all="ignore"):  # as behind the wall
        return choosing.contributions(trial._quality, (low, high), chunk)["score"].values[:, 0]


def fitted_cases() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    X, y = binary(90)
    counts, pixels = rng.poisson(0.5, (90, 9)), rng.integers(0, 2, (90, 70))
    X[7], counts[3], pixels[5] = np.nan, 0, 2
    given = {"epsilon": np.inf, "delta": 1e-5, "n_steps": 2, "random_state": 0}
    lda = dpvb.LDA(3, public_vocabulary=True, **given).fit(counts)
    network = dpvb.SigmoidBeliefNetwork(40, **given).fit(pixels)
    full = dpvb.LogisticRegression(max_row_norm=1.0, **given).fit(X, y)
    diagonal = dpvb.LogisticRegression(covariance="diagonal", max_row_norm=1.0, **given).fit(X, y)
    return [
        (lda, BagOfWords(counts)),
        (network, BinaryMatrix(pixels)),
        (full, Design(X, y, intercept=0.4)),
        (diagonal, Design(X, y, intercept=0.4, sparse_rows=True)),
    ]


def test_a_score_is_that_of_its_row_bit_for_bit() -> None:
    for trial, source in fitted_cases():
        (chunk,) = source.chunks()
        together = scored(trial, chunk)
        assert np.isnan(together).sum() == 1
        for rows in (slice(0, 1), slice(4, 9), slice(3, 90, 7)):
            mask = np.zeros(90, dtype=bool)
            mask[rows] = True
            assert scored(trial, chunk.select(mask)).tobytes() == together[rows].tobytes()


@np.errstate(all="ignore")
def test_scores_are_those_that_the_public_may_ask_for() -> None:
    (lda, words), (network, pixels), (full, design), (diagonal, entries) = fitted_cases()
    rows = next(iter(words.chunks())).rows
    tokens = np.diff(rows.indptr) > 0
    per_word = lda._quality(rows)[tokens]
    total = per_word @ np.add.reduceat(rows.counts, rows.indptr[:-1][tokens])
    assert total == pytest.approx(lda.score(rows.csr(), public=True), rel=1e-9)
    rows = next(iter(pixels.chunks())).rows
    sound = np.isfinite(rows).all(axis=1)
    public = network.score_samples(rows[sound], public=True)
    np.testing.assert_allclose(network._quality(rows)[sound], public, rtol=1e-6)
    for trial, source in ((full, design), (diagonal, entries)):
        rows = next(iter(source.chunks())).rows
        X, y = binary(90)
        sound = np.isfinite(rows.y_n)
        sign = 2 * y[sound] - 1
        np.testing.assert_allclose(
            trial._quality(rows)[sound],
            special.log_expit(sign * trial.decision_function(X[sound])),
            rtol=1e-6,
        )


def test_log_probabilities_are_those_of_scipy() -> None:
    psi, y, n = np.linspace(-5, 5, 12), np.arange(12.0), np.full(12, 14.0)
    p = special.expit(psi)
    cases = (
        (Likelihood("logistic"), y % 2, stats.bernoulli.logpmf(y % 2, p)),
        (Likelihood("binomial", max_trials=14), y, stats.binom.logpmf(y, n, p)),
        (
            Likelihood("negative_binomial", dispersion=2.5, max_count=200.0),
            y,
            stats.nbinom.logpmf(y, 2.5, 2.5 / (2.5 + np.exp(psi))),
        ),
        (Likelihood("poisson", max_count=200.0), y, stats.poisson.logpmf(y, np.exp(psi))),
    )
    for likelihood, given, expected in cases:
        np.testing.assert_allclose(likelihood.log_probability(psi, given, n), expected, rtol=1e-10)


def test_scores_are_clipped_to_their_range_and_counted_from_its_middle() -> None:
    (chunk,) = Design(np.zeros((5, 1)), np.zeros(5), group=[0, 0, 1, 2, 2]).chunks()
    given = np.array([-1e9, -0.5, 3.0, np.nan, -1.0])
    made = choosing.contributions(lambda rows: given, (-2.0, 0.0), chunk)["score"].values[:, 0]
    np.testing.assert_array_equal(made, [-0.25, 1.0, 0.0])


def test_a_person_is_scored_by_the_mean_of_the_rows() -> None:
    X, y = binary(12)
    X[2] = np.nan
    person = [0, 1, 0, 2, 2, 2, 1, 0, 3, 3, 3, 3]
    trial = fitted_cases()[2][0]
    (alone,), (grouped,) = (Design(X, y, intercept=0.4, group=group).chunks() for group in (None, person))
    rows, means = scored(trial, alone), scored(trial, grouped)
    by_hand = [np.nanmean(rows[np.array(person) == k]) for k in range(4)]
    np.testing.assert_allclose(means, by_hand, rtol=1e-12)


# --- what does not leave --------------------------------------------------------------------------------------------


def test_public_faults_are_typed_and_charge_nothing(tmp_path: Any) -> None:
    X, y = binary(50)
    ledger = dpvb.Ledger(tmp_path / "ledger.db")
    ledger.register("rows", unit="row", neighboring_relation="add_or_remove_one", epsilon=5.0, delta=1e-5)
    given, run = dict(LOGISTIC.get_params()), dpvb.Run(ledger=ledger, dataset="rows")
    for changes, error in (
        ({"candidates": []}, "candidates"),
        ({"candidates": {"max_row_norm": 1}}, "candidates"),
        ({"candidates": [{"rownorm": 1}]}, "parameters of LogisticRegression"),
        ({"candidates": [{"epsilon": 1}]}, "epsilon"),
        ({"candidates": [{}, {"max_row_norm": -1.0}]}, "max_row_norm"),
        ({"candidates": [{"n_steps": 0}]}, "n_steps"),
        ({"candidates": [{"covariance": "best"}]}, "covariance"),
        ({"candidates": [{"random_state": "seed"}]}, "random_state"),
        ({"candidates": [{"n_units": 2**60}]}, "n_units"),
        ({"candidates": [{"n_units": "many"}]}, "n_units"),
        ({"candidates": [{"n_units": 50, "batch_size": "few"}]}, "batch_size"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "noise"),
        ({"delta": 1.0}, "delta"),
        ({"expected_runs": 0.5}, "expected_runs"),
        ({"distribution": "poisson"}, "distribution"),
        ({"holdout": 1.0}, "holdout"),
        ({"score_range": (0.0, -1.0)}, "score_range"),
        ({"score_range": 3.0}, "score_range"),
        ({"X": iter(X)}, "more than once"),
        ({"y": None}, "y"),
        ({"run": dpvb.Run(ledger=ledger)}, "dataset"),
        ({"run": dpvb.Run(ledger=ledger, dataset="others")}, "others"),
        ({"epsilon": 9.0}, "left|cap|fit"),
        ({"estimator": object()}, "estimator"),
        ({"estimator": dpvb.LogisticRegression(**{**given, "noise_multiplier": 1.0})}, "noise_multiplier"),
        ({"run": replace(run, checkpoint=tmp_path)}, "checkpoint"),
    ):
        arguments = {"estimator": LOGISTIC, "candidates": SETTINGS, "X": X, "y": y, **BUDGET, "run": run}
        with pytest.raises(DpvbError, match=error):
            dpvb.private_select(**{**arguments, **changes})
    assert ledger.remaining("rows").num_charges == 0


class Failing:
    """Documents that cannot be read, with a private reason."""

    width, vocabulary, unit = 8, None, "document"

    def count(self) -> int:
        return 3

    def chunks(self) -> Any:
        raise ValueError("document 2 says 0.1234567")


def test_a_failure_is_one_error_and_stays_charged(tmp_path: Any) -> None:
    ledger = dpvb.Ledger(tmp_path / "ledger.db")
    ledger.register("texts", unit="document", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
    estimator, run = (
        dpvb.LDA(2, public_vocabulary=True, epsilon=1.0, delta=1e-5, n_steps=1),
        dpvb.Run(ledger=ledger, dataset="texts"),
    )
    with pytest.raises(PrivateComputationError, match="stays charged") as caught:
        dpvb.private_select(estimator, [{}, {"clip_scale": 0.2}], Failing(), **BUDGET, run=run)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert "0.1234567" not in "".join(traceback.format_exception(caught.value))
    left = ledger.remaining("texts")
    assert left.num_charges == 1
    assert left.spent_if_fixed == pytest.approx(2.0, rel=2e-3)
    ledger.verify()


@pytest.mark.guarantees("selection")
def test_nothing_counts_the_runs(capfd: Any, caplog: Any) -> None:
    """Neither what is written, logged or warned, nor the state of a generator that every run starts from."""
    pixels = np.random.default_rng(1).integers(0, 2, (80, 6))
    generator = np.random.default_rng(0)
    state = generator.bit_generator.state
    caplog.set_level(logging.DEBUG)
    estimator = dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, n_steps=2, random_state=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        found = dpvb.private_select(estimator, [{"n_sweeps": 1}, {"n_sweeps": 2}], pixels, **BUDGET)
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err == ""
    assert not caplog.records
    assert generator.bit_generator.state == state == found.random_state.bit_generator.state
    assert found.privacy_.private
    assert logging.root.manager.disable == logging.NOTSET


@pytest.mark.guarantees("selection")
def test_the_ledger_adds_up(tmp_path: Any) -> None:
    """Two selections and a fit: charged once each, what is spent is what the costs say, summed by hand."""
    X, y = binary(80)
    ledger = dpvb.Ledger(tmp_path / "ledger.db")
    ledger.register("rows", unit="row", neighboring_relation="add_or_remove_one", epsilon=10.0, delta=1e-5)
    run = dpvb.Run(ledger=ledger, dataset="rows")
    first = dpvb.private_select(LOGISTIC, SETTINGS, X, y, **BUDGET, run=run)
    dpvb.private_select(LOGISTIC, [{}], X, y, epsilon=1.0, delta=1e-5, distribution="logarithmic", run=run)
    dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=2, max_row_norm=1.0).fit(X, y, run=run)
    data = {"X": X, "y": y}
    charges = [
        choosing._fixed(LOGISTIC, SETTINGS, data, **BUDGET).cost,
        choosing._fixed(LOGISTIC, [{}], data, epsilon=1.0, delta=1e-5, distribution="logarithmic").cost,
    ]
    history = ledger.history(first.privacy_.run_id)
    assert [entry.state for entry in history if entry.state] == ["finished"]
    assert first.privacy_.charge.dataset == "rows"
    left = ledger.remaining("rows")
    assert left.num_charges == 3
    fit = (
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=2, max_row_norm=1.0, accountant="renyi")
        .fit(X, y)
        .privacy_
    )
    charges.append(Composition([facts.event for facts in fit.releases], "add_or_remove_one"))
    assert left.spent_if_fixed == pytest.approx(costs.total(charges).epsilon(1e-5), rel=1e-9)
    ledger.verify([first.privacy_.charge])


def test_without_noise_the_best_of_the_runs_is_the_best() -> None:
    X, y = binary(400)
    found = chosen(LOGISTIC, SETTINGS, X, y, epsilon=math.inf, expected_runs=30)
    assert found.max_row_norm == 1.0
    assert found.privacy_.epsilon == math.inf
    assert "NO PRIVACY" in str(found.privacy_)


def test_a_selection_that_is_stopped_says_what_it_cost(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*given: Any) -> None:
        raise KeyboardInterrupt

    X, y = binary(80)
    monkeypatch.setattr(choosing, "_selected", stop)
    ledger = dpvb.Ledger(tmp_path / "ledger.db")
    ledger.register("rows", unit="row", neighboring_relation="add_or_remove_one", epsilon=5.0, delta=1e-5)
    with pytest.raises(KeyboardInterrupt) as caught:
        dpvb.private_select(LOGISTIC, SETTINGS, X, y, **BUDGET, run=dpvb.Run(ledger=ledger, dataset="rows"))
    assert caught.value.__notes__ == [
        "'rows' was charged for the whole selection, which shows nothing and cannot go on."
    ]
    assert ledger.remaining("rows").num_charges == 1
    with pytest.raises(KeyboardInterrupt) as caught:
        dpvb.private_select(LOGISTIC, SETTINGS, X, y, **BUDGET)
    assert "as spent" in caught.value.__notes__[0]
