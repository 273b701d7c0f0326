"""Topics or word frequencies: the gain that is released midway, and what follows it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.audit.integers import difference, in_steps, relative_norm
from dpvb.core import loop
from dpvb.core.blocks import Block, swap_ratio
from dpvb.core.estimate import Estimate
from dpvb.core.model import MIDWAY, SHARES, robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release, phased
from dpvb.core.sampling import FullBatch, Poisson
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.data.documents import word_lists
from dpvb.errors import LostInNoiseWarning
from dpvb.estimators import private_words
from dpvb.models.topics import prior
from dpvb.models.topics.lda import LDAModel, Topics
from dpvb.models.topics.prior import WordList

TERMS, TOPICS = 40, 4
MODEL = LDAModel(TOPICS, TERMS, n_steps=20, compares=True)


def documents(rng: np.random.Generator, number: int = 300, *, topics: bool = True, length: int = 60) -> np.ndarray:
    """Documents of topics that share no words, or of words drawn alike."""
    share_kv = np.full((TOPICS, TERMS), 1e-9)
    for k in range(TOPICS):
        share_kv[k, k * 10 : (k + 1) * 10] = 1.0
    theta_nk = rng.dirichlet(np.full(TOPICS, 0.1), number) if topics else np.full((number, TOPICS), 1 / TOPICS)
    p_nv = theta_nk @ (share_kv / share_kv.sum(axis=1, keepdims=True))
    return np.array([rng.multinomial(length, p_v / p_v.sum()) for p_v in p_nv])


def some_topics(seed: int = 0, **fields: Any) -> Topics:
    """A q as a fit has it midway."""
    rng = np.random.default_rng(seed)
    lambda_vk = 100.0 * rng.gamma(0.3, 1.0, (TERMS, TOPICS)) + 0.02
    b_v = rng.dirichlet(np.ones(TERMS))
    return replace(MODEL.topics(lambda_vk, b_v), **fields)


def added(model: LDAModel, q: Topics, name: str, matrix: np.ndarray, group: Any = None) -> tuple[Any, Release]:
    """What documents add to a release without noise, in steps of its grid, and the release."""
    release = Release({name: model.blocks[name]}, Mechanism(FullBatch(), 1.0))
    wall: Wall[Any] = Wall(BagOfWords(matrix, group=group), Plan([release]), noise=InsecureNoise(1))
    return in_steps(wall.release(partial(model.e_step, q, blocks=release.asked), release), release), release


# --- the plan ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 2, 5, 18, 20, 21])
def test_the_release_midway_stands_behind_two_fifths_of_the_steps(n_steps: int) -> None:
    plan = phased(MODEL.blocks, FullBatch(), [1.0] * n_steps)
    phases = [next(iter(release.asked.values())).phase for release in plan]
    before = round(MIDWAY * n_steps)
    assert phases == ["first", *["step"] * before, "midway", *["step"] * (n_steps - before)]


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1)])
def test_the_gain_takes_its_share_of_the_budget(sampler: Any) -> None:
    plan = phased(MODEL.blocks, sampler, [1.0] * 20, shares={**SHARES, "first": 0.4})
    cost = dict.fromkeys(("first", "step", "midway"), 0.0)
    for release in plan:
        rate, noise = release.mechanism.sampler.sampling_prob, release.mechanism.noise_multiplier
        cost[next(iter(release.asked.values())).phase] += (rate / noise) ** 2
    total = sum(cost.values())
    assert cost["midway"] / total == pytest.approx(SHARES["midway"], rel=1e-9)
    assert cost["first"] / total == pytest.approx(0.4, rel=1e-9)


def test_steps_before_and_after_have_one_event() -> None:
    """So whatever is decided midway, the accountant composes the same releases."""
    plan = phased(MODEL.blocks, FullBatch(), [1.0] * 20, neighboring_relation="replace_one")
    steps = [release for release in plan if "counts" in release.blocks]
    assert len({id(release) for release in steps}) == 1
    assert swap_ratio(steps[0].blocks) == pytest.approx(math.sqrt(2))
    midway = next(release for release in plan if "gain" in release.blocks)
    assert swap_ratio(midway.blocks) == 2.0


def test_an_estimate_reads_the_releases_after_midway_by_precision() -> None:
    """Each has an equal weight where noise is equal; those before, and the release midway, do not enter."""
    blocks = {"a": Block((3,), 1.0), "b": Block((1,), 1.0, phase="midway")}
    rng, rho = np.random.default_rng(3), robbins_monro(1.0, 0.6)
    parts = []
    for _ in range(2):
        s, fresh = Estimate.empty(blocks), []
        plan = phased(blocks, FullBatch(), [1.0, 1.0, 2.0, 2.0, 4.0])
        wall: Wall[Any] = Wall(BagOfWords(rng.poisson(1.0, (5, 3))), plan, noise=InsecureNoise(int(rng.integers(99))))
        for t, release in enumerate(plan, start=1):
            released = wall.release(partial(_rows, blocks=release.asked), release)
            s = s.update(released, rho(t))
            if t > 3 and "a" in released.total:
                fresh.append((released.total["a"], released.noise_std["a"]))
        weight = np.array([std**-2 for _, std in fresh])
        mean, std = s.noisy_after_midway("a")
        np.testing.assert_allclose(mean, weight @ np.array([total for total, _ in fresh]) / weight.sum(), rtol=1e-12)
        assert std == pytest.approx(weight.sum() ** -0.5, rel=1e-12)
        parts.append(s)
    mean, std = Estimate.total(parts).noisy_after_midway("a")
    np.testing.assert_allclose(mean, sum(part.noisy_after_midway("a")[0] for part in parts), rtol=1e-12)
    assert std == pytest.approx(math.hypot(*(part.noisy_after_midway("a")[1] for part in parts)), rel=1e-12)


def _rows(batch: Any, blocks: Mapping[str, Block]) -> Any:
    from dpvb.core.forms import Rows

    dense = np.zeros((len(batch.indptr) - 1, 3))
    row_j = np.repeat(np.arange(len(dense)), np.diff(batch.indptr))
    dense[row_j, batch.indices] = 0.1 * batch.counts
    return {name: Rows(dense[:, : block.shape[0]]) for name, block in blocks.items()}


# --- the gain ---------------------------------------------------------------------------------------------------


def test_the_gain_is_that_of_the_bound_over_the_word_frequencies() -> None:
    """Per word, times min(length, 100)/100; a fourth of this weight stands beside it."""
    matrix, q = documents(np.random.default_rng(1), 20), some_topics()
    matrix[3] *= 4  # 240 words.
    matrix[5] = 0
    assert q.background_v is not None
    for row in matrix:
        words = row.sum()
        total, release = added(MODEL, q, "gain", row[None])
        grid = release.blocks["gain"].bound
        [bound] = MODEL.bound(q, next(iter(BagOfWords(row[None]).chunks())).rows)
        weight = min(words, 100) / 100
        gain = weight * (bound - row @ np.log(q.background_v)) / words if words else 0.0
        expected = np.array([gain, weight / 4])
        expected *= min(1.0, grid / max(np.linalg.norm(expected), 1e-300))
        none, _ = added(MODEL, q, "gain", row[None][:0])
        np.testing.assert_allclose(_units(difference(total, none), release), expected, atol=2e-6)


def _units(steps: Any, release: Release) -> np.ndarray:
    from dpvb.core.grids import grids_of

    return np.asarray(grids_of(release, None)["gain"].units(steps["gain"]))


@kills("records", "a gain over the mean length of a batch")
@edit("models/topics/lda.py", "weight_n * gain_n / length_n, 0.0)", "weight_n * gain_n / length_n.mean(), 0.0)")
def test_a_document_adds_the_same_gain_beside_any_others() -> None:
    matrix, q = documents(np.random.default_rng(2), 30), some_topics()
    matrix[::3] //= 3
    none, _ = added(MODEL, q, "gain", matrix[:0])
    alone = sum(difference(added(MODEL, q, "gain", row[None])[0], none)["gain"] for row in matrix)
    together, _ = added(MODEL, q, "gain", matrix)
    np.testing.assert_array_equal(difference(together, none)["gain"], alone)


@pytest.mark.parametrize("is_one", [False, True])
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("name", ["gain", "counts"])
@kills("factor", "word totals of one topic that are not clipped", "counts-True-True")
@edit("core/clipped_sums.py", "_MARGIN / np.maximum(relative[name], _MARGIN)", "np.ones_like(relative[name])")
def test_no_pair_of_units_is_farther_apart_than_is_accounted(name: str, persons: bool, is_one: bool) -> None:
    """By brute force, at topics of all kinds: one unit added, and one replaced by any other."""
    rng = np.random.default_rng(4)
    matrix = np.vstack(
        [
            documents(rng, 6),
            documents(rng, 3, topics=False, length=2000),
            np.eye(TERMS, dtype=int)[:3],
            10_000 * np.eye(TERMS, dtype=int)[:3],
        ]
    )
    # A person's documents are all alike, so that their gains add up; others have some of every kind.
    units = [np.repeat(row[None], 7, axis=0) for row in matrix] + [matrix[i::4] for i in range(4)]
    units = units if persons else [row[None] for row in matrix]
    farthest = {"add_or_remove_one": 0.0, "replace_one": 0.0}
    peaked = np.full((TERMS, TOPICS), 1e-8)
    peaked[:3, 0] = 1.0
    for q in (some_topics(), some_topics(1, is_one=is_one), replace(MODEL.topics(peaked, np.full(TERMS, 1 / TERMS)))):
        q = replace(q, is_one=is_one)
        own = []
        for unit in units:
            group = np.zeros(len(unit), dtype=int) if persons else None
            total, release = added(MODEL, q, name, unit, group)
            none, _ = added(MODEL, q, name, unit[:0], None if group is None else group[:0])
            own.append(difference(total, none))
        for one in own:
            farthest["add_or_remove_one"] = max(farthest["add_or_remove_one"], relative_norm(one, release)[1])
        for one, other in itertools.combinations(own, 2):
            apart = relative_norm(difference(one, other), release)[1]
            farthest["replace_one"] = max(farthest["replace_one"], apart)
    for relation, distance in farthest.items():
        assert distance <= release.event().sensitivity(relation)  # type: ignore[arg-type]
    assert farthest["add_or_remove_one"] > 0.99


def test_a_persons_documents_are_clipped_by_one_factor() -> None:
    """Gain and length keep their ratio: a person of many documents counts as one of them, not as half a gain."""
    row, q = documents(np.random.default_rng(5), 1), some_topics()
    none, _ = added(MODEL, q, "gain", row[:0])
    ratios = []
    for number in (1, 2, 50):
        person = np.repeat(row, number, axis=0)
        total, release = added(MODEL, q, "gain", person, np.zeros(number, dtype=int))
        gain, weight = _units(difference(total, none), release)
        assert math.hypot(gain, weight) <= release.blocks["gain"].bound
        ratios.append(gain / weight)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-4)


@pytest.mark.parametrize("rule", ["truncate", "rescale", "resample"])
def test_malformed_documents_add_no_gain(rule: Any) -> None:
    """What the E-step takes for empty has neither a gain nor a weight, and the others keep theirs."""
    model = replace(MODEL, length_rule=rule)
    matrix, q = documents(np.random.default_rng(6), 3).astype(float), some_topics()
    none, _ = added(model, q, "gain", matrix[:0])
    whole = difference(added(model, q, "gain", matrix)[0], none)["gain"]
    assert whole[1] > 0
    odd = np.vstack([matrix, np.zeros(TERMS)])
    np.testing.assert_array_equal(difference(added(model, q, "gain", odd)[0], none)["gain"], whole)


# --- the decision -----------------------------------------------------------------------------------------------


def midway(matrix: np.ndarray) -> tuple[Topics, Topics, Estimate]:
    """A fit up to the decision, of hardly any noise: q before it, q after it, and the estimate."""
    plan = phased(MODEL.blocks, FullBatch(), [1e-3] * 20)
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan, noise=InsecureNoise(3))
    q, s = MODEL.init(np.random.default_rng(0)), Estimate.empty(MODEL.blocks)
    for t, release in enumerate(plan.releases[:10], start=1):
        before = q
        s = s.update(wall.release(loop.query(MODEL, q, release), release), robbins_monro(1.0, 0.6)(t))
        q = MODEL.started(s, q) if s.phase in ("first", "midway") else MODEL.m_step(s, q)
    return before, q, s


def test_topics_that_predict_better_are_kept() -> None:
    before, after, s = midway(documents(np.random.default_rng(7)))
    assert not after.is_one
    np.testing.assert_array_equal(after.lambda_vk, before.lambda_vk)
    gain, weight = s.noisy("gain")
    assert after.gain == pytest.approx(gain / (4 * weight), rel=1e-12)
    assert after.gain_std == pytest.approx(s.noise_std("gain") / (4 * weight), rel=1e-12)
    assert 0 < after.gain < math.log(TOPICS)


def test_topics_that_do_not_are_one_topic_of_the_word_frequencies() -> None:
    before, after, _ = midway(documents(np.random.default_rng(8), topics=False))
    assert after.gain < 0
    assert after.is_one
    assert before.background_v is not None
    mean_vk = after.lambda_vk / after.lambda_vk.sum(axis=0)
    np.testing.assert_allclose(mean_vk, np.repeat(before.background_v[:, None], TOPICS, axis=1), rtol=1e-9)


def test_one_topic_asks_for_word_totals_in_the_place_of_the_first_topic() -> None:
    """Clipped sums of powers: as a first release of the same noise multiplier has them, on the scale of the counts."""
    matrix = documents(np.random.default_rng(9), 30)
    matrix[::2] //= 4
    q = some_topics(is_one=True)
    counts, release = added(MODEL, q, "counts", matrix)
    none, _ = added(MODEL, q, "counts", matrix[:0])
    from dpvb.core.grids import grids_of

    found = grids_of(release, None)["counts"].units(difference(counts, none)["counts"])
    roots, bound = np.sqrt(matrix), MODEL.blocks["words"].bound
    norms = np.linalg.norm(roots, axis=1, keepdims=True)
    assert 0 < (norms > bound).mean() < 1
    expected = (roots * np.minimum(1.0, bound / norms)).sum(axis=0) * release.blocks["counts"].bound / bound
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)
    assert (found[:, 1:] == 0).all()


def test_word_totals_after_the_decision_sharpen_the_word_frequencies() -> None:
    """The error of one topic, averaged over seeds, is below that of the first release alone."""
    rng = np.random.default_rng(10)
    p_v = rng.dirichlet(np.full(TERMS, 0.5))
    matrix = rng.multinomial(20, p_v, 400)
    plan = phased(MODEL.blocks, FullBatch(), [40.0] * 20, shares={**SHARES, "first": 0.4})
    errors = []
    for seed in range(10):
        wall: Wall[Any] = Wall(BagOfWords(matrix), plan, noise=InsecureNoise(seed))
        seen: list[Topics] = []
        loop.fit(
            MODEL,
            wall,
            plan,
            rho=robbins_monro(1.0, 0.6),
            rng=np.random.default_rng(seed),
            on_step=lambda t, q, seen=seen: seen.append(q),  # type: ignore[misc]
        )
        if seen[-1].is_one:
            exact = np.sqrt(matrix).sum(axis=0) / np.sqrt(matrix).sum()
            first, last = (np.abs(q.background_v - exact).sum() for q in (seen[0], seen[-1]))  # type: ignore[operator]
            errors.append((first, last))
    assert len(errors) >= 8
    first, last = np.mean(errors, axis=0)
    assert last < 0.9 * first


# --- words by both releases, and lists of words -----------------------------------------------------------------


def test_word_totals_of_both_releases_are_weighted_by_precision() -> None:
    """Unbiased, with the stated std, below that of the first release: 4,000 draws.

    A mean of draws has a standard error of 1.6 % of one std, and a std of draws one of 1.1 %: 0.1 std are 6 and 9 of
    them (false alarms below 1e-8). The ratio of the two scales is measured, too; its error is below 1 % of a total.
    """
    rng = np.random.default_rng(11)
    truth_v = np.array([300.0, 40.0, 1_000.0, 20_000.0])
    y_std_v = np.array([5.0, 10.0, 20.0, 40.0])
    draws = 4_000
    z_nv = np.empty((draws, 4))
    for n in range(draws):
        words_v = truth_v + 30.0 * rng.standard_normal(4)
        z_nv[n], std_v = prior.of_both(words_v, 30.0, 0.5 * truth_v + y_std_v * rng.standard_normal(4), y_std_v)
    np.testing.assert_allclose(std_v, (30.0**-2 + (0.5 / y_std_v) ** 2) ** -0.5, rtol=0.01)
    small = slice(0, 3)  # Of these the error of the ratio is far below the noise.
    assert (np.abs(z_nv.mean(axis=0) - truth_v)[small] < 0.1 * std_v[small]).all()
    assert (np.abs(z_nv.std(axis=0) / std_v - 1)[small] < 0.1).all()
    assert (std_v < 30.0).all()


def test_a_later_release_without_a_sum_says_nothing() -> None:
    words_v, y_v = np.full(5, 10.0), np.full(5, -1.0)
    z_v, std_v = prior.of_both(words_v, 2.0, y_v, np.ones(5))
    np.testing.assert_array_equal(z_v, words_v)
    np.testing.assert_array_equal(std_v, np.full(5, 2.0))


def test_the_list_that_word_totals_agree_with_is_chosen_and_a_permuted_one_never() -> None:
    rng = np.random.default_rng(12)
    words = word_lists.words("english:3000")
    frequency_v = np.array(word_lists.frequencies_of("english", words))
    truth_v = frequency_v / frequency_v.sum() * rng.gamma(0.6, 1 / 0.6, len(words))
    true, refused = 0, 0
    for seed in range(20):
        draws = np.random.default_rng(seed)
        total_v = 30_000 * truth_v + 30.0 * draws.standard_normal(len(words))
        permuted = WordList("permuted", draws.permutation(frequency_v))
        lists = (permuted, WordList("english", frequency_v))
        true += prior.chosen(lists, total_v, np.full(len(words), 30.0)) == 2
        refused += prior.chosen(lists[:1], total_v, np.full(len(words), 30.0)) == 0
    assert (true, refused) == (20, 20)


def test_lists_fit_a_vocabulary_of_which_they_hold_half() -> None:
    for language in word_lists.LANGUAGES:
        assert word_lists.that_fit(word_lists.words(f"{language}:500")) == (language,)
    mixed = (*word_lists.words("english:40"), *(f"x{n}" for n in range(41)))
    assert word_lists.that_fit(mixed) == ()
    assert word_lists.that_fit(mixed[:-1]) == ("english",)
    assert word_lists.that_fit(()) == ()
    assert private_words.lists_of(None) == ()


# --- the estimator ----------------------------------------------------------------------------------------------


def fitted(matrix: np.ndarray, n_components: Any = TOPICS, epsilon: float = 8.0, **options: Any) -> dpvb.LDA:
    given = {"public_vocabulary": True, "delta": 1e-6, "random_state": 0, **options}
    return dpvb.LDA(n_components, epsilon=epsilon, **given).fit(matrix)


def test_a_fit_says_how_much_better_its_topics_predict() -> None:
    """In-sample and held-out gain agree within 0.1 nats, of about 1: the released gain is of a middle step."""
    rng = np.random.default_rng(13)
    model = fitted(documents(rng, 3_000))
    assert model.gain_ is not None
    assert model.gain_std_ is not None
    assert model.gain_ > 10 * model.gain_std_
    held_out = documents(rng, 500)
    one = fitted(documents(rng, 3_000), 1)
    gain = math.log(one.perplexity(held_out, public=True) / model.perplexity(held_out, public=True))
    assert gain > model.gain_ - 0.02
    assert f"{TOPICS} topics predict" in model.summary()
    assert f"{100 * -math.expm1(-model.gain_):.2g} % better than one." in model.privacy_.remarks[-1]


def test_documents_without_topics_become_one_topic_in_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise of fixed seeds: it is no chance event."""
    for seed in range(5):
        noise = InsecureNoise(seed)
        monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda noise=noise: noise)
        matrix = documents(np.random.default_rng(100 + seed), 1_000, topics=False)
        with pytest.warns(LostInNoiseWarning, match="no better than word frequencies"):
            model = fitted(matrix, epsilon=1.0, random_state=seed)
        assert model.components_.shape == (1, TERMS)
        assert model.gain_ is not None
        assert model.gain_std_ is not None
        assert model.gain_ <= model.gain_std_
        assert model.topics_above_noise_ == 0
        assert "their word frequencies" in model.summary()
        [figure] = model.report().figures
        assert figure.title == "One topic: word frequencies"
        p_v = matrix.sum(axis=0) / matrix.sum()
        exact = math.exp(-p_v @ np.log(p_v))
        assert model.perplexity(matrix, public=True) < 1.1 * exact


def test_one_topic_takes_the_whole_budget_in_one_release() -> None:
    model = fitted(documents(np.random.default_rng(14), 500), 1)
    plan = model.release_plan(documents(np.random.default_rng(14), 5))
    assert [list(release.asked) for release in plan] == [["words"]]
    assert (model.n_iter_, model.components_.shape, model.gain_) == (0, (1, TERMS), None)


@pytest.mark.parametrize(
    "options",
    [{"n_steps": 17}, {"epsilon": math.inf}, {"release_word_totals": False}],
    ids=["few steps", "no noise", "no words"],
)
def test_topics_are_not_compared_where_that_tells_nothing(options: dict[str, Any]) -> None:
    model = dpvb.LDA(3, **{"epsilon": 4.0, "delta": 1e-6, "public_vocabulary": True, **options})
    plan = model.release_plan(documents(np.random.default_rng(15), 5))
    assert not any("gain" in release.blocks for release in plan)


def test_a_file_holds_the_gain_and_the_word_list(tmp_path: Any) -> None:
    rng = np.random.default_rng(16)
    words = word_lists.words(f"english:{TERMS}")
    model = fitted(documents(rng, 1_000), vocabulary=words, public_vocabulary=False)
    model.save(tmp_path / "model.dpvb")
    loaded = dpvb.load(tmp_path / "model.dpvb")
    for name in ("gain_", "gain_std_", "word_list_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.summary() == model.summary()
    assert "the public list 'english'" in str(model.privacy_)
