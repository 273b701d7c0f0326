"""The posterior of a linear dynamical system given noisy second moments of windows; all of it is public.

Moments S_b of n_b windows were released with noise of std σ_b. Given a system θ their mean is n_b M_b(θ). In the
eigenbasis of a window's covariance, with eigenvalues λ and the mean subtracted, the entries vary independently: by the
sampling of n people with the variance 2 n λ_e λ_f, and by noise (equations 3 and 4 of docs/theory/linear-dynamical.md):

    q(θ) ≈ N(θ̂, V),   θ̂ = argmin Σ_b Σ_ef (S_b - n_b M_b(θ))²_ef / ((2 n_b + δ² n_b²) λ_e λ_f + σ_b²) + |θ - θ_0|²_P

Moments are assumed to fit the model up to a relative error δ. Without noise this is the likelihood of Gaussian windows
to second order (Fisher's scoring); with much noise every entry counts alike.

=========  =====================================================================================
method     code
=========  =====================================================================================
θ, n_b     a vector, see `linear_moments`, followed by log n_b of every block
J          `linear`: derivatives of the moments, in the eigenbasis, over the deviations
H          J Jᵀ + P, and a penalty on rotations of the states
V          H⁻¹ (noise + people + P) H⁻¹: variation of the released moments, and of the prior
=========  =====================================================================================

Prior. Numbers are in units of the deviations of columns and states, in which all of them are near 1. The columns of C
have the precisions γ_k, q(γ_k) Gamma (MacKay 1994): a state that nothing shows is shrunk to nothing. States hardly grow
over the longest sequence.

Clipping. A person's moments are means over windows, clipped to C. How much they vary among people, and how much the
clip affects, depend on how many windows a person has; a histogram of these numbers was released. Clipping makes a
system look stiller than it is. The bias follows from the system, by people who are drawn from it; the posterior is
computed anew with the bias corrected, until both agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import kalman, linear_moments
from dpvb.models.sequences.errors import descended
from dpvb.models.sequences.kalman import LinearSystem
from dpvb.models.sequences.linear_moments import law_of_windows, slopes

# δ, the relative error up to which moments are taken to fit the model: well-known entries do not outweigh the others.
_MISFIT = 0.05
# Relative standard deviation of the number of windows.
_KNOWN = 1e-4
# Prior std of every number but log R.
_WIDE = 1.0
# Prior mean of log R.
_NOISE = -2.0
# Prior std of log R.
_NOISE_WIDE = 1.5
# Prior precision of log n_b around the released number.
_NUMBER = 1e-2
# Weight of the Gamma prior of γ_k, in columns.
_SHAPE = 0.5
# Lower limit of γ_k.
_LEAST_GAMMA = 0.5
# Rotations of the state space, which data cannot see, are penalised with this multiple of the mean precision.
_ROTATION_PENALTY = 1e3
# Upper limit for the number of people who are drawn.
_PEOPLE = 2000
# Upper limit for the entries of the moments of all drawn people.
_ENTRIES = 2**24
# Points of the longest sequence that is drawn.
_LONGEST = 128
# Lower limit for the noise variance of a drawn column, as a share of all variance, so that a Cholesky root exists.
_LEAST_NOISE_SHARE = 1e-9
# A place of the histogram holds numbers of windows from 2^i to 2^(i+1); drawn people have this multiple of 2^i.
_WITHIN = 1.4
# Times that weights are set.
_ROUNDS = 4
# Upper limit for the share of a person's moments that clipping is taken to remove.
_MOST_TAKEN = 0.95
# Times that people are drawn and the bias due to clipping is corrected.
_TIMES = 12
# Times that weights are set for each correction.
_AGAIN = 2
# Change of all moments together, in standard deviations, below which the correction ends.
_NEAR = 0.5
# Over-relaxation: each correction is extrapolated by this factor, as corrections shrink geometrically.
_OVER_RELAXATION = 0.5
# Share of a person's moments that clipping must leave for the correction to be made.
_LEFT = 0.4


@dataclass(frozen=True)
class ReleasedMoments:
    """Released moments in the model's units.

    Attributes:
        first: whose distribution a window's first state has, "pooled" or "start".
        gram: Σ y yᵀ as it came, (E + 1, E + 1).
        std: noise std of its diagonal.
        taken: what the clip adds to one person's moments on average, of the same shape, mostly negative.
    """

    first: str
    gram: Floats
    std: float
    taken: Floats | float = 0.0


class SystemShape(NamedTuple):
    """Sizes of a system and of windows.

    Attributes:
        k, d, window, longest: K, D, W and L.
        starts: whether first windows have a distribution of their own.
        unit_e: what one is of every number of y, (E + 1,), in units of (x - m)/s.
    """

    k: int
    d: int
    window: int
    longest: int
    starts: bool
    unit_e: Floats

    @property
    def size(self) -> int:
        """P, numbers of a system."""
        return linear_moments.vector_length(self.k, self.d, starts=self.starts)

    @property
    def parts(self) -> dict[str, slice]:
        """Places of a system's parts in its vector."""
        return dict(linear_moments.parts(self.k, self.d, starts=self.starts))

    def system(self, vector_p: Floats) -> LinearSystem:
        """The system of a vector, which may have more behind it."""
        return linear_moments.unpacked(vector_p[: self.size], self.k, self.d, starts=self.starts)


class MomentWeights(NamedTuple):
    """Where entries of a moment matrix are independent, and their deviations there.

    Attributes:
        basis_ee: columns are the eigenvectors of the distribution of windows, after which their mean is zero.
        weight_ee: one over the deviation of each entry.
    """

    basis_ee: Floats
    weight_ee: Floats

    @classmethod
    def at(cls, block: ReleasedMoments, x_p: Floats, b: int, shape: SystemShape) -> MomentWeights:
        """Those of block b at a system."""
        mean_f, cov_ff = law(block, x_p, shape)
        number = math.exp(log_number(x_p, b, shape))
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


def linear(
    block: ReleasedMoments, own: MomentWeights, x_p: Floats, b: int, shape: SystemShape
) -> tuple[Floats, Floats]:
    """Derivatives of a block's expected moments by all numbers, and what is left of the moments, both weighted."""
    size, unit_f = len(x_p), shape.unit_e[:-1]
    vector_p, number = x_p[: shape.size], math.exp(log_number(x_p, b, shape))
    law_slopes = slopes(vector_p, shape.k, shape.d, shape.window, starts=shape.starts, first=block.first)
    mean_f, mean_pf, e = law_slopes.mean_f / unit_f, law_slopes.mean_pf / unit_f, len(unit_f) + 1
    moved_pee = np.zeros((size, e, e))
    own_pee = moved_pee[: len(vector_p)]
    turned_pff = mean_pf[:, :, None] * mean_f
    own_pee[:, :-1, :-1] = law_slopes.cov_pff / np.outer(unit_f, unit_f) + turned_pff + turned_pff.swapaxes(1, 2)
    own_pee[:, :-1, -1] = own_pee[:, -1, :-1] = mean_pf / shape.unit_e[-1]
    expected_ee = expected(mean_f, law_slopes.cov_ff / np.outer(unit_f, unit_f), shape)
    moved_pee[shape.size + b] = expected_ee + block.taken
    return own.of(number * moved_pee), own.of(block.gram - number * (expected_ee + block.taken))


def ways(block: ReleasedMoments, x_p: Floats, shape: SystemShape) -> Floats:
    """For every parameter θ_p the matrix M_p with ∂y/∂θ_p = M_p y, y being a window with the constant appended."""
    law_slopes = slopes(x_p[: shape.size], shape.k, shape.d, shape.window, starts=shape.starts, first=block.first)
    unit_f, way_pee = shape.unit_e[:-1], np.zeros((len(x_p), len(shape.unit_e), len(shape.unit_e)))
    root_ff = np.linalg.cholesky(law_slopes.cov_ff)
    back_ff = np.linalg.inv(root_ff)
    half_pff = np.tril(back_ff @ law_slopes.cov_pff @ back_ff.T)
    at = np.arange(len(unit_f))
    half_pff[:, at, at] /= 2
    moved_pff = root_ff @ half_pff @ back_ff
    way_pee[: shape.size, :-1, :-1] = moved_pff * (unit_f / unit_f[:, None])
    way_pee[: shape.size, :-1, -1] = (law_slopes.mean_pf - moved_pff @ law_slopes.mean_f) / unit_f * shape.unit_e[-1]
    return way_pee


def expected(mean_f: Floats, cov_ff: Floats, shape: SystemShape) -> Floats:
    """Second moments of one window, with the constant behind it."""
    y_e = np.append(mean_f, 1.0 / shape.unit_e[-1])
    found_ee = np.outer(y_e, y_e)
    found_ee[:-1, :-1] += cov_ff
    return found_ee


def law(block: ReleasedMoments, x_p: Floats, shape: SystemShape) -> tuple[Floats, Floats]:
    """Mean and covariance of a window in the model's units."""
    system = shape.system(x_p)
    first = getattr(system, f"{block.first}_k"), getattr(system, f"{block.first}_kk")
    mean_f, cov_ff = law_of_windows(system, *first, shape.window)[2:]
    unit_f = shape.unit_e[:-1]
    return mean_f / unit_f, cov_ff / np.outer(unit_f, unit_f)


def log_number(x_p: Floats, b: int, shape: SystemShape) -> float:
    """Log n_b."""
    return float(x_p[shape.size + b])


class SystemPrior(NamedTuple):
    """Means and precisions of the numbers of a system, and of log n_b behind them."""

    mean_p: Floats
    precision_p: Floats

    @classmethod
    def of(cls, x_p: Floats, shape: SystemShape) -> SystemPrior:
        """Wide distributions; those of the numbers of windows are around the start."""
        mean_p, precision_p = x_p.copy(), np.full(len(x_p), _NUMBER)
        for name, place in shape.parts.items():
            precision_p[place] = (_NOISE_WIDE if name == "noise_d" else _WIDE) ** -2
            mean_p[place] = _NOISE if name == "noise_d" else 0.0
            if name == "start_kk":
                mean_p[place] = np.eye(shape.k)[np.tril_indices(shape.k)]
        return cls(mean_p, precision_p)

    def updated(self, x_p: Floats, inverse_pp: Floats, shape: SystemShape) -> SystemPrior:
        """The prior with γ_k at its posterior mean, given the distribution of C."""
        shown = shape.parts["shown_dk"]
        square_k = (x_p[shown] ** 2 + np.diagonal(inverse_pp)[shown]).reshape(shape.d, shape.k).sum(axis=0)
        gamma_k = np.maximum((shape.d + 2 * _SHAPE) / (square_k + 2 * _SHAPE), _LEAST_GAMMA)
        precision_p = self.precision_p.copy()
        precision_p[shown] = np.tile(gamma_k, shape.d)
        return self._replace(precision_p=precision_p)


def rotation_penalty(x_p: Floats, shape: SystemShape, precision_pp: Floats) -> Floats:
    """Penalty on rotations of the states, which moments do not determine."""
    way_tp = linear_moments.rotations(x_p[: shape.size], shape.k, shape.d, starts=shape.starts)
    held_pp = np.zeros_like(precision_pp)
    held_pp[: way_tp.shape[1], : way_tp.shape[1]] = way_tp.T @ way_tp
    return _ROTATION_PENALTY * float(np.trace(precision_pp)) / len(precision_pp) * held_pp


def growth(x_p: Floats, shape: SystemShape) -> tuple[float, Floats]:
    """Growth of the largest mode over L steps above 1, and its derivatives: states that grow are rare."""
    place, slope_p = shape.parts["step_kk"], np.zeros(len(x_p))
    step_kk = x_p[place].reshape(shape.k, shape.k)
    if not np.isfinite(step_kk).all():
        return math.inf, slope_p
    value_k, vector_kk = np.linalg.eig(step_kk)
    most = int(np.abs(value_k).argmax())
    size = float(np.abs(value_k[most]))
    if not size > 1.0:
        return 0.0, slope_p
    left_k = np.linalg.pinv(vector_kk)[most]
    slope_p[place] = shape.longest * np.real(np.outer(left_k, vector_kk[:, most]) * value_k[most].conj() / size).ravel()
    return shape.longest * (size - 1.0), slope_p


def drawn_smoothly(system: LinearSystem, number: int, length: int, rng: np.random.Generator) -> Floats:
    """Points of people, (n, T, D), from what each point adds to those before it.

    The same draws move as little as the system does. Neither the basis of the states nor the order of eigenvectors
    matters to them.
    """
    mean_nk, cov_kk = np.tile(system.start_k, (number, 1)), system.start_kk
    x_ntd = rng.standard_normal((number, length, len(system.shown_d)))
    for t in range(length):
        both_kd = cov_kk @ system.shown_dk.T
        shown_dd = system.shown_dk @ both_kd
        noise_d = system.noise_d + _LEAST_NOISE_SHARE * (np.diagonal(shown_dd) + system.noise_d).sum()
        root_dd = np.linalg.cholesky(shown_dd + np.diag(noise_d))
        gain_kd = np.linalg.solve(root_dd, both_kd.T).T
        own_nd = x_ntd[:, t].copy()
        x_ntd[:, t] = mean_nk @ system.shown_dk.T + system.shown_d + own_nd @ root_dd.T
        mean_nk = (mean_nk + own_nd @ gain_kd.T) @ system.step_kk.T
        cov_kk = system.step_kk @ (cov_kk - gain_kd @ gain_kd.T) @ system.step_kk.T + system.step_noise_kk
    return x_ntd


@dataclass(frozen=True)
class DrawnWindows:
    """Moments of drawn people in the model's units.

    Attributes:
        clipped_bne: what each person adds to each block, (B, n, (E + 1)²).
        lost_bne: what the clip adds to it, mostly negative.
    """

    clipped_bne: list[Floats]
    lost_bne: list[Floats]

    @property
    def taken_be(self) -> Floats:
        """Contribution of the clip to the mean of a block, (B, (E + 1)²)."""
        return np.stack([lost_ne.mean(axis=0) for lost_ne in self.lost_bne])

    def slopes(self, b: int, way_pee: Floats) -> Floats:
        """How what the clip adds moves as numbers of windows y move by a way times y, (P, (E + 1)²)."""
        clipped_ne, size = self.clipped_bne[b], way_pee.shape[1]
        plain_ne = clipped_ne - self.lost_bne[b]
        square_n = np.sum(plain_ne**2, axis=1)
        is_clipped_n = np.any(self.lost_bne[b] != 0.0, axis=1)
        plain_nee = plain_ne[is_clipped_n].reshape(-1, size, size)
        longer_pn = 2.0 * way_pee.reshape(len(way_pee), -1) @ (plain_nee @ plain_nee).reshape(-1, size**2).T
        made_pe = -(longer_pn / square_n[is_clipped_n]) @ clipped_ne[is_clipped_n] / len(clipped_ne)
        moved_pee = way_pee @ self.lost_bne[b].mean(axis=0).reshape(size, size)
        return np.asarray(made_pe + (moved_pee + moved_pee.swapaxes(1, 2)).reshape(made_pe.shape))

    def left(self, unit: float) -> float:
        """The least that the clip leaves of a block on average, by the constants of windows."""
        return float(min(made_ne[:, -1].mean() for made_ne in self.clipped_bne)) * unit**2

    def covariance(self, score_bpe: Sequence[Floats], number: float) -> Floats:
        """Covariance of the scores of so many people, (P, P), and of what is put back, as few people were drawn."""
        blocks = range(len(score_bpe))  # one, where all windows are first ones
        both_np, lost_np = (sum(part[b] @ score_bpe[b].T for b in blocks) for part in (self.clipped_bne, self.lost_bne))
        drawn_pp = np.cov(lost_np, rowvar=False) * number**2 / len(self.lost_bne[0])
        return np.atleast_2d(np.cov(both_np, rowvar=False) * number + drawn_pp)


def draw_windows(
    system: LinearSystem, share_l: Floats, window: int, unit_e: Floats, clip: float, rng: np.random.Generator
) -> DrawnWindows:
    """People of a system.

    Args:
        system: of numbers (x - m)/s.
        share_l: shares of the lengths, as `shares` has them.
        window: W.
        unit_e: what one is of every number of a window, and behind them of the constant.
        clip: C, in the model's units.
        rng: public randomness.
    """
    size = len(unit_e)
    people = max(50, min(_PEOPLE, _ENTRIES // size**2))
    clipped: tuple[list[Floats], list[Floats]] = ([], [])
    lost: tuple[list[Floats], list[Floats]] = ([], [])
    for place, number in enumerate(rng.multinomial(people, share_l)):
        windows = min(int(_WITHIN * 2**place), max(_LONGEST - window, 0) + 1)
        step = max(1, _ENTRIES // (windows * size))
        for begin in range(0, number, step):
            x_ntd = drawn_smoothly(system, min(step, number - begin), windows + window - 1, rng)
            y_nte = _windows(x_ntd, window) / unit_e
            windows_bnte = y_nte[:, :1], y_nte
            for clipped_b, gone, one_nte in zip(clipped, lost, windows_bnte, strict=True):
                plain_ne = (np.swapaxes(one_nte, 1, 2) @ one_nte).reshape(len(x_ntd), -1) / one_nte.shape[1]
                left_n = np.minimum(1.0, clip / np.linalg.norm(plain_ne, axis=1))
                clipped_b.append(plain_ne * left_n[:, None])
                gone.append(clipped_b[-1] - plain_ne)
    return DrawnWindows(*([np.concatenate(part) for part in parts[::-1]] for parts in (clipped, lost)))


def _windows(x_ntd: Floats, window: int) -> Floats:
    """All windows of sequences with a one behind each, (n, windows, W D + 1)."""
    number, points, d = x_ntd.shape
    window_nte = np.ones((number, points - window + 1, window * d + 1))
    for t in range(points - window + 1):
        window_nte[:, t, :-1] = x_ntd[:, t : t + window].reshape(number, -1)
    return window_nte


class SystemPosterior(NamedTuple):
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

    def system(self, shape: SystemShape) -> LinearSystem:
        """The system of θ̂."""
        return shape.system(self.vector_p)

    def shown(self, blocks: Sequence[ReleasedMoments], shape: SystemShape) -> Floats:
        """Expected moments of all blocks, over the deviations of noise and of people."""
        expected_b = []
        for b, block in enumerate(blocks):
            mean_f, cov_ff = law(block, self.vector_p, shape)
            number = float(self.number_b[b])
            size_f = np.diagonal(cov_ff)
            std_ff = np.sqrt(2 * number * np.outer(size_f, size_f) + block.std**2 + 1e-300)
            expected_b.append((number * (cov_ff + np.outer(mean_f, mean_f)) / std_ff).ravel())
        return np.concatenate(expected_b)

    def drawn(self, covariance_pp: Floats, shape: SystemShape, number: int, rng: np.random.Generator) -> Floats:
        """Draw systems from N(θ̂, V), (number, P); unstable draws are scaled to spectral radius 1, or that of θ̂."""
        value_p, vector_pp = np.linalg.eigh(covariance_pp)
        root_pp = vector_pp * np.sqrt(np.maximum(value_p, 0.0))
        made_sp = self.vector_p + rng.standard_normal((number, len(value_p))) @ root_pp.T
        steps = shape.parts["step_kk"]
        own_s, every_skk = _radius(self.vector_p[steps].reshape(1, shape.k, -1)), made_sp[:, steps]
        grown_s = _radius(every_skk.reshape(number, shape.k, -1)) / np.maximum(own_s, 1.0)
        made_sp[:, steps] /= np.maximum(grown_s, 1.0)[:, None]
        return np.asarray(made_sp)

    def covariance(self, blocks: Sequence[ReleasedMoments], people: DrawnWindows, shape: SystemShape) -> Floats:
        """Covariance of θ̂ without log n_b; it includes how the bias due to clipping moves with θ̂, and its remainder.

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


def fit_posterior(
    blocks: Sequence[ReleasedMoments], shape: SystemShape, system: LinearSystem, rounds: int = _ROUNDS
) -> SystemPosterior:
    """The posterior, from a system near it.

    Args:
        blocks: released moments, of "pooled" windows first.
        shape: sizes.
        system: where to start.
        rounds: times that weights are set.
    """
    vector_p = linear_moments.packed(kalman.in_order(system), starts=shape.starts)
    of_one = shape.unit_e[-1] ** -2
    kept_b = [of_one + max(float(np.ravel(one.taken)[-1]), -_MOST_TAKEN * of_one) for one in blocks]
    number_b = [max(one.gram[-1, -1], one.std, 1e-9) / left for one, left in zip(blocks, kept_b, strict=True)]
    x_p = np.append(vector_p, np.log(number_b))
    prior = SystemPrior.of(x_p, shape)
    for _ in range(rounds):
        weights = [MomentWeights.at(one, x_p, b, shape) for b, one in enumerate(blocks)]
        squares = _MomentSquares(blocks, weights, prior, shape)
        x_p, precision_pp, at_p = descended(squares, x_p)
        inverse_pp = np.asarray(np.linalg.inv(precision_pp + rotation_penalty(x_p, shape, precision_pp)))
        prior = prior.updated(x_p, inverse_pp, shape)
    size, scores = len(vector_p), squares.scores(at_p)
    return SystemPosterior(x_p[:size], np.exp(x_p[size:]), inverse_pp, prior.precision_p, scores)


@dataclass(frozen=True)
class _MomentSquares:
    """Squares of all released moments with set weights."""

    blocks: Sequence[ReleasedMoments]
    weights: list[MomentWeights]
    prior: SystemPrior
    shape: SystemShape

    def lost(self, x_p: Floats) -> float:
        """χ² of the moments and of the prior; inf if a number overflows."""
        with np.errstate(all="ignore"):
            lost = float(self.prior.precision_p @ (x_p - self.prior.mean_p) ** 2) + growth(x_p, self.shape)[0] ** 2
            for b, (block, weight) in enumerate(zip(self.blocks, self.weights, strict=True)):
                expected_ee = expected(*law(block, x_p, self.shape), self.shape) + block.taken
                left_ee = weight.of(block.gram - np.exp(log_number(x_p, b, self.shape)) * expected_ee)
                lost += float(np.sum(left_ee**2))
        return lost if math.isfinite(lost) else math.inf

    def normal(self, x_p: Floats) -> tuple[Floats, Floats]:
        """H, and minus half the gradient."""
        prior = self.prior
        precision_pp, ascent_p = np.diag(prior.precision_p), -prior.precision_p * (x_p - prior.mean_p)
        grown, slope_p = growth(x_p, self.shape)
        precision_pp, ascent_p = precision_pp + np.outer(slope_p, slope_p), ascent_p - grown * slope_p
        for b, (block, weight) in enumerate(zip(self.blocks, self.weights, strict=True)):
            slope_pee, left_ee = linear(block, weight, x_p, b, self.shape)
            flat_pe = slope_pee.reshape(len(x_p), -1)
            precision_pp = precision_pp + flat_pe @ flat_pe.T
            ascent_p = ascent_p + flat_pe @ left_ee.ravel()
        return precision_pp, ascent_p

    def scores(self, x_p: Floats) -> list[Floats]:
        """For each block the matrices whose products with its moments make θ̂ move by H⁻¹, (P, (E + 1)²)."""
        score_bpe = []
        for b, (block, weight) in enumerate(zip(self.blocks, self.weights, strict=True)):
            weighted_pee = linear(block, weight, x_p, b, self.shape)[0] * weight.weight_ee
            score_bpe.append((weight.basis_ee @ weighted_pee @ weight.basis_ee.T).reshape(len(x_p), -1))
        return score_bpe


def _radius(step_skk: Floats) -> Floats:
    """Size of the largest mode of each."""
    return np.asarray(np.abs(np.linalg.eigvals(step_skk)).max(axis=1))


def unclipped_posterior(
    blocks: Sequence[ReleasedMoments],
    shape: SystemShape,
    system: LinearSystem,
    share_l: Floats,
    clip: float,
    draws: int,
) -> dict[str, Any]:
    """The system at the middle of its posterior, and `drawn_sp`, systems that are drawn from it.

    Args:
        blocks: released moments, of "pooled" windows first.
        shape: sizes.
        system: where to start.
        share_l: shares of the lengths of people's sequences.
        clip: C, in the model's units.
        draws: S.
    """
    # The same people each time: so they end where they agree with the system.
    sizes = share_l, shape.window, shape.unit_e, clip
    posterior, moved = fit_posterior(blocks, shape, system), np.inf
    people = draw_windows(posterior.system(shape), *sizes, np.random.default_rng(0))
    for _ in range(_TIMES):
        if people.left(shape.unit_e[-1]) < _LEFT:
            break
        with_more = [_further(one, taken_e) for one, taken_e in zip(blocks, people.taken_be, strict=False)]
        other = fit_posterior(with_more, shape, posterior.system(shape), _AGAIN)
        before, moved = moved, float(np.linalg.norm(other.shown(with_more, shape) - posterior.shown(blocks, shape)))
        if not moved < before:  # Noise, or a clip that takes nearly all: what is put back has no end.
            break
        blocks, posterior = with_more, other
        people = draw_windows(posterior.system(shape), *sizes, np.random.default_rng(0))
        if moved < _NEAR:
            break
    variance_pp = posterior.covariance(blocks, people, shape)
    drawn_sp = posterior.drawn(variance_pp, shape, draws, np.random.default_rng(1))
    return {"system": posterior.system(shape), "drawn_sp": drawn_sp}


def _further(block: ReleasedMoments, taken_e: Floats) -> ReleasedMoments:
    """A block with what is taken, and some more."""
    taken_ee = taken_e.reshape(block.gram.shape)
    return replace(block, taken=taken_ee + _OVER_RELAXATION * (taken_ee - block.taken))
