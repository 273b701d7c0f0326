"""Products of rows with a matrix: near the real product, and the same bits whatever else is in the batch."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.kernels.linear import dot, product, row_sums


def rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows over many magnitudes, with some zero."""
    x_nd = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-30, 30, (n, 1))
    x_nd[rng.random(n) < 0.1] = 0.0
    return x_nd


@given(st.integers(1, 400), st.integers(1, 90), st.integers(1, 90), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_row_has_the_same_bits_in_every_batch(n: int, d: int, e: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x_nd, matrix_de = rows(rng, n, d), rng.standard_normal((d, e))
    whole = product(x_nd, matrix_de)
    some = rng.permutation(n)[: rng.integers(1, n + 1)]
    np.testing.assert_array_equal(product(x_nd[some], matrix_de), whole[some])
    np.testing.assert_array_equal(product(np.asfortranarray(x_nd), matrix_de), whole)


@pytest.mark.parametrize("d", [1, 7, 255, 785])
def test_large_squares_too(d: int) -> None:
    """The shapes at which plain BLAS products were seen to depend on a row's place."""
    rng = np.random.default_rng(d)
    x_nd, matrix_de = rng.standard_normal((300, d)), rng.standard_normal((d, d))
    order = rng.permutation(300)[:201]
    np.testing.assert_array_equal(product(x_nd[order], matrix_de), product(x_nd, matrix_de)[order])


@given(st.integers(1, 40), st.integers(1, 200), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_near_the_real_product(n: int, d: int, seed: int) -> None:
    """Each rounded entry moves a product by half a unit at most: the bound is 2⁻²⁶√d, with 2⁻⁵² on top."""
    rng = np.random.default_rng(seed)
    x_nd, matrix_de = rows(rng, n, d), rng.standard_normal((d, 5))
    scale_n = np.linalg.norm(x_nd, axis=1) * np.linalg.norm(matrix_de, axis=0).max()
    error = np.abs(product(x_nd, matrix_de) - x_nd @ matrix_de).max(axis=1)
    assert (error <= scale_n * (2.0**-25 * math.sqrt(d) + d * 2.0**-50)).all()


@kills("sums", "products of rows rounded as BLAS likes")
@edit(
    "kernels/linear.py",
    "np.rint(np.multiply(part, scale_n[:, None], out=room), out=room)",
    "np.multiply(part, scale_n[:, None], out=room)",
)
def test_the_sum_is_exact() -> None:
    """A product is the rational sum of its rounded factors, to the last bit."""
    rng = np.random.default_rng(5)
    x_d, vector_d = rng.standard_normal(50), rng.standard_normal(50)
    scale, other = (2.0 ** (26 - math.frexp(np.linalg.norm(v))[1]) for v in (x_d, vector_d))
    exact = sum(
        Fraction(float(a)) * Fraction(float(b))
        for a, b in zip(np.rint(x_d * scale), np.rint(vector_d * other), strict=True)
    )
    assert Fraction(float(dot(x_d[None], vector_d)[0])) == exact / Fraction(scale * other)


def test_a_bad_row_stays_alone() -> None:
    rng = np.random.default_rng(6)
    x_nd, matrix_de = rng.standard_normal((9, 4)), rng.standard_normal((4, 3))
    bad = x_nd.copy()
    bad[2, 1], bad[5, 0], bad[7] = np.nan, np.inf, 1e200
    result = product(bad, matrix_de)
    assert np.isnan(result[[2, 5, 7]]).all()
    good = [0, 1, 3, 4, 6, 8]
    np.testing.assert_array_equal(result[good], product(x_nd, matrix_de)[good])


@pytest.mark.parametrize("d", [1, 3, 130, 40_000])
def test_row_sums_are_a_rows_own(d: int) -> None:
    """Near the exact sums, the same bits in any company, and a bad row stays alone."""
    rng = np.random.default_rng(d)
    x_nd, vector_d = rng.standard_normal((700 if d < 1000 else 5, d)), rng.standard_normal(d)
    whole, order = row_sums(x_nd, vector_d), rng.permutation(len(x_nd))
    np.testing.assert_array_equal(row_sums(np.asfortranarray(x_nd[order]), vector_d), whole[order])
    np.testing.assert_array_equal(row_sums(x_nd[:1], vector_d), whole[:1])
    for row, found in zip(x_nd[:20], whole, strict=False):
        exact = math.fsum(row * vector_d)
        assert abs(found - exact) <= d * 2.0**-53 * float(np.abs(row) @ np.abs(vector_d))
    x_nd[1] = np.nan
    again = row_sums(x_nd, vector_d)
    assert np.isnan(again[1])
    np.testing.assert_array_equal(np.delete(again, 1), np.delete(whole, 1))
    assert row_sums(np.zeros((0, d)), vector_d).shape == (0,)


def test_empty_and_zero() -> None:
    assert product(np.zeros((0, 3)), np.ones((3, 2))).shape == (0, 2)
    np.testing.assert_array_equal(product(np.zeros((2, 3)), np.ones((3, 2))), np.zeros((2, 2)))
    np.testing.assert_array_equal(product(np.full((2, 3), 5e-324), np.ones((3, 2))), np.zeros((2, 2)))
    np.testing.assert_array_equal(product(np.ones((2, 3)), np.zeros((3, 2))), np.zeros((2, 2)))
