"""Rows of several slabs as one: the same entries in the same types, and no slab is held on to."""

import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from planted import edit, kills

from dpvb.data import Categorical, Numeric, Schema, Table
from dpvb.data.slabs import Slab, stacked
from dpvb.data.tables.matrices import SparseMatrix


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("numbers", [np.float64, np.float32, np.int64])
def test_entries_of_slabs_are_laid_end_to_end_in_a_type_that_holds_them(ids: type, numbers: type) -> None:
    rng = np.random.default_rng(0)
    slabs = []
    for rows in (3, 0, 5, 1):
        lengths = rng.integers(0, 4, rows)
        own = np.append(0, np.cumsum(lengths)).astype(np.int64)
        slabs.append(
            Slab(own, rng.integers(0, 2**31 - 1, own[-1]).astype(ids), rng.integers(0, 99, own[-1]).astype(numbers))
        )
    slabs.append(Slab(np.array([0, 1]), np.array([2**40]), np.array([2.0**-1074])))
    made = stacked(slabs)
    assert made.indices.tolist() == [i for slab in slabs for i in slab.indices.tolist()]
    assert made.values.tolist() == [v for slab in slabs for v in slab.values.tolist()]
    assert np.diff(made.indptr).tolist() == [n for slab in slabs for n in np.diff(slab.indptr).tolist()]
    assert made.values.dtype == np.float64
    empty = stacked([])
    assert (empty.indptr.tolist(), empty.indices.dtype, empty.values.dtype) == ([0], np.int32, np.float64)


def test_no_slab_is_held_on_to() -> None:
    alive: list[weakref.ref[np.ndarray]] = []

    def slabs() -> Iterator[Slab]:
        for n in range(5):
            values = np.full(1_000, float(n))
            alive.append(weakref.ref(values))
            yield Slab(np.array([0, 1_000]), np.arange(1_000, dtype=np.int32), values)
            del values
            assert sum(one() is not None for one in alive) <= 1

    assert stacked(slabs()).values.sum() == 10_000


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.bool_])
def test_full_rows_are_the_same_bits_as_rows_whose_entries_come_in_another_order(kind: type) -> None:
    values_nd = np.random.default_rng(1).integers(-1, 2, (7, 5)).astype(kind)
    if values_nd.dtype.kind == "f":
        values_nd[1:4, 2] = [-0.0, np.nan, -np.inf]
    own, place_nd = np.arange(0, 36, 5), np.tile(np.arange(5, dtype=np.int8), (7, 1))
    full = SparseMatrix(Slab(own, place_nd.ravel(), values_nd.ravel()), 5)
    turned = SparseMatrix(Slab(own, place_nd[:, ::-1].ravel(), values_nd[:, ::-1].ravel()), 5)
    for rows in (slice(None), slice(2, 5), np.array([6, 0, 2]), np.array([], dtype=np.int64)):
        assert full.dense(rows).tobytes() == turned.dense(rows).tobytes()
        assert full.dense(rows).dtype == np.float64
    copy_nd = full.dense(slice(None))
    copy_nd[:] = 7.0
    assert values_nd.tobytes() != copy_nd.astype(kind).tobytes()


@kills("readers", "rows that hold as many entries as full ones together are read as full ones")
@edit(
    "data/tables/matrices.py",
    "if (np.diff(new_indptr) == self.width).all():",
    "if new_indptr[-1] == (len(new_indptr) - 1) * self.width:",
)
def test_as_many_entries_as_full_rows_have_are_not_taken_for_full_rows() -> None:
    matrix = SparseMatrix(Slab(np.array([0, 1, 4]), np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0])), 2)
    assert matrix.dense(slice(None)).tolist() == [[1.0, 0.0], [3.0, 6.0]]


@pytest.mark.parametrize(("width", "size"), [(100, 1), (300, 2), (33_000, 4)])
def test_a_table_keeps_places_in_the_smallest_type_that_holds_its_width(width: int, size: int) -> None:
    """Most of these are categories of one column, so that a row has two entries alone."""
    schema = Schema([Numeric("a", 0, 1), Categorical("b", tuple(range(width - 1)), other=False)])
    held = Table({"a": [0.25, 0.5, 1.0], "b": [0, width - 2, 1]}, schema)._held
    assert held is not None
    assert held.matrix.slab.indices.dtype.itemsize == size
    dense_nd = held.matrix.dense(slice(None))
    assert (dense_nd[:, 0].tolist(), np.count_nonzero(dense_nd)) == ([0.25, 0.5, 1.0], 6)
    assert dense_nd[[0, 1, 2], [1, width - 1, 2]].all()
