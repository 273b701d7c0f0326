"""Reading nonnegative numbers from noise: posterior means against integrals, and priors found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpvb.kernels import mixtures
from dpvb.models import empirical_bayes as eb


def noisy_matrix(seed: int, terms: int = 400, topics: int = 8, sd: float = 5.0) -> tuple[np.ndarray, ...]:
    """Truth of rank-one mean times skewed ratios (most entries far below it, few far above), and its noisy copy."""
    rng = np.random.default_rng(seed)
    background = rng.dirichlet(np.full(terms, 0.5))
    ratio = rng.choice([0.0, 0.1, 1.0, 8.0], (terms, topics), p=[0.5, 0.3, 0.1, 0.1])
    truth = 20_000 * background[:, None] * ratio
    return truth, truth + sd * rng.standard_normal(truth.shape), background


def read(x: np.ndarray, sd_v: np.ndarray, background: np.ndarray | None) -> np.ndarray:
    """Posterior means around a background and the column sums, or around the sums alone."""
    if background is None:
        return eb.estimated_prior(x, sd_v)
    size_k = np.maximum(x.sum(axis=0), np.linalg.norm(sd_v))
    return eb.around(x, sd_v, np.outer(background, size_k))


def test_the_mixture_posterior_is_its_integral() -> None:
    """Fixed weights: the mean of Σ π_i N(m r_i, τ_i²) given x, by numerical integration over the line."""
    ratios, widths = np.array([0.2, 1.0, 5.0]), np.array([0.2, 0.05, 0.3])
    weights = np.array([[0.2, 0.2, 0.6], [0.5, 0.3, 0.2]])
    u, w, bins = np.array([-3.0, 0.25, 8.0, 20 / 3]), np.array([2.0, 0.5, 6.0, 4 / 3]), np.array([1, 1, 0, 1])
    got = np.empty(4)
    mixtures.posterior_means(u, w, bins, weights, ratios, widths, np.empty(3), got)
    grid = np.linspace(-80, 120, 400_001)
    for n in range(4):
        tau = widths * w[n] * ratios
        prior = (weights[bins[n]] / tau * np.exp(-0.5 * ((grid[:, None] - w[n] * ratios) / tau) ** 2)).sum(axis=1)
        posterior = prior * np.exp(-0.5 * (grid - u[n]) ** 2)
        assert got[n] == pytest.approx((grid * posterior).sum() / posterior.sum(), rel=1e-6)


def known(ratios: Any, rounds: int) -> eb._Family:
    return eb._Family.free(np.asarray(ratios), rounds)


def likelihood_of(u: np.ndarray, w: float, family: eb._Family) -> np.ndarray:
    out = np.empty((u.size, len(family.ratios_g)))
    mixtures.likelihoods(u, np.full(u.size, w), family.ratios_g, family.width_g, out)
    return out


def test_em_finds_a_known_prior_again() -> None:
    """40,000 entries of a two-point prior, all in one bin: the mass near each point within 3 %."""
    rng = np.random.default_rng(1)
    family = known([0.0, 0.3, 1.0, 3.0, 9.0], rounds=200)
    truth = rng.choice([0.3, 9.0], 40_000, p=[0.8, 0.2])
    u = 5 * truth * (1 + eb._WIDTH * rng.standard_normal(40_000)) + rng.standard_normal(40_000)
    likelihood_ng = likelihood_of(u, 5.0, family)
    weights_bg = eb._weights(lambda entries: likelihood_ng[entries], np.full(40_000, 5), family)
    np.testing.assert_allclose(weights_bg[:, [1, 4]], np.tile([0.8, 0.2], (len(eb._EDGES) + 1, 1)), atol=0.03)
    assert weights_bg[:, [0, 2, 3]].sum(axis=1).max() < 0.03
    np.testing.assert_allclose(weights_bg.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("family", [eb._FREE, eb._TOTALS], ids=["matrix", "totals"])
def test_each_round_of_em_raises_the_likelihood(family: eb._Family) -> None:
    _truth, x, _ = noisy_matrix(2)
    likelihood_nc = likelihood_of(x.ravel() / 5.0, 10.0, family) @ family.members_cg.T
    start = np.full(likelihood_nc.shape[1], 1 / likelihood_nc.shape[1])
    values = [
        np.log(likelihood_nc @ eb._fitted(likelihood_nc, start, 0.0, rounds=rounds)).sum() for rounds in (1, 2, 5, 20)
    ]
    assert np.diff(values).min() > -1e-6 * abs(values[0])


#: Means over noise, and truths of them: as the mean, far from it, and near it.
TRUTHS: dict[str, Any] = {
    "as the mean": lambda m_n, rng: m_n,
    "skewed": lambda m_n, rng: m_n * rng.gamma(0.3, 1 / 0.3, m_n.shape),
    "within 10 %": lambda m_n, rng: m_n * (1 + 0.1 * rng.standard_normal(m_n.shape)),
}


def mean_one_likelihoods(truth: str, scale: float, entries: int = 3_000) -> np.ndarray:
    """Likelihoods of entries under the members of the mean-one family, (entries, members)."""
    rng, family = np.random.default_rng(5), eb._mean_one()
    w_n = scale * rng.gamma(1.0, 1.0, entries)
    u_n = TRUTHS[truth](w_n, rng) + rng.standard_normal(entries)
    out_ng = np.empty((entries, len(family.ratios_g)))
    mixtures.likelihoods(u_n, w_n, family.ratios_g, family.width_g, out_ng)
    return np.asarray(out_ng @ family.members_cg.T)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("held", [0.0, 300.0])
def test_mean_one_weights_maximise_the_marginal_likelihood(truth: str, scale: float, held: float) -> None:
    """Not behind 5,000 rounds of EM by 1e-6 an entry; and the gap to the optimum by duality is below 1e-6 an entry.

    For the concave mean of logs, the optimum is at most log max_c mean_n L_nc/(Lπ)_n above the value at π.
    """
    likelihood_nc = mean_one_likelihoods(truth, scale)
    start_c = np.full(likelihood_nc.shape[1], 1 / likelihood_nc.shape[1])
    weight_n = np.concatenate([np.ones(len(likelihood_nc)), held * start_c])
    rows_nc = np.concatenate([likelihood_nc, np.eye(len(start_c))])[weight_n > 0]
    weight_n = weight_n[weight_n > 0] / weight_n.sum()

    def value(pi_c: np.ndarray) -> float:
        return float(weight_n @ np.log(rows_nc @ pi_c))

    found_c = eb._fitted(likelihood_nc, start_c, held, rounds=0)
    assert value(found_c) >= value(eb._fitted(likelihood_nc, start_c, held, rounds=5_000)) - 1e-6
    assert np.log(((weight_n / (rows_nc @ found_c)) @ rows_nc).max()) < 1e-6


def test_what_is_exactly_the_mean_gets_the_point() -> None:
    """x = m: the point's weight is above 0.9, and the means come back."""
    mean = 10.0 * np.random.default_rng(6).gamma(1.0, 1.0, (500, 4))
    family = eb._mean_one()
    likelihood_ng = np.empty((2_000, len(family.ratios_g)))
    mixtures.likelihoods(mean.ravel(), mean.ravel(), family.ratios_g, family.width_g, likelihood_ng)
    weights_c = eb._most_likely(likelihood_ng @ family.members_cg.T, np.ones(2_000))
    assert weights_c[-1] > 0.9
    assert family.width_g[-1] == 0.0
    np.testing.assert_allclose(eb.around(mean, np.ones(500), mean), mean, rtol=1e-3)


def test_evidence_is_the_log_of_the_integrated_likelihood() -> None:
    """Against densities by numerical integration, at the weights that are found; and it prefers the true means."""
    rng, family = np.random.default_rng(7), eb._mean_one()
    mean_v, sd_v = 30.0 * rng.gamma(0.5, 2.0, 300) + 1.0, rng.uniform(5.0, 20.0, 300)
    x_v = mean_v * rng.gamma(3.0, 1 / 3, 300) + sd_v * rng.standard_normal(300)
    center_ng = mean_v[:, None] * family.ratios_g
    std_ng = np.hypot(sd_v[:, None], center_ng * family.width_g)
    density_ng = np.exp(-0.5 * ((x_v[:, None] - center_ng) / std_ng) ** 2) / (np.sqrt(2 * np.pi) * std_ng)
    density_nc = density_ng @ family.members_cg.T
    expected = np.log(density_nc @ eb._most_likely(density_nc, np.ones(300))).sum()
    assert eb.evidence(x_v, sd_v, mean_v) == pytest.approx(expected, abs=1e-3)
    assert eb.evidence(x_v, sd_v, mean_v) > eb.evidence(x_v, sd_v, np.roll(mean_v, 1)) + 10


def test_evidence_is_finite_for_entries_far_from_all_means() -> None:
    x_v = np.array([-1e9, 0.0, 1e9, 1e-9])
    for mean in (1e-12, 1.0, 1e12):
        assert np.isfinite(eb.evidence(x_v, np.ones(4), np.full(4, mean)))


def test_the_members_of_the_usual_family_are_distributions_of_mean_one() -> None:
    family = eb._mean_one()
    assert (family.members_cg >= 0).all()
    np.testing.assert_allclose(family.members_cg.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(family.members_cg @ family.ratios_g, 1.0, rtol=1e-9)


def test_what_was_hardly_measured_is_read_as_its_prior_mean() -> None:
    """m/sd = 10⁻³: on average, and nearly each by itself, in pure noise and beside entries that were measured well."""
    rng = np.random.default_rng(9)
    mean = np.full((4000, 10), 1e-3)
    mean[:500] = 20.0
    truth = np.where(mean > 1, mean * rng.gamma(0.1, 10.0, mean.shape), mean)
    for x in (rng.standard_normal(mean.shape), truth + rng.standard_normal(mean.shape)):
        ratio = eb.around(x, np.ones(4000), mean)[500:] / 1e-3
        assert ratio.mean() == pytest.approx(1.0, abs=0.02)
        assert np.quantile(np.abs(ratio - 1.0), 0.9) < 0.2


@pytest.mark.parametrize("free", [False, True])
def test_single_precision_reads_what_double_precision_reads(free: bool) -> None:
    _truth, x, background = noisy_matrix(10)
    mean, sd = np.outer(background, np.full(8, 2500.0)), np.full(x.shape, 5.0)
    family = eb._FREE if free else eb._mean_one()
    single, double = (eb._shrunk(x, mean, sd, family, precision) for precision in (np.float32, np.float64))
    np.testing.assert_allclose(single, double, rtol=3e-3, atol=3e-3)
    assert np.abs(single - double).sum() < 1e-4 * double.sum()


@pytest.mark.parametrize("sd", [2.0, 10.0, 40.0])
def test_estimated_prior_is_closer_to_the_truth_than_clamping(sd: float) -> None:
    """Squared error on a skewed truth."""
    truth, x, background = noisy_matrix(3, sd=sd)
    sd_v = np.full(len(x), sd)
    denoised, clamped = read(x, sd_v, background), np.maximum(x, 0.0)
    assert ((denoised - truth) ** 2).sum() < 0.8 * ((clamped - truth) ** 2).sum()


@pytest.mark.parametrize("known_background", [True, False])
def test_reads_are_nonnegative_and_finite_on_anything(known_background: bool) -> None:
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((30, 4))
    background = np.full(30, 1 / 30) if known_background else None
    cases: list[tuple[np.ndarray, float]] = [
        (np.zeros((30, 4)), 1.0),
        (-1e6 * np.ones((30, 4)), 1.0),
        (1e12 * np.ones((30, 4)), 1e-3),
        (noise, 1e9),
        (1e9 * noise, 1.0),
        (1e-9 * noise, 1e-9),
        (np.where(np.arange(120).reshape(30, 4) == 7, 1e15, 0.0), 1.0),
    ]
    for x, sd in cases:
        found = read(x.copy(), np.full(30, sd), background)
        assert found.shape == x.shape
        assert np.isfinite(found).all()
        assert (found >= 0).all()


def test_a_read_changes_nothing_where_there_is_hardly_noise() -> None:
    truth, _, background = noisy_matrix(5)
    found = read(truth, np.full(len(truth), 1e-6), background)
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-4)


def test_units_do_not_matter() -> None:
    _, x, background = noisy_matrix(6, terms=60)
    sd_v = np.full(60, 5.0)
    scaled = read(1024.0 * x, 1024.0 * sd_v, background)
    np.testing.assert_allclose(scaled, 1024.0 * read(x, sd_v, background), rtol=1e-6, atol=1e-6)


def test_the_background_is_a_positive_distribution() -> None:
    rng = np.random.default_rng(7)
    totals: list[tuple[Any, float]] = [
        (rng.pareto(1.0, 500) * 100, 0.0),
        (rng.pareto(1.0, 500) * 100, 50.0),
        (np.zeros(500), 1.0),
        (-rng.random(500) * 1e6, 1.0),
        (np.zeros(500), 0.0),
        (rng.standard_normal(500), 1e9),
    ]
    for total, sd in totals:
        p = eb.background(total + sd * rng.standard_normal(500), sd)
        assert (p > 0).all()
        assert p.sum() == pytest.approx(1.0, rel=1e-12)
    exact = totals[0][0]
    np.testing.assert_allclose(eb.background(exact, 0.0), exact / exact.sum(), rtol=0.01, atol=1e-6)


def test_the_background_is_nearer_to_the_truth_than_clamped_totals() -> None:
    rng = np.random.default_rng(8)
    truth = rng.pareto(0.9, 3000) * 100
    noisy = truth + 200.0 * rng.standard_normal(3000)
    clamped = np.maximum(noisy, 0.0)
    p = truth / truth.sum()
    error = np.abs(eb.background(noisy, 200.0) - p).sum()
    assert error < 0.85 * np.abs(clamped / clamped.sum() - p).sum()


def test_likelihoods_far_below_the_best_overflow_nothing() -> None:
    """An entry of little weight whose member has no weight in a Newton step: the square of 1e300 is no float."""
    likelihood_nc, weight_n = np.array([[1.0, 1e-300], [1e-300, 1.0]]), np.array([1.0, 1e-20])
    np.testing.assert_allclose(eb._most_likely(likelihood_nc, weight_n), [1.0, 0.0], atol=1e-9)
