"""Facts that the audit needs of a model: a way to its data, ordinary records, and those that strain it most.

A case is a model with private data given as a matrix of one row a record, so that neighbours are matrices that differ
in one row. The cases of this package's kinds are in `audit.kinds`; the author of another model writes one of their own:

    case = Case("my model", MyModel(), source=Matrix, records=draw_some, hostile=worst_records)
    print(dpvb.audit.audit(case))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from dpvb.core import loop
from dpvb.core.blocks import PHASES
from dpvb.core.model import Schedule
from dpvb.core.noise import InsecureNoise, NoiseSource
from dpvb.core.plan import Mechanism, Plan, Release, phased
from dpvb.core.released import Released
from dpvb.core.sampling import FullBatch, Sampler
from dpvb.core.wall import Wall
from dpvb.data.units import Chunk
from dpvb.estimators import PrivateEstimator
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import ParameterError

#: Features of the synthetic rows, and of wide models, whose every column is a canary's own.
D, WIDE = 3, 256


@dataclass(frozen=True)
class Matrix:
    """A private matrix of one record a row.

    Attributes:
        x: (rows, columns).
        person: (rows,), persons numbered 0, 1, ... in any order; None: each row is a unit.
        chunk: number of units that are read at a time.

    Examples:
        >>> import numpy as np
        >>> from dpvb.audit import Matrix
        >>> people = Matrix(np.zeros((3, 2)), person=np.array([0, 1, 0]))
        >>> people.count(), [chunk.num_units for chunk in people.chunks()]
        (2, [2])
    """

    x: Floats
    person: Ints | None = None
    chunk: int = 7

    def count(self) -> int:
        """Number of units."""
        return len(self.x) if self.person is None else int(self.person.max(initial=-1)) + 1

    def chunks(self) -> Iterator[Chunk[Floats]]:
        """All units, in order; one chunk of no units if there are none."""
        for start in range(0, max(1, self.count()), self.chunk):
            stop = min(start + self.chunk, self.count())
            if self.person is None:
                yield Chunk(slice(start, stop), None, stop - start, self.x.__getitem__)
            else:
                own = np.flatnonzero((self.person >= start) & (self.person < stop))
                yield Chunk(own, self.person[own] - start, stop - start, self.x.__getitem__)


@dataclass(frozen=True)
class Case:
    """A model, a way to draw records for it, and the records that strain it most; all of them synthetic, not private.

    Attributes:
        name: Name of the case, in words.
        model: see `core.model.Model`.
        source: makes a source of private data from a matrix of one record a row, and the person of each row or None.
        records: Draws n ordinary records, (n, columns).
        hostile: records at the bound and beyond, in many directions, (n, columns).
        clipping: "block" or "joint"; see `mechanism.Release`.
        phase: the one release that is looked at, of a model that answers one phase at a time; None: all blocks.
        begin: q from a seed, if not the model's own start; a q with large statistics that data could give.
        responses: number of columns before the features.
        wide: a larger model of the same kind, each of whose hostile records is a canary of the one-run audit; None:
            the case itself.
        fit: fits the estimator that users meet to a matrix, with its parameters as keywords; None: there is none.
        of_width: the case of the same model with another number of features, where rounding shows more; None: the
            number is fixed.

    Raises:
        ParameterError: if the hostile records are not a matrix.

    Examples:
        >>> import numpy as np
        >>> from dpvb.audit import Case, Matrix
        >>> from dpvb.papers.conjugate_exponential import BetaBernoulli
        >>> hostile = np.array([[0.0], [9.9]])
        >>> case = Case("rate", BetaBernoulli(), Matrix, records=lambda rng, n: rng.random((n, 1)), hostile=hostile)
        >>> case.width, case.phases
        (1, ['step'])
    """

    name: str
    model: Any
    source: Callable[..., Any]
    records: Callable[[np.random.Generator, int], Floats]
    hostile: Floats
    clipping: str = "block"
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
        return [phase for phase in PHASES if phase in own]

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
            [Release(blocks, Mechanism(sampler, level), clipping=self.clipping) for level in levels],  # type: ignore[arg-type]
            **options,
        )

    def whole(self, sampler: Sampler, noise: Sequence[float], **options: Any) -> Plan:
        """A run from beginning to end, all phases included."""
        shares = getattr(self.model, "schedule", Schedule(())).budget
        return phased(self.model.blocks, sampler, noise, shares=shares, clipping=self.clipping, **options)  # type: ignore[arg-type]

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


def of_estimator(
    name: str,
    estimator: PrivateEstimator,
    source: Callable[..., Any],
    records: Callable[[np.random.Generator, int], Floats],
    hostile: Floats,
    columns: Callable[[Floats], Mapping[str, Any]] = lambda matrix: {"X": matrix},
    **more: Any,
) -> Case:
    """The case of the model that an estimator fits.

    Args:
        name, source, records, hostile: as in Case.
        estimator: not fitted.
        columns: what the estimator's `fit` takes for a matrix of records.
        more: other attributes of the case.
    """

    def fit(matrix: Floats, **options: Any) -> Any:
        return clone(estimator).set_params(**options).fit(**columns(matrix))

    model = estimator._task(**columns(hostile[:0])).model
    return Case(name, model, source, records, hostile, **{"fit": fit, **more})


# --- rows of numbers, which several kinds read --------------------------------------------------------------

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


def table_records(rng: np.random.Generator, n: int, width: int = D) -> Floats:
    """Ordinary rows of all sizes."""
    return rng.standard_normal((n, width)) * 10.0 ** rng.uniform(-3, 2, (n, 1))
