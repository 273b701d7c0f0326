"""Latent Dirichlet allocation: against independent implementations, the papers' worked example, and invariances."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

from benchmarks.float64 import Float64Topics
from dpvb.core import loop
from dpvb.core.blocks import Block
from dpvb.core.estimate import Estimate
from dpvb.core.model import constant, m_step_q
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.errors import ParameterError
from dpvb.models.topics.lda import LDAModel, Topics, to_length

TIGHT: dict[str, Any] = {"tol": 1e-8, "max_iter": 2000}


def plain(n_components: int, n_terms: int, kind: type[LDAModel] = LDAModel, **options: Any) -> LDAModel:
    """The textbook model: the statistic is the expected counts, and λ = η + their sum."""
    textbook = {
        "length_rule": "rescale",
        "count_power": 1.0,
        "release_word_totals": False,
        "word_weight_power": 0.0,
        "statistic_weight": 1.0,
    }
    return kind(n_components, n_terms, **{**textbook, "clip_scale": 0.03, "doc_topic_prior": 0.02, **options})


def topics(model: LDAModel, lambda_vk: np.ndarray) -> Topics:
    return model.topics(lambda_vk)


def rows(matrix: np.ndarray) -> Any:
    [chunk] = BagOfWords(np.asarray(matrix, dtype=np.float64)).chunks()
    return chunk.rows


def released(model: LDAModel, matrix: np.ndarray, q: Topics, noise: float = 0.0) -> np.ndarray:
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), noise))])
    wall: Wall[Any] = Wall(BagOfWords(np.asarray(matrix, dtype=np.float64)), plan, noise=InsecureNoise(1))
    return wall.release(partial(model.e_step, q, blocks=model.blocks), plan.releases[0]).total["counts"]


def corpus(rng: np.random.Generator, n: int = 40, terms: int = 30, topics: int = 3, length: int = 60) -> np.ndarray:
    """Documents of equal length from topics of sparse words."""
    beta = rng.dirichlet(np.full(terms, 0.1), topics)
    theta = rng.dirichlet(np.full(topics, 0.3), n)
    return np.array([rng.multinomial(length, mix) for mix in theta @ beta]).astype(np.float64)


# --- an independent implementation, straight from the equations -----------------------------------------------


def plain_document(c_v: np.ndarray, elog_beta_vk: np.ndarray, alpha: float, tol: float, most: int) -> Any:
    """γ and the dense statistic of one document; φ is normalised in the log domain."""
    num_topics = elog_beta_vk.shape[1]
    gamma = np.ones(num_topics)
    words = np.flatnonzero(c_v)

    def phi(gamma: np.ndarray) -> np.ndarray:
        log_phi = elog_beta_vk[words] + digamma(gamma) - digamma(gamma.sum())
        log_phi -= log_phi.max(axis=1, keepdims=True)
        unnormalised = np.exp(log_phi)
        return unnormalised / unnormalised.sum(axis=1, keepdims=True)

    for _ in range(most):
        before, gamma = gamma, alpha + (c_v[words][:, None] * phi(gamma)).sum(axis=0)
        if np.abs(gamma - before).mean() < tol:
            break
    statistic = np.zeros_like(elog_beta_vk)
    statistic[words] = c_v[words][:, None] * phi(gamma)
    return gamma, statistic


def plain_step(
    matrix: np.ndarray, lambda_vk: np.ndarray, alpha: float, eta: float, length: float, *, mode: bool = False
) -> np.ndarray:
    """One iteration of variational Bayes on the whole corpus, every document rescaled to `length`; or at the mode."""
    elog_beta = digamma(lambda_vk) - digamma(lambda_vk.sum(axis=0))
    if mode:
        kept_vk = lambda_vk - 1 if lambda_vk.min() >= 1 else lambda_vk
        elog_beta = np.log(kept_vk) - np.log(kept_vk.sum(axis=0))
    total = np.zeros_like(lambda_vk)
    for c_v in matrix:
        if c_v.sum():
            total += plain_document(c_v * length / c_v.sum(), elog_beta, alpha, **{"tol": 1e-8, "most": 2000})[1]
    return eta + total


@pytest.mark.parametrize(("kind", "tolerance"), [(Float64Topics, 1e-6), (LDAModel, 1e-5)])
def test_one_full_batch_step_is_one_plain_step(kind: Any, tolerance: float) -> None:
    """Relative L1 of λ - η, no noise and no clipping, documents of many lengths, one of them empty."""
    rng = np.random.default_rng(1)
    matrix = corpus(rng)
    matrix[3] = 0.0
    matrix[:10] *= 7
    model = plain(5, 30, clip_scale=1.0, document_length=200.0, kind=kind, doc_topic_prior=0.1, **TIGHT)
    q = model.init(rng)
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))])
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan)
    total = wall.release(partial(model.e_step, q, blocks=model.blocks), plan.releases[0])
    new = model.m_step(Estimate.empty(model.blocks).update(total, 1.0), q)
    expected = plain_step(matrix, q.lambda_vk, 0.1, model.topic_word_prior, 200.0)
    error = np.abs(new.lambda_vk - expected).sum() / (expected - model.topic_word_prior).sum()
    assert error < tolerance


def test_several_noiseless_steps_are_plain_variational_bayes() -> None:
    rng = np.random.default_rng(2)
    matrix = corpus(rng)
    model = plain(3, 30, clip_scale=1.0, document_length=60.0, kind=Float64Topics, doc_topic_prior=0.1, **TIGHT)
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))] * 5)
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan)
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(3))
    lambda_vk = model.init(np.random.default_rng(3)).lambda_vk
    for _ in range(5):
        lambda_vk = plain_step(matrix, lambda_vk, 0.1, model.topic_word_prior, 60.0)
    assert np.abs(q.lambda_vk - lambda_vk).sum() / lambda_vk.sum() < 1e-6


@pytest.mark.parametrize("eta", [0.3, 1.2])
def test_several_noiseless_steps_at_the_mode_are_expectation_maximisation(eta: float) -> None:
    """The start is below 1, where the mean stands for the mode; from the first step on every λ is above η."""
    rng = np.random.default_rng(2)
    matrix = corpus(rng)
    options: dict[str, Any] = {
        "clip_scale": 1.0,
        "document_length": 60.0,
        "kind": Float64Topics,
        "doc_topic_prior": 0.1,
        **TIGHT,
    }
    model = plain(3, 30, mode=True, topic_word_prior=eta, **options)
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))] * 5)
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan)
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(3))
    lambda_vk = model.init(np.random.default_rng(3)).lambda_vk
    for _ in range(5):
        lambda_vk = plain_step(matrix, lambda_vk, 0.1, eta, 60.0, mode=True)
    assert np.abs(q.lambda_vk - lambda_vk).sum() / lambda_vk.sum() < 1e-6
    point_vk = lambda_vk - 1 if eta > 1 else lambda_vk
    np.testing.assert_allclose(q.beta_vk, point_vk / point_vk.sum(axis=0), rtol=1e-6, atol=1e-12)


def topics_term(lambda_vk: np.ndarray, eta: float) -> float:
    """E[log p(β)] - E[log q(β)], the part of the bound that belongs to the topics."""
    elog = digamma(lambda_vk) - digamma(lambda_vk.sum(axis=0))
    terms, topics = lambda_vk.shape
    value = ((eta - lambda_vk) * elog).sum() + gammaln(lambda_vk).sum() - gammaln(lambda_vk.sum(axis=0)).sum()
    return float(value + topics * (gammaln(terms * eta) - terms * gammaln(eta)))


def test_the_bound_never_falls_without_noise() -> None:
    rng = np.random.default_rng(4)
    matrix = corpus(rng)
    model = plain(3, 30, clip_scale=1.0, document_length=60.0, kind=Float64Topics, doc_topic_prior=0.1, **TIGHT)
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))] * 12)
    bounds: list[float] = []

    def record(t: int, q: Topics) -> None:
        bounds.append(float(model.bound(q, rows(matrix)).sum()) + topics_term(q.lambda_vk, model.topic_word_prior))

    loop.fit(model, Wall(BagOfWords(matrix), plan), plan, rho=constant(1.0), rng=rng, on_step=record)
    assert np.diff(bounds).min() > -1e-5 * abs(bounds[0])
    assert bounds[-1] > bounds[0]


def test_the_bound_is_scikit_learns_without_the_topics_term() -> None:
    from sklearn.decomposition import LatentDirichletAllocation

    rng = np.random.default_rng(5)
    matrix = corpus(rng)
    matrix[7] = 0.0
    model = plain(4, 30, kind=Float64Topics, doc_topic_prior=0.3, topic_word_prior=0.2, **TIGHT)
    q = topics(model, rng.gamma(1.0, 5.0, (30, 4)) + 0.1)
    theirs = LatentDirichletAllocation(
        4, doc_topic_prior=0.3, topic_word_prior=0.2, max_iter=1, max_doc_update_iter=20_000, mean_change_tol=1e-8
    ).fit(matrix)
    theirs.components_ = q.lambda_vk.T.copy()
    theirs.exp_dirichlet_component_ = np.exp(digamma(theirs.components_) - digamma(theirs.components_.sum(1))[:, None])
    expected = theirs.score(matrix) - topics_term(q.lambda_vk, 0.2)
    assert float(model.bound(q, rows(matrix), topics="expected_log").sum()) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(model.proportions(q, rows(matrix)), theirs.transform(matrix), atol=1e-6)
    compiled = plain(4, 30, doc_topic_prior=0.3, topic_word_prior=0.2, **TIGHT)
    theirs_again = compiled.bound(topics(compiled, q.lambda_vk), rows(matrix), topics="expected_log")
    assert float(theirs_again.sum()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("topics", ["mean", "expected_log"])
def test_the_bound_is_the_definition(topics: Any) -> None:
    """ELBO of one document with every term written out, after the same local iterations; one value a document."""
    rng = np.random.default_rng(6)
    matrix = corpus(rng, n=3)
    model = plain(3, 30, kind=Float64Topics, doc_topic_prior=0.4, **TIGHT)
    q = model.init(rng)
    total_k = q.lambda_vk.sum(axis=0)
    elog_beta = digamma(q.lambda_vk) - digamma(total_k) if topics != "mean" else np.log(q.lambda_vk / total_k)
    for c_v, value in zip(matrix, model.bound(q, rows(matrix), topics=topics), strict=True):
        gamma, statistic = plain_document(c_v, elog_beta, 0.4, 1e-8, TIGHT["max_iter"])
        elog_theta = digamma(gamma) - digamma(gamma.sum())
        words = np.flatnonzero(c_v)
        phi = statistic[words] / c_v[words][:, None]
        likelihood = (statistic[words] * (elog_beta[words] + elog_theta - np.log(phi))).sum()
        prior = gammaln(3 * 0.4) - 3 * gammaln(0.4) + ((0.4 - 1) * elog_theta).sum()
        entropy = gammaln(gamma).sum() - gammaln(gamma.sum()) - ((gamma - 1) * elog_theta).sum()
        assert value == pytest.approx(likelihood + prior + entropy, rel=1e-9)


# --- clipping -----------------------------------------------------------------------------------------------


def test_the_papers_worked_example() -> None:
    """L = V = K = 2, a = 0.1, s = [[1, 0], [1, 0]]: norm √2, so the clipped statistic is s·0.2/√2."""
    for kind in (Float64Topics, LDAModel):
        model = plain(2, 2, clip_scale=0.1, document_length=2.0, doc_topic_prior=1e-6, kind=kind)
        dtype = np.float32 if kind is LDAModel else np.float64
        beta_vk = np.array([[0.5, 1e-25], [0.5, 1e-25]], dtype=dtype)
        q = Topics(np.ones((2, 2)), beta_vk, None, np.ones(2), model.topics(np.ones((2, 2))).alpha_k)
        total = released(model, np.array([[1.0, 1.0]]), q)
        expected = np.array([[1.0, 0.0], [1.0, 0.0]]) * 0.2 / math.sqrt(2)
        np.testing.assert_allclose(total, expected, atol=2e-6 * 0.2)


@pytest.mark.parametrize("kind", [Float64Topics, LDAModel])
def test_one_word_documents_attain_the_swap_ratio(kind: Any) -> None:
    """At the papers' K = 50 and a = 0.1 they are always clipped: two on different words are √2·aL apart."""
    model = plain(50, 20, clip_scale=0.1, kind=kind)
    q = model.init(np.random.default_rng(0))
    one, other = (released(model, np.eye(20)[[word]] * count, q) for word, count in ((3, 1.0), (11, 40.0)))
    bound = 0.1 * 500
    for total in (one, other):
        assert bound * (1 - 2e-6) <= np.linalg.norm(total) <= bound
    distance = np.linalg.norm(one - other)
    assert math.sqrt(2) * bound * (1 - 2e-6) <= distance <= math.sqrt(2) * bound


# --- length -------------------------------------------------------------------------------------------------


@given(
    matrix=st.lists(st.lists(st.integers(0, 9), min_size=6, max_size=6), min_size=1, max_size=8),
    scale=st.sampled_from([1.0, 0.3, 1000.0]),
)
def test_length_rules(matrix: list[list[int]], scale: float) -> None:
    counts = np.array(matrix) * scale
    batch = rows(counts)
    dense = {}
    for rule in ("rescale", "resample", "truncate"):
        treated = to_length(batch, 20.0, rule)
        dense[rule] = np.zeros(counts.shape)
        dense[rule][counts > 0] = treated
    length = counts.sum(axis=1)
    full = length > 0
    np.testing.assert_allclose(dense["rescale"].sum(axis=1), np.where(full, 20.0, 0.0), rtol=1e-12)
    np.testing.assert_allclose(dense["rescale"][full], counts[full] * 20 / length[full, None], rtol=1e-12)
    assert np.array_equal(dense["resample"].sum(axis=1), np.where(full, 20.0, 0.0))
    assert np.array_equal(dense["resample"], np.rint(dense["resample"]))
    assert not dense["resample"][counts == 0].any()
    np.testing.assert_allclose(dense["truncate"].sum(axis=1), np.minimum(length, 20.0), rtol=1e-12)
    short = length <= 20
    assert np.array_equal(dense["truncate"][short], counts[short])


@pytest.mark.parametrize("rule", ["rescale", "resample", "truncate"])
def test_the_length_rule_is_pure(rule: Any) -> None:
    """A document is brought to its length in the same bits wherever it stands, fractional counts included."""
    rng = np.random.default_rng(8)
    counts = np.where(rng.random((40, 140)) < rng.random((40, 1)), rng.random((40, 140)) + 0.01, 0.0)

    def treated(order: np.ndarray) -> list[np.ndarray]:
        batch = rows(counts[order])
        return np.split(to_length(batch, 50.0, rule), batch.indptr[1:-1])

    straight = treated(np.arange(40))
    for order in (np.arange(40)[::-1], rng.permutation(40)):
        for place, got in zip(order, treated(order), strict=True):
            assert np.array_equal(got, straight[place])
    for n in range(40):
        assert np.array_equal(treated(np.array([n]))[0], straight[n])


def test_resampled_words_follow_the_documents_own_frequencies() -> None:
    """1,500 documents with the same shares: 5 words, 100 draws each; chi-square p > 1e-6."""
    import scipy.stats

    shares = np.array([0.4, 0.3, 0.2, 0.05, 0.05])
    counts = shares * np.arange(1, 1501)[:, None]
    treated = to_length(rows(counts), 100.0, "resample").reshape(1500, 5)
    total = treated.sum(axis=0)
    assert scipy.stats.chisquare(total, shares * total.sum()).pvalue > 1e-6
    assert len(np.unique(treated, axis=0)) > 1000  # other documents, other draws


@pytest.mark.parametrize("rule", ["rescale", "resample", "truncate"])
@pytest.mark.parametrize("kind", [Float64Topics, LDAModel])
def test_empty_documents_add_nothing(rule: Any, kind: Any) -> None:
    model = plain(3, 6, length_rule=rule, kind=kind)
    q = model.init(np.random.default_rng(0))
    for n in (0, 1, 5):
        assert not released(model, np.zeros((n, 6)), q).any()
    some = np.vstack([np.zeros((2, 6)), np.ones((1, 6)), np.zeros((1, 6))])
    assert np.array_equal(released(model, some, q), released(model, np.ones((1, 6)), q))
    np.testing.assert_allclose(model.proportions(q, rows(np.zeros((2, 6)))), 1 / 3)
    np.testing.assert_allclose(model.bound(q, rows(np.zeros((2, 6)))), 0.0, atol=1e-12)


# --- invariances --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Float64Topics, LDAModel])
def test_names_of_topics_and_words_do_not_matter(kind: Any) -> None:
    rng = np.random.default_rng(9)
    matrix = corpus(rng, n=15)
    model = plain(4, 30, clip_scale=0.2, kind=kind, **TIGHT)
    q = model.init(rng)
    total = released(model, matrix, q)
    names, words = rng.permutation(4), rng.permutation(30)
    renamed = released(model, matrix[:, words], topics(model, q.lambda_vk[words][:, names]))
    np.testing.assert_allclose(renamed, total[words][:, names], rtol=1e-4, atol=1e-5 * total.max())


def test_doubling_a_document_changes_nothing_after_rescaling() -> None:
    rng = np.random.default_rng(10)
    matrix = corpus(rng, n=10)
    model = plain(4, 30, kind=Float64Topics)
    q = model.init(rng)
    np.testing.assert_allclose(released(model, matrix * 8.0, q), released(model, matrix, q), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_statistic_keeps_the_documents_mass(seed: int) -> None:
    """Σ_k s_vk is the count of v, and γ sums to Kα + length."""
    rng = np.random.default_rng(seed)
    matrix = rng.poisson(1.0, (3, 8)).astype(np.float64)
    model = plain(
        3,
        8,
        clip_scale=1.0,
        document_length=1e3,
        length_rule="truncate",
        kind=Float64Topics,
        doc_topic_prior=0.3,
        max_iter=30,
    )
    q = model.init(rng)
    np.testing.assert_allclose(released(model, matrix, q).sum(axis=1), matrix.sum(axis=0), atol=1e-5)
    batch = rows(matrix)
    gamma = model.local(q, batch, batch.counts, 30)[3]
    np.testing.assert_allclose(gamma.sum(axis=1), 0.9 + matrix.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(model.proportions(q, batch).sum(axis=1), 1.0, rtol=1e-12)


# --- powers, weights, word totals ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "tolerance"), [(Float64Topics, 1e-6), (LDAModel, 1e-5)])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_powers_and_weights_scale_each_words_part_of_the_statistic(kind: Any, tolerance: float, power: float) -> None:
    """s_vk = w_v c_v^p φ_vk with φ of the plain document: the local step does not see p or w."""
    rng = np.random.default_rng(20)
    matrix = corpus(rng, n=12)
    weight_v = rng.uniform(0.3, 3.0, 30)
    options = {
        "clip_scale": 1.0,
        "document_length": 200.0,
        "length_rule": "truncate",
        "doc_topic_prior": 0.1,
        "kind": kind,
        **TIGHT,
    }
    model = plain(4, 30, count_power=power, **options)
    start = model.init(rng)
    q = model.topics(start.lambda_vk, None, weight_v)
    elog_beta = digamma(q.lambda_vk) - digamma(q.lambda_vk.sum(axis=0))
    expected = np.zeros((30, 4))
    for c_v in matrix:
        statistic = plain_document(c_v, elog_beta, 0.1, 1e-8, 2000)[1]
        part = weight_v[:, None] * np.divide(statistic, c_v[:, None], out=np.zeros((30, 4)), where=c_v[:, None] > 0)
        own = part * c_v[:, None] ** power
        expected += own * min(1.0, model.blocks["counts"].bound / np.linalg.norm(own))
    got = released(model, matrix, q)
    assert np.abs(got - expected).sum() / expected.sum() < tolerance + 2e-6


def test_word_totals_are_clipped_sums_of_powers() -> None:
    rng = np.random.default_rng(21)
    matrix = rng.poisson(np.repeat([[0.2], [2.0]], [12, 13], axis=0), (25, 30))
    model = LDAModel(3, 30, document_length=1e5)
    bound = model.blocks["words"].bound
    release = Release({"words": model.blocks["words"]}, Mechanism(FullBatch(), 0.0))
    wall: Wall[Any] = Wall(BagOfWords(matrix), Plan([release]))
    total = wall.release(partial(model.e_step, model.init(rng), blocks=release.asked), release).total["words"]
    roots = np.sqrt(matrix)
    norms = np.linalg.norm(roots, axis=1, keepdims=True)
    assert 0.0 < (norms > bound).mean() < 1.0
    expected = (roots * np.minimum(1.0, bound / norms)).sum(axis=0)
    np.testing.assert_allclose(total, expected, rtol=3e-6)


def test_a_first_release_of_words_is_the_start() -> None:
    """Background, word weights and topics from the word totals alone; the weights are undone on reading."""
    rng = np.random.default_rng(22)
    matrix = corpus(rng, n=200)
    model = LDAModel(3, 30, word_weight_power=0.3, doc_topic_prior=0.1, clip_scale=1.0, document_length=60.0)
    plan = phased(model.blocks, FullBatch(), [0.0])
    seen: list[Topics] = []
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan)
    _, s = loop.fit(model, wall, plan, rho=constant(1.0), rng=rng, on_step=lambda t, q: seen.append(q))
    started, fitted = seen
    totals = np.sqrt(matrix).sum(axis=0)
    assert started.background_v is not None
    np.testing.assert_allclose(started.background_v[totals > 0], (totals / totals.sum())[totals > 0], rtol=0.01)
    smoothed = started.background_v + 0.2 / 30
    np.testing.assert_allclose(started.word_weight_v, (smoothed / smoothed.mean()) ** -0.3, rtol=1e-12)
    np.testing.assert_allclose(started.beta_vk.mean(axis=1) / started.background_v, 1.0, atol=0.3)
    unweighted = np.maximum(s.noisy("counts") / started.word_weight_v[:, None], 0.0)
    np.testing.assert_allclose(
        fitted.lambda_vk, model.topic_word_prior + model.statistic_weight * unweighted, rtol=1e-12
    )


# --- reading ------------------------------------------------------------------------------------------------


def estimate_of(model: LDAModel, matrix: np.ndarray, noise: float) -> Estimate:
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), noise))])
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan, noise=InsecureNoise(4))
    q = model.init(np.random.default_rng(0))
    got = wall.release(partial(model.e_step, q, blocks=model.blocks), plan.releases[0])
    return Estimate.empty(model.blocks).update(got, 1.0)


def test_without_noise_topics_are_the_released_counts_added_to_the_prior() -> None:
    matrix = corpus(np.random.default_rng(11))
    model = plain(3, 30, topic_word_prior=0.05)
    s = estimate_of(model, matrix, 0.0)
    q = model.m_step(s, model.init(np.random.default_rng(0)))
    np.testing.assert_allclose(q.lambda_vk, 0.05 + np.maximum(s.noisy("counts"), 0.0), rtol=1e-12)
    expected = np.exp(digamma(q.lambda_vk) - digamma(q.lambda_vk.sum(axis=0)))
    np.testing.assert_allclose(q.beta_vk, expected, rtol=1e-6)


def test_topics_are_exact_without_noise_and_finite_with_much_noise() -> None:
    matrix = corpus(np.random.default_rng(12), n=300)
    model = plain(3, 30)
    start = model.init(np.random.default_rng(0))
    s = estimate_of(model, matrix, 0.0)
    np.testing.assert_allclose(model.m_step(s, start).lambda_vk, model.topic_word_prior + s.noisy("counts"), rtol=1e-12)
    for noise, data in ((1.0, matrix), (1e3, matrix), (1.0, np.zeros((0, 30)))):
        s = estimate_of(model, data, noise)
        q = model.m_step(s, start)
        assert np.isfinite(q.lambda_vk).all()
        assert (q.lambda_vk >= model.topic_word_prior).all()
        assert np.array_equal(q.lambda_vk, model.m_step(s, start).lambda_vk)


def test_an_m_step_has_the_same_bits_at_the_part_of_q_that_is_held_meanwhile() -> None:
    """Also after q's own sums; what is read after other phases is all of q."""
    model, compared = LDAModel(3, 30), LDAModel(3, 30, compares=True)
    s = estimate_of(model, corpus(np.random.default_rng(12), n=300), 1.0)
    q = replace(model.init(np.random.default_rng(0)), background_v=np.full(30, 1 / 30))
    q = replace(q, sum_vk=q.lambda_vk, sum_std_v=np.ones(30), gain=0.5, gain_std=0.1, listed=0)
    step = {"counts": model.blocks["counts"]}
    part = m_step_q(model, q, step)
    assert part.lambda_vk.base is part.beta_vk.base is part.sum_vk is None
    assert part.lambda_vk.size == part.beta_vk.size == 0
    by_q, by_part = (vars(model._summed(s, one)) for one in (q, part))
    assert {name: _bits(value) for name, value in by_q.items()} == {n: _bits(value) for n, value in by_part.items()}
    assert m_step_q(model, q, {**step, "gain": compared.blocks["gain"]}) is q


def test_denoised_topics_are_closer_to_the_truth_than_clamped_ones() -> None:
    """Squared error of the noisy topics, against clamping, on a corpus with a few strong words."""
    matrix = corpus(np.random.default_rng(13), n=300, terms=200, length=100)
    model = plain(10, 200, document_length=100.0, clip_scale=0.1)
    truth, s = estimate_of(model, matrix, 0.0).noisy("counts"), estimate_of(model, matrix, 3.0)
    q = model.m_step(s, model.init(np.random.default_rng(0)))
    denoised, clamped = q.lambda_vk - model.topic_word_prior, np.maximum(s.noisy("counts"), 0.0)
    assert ((denoised - truth) ** 2).sum() < 0.8 * ((clamped - truth) ** 2).sum()


@each(
    "fields",
    [
        {"n_components": 0},
        {"n_components": 2.5},
        {"n_terms": 0},
        {"clip_scale": 0.0},
        {"clip_scale": 1.1},
        {"clip_scale": math.nan},
        {"document_length": 0.0},
        {"document_length": math.inf},
        {"length_rule": "shorten"},
        {"doc_topic_prior": 0.0},
        {"doc_topic_prior": math.nan},
        {"topic_word_prior": 0.0},
        {"count_power": 0.0},
        {"count_power": 1.1},
        {"word_weight_power": 0.3, "release_word_totals": False},
        {"word_weight_power": -0.1},
        {"statistic_weight": 0.0},
        {"tol": -1.0},
        {"max_iter": 0},
    ],
)
def test_bad_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        LDAModel(**{"n_components": 2, "n_terms": 3, **fields})


def test_the_start_is_public_and_repeatable() -> None:
    model = plain(3, 7)
    one, same, other = (model.init(np.random.default_rng(seed)).lambda_vk for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert one.shape == (7, 3)
    assert abs(model.init(np.random.default_rng(0)).lambda_vk.mean() - 1) < 0.1


@pytest.mark.parametrize("options", [{}, {"release_word_totals": False, "word_weight_power": 0.0}])
def test_the_part_of_q_that_documents_meet_gives_the_same_bits(options: Any) -> None:
    """At the start, at topics that were released, and at one topic; for every block, the part of a part included."""
    model = LDAModel(3, 30, compares=True, **options)
    matrix = corpus(np.random.default_rng(3))
    q = model.init(np.random.default_rng(0))
    after = replace(
        q,
        background_v=np.full(30, 1 / 30) if model.release_word_totals else None,
        sum_vk=q.lambda_vk,
        sum_std_v=np.ones(30),
        words_v=np.ones(30),
    )
    for full in (q, after, replace(after, is_one=True)):
        for names in (("words", "counts"), ("words",), ("gain",)):
            blocks = {name: model.blocks.get(name, Block((30,), 1.0)) for name in names}
            part = model.e_step_q(full, blocks)
            assert [*map(_bits, vars(model.e_step_q(part, blocks)).values())] == [*map(_bits, vars(part).values())]
            answers = [model.e_step(one, rows(matrix), blocks) for one in (full, part)]
            for name in answers[0]:
                assert [*map(_bits, vars(answers[0][name]).values())] == [*map(_bits, vars(answers[1][name]).values())]


def _bits(value: Any) -> Any:
    return value if value is None else (np.asarray(value).dtype, np.shape(value), np.asarray(value).tobytes())


def test_workers_are_told_no_more_than_five_bytes_of_each_entry() -> None:
    model = LDAModel(50, 2_000, compares=True)
    q = model.init(np.random.default_rng(0))
    q = replace(q, sum_vk=q.lambda_vk, sum_std_v=np.ones(2_000), background_v=np.full(2_000, 1 / 2_000))
    for name in ("counts", "gain"):
        release = Release({name: model.blocks[name]}, Mechanism(FullBatch(), 1.0))
        assert len(pickle.dumps(loop.query(model, q, release))) <= 5 * 2_000 * 50
