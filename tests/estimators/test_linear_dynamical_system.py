"""`dpvb.LinearDynamicalSystem` as a user types it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge

import dpvb
from dpvb.data import Events
from dpvb.errors import DataFormatError, ModelFileError, ParameterError, PrivacyError
from dpvb.guards.arrays import Floats
from dpvb.ledger import Ledger
from dpvb.models.sequences import kalman

BOUNDS: dict[str, Any] = {"columns": ["heart", "steps"], "low": [40.0, -20.0], "high": [200.0, 40.0]}
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6}
TURN = 0.95 * np.array([[math.cos(0.5), -math.sin(0.5)], [math.sin(0.5), math.cos(0.5)]])
SHOWN = np.array([[10.0, 0.0], [4.0, 2.0]])
FEW = pytest.mark.usefixtures("few_iterations")
NOISE, MEAN = np.array([2.0, 0.5]), np.array([110.0, 8.0])


def people(number: int, length: int = 20, seed: int = 1) -> Floats:
    """Two columns that show a turning state, (n, length, 2)."""
    rng = np.random.default_rng(seed)
    state, x_ntd = rng.standard_normal((number, 2)), np.empty((number, length, 2))
    for t in range(length):
        x_ntd[:, t] = MEAN + state @ SHOWN.T + NOISE * rng.standard_normal((number, 2))
        state = state @ TURN.T + math.sqrt(1 - 0.95**2) * rng.standard_normal((number, 2))
    return x_ntd


@pytest.fixture(scope="module")
def fitted() -> dpvb.LinearDynamicalSystem:
    return dpvb.LinearDynamicalSystem(2, max_length=20, clip_scale=2.0, **BOUNDS, **EXACT).fit(people(2000))


def test_a_fit_finds_the_motion_in_units_of_the_columns(fitted: dpvb.LinearDynamicalSystem) -> None:
    values = np.linalg.eigvals(fitted.transition_matrix_)
    np.testing.assert_allclose(np.abs(values), 0.95, atol=0.02)
    np.testing.assert_allclose(np.abs(np.angle(values)), 0.5, atol=0.03)
    np.testing.assert_allclose(np.sqrt(fitted.noise_variance_), NOISE, rtol=0.06)
    np.testing.assert_allclose(fitted.loadings_.T @ fitted.loadings_, SHOWN @ SHOWN.T, rtol=0.1, atol=2.0)
    np.testing.assert_allclose(fitted.offset_, MEAN, rtol=0.02)
    lengths = np.linalg.norm(fitted.loadings_ / fitted._scale_d, axis=1)
    assert lengths[0] >= lengths[1]
    assert "Linear dynamical system, states: 2, columns: 2" in fitted.summary()
    assert "12." in fitted.summary().splitlines()[-3]  # a turn takes 2π/.5 steps
    report = str(fitted.report())
    assert "heart" in report
    assert len(fitted.report().figures) == 4 + 5


def test_intervals_hold_the_truth_and_narrow_with_the_level(fitted: dpvb.LinearDynamicalSystem) -> None:
    """Each of eight numbers with a chance of 1 - 1e-7."""
    wide, narrow = (list(fitted.intervals(level)) for level in (0.9999999, 0.5))
    truth = dict(zip(("heart", "steps"), zip(MEAN, np.linalg.norm(SHOWN, axis=1), NOISE, strict=True), strict=True))
    truth["mode 0"] = (0.95, 2 * math.pi / 0.5)
    values = [value for one in truth.values() for value in one]
    for line, inner, value in zip(wide, narrow, values, strict=True):
        slack = 1.5 * (line.high - line.low) / 2  # the ends are those of 200 draws
        assert line.low - slack <= value <= line.high + slack, line
        assert line.low <= inner.low <= line.mean <= inner.high <= line.high


def test_bands_count_in_what_few_people_leave_open() -> None:
    """Of a posterior from noisy moments, and of its own system alone."""
    model = dpvb.LinearDynamicalSystem(2, max_length=20, **BOUNDS, epsilon=2.0, delta=1e-6).fit(people(400))
    new = people(20, seed=3)
    bands = model.forecast(new, horizon=3)
    mean_ntd, variance_ntd = model._ahead(model._system, model._visible(new, None), 3)
    np.testing.assert_array_equal(bands.mean, mean_ntd * model._scale_d + model._mean_d)
    own = 2 * 1.9599 * np.sqrt(variance_ntd) * model._scale_d
    assert (bands.high - bands.low > own).all()


def test_bands_hold_new_points_as_often_as_they_say(fitted: dpvb.LinearDynamicalSystem) -> None:
    """4,000 new sequences, whose shares have deviations of .004; the fit is as good as the truth to about .01."""
    new = people(4000, length=12, seed=2)
    found = fitted.forecast(new[:, :10], horizon=2, level=0.9)
    assert found.mean.shape == (4000, 2, 2)
    held = (found.low <= new[:, 10:]) & (new[:, 10:] <= found.high)
    np.testing.assert_allclose(held.mean(axis=0), 0.9, atol=0.035)
    assert np.std(new[:, 10] - found.mean[:, 0], axis=0) == pytest.approx(np.std(new[:, 10], axis=0) * 0.5, rel=0.35)
    first = fitted.forecast([np.empty((0, 2))], horizon=3)
    np.testing.assert_allclose(first.mean[0, 0], MEAN, rtol=0.03)
    lengths = fitted.forecast(np.concatenate([new[0, :4], new[1, :7]]), [4, 7])
    np.testing.assert_allclose(lengths.mean[1], fitted.forecast([new[1, :7]]).mean[0], rtol=1e-12)


def test_states_are_those_of_the_smoother_and_of_each_sequence_alone(fitted: dpvb.LinearDynamicalSystem) -> None:
    new = [*people(3, length=9, seed=3), people(1, length=4, seed=4)[0]]
    new[1][3, 0] = math.nan
    found = fitted.predict(new)
    assert [one.shape for one in found] == [(9, 2)] * 3 + [(4, 2)]
    for one, states in zip(new, found, strict=True):
        moved = (one - fitted._mean_d) / fitted._scale_d
        np.testing.assert_allclose(
            states, kalman.smoothed(fitted._system, moved[None]).mean_ntk[0], rtol=1e-9, atol=1e-9
        )
        np.testing.assert_array_equal(fitted.predict([one])[0], states)


def test_scores_are_of_public_sequences_and_per_point(fitted: dpvb.LinearDynamicalSystem) -> None:
    new = people(50, seed=5)
    with pytest.raises(PrivacyError):
        fitted.score(new)
    own = fitted.score_samples(new, public=True)
    assert fitted.score(new, public=True) == pytest.approx(own.sum() / (50 * 20))
    moved = (new - fitted._mean_d) / fitted._scale_d
    direct = kalman.filtered(fitted._system, moved).log_n - 20 * np.log(fitted._scale_d).sum()
    np.testing.assert_allclose(own, direct, rtol=1e-9)


def test_sequences_of_nobody_are_as_the_system_says(fitted: dpvb.LinearDynamicalSystem) -> None:
    drawn = fitted.sample(4000, 0, length=8)
    assert drawn.shape == (4000, 8, 2)
    assert (drawn == fitted.sample(4000, 0, length=8)).all()
    truth = people(4000, length=8, seed=6)
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), truth.mean(axis=(0, 1)), rtol=0.03)
    np.testing.assert_allclose(np.cov(drawn[:, 5].T), np.cov(truth[:, 5].T), rtol=0.15, atol=2.0)


def test_noise_costs_little_where_people_are_many_and_ranges_too_wide() -> None:
    """Log-density of new points within .15 nats of the truth's; a drowned fit would lose 2 nats and more.

    With ε = 1 ten runs lost .02 to .05.
    """
    new, wide = people(300, seed=7), {**BOUNDS, "low": [-200.0, -50.0], "high": [400.0, 70.0]}
    scores = [
        dpvb.LinearDynamicalSystem(2, max_length=20, **bounds, **budget).fit(people(8000)).score(new, public=True)
        for bounds, budget in ((BOUNDS, EXACT), (BOUNDS, BUDGET), (wide, BUDGET))
    ]
    assert scores[0] - scores[1] < 0.15
    assert scores[0] - scores[2] < 0.3


@FEW
@pytest.mark.parametrize("stream", [False, True])
def test_forms_and_processes_release_the_same(stream: bool, two_processes: Any) -> None:
    """Persons of two sequences each: in lists, as a long table in any order, and over two processes."""
    x, person = people(60, length=7, seed=8), np.arange(60) % 30
    own = dpvb.LinearDynamicalSystem(2, max_length=7, **BOUNDS, **EXACT).fit(x, group=person)
    place = np.random.default_rng(1).permutation(60 * 7)
    cells = {"who": np.repeat(person, 7), "part": np.repeat(np.arange(60), 7), "t": np.tile(np.arange(7), 60)}
    cells |= {"a": x[..., 0].ravel(), "b": x[..., 1].ravel()}
    table = {name: values[place] for name, values in cells.items()}
    events = Events(table, group="who", values="a,b", time="t", sequence="part", stream=stream)
    for cluster in (None, *[two_processes] * stream):
        found = dpvb.LinearDynamicalSystem(2, max_length=7, **BOUNDS, **EXACT).fit(
            events, run=dpvb.Run(cluster=cluster)
        )
        np.testing.assert_allclose(found._q.pooled, own._q.pooled, rtol=1e-7, atol=1e-9)
        assert found.privacy_.unit == own.privacy_.unit == "person"


@FEW
@pytest.mark.guarantees("sequence moments")
def test_hostile_records_are_their_own_persons_alone(capsys: Any) -> None:
    x = people(40, length=7, seed=9)
    call: dict[str, Any] = {"max_length": 7, **BOUNDS, **EXACT}
    alone = dpvb.LinearDynamicalSystem(2, **call).fit([*x])
    odd: list[Any] = [None, "x", object(), np.zeros((7, 3)), [["a", None]] * 7, np.full((7, 2), math.inf), {}]
    capsys.readouterr()
    found = dpvb.LinearDynamicalSystem(2, **call).fit([*x, *odd])
    assert (found._q.pooled == alone._q.pooled).all()
    assert (found.transition_matrix_ == alone.transition_matrix_).all()
    assert capsys.readouterr().out == ""


@FEW
def test_several_owners_learn_what_one_would() -> None:
    x, exact = people(90, length=7, seed=10), dpvb.LinearDynamicalSystem(2, max_length=7, **BOUNDS, **EXACT)
    joined = dpvb.federated.simulate(exact, [x[:40], x[40:70], x[70:]])
    whole = dpvb.LinearDynamicalSystem(2, max_length=7, **BOUNDS, **EXACT).fit(x)
    np.testing.assert_allclose(joined._q.pooled, whole._q.pooled, rtol=1e-6, atol=1e-6)


@FEW
def test_a_ledger_counts_a_fit_and_a_folder_goes_on_with_it(tmp_path: Path) -> None:
    with Ledger(tmp_path / "budget.db") as made:
        made.register("days", unit="sequence", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
    run: Any = {"ledger": tmp_path / "budget.db", "dataset": "days", "checkpoint": tmp_path / "run"}
    given: Any = {**BOUNDS, **BUDGET, "max_length": 7}
    x = people(300, length=7)
    first = dpvb.LinearDynamicalSystem(2, **given).fit(x, run=dpvb.Run(**run))
    again = dpvb.LinearDynamicalSystem(2, **given).fit(x, run=dpvb.Run(**run, resume="load"))
    assert (again.transition_matrix_ == first.transition_matrix_).all()
    with Ledger(tmp_path / "budget.db") as found:
        assert len([one for one in found.entries() if one.kind == "charge"]) == 1


@FEW
def test_a_dry_run_reads_nothing_and_select_finds_the_better_number_of_states() -> None:
    model = dpvb.LinearDynamicalSystem(1, max_length=12, **BOUNDS, **BUDGET)
    assert model.dry_run(n_units=300).privacy_.dry_run
    chosen = dpvb.private_select(
        model, [{"n_states": k} for k in (1, 2)], people(200, length=6), epsilon=8.0, delta=1e-6
    )
    assert chosen.n_states in (1, 2)
    assert chosen.privacy_.epsilon <= 8.0


def test_a_file_holds_the_system_and_no_other(fitted: dpvb.LinearDynamicalSystem, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.dpvb")
    found, new = dpvb.load(tmp_path / "m.dpvb"), people(5, seed=11)
    assert found.summary() == fitted.summary()
    assert found.score(new, public=True) == fitted.score(new, public=True)
    assert (found.low, found.columns_) == ((40.0, -20.0), ("heart", "steps"))
    for name, odd in (
        ("system__step_kk", np.ones((3, 3))),
        ("system__noise_d", -np.ones(2)),
        ("system__start_kk", np.array([[1.0, 5.0], [5.0, 1.0]])),
        ("system__shown_dk", np.full((2, 2), 1e308)),
        ("pooled", np.ones((2, 2))),
        ("drawn_sp", lambda a: np.full_like(a, 1e300)),
    ):
        forge(tmp_path / "m.dpvb", tmp_path / "odd.dpvb", arrays={name: odd})
        with pytest.raises(ModelFileError, match="do not fit together"):
            dpvb.load(tmp_path / "odd.dpvb")


@pytest.mark.parametrize(
    ("change", "call", "error", "words"),
    [
        ({"low": None, "high": None}, {}, ParameterError, "low and high or max_row_norm"),
        ({"high": None}, {}, ParameterError, "high must be"),
        ({"columns": 3}, {}, ParameterError, "low must be a number or 3"),
        ({"n_states": 11}, {}, ParameterError, "n_states must be at most 10"),
        ({"window": 1}, {}, ParameterError, "window"),
        ({}, {"X": Events({"person": [1], "x": [1], "y": [2]}, values="x,y"), "y": [1]}, ParameterError, "with events"),
        ({}, {"X": np.array(1.0)}, DataFormatError, "X must hold sequences"),
    ],
)
def test_a_public_mistake_is_refused_before_anything_is_spent(
    change: dict[str, Any], call: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dpvb.LinearDynamicalSystem(**{"n_states": 2, **BOUNDS, **BUDGET, **change}).fit(**{"X": people(3), **call})
