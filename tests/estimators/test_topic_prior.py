"""Topics around a public or an earlier model: the mathematics of the start, and what is asked and said of a prior."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge
from planted import edit, kills

import dpvb
from dpvb import accounting, federated
from dpvb.core.noise import InsecureNoise
from dpvb.errors import DataFormatError, ModelFileError, ParameterError
from dpvb.models.topics import prior
from dpvb.models.topics.prior import TopicPrior

TERMS, TOPICS = 120, 6
WORDS = tuple(f"w{chr(97 + v // 26)}{chr(97 + v % 26)}" for v in range(TERMS))


def known_topics(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(TERMS, 0.05), TOPICS).T


def documents(n: int, seed: int = 1, share: float = 0.3) -> np.ndarray:
    """Documents of the known topics, the first of which are used more; words are a little other than the prior's."""
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(share * np.arange(TOPICS, 0, -1), n)
    beta = known_topics().T * rng.gamma(4.0, 0.25, TERMS)
    return np.array([rng.multinomial(50, p / p.sum()) for p in theta @ beta])


def model(**options: Any) -> dpvb.LDA:
    usual = {"n_components": "auto", "epsilon": 1.0, "delta": 1e-5, "random_state": 0, "vocabulary": WORDS}
    return dpvb.LDA(**{**usual, **options})


@pytest.fixture(scope="module")
def public_model() -> dpvb.LDA:
    """Fitted without noise to public documents of the same topics."""
    return model(n_components=TOPICS, epsilon=math.inf).fit(documents(3_000, seed=2, share=0.1))


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = InsecureNoise(7)
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)


# --- the start ----------------------------------------------------------------------------------------------


def made_up(seed: int = 3) -> tuple[TopicPrior, np.ndarray, np.ndarray]:
    """A prior, how many words of each topic there are, and their totals."""
    rng = np.random.default_rng(seed)
    known = TopicPrior(
        np.maximum(known_topics(), 1e-6) / np.maximum(known_topics(), 1e-6).sum(axis=0), np.full(6, 1 / 6)
    )
    c_k = np.array([4e4, 2e4, 1e4, 5e3, 0.0, 0.0])
    return known, c_k, known.topics_vk @ c_k + 20.0 * rng.standard_normal(TERMS)


def test_the_usage_is_the_least_of_what_it_minimises() -> None:
    """At the weights that it implies, the gradient vanishes where a topic is used, and points outwards elsewhere."""
    known, truth, t_v = made_up()
    c_k = known.usage(t_v, 20.0)
    w_v = 1 / (20.0**2 + (0.7 * known.topics_vk @ c_k) ** 2)
    usual_k = t_v.sum() * known.usage_k
    gradient_k = known.topics_vk.T @ (w_v * (known.topics_vk @ c_k - t_v))
    gradient_k += (c_k - usual_k) / (2 * usual_k + 0.2 * t_v.sum() / 6) ** 2
    scale_k = (known.topics_vk**2).T @ w_v * t_v.sum()
    used = c_k > 0
    assert (np.abs(gradient_k / scale_k)[used] < 1e-6).all()
    assert (gradient_k[~used] > -1e-6 * scale_k[~used]).all()
    assert np.abs(c_k - truth).sum() < 0.2 * truth.sum()


def test_exact_totals_leave_the_prior_as_it_is() -> None:
    known, _, _ = made_up()
    t_v = known.topics_vk @ (1e5 * known.usage_k)
    c_k = known.usage(t_v, 0.0)
    np.testing.assert_allclose(c_k, 1e5 * known.usage_k, rtol=1e-9)
    b_v = prior.words(known.topics_vk @ c_k, t_v, np.zeros(TERMS))
    np.testing.assert_allclose(known.adapted(c_k, b_v), known.topics_vk, rtol=1e-6)


def test_words_follow_the_totals_where_they_were_seen_and_the_prior_elsewhere() -> None:
    known, c_k, _ = made_up()
    mean_v = known.topics_vk @ c_k
    seen = mean_v > 500.0
    unseen = mean_v < 0.5
    truth_v = np.where(seen, 3.0, 1.0) * mean_v
    b_v = prior.words(mean_v, truth_v + np.random.default_rng(4).standard_normal(TERMS) * 5.0, np.full(TERMS, 5.0))
    assert b_v.sum() == pytest.approx(1.0)
    ratio_v = b_v / mean_v
    assert np.median(ratio_v[seen]) == pytest.approx(3 * np.median(ratio_v[unseen]), rel=0.3)


def test_sizes_are_projections_shrunk_to_their_mean() -> None:
    t_vk, size_k = known_topics() + 1e-9, np.array([900.0, 500.0, 300.0, 100.0, 50.0, 0.0])
    exact = prior.sizes(t_vk, t_vk * size_k, np.zeros(TERMS))
    np.testing.assert_allclose(exact, np.maximum(size_k, 0.02 * size_k.mean()), rtol=1e-9)
    spreads = [float(np.ptp(prior.sizes(t_vk, t_vk * size_k, np.full(TERMS, sd)))) for sd in (1.0, 30.0, 100.0, 300.0)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 0.5 * np.ptp(size_k)
    assert (prior.sizes(t_vk, -t_vk * size_k, np.full(TERMS, 1.0)) > 0).all()


# --- fits ---------------------------------------------------------------------------------------------------


def test_few_documents_are_described_better_around_a_prior(public_model: dpvb.LDA, fixed_noise: None) -> None:
    train, test = documents(300), documents(400, seed=5)
    around = model(prior=public_model, public_prior=True, n_steps=0).fit(train)
    alone = model(n_components=TOPICS).fit(train)
    words = {word: float(p) for word, p in zip(WORDS, public_model.components_.sum(axis=0), strict=True)}
    frequencies = model(n_components=1, prior=words).fit(train)
    plain = model(n_components=1).fit(train)
    value = {name: one.perplexity(test, public=True) for name, one in locals().items() if hasattr(one, "privacy_")}
    # Seeds 7 to 14 of the noise give ratios from 0.91 to 0.98.
    assert value["around"] < 0.99 * min(value["alone"], value["frequencies"])
    assert value["frequencies"] < value["plain"]
    assert value["around"] < value["public_model"]


@pytest.mark.parametrize("n_steps", [0, 3, 8])
def test_the_plan_spends_all_on_word_totals_or_shares_it(public_model: dpvb.LDA, n_steps: int) -> None:
    fitted = model(prior=public_model, public_prior=True, n_steps=n_steps).fit(documents(40))
    assert fitted.n_iter_ == n_steps
    total = sum(release.event.n_steps for release in fitted.privacy_.releases)
    assert total == 1 + n_steps
    cost = [release.event.n_steps / release.event.noise_multiplier**2 for release in fitted.privacy_.releases]
    first = [block.name for release in fitted.privacy_.releases for block in release.blocks].index("words")
    assert first == 0
    assert cost[0] / sum(cost) == pytest.approx({0: 1.0, 3: 0.6, 8: 0.3}[n_steps], rel=1e-6)
    assert 0.99 < fitted.privacy_.epsilon <= 1.0


def test_all_steps_count_alike(public_model: dpvb.LDA) -> None:
    task = model(prior=public_model, public_prior=True, n_steps=4)._task(documents(5))
    assert [task.rho(t) for t in (2, 3, 4, 5)] == [1 / 2, 1 / 3, 1 / 4, 1 / 5]
    assert task.rho(1) == 1.0


def test_the_forecast_chooses_how_many_steps(public_model: dpvb.LDA) -> None:
    steps = [
        model(prior=public_model, public_prior=True, n_units=n)._task(documents(5)).notes["steps"]
        for n in (100, 1_000, 10_000, 100_000)
    ]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == 8
    assert model(prior=public_model, public_prior=True)._task(documents(5)).notes["steps"] == 3


def test_a_prior_lends_its_words(public_model: dpvb.LDA) -> None:
    """Texts need no list beside it, and counts have its columns."""
    lent = model(prior=public_model, public_prior=True, n_steps=0, vocabulary=None)
    assert lent.fit(["waa wab wac unheard"] * 30).vocabulary_ == WORDS
    assert lent.fit(documents(30)).vocabulary_ == WORDS


def test_a_fit_around_a_prior_is_saved_whole(public_model: dpvb.LDA, tmp_path: Path) -> None:
    test = documents(50, seed=8)
    public_model.save(tmp_path / "known-to-nobody.dpvb")
    for n_steps in (0, 3):
        fitted = model(prior=str(tmp_path / "known-to-nobody.dpvb"), public_prior=True, n_steps=n_steps)
        fitted.fit(documents(200)).save(tmp_path / "model.dpvb", overwrite=True)
        again = dpvb.load(tmp_path / "model.dpvb")
        assert again.perplexity(test, public=True) == fitted.perplexity(test, public=True)
        np.testing.assert_array_equal(again.transform(test), fitted.transform(test))
        with zipfile.ZipFile(tmp_path / "model.dpvb") as content:
            assert not any(b"known-to-nobody" in content.read(name) for name in content.namelist())
        with pytest.raises(ParameterError, match="above_noise_ must be asked of a fit without prior"):
            _ = again.above_noise_


def test_persons_and_federations_take_a_prior(public_model: dpvb.LDA) -> None:
    given: dict[str, Any] = {"prior": public_model, "public_prior": True}
    persons = model(n_steps=0, **given).fit(documents(60), group=np.arange(60) // 2)
    assert persons.privacy_.unit == "person"
    shards = [documents(40, seed=seed) for seed in (1, 2, 3)]
    many = federated.simulate(model(**given), shards, trust="none", num_rounds=3, epsilon=1.0, delta=1e-5)
    assert many.components_.shape == (TOPICS, TERMS)
    assert many.n_iter_ == 2


# --- what is asked and said ---------------------------------------------------------------------------------


@pytest.mark.guarantees("public priors")
@kills("releases", "a prior without noise that nobody called public")
@edit("estimators/prior_fits.py", "if not (statement.private or public):", "if False:")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_components": 10}, "n_components must be 6, the prior's, or 'auto'"),
        ({"release_word_totals": False, "word_weight_power": 0.0}, "release_word_totals must be True"),
        ({"vocabulary": [*WORDS[:-2], "other", "words"]}, "prior must have the vocabulary of the fit; 4 words differ"),
        ({"vocabulary": WORDS[::-1]}, "the words stand in another order"),
        ({"public_prior": False}, "prior must be a private model, or its data said to be public by public_prior="),
        ({"prior": 3}, "prior must be a fitted dpvb.LDA"),
        ({"prior": {}}, "prior must map words to frequencies"),
        ({"prior": {"waa": 0.0}}, "prior must map words to frequencies"),
        ({"prior": {"waa": -1.0}}, "prior must map words to frequencies"),
        ({"prior": {"waa": math.inf}}, "prior must map words to frequencies"),
        ({"n_steps": -1}, "n_steps"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(public_model: dpvb.LDA, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said) as refused:
        model(**{"prior": public_model, "public_prior": True, **options}).fit(documents(20))
    assert not any(word in str(refused.value).split() for word in WORDS)


def test_a_dry_run_and_what_is_no_fit_are_no_priors() -> None:
    with pytest.raises(ParameterError, match="not a dry run"):
        model(prior=model(n_components=2).dry_run(n_units=30)).fit(documents(20))
    with pytest.raises(ParameterError, match="fitted"):
        model(prior=model(n_components=2)).fit(documents(20))


@pytest.mark.guarantees("public priors")
@kills("releases", "a prior without noise that is public because it has none")
@edit("estimators/prior_fits.py", "public or statement.published", 'public or statement.epsilon == float("inf")')
def test_documents_that_were_said_to_be_public_make_a_public_prior(tmp_path: Path) -> None:
    """Whoever fits them says so, and the file keeps it; of a fit that says nothing it is asked again."""
    plain = model(n_components=TOPICS, epsilon=math.inf)
    plain.fit(documents(200), public=True).save(tmp_path / "public.dpvb")
    statement = dpvb.load(tmp_path / "public.dpvb").privacy_
    assert statement.published
    assert not statement.private
    assert statement.brief == "public data, no privacy claimed"
    fitted = model(prior=tmp_path / "public.dpvb", n_steps=0).fit(documents(20))
    assert "data are said to be public" in " ".join(str(fitted.privacy_).split())
    assert not fitted.privacy_.published
    with pytest.raises(ParameterError, match="said to be public by public_prior=, or by public= where"):
        model(prior=plain.fit(documents(200)), n_steps=0).fit(documents(20))
    with pytest.raises(ParameterError, match="epsilon must be inf with public=: public documents need no noise"):
        model().fit(documents(20), public=True)
    with pytest.raises(ParameterError, match=r"epsilon must be inf if the data are public, got 0\.9"):
        replace(fitted.privacy_, published=True)
    with pytest.raises(ParameterError, match="noise_multiplier must be left out with public="):
        model(epsilon=math.inf, noise_multiplier=1.0).fit(documents(20), public=True)
    run = dpvb.Run(ledger=dpvb.Ledger(tmp_path / "budget.db"), dataset="notes")
    with pytest.raises(ParameterError, match="ledger must be left out with public="):
        model(epsilon=math.inf).fit(documents(20), public=True, run=run)
    with pytest.raises(ParameterError, match="public must be True or False, got 'no'"):
        model(epsilon=math.inf).fit(documents(20), public="no")


@pytest.mark.guarantees("no laundering")
def test_no_fit_makes_a_private_model_public(tmp_path: Path) -> None:
    """A public model asks nobody whose data it knows: one that started from private topics would pass them on so."""
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        given: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3, "unit": "document"}
        ledger.register("notes", **given, neighboring_relation="add_or_remove_one")
        counted = model(n_components=TOPICS).fit(documents(40), run=dpvb.Run(ledger=ledger, dataset="notes"))
    with pytest.raises(ParameterError, match="charge must be None if the data are public"):
        replace(counted.privacy_, published=True, epsilon=math.inf)
    uncounted = model(n_components=TOPICS).fit(documents(40))
    around = model(prior=uncounted, n_steps=0).fit(documents(40))
    public = model(n_components=TOPICS, epsilon=math.inf).fit(documents(40), public=True)
    for start in ({"prior": counted}, {"prior": uncounted}, {"prior": public, "previous": around}):
        with pytest.raises(ParameterError, match="prior and previous must be public with public="):
            model(epsilon=math.inf, n_steps=0, **start).fit(documents(9), public=True)
    for start in ({"prior": public}, {"prior": public, "previous": None}, {"prior": uncounted, "public_prior": True}):
        assert model(epsilon=math.inf, n_steps=0, **start).fit(documents(9), public=True).privacy_.published


def test_files_of_a_prior(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("waa 30\nwab\t12.5\n\n")
    fitted = model(n_components=2, prior=tmp_path / "words.txt").fit(documents(20))
    assert "word frequencies of a public list of 2 words" in " ".join(str(fitted.privacy_).split())
    (tmp_path / "bad.txt").write_text("waa thirty\n")
    with pytest.raises(DataFormatError, match="each line must be a word and its frequency"):
        model(n_components=2, prior=tmp_path / "bad.txt").fit(documents(20))
    with pytest.raises(DataFormatError, match="nowhere"):
        model(n_components=2, prior=tmp_path / "nowhere.txt").fit(documents(20))
    (tmp_path / "bad.dpvb").write_text("no model")
    with pytest.raises(ModelFileError):
        model(prior=tmp_path / "bad.dpvb").fit(documents(20))


@pytest.mark.guarantees("checked before charge")
@kills("queries", "a file of topics whose numbers end a fit after its charge")
@edit("estimators/lda.py", "not (record.lambda_vk >= 1 / _MOST).all()", "not (record.lambda_vk > 0).all()")
@pytest.mark.parametrize("number", [5e-324, 1e-300, 1e300])
def test_a_file_of_topics_with_numbers_that_no_fit_has_is_refused(
    number: float, public_model: dpvb.LDA, tmp_path: Path
) -> None:
    """As a prior they would under- or overflow a fit that was charged."""
    path = tmp_path / "m.dpvb"
    public_model.save(path)

    def with_number(lambda_vk: Any) -> Any:
        lambda_vk[0, 0] = number
        return lambda_vk

    forge(path, arrays={"lambda_vk": with_number})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(path)


def test_a_file_of_topics_without_a_release_of_topics_is_refused(public_model: dpvb.LDA, tmp_path: Path) -> None:
    path = tmp_path / "m.dpvb"
    public_model.save(path)
    forge(path, learned={"iterates": False})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(path)


@pytest.mark.guarantees("priors")
@kills("releases", "an earlier release whose cost the statement does not add")
@edit("estimators/prior_fits.py", "rounded_up(past.epsilon + fit.epsilon)", "rounded_up(fit.epsilon)")
def test_the_statement_says_where_a_prior_came_from_and_what_it_cost_whom(public_model: dpvb.LDA) -> None:
    first = model(n_components=TOPICS, epsilon=0.5, delta=1e-6, n_steps=10).fit(documents(40))
    second = model(prior=first, n_steps=0, provenance={"prior": "the first half of the year"}).fit(documents(40))
    said = " ".join(str(second.privacy_).split())
    assert "6 topics of an earlier release, with the guarantee for each document behind it of epsilon = " in said
    spent = first.privacy_.epsilon + 1.0
    assert (
        f"the guarantee epsilon = {accounting.rounded_up(spent)}, delta = 1.1e-05; source: the first half of the year"
        in said
    )
    public = model(prior=public_model, public_prior=True, n_steps=0).fit(documents(40))
    assert "6 topics of a model whose data are said to be public" in " ".join(str(public.privacy_).split())


@pytest.mark.guarantees("priors")
@kills("releases", "a release of the same data set as prior of its next fit")
@edit(
    "estimators/prior_fits.py",
    '    if charge.dataset == dataset:\n        return "same" if whole else "namesake"\n',
    "",
)
def test_a_prior_of_the_same_data_set_is_refused_before_the_charge(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        for name in ("notes", "letters"):
            ledger.register(name, epsilon=4.0, delta=1e-3, unit="document", neighboring_relation="add_or_remove_one")
        first = model(n_components=TOPICS).fit(documents(40), run=dpvb.Run(ledger=ledger, dataset="notes"))
        left = ledger.remaining("notes")
        with pytest.raises(ParameterError, match="other people than dataset='notes'"):
            model(prior=first).fit(documents(40), run=dpvb.Run(ledger=ledger, dataset="notes"))
        assert ledger.remaining("notes") == left
        second = model(prior=first, n_steps=0).fit(documents(40), run=dpvb.Run(ledger=ledger, dataset="letters"))
    said = " ".join(str(second.privacy_).split())
    assert "an earlier release of data set 'notes', with the guarantee" in said
    assert json.dumps(second.privacy_.to_dict())
