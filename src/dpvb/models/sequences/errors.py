"""Standard errors by weighted least squares of released sums (minimum distance), for all models with hidden states.

Clipping and nonnegative counts bias a fit. Least squares takes sums as they were released, whose noise has mean 0, and
finds the parameters whose expected sums are nearest. The bias due to clipping follows from people who are drawn from
these parameters, and is corrected (equation 4 of docs/theory/hidden-markov.md).
`corrected` is the fit itself without these biases: intervals are around it, and wider by what least squares would move.

===================  ==============================================================================
method               code
===================  ==============================================================================
θ                    parameters, as one vector; its prior has the mean θ_0 and the precision P
S, v                 released sums, and their variance: noise and sampling of people
μ(θ), J              expected sums, clipped as people are, and their derivatives
H                    `Squares.normal`: Jᵀ diag(1/v) J + P, with Jᵀ v⁻¹ (S - μ) - P (θ - θ_0)
χ²                   `Squares.lost`: Σ (S - μ)² / v + |θ - θ_0|²_P, which `descended` minimises
Cov θ                H⁻¹ (Jᵀ v⁻¹ Cov(S) v⁻¹ J + P) H⁻¹, the sandwich estimator
===================  ==============================================================================

Here are the descent, and the errors of the steps between hidden states, which show symbols or numbers in cells:

===================  ==============================================================================
s_i, r_i             `ChainLaws.start_k`, `first_k`: first states of starts and of windows, as shares of all
A_ij, B_ia           `step_kk`, `shown`: distributions of steps, and of what states show: `FreeTable`, `CellTable`
κ_abc                `DrawnPeople.kept`: the share that clipping leaves of a window, on average
μ_abc                κ_abc Σ_ijk r_i B_ia A_ij B_jb A_jk B_kc;   μ_ab = Σ_ij s_i B_ia A_ij B_jb
θ                    additions to the fit: to s, to r, in directions in which rows of A keep their sums, and to B
===================  ==============================================================================

The derivatives of μ follow from forward differentiation along a window. Linear systems: `linear_posterior`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import dynamics
from dpvb.models.sequences.dynamics import DrawnPeople, WindowSizes, draw_people
from dpvb.models.sequences.windows import ChainT, Windows, denoised

# Gauss-Newton steps of one descent.
_STEPS = 12
# Gain of χ² below which a descent ends.
_GAIN = 1e-3
# Damping of the first step.
_DAMPING = 1e-3
# Factor by which the damping grows after a step that fails.
_MORE = 10.0
# Factor by which the damping shrinks after a step that succeeds.
_LESS = 0.04
# Failures of one step after which the iteration ends.
_TRIES = 10
# convention: most times that people are drawn and the fit is corrected; `_STILL` ends most corrections earlier.
_CORRECTED = 6
# convention: change of every step below which a correction ends.
_STILL = 1e-6
# Lower limit for the probabilities of drawn people.
_LEAST_DRAWN = 1e-4
# Lower limit for the log variance of a state's numbers, in a range of -1 to 1.
_NARROW = math.log(1e-4)
# Prior precision of every parameter around the fit: shares, means in a range of -1 to 1, and log variances.
_PRECISION = 1.0
# People whose influence is in memory together.
_TOGETHER = 1000


class Squares(Protocol):
    """A weighted sum of squares, with its prior."""

    def lost(self, x_p: Floats) -> float:
        """χ²; inf where it cannot be computed."""

    def normal(self, x_p: Floats) -> tuple[Floats, Floats]:
        """H, (P, P), and minus half the gradient of χ², (P,)."""


class Minimum(NamedTuple):
    """The end of a descent.

    Attributes:
        x_p: the best parameters.
        precision_pp: H.
        at_p: the parameters where H was computed: x_p, or the step before.
    """

    x_p: Floats
    precision_pp: Floats
    at_p: Floats


def descended(squares: Squares, x_p: Floats) -> Minimum:
    """The best parameters that damped Gauss-Newton steps find (Levenberg & Marquardt)."""
    damping, lost = _DAMPING, squares.lost(x_p)
    for step in range(_STEPS + 1):
        at_p, (precision_pp, ascent_p) = x_p, squares.normal(x_p)
        if step == _STEPS:
            break
        before = lost
        for _ in range(_TRIES):
            damped_pp = precision_pp + damping * np.diag(np.diagonal(precision_pp) + 1e-12)
            new_p = x_p + np.linalg.solve(damped_pp, ascent_p)
            lost = squares.lost(new_p)
            if lost < before:
                x_p, damping = new_p, damping * _LESS
                break
            damping *= _MORE
        if not lost < before - _GAIN:
            break
    return Minimum(x_p, precision_pp, at_p)


class FreeTable(NamedTuple):
    """A distribution of its own for every state, (K, V)."""

    law_kv: Floats

    @property
    def size(self) -> int:
        """E, the number of parameters: K (V - 1)."""
        return int(self.law_kv.size - len(self.law_kv))

    def at(self, x_e: Floats) -> tuple[Floats, Floats]:
        """Probabilities of V values, (V, K), and their derivatives, (V, E, K), where x_e is added to the parameters.

        They are linear in the parameters; an entry may be a bit below 0.
        """
        k, v = self.law_kv.shape
        slope_vkfk, every_k = np.zeros((v, k, v - 1, k)), np.arange(k)
        slope_vkfk[:, every_k, :, every_k] = free(v)
        return (self.law_kv + x_e.reshape(k, v - 1) @ free(v).T).T, slope_vkfk.reshape(v, -1, k)


class CellTable(NamedTuple):
    """Normal distributions of D columns in cells: means and log variances, (K, D), and edges of cells, (G + 1,)."""

    mean_kd: Floats
    log_kd: Floats
    end_g: Floats

    @property
    def size(self) -> int:
        """E, the number of parameters: 2 K D."""
        return int(2 * self.mean_kd.size)

    @property
    def law_kv(self) -> Floats:
        """Probabilities of the cells in every state."""
        return self.at(np.zeros(self.size))[0].T

    def at(self, x_e: Floats) -> tuple[Floats, Floats]:
        """As `FreeTable.at`: products over the columns; the parameters are the means, then the log variances."""
        k, d = self.mean_kd.shape
        mean_kd, log_kd = (both + added for both, added in zip(self[:2], x_e.reshape(2, k, d), strict=True))
        std_kd1 = np.exp(np.maximum(log_kd, _NARROW) / 2)[:, :, None]
        z_kdg = np.clip((self.end_g - mean_kd[:, :, None]) / std_kd1, -40.0, 40.0)
        density_kdg = np.exp(-0.5 * z_kdg**2) / math.sqrt(2 * math.pi)
        share_kdg = np.diff(ndtr(z_kdg), axis=2)
        moved = -np.diff(density_kdg, axis=2) / std_kd1, -np.diff(density_kdg * z_kdg, axis=2) / 2
        shown_kv, every_k = _product(share_kdg), np.arange(k)
        slope_vekd = np.zeros((shown_kv.shape[1], 2, k, d, k))
        for place, slope_kdg in enumerate(moved):
            for column in range(d):
                parts_kdg = share_kdg.copy()
                parts_kdg[:, column] = slope_kdg[:, column]
                slope_vekd[:, place, every_k, column, every_k] = _product(parts_kdg).T
        return shown_kv.T, slope_vekd.reshape(len(slope_vekd), -1, k)


def _product(parts_kdg: Floats) -> Floats:
    """Products over the columns for all cells, (K, G^D), the last column's fastest."""
    product_kv = np.ones((len(parts_kdg), 1))
    for d in range(parts_kdg.shape[1]):
        product_kv = (product_kv[:, :, None] * parts_kdg[:, None, d]).reshape(len(product_kv), -1)
    return product_kv


def free(size: int) -> Floats:
    """Directions in which a distribution of so many entries keeps its sum, orthonormal, (size, size - 1)."""
    return np.linalg.svd(np.full((1, size), 1.0))[2][1:].T


class _Slopes(NamedTuple):
    """Values of distributions with their derivatives by P parameters: (..., K) and (..., P, K)."""

    value: Floats
    slope: Floats


class LawSlopes(NamedTuple):
    """First states of starts and of windows, (K,), steps, (K, K), what is shown, (V, K), each with derivatives.

    The derivatives of the steps are (P, K, K).
    """

    start: _Slopes
    first: _Slopes
    step: _Slopes
    shown: _Slopes

    def expected(self, length: int, *, starts: bool) -> Iterator[tuple[Floats, Floats]]:
        """Probabilities of windows of so many values, and derivatives, (cells, P): for each first value by itself."""
        first, (step_kk, step_pkk), (shown_vk, shown_vpk) = self.start if starts else self.first, self.step, self.shown
        for value_k, value_pk in zip(shown_vk, shown_vpk, strict=True):
            front_ck, front_cpk = first.value * value_k, first.slope * value_k + first.value * value_pk
            if length == 1:
                yield front_ck.sum(keepdims=True), front_cpk.sum(axis=1)[None]
                continue
            front_ck, front_cpk = front_ck[None], front_cpk[None]
            for place in range(1, length):
                front_cpk = front_cpk @ step_kk + np.tensordot(front_ck, step_pkk, (1, 1))
                front_ck = front_ck @ step_kk
                if place < length - 1:
                    slope_cvpk = front_cpk[:, None] * shown_vk[:, None] + front_ck[:, None, None] * shown_vpk
                    front_ck = (front_ck[:, None] * shown_vk).reshape(-1, len(step_kk))
                    front_cpk = slope_cvpk.reshape(len(front_ck), *shown_vpk.shape[1:])
            slope_cvp = np.swapaxes(front_cpk @ shown_vk.T, 1, 2) + np.tensordot(front_ck, shown_vpk, (1, 2))
            yield (front_ck @ shown_vk.T).ravel(), slope_cvp.reshape(-1, slope_cvp.shape[2])


@dataclass(frozen=True)
class ChainLaws:
    """Distributions of a chain behind windows, as shares; s and r need not sum to 1.

    Attributes:
        start_k, first_k: s and r.
        step_kk: A.
        shown: B.
    """

    start_k: Floats
    first_k: Floats
    step_kk: Floats
    shown: FreeTable | CellTable

    @property
    def size(self) -> int:
        """P."""
        k = len(self.step_kk)
        return k + k + k * (k - 1) + self.shown.size

    def windows(self, length: int, *, starts: bool = False) -> Floats:
        """Probabilities of windows of so many values, flat."""
        shown_vk = self.shown.law_kv.T
        front = (self.start_k if starts else self.first_k) * shown_vk
        for _ in range(length - 2):
            front = (front @ self.step_kk)[..., None, :] * shown_vk
        return np.asarray((front @ (self.step_kk @ shown_vk.T) if length > 1 else front.sum(axis=-1)).ravel())

    @property
    def steps(self) -> slice:
        """Places of the parameters of A."""
        k = len(self.step_kk)
        return slice(2 * k, 2 * k + k * (k - 1))

    def at(self, x_p: Floats) -> LawSlopes:
        """The distributions where x_p is added to the parameters, and their derivatives."""
        k, steps, size = len(self.step_kk), self.steps, self.size
        start_pk, first_pk, step_pkk = np.zeros((size, k)), np.zeros((size, k)), np.zeros((size, k, k))
        start_pk[:k] = first_pk[k : 2 * k] = np.eye(k)
        step_pkk[steps] = np.einsum("ij,kf->ifjk", np.eye(k), free(k)).reshape(-1, k, k)
        shown_vk, shown_vek = self.shown.at(x_p[steps.stop :])
        shown_vpk = np.zeros((len(shown_vk), size, k))
        shown_vpk[:, steps.stop :] = shown_vek
        return LawSlopes(
            _Slopes(self.start_k + x_p[:k], start_pk),
            _Slopes(self.first_k + x_p[k : 2 * k], first_pk),
            _Slopes(self.step_kk + x_p[steps].reshape(k, -1) @ free(k).T, step_pkk),
            _Slopes(shown_vk, shown_vpk),
        )


@dataclass(frozen=True)
class ReleasedWindows:
    """Released windows as they came, those of starts and then those from everywhere, each one after another.

    Attributes:
        number_m: the numbers.
        noise_m: variance of their noise.
        starts: values of a window of starts.
        units: people.
        weight: of all windows from everywhere.
        sizes: how windows from everywhere are counted.
        longest: L, values of a sequence that count.
        clipped: share of people who were clipped, as it was released; None: it is not used.
    """

    number_m: Floats
    noise_m: Floats
    starts: int
    units: float
    weight: float
    sizes: WindowSizes
    longest: int
    clipped: float | None = None

    @classmethod
    def of(
        cls,
        tables: tuple[Floats, Floats],
        std_b: tuple[float, float],
        units: float,
        sizes: WindowSizes,
        longest: int,
        clipped: float,
    ) -> ReleasedWindows:
        """Those of starts and from everywhere, with an axis for each value of a window, and the noise std of both."""
        starts, pooled = tables
        noise = np.repeat(np.array(std_b) ** 2, (starts.size, pooled.size))
        number, weight = np.concatenate([starts.ravel(), pooled.ravel()]), max(float(pooled.sum()), 1.0)
        return cls(number, noise, starts.ndim, max(units, 1.0), weight, sizes, longest, clipped or None)


@dataclass(frozen=True)
class _WindowSquares:
    """Squares of windows: variances, and what an expected share is multiplied by, both (M,)."""

    laws: ChainLaws
    released: ReleasedWindows
    variance_m: Floats
    scale_m: Floats

    def cells(self, x_p: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
        """Places of some windows, what is expected of them, and the derivatives."""
        laws, stop = self.laws.at(x_p), 0
        for length, starts in ((self.released.starts, True), (self.released.sizes.length, False)):
            for mean_c, slope_cp in laws.expected(length, starts=starts):
                start, stop = stop, stop + len(mean_c)
                scale_c = self.scale_m[start:stop]
                yield slice(start, stop), scale_c * mean_c, scale_c[:, None] * slope_cp

    def lost(self, x_p: Floats) -> float:
        """χ²."""
        miss = ((self.released.number_m[place] - mean_c, place) for place, mean_c, _ in self.cells(x_p))
        lost = _PRECISION * float(x_p @ x_p) + sum(float(one @ (one / self.variance_m[place])) for one, place in miss)
        return lost if math.isfinite(lost) else math.inf

    def normal(self, x_p: Floats) -> tuple[Floats, Floats]:
        """H, and minus half the gradient."""
        precision_pp, ascent_p = _PRECISION * np.eye(len(x_p)), -_PRECISION * x_p
        for place, mean_c, slope_cp in self.cells(x_p):
            weighted_cp = slope_cp / self.variance_m[place, None]
            precision_pp += weighted_cp.T @ slope_cp
            ascent_p += weighted_cp.T @ (self.released.number_m[place] - mean_c)
        return precision_pp, ascent_p


class _Sampled(NamedTuple):
    """How people of a chain differ, and what clipping leaves of their windows.

    Attributes:
        place_nm, weight_nm: windows of each drawn person, those of the start first, and what they add.
        alike: number of people who vary like the drawn ones.
        kept_w: average share of each window from everywhere after clipping.
        scale_m, variance_m: what an expected share is multiplied by, and variances of the released numbers.
    """

    place_nm: Ints
    weight_nm: Floats
    alike: float
    kept_w: Floats
    scale_m: Floats
    variance_m: Floats


def _sampled(laws: ChainLaws, released: ReleasedWindows, rng: np.random.Generator) -> _Sampled:
    v, units = released.sizes.n_symbols, released.units
    num_starts, num_windows = v**released.starts, v**released.sizes.length
    people = _people(laws, released, rng)
    start_n = np.zeros(len(people.code_nt), np.int64)
    for place in range(released.starts):
        start_n = start_n * v + people.code_nt[:, place]
    begun = max(float(released.number_m[:num_starts].sum()), 1.0)
    squares = np.append((np.bincount(start_n, minlength=num_starts) + 1.0) / len(start_n), people.squares(num_windows))
    kept_w = people.kept(num_windows)
    scale_m = np.append(np.full(num_starts, begun), released.weight * kept_w / people.share)
    # Longer sequences than are drawn vary as more people do.
    alike = units * max(released.weight / units / people.weight, 1.0)
    places_nm = np.column_stack([start_n, people.place_nm + num_starts])
    weights_nm = np.column_stack([np.ones(len(start_n)), people.weight_nm])
    return _Sampled(places_nm, weights_nm, alike, kept_w, scale_m, released.noise_m + alike * squares)


def corrected(
    fit: ChainT,
    windows: Windows,
    released: ReleasedWindows,
    laws_of: Callable[[ChainT], ChainLaws],
    step: Callable[[Windows, ChainT], ChainT],
    rounds: int,
) -> ChainT:
    """The chain without bias due to clipping, from windows that are denoised around its own predictions.

    Args:
        fit: chain to begin with.
        windows: denoised windows; those of sequences of one value stay.
        released: windows as they came.
        laws_of: distributions of a chain.
        step: one iteration of EM or variational Bayes.
        rounds: largest number of iterations for each draw of people.
    """
    v, starts, rng = released.sizes.n_symbols, released.starts, np.random.default_rng(0)
    start_vw, num_starts = windows.start_vw.copy(), v**starts
    ends = slice(0, v) if starts == 2 else slice(-1, None)
    for _ in range(_CORRECTED):
        laws = laws_of(fit)
        sample = _sampled(laws, released, rng)
        mean_m = sample.scale_m * np.append(laws.windows(starts, starts=True), laws.windows(windows.pooled.ndim))
        parts = slice(0, num_starts), slice(num_starts, None)
        first, pooled = (
            denoised(mean_m[part].reshape(-1, v), released.number_m[part].reshape(-1, v), math.sqrt(noise))
            for part, noise in zip(parts, released.noise_m[[0, -1]], strict=True)
        )
        start_vw[:, ends] = first.reshape(v, -1)
        now = Windows(start_vw, (pooled.ravel() / sample.kept_w).reshape(windows.pooled.shape))
        for _ in range(rounds):
            before, fit = fit.laws(expected=False).step_kk, step(now, fit)
            if np.abs(fit.laws(expected=False).step_kk - before).max() < _STILL:
                break
    return fit


def step_errors(laws: ChainLaws, released: ReleasedWindows, rng: np.random.Generator, *, noise_aware: bool) -> Floats:
    """Standard deviations of the steps, (K, K), with the distance to which least squares would move each.

    Args:
        laws: distributions of the fit.
        released: windows.
        rng: public randomness.
        noise_aware: whether the noise counts in the deviations.
    """
    k, at_p, sample = len(laws.step_kk), np.zeros(laws.size), _sampled(laws, released, rng)
    problem = _WindowSquares(laws, released, sample.variance_m, sample.scale_m)
    precision_pp, ascent_p = problem.normal(at_p)
    # How much each step moves with each window.
    to_step = np.kron(np.eye(k), free(k)) @ np.linalg.inv(precision_pp)[laws.steps]
    influence_me = np.vstack(
        [(slope_cp / problem.variance_m[place, None]) @ to_step.T for place, _, slope_cp in problem.cells(at_p)]
    )
    sample_e = sample.alike * _variance(sample.place_nm, sample.weight_nm, influence_me)
    noise_e = (released.noise_m * noise_aware) @ influence_me**2
    bias_e = np.clip(to_step @ ascent_p, -1.0, 1.0)
    variance_e = sample_e + noise_e + _PRECISION * (to_step**2).sum(axis=1) + bias_e**2
    return np.asarray(np.sqrt(variance_e).reshape(k, k))


def _people(laws: ChainLaws, released: ReleasedWindows, rng: np.random.Generator) -> DrawnPeople:
    """People of the distributions, whose windows weigh on average what was released."""
    sound = (np.maximum(law, _LEAST_DRAWN) for law in (laws.start_k, laws.step_kk, laws.shown.law_kv))
    start_k, step_kk, shown_kv = (law / law.sum(axis=-1, keepdims=True) for law in sound)

    def people(number: int, length: int) -> Ints:
        return dynamics.shown(dynamics.drawn(start_k, [step_kk], number, length, rng), shown_kv, rng)

    weight = released.weight / released.units
    return draw_people(people, released.sizes, released.longest, weight, rng, released.clipped)


def _variance(place_nm: Ints, weight_nm: Floats, influence_me: Floats) -> Floats:
    """Variance among people of what their windows move, (E,)."""
    total, square = np.zeros(influence_me.shape[1]), np.zeros(influence_me.shape[1])
    for first in range(0, len(place_nm), _TOGETHER):
        place, weight = place_nm[first : first + _TOGETHER], weight_nm[first : first + _TOGETHER]
        ends = np.arange(0, place.size + 1, place.shape[1])
        added_nm = csr_array((weight.ravel(), place.ravel(), ends), (len(place), len(influence_me)))
        moved_ne = np.asarray(added_nm @ influence_me)
        total, square = total + moved_ne.sum(axis=0), square + (moved_ne**2).sum(axis=0)
    return np.asarray(np.maximum(square / len(place_nm) - (total / len(place_nm)) ** 2, 0.0))
