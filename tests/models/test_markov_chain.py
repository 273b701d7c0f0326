"""Markov chains: norms and sums of windows, closed forms without noise, what reading gains, and the long run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

import dpvb
from dpvb.core.blocks import Grid
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats, Ints
from dpvb.kernels.spans import running_total
from dpvb.models.sequences import dynamics, markov_chain
from dpvb.models.sequences.markov_chain import MarkovChainModel
from dpvb.models.sequences.windows import WindowCounts, denoised_pairs, denoised_triples
from dpvb.rows import SequenceRows

V = 3
# A step that is no divisor of anything, so that truncation shows.
GRID = Grid(2.0**-30, 1.0)
CODES = st.lists(st.lists(st.integers(-1, V), max_size=9), min_size=1, max_size=5)
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 7), st.sampled_from([0.0, 0.5, 0.8, 1.0]))


def rows(codes: Sequence[Sequence[int]]) -> SequenceRows:
    flat = np.array([code for one in codes for code in one], dtype=np.int32)
    return SequenceRows(running_total(np.array([*map(len, codes)], dtype=np.int64)), flat)


def windows(codes: Sequence[Sequence[int]], k: int, longest: int) -> list[tuple[int, ...]]:
    """Windows of one person, from the words of the definition."""
    cut = [one[:longest] for one in codes]
    found = [tuple(one[t : t + k]) for one in cut for t in range(len(one) - k + 1)]
    return [window for window in found if all(0 <= symbol < V for symbol in window)]


def statistic(codes: Sequence[Sequence[int]], k: int, longest: int, power: float) -> Floats:
    total, found = np.zeros((V,) * k), windows(codes, k, longest)
    for window in found:
        total[window] += len(found) ** (power - 1)
    return total


def sums(counts: WindowCounts, weight_n: Floats) -> Ints:
    out = np.zeros((V,) * counts.k, dtype=np.int64)
    counts.accumulate(weight_n, GRID, out)
    return out


@pytest.mark.guarantees("sequence counts")
@kills("records", "counts of windows that go on from one person to the next")
@edit("models/sequences/passes_numba.py", "                count[place] = 0\n", "                count[place] += 0\n")
@kills("rows", "each sequence of a person weighed by its own windows")
@edit("models/sequences/windows.py", "return replace(self, units=by_unit(unit_of_row, num_units))", "return self")
@kills("norms", "the norm of a person's windows as if no two were alike")
@edit("models/sequences/passes_numba.py", "square += 2 * count[place] + 1", "square += 1")
@given(CODES, SHAPES)
@settings(max_examples=60, deadline=None)
def test_norms_and_sums_are_those_of_the_definition(codes: list[list[int]], shape: tuple[int, int, float]) -> None:
    """Each sequence by itself, and all as one person: the norm bounds what is added, and little else."""
    k, longest, power = shape
    alone = WindowCounts(rows(codes), k, V, longest, power)
    person = alone.grouped(np.zeros(len(codes), dtype=np.int64), 1)
    for counts, people in ((alone, [[one] for one in codes]), (person, [codes])):
        norm_n = counts.norms()
        for n, own in enumerate(people):
            exact, number = statistic(own, k, longest, power), len(windows(own, k, longest))
            assert np.linalg.norm(exact) <= norm_n[n] <= np.linalg.norm(exact) * (1 + 1e-9)
            assert norm_n[n] <= max(number, 0) ** power * (1 + 1e-9) if number else norm_n[n] == 0
            found = sums(counts, np.eye(len(people))[n]) * GRID.step
            assert np.linalg.norm(found) <= norm_n[n]
            assert np.abs(found - exact).max() <= (number + 1) * GRID.step


@pytest.mark.guarantees("sequence counts")
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_constant_sequences_attain_the_bounds(power: float) -> None:
    """Of several sequences too, whose windows are all one; and the blocks' bounds are those of one whole sequence."""
    for lengths in ((20,), (7, 13, 2), (100_000,)):
        person = WindowCounts(rows([[1] * long for long in lengths]), 2, V, 10**6, power)
        number = sum(long - 1 for long in lengths)
        norm = person.grouped(np.zeros(len(lengths), dtype=np.int64), 1).norms()
        assert norm == pytest.approx([number**power], rel=1e-12)
    assert MarkovChainModel(V, 1, power=power, clip_norm=None).blocks["pairs"].bound == pytest.approx(19**power)
    assert MarkovChainModel(V, 2, power=power, clip_norm=None).blocks["windows"].bound == pytest.approx(18**power)


@given(CODES, SHAPES, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_and_batches_change_no_bit(codes: list[list[int]], shape: tuple[int, int, float], random: Any) -> None:
    weight_n = np.array([random.random() for _ in codes])
    whole = sums(WindowCounts(rows(codes), shape[0], V, *shape[1:]), weight_n)
    order = random.sample(range(len(codes)), len(codes))
    turned = WindowCounts(rows([codes[n] for n in order]), shape[0], V, *shape[1:])
    parts = [WindowCounts(rows([one]), shape[0], V, *shape[1:]) for one in codes]
    assert (sums(turned, weight_n[order]) == whole).all()
    assert (np.add.reduce([sums(part, weight_n[n : n + 1]) for n, part in enumerate(parts)]) == whole).all()


@kills("readers", "windows that cross a gap")
@edit("models/sequences/passes_numba.py", "            run, place = 0, 0\n", "            pass\n")
def test_windows_cross_no_gap_no_end_and_nothing_beyond_the_cap() -> None:
    def pairs(*codes: list[int]) -> list[list[float]]:
        held = WindowCounts(rows(codes), 2, V, 4, 1.0).grouped(np.zeros(len(codes), dtype=np.int64), 1)
        return (sums(held, np.ones(1)) * GRID.step).tolist()

    assert pairs([0, 1, -1, 2]) == pairs([0, 1], [2]) == pairs([0, 1, 99, 2]) == pairs([0, 1])
    assert pairs([0, 1, 2, 0, 1, 1]) == pairs([0, 1, 2, 0])
    assert pairs([]) == pairs([2]) == pairs([-1] * 4) == np.zeros((V, V)).tolist()


def test_reversed_sequences_add_the_transposed_pairs() -> None:
    codes = np.random.default_rng(1).integers(V, size=(50, 8)).tolist()
    forward, backward = (
        sums(WindowCounts(rows(one), 2, V, 8, 0.5), np.ones(50)) for one in (codes, [c[::-1] for c in codes])
    )
    assert (forward == backward.T).all()


def test_without_noise_the_law_is_a_ratio_of_counts() -> None:
    """Both orders; with a prior, what it adds is its weight of the chain of lower order."""
    codes = np.random.default_rng(2).integers(V, size=(400, 8))
    share: Any = {"power": 1.0, "clip_norm": None, "max_length": 8, "epsilon": np.inf, "delta": 1e-6}
    pair_vv, triple = np.zeros((V, V)), np.zeros((V, V, V))
    np.add.at(pair_vv, (codes[:, :-1].ravel(), codes[:, 1:].ravel()), 1)
    np.add.at(triple, (codes[:, :-2].ravel(), codes[:, 1:-1].ravel(), codes[:, 2:].ravel()), 1)
    one = dpvb.MarkovChain(V, prior_weight=0, **share).fit(codes)
    two = dpvb.MarkovChain(V, order=2, prior_weight=0, **share).fit(codes)
    assert one.transition_matrix_ == pytest.approx(pair_vv / pair_vv.sum(axis=1, keepdims=True), rel=1e-5)
    assert two.transition_matrix_ == pytest.approx(triple / triple.sum(axis=2, keepdims=True), rel=1e-5)
    assert one.initial_ == pytest.approx(np.bincount(codes[:, 0], minlength=V) / 400, rel=1e-5)
    drawn = dpvb.MarkovChain(V, prior_weight=50, **share).fit(codes)
    symbol_v = pair_vv.sum(axis=0) + pair_vv.sum(axis=1)
    toward = (pair_vv + 50 * symbol_v / symbol_v.sum()) / (pair_vv.sum(axis=1, keepdims=True) + 50)
    assert drawn.transition_matrix_ == pytest.approx(toward, rel=1e-5)


def test_a_mode_is_where_the_posterior_of_each_row_is_highest() -> None:
    """Of counts above 1 less one of each; of others the mean; and a score of what was not seen is finite."""
    codes = np.random.default_rng(2).integers(V - 1, size=(400, 8))
    share: Any = {"power": 1.0, "clip_norm": None, "max_length": 8, "epsilon": np.inf, "delta": 1e-6}
    mean, mode = (dpvb.MarkovChain(V, estimate=one, **share).fit(codes) for one in ("posterior", "map"))
    alpha = mean.transition_matrix_ * (mean._q.windows.sum(axis=1, keepdims=True) + 10)
    highest = np.maximum(alpha - 1, 0)[: V - 1]
    assert mode.transition_matrix_[: V - 1] == pytest.approx(highest / highest.sum(axis=1, keepdims=True), abs=1e-8)
    assert mode.transition_matrix_[V - 1, : V - 1] == pytest.approx(1 / (V - 1), abs=0.05)
    assert np.isfinite(mode.score([[0, V - 1, 0]], public=True))
    for left, right in zip(mean.transition_intervals(), mode.transition_intervals(), strict=True):
        assert left.std == right.std
    assert [line.mean for line in mode.transition_intervals()] == mode.transition_matrix_.ravel().tolist()


@pytest.mark.parametrize("order", [1, 2])
def test_a_reading_is_nearer_than_the_noise_and_stays_finite(order: int) -> None:
    """Of sparse counts: a quarter less squared error than with negative entries set to 0 (seed 3)."""
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.full(12, 0.1), size=(12,) * order)
    counts = 4000.0 / law[..., 0].size * law
    read: Any = denoised_pairs if order == 1 else lambda x, sd: denoised_triples(x, sd)[1]
    noisy = counts + 5.0 * rng.standard_normal(counts.shape)
    found = read(noisy, 5.0)
    assert ((found - counts) ** 2).sum() < 0.75 * ((np.maximum(noisy, 0) - counts) ** 2).sum()
    for sd in (1e-12, 1e6, 1e150):
        out = read(sd * rng.standard_normal(counts.shape), sd)
        assert np.isfinite(out).all()
        assert (out >= 0).all()


def test_the_long_run_of_a_chain() -> None:
    rng = np.random.default_rng(4)
    law = rng.dirichlet(np.ones(V), size=V)
    state = dynamics.stationary(law)
    assert state @ law == pytest.approx(state)
    assert dynamics.durations(law) == pytest.approx(1 / (1 - np.diag(law)))
    doubled = np.broadcast_to(law, (V, V, V)).copy()  # A chain of order 1 as one of order 2.
    assert dynamics.symbol_shares(doubled) == pytest.approx(state)
    assert dynamics.durations(doubled) == pytest.approx(dynamics.durations(law))
    two = rng.dirichlet(np.ones(V), size=(V, V))
    pair = dynamics.stationary(two)
    assert np.einsum("ab,abc->bc", pair, two) == pytest.approx(pair)
    periodic = np.roll(np.eye(V), 1, axis=1)
    assert dynamics.stationary(periodic) == pytest.approx(np.full(V, 1 / V))


def test_drawn_sequences_have_the_laws_they_are_drawn_from() -> None:
    """Within 6 standard deviations for each of 39 numbers: a false alarm in 1e7 (seed 5)."""
    rng = np.random.default_rng(5)
    first, pair, triple = (rng.dirichlet(np.ones(V), size=(V,) * order) for order in (0, 1, 2))
    code = dynamics.drawn(first, [pair, triple], 20_000, 6, rng)
    for lag, law in enumerate((first, pair, triple)):
        for before in itertools.product(range(V), repeat=lag):
            own = np.all([code[:, t] == symbol for t, symbol in enumerate(before)], axis=0) if before else slice(None)
            found = np.bincount(code[own, lag], minlength=V)
            expected = found.sum() * law[before]
            assert np.abs(found - expected).max() <= 6 * np.sqrt(expected.max()) + 1


def test_deviations_follow_the_derivative_of_the_law() -> None:
    """Of the noise alone and of the sample alone, against numerical derivatives."""
    rng = np.random.default_rng(6)
    counts, weight = rng.gamma(2.0, 100.0, (V, V)), 0.3
    law = counts / counts.sum(axis=1, keepdims=True)
    noise = markov_chain.deviations(law, counts, 0.0, 0.0, 7.0)
    for row, b in itertools.product(range(V), range(V)):
        slopes = []
        for place in range(V):
            moved = counts[row].copy()
            moved[place] += 1e-3
            slopes.append((moved[b] / moved.sum() - law[row, b]) / 1e-3)
        assert noise[row, b] == pytest.approx(7.0 * np.linalg.norm(slopes), rel=1e-4)
    sample = markov_chain.deviations(law, counts, 0.0, weight, 0.0)
    assert sample == pytest.approx(np.sqrt(law * (1 - law) * weight / counts.sum(axis=1, keepdims=True)))
    for power in (0.5, 0.7, 1.0):  # 100 persons of 16 windows each.
        assert markov_chain.window_weight(100 * 16**power, 100, power) == pytest.approx(16 ** (power - 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_symbols": 1}, "n_symbols must be"),
        ({"n_symbols": 1001}, "at most 1000 for a chain of order 1"),
        ({"n_symbols": 41, "order": 2}, "at most 40 .* order=1 takes up to 1,000"),
        ({"order": 3}, "order must be"),
        ({"power": 0.4}, "power must be"),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"max_length": 2, "order": 2}, "max_length must be"),
        ({"prior_weight": -1.0}, "prior_weight must be"),
        ({"estimate": "median"}, "estimate must be"),
    ],
)
def test_a_public_mistake_is_refused_with_a_way_out(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        MarkovChainModel(**{"n_symbols": V, **change})
