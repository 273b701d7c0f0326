"""Whatever arrays a model hands over, a unit moves a sum by its bound at most: any form, number type and shape."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills
from small_models import table

from dpvb.audit.integers import relative_norm
from dpvb.core.blocks import Block
from dpvb.core.clipped_sums import Work
from dpvb.core.forms import Gram, GramOfSums, Kron, MeasuredRows, Rows, ScaledRows, SparseRows
from dpvb.core.grids import grids_of
from dpvb.core.plan import Mechanism, Release
from dpvb.core.sampling import FullBatch
from dpvb.guards.suppress_output import silence

TYPES = [
    np.uint8,
    np.int8,
    np.int32,
    np.uint64,
    np.int64,
    np.float16,
    np.float32,
    np.longdouble,
    np.bool_,
    ">f8",
    "<i2",
]
SHAPES = [(9,), (3, 3), (1,), (2, 3, 3), (6,)]
PSD = Block((3, 3), 1.0, "psd")


def units(contribution: Callable[[int], Any], block: Block) -> list[Any]:
    """The integer sums of one unit alone and of three together; None where nothing was computed."""
    release = Release({"a": block}, Mechanism(FullBatch(), 1.0))
    work: Work[Any] = Work(lambda rows: {"a": contribution(len(rows))}, release, grids_of(release, None), no_words)
    found = []
    for number in (1, 3):
        try:
            sums = work.sums(table(np.zeros((number, 1))).chunks(), lambda _, n: np.ones(n, dtype=np.bool_))
        except Exception:  # What fails for no rows ends a fit.
            sums = None
        found.append((number, release, sums))
    return found


def no_words(*_: object, **__: object) -> Any:
    raise AssertionError("a full batch draws nothing")


def check(contribution: Callable[[int], Any], block: Block) -> bool:
    """Whether anything was added; fails the test where that is more than the units' bounds."""
    added = False
    for number, release, sums in units(contribution, block):
        if sums is not None:
            own, joint = relative_norm(sums, release)
            assert joint <= number
            added |= own["a"] > 0
    return added


def of(shape: tuple[int, ...], kind: Any, value: float) -> Callable[[int], Any]:
    return lambda n: np.full((n, *shape), value).astype(kind)


def forms(block: Block, kind: Any, value: float) -> Iterator[Callable[[int], Any]]:
    """Every form of units that all hold one value in all places, in many shapes."""
    scale = of((), kind, value)
    for given in ((), (1,), (3,), (9,), (6,), (3, 3), (1, 3), (3, 1), (1, 3, 3), (2, 3, 3)):
        rows = of(given, kind, value)
        yield lambda n, rows=rows: Rows(rows(n))
        yield lambda n, rows=rows: ScaledRows(MeasuredRows(rows(n)), scale(n))
        yield lambda n, rows=rows: Gram(rows(n), scale(n))
        yield lambda n, rows=rows: GramOfSums(MeasuredRows(rows(n)), scale(n))
    for left, right in itertools.product([(1,), (3,), (9,)], repeat=2):
        yield lambda n, a=left, b=right: Kron(of(a, kind, value)(n), of(b, kind, value)(n))
    for places in ([0, 1, 2], [0, 0, 1], [2, 1, 0], [0, -1, 1], [0, 1, 2**31 - 1], [0, 1, 8]):
        for whole in (np.int32, np.int64, np.uint64, np.float64):
            own = np.array(places).astype(whole)
            yield lambda n, own=own: SparseRows(np.arange(n + 1) * 3, np.tile(own, n), of((), kind, value)(3 * n))


@pytest.mark.guarantees("every form")
@kills("norms", "norms are found in the numbers' own narrow type")
@edit("core/forms.py", "np.asarray(self.indices), floats(self.values)", "np.asarray(self.indices), self.values")
@kills("norms", "statistics of another shape than their block's are stretched")
@edit("core/clipped_sums.py", "answer[name].of_block(block, length)", "answer[name]")
@each("block", [Block(shape, 1.0) for shape in SHAPES] + [PSD, Block((3, 3), 1.0, "gram")], ids=str)
@each("kind", TYPES, ids=lambda kind: np.dtype(kind).str)
def test_no_form_of_any_type_or_shape_reaches_past_its_bound(kind: Any, block: Block) -> None:
    with silence():
        added = sum(check(form, block) for value in (0.5, 16.0, 65536.0, 2.0**32) for form in forms(block, kind, value))
    assert added


@pytest.mark.guarantees("every form")
@kills("norms", "the upper half of a matrix is summed, and its norm is that of the full one")
@edit("core/forms.py", "values = 0.5 * values + 0.5 * np.swapaxes(values, -1, -2)", "values = values + 0.0")
def test_a_matrix_that_is_not_symmetric_counts_by_its_mean_halves() -> None:
    """The upper triangle travels: a norm of the full matrix, of which the lower half is empty, would be too small."""
    upper = np.triu(np.ones((3, 3)), 1)
    ((_, release, sums), _) = units(lambda n: Rows(np.tile(upper, (n, 1, 1))), PSD)
    own, _ = relative_norm(sums, release)
    assert own["a"] == pytest.approx(1.0, abs=1e-4)
    half = units(lambda n: Rows(np.tile(upper / 4, (n, 1, 1))), PSD)[0]
    assert relative_norm(half[2], release)[0]["a"] == pytest.approx(math.sqrt(6) / 8, rel=1e-4)


def test_rows_that_were_measured_can_no_longer_be_changed() -> None:
    rows = MeasuredRows(np.ones((2, 3)))
    with pytest.raises(ValueError, match="read-only"):
        rows.x_nd[0, 0] = 5.0
    whole = np.ones((4, 3))
    part = MeasuredRows(whole[:2])
    whole[:] = 7.0
    np.testing.assert_array_equal(part.x_nd, 1.0)
