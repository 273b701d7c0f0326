"""Sigmoid belief network: derivatives against differences, rising bounds, evidence, and the estimator's contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import expit

import dpvb
from benchmarks.float64 import Float64Network
from dpvb.core.blocks import Grid
from dpvb.errors import DataFormatError, ParameterError, PrivacyError
from dpvb.models.belief_network import kernel as kernel
from dpvb.models.belief_network.beta_normal import WeightScales
from dpvb.models.belief_network.sbn import SBN, Network

K, J = 4, 18


def drawn(seed: int, n: int = 300, hidden: int = K, visible: int = J, scale: float = 3.0) -> np.ndarray:
    """Vectors from a random network."""
    rng = np.random.default_rng(seed)
    w_kj = scale * rng.normal(size=(hidden, visible))
    z_nk = rng.random((n, hidden)) < 0.4
    return (rng.random((n, visible)) < expit(z_nk @ w_kj - 1.0)).astype(float)


def first_order(seed: int, hidden: int = K, visible: int = J) -> Network:
    """A network away from the start."""
    rng = np.random.default_rng(seed)
    w_kj = rng.normal(size=(hidden, visible))
    mean_k = rng.uniform(0.2, 0.8, hidden)
    return Network(w_kj, rng.normal(size=visible), mean_k, 100.0, WeightScales.start(hidden, visible))


def summed(contribution: Any, n: int, shape: tuple[int, ...], step: float = 2.0**-40) -> np.ndarray:
    """What the wall would add up without clipping, at norms of at most 4."""
    out = np.zeros(shape, np.int64)
    contribution.accumulate(np.ones(n), Grid(step, 4.0), out)
    return out * step


@pytest.mark.parametrize("block", ["gradient", "bias"])
def test_released_derivatives_are_those_of_the_bound(block: str) -> None:
    """Central differences in W and c of the examples' bounds at fixed q(z) and ξ, W about the mean hidden units."""
    model, q, y_nj = Float64Network(K, J), first_order(1), drawn(2, 25)
    pi_nk, _, _ = model.local(q, y_nj, model.n_sweeps)
    _, at_nj = kernel.second_moments(q.w_kj, q.c_j, pi_nk)

    def bound(w_kj: np.ndarray, level_j: np.ndarray) -> float:
        moved = replace(q, w_kj=w_kj, level_j=level_j)
        psi_nj, second_nj = kernel.second_moments(w_kj, moved.c_j, pi_nk)
        held = 0.5 * float((kernel.xi_of(at_nj) * (second_nj - at_nj)).sum())
        return float(kernel.example_bound(y_nj, pi_nk, psi_nj, at_nj, q.b_k).sum()) - held

    found = summed(model.e_step(q, y_nj, model.blocks)[block], 25, (K, J) if block == "gradient" else (J,))
    for place in [(0, 0), (2, 5), (3, 17)] if block == "gradient" else [(0,), (9,)]:
        step = np.zeros(found.shape)
        step[place] = 1e-5
        w_step, c_step = (step, 0.0) if block == "gradient" else (0.0, step)
        slope = bound(q.w_kj + w_step, q.level_j + c_step) - bound(q.w_kj - w_step, q.level_j - c_step)
        assert found[place] == pytest.approx(slope / 2e-5, abs=1e-5)


def test_the_norm_of_a_gradient_is_that_of_the_printed_algebra() -> None:
    """‖r‖²‖p‖² - 2 Σ p a (r∘ξ)ᵀW + Σ a² (ξ∘ξ)ᵀ(W∘W)."""
    model, q, y_nj = SBN(K, J), first_order(3), drawn(4, 40)
    score = model.e_step(q, y_nj.astype(np.float32), model.blocks)["gradient"]
    r, xi, p, a, w = (part.astype(float) for part in (score.r_nj, score.xi_nj, score.p_nk, score.a_nk, score.w_kj))
    square_n = (r**2).sum(1) * (p**2).sum(1) - 2 * (p * a * ((r * xi) @ w.T)).sum(1)
    square_n += (a**2 * (xi**2 @ (w**2).T)).sum(1)
    np.testing.assert_allclose(score.norms(), np.sqrt(square_n), rtol=1e-5)


def test_scales_rise_to_a_bound_on_the_evidence_of_a_weight() -> None:
    """K = J = 1: p(ζ) = log ζ / (π² √ζ (ζ - 1)), so p(w) is one integral."""
    for w in (0.05, 1.0, 8.0):
        square = np.array([[w * w]])
        scales, bounds = WeightScales.start(1, 1), []
        for _ in range(60):
            scales = scales.update(square)
            bounds.append(scales.bound(square))
        assert (np.diff(bounds) > -1e-12).all()

        def density(zeta: mpmath.mpf, w: float = w) -> mpmath.mpf:
            ratio = mpmath.log(zeta) / (zeta - 1) if abs(zeta - 1) > 1e-9 else mpmath.mpf(1)
            return ratio / (mpmath.pi**2 * mpmath.sqrt(zeta)) * mpmath.npdf(w, 0, mpmath.sqrt(zeta))

        evidence = float(mpmath.log(mpmath.quad(density, [0, w * w / 10, w * w, 1.001, 10, 1000, mpmath.inf])))
        assert evidence - 3 < bounds[-1] < evidence


def test_without_noise_a_network_predicts_better_than_independent_columns() -> None:
    y_nj, held_out = np.split(drawn(11, 900), [600])
    model = dpvb.SigmoidBeliefNetwork(K, epsilon=np.inf, delta=1e-5, n_steps=40, clip_scale=5.0, random_state=1).fit(
        y_nj
    )
    mean_j = np.clip(y_nj.mean(axis=0), 0.01, 0.99)
    independent = (held_out * np.log(mean_j) + (1 - held_out) * np.log1p(-mean_j)).sum(axis=1).mean()
    assert model.score(held_out, public=True) > independent + 0.5


def fitted(**options: Any) -> Any:
    given = {"epsilon": 5.0, "delta": 1e-5, "n_steps": 3, "random_state": 0, **options}
    return dpvb.SigmoidBeliefNetwork(K, **given).fit(drawn(12, 100))


@pytest.mark.parametrize("n_units", [None, 100])
def test_what_a_fit_gives_survives_its_file(n_units: int | None, tmp_path: Any) -> None:
    model = fitted(n_units=n_units)
    y_nj = drawn(13, 20)
    assert model.components_.shape == (K, J)
    assert model.transform(y_nj).shape == (20, K)
    assert ((model.reconstruct(y_nj) >= 0) & (model.reconstruct(y_nj) <= 1)).all()
    assert set(np.unique(model.sample(50, rng=0))) <= {0, 1}
    assert model.sample(50, rng=0).shape == (50, J)
    assert np.isfinite(model.score(y_nj, public=True))
    assert model.privacy_.epsilon <= 5.0
    assert list(model.get_feature_names_out())[:2] == ["sigmoidbeliefnetwork0", "sigmoidbeliefnetwork1"]
    model.save(tmp_path / "model")
    loaded = dpvb.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.reconstruct(y_nj), model.reconstruct(y_nj))
    assert loaded.score(y_nj, public=True) == model.score(y_nj, public=True)


def test_noise_alone_ends_in_finite_weights() -> None:
    model = dpvb.SigmoidBeliefNetwork(20, epsilon=0.01, delta=1e-5, n_steps=40, random_state=3)
    model.fit(drawn(14, 30))
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.reconstruct(drawn(15, 5))).all()


def test_samples_have_the_networks_means() -> None:
    """Means of 20,000 draws against enumeration; 6 standard errors, a false alarm in 10⁷ (18 means)."""
    model = fitted(epsilon=np.inf, n_steps=10)
    mean_j = np.zeros(J)
    for z in np.ndindex(*[2] * K):
        probability = np.prod(np.where(z, expit(model.hidden_bias_), expit(-model.hidden_bias_)))
        mean_j += probability * expit(np.array(z) @ model.components_ + model.visible_bias_)
    error_j = np.abs(model.sample(20_000, rng=3).mean(axis=0) - mean_j)
    assert (error_j < 6 * np.sqrt(mean_j * (1 - mean_j) / 20_000)).all()


def test_the_number_of_examples_is_released_where_it_is_not_public() -> None:
    model = fitted(epsilon=np.inf)
    assert model._q.count == pytest.approx(100, rel=1e-5)
    assert fitted(n_units=77)._q.count == 77


def test_faulty_rows_count_as_no_rows() -> None:
    y_nj = drawn(14, 60)
    rows = np.vstack([y_nj, np.full((1, J), np.nan), np.full((1, J), 2.0), np.full((1, J), -1.0)])
    one, other = (
        dpvb.SigmoidBeliefNetwork(K, epsilon=np.inf, delta=1e-5, n_steps=4, random_state=2).fit(x) for x in (y_nj, rows)
    )
    np.testing.assert_array_equal(one.components_, other.components_)


def test_constant_columns_one_row_and_none() -> None:
    for rows in (np.zeros((5, J)), np.ones((5, J)), drawn(15, 1), np.zeros((0, J))):
        model = dpvb.SigmoidBeliefNetwork(K, epsilon=1.0, delta=1e-5, n_steps=2).fit(rows)
        assert np.isfinite(model.components_).all()


def test_a_person_with_many_rows_is_one_unit() -> None:
    model = dpvb.SigmoidBeliefNetwork(K, epsilon=1.0, delta=1e-5, n_steps=2)
    assert model.fit(drawn(16, 40), group=np.repeat(np.arange(8), 5)).privacy_.unit == "person"


def test_threshold_makes_numbers_binary() -> None:
    grey = np.random.default_rng(17).integers(0, 256, (50, J))
    options = {"epsilon": np.inf, "delta": 1e-5, "n_steps": 2, "random_state": 0}
    one = dpvb.SigmoidBeliefNetwork(K, threshold=127, **options).fit(grey)
    other = dpvb.SigmoidBeliefNetwork(K, **options).fit(grey > 127)
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.transform(grey), other.transform(grey > 127))


def test_scores_of_private_rows_are_refused() -> None:
    model = fitted()
    for refused in (model.score, model.score_samples):
        with pytest.raises(PrivacyError, match="public=True"):
            refused(drawn(18, 5))


def test_public_faults_are_typed_errors() -> None:
    model = fitted()
    with pytest.raises(DataFormatError, match="expecting 18"):
        model.transform(np.zeros((3, J + 1)))
    for rows in (np.full((3, J), 0.5), np.full((3, J), np.nan)):
        with pytest.raises(DataFormatError, match="other than 0 and 1"):
            model.reconstruct(rows)
    faults = [
        {"n_steps": 0},
        {"clip_scale": 0.0},
        {"n_sweeps": 0},
        {"init_mean": 0.0},
        {"init_std": -1.0},
        {"ridge": -1.0},
        {"n_units": 0},
        {"learning_decay": 2.0},
        {"sampling_prob": 0.5, "batch_size": 3, "n_units": 10},
    ]
    for fault in faults:
        with pytest.raises(ParameterError):
            fitted(**fault)
    with pytest.raises(ParameterError, match="n_components"):
        dpvb.SigmoidBeliefNetwork(0, epsilon=1.0, delta=1e-5).fit(drawn(19, 5))
