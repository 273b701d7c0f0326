"""The posterior of a linear dynamical system given noisy second moments of windows; all of it is public.

Moments S_b of n_b windows were released with noise of std σ_b. Given a system θ their mean is n_b M_b(θ), and in the
eigenbasis of a window's covariance, with eigenvalues λ, the entry (e, f) varies by the sampling of people and by noise:

    q(θ) ≈ N(θ̂, V),   θ̂ = argmin Σ_b Σ_ef (S_b - n_b M_b(θ))²_ef / ((2 n_b + δ² n_b²) λ_e λ_f + σ_b²) + |θ - θ_0|²_P

Without noise this is the likelihood of Gaussian windows to second order (Fisher's scoring); with much noise every entry
counts alike.

=========  =====================================================================================
method     code
=========  =====================================================================================
θ, n_b     a vector, see `system_vector`, and behind it log n_b of every block
J          `linear`: derivatives of the moments, in the eigenbasis, over the deviations; see `gram_weights`
H          J Jᵀ + P, and a turn of the states held
V          H⁻¹ (noise + people + P) H⁻¹: what the released moments vary by, and what the prior does
=========  =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import kalman, system_vector
from dpvb.models.sequences.drawn_windows import DrawnWindows
from dpvb.models.sequences.gram_prior import Prior, growth, turns
from dpvb.models.sequences.gram_weights import Moments, Shape, Weights, expected, law, linear, log_number, ways
from dpvb.models.sequences.kalman import LinearSystem

# Times that weights are set, and steps of Gauss and Newton for each; a gain of χ² below which they end.
_ROUNDS, _STEPS, _GAIN = 4, 12, 1e-3
# Damping at the start, what changes it, and how often it grows in one step.
_DAMPING, _MORE, _LESS, _TRIES = 1e-3, 10.0, 0.04, 10
# The clip is taken to leave a person at least so much less than all.
_MOST_TAKEN = 0.95


class Posterior(NamedTuple):
    """θ̂, how the moments decide it, and its precision.

    Attributes:
        vector_p: the system.
        number_b: n_b.
        inverse_pp: H⁻¹ of the system and log n_b.
        prior_p: P.
        score_bpe: matrices whose products with the moments of each block make θ̂ move by H⁻¹, (B, P, (E + 1)²).
    """

    vector_p: Floats
    number_b: Floats
    inverse_pp: Floats
    prior_p: Floats
    score_bpe: list[Floats]

    def system(self, shape: Shape) -> LinearSystem:
        """The system of θ̂."""
        return shape.system(self.vector_p)

    def shown(self, blocks: Sequence[Moments], shape: Shape) -> Floats:
        """Expected moments of all blocks, over the deviations of noise and of people."""
        made = []
        for b, block in enumerate(blocks):
            mean_f, cov_ff = law(block, self.vector_p, shape)
            number = float(self.number_b[b])
            size_f = np.diagonal(cov_ff)
            std_ff = np.sqrt(2 * number * np.outer(size_f, size_f) + block.std**2 + 1e-300)
            made.append((number * (cov_ff + np.outer(mean_f, mean_f)) / std_ff).ravel())
        return np.concatenate(made)

    def drawn(self, covariance_pp: Floats, shape: Shape, number: int, rng: np.random.Generator) -> Floats:
        """So many systems from N(θ̂, V), (number, P); no mode of theirs grows, unless one of θ̂ does."""
        value_p, vector_pp = np.linalg.eigh(covariance_pp)
        root_pp = vector_pp * np.sqrt(np.maximum(value_p, 0.0))
        made_sp = self.vector_p + rng.standard_normal((number, len(value_p))) @ root_pp.T
        own = shape.parts["step_kk"]
        own_s, every_skk = _radius(self.vector_p[own].reshape(1, shape.k, -1)), made_sp[:, own]
        grown_s = _radius(every_skk.reshape(number, shape.k, -1)) / np.maximum(own_s, 1.0)
        made_sp[:, own] /= np.maximum(grown_s, 1.0)[:, None]
        return np.asarray(made_sp)

    def covariance(self, blocks: Sequence[Moments], people: DrawnWindows, shape: Shape) -> Floats:
        """V, of the system alone: as θ̂ moves, so does what the clip takes; what is not agreed on counts in.

        Args:
            blocks: as they were given.
            people: drawn from θ̂.
            shape: sizes.
        """
        x_p, precision_pp = np.append(self.vector_p, np.log(self.number_b)), np.linalg.inv(self.inverse_pp)
        middle_pp = people.covariance(self.score_bpe, float(self.number_b[0])) + np.diag(self.prior_p)
        apart_p = np.zeros(len(x_p))
        for b, (one, score_pe) in enumerate(zip(blocks, self.score_bpe, strict=True)):
            middle_pp += one.std**2 * score_pe @ score_pe.T
            slope_pe = people.slopes(b, ways(one, x_p, shape))
            precision_pp = precision_pp + float(self.number_b[b]) * score_pe @ slope_pe.T
            apart_p += float(self.number_b[b]) * score_pe @ (people.taken_be[b] - np.ravel(one.taken))
        middle_pp += np.outer(apart_p, apart_p)
        back_pp, size = np.linalg.inv(precision_pp), len(self.vector_p)
        return np.asarray((back_pp @ middle_pp @ back_pp.T)[:size, :size])


def fit(blocks: Sequence[Moments], shape: Shape, system: LinearSystem, rounds: int = _ROUNDS) -> Posterior:
    """The posterior, from a system near it.

    Args:
        blocks: released moments, of "pooled" windows first.
        shape: sizes.
        system: where to start.
        rounds: times that weights are set.
    """
    vector_p = system_vector.packed(kalman.in_order(system), starts=shape.starts)
    of_one = shape.unit_e[-1] ** -2
    kept_b = [of_one + max(float(np.ravel(one.taken)[-1]), -_MOST_TAKEN * of_one) for one in blocks]
    number_b = [max(one.gram[-1, -1], one.std, 1e-9) / kept for one, kept in zip(blocks, kept_b, strict=True)]
    x_p = np.append(vector_p, np.log(number_b))
    prior = Prior.of(x_p, shape)
    for _ in range(rounds):
        weights = [Weights.at(one, x_p, b, shape) for b, one in enumerate(blocks)]
        x_p, precision_pp, score_bpe = _descended(blocks, weights, prior, x_p, shape)
        inverse_pp = np.asarray(np.linalg.inv(precision_pp + turns(x_p, shape, precision_pp)))
        prior.sees(x_p, inverse_pp, shape)
    size = len(vector_p)
    return Posterior(x_p[:size], np.exp(x_p[size:]), inverse_pp, prior.precision_p, score_bpe)


def _descended(
    blocks: Sequence[Moments], weights: list[Weights], prior: Prior, x_p: Floats, shape: Shape
) -> tuple[Floats, Floats, list[Floats]]:
    """The best system that damped steps of Gauss and Newton find, its precision, and the scores' matrices."""
    damping, lost = _DAMPING, _lost(blocks, weights, prior, x_p, shape)
    for step in range(_STEPS + 1):
        precision_pp, ascent_p = np.diag(prior.precision_p), -prior.precision_p * (x_p - prior.mean_p)
        grown, slope_p = growth(x_p, shape)
        precision_pp, ascent_p = precision_pp + np.outer(slope_p, slope_p), ascent_p - grown * slope_p
        score_bpe = []
        for b, (block, own) in enumerate(zip(blocks, weights, strict=True)):
            slope_pee, left_ee = linear(block, own, x_p, b, shape)
            flat_pe = slope_pee.reshape(len(x_p), -1)
            precision_pp = precision_pp + flat_pe @ flat_pe.T
            ascent_p = ascent_p + flat_pe @ left_ee.ravel()
            made_pee = own.basis_ee @ (slope_pee * own.weight_ee) @ own.basis_ee.T
            score_bpe.append(made_pee.reshape(len(x_p), -1))
        if step == _STEPS:
            break
        before = lost
        for _ in range(_TRIES):
            damped_pp = precision_pp + damping * np.diag(np.diagonal(precision_pp) + 1e-12)
            new_p = x_p + np.linalg.solve(damped_pp, ascent_p)
            lost = _lost(blocks, weights, prior, new_p, shape)
            if lost < before:
                x_p, damping = new_p, damping * _LESS
                break
            damping *= _MORE
        if not lost < before - _GAIN:
            break
    return x_p, precision_pp, score_bpe


def _lost(blocks: Sequence[Moments], weights: list[Weights], prior: Prior, x_p: Floats, shape: Shape) -> float:
    """χ² of the moments and of the prior; no number is infinite."""
    with np.errstate(all="ignore"):
        lost = float(prior.precision_p @ (x_p - prior.mean_p) ** 2) + growth(x_p, shape)[0] ** 2
        for b, (block, own) in enumerate(zip(blocks, weights, strict=True)):
            expected_ee = expected(*law(block, x_p, shape), shape) + block.taken
            left_ee = own.of(block.gram - np.exp(log_number(x_p, b, shape)) * expected_ee)
            lost += float(np.sum(left_ee**2))
    return lost if math.isfinite(lost) else math.inf


def _radius(step_skk: Floats) -> Floats:
    """Size of the largest mode of each."""
    return np.asarray(np.abs(np.linalg.eigvals(step_skk)).max(axis=1))
