"""Standard errors of the steps of a hidden Markov model, of symbols by least squares, of numbers by a bootstrap.

Symbols. EM takes counts to be nonnegative, and priors shrink them: both bias the fit. Least squares takes the windows
as they were released, whose noise has mean 0, and laws whose entries may be a bit below 0. What clipping leaves of each
window follows from people who are drawn from the fit, and in turn corrects the fit.

===================  ==============================================================================
method               code
===================  ==============================================================================
s_i, r_i             `StepLaws.start_k`, `first_k`: first states of starts and of windows, as shares of all
A_ij, B_ia           `step_kk`, `shown_kv`: laws of steps, and of what states show
κ_abc                `Read.left`: what a clip leaves of a window
n, v                 `Read.number`: the released windows, and those of starts; `variance`: noise and people
μ_abc                κ_abc Σ_ijk r_i B_ia A_ij B_jb A_jk B_kc;   μ_ab = Σ_ij s_i B_ia A_ij B_jb
J                    ∂μ/∂θ, whatever emissions the model has
θ                    free entries: s, r, and directions in which rows of A and of B keep their sums
H                    `gain`: Jᵀ diag(1/v) J + I; each θ has a prior of std 1
Cov θ                H⁻¹ (Jᵀ v⁻¹ Cov(n) v⁻¹ J + I) H⁻¹
===================  ==============================================================================

Numbers. A parametric bootstrap (Efron & Tibshirani 1993, chapter 6). Noise, clip, cells and priors bias a fit, and they
bias a fit to drawn people alike. So a law is sought whose people have on average the fit that was found (Gouriéroux,
Monfort & Renault 1993, indirect inference). The standard deviation of the fits to its people is the standard error.

===================  ==============================================================================
method               code
===================  ==============================================================================
θ̂                    the fit as it was released
θ                    `Law`, from which people are drawn; θ ← θ + θ̂ - b(θ)
B                    samples of m people, for n who came: `_SAMPLES`, `_Sums.number`
θ̂_b                  `_Sums.fits`: from n (ē + √(m/n + 1/B) (e_b - ē)) and noise of the plan, as ē has n/(Bm)
                     of the variance of n people
b(θ)                 mean of θ̂_b
===================  ==============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linear_sum_assignment

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import dynamics
from dpvb.models.sequences.dynamics import DrawnPeople, draw_people
from dpvb.models.sequences.hidden_cells import HiddenCells, HiddenCellsPosterior, cell_moments
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior

# Times that people are drawn and least squares is solved again.
_DRAWN = 3
# Largest number of Newton steps each time.
_ROUNDS = 30
# A reading ends where a step brings the squares down by less; drawn people have no smaller probability.
_STILL, _LEAST_DRAWN = 1e-4, 1e-4
# People whose influence is in memory together.
_TOGETHER = 1000
# Bootstrap samples per correction; the last set gives the standard deviations.
_SAMPLES = (20, 20, 60)
# Upper limit for the points of a sample.
_POINTS = 80_000
# Upper limit for the people of a sample.
_PEOPLE = 4000
# No drawn law has a smaller probability, or a smaller variance in a range of -1 to 1.
_LEAST, _NARROW = 1e-4, 1e-4
# More people than any data have.
_MOST = 1e12


class StepLaws(NamedTuple):
    """Shares of first states (K,), of starts and of windows, steps (K, K) and what states show (K, V)."""

    start_k: Floats
    first_k: Floats
    step_kk: Floats
    shown_kv: Floats

    def moved(self, theta: Floats) -> StepLaws:
        """The laws a step further, of (P,) entries."""
        k, v = self.shown_kv.shape
        start_k, first_k, step, shown = np.split(theta, np.cumsum([k, k, k * (k - 1)]))
        step_kk, shown_kv = step.reshape(k, k - 1) @ free(k).T, shown.reshape(k, v - 1) @ free(v).T
        return StepLaws(
            *(law + change for law, change in zip(self, (start_k, first_k, step_kk, shown_kv), strict=True))
        )


class SlopeCells(NamedTuple):
    """Some released numbers: what is expected of them, its derivatives, (cells, P), and the numbers themselves."""

    mean: Floats
    slope: Floats
    number: Floats
    variance: Floats


class Read(NamedTuple):
    """Released numbers, one after another: those of starts, (V, V), then windows, (V, V, V), as the clip left them."""

    number: Floats
    variance: Floats
    left: Floats
    scale: Floats


def slope_cells(laws: StepLaws, read: Read) -> Iterator[SlopeCells]:
    """All released numbers in the order of `Read`: those of starts, then windows of each first symbol."""
    v = laws.shown_kv.shape[1]
    start_k, first_k, step_kk, shown_kv = laws
    every_vv = np.eye(v)
    ahead_kv = step_kk @ shown_kv
    back_bcj = np.einsum("jb,jc->bcj", shown_kv, ahead_kv)
    behind_bci = back_bcj @ step_kk.T
    begun_kv = start_k[:, None] * shown_kv
    on_step = np.einsum("ia,jb->abij", begun_kv, shown_kv)
    on_shown = np.einsum("av,k,kb->abkv", every_vv, start_k, ahead_kv)
    on_shown += np.einsum("ak,bv->abkv", begun_kv.T @ step_kk, every_vv)
    on_start = np.einsum("ia,ib->abi", shown_kv, ahead_kv)
    yield _joined(read, 0, (begun_kv.T @ ahead_kv, on_start, 0.0 * on_start, on_step, on_shown))
    for a in range(v):
        front_k = first_k * shown_kv[:, a]
        middle_k = front_k @ step_kk
        middle_bj = middle_k * shown_kv.T
        last_bk = middle_bj @ step_kk
        on_first = shown_kv[:, a] * behind_bci
        on_step = np.einsum("i,bcj->bcij", front_k, back_bcj) + np.einsum("bi,jc->bcij", middle_bj, shown_kv)
        on_shown = np.einsum("v,k,bck->bckv", every_vv[a], first_k, behind_bci)
        on_shown += np.einsum("bv,k,kc->bckv", every_vv, middle_k, ahead_kv)
        on_shown += np.einsum("cv,bk->bckv", every_vv, last_bk)
        yield _joined(read, a + 1, (last_bk @ shown_kv, 0.0 * on_first, on_first, on_step, on_shown))


def _joined(read: Read, table: int, parts: tuple[Floats, ...]) -> SlopeCells:
    """The cells of a (V, V) table of released numbers, from what is expected of a share, and its derivatives."""
    mean, on_start, on_first, on_step, on_shown = parts
    place = slice(table * mean.size, (table + 1) * mean.size)
    size = read.left[place] * read.scale[place]
    slopes = [on_start, on_first, on_step @ free(on_step.shape[-1]), on_shown @ free(on_shown.shape[-1])]
    slope = size[:, None] * np.concatenate([one.reshape(len(size), -1) for one in slopes], axis=1)
    return SlopeCells(size * mean.ravel(), slope, read.number[place], read.variance[place])


def free(size: int) -> Floats:
    """Directions in which a law of so many entries keeps its sum, orthonormal, (size, size - 1)."""
    return np.linalg.svd(np.full((1, size), 1.0))[2][1:].T


class StepErrors(NamedTuple):
    """Steps as least squares read them, and their standard deviations, (K, K) each."""

    step_kk: Floats
    std_kk: Floats


def symbol_errors(
    model: HiddenMarkov, q: HiddenMarkovPosterior, rng: np.random.Generator, *, noise_aware: bool = True
) -> StepErrors:
    """The steps, and how far they may be off.

    Args:
        model, q: as fitted, with windows of three symbols.
        rng: public randomness.
        noise_aware: whether the noise counts.
    """
    v = model.n_symbols
    number = np.concatenate([q.start_ww[:v, :v].ravel(), q.pooled.ravel()])
    units, weight = max(float(q.start_ww[:v].sum()), 1.0), max(float(q.pooled.sum()), 1.0)
    of_starts = np.arange(len(number)) < v * v
    noise = np.where(of_starts, q.start_std, q.pooled_std) ** 2
    start_k, first_k, step_kk = q.chain.laws(expected=False)
    laws = StepLaws(start_k, first_k, step_kk, model.shown_kv(q.chain))
    for _ in range(_DRAWN):
        people = _people(model, laws, weight / units, rng)
        left_w = np.where(of_starts, 1.0, np.append(np.zeros(v * v), people.kept(v**3)))
        begun = np.bincount(people.code_nt[:, 0] * v + people.code_nt[:, 1], minlength=v * v) + 1.0
        squares = np.append(begun / len(people.code_nt), people.squares(v**3))
        scale = np.where(of_starts, units, weight / people.share)
        # Longer sequences than are drawn vary as more people do.
        alike = units * max(weight / units / people.weight, 1.0)
        read = Read(number, noise + alike * squares, left_w, scale)
        laws, gain = _fitted(laws, read)
    return StepErrors(laws.step_kk, _std(laws, read, gain, people, alike, noise * noise_aware))


def _people(model: HiddenMarkov, laws: StepLaws, weight: float, rng: np.random.Generator) -> DrawnPeople:
    """People of the laws, whose windows weigh so much on average."""
    sound = (np.maximum(law, _LEAST_DRAWN) for law in laws)
    start_k, _, step_kk, shown_kv = (law / law.sum(axis=-1, keepdims=True) for law in sound)

    def people(number: int, length: int) -> Ints:
        return dynamics.shown(dynamics.drawn(start_k, [step_kk], number, length, rng), shown_kv, rng)

    sizes = model.n_symbols, model.length, model.power, model.bound
    return draw_people(people, sizes, model.max_length, weight, rng)


def _fitted(laws: StepLaws, read: Read) -> tuple[StepLaws, Floats]:
    """The laws by damped Newton steps, and H there."""
    damping = 1.0
    inner, slope, best = _normal(laws, read)
    for _ in range(_ROUNDS):
        moved = laws.moved(np.asarray(np.linalg.solve(inner + damping * np.eye(len(slope)), slope), dtype=np.float64))
        normal = _normal(moved, read)
        if normal[2] > best:
            damping *= 10
            continue
        drop, damping = best - normal[2], max(damping / 10, 1.0)
        laws, (inner, slope, best) = moved, normal
        if drop < _STILL:
            break
    return laws, inner + np.eye(len(slope))


def _normal(laws: StepLaws, read: Read) -> tuple[Floats, Floats, float]:
    """Jᵀ v⁻¹ J, Jᵀ v⁻¹ (n - μ), and the squares (n - μ)² / v."""
    size = sum(law.size for law in laws) - 2 * len(laws.start_k)
    inner, slope, squares = np.zeros((size, size)), np.zeros(size), 0.0
    for cells in slope_cells(laws, read):
        miss, whitened = cells.number - cells.mean, cells.slope / cells.variance[:, None]
        inner += whitened.T @ cells.slope
        slope += whitened.T @ miss
        squares += float((miss**2 / cells.variance).sum())
    return inner, slope, squares


def _std(laws: StepLaws, read: Read, gain: Floats, people: DrawnPeople, units: float, noise: Floats) -> Floats:
    """Standard deviations of the steps."""
    k, v = laws.shown_kv.shape
    steps = slice(2 * k, 2 * k + k * (k - 1))
    to_step = np.kron(np.eye(k), free(k)) @ cho_solve(cho_factor(gain), np.eye(len(gain)))[steps]
    influence = np.vstack([(cells.slope / cells.variance[:, None]) @ to_step.T for cells in slope_cells(laws, read)])
    total, square = np.zeros(k * k), np.zeros(k * k)
    for first in range(0, len(people.code_nt), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        code_nt, place_nm = people.code_nt[some], people.place_nm[some] + v * v
        added_ne = influence[code_nt[:, 0] * v + code_nt[:, 1]]
        for place_n, weight_n in zip(place_nm.T, people.weight_nm[some].T, strict=True):
            added_ne = added_ne + weight_n[:, None] * influence[place_n]
        total, square = total + added_ne.sum(axis=0), square + (added_ne**2).sum(axis=0)
    n = len(people.code_nt)
    sample = units * np.maximum(square / n - (total / n) ** 2, 0.0)
    prior = (to_step**2).sum(axis=1)
    return np.asarray(np.sqrt(sample + noise @ influence**2 + prior).reshape(k, k))


class Law(NamedTuple):
    """Weights of all starts and of all pairs (2,), first states (K,), steps (K, K), means and log variances (K, D)."""

    total_b: Floats
    start_k: Floats
    step_kk: Floats
    mean_kd: Floats
    log_kd: Floats

    @classmethod
    def of(cls, chain: HiddenChain) -> Law:
        """That of a fit."""
        start_k, _, step_kk = chain.laws(expected=False)
        total_b = np.array([(counts - chain.prior).sum() for counts in (chain.start_k, chain.pooled_k)])
        shown: Any = chain.emissions
        return cls(total_b, start_k, step_kk, shown.mean_dk.T, np.log(shown.variance_dk.T))

    def sound(self) -> Law:
        """The nearest law that people can be drawn from."""
        start_k, step_kk = np.maximum(self.start_k, _LEAST), np.maximum(self.step_kk, _LEAST)
        return Law(
            np.clip(self.total_b, 2.0, _MOST),
            start_k / start_k.sum(),
            step_kk / step_kk.sum(axis=1, keepdims=True),
            np.clip(self.mean_kd, -1.0, 1.0),
            np.clip(self.log_kd, math.log(_NARROW), 0.0),
        )

    def moved(self, found: Law, fits: list[Law]) -> Law:
        """The law with what the fits to its people lack of the one that was found."""
        back = (np.mean(ones, axis=0) for ones in zip(*fits, strict=True))
        return Law(*(law + one - mean for law, one, mean in zip(self, found, back, strict=True)))

    def drawn(self, n: int, length: int, rng: np.random.Generator) -> Floats:
        """Points of n people, (n, length, D)."""
        state_nt = dynamics.drawn(self.start_k, [self.step_kk], n, length, rng)
        return np.asarray(rng.normal(self.mean_kd[state_nt], np.exp(self.log_kd / 2)[state_nt]))


def number_errors(
    model: HiddenCells, q: HiddenCellsPosterior, rng: np.random.Generator, *, noise_aware: bool = True
) -> StepErrors:
    """The steps with what bends them put back, and how far they may be off.

    Args:
        model, q: as fitted.
        rng: public randomness.
        noise_aware: whether the noise counts in the deviations.
    """
    fitted = law = Law.of(q.chain)
    for samples in _SAMPLES:
        sums = _Sums.of(model, q, law.sound(), rng)
        added = [sums.added(rng) for _ in range(samples)]
        fits = sums.fits(added, rng, noisy=1.0)
        law = law.moved(fitted, fits)
    counted = fits if noise_aware else sums.fits(added, rng, noisy=0.0)
    # The mean of the fits is no better known than from so many.
    std_kk = np.std([fit.step_kk for fit in counted], axis=0, ddof=1) * math.sqrt(1 + 1 / samples)
    return StepErrors(law.step_kk, np.asarray(std_kk))


@dataclass(frozen=True)
class _Sums:
    """What drawn people add to the blocks, and fits to it.

    Attributes:
        number: n, of people who came, longer sequences than are drawn as more people.
        length_n: lengths that are drawn from.
    """

    model: HiddenCells
    q: HiddenCellsPosterior
    law: Law
    number: float
    length_n: Ints

    @classmethod
    def of(cls, model: HiddenCells, q: HiddenCellsPosterior, law: Law, rng: np.random.Generator) -> _Sums:
        """With as many people as starts were released, and lengths by what pairs weigh."""
        number, pairs = law.total_b.tolist()
        weight = pairs / number

        def codes(n: int, length: int) -> Ints:
            value_ntd = law.drawn(n, length, rng)
            return model.cells.placed(value_ntd.reshape(n * length, -1))[0].reshape(n, length)

        sizes = model.n_symbols, model.length, model.power, model.bound
        people = dynamics.draw_people(codes, sizes, model.max_length, weight, rng)
        length_n = 1 + np.count_nonzero(people.weight_nm, axis=1)
        return cls(model, q, law, number * max(weight / people.weight, 1.0), length_n)

    @property
    def people(self) -> int:
        """People of a sample, m."""
        return int(min(self.number, _PEOPLE, _POINTS / self.length_n.mean()))

    def added(self, rng: np.random.Generator) -> list[Floats]:
        """Means of what people of the law add to each block, clipped."""
        length_n = rng.choice(self.length_n, self.people)
        value_ntd = self.law.drawn(len(length_n), int(length_n.max()), rng)
        model, (n, longest, d) = self.model, value_ntd.shape
        v, size = model.n_symbols, 3 * d * model.n_symbols
        code_t, u_td = model.cells.placed(value_ntd.reshape(n * longest, d))
        code_nt = code_t.reshape(n, longest)
        sizes = v, model.length, model.power, model.bound
        pairs = dynamics.clipped_people(code_nt, length_n, *sizes)
        there_t = np.flatnonzero(np.arange(longest) < length_n[:, None])
        shown = cell_moments(code_t, u_td, there_t)
        place_tf = (there_t // longest * size)[:, None] + shown.place_tf
        sum_nf = np.bincount(place_tf.ravel(), shown.value_tf.ravel(), n * size).reshape(n, size)
        own_nf = length_n[:, None] ** (model.power - 1.0) * sum_nf
        norm_n = np.sqrt((own_nf**2).sum(axis=1))
        moments_f = np.minimum(1.0, model.blocks["moments"].bound / norm_n) @ own_nf
        sums = np.bincount(code_nt[:, 0], minlength=v), pairs.summed(pairs.weight_nm, v * v).reshape(v, v)
        return [np.asarray(total / n, dtype=np.float64) for total in (*sums, moments_f[:, None])]

    def fits(self, added: list[list[Floats]], rng: np.random.Generator, *, noisy: float) -> list[Law]:
        """The laws that are fitted to what each sample added, states in the order of the fit that was found."""
        mean = [np.mean(block, axis=0) for block in zip(*added, strict=True)]
        wide, fits = math.sqrt(self.people / self.number + 1 / len(added)), []
        number_b = self.law.total_b[0], self.number, self.number
        for sums in added:
            blocks = zip(number_b, mean, sums, noisy * self.q.noise_b, strict=True)
            shown = [
                n * (every + wide * (sums_of_one - every)) + rng.normal(0, std, sums_of_one.shape)
                for n, every, sums_of_one, std in blocks
            ]
            chain = self.model.fitted(*self.model.read(shown, self.q.noise_b), self.q.chain).chain
            fits.append(Law.of(chain.permuted(_order(chain, self.q.chain))))
        return fits


def _order(chain: HiddenChain, like: HiddenChain) -> Ints:
    """The states by whose means are nearest."""
    one_kd, two_kd = Law.of(like).mean_kd, Law.of(chain).mean_kd
    square_kk = ((one_kd[:, None] - two_kd) ** 2).sum(axis=2)
    return np.asarray(linear_sum_assignment(np.nan_to_num(square_kk))[1])
