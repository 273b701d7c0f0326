"""`dpvb.HiddenMarkovModel` as a user types it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dpvb
from dpvb.errors import DataFormatError, ModelFileError, ParameterError, PrivacyError
from dpvb.models.sequences import bootstrap
from dpvb.models.sequences.hidden_markov import HiddenMarkov

STEP = np.array([[0.9, 0.1], [0.2, 0.8]])
SHOWN = np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])
WORDS = ["rest", "walk", "run"]


def people(n: int = 3000, length: int = 20, seed: int = 1) -> tuple[Any, Any]:
    """Symbols and states of two kinds of days, (n, length)."""
    rng = np.random.default_rng(seed)
    state_nt, code_nt = np.zeros((n, length), np.int64), np.zeros((n, length), np.int64)
    for t in range(length):
        law = np.full((n, 2), 0.5) if t == 0 else STEP[state_nt[:, t - 1]]
        state_nt[:, t] = rng.random(n) >= law[:, 0]
        code_nt[:, t] = (rng.random((n, 1)) >= np.cumsum(SHOWN, axis=1)[state_nt[:, t]]).sum(axis=1)
    return code_nt, state_nt


@pytest.fixture(scope="module")
def fitted() -> dpvb.HiddenMarkovModel:
    model = dpvb.HiddenMarkovModel(2, symbols=WORDS, clip=100.0, epsilon=math.inf, delta=1e-6)
    return model.fit(np.array(WORDS)[people()[0]])


def test_a_fit_finds_the_states_in_the_order_of_their_shares(fitted: dpvb.HiddenMarkovModel) -> None:
    # 54,000 windows: probabilities are known to about .006, and .05 is eight deviations.
    np.testing.assert_allclose(fitted.transition_matrix_, STEP, atol=0.05)
    np.testing.assert_allclose(fitted.emission_probabilities_, SHOWN, atol=0.05)
    np.testing.assert_allclose(fitted.initial_, [0.5, 0.5], atol=0.08)
    np.testing.assert_allclose(fitted.stationary_ @ fitted.transition_matrix_, fitted.stationary_, rtol=1e-9)
    stay = np.diagonal(fitted.transition_matrix_)
    np.testing.assert_allclose(fitted.expected_durations_, 1 / (1 - stay), rtol=1e-9)
    assert fitted.symbols_ == tuple(WORDS)
    assert "Hidden Markov model, states: 2, symbols: 3" in fitted.summary()
    assert "rest 0.8" in fitted.summary() or "rest 0.7" in fitted.summary()


def test_predictions_know_the_states_behind_new_sequences(fitted: dpvb.HiddenMarkovModel) -> None:
    code_nt, state_nt = people(200, seed=2)
    sequences = [[WORDS[code] for code in row] for row in code_nt]
    best, law = fitted.predict(sequences), fitted.predict_proba(sequences)
    assert [len(one) for one in best] == [20] * 200
    assert np.mean(np.array(best) == state_nt) > 0.8
    smoothed = np.argmax(np.array(law), axis=2)
    assert np.mean(smoothed == state_nt) > 0.8
    np.testing.assert_allclose(np.array(law).sum(axis=2), 1.0, rtol=1e-9)
    assert fitted.predict([]) == []
    assert [one.tolist() for one in fitted.predict([["run"], [], ["rest", "rest"]])] == [[1], [], [0, 0]]
    flat = fitted.predict(["run", "rest", "rest"], [1, 2])
    assert [one.tolist() for one in flat] == [[1], [0, 0]]


def test_a_forecast_starts_where_the_sequence_ends(fitted: dpvb.HiddenMarkovModel) -> None:
    found = fitted.forecast([["run", "run"], []], steps=200)
    np.testing.assert_allclose(found.sum(axis=2), 1.0, rtol=1e-9)
    np.testing.assert_allclose(found[1, 0], fitted.initial_ @ fitted.emission_probabilities_, rtol=1e-9)
    np.testing.assert_allclose(found[:, -1], [fitted.stationary_ @ fitted.emission_probabilities_] * 2, rtol=1e-6)
    # P(next | seen) is the ratio of two likelihoods.
    both = fitted.score_samples([["run", "run", word] for word in WORDS], public=True)
    alone = fitted.score_samples([["run", "run"]], public=True)
    np.testing.assert_allclose(fitted.predict_next([["run", "run"]])[0], np.exp(both - alone), rtol=1e-9)


def test_scores_are_of_public_sequences_and_per_symbol(fitted: dpvb.HiddenMarkovModel) -> None:
    sequences = [["run", "rest"], ["walk"]]
    with pytest.raises(PrivacyError, match="public=True"):
        fitted.score(sequences)
    whole = fitted.score_samples(sequences, public=True)
    assert fitted.score(sequences, public=True) == pytest.approx(whole.sum() / 3)
    shown_k = fitted.emission_probabilities_[:, 1]
    assert whole[1] == pytest.approx(math.log(fitted.initial_ @ shown_k))


def test_sequences_of_nobody_are_as_the_model_says(fitted: dpvb.HiddenMarkovModel) -> None:
    words, states = fitted.sample(4000, rng=3, length=5)
    assert words.shape == states.shape == (4000, 5)
    again, _ = fitted.sample(4000, rng=3, length=5)
    np.testing.assert_array_equal(words, again)
    for k in (0, 1):
        shares = [np.mean(words[states == k] == word) for word in WORDS]
        # Over 5,000 draws each: .04 is six deviations or more.
        np.testing.assert_allclose(shares, fitted.emission_probabilities_[k], atol=0.04)
    assert fitted.sample(2)[0].shape == (2, 20)


def test_a_saved_model_says_the_same(fitted: dpvb.HiddenMarkovModel, tmp_path: Path) -> None:
    fitted.save(tmp_path / "days.dpvb")
    other = dpvb.load(tmp_path / "days.dpvb")
    assert other.predict([WORDS])[0].tolist() == fitted.predict([WORDS])[0].tolist()
    assert other.score([WORDS], public=True) == fitted.score([WORDS], public=True)
    assert other.summary() == fitted.summary()


def test_counts_of_the_cap_are_so_many_or_more(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    state_nt = people(3000, seed=4)[1]
    counts = np.minimum(rng.poisson(np.array([1.0, 6.0])[state_nt]), 9)
    given: dict[str, Any] = {"symbols": 10, "emissions": "poisson", "clip": 100.0, "epsilon": math.inf, "delta": 1e-6}
    model = dpvb.HiddenMarkovModel(2, **given).fit(counts)
    # 20,000 counts of each state: .05 is three times what they are known to.
    np.testing.assert_allclose(model.rates_, [1.0, 6.0], rtol=0.1)
    np.testing.assert_allclose(model.emission_probabilities_.sum(axis=1), 1.0, rtol=1e-9)
    assert "rate" in model.summary()
    model.save(tmp_path / "counts.dpvb")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "counts.dpvb").rates_, model.rates_)


def test_events_and_lists_give_the_same_model() -> None:
    table = {"who": ["b", "a", "b", "a", "c"], "what": ["run", "rest", "walk", "rest", "run"], "when": [2, 1, 1, 2, 5]}
    events = dpvb.data.Events(table, person="who", symbol="what", time="when")
    given: dict[str, Any] = {"symbols": WORDS, "epsilon": math.inf, "delta": 1e-6, "random_state": 1}
    one = dpvb.HiddenMarkovModel(2, **given).fit(events)
    two = dpvb.HiddenMarkovModel(2, **given).fit([["rest", "rest"], ["walk", "run"], ["run"]])
    np.testing.assert_array_equal(one.transition_matrix_, two.transition_matrix_)
    assert one.privacy_.unit == "person"


def test_what_is_no_symbol_is_a_gap_of_private_sequences_and_refused_in_public_ones() -> None:
    given: dict[str, Any] = {"symbols": WORDS, "epsilon": math.inf, "delta": 1e-6, "random_state": 1}
    model = dpvb.HiddenMarkovModel(2, **given).fit([["run", "rest", "rest"], ["fly", None, math.nan]])
    alone = dpvb.HiddenMarkovModel(2, **given).fit([["run", "rest", "rest"]])
    np.testing.assert_array_equal(model.transition_matrix_, alone.transition_matrix_)
    with pytest.raises(DataFormatError, match="none of the symbols"):
        model.predict([["fly"]])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_states": 0}, "n_states"),
        ({"symbols": [f"{place}" for place in range(1001)]}, "symbols must be at most 1000"),
        ({"emissions": "poisson"}, "symbols=21"),
        ({"estimate": "median"}, "estimate"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_spent(wrong: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"n_states": 2, "symbols": WORDS, "epsilon": 1.0, "delta": 1e-6, **wrong}
    with pytest.raises(ParameterError, match=words):
        dpvb.HiddenMarkovModel(**given).fit([["run", "rest"]])


def test_a_model_file_of_another_shape_is_refused(fitted: dpvb.HiddenMarkovModel, tmp_path: Path) -> None:
    fitted.save(tmp_path / "days.dpvb")
    arrays, facts = fitted._state()
    other = dpvb.HiddenMarkovModel(2, symbols=WORDS, epsilon=1.0, delta=1e-6)
    for name in ("step_kk", "count_vk", "pooled"):
        with pytest.raises(ValueError, match="another shape"):
            other._restore({**arrays, name: arrays[name][:-1]}, facts)
    with pytest.raises(PrivacyError, match="positive"):
        other._restore({**arrays, "step_kk": -arrays["step_kk"]}, facts)
    for name in ("start_k", "step_kk", "count_vk"):
        with pytest.raises(ValueError, match="make no probabilities"):
            other._restore({**arrays, name: np.full_like(arrays[name], 1e308)}, facts)
    greedy = clone(other).set_params(n_states=1000, n_init=1000)
    with pytest.raises(ValueError, match="another shape"):  # and takes no memory before
        greedy._restore(arrays, facts)
    other._restore({**arrays, "start_k": arrays["start_k"].astype(np.float32)}, facts)
    other.privacy_ = fitted.privacy_
    assert other.predict_next([["rest"]]) == pytest.approx(fitted.predict_next([["rest"]]), abs=1e-6)
    (tmp_path / "days.dpvb").write_bytes((tmp_path / "days.dpvb").read_bytes()[:-20])
    with pytest.raises(ModelFileError):
        dpvb.load(tmp_path / "days.dpvb")


def test_processes_release_the_same_bits() -> None:
    code_nt, _ = people(400)
    given: dict[str, Any] = {"symbols": 3, "epsilon": math.inf, "delta": 1e-6, "random_state": 1}
    one = dpvb.HiddenMarkovModel(2, **given).fit(code_nt)
    two = dpvb.HiddenMarkovModel(2, **given).fit(code_nt, cluster="local:2")
    np.testing.assert_array_equal(one._q.pooled, two._q.pooled)
    np.testing.assert_array_equal(one.transition_matrix_, two.transition_matrix_)


def test_intervals_hold_the_truth_and_count_the_noise_in() -> None:
    """Each within ten deviations, as the noise of a fit has no seed, and wider by the noise."""
    code_nt, _ = people(3000, seed=6)
    given: dict[str, Any] = {"symbols": WORDS, "clip": None, "power": 0.5, "delta": 1e-6, "random_state": 1}
    model = dpvb.HiddenMarkovModel(2, epsilon=0.5, **given).fit(np.array(WORDS)[code_nt])
    table = model.transition_intervals(0.9999, draws=20)
    order = np.argsort(-model.emission_probabilities_[:, 0])
    for i, j in np.ndindex(2, 2):
        line = table.of(str(order[i]))[str(order[j])]
        # The deviations are of 20 draws: a t of 19 degrees beyond 10 is one false alarm in 10⁸.
        assert line.low - 5 * line.std <= STEP[i, j] <= line.high + 5 * line.std
        assert line.low <= line.mean <= line.high
    assert "noise counted in" in str(table)
    naive = model.transition_intervals(0.9999, draws=20, noise_aware=False)
    # The same people are drawn for both.
    assert sum(line.std for line in naive) < sum(line.std for line in table)


def test_people_of_a_bootstrap_are_counted_and_clipped_as_people_are() -> None:
    rng = np.random.default_rng(7)
    code_nt = rng.integers(0, 3, (50, 8))
    for length, power, clip in ((3, 1.0, 2.0), (3, 0.5, None), (3, 0.7, 1.3)):
        model = HiddenMarkov(3, 2, power=power, clip=clip, max_length=8)
        assert model.length == length
        given: dict[str, Any] = {"symbols": 3, "power": power, "clip": clip, "max_length": 8}
        fitted = dpvb.HiddenMarkovModel(2, epsilon=math.inf, delta=1e-6, n_init=1, **given).fit(code_nt)
        start_ww, pooled = bootstrap._counted(model, code_nt)
        np.testing.assert_allclose(fitted._q.start_ww, start_ww, atol=1e-4)
        np.testing.assert_allclose(fitted._q.pooled, pooled, rtol=1e-4, atol=1e-4)
