"""A fit that becomes one topic midway: interrupted, of persons, from files, on a cluster and in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import dpvb
from dpvb import federated
from dpvb.cluster import LocalPool, spread
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords, open_documents
from dpvb.errors import LostInNoiseWarning
from dpvb.models.topics.lda import LDAModel, Topics

TERMS, TOPICS, MANY = 30, 3, 20


def documents(topics: bool, number: int = 600, seed: int = 0) -> np.ndarray:
    """Documents of topics that share no words, or of words drawn alike."""
    rng = np.random.default_rng(seed)
    share_kv = np.kron(np.eye(TOPICS), np.full(TERMS // TOPICS, TOPICS / TERMS)) + 1e-9
    theta_nk = rng.dirichlet(np.full(TOPICS, 0.1), number) if topics else np.full((number, TOPICS), 1 / TOPICS)
    p_nv = theta_nk @ share_kv
    return np.array([rng.multinomial(60, p_v / p_v.sum()) for p_v in p_nv])


def model(**options: Any) -> dpvb.LDA:
    given = {"epsilon": 8.0, "delta": 1e-6, "public_vocabulary": True, "random_state": 0, "n_steps": MANY}
    return dpvb.LDA(TOPICS, **{**given, **options})


@pytest.mark.parametrize("topics", [False, True])
@pytest.mark.filterwarnings("ignore::dpvb.errors.LostInNoiseWarning")
def test_an_interrupted_fit_goes_on_with_the_same_kind_of_step(
    topics: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Stopped behind the decision, which is made again from the releases on record: each gives the same gain."""
    matrix, gains = documents(topics), list[float]()
    decided = LDAModel._decided

    def watched(self: LDAModel, s: Any, q: Topics) -> Topics:
        new = decided(self, s, q)
        gains.append(new.gain)
        return new

    monkeypatch.setattr(LDAModel, "_decided", watched)

    def stop(number: int, plan: Any) -> None:
        if number == 14:
            raise KeyboardInterrupt

    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("notes", epsilon=8.0, delta=1e-5, unit="document", neighboring_relation="add_or_remove_one")
        how: dict[str, Any] = {"ledger": ledger, "dataset": "notes", "checkpoint": tmp_path / "run"}
        with pytest.raises(KeyboardInterrupt):
            model().fit(matrix, run=dpvb.Run(**how, progress=stop))
        resumed = model().fit(matrix, run=dpvb.Run(**how))
    assert gains == [resumed.gain_] * 2
    assert resumed._q.is_one is not topics
    assert len(resumed.components_) == (TOPICS if topics else 1)


def qs(task: Any, source: Any) -> list[Topics]:
    """Every q of a fit with noise that is the same in each."""
    found, plan = list[Topics](), task.plan
    wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(7))
    loop.fit(
        task.model,
        wall,
        plan,
        rho=task.rho,
        rng=np.random.default_rng(1),
        on_step=lambda t, q: found.append(q),
    )
    return found


@pytest.mark.parametrize("topics", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_cluster_takes_the_same_steps(topics: bool) -> None:
    """Bit for bit, before and behind the decision."""
    matrix = documents(topics, 200)
    task = model()._task(matrix)
    here = qs(task, task.source)
    with LocalPool(2) as cluster, spread(task.source, task.model, cluster) as held:
        there = qs(task, held)
    for one, other in zip(here, there, strict=True):
        assert one.is_one is other.is_one
        np.testing.assert_array_equal(one.lambda_vk, other.lambda_vk)
    assert here[-1].is_one is not topics


def test_streams_and_persons_take_the_same_steps(tmp_path: Path) -> None:
    """Documents in files are those in memory; persons of one document each are those documents."""
    matrix = documents(False, 200)
    np.save(tmp_path / "ignored.npy", matrix)
    sparse.save_npz(tmp_path / "counts.npz", sparse.csr_array(matrix))
    task = model()._task(matrix)
    expected = qs(task, task.source)
    streamed = qs(task, open_documents(tmp_path / "counts.npz"))
    persons = qs(task, BagOfWords(matrix, group=np.arange(len(matrix))))
    for found in (streamed, persons):
        for one, other in zip(expected, found, strict=True):
            assert one.is_one is other.is_one
            np.testing.assert_allclose(one.lambda_vk, other.lambda_vk, rtol=1e-6)


@pytest.mark.parametrize("topics", [False, True])
@pytest.mark.parametrize("trust", ["none", "trusted_server"])
@pytest.mark.filterwarnings("ignore::dpvb.errors.LostInNoiseWarning")
def test_clients_of_a_federation_take_the_kind_of_step_from_q(topics: bool, trust: Any) -> None:
    shards = [documents(topics, 600, seed) for seed in range(3)]
    fitted = federated.simulate(model(), shards, trust=trust, epsilon=8.0, delta=1e-6)
    assert len(fitted.components_) == (TOPICS if topics else 1)
    assert fitted.gain_ is not None
    assert (fitted.gain_ > 0) is topics
    exact = np.sum(shards, axis=(0, 1)) / np.sum(shards)
    share_kv = fitted.components_ / fitted.components_.sum(axis=1, keepdims=True)
    if not topics:
        np.testing.assert_allclose(share_kv[0], exact, atol=0.01)


def test_a_fit_says_in_a_warning_that_it_became_one_topic() -> None:
    with pytest.warns(LostInNoiseWarning, match="At epsilon = 8, .* no better than word frequencies do"):
        model().fit(documents(False))
