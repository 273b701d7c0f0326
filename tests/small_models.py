"""Two small models and the package's own, with their data, in one shape: what the tests of the core run over.

Every case is a model with private data given as a matrix of one row a record, so that neighbours are matrices
that differ in one row. `run` releases a plan on it and `in_steps` gives a release as the integers it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb import loop
from dpvb.blocks import Block, Bools, Floats, Ints
from dpvb.contributions import Contributions, Gram, Rows
from dpvb.data import BagOfWords
from dpvb.data.design import BinaryMatrix, Design, Response
from dpvb.estimate import Estimate
from dpvb.mechanism import FullBatch, Mechanism, Plan, Release, Sampler, phased
from dpvb.models.binomial import Likelihood
from dpvb.models.first_order import FirstOrder
from dpvb.models.first_order_diagonal import FirstOrderDiagonal
from dpvb.models.lda import LDA
from dpvb.models.polya_gamma import PolyaGamma
from dpvb.models.sbn import SBN
from dpvb.models.sbn_blocks import SBNBlocks
from dpvb.noise import InsecureNoise, NoiseSource
from dpvb.wall import Released, Wall, _grids

D = 3


@dataclass(frozen=True)
class TableChunk:
    rows: Floats
    unit_of_row: Ints | None
    num_units: int

    def select(self, units: Bools) -> TableChunk:
        if self.unit_of_row is None:
            return TableChunk(self.rows[units], None, int(units.sum()))
        kept = units[self.unit_of_row]
        renumbered = np.cumsum(units) - 1
        return TableChunk(self.rows[kept], renumbered[self.unit_of_row[kept]], int(units.sum()))


@dataclass(frozen=True)
class Table:
    """A private matrix, read in chunks of so many units; `person` numbers the persons 0, 1, ... in order."""

    x: Floats
    person: Ints | None = None
    chunk: int = 7

    def count(self) -> int:
        return len(self.x) if self.person is None else int(self.person.max(initial=-1)) + 1

    def chunks(self) -> Iterator[TableChunk]:
        for start in range(0, self.count(), self.chunk):
            stop = min(start + self.chunk, self.count())
            if self.person is None:
                yield TableChunk(self.x[start:stop], None, stop - start)
            else:
                own = (self.person >= start) & (self.person < stop)
                yield TableChunk(self.x[own], self.person[own] - start, stop - start)


@dataclass(frozen=True)
class Location:
    """Two dense real blocks: a robust location (depends on q) and second moments (a score, not averaged)."""

    scale: float = 1.0

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {
            "pull": Block((D,), self.scale),
            "square": Block((2, D), 0.5 * self.scale, average=False),
        }

    def init(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal(D)

    def e_step(self, q: Floats, batch: Floats, blocks: Mapping[str, Block]) -> Contributions:
        every = {"pull": Rows(batch - q), "square": Rows(np.stack([batch * 0.3, batch * batch], axis=1))}
        return {name: every[name] for name in blocks}

    def m_step(self, s: Estimate, q: Floats) -> Floats:
        return q + 0.1 * s.read("pull") / (1.0 + np.abs(s.read("square")[0]))


@dataclass(frozen=True)
class Curvature:
    """A psd block from outer products and a real one, as in logistic regression with Pólya-Gamma weights."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"score": Block((D,), 0.5), "curvature": Block((D, D), 0.25, "psd")}

    def init(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal(D)

    def e_step(self, q: Floats, batch: Floats, blocks: Mapping[str, Block]) -> Contributions:
        # Row sums, not a matrix product: BLAS may round a row's product differently in another batch.
        c_n = np.maximum(np.abs((batch * q).sum(axis=1)), 1e-6)
        xi_n = np.tanh(c_n / 2) / (2 * c_n)
        every = {"score": Rows(0.5 * batch), "curvature": Gram(batch, xi_n)}
        return {name: every[name] for name in blocks}

    def m_step(self, s: Estimate, q: Floats) -> Floats:
        precision = np.eye(D) + s.project("curvature")
        return np.asarray(np.linalg.solve(precision, s.read("score")))


@dataclass(frozen=True)
class Case:
    """A model, a way to draw records for it, and the records that strain it most.

    Attributes:
        phase: the release that the tests look at, of a model that answers one phase at a time; None: all blocks.
        begin: q from a seed, if not the model's own start.
        responses: number of columns before the features.
        pairs: how many neighbours the longest tests draw.
        reach: share of the joint bound that a hostile record can reach: below 1 where the blocks' largest norms
            exclude each other.
    """

    name: str
    model: Any
    source: Callable[..., Any]
    records: Callable[[np.random.Generator, int], Floats]
    hostile: Floats
    clip: str = "block"
    phase: str | None = None
    begin: Callable[[int], Any] | None = None
    responses: int = 0
    pairs: int = 200
    reach: float = 1 - 1e-4

    @property
    def width(self) -> int:
        return self.hostile.shape[1]

    def plan(
        self, sampler: Sampler | None = None, noise: float | Sequence[float] = 1.0, steps: int = 1, **options: Any
    ) -> Plan:
        levels = [noise] * steps if isinstance(noise, (int, float)) else list(noise)
        sampler = FullBatch() if sampler is None else sampler
        blocks = {n: b for n, b in self.model.blocks.items() if self.phase in (None, b.phase)}
        return Plan(
            [Release(blocks, Mechanism(sampler, level), clip=self.clip) for level in levels],  # type: ignore[arg-type]
            **options,
        )

    @property
    def modest(self) -> Floats:
        """The second hostile record, brought from a norm of 1000 to 1."""
        return np.where(np.arange(self.width) < self.responses, 1.0, 1e-3) * self.hostile[1]

    def whole(self, sampler: Sampler, noise: Sequence[float]) -> Plan:
        """A run from beginning to end, all phases included."""
        return self.plan(sampler, noise) if self.phase is None else phased(self.model.blocks, sampler, noise)

    def start(self, seed: int = 1) -> Any:
        return self.model.init(np.random.default_rng(seed)) if self.begin is None else self.begin(seed)

    def run(
        self,
        matrix: Floats,
        plan: Plan,
        *,
        group: Any = None,
        noise: NoiseSource | None = None,
        q: Any = None,
        source: Any = None,
    ) -> list[Released]:
        """All releases of a plan at one q; the noise is the repeatable one unless another is given."""
        held = self.source(matrix, group) if source is None else source
        wall: Wall[Any] = Wall(held, plan, noise=InsecureNoise(7) if noise is None else noise)
        q = self.start() if q is None else q
        return [wall.release(partial(self.model.e_step, q, blocks=r.blocks), r) for r in plan]


def in_steps(released: Released, release: Release) -> dict[str, Ints]:
    """The integers that a release was made of; each must be one exactly."""
    result = {}
    for name, grid in _grids(release, None).items():
        steps = released.total[name] / grid.step
        assert np.array_equal(steps, np.rint(steps))
        assert np.abs(steps).max() < 2**53
        result[name] = steps.astype(np.int64)
    return result


def difference(one: Mapping[str, Ints], other: Mapping[str, Ints]) -> dict[str, Ints]:
    return {name: one[name] - other[name] for name in one}


def squared(steps: Ints, block: Block) -> int:
    """Exact squared norm of a packed integer array: off-diagonal entries of a psd block count twice."""
    total = 0
    for part, ratio in block.noise_parts():
        total += round(1 / ratio**2) * sum(int(v) ** 2 for v in steps[part].ravel())
    return total


def relative_norm(change: Mapping[str, Ints], release: Release) -> tuple[dict[str, float], float]:
    """Norm of each block over its bound, and of the scaled concatenation."""
    grids = _grids(release, None)
    own = {
        name: squared(change[name], block) * (grids[name].step / block.bound) ** 2
        for name, block in release.blocks.items()
    }
    joint = sum(release.weights[name] ** 2 * value for name, value in own.items())
    return {name: float(np.sqrt(value)) for name, value in own.items()}, float(np.sqrt(joint))


def table(matrix: Floats, group: Any = None) -> Table:
    return Table(np.asarray(matrix, dtype=np.float64), None if group is None else np.asarray(group))


def bags(matrix: Floats, group: Any = None) -> BagOfWords:
    return BagOfWords(np.asarray(matrix), group=group)


def _table_records(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_normal((n, D)) * 10.0 ** rng.uniform(-3, 2, (n, 1))


def _documents(rng: np.random.Generator, n: int, width: int = 12) -> Floats:
    return rng.poisson(1.0, (n, width)) * rng.choice([1.0, 0.37, 40.0], (n, 1))


_AXES = np.eye(D)
_HOSTILE_ROWS = np.vstack(
    [
        np.zeros(D),
        _AXES * 1e3,
        -_AXES * 1e3,
        np.ones(D) * 1e-30,
        np.full(D, 1e150),
        [1e308, -1e308, 1e308],
        [5e-324, 0, 0],
        [1.0, 1.0 - 2.0**-24, 1.0],
    ]
)
_HOSTILE_DOCUMENTS = np.vstack(
    [
        np.zeros(12),
        np.eye(12)[:4] * 1000,
        np.eye(12)[4:6] * 0.5,
        np.full(12, 1e6),
        np.full(12, 1e300),
        np.eye(12)[7] * 1e-300,
    ]
)

_KINDS = {
    "logistic": (Likelihood(), Response()),
    "binomial": (Likelihood("binomial", max_trials=4), Response("binomial", max_trials=4)),
    "negative_binomial": (
        Likelihood("negative_binomial", dispersion=2.0, max_count=6),
        Response("negative_binomial", max_count=6),
    ),
}
#: Columns before the features: the response, and the trials of a binomial one.
_FIRST = {"logistic": 1, "binomial": 2, "negative_binomial": 1}


def designs(kind: str, intercept: float, sparse_rows: bool) -> Callable[..., Design]:
    """Regression rows from a matrix of one record a row: response, trials if there are any, D features."""

    def source(matrix: Floats, group: Any = None) -> Design:
        first = _FIRST[kind]
        trials = matrix[:, 1] if first == 2 else None
        form = {"intercept": intercept, "sparse_rows": sparse_rows, "group": group}
        return Design(matrix[:, first:], matrix[:, 0], trials, response=_KINDS[kind][1], **form)

    return source


def _responses(kind: str, rng: np.random.Generator, n: int) -> Floats:
    if kind == "binomial":
        trials = rng.integers(1, 5, n)
        return np.column_stack([rng.binomial(trials, 0.4), trials]).astype(np.float64)
    return rng.integers(0, 2 if kind == "logistic" else 9, (n, 1)).astype(np.float64)


def _hostile_design(kind: str) -> Floats:
    """Every hostile row with the smallest and the largest response."""
    low, high = {"logistic": ([0], [1]), "binomial": ([0, 4], [4, 4]), "negative_binomial": ([0], [99])}[kind]
    ends = [
        np.hstack([np.tile(np.asarray(end, dtype=float), (len(_HOSTILE_ROWS), 1)), _HOSTILE_ROWS])
        for end in (low, high)
    ]
    return np.vstack(ends)


def regression(
    name: str,
    model: Any,
    phases: Mapping[str, float],
    *,
    moved: Callable[[Any], Any] = lambda q: q,
    sparse_rows: bool = False,
) -> list[Case]:
    """One case for each phase, at a q that a short noisy run leads to, `moved` to where scores are largest."""
    kind = model.likelihood.kind
    source = designs(kind, model.intercept, sparse_rows)

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_responses(kind, rng, n), _table_records(rng, n)])

    def begin(seed: int) -> Any:
        releases = [r for r in phased(model.blocks, FullBatch(), [0.3, 0.3]) if "last" not in _phases(r)]
        rng = np.random.default_rng(seed)
        wall: Wall[Any] = Wall(source(records(rng, 200)), plan := Plan(releases), noise=InsecureNoise(seed))
        q, _ = loop.fit(model, wall, plan, rho=loop.robbins_monro(0.0, 1.0), rng=rng)
        return moved(q)

    common: dict[str, Any] = {"begin": begin, "responses": _FIRST[kind], "pairs": 50}
    return [
        Case(f"{name}_{phase}", model, source, records, _hostile_design(kind), phase=phase, reach=reach, **common)
        for phase, reach in phases.items()
    ]


def _far(point: Floats) -> Floats:
    return point * 40 / np.linalg.norm(point)


def _far_in_basis(q: Any) -> Any:
    return replace(q, point_e=_far(q.point_e))


def _far_in_columns(q: Any) -> Any:
    return replace(q, descent=replace(q.descent, point_d=_far(q.descent.point_d)))


VISIBLE = 6


def binary(matrix: Floats, group: Any = None) -> BinaryMatrix:
    return BinaryMatrix(matrix, group=group)


def network(name: str, model: Any, phases: Sequence[str]) -> list[Case]:
    """One case for each phase of a belief network; the bounds are for larger networks than this one."""

    def records(rng: np.random.Generator, n: int) -> Floats:
        return (rng.random((n, VISIBLE)) < 0.4).astype(np.float64)

    hostile = np.vstack(
        [np.zeros(VISIBLE), np.ones(VISIBLE), np.eye(VISIBLE), 1 - np.eye(VISIBLE), np.full(VISIBLE, 0.5)]
    )
    common: dict[str, Any] = {"responses": VISIBLE, "pairs": 50, "reach": 0.5}
    return [Case(f"{name}_{phase}", model, binary, records, hostile, phase=phase, **common) for phase in phases]


def _phases(release: Release) -> set[str]:
    return {block.phase for block in release.blocks.values()}


CASES = [
    Case("location", Location(), table, _table_records, _HOSTILE_ROWS),
    Case("curvature", Curvature(), table, _table_records, _HOSTILE_ROWS),
    Case("curvature_joint", Curvature(), table, _table_records, _HOSTILE_ROWS, clip="joint"),
    Case("lda", LDA(3, 12, clip=0.1, max_iter=20), bags, _documents, _HOSTILE_DOCUMENTS),
    Case(
        "lda_numpy",
        LDA(
            3,
            12,
            clip=0.1,
            max_iter=5,
            engine="numpy",
            length_rule="resample",
            count_power=1.0,
            background=False,
            word_power=0.0,
        ),
        bags,
        _documents,
        _HOSTILE_DOCUMENTS,
    ),
    *regression(
        "first_order",
        FirstOrder(D + 1, intercept=0.4),
        {"first": 0.9999, "step": 0.98, "last": 0.95},
        moved=_far_in_basis,
    ),
    *regression("counts", FirstOrder(D, _KINDS["negative_binomial"][0]), {"step": 0.9}, moved=_far_in_basis),
    *regression(
        "diagonal",
        FirstOrderDiagonal(D + 1, intercept=0.4),
        {"first": 0.9, "step": 0.9},
        moved=_far_in_columns,
        sparse_rows=True,
    ),
    *regression("trials", PolyaGamma(D, _KINDS["binomial"][0]), {"first": 0.9999, "step": 0.9}),
    *network("network", SBN(3, VISIBLE, clip=0.05, start_std=1.0), ["first", "step"]),
    *network("network_blocks", SBNBlocks(3, VISIBLE, start_std=1.0), ["step"]),
]
NAMES = [case.name for case in CASES]
Words = NDArray[np.uint64]
