"""What a model of one's own is asked about: no rows once at each release, and never more rows than the audit asked.

The models here are not of the package, as its users' models are not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from own_models import ASKED, Centred, EmptyFails, Mean, Noting, Own
from planted import edit, kills

import dpvb
from dpvb import federated
from dpvb.audit import Matrix
from dpvb.audit.kinds import NAMES, forms
from dpvb.audit.neighbours import check_largest
from dpvb.cluster import LocalPool
from dpvb.core import loop
from dpvb.core.clipped_sums import Work
from dpvb.core.grids import grids_of
from dpvb.core.plan import Mechanism, Release
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.source import pieces
from dpvb.errors import ParameterError, PrivateComputationError
from dpvb.estimators.private import ModelRows
from dpvb.testing import LARGEST_BATCH, Case

GIVEN: dict[str, Any] = {"max_row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "random_state": 0}


class Unaware:
    """A source of somebody's own that cannot make a chunk of no units."""

    unit = "row"

    def __init__(self, matrix: Any) -> None:
        self._all = Matrix(matrix)

    def count(self) -> int:
        return self._all.count()

    def chunks(self) -> Iterator[Any]:
        return self._all.chunks()


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.5, 0.5, (n, 2))


# --- no more rows than the audit asks about -----------------------------------------------------------------

MANY = LARGEST_BATCH + 1_000
BY_NINE = np.repeat(np.arange(9), MANY)


@pytest.mark.guarantees("batch sizes")
@kills("records", "scores of larger batches than the audit asks about")
@edit("estimators/private.py", "if len(rows) > LARGEST_BATCH:", "if len(rows) < 0:")
@kills("records", "larger batches than the audit asks about")
@edit(
    "core/source.py",
    "    if num_rows(chunk) <= LARGEST_BATCH:\n        yield chunk\n        return\n",
    "    if chunk is not None:\n        yield chunk\n        return\n",
)
@edit("core/clipped_sums.py", "if length > LARGEST_BATCH and not", "if length < 0 and not")
@pytest.mark.parametrize(
    "fit",
    [
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(rows(MANY)),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(scipy.sparse.csr_array(rows(MANY))),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(pd.DataFrame(rows(MANY))),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(Own(rows(MANY))),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(Own(rows(3 * MANY), np.arange(3 * MANY) // 3)),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(Own(rows(MANY), np.zeros(MANY, int))),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(rows(MANY), group=np.zeros(MANY, int)),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(rows(3 * MANY), group=np.arange(3 * MANY) // 3),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN, batch_size=MANY - 1, n_units=MANY).fit(Own(rows(MANY))),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN, sampling_prob=0.99).fit(Own(rows(2 * MANY))),
        lambda: federated.simulate(dpvb.PrivateModel(Noting(), **GIVEN), [rows(MANY), rows(MANY)]),
        lambda: dpvb.private_select(
            dpvb.PrivateModel(Noting(), **GIVEN), [{}], rows(3 * MANY), epsilon=1.0, delta=1e-6
        ),
        lambda: dpvb.private_select(
            dpvb.PrivateModel(Noting(), **GIVEN), [{}], Own(rows(3 * MANY)), epsilon=1.0, delta=1e-6
        ),
        lambda: dpvb.private_select(
            dpvb.PrivateModel(Noting(), **GIVEN), [{}], Own(rows(9 * MANY), BY_NINE), epsilon=1, delta=1e-6
        ),
        lambda: dpvb.private_select(
            dpvb.PrivateModel(Noting(), **GIVEN),
            [{}],
            Own(rows(6 * MANY), np.arange(6 * MANY) // 3),
            epsilon=1,
            delta=1e-6,
        ),
        lambda: dpvb.PrivateModel(Noting(), **GIVEN).fit(rows(9))._quality(rows(MANY)),
    ],
)  # fmt: skip
def test_no_model_of_ones_own_meets_more_rows_than_the_audit_asks_about(fit: Callable[[], Any]) -> None:
    """In memory, sparse, by person, of a source of one's own, sampled, federated, and where models are selected."""
    ASKED.clear()
    fit()
    assert max(ASKED) <= LARGEST_BATCH


@pytest.mark.guarantees("batch sizes")
def test_the_audit_asks_about_no_rows_and_one_and_exactly_the_largest_batch() -> None:
    ASKED.clear()
    case = Case("noting", Noting(), Matrix, lambda rng, n: rng.uniform(-0.5, 0.5, (n, 2)), np.eye(2))
    (check,) = check_largest(case)
    assert check.passed, check.measured
    assert {0, 1, LARGEST_BATCH} <= set(ASKED)
    assert max(ASKED) == LARGEST_BATCH


@pytest.mark.guarantees("batch sizes")
@pytest.mark.parametrize("least", [500, LARGEST_BATCH])
def test_a_model_that_centres_large_batches_is_found(least: int) -> None:
    case = Case("centred", Centred(least=least), Matrix, lambda rng, n: rng.uniform(-0.5, 0.5, (n, 2)), np.eye(2))
    (check,) = check_largest(case)
    assert not check.passed
    assert "another norm in a larger batch" in check.measured


def test_a_chunk_is_cut_between_units_and_each_unit_stays_whole() -> None:
    """Sums of the pieces are those of the whole: with a unit of no rows, and with one that fills a piece."""
    lengths = np.array([3, LARGEST_BATCH - 3, 1, LARGEST_BATCH, 0, 2, LARGEST_BATCH - 2])
    person = np.repeat(np.arange(len(lengths)), lengths)
    (chunk,) = Matrix(rows(len(person)), person, chunk=10**9).chunks()
    found = [*pieces(chunk)]
    assert sum(piece.num_units for piece in found) == len(lengths)
    assert np.array_equal(np.concatenate([piece.rows for piece in found]), chunk.rows)
    assert [len(piece.rows) for piece in found] == [LARGEST_BATCH, 1, LARGEST_BATCH, LARGEST_BATCH]


def added(model: Any, source: Any) -> np.ndarray:
    """What a source's units add to a release without noise, in steps of the grid."""
    release = Release(model.blocks, Mechanism(FullBatch(), 1.0))
    query = loop.query(model, model.init(np.random.default_rng(0)), release)
    work = Work(query, release, grids_of(release, None), lambda *_, **__: np.zeros(0))
    return work.sums(source.chunks(), lambda _, m: np.ones(m, dtype=np.bool_))["x"]


@pytest.mark.guarantees("large units")
@kills("records", "a person with more rows than the audit asks a model of one's own about")
@edit("core/clipped_sums.py", "if length > LARGEST_BATCH and not", "if length < 0 and not")
def test_a_unit_with_more_rows_than_the_largest_batch_reaches_nobody_else() -> None:
    """Of a source of one's own such a unit adds nothing, and the others what they add without it."""
    others = np.repeat(np.arange(5), 2)
    person = np.concatenate([others, np.full(LARGEST_BATCH + 1, 5)])
    matrix = rows(len(person))
    with_it = added(Noting(), Matrix(matrix, person, chunk=10**9))
    assert np.array_equal(with_it, added(Noting(), Matrix(matrix[:10], others, chunk=10**9)))
    exactly = added(Noting(), Matrix(matrix[:-1], person[:-1], chunk=10**9))
    assert not np.array_equal(exactly, with_it)


@pytest.mark.guarantees("large units")
def test_of_a_person_with_more_rows_than_the_largest_batch_the_first_ones_are_included() -> None:
    """In whatever order persons come: rows of one person, in their order, are a chunk of their own."""
    number = LARGEST_BATCH + 500
    x_nd = np.concatenate([np.tile([0.5, 0.0], (LARGEST_BATCH, 1)), np.tile([0.0, 0.5], (500, 1)), rows(4)])
    person = np.concatenate([np.zeros(number, int), [1, 1, 2, 3]])
    shuffled = np.insert(np.arange(number), [5, 700, 8_000, 8_600], np.arange(number, number + 4))
    for order in (np.arange(len(person)), shuffled):
        source = ModelRows(dpvb.data.Design(x_nd[order], max_row_norm=1.0, group=person[order]))
        sources = [source, *source.parts(2)]
        assert max(len(chunk.rows) for one in sources for chunk in one.chunks()) == LARGEST_BATCH
        first = next(chunk for chunk in source.chunks() if chunk.num_units == 1)
        assert np.array_equal(first.rows[:, 1], np.zeros(LARGEST_BATCH))
        assert np.array_equal(first.select(np.array([True])).rows, first.rows)


def test_models_of_the_package_are_asked_about_all_rows_of_a_person() -> None:
    """So the bits of their releases are as they were."""
    source = dpvb.data.BagOfWords(np.ones((LARGEST_BATCH + 1, 3)), group=np.zeros(LARGEST_BATCH + 1, int))
    model = dpvb.LDA(2, public_vocabulary=True, epsilon=1.0, delta=1e-6)._task(source).model
    assert {"words", "counts"} <= set(model.blocks)
    for name, block in model.blocks.items():  # Each is of a phase of its own.
        release = Release({name: block}, Mechanism(FullBatch(), 1.0))
        query = loop.query(model, model.init(np.random.default_rng(0)), release)
        work = Work(query, release, grids_of(release, None), lambda *_, **__: np.zeros(0))
        sums = work.sums(source.chunks(), lambda _, m: np.ones(m, dtype=np.bool_))
        assert sums[name].any(), name


def test_a_subclass_of_a_model_of_the_package_is_a_model_of_ones_own() -> None:
    from dpvb.core.source import is_shipped
    from dpvb.models.topics.lda import LDAModel

    own = type("Mine", (LDAModel,), {"__module__": __name__})
    lookalike = type("Near", (LDAModel,), {"__module__": "dpvb_more.models"})
    assert is_shipped(LDAModel(2, 3))
    assert not is_shipped(own(2, 3))
    assert not is_shipped(lookalike(2, 3))
    claims = type("LDAModel", (LDAModel,), {"__module__": LDAModel.__module__})
    assert not is_shipped(claims(2, 3))
    assert not is_shipped(None)
    release = Release(Noting().blocks, Mechanism(FullBatch(), 1.0))
    with pytest.raises(ValueError, match="at most"):  # A function that belongs to no model is nobody's known model.
        Work(lambda batch: {"x": dpvb.Rows(batch)}, release, grids_of(release, None), lambda *_: np.zeros(0))._added(
            next(Matrix(rows(MANY), np.zeros(MANY, int)).chunks())
        )


@pytest.mark.guarantees("batch sizes")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [(name, form) for name in NAMES for form in forms(name)])
def test_models_of_the_package_add_the_same_bits_in_the_largest_batch(name: str, form: str) -> None:
    """All of them are recognised as the package's."""
    from dpvb.core.source import is_shipped

    assert is_shipped(forms(name)[form]().model)
    for check in check_largest(forms(name)[form]()):
        assert check.passed, check.measured


@pytest.mark.guarantees("batch sizes")
def test_a_density_of_ones_own_meets_as_many_rows_in_a_fit_as_when_it_is_tried() -> None:
    """A compiled program has one number of rows, and the density is handed one of them."""
    pytest.importorskip("jax")
    from dpvb.models.gradients.variational import Gradients

    shapes: list[Any] = []

    def density(theta: Any, x: Any) -> Any:
        shapes.append(x.shape)
        return -0.5 * ((x - theta) ** 2).sum()

    made = Gradients(density, 3, [(3,)])
    batches: list[int] = []
    compiled = made._compiled
    made._compiled = lambda theta, x: (batches.append(len(x)), compiled(theta, x))[1]
    assert made._is_even()
    tried = set(batches)
    batches.clear()
    for number in (1, made.batch_size, made.batch_size + 1, LARGEST_BATCH + 7):
        made(np.zeros(3), [np.ones((number, 3))])
    assert set(batches) == tried == {made.batch_size}
    assert set(shapes) == {(3,)}


# --- no rows, once at each release ---------------------------------------------------------------------------


def outcome(fit: Callable[[], Any]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "fitted"


WAYS: dict[str, Callable[[Any, int], Any]] = {
    "memory": lambda model, n: dpvb.PrivateModel(model, **GIVEN).fit(rows(n)),
    "sparse": lambda model, n: dpvb.PrivateModel(model, **GIVEN).fit(scipy.sparse.csr_array(rows(n))),
    "persons": lambda model, n: dpvb.PrivateModel(model, **GIVEN).fit(rows(n), group=np.zeros(n, int)),
    "nobody's rows": lambda model, n: dpvb.PrivateModel(model, **GIVEN).fit(rows(n), group=[None] * n),
    "a source of one's own": lambda model, n: dpvb.PrivateModel(model, **GIVEN).fit(Own(rows(n))),
    "Poisson": lambda model, n: dpvb.PrivateModel(model, **GIVEN, sampling_prob=1e-5).fit(rows(n)),
    "fixed size": lambda model, n: dpvb.PrivateModel(model, **GIVEN, batch_size=1, n_units=10**4).fit(rows(n)),
    "federation": lambda model, n: federated.simulate(dpvb.PrivateModel(model, **GIVEN), [rows(n), rows(n)]),
    "one empty client": lambda model, n: federated.simulate(dpvb.PrivateModel(model, **GIVEN), [rows(n), rows(3)]),
    "selection": lambda model, n: dpvb.private_select(
        dpvb.PrivateModel(model, **GIVEN), [{}], rows(n), epsilon=1, delta=1e-6
    ),
}


@pytest.mark.guarantees("empty batch")
@kills("empty batch", "a source of somebody's own without a chunk of no units", "a source of one's own")
@edit("core/source.py", 'if chunk is None and hasattr(type(source), "empty"):', "if False:")
@kills("empty batch", "no chunk of no units where there are none", "memory")
@edit("kernels/spans.py", "    if not num_units:\n        yield 0, 0\n", "")
@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_fails_on_no_rows_fails_whatever_the_data_are(way: str) -> None:
    """The outcome is the same with no unit, one, and many, so that it tells nothing of their number."""
    fails = {outcome(lambda n=n: WAYS[way](EmptyFails(), n)) for n in (0, 1, 50)}  # type: ignore[misc]
    assert len(fails) == 1
    assert "fitted" not in fails
    assert {outcome(lambda n=n: WAYS[way](Noting(), n)) for n in (0, 1, 50)} == {"fitted"}  # type: ignore[misc]


@pytest.mark.guarantees("empty batch")
def test_a_model_that_fails_on_no_rows_fails_in_a_cluster_too() -> None:
    """The workers' model is of a module that they can import."""
    with LocalPool(1) as pool:
        for n in (0, 1, 50):
            with pytest.raises(PrivateComputationError):
                dpvb.PrivateModel(EmptyFails(), **GIVEN).fit(rows(n), run=dpvb.Run(cluster=pool))


def sources() -> dict[str, Callable[[Path], Any]]:
    """Every kind of source, of no units."""
    from dpvb import data
    from dpvb.data.sequences.content import Sequences, Symbols
    from dpvb.data.tables.numbers import Numbers

    schema = data.Schema((data.Numeric("x", low=0, high=1),))
    frame = pd.DataFrame({"x": np.empty(0), "who": np.empty(0), "symbol": np.empty(0)})

    def file(folder: Path, suffix: str) -> Path:
        path = folder / f"t.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
        return path

    events: dict[str, Any] = {"group": "who", "symbol": "symbol"}
    return {
        "counts": lambda _: data.BagOfWords(np.empty((0, 3))),
        "counts by person": lambda _: data.BagOfWords(np.empty((0, 3)), group=[]),
        "texts": lambda _: data.BagOfWords.from_texts([], vocabulary=["a", "b"]),
        "a stream of no pieces": lambda _: data.Stream(list, 3),
        "a stream of an empty piece": lambda _: data.Stream(lambda: [np.empty((0, 3))], 3),
        "rows": lambda _: data.Design(np.empty((0, 3)), max_row_norm=1.0),
        "sparse rows": lambda _: data.Design(scipy.sparse.csr_array((0, 3)), max_row_norm=1.0, sparse_rows=True),
        "bits": lambda _: data.BinaryMatrix(np.empty((0, 3))),
        "numbers": lambda _: Numbers(np.empty((0, 3)), None),
        "a table": lambda _: data.Table(frame, schema).features(),
        "a streamed csv": lambda folder: data.Table(file(folder, "csv"), schema, stream=True).features(),
        "a streamed parquet": lambda folder: data.Table(file(folder, "parquet"), schema, stream=True).features(),
        "files of a table": lambda folder: data.Table([file(folder, "csv")], schema).features(),
        "sequences": lambda _: Sequences(Symbols(["a", "b"]).rows([])),
        "events": lambda _: data.Events(frame, **events).sequences(Symbols(["a", "b"])),
        "streamed events": lambda _: data.Events(frame, stream=True, **events).sequences(Symbols(["a", "b"])),
        "the audit's matrix": lambda _: Matrix(np.empty((0, 3))),
    }  # fmt: skip


@pytest.mark.guarantees("empty batch")
@kills("empty batch", "a streamed table of no rows that has no chunk", "a streamed csv")
@edit("data/parsed_once.py", "        if held is None:\n            yield self._none\n", "")
@pytest.mark.parametrize("kind", sources())
def test_every_source_of_no_units_has_a_chunk_of_none(kind: str, tmp_path: Path) -> None:
    """And so has each of the parts that processes hold."""
    source = sources()[kind](tmp_path)
    opened = [part.open() if hasattr(part, "open") else part for part in getattr(source, "parts", lambda n: [])(2)]
    assert len(opened) or not hasattr(source, "parts")
    for one in (source, *opened):
        found = [*one.chunks()]
        assert found
        for chunk in found:
            assert chunk.num_units == 0
            assert chunk.select(np.zeros(0, dtype=np.bool_)).rows is not None


@pytest.mark.guarantees("empty batch")
@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(1e-9), FixedSize(1, 10**4)])
@pytest.mark.parametrize("n", [0, 1, 50])
def test_each_release_asks_about_no_rows_once(sampler: Any, n: int) -> None:
    plan = Case("noting", Noting(), Matrix, lambda rng, n: rows(n), np.eye(2)).plan(sampler, noise=1.0, steps=3)
    case = Case("noting", Noting(), Matrix, lambda rng, n: rows(n), np.eye(2))
    ASKED.clear()
    case.run(rows(n), plan)
    assert ASKED.count(0) == 3


@pytest.mark.guarantees("empty batch")
def test_a_source_of_ones_own_without_an_empty_chunk_is_refused_before_the_charge(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="person", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-6)
        private = dpvb.PrivateModel(Noting(), **GIVEN)
        for n in (0, 3):
            with pytest.raises(ParameterError, match=r"method empty\(\)"):
                private.fit(Unaware(rows(n)), run=dpvb.Run(ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == 0


def test_a_source_of_ones_own_is_tried_on_no_rows() -> None:
    @dataclass(frozen=True)
    class Fails(Noting):
        def e_step(self, q: Mean, batch: Any, blocks: Any) -> Any:
            return {"x": dpvb.Rows(batch - batch.max(axis=0))}

    with pytest.raises(ParameterError, match="e_step on no rows gave ValueError"):
        dpvb.PrivateModel(Fails(), **GIVEN).fit(Own(rows(3)))


def test_an_empty_chunk_that_holds_units_or_cannot_be_made_is_refused_before_the_charge() -> None:
    class Full(Own):
        def empty(self) -> Any:
            return next(self.chunks())

    class Broken(Own):
        def empty(self) -> Any:
            raise OSError("no disk")

    for kind in (Full, Broken):
        with pytest.raises(ParameterError, match=rf"{kind.__name__} failed or returned units. Nothing was spent"):
            dpvb.PrivateModel(Noting(), **GIVEN).fit(kind(rows(3)))
