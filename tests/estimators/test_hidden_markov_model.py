"""`dpvb.HiddenMarkovModel` as a user types it."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forged import forge
from sklearn.base import clone

import dpvb
from dpvb.data import Events
from dpvb.errors import DataFormatError, FewUnitsWarning, ModelFileError, ParameterError, PrivacyError
from dpvb.guards.arrays import Floats, Ints
from dpvb.ledger import Ledger
from dpvb.results import model_file, trees

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
    model = dpvb.HiddenMarkovModel(2, symbols=WORDS, clip_norm=100.0, epsilon=math.inf, delta=1e-6)
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
    found = fitted.forecast([["run", "run"], []], horizon=200)
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
    given: dict[str, Any] = {
        "symbols": 10,
        "emissions": "poisson",
        "clip_norm": 100.0,
        "epsilon": math.inf,
        "delta": 1e-6,
    }
    model = dpvb.HiddenMarkovModel(2, **given).fit(counts)
    # 20,000 counts of each state: .05 is three times what they are known to.
    np.testing.assert_allclose(model.rates_, [1.0, 6.0], rtol=0.1)
    np.testing.assert_allclose(model.emission_probabilities_.sum(axis=1), 1.0, rtol=1e-9)
    assert "rate" in model.summary()
    model.save(tmp_path / "counts.dpvb")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "counts.dpvb").rates_, model.rates_)


def test_events_and_lists_give_the_same_model() -> None:
    table = {"who": ["b", "a", "b", "a", "c"], "what": ["run", "rest", "walk", "rest", "run"], "when": [2, 1, 1, 2, 5]}
    events = dpvb.data.Events(table, group="who", symbol="what", time="when")
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
        ({"n_steps": -1}, "n_steps"),
        ({"emissions": "gaussian"}, "emissions must be"),
        ({"emissions": "bernoulli"}, "columns must be given"),
        ({"columns": 2}, "symbols must be given, not columns"),
        ({"symbols": None, "columns": 10, "emissions": "bernoulli"}, "columns must be at most 9"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_spent(wrong: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"n_states": 2, "symbols": WORDS, "epsilon": 1.0, "delta": 1e-6, **wrong}
    with pytest.raises(ParameterError, match=words):
        dpvb.HiddenMarkovModel(**given).fit([["run", "rest"]])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "columns must be given"),
        ({"columns": 2}, "low= and high="),
        ({"columns": 5, "max_row_norm": 1.0}, "columns must be at most 4"),
        ({"columns": 2, "max_row_norm": 1.0, "low": 0}, "max_row_norm must be None"),
    ],
)
def test_a_wrong_parameter_of_numbers_is_refused_before_anything_is_spent(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        dpvb.GaussianHiddenMarkovModel(2, epsilon=1.0, delta=1e-6, **wrong).fit([[[0.0, 1.0]]])


def _loaded(path: Path) -> None:
    """Read a file as `dpvb.load` does, with the error that it finds."""
    stored = model_file.load(path)
    model = dpvb.HiddenMarkovModel(**stored.facts["params"])
    with np.errstate(all="ignore"):
        model._check(trees.read(model._record_class, stored.facts["learned"], stored.arrays))


def test_a_model_file_of_another_shape_is_refused(fitted: dpvb.HiddenMarkovModel, tmp_path: Path) -> None:
    fitted.save(tmp_path / "days.dpvb")
    path, other = tmp_path / "days.dpvb", tmp_path / "other.dpvb"

    def refused(words: str, **changes: Any) -> None:
        forge(path, other, **changes)
        with pytest.raises(ModelFileError, match="do not fit together") as caught:
            dpvb.load(other)
        with pytest.raises(Exception, match=words):
            _loaded(other)
        assert caught.value.__cause__ is None

    places = ("chain__step_kk", "chain__emissions__count_vk", "pooled")
    for name in places:
        refused("another shape", arrays={name: lambda a: a[:-1]})
    refused("positive", arrays={"chain__step_kk": lambda a: -a})
    for name in ("chain__start_k", *places[:2]):
        refused("do not sum to 1", arrays={name: lambda a: np.full_like(a, 1e308)})
    refused("another shape", learned={"chain.prior": 3.0})
    params = model_file.load(path).facts["params"]
    # It takes no memory before.
    refused("another shape", params={**params, "n_states": 1000, "n_init": 1000})
    refused("another shape", params={**params, "symbols": 1000})
    forge(path, other, arrays={"chain__start_k": lambda a: a.astype(np.float32)})
    again = dpvb.load(other)
    assert again.predict_next([["rest"]]) == pytest.approx(fitted.predict_next([["rest"]]), abs=1e-6)
    (tmp_path / "days.dpvb").write_bytes((tmp_path / "days.dpvb").read_bytes()[:-20])
    with pytest.raises(ModelFileError):
        dpvb.load(tmp_path / "days.dpvb")


@pytest.mark.parametrize("kind", ["categorical", pytest.param("gaussian", marks=pytest.mark.slow)])
def test_processes_release_the_same_bits(kind: str, two_processes: Any) -> None:
    """Steps over symbols, and moments of numbers; more sequences than stand side by side."""
    code_nt, _ = people(400)
    given: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6, "random_state": 1}
    given |= {"symbols": 3, "n_steps": 4} if kind == "categorical" else {"columns": 1, "low": 0, "high": 2}
    own: Any = dpvb.HiddenMarkovModel if kind == "categorical" else dpvb.GaussianHiddenMarkovModel
    x = (
        code_nt
        if kind == "categorical"
        else code_nt[..., None] + np.random.default_rng(0).random((*code_nt.shape, 1)) / 9
    )
    one, two = (own(2, **given).fit(x, run=dpvb.Run(cluster=c)) for c in (None, two_processes))
    arrays = trees.written(two._record)[0]
    for name, array in trees.written(one._record)[0].items():
        np.testing.assert_array_equal(array, arrays[name])
    np.testing.assert_array_equal(one.transition_matrix_, two.transition_matrix_)
    assert one.n_iter_ == (4 if kind == "categorical" else 0)


def test_a_fit_with_steps_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """One charge pays for both calls, and releases that were made are read, not made again."""
    code_nt, _ = people(200)
    with dpvb.Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.register("days", unit="sequence", neighboring_relation="add_or_remove_one", epsilon=4.0, delta=1e-5)
    given: dict[str, Any] = {"ledger": str(tmp_path / "ledger.sqlite"), "dataset": "days"}
    given["checkpoint"] = tmp_path / "run"
    model = dpvb.HiddenMarkovModel(2, symbols=3, n_steps=4, epsilon=3.0, delta=1e-6, random_state=1)

    def stop(step: int, plan: Any) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(code_nt, run=dpvb.Run(**given, progress=stop))
    steps: list[int] = []
    model.fit(code_nt, run=dpvb.Run(**given, progress=lambda step, plan: steps.append(step)))
    assert steps[-1] == 5
    read = clone(model).fit(code_nt, run=dpvb.Run(**given, resume="load"))
    np.testing.assert_array_equal(read.transition_matrix_, model.transition_matrix_)
    assert read.n_iter_ == 4


def test_steps_after_windows_stay_at_the_states(tmp_path: Path) -> None:
    code_nt, _ = people(2000)
    given: dict[str, Any] = {"symbols": WORDS, "n_steps": 4, "clip_norm": None, "random_state": 3, "delta": 1e-6}
    words = np.array(WORDS)[code_nt]
    model = dpvb.HiddenMarkovModel(2, epsilon=math.inf, **given).fit(words)
    assert model.n_iter_ == 4
    np.testing.assert_allclose(model.transition_matrix_, STEP, atol=0.05)
    np.testing.assert_allclose(model.emission_probabilities_, SHOWN, atol=0.05)
    model.save(tmp_path / "steps.dpvb")
    again = dpvb.load(tmp_path / "steps.dpvb")
    assert again.n_iter_ == model.n_iter_
    np.testing.assert_array_equal(again.transition_matrix_, model.transition_matrix_)


def test_steps_follow_windows_where_public_facts_say_that_they_pay() -> None:
    """More than 40 symbols, or very many people; a number of steps that is given decides."""
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    bits: dict[str, Any] = {"emissions": "bernoulli", **given}
    expected = [
        (dpvb.HiddenMarkovModel(2, symbols=40, **given), 0),
        (dpvb.HiddenMarkovModel(2, symbols=41, **given), 4),
        (dpvb.HiddenMarkovModel(2, symbols=41, n_steps=0, **given), 0),
        (dpvb.HiddenMarkovModel(2, columns=5, **bits), 0),
        (dpvb.HiddenMarkovModel(2, columns=6, **bits), 4),
        (dpvb.HiddenMarkovModel(2, symbols=40, n_units=799_999, **given), 0),
        (dpvb.HiddenMarkovModel(2, symbols=40, n_units=800_000, **given), 4),
    ]
    for model, n_steps in expected:
        assert len(model._task([]).plan) == 1 + n_steps


def trails(n: int = 1500, length: int = 10, seed: int = 1) -> tuple[Floats, Ints]:
    """Two numbers a step of two kinds of days, in units of their own, and the states."""
    _, state_nt = people(n, length, seed)
    mean_kd, std_kd = np.array([[2.0, 60.0], [8.0, 100.0]]), np.array([[1.0, 10.0], [0.5, 20.0]])
    x_ntd = np.random.default_rng(seed).normal(mean_kd[state_nt], std_kd[state_nt])
    return np.clip(x_ntd, [0, 0], [10, 200]), state_nt


def test_states_of_numbers_are_in_units_of_their_columns(tmp_path: Path) -> None:
    x_ntd, state_nt = trails()
    given: dict[str, Any] = {"clip_norm": None, "max_length": 10, "epsilon": math.inf}
    columns: dict[str, Any] = {"columns": ["hours", "pulse"], "low": [0, 0], "high": [10, 200], "delta": 1e-6}
    model = dpvb.GaussianHiddenMarkovModel(2, **columns, **given).fit(x_ntd)
    # 15,000 points: means are known to a hundredth of a deviation; cells add a little.
    np.testing.assert_allclose(model.means_, [[2.0, 60.0], [8.0, 100.0]], rtol=0.05)
    np.testing.assert_allclose(np.sqrt(model.variances_), [[1.0, 10.0], [0.5, 20.0]], rtol=0.15)
    np.testing.assert_allclose(model.transition_matrix_, STEP, atol=0.05)
    assert model.symbols_ == ("hours", "pulse")
    assert "columns: 2" in model.summary()
    assert "hours 2" in model.summary()
    assert np.mean(np.array(model.predict(x_ntd[:50])) == state_nt[:50]) > 0.95
    ahead = model.forecast(x_ntd[:3], horizon=200)
    np.testing.assert_allclose(ahead[:, -1], np.tile(model.stationary_ @ model.means_, (3, 1)), rtol=1e-6)
    drawn, _ = model.sample(500, 1, length=4)
    assert drawn.shape == (500, 4, 2)
    assert (drawn >= 0).all()
    assert (drawn <= [10, 200]).all()
    model.save(tmp_path / "pulse.dpvb")
    again = dpvb.load(tmp_path / "pulse.dpvb")
    assert again.score(x_ntd[:9], public=True) == model.score(x_ntd[:9], public=True)
    by_frame = Events(
        pd.DataFrame(
            {"person": np.repeat(np.arange(1500), 10), "a": x_ntd[..., 0].ravel(), "b": x_ntd[..., 1].ravel()}
        ),
        values=["a", "b"],
    )
    same = dpvb.GaussianHiddenMarkovModel(2, **columns, **given, random_state=1).fit(by_frame)
    np.testing.assert_allclose(same.means_, model.means_, rtol=1e-6)


def test_states_of_numbers_have_intervals_and_files_keep_them(tmp_path: Path) -> None:
    """Within ten deviations, as the noise of a fit has no seed."""
    x_ntd, _ = trails()
    columns: dict[str, Any] = {"columns": ["hours", "pulse"], "low": [0, 0], "high": [10, 200], "delta": 1e-6}
    model = dpvb.GaussianHiddenMarkovModel(2, max_length=10, epsilon=10.0, **columns).fit(x_ntd)
    table, order = model.transition_intervals(), np.argsort(model.means_[:, 0])
    for i, j in np.ndindex(2, 2):
        line = table.of(str(order[i]))[str(order[j])]
        assert 0 < line.std < 0.1
        assert abs(line.mean - STEP[i, j]) < 10 * line.std
    assert [line.mean for line in table] == model.transition_matrix_.ravel().tolist()
    model.save(tmp_path / "steps.dpvb")
    assert str(dpvb.load(tmp_path / "steps.dpvb").transition_intervals()) == str(table)


def test_a_fit_without_noise_does_not_change_with_the_unit_of_a_column() -> None:
    x_ntd, _ = trails(300)
    given: dict[str, Any] = {"columns": 2, "epsilon": math.inf, "delta": 1e-6}
    one = dpvb.GaussianHiddenMarkovModel(2, low=[0, 0], high=[10, 200], random_state=1, **given).fit(x_ntd)
    two = dpvb.GaussianHiddenMarkovModel(2, low=[0, 0], high=[10_000, 1], random_state=1, **given).fit(
        x_ntd * [1000, 0.005]
    )
    np.testing.assert_allclose(two.means_, one.means_ * [1000, 0.005], rtol=1e-6)
    both = one.score(x_ntd, public=True), two.score(x_ntd * [1000, 0.005], public=True)
    assert both[1] == pytest.approx(both[0] - math.log(1000 * 0.005), abs=1e-6)


def test_what_is_missing_of_a_point_says_nothing() -> None:
    x_ntd, _ = trails(300)
    given: dict[str, Any] = {"columns": 2, "low": 0, "high": [10, 200], "delta": 1e-6}
    model = dpvb.GaussianHiddenMarkovModel(2, epsilon=math.inf, **given).fit([*x_ntd, [[math.nan, 1.0]], ["x"], None])
    one = x_ntd[:1].copy()
    one[0, 3] = math.nan
    both = model.score_samples(np.delete(one, slice(3, 10), axis=1), public=True)
    assert model.score_samples(one[:, :4], public=True) == pytest.approx(both)
    assert len(model.predict(one)[0]) == 10


def test_states_of_bits(tmp_path: Path) -> None:
    rng, (_, state_nt) = np.random.default_rng(2), people(3000, 10)
    law_kd = np.array([[0.9, 0.2, 0.1], [0.2, 0.8, 0.3]])
    x_ntd = (rng.random((3000, 10, 3)) < law_kd[state_nt]).astype(np.int64)
    given: dict[str, Any] = {
        "emissions": "bernoulli",
        "columns": "wakes,eats,runs",
        "clip_norm": None,
        "max_length": 10,
    }
    model = dpvb.HiddenMarkovModel(2, epsilon=math.inf, delta=1e-6, **given).fit(x_ntd)
    # 30,000 points: probabilities are known to a hundredth.
    np.testing.assert_allclose(model.emission_probabilities_, law_kd, atol=0.05)
    np.testing.assert_allclose(model.transition_matrix_, STEP, atol=0.05)
    np.testing.assert_allclose(model.forecast(x_ntd[:2])[:, 0], model.predict_next(x_ntd[:2]))
    drawn, hidden = model.sample(2000, 1, length=3)
    np.testing.assert_allclose(drawn[hidden == 0].mean(axis=0), model.emission_probabilities_[0], atol=0.06)
    model.save(tmp_path / "bits.dpvb")
    assert dpvb.load(tmp_path / "bits.dpvb").score(x_ntd[:9], public=True) == model.score(x_ntd[:9], public=True)
    with pytest.raises(DataFormatError, match="bits"):
        model.predict([[[0.5, 1, 1]]])
    assert model.transition_intervals().of("0")["0"].std > 0


@pytest.mark.parametrize(
    "given",
    [
        {"columns": 2, "low": -1, "high": [2, 3]},
        {"columns": 2, "max_row_norm": 2.0},
        {"columns": 3, "emissions": "bernoulli"},
        {"symbols": 3, "n_steps": 2},
    ],
)
def test_a_dry_run_needs_no_sequences(given: dict[str, Any]) -> None:
    kind: Any = dpvb.GaussianHiddenMarkovModel if {"low", "max_row_norm"} & given.keys() else dpvb.HiddenMarkovModel
    model = kind(2, epsilon=1.0, delta=1e-6, **given).dry_run(n_units=200)
    assert model.privacy_.dry_run
    assert np.isfinite(model.transition_matrix_).all()


def test_intervals_hold_the_truth_and_count_the_noise_in() -> None:
    """Each within ten deviations, as the noise of a fit has no seed, and wider by the noise."""
    code_nt, _ = people(3000, seed=6)
    given: dict[str, Any] = {"symbols": WORDS, "clip_norm": None, "power": 0.5, "delta": 1e-6, "random_state": 1}
    model = dpvb.HiddenMarkovModel(2, epsilon=0.5, **given).fit(np.array(WORDS)[code_nt])
    table = model.transition_intervals(0.9999)
    order = np.argsort(-model.emission_probabilities_[:, 0])
    for i, j in np.ndindex(2, 2):
        line = table.of(str(order[i]))[str(order[j])]
        # 3.9 deviations and 5 more: one false alarm in 10¹⁶, and in 10⁶ if the deviations are too small by half.
        assert line.low - 5 * line.std <= STEP[i, j] <= line.high + 5 * line.std
        assert line.low <= line.mean <= line.high
    assert "including the privacy noise" in str(table)
    naive = model.transition_intervals(0.9999, noise_aware=False)
    # The same people are drawn for both.
    assert all(left.std < right.std for left, right in zip(naive, table, strict=True))


def test_intervals_count_in_what_the_clip_bends() -> None:
    """Without noise the windows of people who stay long are shortened most, and EM of them alone is far off."""
    code_nt, _ = people(20_000, seed=8)
    model = dpvb.HiddenMarkovModel(2, symbols=3, epsilon=math.inf, delta=1e-6, random_state=1).fit(code_nt)
    table = model.transition_intervals()
    assert "clip_norm=2 clipped 100% of the sequences" in str(table)
    order = np.argsort(-model.emission_probabilities_[:, 0])
    found = np.array([[table.of(str(i))[str(j)] for j in order] for i in order], dtype=object)
    np.testing.assert_array_equal(found[:, :, 2].astype(float), model.transition_matrix_[np.ix_(order, order)])
    # The people are from a seed; without the correction the steps are off by 3.4 and 8.4 deviations.
    off = (found[:, :, 2].astype(float) - STEP) / found[:, :, 3].astype(float)
    assert np.abs(off).max() < 3


def test_more_symbols_than_windows_of_three_hold_have_no_intervals() -> None:
    model = dpvb.HiddenMarkovModel(2, symbols=41, epsilon=math.inf, delta=1e-6, n_init=1).fit([[1, 2, 40]] * 5)
    with pytest.raises(ParameterError, match="at most 40 for intervals, got 41"):
        model.transition_intervals()


GIVEN: dict[str, Any] = {"symbols": 3, "delta": 1e-6, "random_state": 1}


def test_several_owners_learn_what_one_would() -> None:
    """Without noise, to the step of a grid that has room for all of them."""
    code_nt, _ = people(300)
    exact = dpvb.HiddenMarkovModel(2, epsilon=math.inf, **GIVEN)
    joined = dpvb.federated.simulate(clone(exact), [code_nt[:100], code_nt[100:250], code_nt[250:]])
    np.testing.assert_allclose(joined._q.pooled, clone(exact).fit(code_nt)._q.pooled, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    "given",
    ["gaussian", *(pytest.param(f"{kind}, steps", marks=pytest.mark.slow) for kind in ("bernoulli", "poisson"))],
)
def test_processes_and_owners_make_of_whatever_states_show_what_one_makes(given: str, two_processes: Any) -> None:
    """Processes the same bits; owners without noise the same numbers, to the rounding of their sums."""
    kind, _, steps = given.partition(", ")
    rng, state_nt = np.random.default_rng(5), np.random.default_rng(4).integers(0, 2, (150, 8))
    x = {
        "gaussian": rng.normal(np.array([[2, 60], [8, 110]])[state_nt], [1, 10]),
        "bernoulli": (rng.random((150, 8, 2)) < np.array([[0.1, 0.3], [0.9, 0.6]])[state_nt]).astype(float),
        "poisson": np.minimum(rng.poisson(1 + 3 * state_nt), 5),
    }[kind]
    columns: dict[str, Any] = {"symbols": 6} if kind == "poisson" else {"columns": 2}
    columns |= {"low": [0, 40], "high": [12, 160]} if kind == "gaussian" else {}
    columns |= {"emissions": kind, "n_steps": 2} if steps else {}
    own: Any = dpvb.GaussianHiddenMarkovModel if kind == "gaussian" else dpvb.HiddenMarkovModel
    exact = own(2, n_init=1, max_length=8, epsilon=math.inf, delta=1e-6, random_state=1, **columns)
    one, two = clone(exact).fit(x), clone(exact).fit(x, run=dpvb.Run(cluster=two_processes))
    joined = dpvb.federated.simulate(exact, [x[:50], x[50:120], x[120:]])
    arrays, of_joined = (trees.written(model._record)[0] for model in (two, joined))
    for name, array in trees.written(one._record)[0].items():
        np.testing.assert_array_equal(arrays[name], array)
        np.testing.assert_allclose(of_joined[name], array, rtol=1e-6, atol=1e-6)


def test_a_ledger_counts_a_fit_and_a_folder_goes_on_with_it(tmp_path: Path) -> None:
    with Ledger(tmp_path / "budget.db") as made:
        made.register("days", unit="sequence", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
    code_nt, _ = people(300)
    run: Any = {"ledger": tmp_path / "budget.db", "dataset": "days", "checkpoint": tmp_path / "run"}
    given: Any = {**GIVEN, "epsilon": 1.0}
    first = dpvb.HiddenMarkovModel(2, **given).fit(code_nt, run=dpvb.Run(**run))
    again = dpvb.HiddenMarkovModel(2, **given).fit(code_nt, run=dpvb.Run(**run, resume="load"))
    np.testing.assert_array_equal(again.transition_matrix_, first.transition_matrix_)
    with pytest.raises(ParameterError, match="n_states"):
        dpvb.HiddenMarkovModel(0, **given).fit(code_nt, run=dpvb.Run(**{**run, "checkpoint": None}))
    with Ledger(tmp_path / "budget.db") as found:
        assert len([one for one in found.entries() if one.kind == "charge"]) == 1


@pytest.mark.parametrize("kind", ["chain", "hidden"])
def test_long_and_empty_sequences_and_one_symbol_are_people_as_others_are(kind: str) -> None:
    """Each adds its own windows alone; nothing is raised or said."""
    given: dict[str, Any] = {**GIVEN, "epsilon": math.inf, "max_length": 100_000, "clip_norm": 1e9, "power": 1.0}

    def released(sequences: list[Any]) -> Any:
        one = dpvb.MarkovChain(**given) if kind == "chain" else dpvb.HiddenMarkovModel(2, n_init=1, **given)
        q = one.fit(sequences)._q
        return q.windows if kind == "chain" else q.pooled

    usual = [[0, 1, 2, 0], [2, 2, 1]]
    base = released(usual)
    for odd in ([], [1], [7, None, "x"], [math.nan] * 5):
        np.testing.assert_allclose(released([*usual, odd]), base, atol=0.1)
    long = released([*usual, np.zeros(100_000, np.int64)]) - base
    windows = 100_000 - (1 if kind == "chain" else 2)
    np.testing.assert_allclose(long.ravel()[0], windows, rtol=1e-3)
    assert np.abs(long.ravel()[1:]).max() < 1.0


def test_a_flat_list_of_symbols_is_nobody_and_a_warning_says_that_hardly_anybody_counted() -> None:
    """Nobody counts; the noisy count exceeds two deviations with probability .023, in each of six fits with 2e-10."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            dpvb.HiddenMarkovModel(2, epsilon=1.0, **GIVEN).fit(["0", "1", "2"] * 200)
    assert any(warning.category is FewUnitsWarning for warning in caught)
