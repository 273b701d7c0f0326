"""What the audit needs to know of a model: a way to its data, ordinary records, and those that strain it most.

A case is a model with private data given as a matrix of one row a record, so that neighbours are matrices that differ
in one row. The cases of this package's models are here; the author of another model writes one of their own:

    case = Case("my model", MyModel(), source=Matrix, records=draw_some, hostile=worst_records)
    print(dpvb.audit.audit(case))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from dpvb.core import loop
from dpvb.core.noise import InsecureNoise, NoiseSource
from dpvb.core.plan import Mechanism, Plan, Release, phased
from dpvb.core.released import Released
from dpvb.core.sampling import FullBatch, Sampler
from dpvb.core.schedule import Schedule, robbins_monro
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.data.tables.design import BinaryMatrix, Design
from dpvb.data.tables.numbers import Numbers
from dpvb.data.tables.response import Response
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_choice
from dpvb.models.belief_network.first_order import SBN
from dpvb.models.belief_network.six_blocks import SBNBlocks
from dpvb.models.gradients.density import Density
from dpvb.models.gradients.model import GUIDES, Variational
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.first_order_diagonal import FirstOrderDiagonal
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.polya_gamma import PolyaGamma
from dpvb.models.topics.lda import LDA

#: Classes of this package that can be audited; DPVI where JAX is installed.
NAMES: tuple[str, ...] = (
    *("LDA", "LogisticRegression", "BinomialRegression", "NegativeBinomialRegression", "SigmoidBeliefNetwork"),
    *(("DPVI",) if find_spec("jax") else ()),
)

#: Features of the regressions, columns of documents, visible units.
D, TERMS, VISIBLE = 3, 12, 6
# Of the wide models, whose every column is a canary's own.
_WIDE, _WIDE_TERMS, _WIDE_VISIBLE = 256, 400, 256


@dataclass(frozen=True)
class Case:
    """A model, a way to draw records for it, and the records that strain it most; all of it is made up, not private.

    Attributes:
        name: in words.
        model: see `loop.Model`.
        source: makes a source of private data from a matrix of one record a row, and the person of each row or None.
        records: draws so many ordinary records, (n, columns).
        hostile: records at the bound and beyond, in many directions, (n, columns).
        clip: "block" or "joint"; see `mechanism.Release`.
        phase: the one release that is looked at, of a model that answers one phase at a time; None: all blocks.
        begin: q from a seed, if not the model's own start; one where statistics are large, and which data could give.
        responses: number of columns before the features.
        wide: a larger model of the same kind, each of whose hostile records is a canary of the one-run audit; None:
            the case itself.
        fit: fits the estimator that users meet to a matrix, with its parameters as keywords; None: there is none.
        of_width: the case of the same model with another number of features, where rounding shows more; None: the
            number is fixed.

    Raises:
        ParameterError: if the hostile records are no matrix.
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
    wide: Case | None = None
    fit: Callable[..., Any] | None = None
    of_width: Callable[[int], Case] | None = None

    def __post_init__(self) -> None:
        if np.ndim(self.hostile) != 2 or not len(self.hostile):
            raise ParameterError(
                f"hostile must be a matrix of records, got an array of shape {np.shape(self.hostile)}."
            )

    @property
    def width(self) -> int:
        """Number of columns of a record."""
        return int(self.hostile.shape[1])

    @property
    def phases(self) -> list[str]:
        """Phases of the model's releases, in order."""
        own = {block.phase for block in self.model.blocks.values()}
        return [phase for phase in ("first", "step", "last") if phase in own]

    def parts(self) -> list[Case]:
        """One case for each phase."""
        return [replace(self, name=f"{self.name}_{phase}", phase=phase) for phase in self.phases]

    def plan(
        self, sampler: Sampler | None = None, noise: float | Sequence[float] = 1.0, steps: int = 1, **options: Any
    ) -> Plan:
        """Releases of the blocks that are looked at, with the given noise multipliers."""
        levels = [noise] * steps if isinstance(noise, (int, float)) else list(noise)
        sampler = FullBatch() if sampler is None else sampler
        blocks = {n: b for n, b in self.model.blocks.items() if self.phase in (None, b.phase)}
        return Plan(
            [Release(blocks, Mechanism(sampler, level), clip=self.clip) for level in levels],  # type: ignore[arg-type]
            **options,
        )

    def whole(self, sampler: Sampler, noise: Sequence[float], **options: Any) -> Plan:
        """A run from beginning to end, all phases included."""
        shares = getattr(self.model, "schedule", Schedule(())).budget
        return phased(self.model.blocks, sampler, noise, shares=shares, clip=self.clip, **options)  # type: ignore[arg-type]

    @property
    def modest(self) -> Floats:
        """The second hostile record, brought from a norm of 1000 to 1."""
        return np.asarray(np.where(np.arange(self.width) < self.responses, 1.0, 1e-3) * self.hostile[1])

    def start(self, seed: int = 1) -> Any:
        """A public q from a seed."""
        return self.model.init(np.random.default_rng(seed)) if self.begin is None else self.begin(seed)

    def some(self, rng: np.random.Generator, count: int) -> Floats:
        """Ordinary and hostile records, mixed."""
        hostile = self.hostile[rng.integers(0, len(self.hostile), count)]
        return np.where(rng.random((count, 1)) < 0.3, hostile, self.records(rng, count))

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
        return [wall.release(loop.query(self.model, q, r), r) for r in plan]


def shipped(name: str) -> list[Case]:
    """The cases of one of this package's models, one for each of its solvers or forms.

    Raises:
        ParameterError: for a name that is not one of NAMES.
    """
    check_choice("model class", name, NAMES)
    if name == "LDA":
        return [_topics()]
    if name == "DPVI":
        return [_gradients(guide) for guide in GUIDES]
    if name == "SigmoidBeliefNetwork":
        return [_network(form) for form in ("first_order", "six_blocks", "paper")]
    return [_regression(name, *solver) for solver in _SOLVERS]


# --- topics -------------------------------------------------------------------------------------------------


def bags(matrix: Floats, group: Any = None) -> BagOfWords:
    """Documents from a matrix of counts."""
    return BagOfWords(np.asarray(matrix), group=group)


def documents(rng: np.random.Generator, n: int, terms: int = TERMS) -> Floats:
    """Ordinary documents, some with counts that are no whole numbers."""
    return np.asarray(rng.poisson(1.0, (n, terms)) * rng.choice([1.0, 0.37, 40.0], (n, 1)))


HOSTILE_DOCUMENTS = np.vstack(
    [
        np.zeros(TERMS),
        np.eye(TERMS)[:4] * 1000,
        np.eye(TERMS)[4:6] * 0.5,
        np.full(TERMS, 1e6),
        np.full(TERMS, 1e300),
        np.eye(TERMS)[7] * 1e-300,
    ]
)


def _topics() -> Case:
    def fit(matrix: Floats, **options: Any) -> Any:
        from dpvb.estimators import lda

        return lda.LDA(3, public_vocabulary=True, **options).fit(matrix)

    def wide_documents(rng: np.random.Generator, n: int) -> Floats:
        return rng.poisson(0.1, (n, _WIDE_TERMS)).astype(np.float64)

    def of_width(d: int) -> Case:
        return Case("LDA", LDA(3, d, clip=0.1), bags, partial(documents, terms=d), np.eye(d))

    one_word_each = np.eye(_WIDE_TERMS) * 500.0
    wide = Case("LDA, wide", LDA(2, _WIDE_TERMS), bags, wide_documents, one_word_each)
    own = Case("LDA", LDA(3, TERMS, clip=0.1), bags, documents, HOSTILE_DOCUMENTS)
    return replace(own, wide=wide, fit=fit, of_width=of_width)


# --- regressions --------------------------------------------------------------------------------------------

_AXES = np.eye(D)
HOSTILE_ROWS = np.vstack(
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

KINDS = {
    "logistic": (Likelihood(), Response()),
    "binomial": (Likelihood("binomial", max_trials=4), Response("binomial", max_trials=4)),
    "negative_binomial": (
        Likelihood("negative_binomial", dispersion=2.0, max_count=6),
        Response("negative_binomial", max_count=6),
    ),
}
#: Columns before the features: the response, and the trials of a binomial one.
_FIRST = {"logistic": 1, "binomial": 2, "negative_binomial": 1}
_CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "LogisticRegression": ("logistic", {}),
    "BinomialRegression": ("binomial", {"max_trials": 4}),
    "NegativeBinomialRegression": ("negative_binomial", {"dispersion": 2.0, "max_count": 6}),
}
_SOLVERS = (
    ("first_order", "full"),
    ("first_order", "diagonal"),
    ("sufficient_statistics", "full"),
    ("paper", "full"),
)


def table_records(rng: np.random.Generator, n: int, width: int = D) -> Floats:
    """Ordinary rows of all sizes."""
    return rng.standard_normal((n, width)) * 10.0 ** rng.uniform(-3, 2, (n, 1))


def designs(kind: str, intercept: float, sparse_rows: bool) -> Callable[..., Design]:
    """Regression rows from a matrix of one record a row: response, trials if there are any, features."""

    def source(matrix: Floats, group: Any = None) -> Design:
        first = _FIRST[kind]
        trials = matrix[:, 1] if first == 2 else None
        form: dict[str, Any] = {"intercept": intercept, "sparse_rows": sparse_rows, "group": group}
        return Design(matrix[:, first:], matrix[:, 0], trials, response=KINDS[kind][1], **form)

    return source


def _responses(kind: str, rng: np.random.Generator, n: int) -> Floats:
    if kind == "binomial":
        trials = rng.integers(1, 5, n)
        return np.column_stack([rng.binomial(trials, 0.4), trials]).astype(np.float64)
    return rng.integers(0, 2 if kind == "logistic" else 9, (n, 1)).astype(np.float64)


def _with_ends(kind: str, rows: Floats) -> Floats:
    """Every row with the smallest and the largest response."""
    ends = {"logistic": ([0], [1]), "binomial": ([0, 4], [4, 4]), "negative_binomial": ([0], [99])}[kind]
    return np.vstack([np.hstack([np.tile(np.asarray(end, dtype=float), (len(rows), 1)), rows]) for end in ends])


def regression(name: str, model: Any, rows: Floats = HOSTILE_ROWS) -> Case:
    """The case of a regression: q comes from a short noisy run and is moved to where scores are largest."""
    kind = model.likelihood.kind
    diagonal = isinstance(model, FirstOrderDiagonal)
    source = designs(kind, model.intercept, sparse_rows=diagonal)
    moved = _far_in_columns if diagonal else _far_in_basis if isinstance(model, FirstOrder) else _unmoved

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_responses(kind, rng, n), table_records(rng, n, rows.shape[1])])

    def begin(seed: int) -> Any:
        releases = [r for r in phased(model.blocks, FullBatch(), [0.3, 0.3]) if "last" not in _phases(r)]
        rng = np.random.default_rng(seed)
        wall: Wall[Any] = Wall(source(records(rng, 200)), plan := Plan(releases), noise=InsecureNoise(seed))
        q, _ = loop.fit(model, wall, plan, rho=robbins_monro(0.0, 1.0), rng=rng)
        return moved(q)

    return Case(name, model, source, records, _with_ends(kind, rows), begin=begin, responses=_FIRST[kind])


def _regression(name: str, solver: str, covariance: str) -> Case:
    """One of the package's own regressions, with an intercept, as its users fit it."""
    kind, caps = _CLASSES[name]
    likelihood, first = KINDS[kind][0], _FIRST[kind]

    def model(width: int, intercept: float) -> Any:
        given: dict[str, Any] = {"likelihood": likelihood, "intercept": intercept}
        if solver == "first_order":
            return (FirstOrderDiagonal if covariance == "diagonal" else FirstOrder)(width, **given)
        return PolyaGamma(width, variant="paper" if solver == "paper" else "corrected", **given)

    def fit(matrix: Floats, **options: Any) -> Any:
        from dpvb.estimators import regression as estimators

        chosen = getattr(estimators, name)(solver=solver, covariance=covariance, **caps, **options)
        trials = (matrix[:, 1],) if first == 2 else ()
        return chosen.fit(matrix[:, first:], matrix[:, 0], *trials)

    axes = _with_ends(kind, np.eye(_WIDE))[_WIDE:]
    source = designs(kind, 0.0, sparse_rows=covariance == "diagonal")
    wide = Case(f"{name}, wide", model(_WIDE, 0.0), source, lambda rng, n: axes[rng.integers(0, _WIDE, n)], axes)
    form = "first_order, diagonal" if covariance == "diagonal" else solver
    corners = 1e3 * np.array(list(itertools.product([-1.0, 1.0], repeat=D)))
    own = regression(f"{name}, {form}", model(D + 1, 0.4), np.vstack([HOSTILE_ROWS, corners]))
    return replace(own, wide=wide, fit=fit, of_width=lambda d: regression(name, model(d + 1, 0.4), np.eye(d)))


def _far(point: Floats) -> Floats:
    return point * 40 / np.linalg.norm(point)


def _far_in_basis(q: Any) -> Any:
    return replace(q, point_e=_far(q.point_e))


def _far_in_columns(q: Any) -> Any:
    return replace(q, descent=replace(q.descent, point_d=_far(q.descent.point_d)))


def _unmoved(q: Any) -> Any:
    return q


def _phases(release: Release) -> set[str]:
    return {block.phase for block in release.blocks.values()}


# --- belief networks ----------------------------------------------------------------------------------------


def binary(matrix: Floats, group: Any = None) -> BinaryMatrix:
    """Binary vectors."""
    return BinaryMatrix(matrix, group=group)


def network(name: str, model: Any) -> Case:
    """The case of a belief network with VISIBLE visible units."""
    width = model.n_visible

    def records(rng: np.random.Generator, n: int) -> Floats:
        return (rng.random((n, width)) < 0.4).astype(np.float64)

    hostile = np.vstack([np.zeros(width), np.ones(width), np.eye(width), 1 - np.eye(width), np.full(width, 0.5)])
    return Case(name, model, binary, records, hostile, responses=width)


def _network(form: str) -> Case:
    """One of the package's own belief networks."""

    def model(width: int, clip: float) -> Any:
        if form == "first_order":
            return SBN(3, width, clip=clip, start_std=1.0)
        return SBNBlocks(3, width, variant="paper" if form == "paper" else "clipped", start_std=1.0)

    def fit(matrix: Floats, **options: Any) -> Any:
        from dpvb.estimators.sbn import SigmoidBeliefNetwork

        return SigmoidBeliefNetwork(3, form=form, **options).fit(matrix)

    name = f"SigmoidBeliefNetwork, {form}"
    wide = replace(network(f"{name}, wide", model(_WIDE_VISIBLE, 1.0)), hostile=np.eye(_WIDE_VISIBLE))
    own = network(name, model(VISIBLE, 0.05))
    return replace(own, wide=wide, fit=fit, of_width=lambda d: network(name, model(d, 0.05)))


# --- private gradients --------------------------------------------------------------------------------------


def numbers(matrix: Floats, group: Any = None) -> Numbers:
    """Rows of plain numbers."""
    return Numbers(matrix, group=group)


def location(theta: Any, x: Any) -> Any:
    """Log-density of a Gaussian with mean θ, whose gradient x - θ is as long as the row is."""
    return -0.5 * ((x - theta) ** 2).sum()


def gradients(name: str, guide: str, width: int = D) -> Case:
    """The case of private gradients for a Gaussian's mean."""
    model = Variational(Density(location, width, width), guide)
    hostile = HOSTILE_ROWS if width == D else np.eye(width) * 1e3

    return Case(
        name,
        model,
        numbers,
        partial(table_records, width=width),
        hostile,
        of_width=lambda d: gradients(name, guide, d),
    )


def _gradients(guide: str) -> Case:
    """Private gradients, as users fit them."""

    def fit(matrix: Floats, **options: Any) -> Any:
        from dpvb.estimators.dpvi import DPVI

        return DPVI(location, parameters=matrix.shape[1], guide=guide, **options).fit(matrix)

    name = f"DPVI, {guide}"
    return replace(gradients(name, guide), wide=gradients(f"{name}, wide", guide, _WIDE), fit=fit)
