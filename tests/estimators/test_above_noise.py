"""Topics above the noise: forecasts from public facts, and what a fit to no topics at all tells of a fit."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.core.noise import InsecureNoise
from dpvb.data import BagOfWords
from dpvb.errors import LostInNoiseWarning, ParameterError
from dpvb.estimators.lda import signal_over_noise, topic_deviations
from dpvb.models.topics import lda

TERMS = 300
#: The noise of these fits is fixed, so that no test has a false alarm.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def model(n_components: Any = 5, **options: Any) -> dpvb.LDA:
    plan = {"epsilon": 2.5, "delta": 1e-5, "random_state": 0, "public_vocabulary": True, "n_steps": 10}
    return dpvb.LDA(n_components, **{**plan, **options})


def documents(topics: int, seed: int = 0, n: int = 1500) -> np.ndarray:
    """Documents of one topic each, of words of its own and some that all share; one topic: words drawn alike."""
    rng = np.random.default_rng(seed)
    background = rng.dirichlet(np.ones(TERMS))
    own = np.zeros((topics, TERMS))
    for k in range(topics):
        own[k, k * 20 : k * 20 + 20] = 1 / 20
    mixed = 0.5 * background + 0.5 * own if topics > 1 else np.tile(background, (1, 1))
    return np.array([rng.multinomial(60, mixed[k]) for k in rng.integers(topics, size=n)])


@pytest.fixture(params=SEEDS)
def fixed_noise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    noise = InsecureNoise(request.param)
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)
    return int(request.param)


def test_the_noise_of_a_plan_is_that_of_the_fit() -> None:
    fitted = model(3, epsilon=1.0, learning_offset=2.0, learning_decay=0.8).fit(documents(2, n=40))
    task = fitted._task(documents(2, n=40))
    std = task.plan.noise_std_at_end("counts", task.rho)
    np.testing.assert_allclose(fitted._q.sum_std_v * fitted._q.word_weight_v, std, rtol=1e-9)


def test_half_of_the_topics_are_forecast_where_their_signal_is_detectable() -> None:
    forecast = dpvb.plan(model(10, epsilon=1.0, n_steps=20), 2_000, 7_702, epsilons=())
    needed = math.ceil(forecast.needed_units)
    assert 7_000 < needed < 12_000
    at_needed = dpvb.plan(model(10, epsilon=1.0, n_steps=20), needed, 7_702, epsilons=()).expected_accuracy
    assert at_needed.number == pytest.approx(5, rel=1e-2)
    fewer = dpvb.plan(model(5, epsilon=1.0, n_steps=20), needed // 2, 7_702, epsilons=()).expected_accuracy
    assert fewer.number == pytest.approx(2.5, rel=1e-2)  # In proportion to documents, and against topics.
    assert dpvb.plan(model(5, epsilon=math.inf), 10, 7_702).expected_accuracy.number == 5


def test_detectable_energy_is_ten_deviations_of_noise() -> None:
    """V squares of noise add up to V ± √(2V)."""
    assert lda.LDAModel(2, 7_702).detectable ** 2 == pytest.approx(10 * math.sqrt(2 * 7_702))


def test_deviations_are_energy_over_size() -> None:
    topics = lda.LDAModel(2, 4)
    background, sd = np.array([0.1, 0.2, 0.3, 0.4]), 0.01
    off = np.array([1.0, 0.0, 0.0, -0.25])
    q = topics.topics(np.ones((4, 2)), background, np.ones(4))
    q = lda.replace(q, sum_vk=np.stack([5 * background, 3 * background + off], axis=1), sum_std_v=np.full(4, sd))
    length = np.linalg.norm(background)
    assert off @ background == pytest.approx(0.0)
    expected = [-3 / (5 * length / sd), ((off / sd) @ (off / sd) - 3) / (3 * length / sd)]
    np.testing.assert_allclose(topic_deviations(topics, q), expected, rtol=1e-9)


def test_topics_that_are_there_stand_above_the_noise(fixed_noise: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostInNoiseWarning)
        fitted = model(5, random_state=fixed_noise).fit(documents(5, fixed_noise))
    assert fitted.topics_above_noise_ >= 4


def test_words_drawn_alike_make_no_topics(fixed_noise: int) -> None:
    """One may be the background itself, whose frequencies are known with noise."""
    with pytest.warns(LostInNoiseWarning, match="topics above the noise, of 5: [01] was found"):
        fitted = model(5, random_state=fixed_noise).fit(documents(1, fixed_noise))
    assert fitted.topics_above_noise_ <= 1
    with pytest.warns(LostInNoiseWarning, match="no better than word frequencies"):
        compared = model(5, random_state=fixed_noise, n_steps=20).fit(documents(1, fixed_noise))
    assert compared.topics_above_noise_ == 0


def test_what_stands_out_is_said_kept_and_saved(tmp_path: Any, fixed_noise: int) -> None:
    """Without a comparison with one topic, which says more."""
    fitted = model(5, random_state=fixed_noise).fit(documents(5, fixed_noise))
    number = fitted.topics_above_noise_
    assert f"topics above the noise, of 5: {number}." in " ".join(str(fitted.privacy_).split())
    assert fitted.above_noise_ is fitted.above_noise_
    fitted.save(tmp_path / "model.dpvb")
    again = dpvb.load(tmp_path / "model.dpvb")
    np.testing.assert_array_equal(again.above_noise_, fitted.above_noise_)
    assert again.privacy_.remarks == fitted.privacy_.remarks
    for name in ("sum_vk", "sum_std_v", "words_v", "background_v", "word_weight_v", "alpha_k"):
        np.testing.assert_array_equal(getattr(again._q, name), getattr(fitted._q, name))
    assert (again._q.words_std, again._q.num_units) == (fitted._q.words_std, fitted._q.num_units)


def test_without_noise_all_topics_stand_above_it_and_far_below_none() -> None:
    assert model(2, epsilon=math.inf).fit(documents(1, n=30)).above_noise_.all()
    # Noise alone lifts a topic in about one fit of three hundred: in three of five with a chance of 4e-7.
    lifted = [model(2, epsilon=0.1).fit(documents(5, n=30)).above_noise_.any() for _ in range(5)]
    assert sum(lifted) < 3


def test_a_fit_of_persons_is_compared_with_persons(fixed_noise: int) -> None:
    matrix = documents(5, fixed_noise)
    fitted = model(5, random_state=fixed_noise).fit(matrix, group=np.arange(len(matrix)))
    assert fitted.privacy_.unit == "person"
    assert fitted.topics_above_noise_ >= 4


@kills("public facts", "a forecast of topics that counts the private documents")
@edit(
    "estimators/base.py",
    "expected = None if self.n_units is None else self._expected_accuracy(task, plan, self.n_units)",
    "expected = self._expected_accuracy(task, plan, max(task.source.count(), 1))",
)
def test_a_warning_comes_before_anything_is_spent_where_the_number_is_public() -> None:
    """The fit is stopped at its first release."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def begin(**options: Any) -> None:
        with pytest.raises(KeyboardInterrupt):
            model(epsilon=1.0, **options).fit(BagOfWords(documents(1, n=20)), run=dpvb.Run(progress=stop))

    with pytest.warns(LostInNoiseWarning, match="topics above the noise, of 5: 0 is expected for 20 documents"):
        begin(n_units=20)
    with warnings.catch_warnings():  # A private number says nothing.
        warnings.simplefilter("error", LostInNoiseWarning)
        begin()


def test_auto_takes_as_many_topics_as_predict_best() -> None:
    """A signal of 30 each; one topic if the signal of all documents is below 100."""
    matrix = documents(5, n=20)
    for number, several in ((500, False), (1_500, True), (3_000, True)):
        task = model(50, n_units=number)._task(matrix)
        signal = 50 * signal_over_noise(task.model, task.plan, task.rho, number)
        assert (signal >= 100) is several
        expected = int(signal // 30) if several else 1
        fitted = model("auto", n_units=number).fit(matrix)
        assert len(fitted.components_) == expected
        assert fitted.transform(matrix).shape == (20, expected)


def test_words_get_less_of_the_budget_where_topics_are_clear() -> None:
    """From a signal of 100 of each topic on, as a public number of documents lets expect it."""
    matrix, shares = documents(5, n=20), []
    for number in (None, 1_000, 100_000):
        plan = model(10, n_units=number)._task(matrix).plan
        cost = [release.mechanism.noise_multiplier**-2 for release in plan]
        shares.append(cost[0] / sum(cost))
    assert shares == pytest.approx([0.4, 0.4, 0.1])


@kills("public facts", "a number of topics that is chosen by the number of private documents")
@edit("estimators/lda.py", "if self.n_units is not None and self.epsilon != math.inf:", "if True:")
@edit(
    "estimators/lda.py",
    "signal_over_noise(one, plan, schedule.rho, self.n_units)",
    "signal_over_noise(one, plan, schedule.rho, max(source.count(), 1))",
)
@pytest.mark.parametrize(
    "options", [{}, {"n_units": 3_000, "epsilon": math.inf}, {"n_components": "many"}, {"n_components": 0}]
)
def test_auto_is_refused_without_public_facts(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="n_components must be"):
        model(**{"n_components": "auto", **options}).fit(documents(2, n=20))
