"""One noiseless, un-clipped full-batch step against an independent float64 step; bounds against scikit-learn."""

import os
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.special import digamma, gammaln
from sklearn.decomposition import LatentDirichletAllocation

from benchmarks.float64 import Float64Topics
from dpvb.core import loop
from dpvb.core.model import constant
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import as_source
from dpvb.models.topics.lda import LDAModel

NUM_TOPICS, ROWS, TOLERANCE = 50, 200, 1e-8
#: Ordinary variational Bayes: the plain statistic, never clipped, no document cut.
PLAIN = {
    "clip_scale": 1.0,
    "length": 1e4,
    "count_power": 1.0,
    "release_word_totals": False,
    "word_weight_power": 0.0,
    "statistic_weight": 1.0,
}


def documents() -> sparse.csr_array:
    """Rows of the Wikipedia corpus, or of the sample that ships with the package."""
    folder = os.environ.get("DPVB_DATA")
    if folder:
        return sparse.csr_array(sparse.load_npz(Path(folder) / "wikipedia" / "bow.npz"))[:ROWS].astype(float)
    from dpvb.sample import load_sample

    return sparse.csr_array(load_sample().documents)[:ROWS].astype(float)


def independent_step(counts, lambda_vk: np.ndarray, alpha: float, eta: float) -> np.ndarray:
    """Plain E- and M-step, written from the model's equations with an explicit φ."""
    beta_vk = np.exp(digamma(lambda_vk) - digamma(lambda_vk.sum(axis=0)))
    result = np.full_like(lambda_vk, eta)
    for n in range(counts.shape[0]):
        row = counts[[n]].tocoo()
        words, c_j = row.coords[1], row.data
        gamma = np.ones(lambda_vk.shape[1])
        while True:
            phi = beta_vk[words] * np.exp(digamma(gamma) - digamma(gamma.sum()))
            phi /= phi.sum(axis=1, keepdims=True)
            updated = alpha + c_j @ phi
            change, gamma = np.abs(updated - gamma).mean(), updated
            if change < TOLERANCE:
                break
        phi = beta_vk[words] * np.exp(digamma(gamma) - digamma(gamma.sum()))
        phi /= phi.sum(axis=1, keepdims=True)
        result[words] += c_j[:, None] * phi
    return result


def library_step(counts, model: LDAModel, q):
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))])

    class Started(type(model)):
        def init(self, rng):
            return q

    started = Started(**{name: getattr(model, name) for name in model.__dataclass_fields__})
    return loop.fit(started, Wall(as_source(counts), plan), plan, rho=constant(1.0), rng=None)[0]


def main() -> None:
    counts = documents()
    print("## Exactness\n")
    print(f"{ROWS} Wikipedia documents, K = {NUM_TOPICS}, E-step tolerance {TOLERANCE:g}, no noise, no clipping.\n")
    print("| topics | relative L1 distance of λ - η to an independent float64 step | target |\n|---|---|---|")
    for name, kind, target in (("float64", Float64Topics, 1e-6), ("float32", LDAModel, 1e-5)):
        model = kind(NUM_TOPICS, counts.shape[1], tol=TOLERANCE, max_iter=20_000, **PLAIN)
        q = model.init(np.random.default_rng(0))
        expected = independent_step(counts, q.lambda_vk, model.alpha, model.topic_word_prior) - model.topic_word_prior
        found = library_step(counts, model, q).lambda_vk - model.topic_word_prior
        distance = np.abs(found - expected).sum() / np.abs(expected).sum()
        print(f"| {name} | {distance:.2e} | {target:g} |")
        assert distance < target, distance
    model = Float64Topics(NUM_TOPICS, counts.shape[1])
    q = model.init(np.random.default_rng(1))
    for _ in range(5):
        q = library_step(
            counts,
            LDAModel(NUM_TOPICS, counts.shape[1], **PLAIN),
            q,
        )
    ours = np.exp(-sum(model.bound(q, c.rows).sum() for c in as_source(counts).chunks()) / counts.sum())
    peer = LatentDirichletAllocation(NUM_TOPICS, doc_topic_prior=model.alpha, topic_word_prior=model.topic_word_prior)
    peer._init_latent_vars(counts.shape[1])
    peer.components_ = q.lambda_vk.T
    elog = digamma(peer.components_) - digamma(peer.components_.sum(axis=1, keepdims=True))
    peer.exp_dirichlet_component_ = np.exp(elog)
    eta, lam = model.topic_word_prior, peer.components_
    topics = ((eta - lam) * elog).sum() + (gammaln(lam) - gammaln(eta)).sum()
    topics += (gammaln(eta * lam.shape[1]) - gammaln(lam.sum(axis=1))).sum()
    gamma = peer._unnormalized_transform(counts.tocsr())
    theirs = np.exp(-(peer._approx_bound(counts.tocsr(), gamma, False) - topics) / counts.sum())
    print(f"\nPerplexity bound on the same topics: {ours:.2f}, scikit-learn's without its topics' term {theirs:.2f} "
          f"({100 * (ours / theirs - 1):+.3f} %, target 1 %).")  # fmt: skip
    assert abs(ours / theirs - 1) < 0.01


if __name__ == "__main__":
    main()
