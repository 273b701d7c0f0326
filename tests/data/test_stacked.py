"""Rows of several slabs as one: the same entries in the same types, and no slab is held on to."""

import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from dpvb.data.slabs import Slab, stacked


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
