"""`MarkovChain` as users meet it: sequences in, a law, forecasts, rows of nobody, a file, a ledger, two processes."""

from __future__ import annotations

import math
import re
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forged import forge
from sklearn.base import clone

import dpvb
from dpvb.core.noise import InsecureNoise
from dpvb.data import Events
from dpvb.errors import DataFormatError, ModelFileError, ParameterError, PrivacyError
from dpvb.estimators import choosing
from dpvb.ledger import Ledger
from dpvb.models.sequences import dynamics

LAW = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]])
NAMES = np.array(["a", "b", "c"], dtype=object)
CODES = dynamics.drawn(np.array([0.5, 0.3, 0.2]), [LAW], 4000, 12, np.random.default_rng(0))
X = NAMES[CODES]
BUDGET: Any = {"epsilon": 1.0, "delta": 1e-6, "random_state": 1}
EXACT: Any = {"epsilon": np.inf, "delta": 1e-6, "max_length": 12}


@pytest.fixture(scope="module", params=[1, 2])
def fitted(request: Any) -> Any:
    return dpvb.MarkovChain("a,b,c", order=request.param, clip_norm=None, max_length=12, **BUDGET).fit(X)


def test_a_fit_finds_the_law_and_says_what_it_spent(fitted: Any) -> None:
    """4,000 sequences: within 0.05, which is 6 standard deviations of the widest row (false alarm below 1e-6)."""
    law = fitted.transition_matrix_ if fitted.order == 1 else fitted.transition_matrix_.mean(axis=0)
    assert np.abs(law - LAW).max() < 0.05
    assert fitted.initial_ == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    assert fitted.transition_matrix_.sum(axis=-1) == pytest.approx(np.ones((3,) * fitted.order))
    assert fitted.stationary_ == pytest.approx(dynamics.symbol_shares(LAW), abs=0.03)
    assert fitted.expected_durations_ == pytest.approx(1 / (1 - np.diag(LAW)), rel=0.1)
    assert fitted.privacy_.epsilon <= 1.0
    assert fitted.privacy_.unit == "sequence"
    assert "followed by" in fitted.summary()


def test_forecasts_are_powers_of_the_law(fitted: Any) -> None:
    ahead = fitted.forecast([["a", "b"], ["c"], []], horizon=4)
    assert ahead.shape == (3, 4, 3)
    assert ahead.sum(axis=2) == pytest.approx(np.ones((3, 4)))
    assert fitted.predict_next([["a", "b"], ["c"], []]) == pytest.approx(ahead[:, 0])
    assert ahead[2, 0] == pytest.approx(fitted.initial_)
    law = fitted.transition_matrix_
    if fitted.order == 1:
        assert ahead[0] == pytest.approx(np.array([np.linalg.matrix_power(law, t + 1)[1] for t in range(4)]))
    else:
        assert ahead[0, 0] == pytest.approx(law[0, 1])
        assert ahead[0, 1] == pytest.approx(law[0, 1] @ law[1])
    assert fitted.forecast(["a"], [1], horizon=400)[0, -1] == pytest.approx(fitted.stationary_, abs=1e-6)


def test_a_score_is_the_log_probability_of_a_symbol(fitted: Any) -> None:
    first, law = np.log(fitted.initial_), np.log(fitted.transition_matrix_)
    pair = law if fitted.order == 1 else np.log(fitted._laws[0])
    expected = first[0] + pair[0, 0] + (law[0, 0, 1] if fitted.order == 2 else law[0, 1])
    assert fitted.score_samples([["a", "a", "b"], []], public=True) == pytest.approx([expected, 0.0])
    assert fitted.score(["a", "a", "b"], [3], public=True) == pytest.approx(expected / 3)
    with pytest.raises(PrivacyError):
        fitted.score([["a"]])
    with pytest.raises(PrivacyError):
        clone(fitted).score([["a"]], public=True)
    with pytest.raises(DataFormatError, match="none of the symbols"):
        fitted.predict_next([["a", "z"]])
    with pytest.raises(DataFormatError, match=r"pass \[X\], or lengths"):
        fitted.predict_next(["a", "b"])


def test_rows_of_nobody_come_from_a_seed(fitted: Any) -> None:
    drawn = fitted.sample(5, 3, length=7)
    assert drawn.shape == (5, 7)
    assert (drawn == fitted.sample(5, 3, length=7)).all()
    assert {*drawn.ravel()} <= {*NAMES}
    assert fitted.sample(2).shape == (2, 12)


def test_intervals_count_the_noise_in_and_say_what_the_clip_bends(fitted: Any) -> None:
    aware, naive = fitted.transition_intervals(), fitted.transition_intervals(noise_aware=False)
    assert len(aware) == 3 ** (fitted.order + 1)
    for with_noise, without in zip(aware, naive, strict=True):
        assert with_noise.mean == without.mean
        assert with_noise.std > without.std > 0
        assert 0 <= with_noise.low <= with_noise.mean <= with_noise.high <= 1
    assert "clipped" not in str(aware)
    tight = clone(fitted).set_params(clip_norm=0.5).fit(X)
    told = str(tight.transition_intervals())
    assert re.search(r"clip_norm=0.5 clipped (9\d|100)% of the sequences", told)
    assert "clip_norm=None, here 3." in told
    windows = "pairs" if fitted.order == 1 else "triples"
    assert f"has M {windows} in the first 12 symbols of a sequence, each has the weight M^-0.5." in told
    pooled = clone(fitted).set_params(power=1.0, clip_norm=None).fit(X).transition_intervals()
    assert f"Estimand: pooled frequencies. All {windows} in the first 12 symbols" in pooled.head
    assert aware.of("a" if fitted.order == 1 else "a, a")["b"].mean == pytest.approx(0.2, abs=0.05)
    assert "<table" in aware._repr_html_()


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_report_the_picture_and_the_table_have_the_same_numbers(order: int) -> None:
    """Long runs of one symbol are what a clip shortens most: all three show the law without that."""
    law_vv = np.full((5, 5), 0.2)
    law_vv[0] = [0.9, 0.025, 0.025, 0.025, 0.025]
    x_nt = dynamics.drawn(np.full(5, 0.2), [law_vv], 4000, 20, np.random.default_rng(0))
    model = dpvb.MarkovChain(5, order=order, power=1.0, epsilon=np.inf, delta=1e-6).fit(x_nt)
    table, (names, shown_vv, lasts_v) = model.transition_intervals(), model.transition_table()
    grid, intervals = model.report().figures
    np.testing.assert_array_equal(grid.values, shown_vv)
    np.testing.assert_array_equal([row[1] for row in intervals.rows], [line.mean for line in table])
    if order == 1:
        np.testing.assert_array_equal(shown_vv.ravel(), [line.mean for line in table])
        np.testing.assert_allclose(lasts_v, 1 / (1 - shown_vv.diagonal()))
    np.testing.assert_allclose(shown_vv, law_vv, atol=0.02)
    np.testing.assert_array_equal(model.transition_matrix_.ravel(), [line.mean for line in table])
    assert model._fitted_model.law(model._record)[..., 0, 0].max() < shown_vv[0, 0] - 0.02
    np.testing.assert_allclose(model.predict_next([["0", "0"]])[0], model.transition_matrix_[(0,) * order])
    assert f"0 {shown_vv[0, 0]:.3f}" in model.summary()
    assert names == ("0", "1", "2", "3", "4")


def test_a_file_holds_the_chain_and_no_other(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.dpvb")
    found = dpvb.load(tmp_path / "m.dpvb")
    assert (found.transition_matrix_ == fitted.transition_matrix_).all()
    assert found.symbols_ == fitted.symbols_
    assert found.summary() == fitted.summary()
    for name, odd in (
        ("first_v", np.array([1.0, -1.0, 1.0])),
        ("windows", np.ones((2, 2))),
        ("pairs_vv", -np.eye(3)),
        ("first_v", np.full(3, 1e308)),
        ("pairs_vv", np.full((3, 3), 1e308)),
    ):
        forge(tmp_path / "m.dpvb", tmp_path / "odd.dpvb", arrays={name: odd})
        with pytest.raises(ModelFileError, match="do not fit together"):
            dpvb.load(tmp_path / "odd.dpvb")


@pytest.mark.parametrize("stream", [False, True])
def test_forms_orders_and_processes_change_no_bit(stream: bool, two_processes: Any) -> None:
    """Persons of three sequences each: in lists, as a long table in any order, and from files over two processes."""
    person = np.arange(600) % 200
    own = dpvb.MarkovChain(NAMES.tolist(), order=2, **EXACT).fit(X[:600], group=person)
    place = np.random.default_rng(1).permutation(600 * 12)
    cells = {"who": np.repeat(person, 12), "visit": np.repeat(np.arange(600), 12), "t": np.tile(np.arange(12), 600)}
    table = {name: values[place] for name, values in (cells | {"page": X[:600].ravel()}).items()}
    events = Events(table, group="who", symbol="page", time="t", sequence="visit", stream=stream)
    for cluster in (None, *[two_processes] * stream):
        found = dpvb.MarkovChain("a,b,c", order=2, **EXACT).fit(events, run=dpvb.Run(cluster=cluster))
        assert (found.transition_matrix_ == own.transition_matrix_).all()
        assert found.privacy_.unit == own.privacy_.unit == "person"


@pytest.mark.guarantees("sequence counts")
def test_a_person_of_two_sequences_is_one_unit() -> None:
    """Whoever has all sequences adds no more than the bound, and other persons' sums stay as they are."""
    everybody, nobody = (
        dpvb.MarkovChain("a,b,c", prior_weight=0, clip_norm=1.0, **EXACT).fit(
            [*X[:50], *more], group=[*range(50), *who]
        )
        for more, who in ((X[50:250], [50] * 200), ([], []))
    )
    added = everybody._record.windows - nobody._record.windows
    assert 0.99 < np.linalg.norm(added) <= 1.0
    assert (added > 0).all()


def test_several_owners_learn_what_one_would() -> None:
    """Without noise, to the step of a grid that has room for all of them."""
    exact = dpvb.MarkovChain("a,b,c", order=2, **EXACT)
    joined = dpvb.federated.simulate(clone(exact), [X[:200], X[200:350], X[350:400]])
    assert joined.transition_matrix_ == pytest.approx(exact.fit(X[:400]).transition_matrix_, rel=1e-9)


def test_a_ledger_counts_a_fit_and_a_folder_goes_on_with_it(tmp_path: Path) -> None:
    with Ledger(tmp_path / "budget.db") as made:
        made.register("visits", unit="sequence", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
    run: Any = {"ledger": tmp_path / "budget.db", "dataset": "visits", "checkpoint": tmp_path / "run"}
    first = dpvb.MarkovChain("a,b,c", **BUDGET).fit(X[:500], run=dpvb.Run(**run))
    again = dpvb.MarkovChain("a,b,c", **BUDGET).fit(X[:500], run=dpvb.Run(**run, resume="load"))
    assert (again.transition_matrix_ == first.transition_matrix_).all()
    with pytest.raises(ParameterError, match="at most 40"):
        dpvb.MarkovChain(41, order=2, **BUDGET).fit(X[:500], run=dpvb.Run(**{**run, "checkpoint": None}))
    with Ledger(tmp_path / "budget.db") as found:
        assert len([one for one in found.entries() if one.kind == "charge"]) == 1


def test_a_dry_run_reads_nothing_and_select_finds_the_better_order() -> None:
    copy = dpvb.MarkovChain("a,b,c", order=2, **BUDGET).dry_run(n_units=300)
    assert copy.privacy_.dry_run
    alternating = np.tile(np.array(["a", "a", "b", "b"], dtype=object), (3000, 3))
    data = {"X": alternating, "y": None, "group": None}
    # With other noise one selection in eleven tries order 1 alone.
    noise = map(InsecureNoise, count(1000))
    choice = choosing._fixed(
        dpvb.MarkovChain("a,b,c", **BUDGET), [{"order": 1}, {"order": 2}], data, epsilon=4.0, delta=1e-6
    )
    assert choosing._charged(choice, data, lambda: next(noise), dpvb.Run()).order == 2


@pytest.mark.parametrize(
    ("change", "call", "words"),
    [
        ({"symbols": "a"}, {"X": [["a"]]}, "at least two"),
        ({"symbols": ["a", "A"]}, {"X": [["a"]]}, "must not repeat"),
        ({"clip_norm": -1.0}, {"X": [["a"]]}, "clip_norm must be"),
        ({}, {"X": Events({"person": [1], "symbol": ["a"]}), "y": [1]}, "must be None with events"),
    ],
)
def test_a_public_mistake_is_refused(change: Any, call: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        dpvb.MarkovChain(**{"symbols": "a,b,c", **BUDGET, **change}).fit(**call)


def test_a_model_of_stays_refuses_a_score_of_joined_stays() -> None:
    """Joined, the pair of a stay's last symbol and the next one's first would be scored too."""
    frame = pd.DataFrame({"who": np.repeat(np.arange(300), 6), "stay": np.tile([0, 0, 0, 1, 1, 1], 300)})
    frame["page"] = [NAMES[place] for place in np.random.default_rng(0).integers(0, 3, len(frame))]
    stays, joined = (Events(frame, group="who", symbol="page", sequence=column) for column in ("stay", None))
    model = dpvb.MarkovChain(NAMES, epsilon=math.inf, delta=1e-6).fit(stays)
    assert model.score(stays, public=True) < 0
    with pytest.raises(ParameterError, match=r"sequence \(--sequence-column\) must name the column"):
        model.evaluate(joined, public=True)
    assert dpvb.MarkovChain(NAMES, epsilon=math.inf, delta=1e-6).fit(joined).score(joined, public=True) < 0
