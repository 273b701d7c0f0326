"""The posterior of a linear dynamical system given noisy second moments of windows; all of it is public.

Moments S_b of n_b windows were released with noise of std σ_b. Given a system θ their mean is n_b M_b(θ), and in the
eigenbasis of a window's covariance, with eigenvalues λ, the entry (e, f) varies by the sampling of people and by noise:

    q(θ) ≈ N(θ̂, V),   θ̂ = argmin Σ_b Σ_ef (S_b - n_b M_b(θ))²_ef / ((2 n_b + δ² n_b²) λ_e λ_f + σ_b²) + |θ - θ_0|²_P

Without noise this is the likelihood of Gaussian windows to second order (Fisher's scoring); with much noise every entry
counts alike. The columns of C have the precisions γ_k, q(γ_k) Gamma (MacKay 1994): a state that nothing shows is drawn
to nothing.

=========  =====================================================================================
method     code
=========  =====================================================================================
θ, n_b     a vector, see `system_vector`, and behind it log n_b of every block
J          `_Linear.slope_pe`: derivatives of the moments, in the eigenbasis, over the deviations
H          J Jᵀ + P, and a turn of the states held
V          H⁻¹ (noise + people + P) H⁻¹: what the released moments vary by, and what the prior does
=========  =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import kalman, system_vector
from dpvb.models.sequences.gram_moments import law_of_windows
from dpvb.models.sequences.gram_slopes import slopes
from dpvb.models.sequences.kalman import LinearSystem

# Prior: std of every number in units of the columns' and states' deviations; mean and std of log R.
_WIDE, _NOISE, _NOISE_WIDE = 1.0, -2.0, 1.5
# Precision with which log n_b is near what was released, where nothing else says it.
_NUMBER = 1e-2
# What no system follows, as a part of a moment: entries that are known better do not outweigh the others.
_MISFIT = 0.05
# Gamma prior of γ_k, worth so many columns; γ_k is at least so much.
_SHAPE, _LEAST_GAMMA = 0.5, 0.5
# Times that weights are set, and steps of Gauss and Newton for each; a gain of χ² below which they end.
_ROUNDS, _STEPS, _GAIN = 4, 12, 1e-3
# Damping at the start, what changes it, and how often it grows in one step.
_DAMPING, _MORE, _LESS, _TRIES = 1e-3, 10.0, 0.04, 10
# The number of windows is known to so much of itself; a turn of the states is held with so much of all precision.
_KNOWN, _HELD = 1e-4, 1e3
# The clip is taken to leave a person at least so much less than all.
_MOST_TAKEN = 0.95


@dataclass(frozen=True)
class Moments:
    """Released moments in the model's units.

    Attributes:
        first: whose law a window's first state has, "pooled" or "start".
        gram: Σ y yᵀ as it came, (E + 1, E + 1).
        std: noise std of its diagonal.
        taken: what the clip adds to one person's moments on average, of the same shape, mostly negative.
    """

    first: str
    gram: Floats
    std: float
    taken: Floats | float = 0.0


class Shape(NamedTuple):
    """Sizes of a system and of windows.

    Attributes:
        k, d, window, longest: K, D, W and L.
        starts: whether first windows have a law of their own.
        unit_e: what one is of every number of y, (E + 1,), in units of (x - m)/s.
    """

    k: int
    d: int
    window: int
    longest: int
    starts: bool
    unit_e: Floats


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
        return system_vector.unpacked(self.vector_p, shape.k, shape.d, starts=shape.starts)

    def shown(self, blocks: Sequence[Moments], shape: Shape) -> Floats:
        """Expected moments of all blocks, over the deviations of noise and of people."""
        made = []
        for b, block in enumerate(blocks):
            mean_f, cov_ff = _law(block, self.vector_p, shape)
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
        own = dict(system_vector.parts(shape.k, shape.d, starts=shape.starts))["step_kk"]
        own_s, every_skk = _radius(self.vector_p[own].reshape(1, shape.k, -1)), made_sp[:, own]
        grown_s = _radius(every_skk.reshape(number, shape.k, -1)) / np.maximum(own_s, 1.0)
        made_sp[:, own] /= np.maximum(grown_s, 1.0)[:, None]
        return np.asarray(made_sp)

    def covariance(self, blocks: Sequence[Moments], people_pp: Floats) -> Floats:
        """V, of the system alone.

        Args:
            blocks: as they were given.
            people_pp: covariance of what all people add to the scores.
        """
        noise_pp = sum((one.std**2 * score @ score.T for one, score in zip(blocks, self.score_bpe, strict=True)), 0.0)
        size = len(self.vector_p)
        found = self.inverse_pp @ (noise_pp + people_pp + np.diag(self.prior_p)) @ self.inverse_pp
        return np.asarray(found[:size, :size])


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
    place = dict(system_vector.parts(shape.k, shape.d, starts=shape.starts))
    prior = _Prior.of(place, x_p, shape)
    for _ in range(rounds):
        weights = [_Weights.at(one, x_p, b, shape) for b, one in enumerate(blocks)]
        x_p, precision_pp, score_bpe = _descended(blocks, weights, prior, x_p, shape)
        inverse_pp = np.asarray(np.linalg.inv(precision_pp + _turns(x_p, shape, precision_pp)))
        shown = place["shown_dk"]
        square_k = (x_p[shown] ** 2 + np.diagonal(inverse_pp)[shown]).reshape(shape.d, shape.k).sum(axis=0)
        gamma_k = np.maximum((shape.d + 2 * _SHAPE) / (square_k + 2 * _SHAPE), _LEAST_GAMMA)
        prior.precision_p[shown] = np.tile(gamma_k, shape.d)
    size = len(vector_p)
    return Posterior(x_p[:size], np.exp(x_p[size:]), inverse_pp, prior.precision_p, score_bpe)


class _Prior(NamedTuple):
    mean_p: Floats
    precision_p: Floats

    @classmethod
    def of(cls, place: dict[str, slice], x_p: Floats, shape: Shape) -> _Prior:
        """Wide laws; those of the numbers of windows are around the start."""
        mean_p, precision_p = x_p.copy(), np.full(len(x_p), _NUMBER)
        for name, own in place.items():
            precision_p[own] = (_NOISE_WIDE if name == "noise_d" else _WIDE) ** -2
            mean_p[own] = _NOISE if name == "noise_d" else 0.0
            if name == "start_kk":
                mean_p[own] = np.eye(shape.k)[np.tril_indices(shape.k)]
        return cls(mean_p, precision_p)


class _Weights(NamedTuple):
    """Where entries of a moment matrix are independent, and their deviations there.

    Attributes:
        basis_ee: columns are the eigenvectors of the law of windows, after which their mean is zero.
        weight_ee: one over the deviation of each entry.
    """

    basis_ee: Floats
    weight_ee: Floats

    @classmethod
    def at(cls, block: Moments, x_p: Floats, b: int, shape: Shape) -> _Weights:
        mean_f, cov_ff = _law(block, x_p, shape)
        number = math.exp(_log_number(x_p, b, shape))
        value_e, vector_ee = np.ones(len(mean_f) + 1), np.eye(len(mean_f) + 1)
        value_e[:-1], vector_ee[:-1, :-1] = np.linalg.eigh(cov_ff)
        value_e[-1] = shape.unit_e[-1] ** -2
        apart_ee = np.outer(np.maximum(value_e, 0.0), np.maximum(value_e, 0.0))
        square_ee = (2 * number + (_MISFIT * number) ** 2) * apart_ee
        square_ee[-1, -1] = (_KNOWN * number * value_e[-1]) ** 2
        centred_ee = np.eye(len(value_e))
        centred_ee[-1, :-1] = -mean_f * shape.unit_e[-1]
        return cls(centred_ee @ vector_ee, 1.0 / np.sqrt(square_ee + block.std**2 + 1e-300))

    def of(self, gram: Floats) -> Floats:
        """A matrix, or several, in the basis and over the deviations."""
        return np.asarray(self.basis_ee.T @ gram @ self.basis_ee * self.weight_ee)


def _descended(
    blocks: Sequence[Moments], weights: list[_Weights], prior: _Prior, x_p: Floats, shape: Shape
) -> tuple[Floats, Floats, list[Floats]]:
    """The best system that damped steps of Gauss and Newton find, its precision, and the scores' matrices."""
    damping, lost = _DAMPING, _lost(blocks, weights, prior, x_p, shape)
    for step in range(_STEPS + 1):
        precision_pp, ascent_p = np.diag(prior.precision_p), -prior.precision_p * (x_p - prior.mean_p)
        grown, slope_p = _growth(x_p, shape)
        precision_pp, ascent_p = precision_pp + np.outer(slope_p, slope_p), ascent_p - grown * slope_p
        score_bpe = []
        for b, (block, own) in enumerate(zip(blocks, weights, strict=True)):
            slope_pee, left_ee = _linear(block, own, x_p, b, shape)
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


def _linear(block: Moments, own: _Weights, x_p: Floats, b: int, shape: Shape) -> tuple[Floats, Floats]:
    """Derivatives of a block's expected moments by all numbers, and what is left of the moments, both weighted."""
    size, unit_f = len(x_p), shape.unit_e[:-1]
    vector_p, number = x_p[: _size(shape)], math.exp(_log_number(x_p, b, shape))
    found = slopes(vector_p, shape.k, shape.d, shape.window, starts=shape.starts, first=block.first)
    mean_f, mean_pf, e = found.mean_f / unit_f, found.mean_pf / unit_f, len(unit_f) + 1
    moved_pee = np.zeros((size, e, e))
    own_pee = moved_pee[: len(vector_p)]
    turned_pff = mean_pf[:, :, None] * mean_f
    own_pee[:, :-1, :-1] = found.cov_pff / np.outer(unit_f, unit_f) + turned_pff + turned_pff.swapaxes(1, 2)
    own_pee[:, :-1, -1] = own_pee[:, -1, :-1] = mean_pf / shape.unit_e[-1]
    expected_ee = _expected(mean_f, found.cov_ff / np.outer(unit_f, unit_f), shape)
    moved_pee[_size(shape) + b] = expected_ee + block.taken
    return own.of(number * moved_pee), own.of(block.gram - number * (expected_ee + block.taken))


def _lost(blocks: Sequence[Moments], weights: list[_Weights], prior: _Prior, x_p: Floats, shape: Shape) -> float:
    """χ² of the moments and of the prior; no number is infinite."""
    with np.errstate(all="ignore"):
        lost = float(prior.precision_p @ (x_p - prior.mean_p) ** 2) + _growth(x_p, shape)[0] ** 2
        for b, (block, own) in enumerate(zip(blocks, weights, strict=True)):
            expected_ee = _expected(*_law(block, x_p, shape), shape) + block.taken
            left_ee = own.of(block.gram - np.exp(_log_number(x_p, b, shape)) * expected_ee)
            lost += float(np.sum(left_ee**2))
    return lost if math.isfinite(lost) else math.inf


def _expected(mean_f: Floats, cov_ff: Floats, shape: Shape) -> Floats:
    """Second moments of one window, with the constant behind it."""
    y_e = np.append(mean_f, 1.0 / shape.unit_e[-1])
    found_ee = np.outer(y_e, y_e)
    found_ee[:-1, :-1] += cov_ff
    return found_ee


def _law(block: Moments, x_p: Floats, shape: Shape) -> tuple[Floats, Floats]:
    """Mean and covariance of a window in the model's units."""
    system = system_vector.unpacked(x_p[: _size(shape)], shape.k, shape.d, starts=shape.starts)
    first = getattr(system, f"{block.first}_k"), getattr(system, f"{block.first}_kk")
    mean_f, cov_ff = law_of_windows(system, *first, shape.window)[2:]
    unit_f = shape.unit_e[:-1]
    return mean_f / unit_f, cov_ff / np.outer(unit_f, unit_f)


def _turns(x_p: Floats, shape: Shape, precision_pp: Floats) -> Floats:
    """Precision that holds turns of the states, of which moments tell nothing."""
    way_tp = system_vector.turns(x_p[: _size(shape)], shape.k, shape.d, starts=shape.starts)
    held_pp = np.zeros_like(precision_pp)
    held_pp[: way_tp.shape[1], : way_tp.shape[1]] = way_tp.T @ way_tp
    return _HELD * float(np.trace(precision_pp)) / len(precision_pp) * held_pp


def _growth(x_p: Floats, shape: Shape) -> tuple[float, Floats]:
    """By how much the largest mode grows over L steps, beside 1, and its derivatives: states that grow are rare."""
    own, slope_p = dict(system_vector.parts(shape.k, shape.d, starts=shape.starts))["step_kk"], np.zeros(len(x_p))
    step_kk = x_p[own].reshape(shape.k, shape.k)
    if not np.isfinite(step_kk).all():
        return math.inf, slope_p
    value_k, vector_kk = np.linalg.eig(step_kk)
    most = int(np.abs(value_k).argmax())
    size = float(np.abs(value_k[most]))
    if not size > 1.0:
        return 0.0, slope_p
    left_k = np.linalg.pinv(vector_kk)[most]
    slope_p[own] = shape.longest * np.real(np.outer(left_k, vector_kk[:, most]) * value_k[most].conj() / size).ravel()
    return shape.longest * (size - 1.0), slope_p


def _radius(step_skk: Floats) -> Floats:
    """Size of the largest mode of each."""
    return np.asarray(np.abs(np.linalg.eigvals(step_skk)).max(axis=1))


def _size(shape: Shape) -> int:
    return system_vector.length(shape.k, shape.d, starts=shape.starts)


def _log_number(x_p: Floats, b: int, shape: Shape) -> float:
    return float(x_p[_size(shape) + b])
