"""Contributions: the law that ties norms to sums, exact integers, purity, hostile numbers.

The law, for every unit n: ‖accumulate(e_n)‖·step ≤ norms()[n] ≤ (1 + 1e-5)·‖s_n‖ + tiny; here with exact
arithmetic on the left, and a clipped unit never above its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from small_models import D

from dpvb.core.blocks import Contribution, Grid, triangle, upper_norms
from dpvb.core.forms import Gram, GramOfSums, Kron, MeasuredRows, Rows, ScaledRows, SparseRows, grouped
from dpvb.models.topics import kernel as kernel
from dpvb.models.topics.kernel import Factored

MARGIN = 1.0 - 2.0**-20
GRID = Grid(2.0**-34, 1.0)


def exact_square(values: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in np.ravel(values)), Fraction(0))


def full_square(steps: np.ndarray, symmetric: bool) -> int:
    """Exact squared Frobenius norm; packed upper triangles count their off-diagonal entries twice."""
    weight = np.ones(steps.shape, dtype=int)
    if symmetric:
        d = (math.isqrt(8 * steps.shape[-1] + 1) - 1) // 2
        row, column = triangle(d)
        weight[..., row != column] = 2
    return sum(int(w) * int(v) ** 2 for w, v in zip(weight.ravel(), steps.ravel(), strict=True))


def make_rows(rng: np.random.Generator, n: int) -> Rows:
    return Rows(rng.standard_normal((n, 2, 3)) * 10.0 ** rng.uniform(-4, 4, (n, 1, 1)))


def make_symmetric_rows(rng: np.random.Generator, n: int) -> Rows:
    a = rng.standard_normal((n, D, D)) * 10.0 ** rng.uniform(-4, 4, (n, 1, 1))
    return Rows(a + np.swapaxes(a, 1, 2), symmetric=True)


def make_scaled_rows(rng: np.random.Generator, n: int) -> ScaledRows:
    x = rng.standard_normal((n, 5)) * 10.0 ** rng.uniform(-4, 4, (n, 1))
    return ScaledRows(MeasuredRows(x), rng.standard_normal(n))


def make_sparse_rows(rng: np.random.Generator, n: int) -> SparseRows:
    dense = rng.standard_normal((n, 9)) * (rng.random((n, 9)) < 0.5) * 10.0 ** rng.uniform(-4, 4, (n, 1))
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]).astype(np.int64)
    return SparseRows(indptr, np.nonzero(dense)[1].astype(np.int32), dense[dense != 0])


def make_kron(rng: np.random.Generator, n: int) -> Kron:
    scale = 10.0 ** rng.uniform(-4, 4, (2, n, 1))
    return Kron(rng.standard_normal((n, 2)) * scale[0], rng.standard_normal((n, 3)) * scale[1])


def make_gram(rng: np.random.Generator, n: int) -> Gram:
    x = rng.standard_normal((n, D)) * 10.0 ** rng.uniform(-2, 2, (n, 1))
    return Gram(x, rng.random(n))


def make_gram_of_sums(rng: np.random.Generator, n: int) -> GramOfSums:
    x = rng.standard_normal((n, D)) * 10.0 ** rng.uniform(-2, 2, (n, 1))
    return GramOfSums(MeasuredRows(x), rng.standard_normal(n))


def make_factored(rng: np.random.Generator, n: int, dtype: type = np.float64) -> Factored:
    """Documents over 9 words and 4 topics, from the kernel's own local step."""
    counts = rng.poisson(0.7, (n, 9)) * 10.0 ** rng.uniform(-4, 4, (n, 1))
    beta = rng.dirichlet(np.full(9, 0.3), 4).T.astype(dtype)
    indptr = np.concatenate([[0], np.cumsum((counts > 0).sum(axis=1))])
    indices = np.nonzero(counts)[1].astype(np.int32)
    theta, ratio, norm, _ = kernel.local_step(
        indptr, indices, counts[counts > 0], beta, np.full(4, 0.1), max_iter=20, threads=1
    )
    return Factored(indptr, indices, ratio, theta, beta, norm)


Maker = Callable[[np.random.Generator, int], Contribution]
MAKERS: dict[str, tuple[Maker, tuple[int, ...], bool]] = {
    "rows": (make_rows, (2, 3), False),
    "symmetric_rows": (make_symmetric_rows, (D * (D + 1) // 2,), True),
    "scaled_rows": (make_scaled_rows, (5,), False),
    "sparse_rows": (make_sparse_rows, (9,), False),
    "kron": (make_kron, (2, 3), False),
    "gram": (make_gram, (D * (D + 1) // 2,), True),
    "gram_of_sums": (make_gram_of_sums, (D * (D + 1) // 2,), True),
    "factored": (make_factored, (9, 4), False),
    "factored_compiled": (lambda rng, n: make_factored(rng, n, np.float32), (9, 4), False),
}
FORMS = pytest.mark.parametrize("form", MAKERS)


def total(contribution: Contribution, weights: np.ndarray, shape: tuple[int, ...], grid: Grid = GRID) -> np.ndarray:
    out = np.zeros(shape, dtype=np.int64)
    contribution.accumulate(np.asarray(weights, dtype=np.float64), grid, out)
    return out


def true_values(contribution: Contribution) -> np.ndarray:
    """The dense statistic of every unit, in float64."""
    if isinstance(contribution, Rows):
        return contribution.values
    if isinstance(contribution, ScaledRows):
        return contribution.rows.x_nd * contribution.scale_n[:, None]
    if isinstance(contribution, Kron):
        return np.einsum("na,nb->nab", contribution.left, contribution.right)
    if isinstance(contribution, Gram):
        return np.einsum("n,na,nb->nab", contribution.scale_n, contribution.x_nd, contribution.x_nd)
    if isinstance(contribution, GramOfSums):
        return np.einsum("n,na,nb->nab", contribution.scale_n**2, contribution.rows.x_nd, contribution.rows.x_nd)
    if isinstance(contribution, SparseRows):
        sparse = np.zeros((len(contribution.indptr) - 1, 9))
        row = np.repeat(np.arange(len(sparse)), np.diff(contribution.indptr))
        sparse[row, contribution.indices] = contribution.values
        return sparse
    assert isinstance(contribution, Factored)
    dense = np.zeros((len(contribution.norm), *contribution.beta.shape))
    for n in range(len(dense)):
        for j in range(contribution.indptr[n], contribution.indptr[n + 1]):
            v = contribution.indices[j]
            dense[n, v] = contribution.theta[n] * contribution.beta[v].astype(np.float64) * contribution.ratio[j]
    return dense


def clipped_weights(contribution: Contribution, bound: float = 1.0) -> np.ndarray:
    norms = contribution.norms()
    usable = np.isfinite(norms)
    with np.errstate(over="ignore"):
        return np.where(usable, MARGIN / np.maximum(np.where(usable, norms, 0.0) / bound, MARGIN), 0.0)


@kills("norms", "the norm of a scaled row without its scale")
@edit(
    "core/forms.py",
    "np.abs(self.scale_n) * self.rows.length_n * (1.0 + 2.0**-50)",
    "self.rows.length_n * (1.0 + 2.0**-50)",
)
@FORMS
def test_the_law(form: str) -> None:
    maker, shape, symmetric = MAKERS[form]
    contribution = maker(np.random.default_rng(1), 60)
    norms, values = contribution.norms(), true_values(contribution)
    # A grid as fine as each unit allows, so that truncation hides nothing.
    for n in range(60):
        exponent = math.frexp(norms[n])[1]
        grid = Grid(2.0 ** (exponent - 40), 2.0**exponent)
        steps = total(contribution, np.eye(60)[n], shape, grid)
        assert full_square(steps, symmetric) * Fraction(grid.step) ** 2 <= Fraction(norms[n]) ** 2
        truth = float(np.linalg.norm(values[n]))
        assert truth * (1 - 1e-12) <= norms[n] <= (1 + (1e-5 if form.startswith("gram") else 1e-6)) * truth + 1e-290


@pytest.mark.guarantees("clipping")
@FORMS
def test_a_clipped_unit_never_exceeds_the_bound(form: str) -> None:
    """Exactly, in integers: the sum of squares of the steps is at most (bound / step)²."""
    maker, shape, symmetric = MAKERS[form]
    for bound in (1.0, 0.7, 1e-3):
        grid = Grid(2.0 ** (math.ceil(math.log2(bound)) - 36), bound)
        contribution = maker(np.random.default_rng(2), 80)
        weights = clipped_weights(contribution, bound)
        sizes = []
        for n in range(80):
            weight = np.zeros(80)
            weight[n] = weights[n]
            steps = total(contribution, weight, shape, grid)
            square = Fraction(full_square(steps, symmetric)) * Fraction(grid.step) ** 2
            assert square <= Fraction(bound) ** 2
            sizes.append(math.sqrt(square) / bound)
        assert max(sizes) > 1 - 1e-5  # and the bound is used to the full


@FORMS
def test_truncation_is_toward_zero_and_by_less_than_the_stated_step(form: str) -> None:
    maker, shape, symmetric = MAKERS[form]
    contribution = maker(np.random.default_rng(3), 40)
    weights = clipped_weights(contribution)
    values = true_values(contribution)
    if symmetric:
        row, column = triangle(D)
        full = values if values.shape[-1] == D else values.reshape(-1, D, D)
        values = full[:, row, column]
    # a factor of an outer product carries 17 bits at this grid: a relative step of 2^-16 of the bound
    tolerance = 2.0**-15 if form in ("kron", "gram", "gram_of_sums") else GRID.step * (1 + 1e-9)
    for n in range(40):
        weight = np.zeros(40)
        weight[n] = weights[n]
        got = total(contribution, weight, shape) * GRID.step
        exact = weights[n] * values[n]
        assert form.startswith("gram") or (np.abs(got) <= np.abs(exact) * (1 + 1e-12)).all()
        assert (np.abs(got - exact) <= tolerance).all()
        assert (got * exact >= 0).all()


@pytest.mark.guarantees("exact sums")
@FORMS
def test_sums_are_the_same_bits_under_any_order_and_split(form: str) -> None:
    """100 permutations and splits; the weights of clipping are found anew in each piece."""
    maker, shape, _ = MAKERS[form]
    contribution = maker(np.random.default_rng(4), 200)
    whole = total(contribution, clipped_weights(contribution), shape)
    one_by_one = np.zeros(shape, dtype=np.int64)
    norms = contribution.norms()
    rng = np.random.default_rng(5)
    for _ in range(100):
        order = rng.permutation(200)
        pieces = np.split(order, np.sort(rng.integers(0, 201, rng.integers(0, 5))))
        sums = np.zeros(shape, dtype=np.int64)
        for piece in pieces:
            part = subset(contribution, piece)
            assert np.array_equal(part.norms(), norms[piece])
            part.accumulate(clipped_weights(part), GRID, sums)
        assert np.array_equal(sums, whole)
    for n in range(200):
        part = subset(contribution, np.array([n]))
        part.accumulate(clipped_weights(part), GRID, one_by_one)
    assert np.array_equal(one_by_one, whole)


def subset(contribution: Contribution, rows: np.ndarray) -> Contribution:
    if isinstance(contribution, Rows):
        return Rows(contribution.values[rows], contribution.symmetric)
    if isinstance(contribution, ScaledRows):
        return ScaledRows(MeasuredRows(contribution.rows.x_nd[rows]), contribution.scale_n[rows])
    if isinstance(contribution, Kron):
        return Kron(contribution.left[rows], contribution.right[rows])
    if isinstance(contribution, Gram):
        return Gram(contribution.x_nd[rows], contribution.scale_n[rows])
    if isinstance(contribution, GramOfSums):
        return GramOfSums(MeasuredRows(contribution.rows.x_nd[rows]), contribution.scale_n[rows])
    assert isinstance(contribution, (Factored, SparseRows))
    spans = [slice(contribution.indptr[n], contribution.indptr[n + 1]) for n in rows]
    indptr = np.concatenate([[0], np.cumsum([span.stop - span.start for span in spans], dtype=np.int64)]).astype(
        np.int64
    )
    indices = np.concatenate([np.empty(0, np.int32), *(contribution.indices[s] for s in spans)])
    if isinstance(contribution, SparseRows):
        return SparseRows(indptr, indices, np.concatenate([np.empty(0), *(contribution.values[s] for s in spans)]))
    ratio = np.concatenate([np.empty(0), *(contribution.ratio[s] for s in spans)])
    theta, norm = contribution.theta[rows], contribution.norm[rows]
    return Factored(indptr, indices, ratio, theta, contribution.beta, norm)


@FORMS
def test_a_unit_of_weight_zero_is_never_read(form: str) -> None:
    maker, shape, _ = MAKERS[form]
    contribution = maker(np.random.default_rng(6), 10)
    weights = clipped_weights(contribution)
    weights[[0, 3]] = 0.0
    before = total(contribution, weights, shape)
    for poison in (math.nan, math.inf, -math.inf):
        if isinstance(contribution, Rows):
            contribution.values[[0, 3]] = poison
        elif isinstance(contribution, ScaledRows | GramOfSums):
            contribution.rows.x_nd.flags.writeable = True
            contribution.rows.x_nd[0], contribution.scale_n[3] = poison, poison
        elif isinstance(contribution, Kron):
            contribution.left[0], contribution.right[3] = poison, poison
        elif isinstance(contribution, Gram):
            contribution.x_nd[0], contribution.scale_n[3] = poison, poison
        elif isinstance(contribution, SparseRows):
            for n in (0, 3):
                contribution.values[contribution.indptr[n] : contribution.indptr[n + 1]] = poison
        elif isinstance(contribution, Factored):
            contribution.theta[[0, 3]] = poison
            for n in (0, 3):
                contribution.ratio[contribution.indptr[n] : contribution.indptr[n + 1]] = poison
        with np.errstate(all="raise"):
            assert np.array_equal(total(contribution, weights, shape), before)


@pytest.mark.parametrize("d", [1, 2, 64, 10_000])
def test_norms_of_hostile_numbers_are_never_below_the_truth(d: int) -> None:
    """Entries ±10^U(-300, 300), subnormal, zero and mixtures, against exact rational arithmetic."""
    rng = np.random.default_rng(d)
    n = {1: 400, 2: 400, 64: 40, 10_000: 4}[d]
    x = 10.0 ** rng.uniform(-300, 300, (n, d)) * rng.choice([-1.0, 1.0], (n, d))
    x[n // 4 : n // 2] = 5e-324 * rng.integers(0, 1000, (n // 2 - n // 4, d))
    x[n // 2 : 3 * n // 4] *= 10.0 ** -(np.log10(np.abs(x[n // 2 : 3 * n // 4])).max(axis=1, keepdims=True))
    x[-1] = 0.0
    norms = upper_norms(x)
    assert norms[-1] == 0.0
    for row, norm in zip(x, norms, strict=True):
        truth = exact_square(row)
        assert Fraction(norm) ** 2 >= truth
        assert (Fraction(norm) - Fraction(2) ** -999) ** 2 <= truth * Fraction(1 + 1e-6) ** 2 or norm < 2.0**-998


def test_norms_near_overflow() -> None:
    huge = np.array(
        [[1.7e308, 1.7e308], [1.7e308, 0.0], [1e308, -1e308], [math.inf, 0.0], [math.nan, 1.0], [-math.inf, math.nan]]
    )
    norms = upper_norms(huge)
    assert norms[0] == math.inf  # 2.4e308 is no number, and the wall drops the unit
    assert 1.7e308 <= norms[1] <= 1.7e308 * (1 + 1e-6)
    assert math.sqrt(2) * 1e308 <= norms[2] < math.inf
    assert (norms[3:] == math.inf).all()
    assert np.array_equal(upper_norms(np.zeros((3, 0))), np.zeros(3))
    assert upper_norms(np.zeros((0, 4))).shape == (0,)


@pytest.mark.parametrize("bound", [1.0, 1e-14, 1e14, 1e-100])
def test_hostile_outer_products_are_clipped(bound: float) -> None:
    """Factors of opposite extremes, whose product is ordinary, through subnormal numbers and back."""
    rng = np.random.default_rng(8)
    exponent = rng.uniform(-300, 300, (400, 1))
    left = rng.standard_normal((400, 2)) * 10.0**exponent
    right = rng.standard_normal((400, 2)) * 10.0 ** (-exponent + rng.uniform(-6, 6, (400, 1)))
    left[:3], right[:3] = [[1.7e308, 0], [5e-324, 0], [1e-310, 1e-310]], [[1e-20, 0], [1e308, 0], [1e300, 1e290]]
    kron = Kron(left, right)
    grid = Grid(2.0 ** (math.ceil(math.log2(bound)) - 36), bound)
    weights = clipped_weights(kron, bound)
    for n in range(400):
        weight = np.zeros(400)
        weight[n] = weights[n]
        steps = total(kron, weight, (2, 2), grid)
        assert full_square(steps, False) * Fraction(grid.step) ** 2 <= Fraction(bound) ** 2


@pytest.mark.parametrize("bound", [1.0, 1e-14, 1e14, 1e-100, 2.0**-500, 2.0**500])
def test_hostile_grams_are_clipped(bound: float) -> None:
    """Scales and factors of opposite extremes, subnormal numbers, and squares that overflow on the way."""
    rng = np.random.default_rng(21)
    exponent = rng.uniform(-300, 150, 400)
    x = rng.standard_normal((400, 2)) * 10.0 ** exponent[:, None]
    scale = 10.0 ** np.clip(rng.uniform(-6, 6, 400) - 2 * exponent, -320, 300)
    x[:4], scale[:4] = [[1.7e308, 0], [5e-324, 0], [1e-310, 1e-310], [1e154, 1.0]], [5e-324, 1e308, 1e300, 1.0]
    gram = Gram(x, scale)
    grid = Grid(2.0 ** (math.ceil(math.log2(bound)) - 36), bound)
    norms, weights = gram.norms(), clipped_weights(gram, bound)
    for n in range(400):
        assert Fraction(norms[n]) >= Fraction(scale[n]) * exact_square(x[n])
        weight = np.zeros(400)
        weight[n] = weights[n]
        steps = total(gram, weight, (3,), grid)
        assert full_square(steps, True) * Fraction(grid.step) ** 2 <= Fraction(bound) ** 2


@pytest.mark.parametrize("bound", [1.0, 1e-14, 1e14, 1e-100, 2.0**-500, 2.0**500])
def test_hostile_scaled_rows_are_clipped(bound: float) -> None:
    """Scales and rows of opposite extremes, and products that underflow; what is not finite is dropped."""
    rng = np.random.default_rng(22)
    exponent = rng.uniform(-300, 300, 400)
    x = rng.standard_normal((400, 2)) * 10.0 ** exponent[:, None]
    scale = rng.choice([-1.0, 1.0], 400) * 10.0 ** np.clip(rng.uniform(-6, 6, 400) - exponent, -320, 300)
    x[:4], scale[:4] = [[1.7e308, 0], [5e-324, 0], [1e-310, 1e-310], [1e-200, 1.0]], [5e-324, 1e308, 1e300, 1e-320]
    x[4:6], scale[4:9] = [[math.nan, 0], [math.inf, 0]], [0.0, 0.0, math.nan, math.inf, 0.0]
    scaled = ScaledRows(MeasuredRows(x), scale)
    grid = Grid(2.0 ** (math.ceil(math.log2(bound)) - 36), bound)
    norms, weights = scaled.norms(), clipped_weights(scaled, bound)
    assert not np.isfinite(norms[4:8]).any()
    assert np.isfinite(norms[8:]).all()
    for n in [*range(4), *range(8, 400)]:
        assert Fraction(norms[n]) ** 2 >= Fraction(scale[n]) ** 2 * exact_square(x[n])
        weight = np.zeros(400)
        weight[n] = weights[n]
        steps = total(scaled, weight, (2,), grid)
        assert full_square(steps, False) * Fraction(grid.step) ** 2 <= Fraction(bound) ** 2


def test_scaled_rows_are_rows() -> None:
    """On the same grid and weights, each entry within a step of the product's own; the zero scale adds nothing."""
    rng = np.random.default_rng(23)
    scaled = make_scaled_rows(rng, 500)
    rows, weights = Rows(true_values(scaled)), clipped_weights(scaled)
    np.testing.assert_allclose(rows.norms(), scaled.norms(), rtol=1e-13)
    for n in range(0, 500, 7):
        weight = np.where(np.arange(500) == n, weights, 0.0)
        assert np.abs(total(scaled, weight, (5,)) - total(rows, weight, (5,))).max() <= 1
    person = np.arange(500) // 5
    # A person's rows are summed before the norm is taken: the triangle inequality would cost accuracy.
    np.testing.assert_allclose(grouped(scaled, person, 100).norms(), grouped(rows, person, 100).norms(), rtol=1e-13)
    none = ScaledRows(scaled.rows, np.zeros(500))
    assert not total(none, np.ones(500), (5,)).any()
    empty = ScaledRows(MeasuredRows(np.zeros((0, 5))), np.zeros(0))
    assert not total(empty, np.zeros(0), (5,)).any()


def test_a_scale_below_zero_is_dropped_and_a_zero_one_adds_nothing() -> None:
    x = np.ones((3, 2))
    gram = Gram(x, np.array([-1.0, 0.0, 1.0]))
    assert np.isnan(gram.norms()[0])
    assert gram.norms()[1] < 1e-290
    weights = clipped_weights(gram)
    assert np.array_equal(total(gram, weights, (3,)), total(Gram(x[2:], np.ones(1)), weights[2:], (3,)))


@pytest.mark.parametrize("weight", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("bound", [0.25, 1.0, 0.7, 3e7])
def test_the_precision_of_a_gram(weight: float, bound: float) -> None:
    """On a fine grid within about 2⁻²⁰ of the bound, and of a small weight no more than its root is lost."""
    x = np.random.default_rng(22).standard_normal((50, 7))
    gram = Gram(x, np.full(50, bound) / (x * x).sum(axis=1))
    grid = Grid(2.0 ** (math.ceil(math.log2(bound)) - 45), bound)
    for n in range(50):
        row, column = triangle(7)
        own = total(gram, weight * (1 - 2.0**-20) * np.eye(50)[n], (28,), grid) * grid.step
        exact = weight * (1 - 2.0**-20) * gram.scale_n[n] * x[n][row] * x[n][column]
        assert (np.abs(own - exact) <= 2.0**-19.5 * math.sqrt(weight) * bound).all()


@pytest.mark.parametrize("d", [3, 20, 300])
def test_sums_of_grams_are_hardly_biased(d: int) -> None:
    """On the grid of a noiseless release, where truncating entries would take 3e-6·√d off every sum."""
    x = np.random.default_rng(25).standard_normal((3000, d))
    gram = Gram(x, 0.2 / (x * x).sum(axis=1))
    summed = total(gram, clipped_weights(gram, 0.25), (d * (d + 1) // 2,), Grid(2.0**-38, 0.25))
    row, column = triangle(d)
    trace = float(summed[row == column].sum()) * 2.0**-38
    assert abs(trace / (0.2 * 3000) - 1) < 5e-7


@pytest.mark.parametrize("bits", [-3, 0, 1, 2, 7, 40, 60])
def test_grams_fit_any_grid(bits: int) -> None:
    gram = make_gram(np.random.default_rng(23), 30)
    grid = Grid(2.0**-bits, 0.9)
    weights = clipped_weights(gram, 0.9)
    whole = total(gram, weights, (D * (D + 1) // 2,), grid)
    parts = np.zeros_like(whole)
    for n in range(30):
        own = total(subset(gram, np.array([n])), weights[[n]], whole.shape, grid)
        assert full_square(own, True) * Fraction(grid.step) ** 2 <= Fraction(0.9) ** 2
        parts += own
    assert np.array_equal(parts, whole)


def test_many_grams_sum_exactly() -> None:
    """Rows at the bound, all alike, in products as tall as they come: sums as large as they can be."""
    n = 5000
    x = np.repeat(np.random.default_rng(24).standard_normal((1, 2)), n, axis=0)
    gram, grid = Gram(x, np.ones(n)), Grid(2.0**-42, 1.0)
    weights = clipped_weights(gram)
    one = total(subset(gram, np.array([0])), weights[:1], (3,), grid)
    assert np.array_equal(total(gram, weights, (3,), grid), n * one)


@pytest.mark.parametrize("bits", [-3, 0, 1, 2, 7, 40, 60])
def test_outer_products_fit_any_grid(bits: int) -> None:
    """Coarse grids round everything away, fine ones keep 21 bits a factor; the sum stays exact and bounded."""
    kron = make_kron(np.random.default_rng(9), 30)
    grid = Grid(2.0**-bits, 0.9)
    weights = clipped_weights(kron, 0.9)
    whole = total(kron, weights, (2, 3), grid)
    parts = np.zeros((2, 3), dtype=np.int64)
    for n in range(30):
        weight = np.zeros(30)
        weight[n] = weights[n]
        own = total(kron, weight, (2, 3), grid)
        assert full_square(own, False) * Fraction(grid.step) ** 2 <= Fraction(0.9) ** 2
        parts += own
    assert np.array_equal(parts, whole)


def test_many_outer_products_sum_exactly() -> None:
    """Rows at the bound, more than one product chunk of them: int64 of the sum equals the sum of int64."""
    rng = np.random.default_rng(10)
    n = 5000
    x = rng.standard_normal((n, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[:] = x[0]  # all alike: the sums are as large as they can be
    kron, grid = Kron(x, x), Grid(2.0**-42, 1.0)
    weights = clipped_weights(kron)
    one = total(Kron(x[:1], x[:1]), weights[:1], (2, 2), grid)
    assert np.array_equal(total(kron, weights, (2, 2), grid), n * one)


def test_norms_do_not_depend_on_the_place_in_a_batch() -> None:
    rng = np.random.default_rng(12)
    for d in (1, 3, 8, 31, 100, 8193, 20_000):
        x = rng.standard_normal((9, d)) * np.exp(rng.standard_normal((9, d)))
        alone = np.array([upper_norms(x[n : n + 1])[0] for n in range(9)])
        assert np.array_equal(upper_norms(x), alone)
        assert np.array_equal(upper_norms(x[::-1]), alone[::-1])


# --- groups -------------------------------------------------------------------------------------------------


def test_dense_groups_use_the_norm_of_the_persons_sum() -> None:
    rows = Rows(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    person = np.array([0, 0, 1, 1])
    together = grouped(rows, person, 3)
    np.testing.assert_allclose(together.norms(), [0.0, 2.0, 0.0], rtol=1e-6, atol=1e-290)
    assert np.array_equal(total(together, np.ones(3), (2,)) * GRID.step, [0.0, 2.0])


@FORMS
def test_group_law(form: str) -> None:
    """A person's integers stay below the declared norm, and within the bound once clipped."""
    maker, shape, symmetric = MAKERS[form]
    contribution = maker(np.random.default_rng(13), 60)
    person = np.sort(np.random.default_rng(14).integers(0, 12, 60))
    together = grouped(contribution, person, 12)
    norms, weights = together.norms(), clipped_weights(together)
    values = true_values(contribution)
    for p in range(12):
        if isinstance(contribution, GramOfSums):
            scores = (contribution.rows.x_nd * contribution.scale_n[:, None])[person == p]
            least, most = np.linalg.norm(scores.sum(axis=0)) ** 2, np.linalg.norm(scores, axis=1).sum() ** 2
        else:
            least = np.linalg.norm(values[person == p].sum(axis=0))
            most = np.linalg.norm(values[person == p], axis=tuple(range(1, values.ndim))).sum()
        assert least * (1 - 1e-12) <= norms[p] <= most * (1 + 1e-5) + 1e-280
        weight = np.zeros(12)
        weight[p] = weights[p]
        steps = total(together, weight, shape)
        assert full_square(steps, symmetric) <= Fraction(1 / GRID.step) ** 2
    # Persons of one row: the grouped and the plain form agree to the bit.
    single = grouped(contribution, np.arange(60), 60)
    assert np.array_equal(single.norms(), contribution.norms())
    weights = clipped_weights(contribution)
    assert np.array_equal(total(single, weights, shape), total(contribution, weights, shape))


@kills("records", "norm bound that knows the size of the batch")
@edit(
    "core/forms.py",
    "added * 2.0**-52",
    "len(self.unit_of_row) * 2.0**-40",
)
@FORMS
@given(others=st.integers(0, 40), seed=st.integers(0, 2**32 - 1))
def test_a_persons_sum_does_not_depend_on_the_other_persons(form: str, others: int, seed: int) -> None:
    maker, shape, _ = MAKERS[form]
    rows = maker(np.random.default_rng(seed), 4 + others)
    if isinstance(rows, Factored) and not rows.indices.size:
        return
    person = np.concatenate([np.zeros(4, dtype=np.int64), 1 + np.arange(others) // 3])
    count = int(person.max()) + 1
    both = grouped(rows, person, count)
    alone = grouped(subset(rows, np.arange(4)), person[:4], 1)
    assert both.norms()[0] == alone.norms()[0]
    weight = clipped_weights(both)
    weight[1:] = 0.0
    assert np.array_equal(total(both, weight, shape), total(alone, clipped_weights(alone), shape))


@FORMS
@each("poison", [math.nan, math.inf, -math.inf])
def test_a_bad_row_is_dropped_and_the_rest_of_its_person_stays(form: str, poison: float) -> None:
    maker, shape, _ = MAKERS[form]
    rows = maker(np.random.default_rng(15), 12)
    person = np.repeat(np.arange(4), 3)
    kept = np.delete(np.arange(12), 4)
    expected = grouped(subset(rows, kept), person[kept], 4)
    if isinstance(rows, Rows):
        rows.values[4] = poison
    elif isinstance(rows, ScaledRows | GramOfSums):
        rows.scale_n[4] = poison
    elif isinstance(rows, Kron):
        rows.left[4] = poison
    elif isinstance(rows, Gram):
        rows.scale_n[4] = poison
    elif isinstance(rows, SparseRows):
        rows.values[rows.indptr[4] : rows.indptr[5]] = poison
    elif isinstance(rows, Factored):
        rows.norm[4] = math.inf
        rows.ratio[rows.indptr[4] : rows.indptr[5]] = poison
    together = grouped(rows, person, 4)
    np.testing.assert_allclose(together.norms(), expected.norms(), rtol=1e-14)
    weights = clipped_weights(expected)
    assert np.array_equal(total(together, weights, shape), total(expected, weights, shape))


@pytest.mark.guarantees("persons")
@pytest.mark.parametrize("copies", [1, 2, 100, 10_000])
@pytest.mark.parametrize("form", ["rows", "kron", "gram", "gram_of_sums", "factored_compiled"])
def test_many_rows_of_one_person_stay_within_one_bound(form: str, copies: int) -> None:
    maker, shape, symmetric = MAKERS[form]
    row = maker(np.random.default_rng(16), 6)
    place = int(np.argmax(row.norms()))
    many = grouped(subset(row, np.full(copies, place)), np.zeros(copies, dtype=np.int64), 1)
    steps = total(many, clipped_weights(many), shape)
    assert full_square(steps, symmetric) <= Fraction(1 / GRID.step) ** 2
    if form != "kron" or copies <= 100:  # a factor of 17 bits is coarse for a weight of 1e-4
        assert math.sqrt(full_square(steps, symmetric)) * GRID.step > 0.99


@kills("norms", "repeated places of a sparse unit")
@edit("core/forms.py", "return np.where(faulty, np.inf, norm_n)", "return norm_n")
@pytest.mark.parametrize("places", [[1, 1], [2, 1], [-1, 2], [0, 0], [-(2**31), 0]])
def test_sparse_units_with_repeated_or_negative_places_are_dropped(places: list[int]) -> None:
    """Their norm would be another than that of what is added; other units keep theirs."""
    indices = np.array([0, 1, *places, 2], dtype=np.int32)
    rows = SparseRows(np.array([0, 2, 4, 5, 5]), indices, np.ones(5))
    assert np.isinf(rows.norms()[1])
    assert np.isfinite(rows.norms()[[0, 2, 3]]).all()
    sound = SparseRows(np.array([0, 2, 4, 5, 5]), np.array([0, 1, 0, 2, 2], dtype=np.int32), np.ones(5))
    np.testing.assert_array_equal(rows.norms()[[0, 2, 3]], sound.norms()[[0, 2, 3]])


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("left_out", [False, True])
def test_sparse_rows_with_equal_places_have_the_sum_of_their_entries_one_by_one(dense: bool, left_out: bool) -> None:
    """A row of weight 0 is not read; rows that all have the same places are summed as a matrix."""
    rng = np.random.default_rng(7)
    x_nd = np.where(rng.random((6, 4)) < (1.0 if dense else 0.5), rng.standard_normal((6, 4)), 0.0)
    weights = rng.uniform(0.1, 1.0, 6)
    expected = np.trunc(x_nd * weights[:, None] / GRID.step).astype(np.int64)
    if left_out:
        weights[2], expected[2], x_nd[2, x_nd[2] != 0] = 0.0, 0, np.nan
    indptr = np.append(0, np.cumsum((x_nd != 0).sum(axis=1)))
    rows, out = SparseRows(indptr, np.nonzero(x_nd)[1], x_nd[x_nd != 0]), np.ones(4, dtype=np.int64)
    rows.accumulate(weights, GRID, out)
    np.testing.assert_array_equal(out, 1 + expected.sum(axis=0))


def test_places_of_sparse_rows_that_do_not_increase_are_faulty_in_their_own_row() -> None:
    indptr, places = np.array([0, 2, 4, 4, 6, 7]), np.array([1, 3, 3, 3, 2, 1, -1])
    norms = SparseRows(indptr, places, np.ones(7)).norms()
    np.testing.assert_array_equal(np.isfinite(norms), [True, False, True, False, False])
