"""Columns that are products of two others: read about the means of their factors, each row by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import Design
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats
from dpvb.models.regression.diagonal import FirstOrderDiagonal, numbers_first
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.scaling import Declared, mapped
from dpvb.rows import DesignRows, SparseDesignRows

COLUMN = 0.4
UNIT_D = np.array([1.0, 0.4, 0.5, 0.3, 0.2, 0.1])
#: The constant, two numbers, an indicator, the product of both numbers, that of the indicator and the first number.
DECLARED = Declared(
    np.zeros(6),
    UNIT_D * [0, 1, 1, 0, 1, 1],
    UNIT_D,
    products_p3=np.array([[4, 1, 2], [5, 3, 1]]),
)


def records(rng: np.random.Generator, n: int) -> Floats:
    """Places of the factors, an indicator's being 0 or 1, as rows with both products."""
    u_n3 = np.column_stack([rng.random(n), 0.3 + 0.01 * rng.standard_normal(n), rng.random(n) < 0.2])
    places = np.column_stack([u_n3, u_n3[:, 0] * u_n3[:, 1], u_n3[:, 2] * u_n3[:, 0]])
    return np.column_stack([np.full(n, COLUMN), places * UNIT_D[1:]])


def released(model: Any, seed: int = 0, epsilon: float = math.inf) -> Any:
    """State of a fit to 500 rows."""
    rng = np.random.default_rng(seed)
    x_nd = records(rng, 500)
    plan = calibrated(
        phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget),
        epsilon=epsilon,
        delta=1e-5,
    )
    source = Design(
        x_nd[:, 1:],
        (rng.random(500) < 0.4).astype(float),
        intercept=COLUMN,
        sparse_rows=isinstance(model, FirstOrderDiagonal),
    )
    wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(seed))
    return loop.fit(model, wall, plan, rho=model.schedule.rho, rng=np.random.default_rng(0))[0]


FULL = FirstOrder(6, intercept=COLUMN, declared=DECLARED)
DIAGONAL = FirstOrderDiagonal(6, intercept=COLUMN, declared=DECLARED)


def test_products_are_those_about_the_means_of_their_factors() -> None:
    """x̂ of the rows that were fitted, without noise: centred products, written out."""
    q = released(FULL)
    x_nd = records(np.random.default_rng(0), 500)
    u_nd = x_nd / UNIT_D
    away_nd = u_nd - u_nd.mean(axis=0)
    found = mapped(x_nd, q.scaling.forth(DECLARED))
    for product, first, second in DECLARED.products_p3:
        v_n = away_nd[:, first] * away_nd[:, second]
        factor = q.scaling.factor_d[product] * UNIT_D[product]
        centred_n = factor * (v_n - v_n.mean())
        np.testing.assert_allclose(found[:, product], centred_n, atol=1e-6 * np.abs(centred_n).max())
        # As the spread is the squared mean root over that of a standard normal.
        assert DECLARED.size(COLUMN) / factor == pytest.approx((np.sqrt(np.abs(v_n)).mean() / 0.822179) ** 2, rel=1e-3)


def test_the_map_of_products_goes_back() -> None:
    rng = np.random.default_rng(4)
    q, weights_d, x_nd = released(FULL, epsilon=1.0), rng.standard_normal(6), records(rng, 50)
    found = mapped(x_nd, q.scaling.forth(DECLARED)) @ weights_d
    np.testing.assert_allclose(found, x_nd @ (q.scaling.back(DECLARED, COLUMN) @ weights_d))


def sparse(x_nd: Floats) -> SparseDesignRows:
    indptr = np.append(0, np.cumsum((x_nd != 0).sum(axis=1))).astype(np.int64)
    ones = np.ones(len(x_nd))
    return SparseDesignRows(indptr, np.nonzero(x_nd)[1].astype(np.int32), x_nd[x_nd != 0], ones, ones)


def test_sparse_rows_have_the_same_products() -> None:
    q, x_nd = released(DIAGONAL, epsilon=1.0), records(np.random.default_rng(5), 40)
    made = numbers_first(q.scaling, DECLARED, sparse(x_nd), COLUMN)
    found = np.zeros_like(x_nd)
    found[np.repeat(np.arange(40), np.diff(made.indptr)), made.indices] = made.values
    np.testing.assert_allclose(found, mapped(x_nd, q.scaling.forth(DECLARED))[:, [0, 1, 2, 4, 5, 3]], atol=1e-12)


@pytest.mark.parametrize("model", [FULL, DIAGONAL])
def test_hostile_rows_stay_within_every_bound(model: Any) -> None:
    """Rows whose products are no products, of any length: the law of queries knows no honest row."""
    rng = np.random.default_rng(6)
    q = released(model, epsilon=1.0)
    x_nd = UNIT_D * rng.choice([-1.0, 0.0, 0.3, 1.0], (400, 6)) * 10.0 ** rng.uniform(-2, 5, (400, 1))
    x_nd[:, 0] = COLUMN
    rows = sparse(x_nd) if model is DIAGONAL else DesignRows(x_nd, np.ones(400), np.ones(400))
    for name in ("means", "spread"):
        block = model.blocks[name]
        assert model.e_step(q, rows, {name: block})[name].norms().max() <= block.bound * (1 + 1e-12)
    assert model.blocks["means"].bound == pytest.approx(math.sqrt(6))
    assert model.blocks["spread"].bound == pytest.approx(2.0)


@pytest.mark.guarantees("columns")
@kills("records", "products about the means of their batch")
@edit(
    "models/regression/scaling.py",
    "        slanted_nr = x_nr.copy()\n",
    "        slanted_nr = x_nr - x_nr.mean(axis=0)\n",
)
@pytest.mark.parametrize("model", [FULL, DIAGONAL])
def test_a_row_contributes_the_same_alone_to_the_last_bit(model: Any) -> None:
    q, x_nd = released(model, epsilon=1.0), records(np.random.default_rng(7), 33)
    for names in (("means",), ("spread",), ("score",)):
        blocks = {name: model.blocks[name] for name in names}
        make = sparse if model is DIAGONAL else lambda x: DesignRows(x, np.ones(len(x)), np.ones(len(x)))
        whole = model.e_step(q, make(x_nd), blocks)
        for n in (0, 17, 32):
            alone = model.e_step(q, make(x_nd[n : n + 1]), blocks)
            for name in names:
                assert alone[name].norms()[0] == whole[name].norms()[n]


@pytest.mark.parametrize(
    "products",
    [[[4, 1]], [[4, 1, 6]], [[4, 0, 1]], [[-1, 1, 2]]],
)
def test_products_of_what_is_no_column_are_refused(products: list[list[int]]) -> None:
    with pytest.raises(ParameterError, match="products must hold the places of columns and their two factors"):
        Declared(np.zeros(6), DECLARED.high_d, UNIT_D, products_p3=np.array(products))


def test_products_of_ranges_that_do_not_begin_at_0_are_refused() -> None:
    with pytest.raises(ParameterError, match="numbers from 0 to their unit"):
        Declared(np.zeros(6) - 0.1, DECLARED.high_d, UNIT_D, products_p3=DECLARED.products_p3)
