"""A range for a numeric column, chosen by one small private release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dpvb.accounting import doubts
from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.forms import SparseRows
from dpvb.core.plan import Mechanism, Plan, Release, calibrated
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.slabs import Which
from dpvb.data.spelling import as_numbers
from dpvb.data.tables.matrices import column
from dpvb.data.units import Chunk, Held, Units
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.guards.lacking import says_what_lacks
from dpvb.results.statement import PrivacyStatement
from dpvb.runs.run import Run

# Each with its inverse.
_TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "none": (np.positive, np.positive),
    "log1p": (np.log1p, np.expm1),
    "asinh": (np.arcsinh, np.sinh),
}


@dataclass(frozen=True)
class PrivateRange:
    """A released range; public.

    Attributes:
        low, high: where the chosen share of the values lies, on the edges of the grid.
        privacy: the statement of the release; its ε and δ add to those of whatever else is released of the same data.
    """

    low: float
    high: float
    privacy: PrivacyStatement

    def __iter__(self) -> Iterator[float]:
        """So that `low, high = private_range(...)`."""
        return iter((self.low, self.high))


@says_what_lacks
def private_range(
    values: object,
    *,
    low: float,
    high: float,
    epsilon: float,
    delta: float,
    share: float = 0.99,
    transform: Literal["log1p", "asinh"] | None = None,
    num_cells: int = 256,
    group: Iterable[object] | None = None,
    neighboring_relation: str = "add_or_remove_one",
    run: Run | None = None,
) -> PrivateRange:
    """Choose the range that holds the middle of a column's values, from noisy counts over a public grid.

    Each row adds one to the cell it lies in. Counts below what noise alone can reach are taken for zero, so that
    the many empty cells of a wide grid do not drown the few full ones; then the range runs from the quantile
    (1 - share)/2 to its mirror. If nothing stands out of the noise, it is the whole grid.

    Args:
        values: the column, 1-D, of numbers or their texts; private. NaN and what is no number add nothing;
            values beyond the grid count in its end cells.
        low, high: public ends of a grid that is surely wide enough, finite numbers, low below high.
        epsilon: the budget of this release, in (0, inf]; inf: no noise and no privacy.
        delta: the chance that its promise leaves open, in (0, 1): well below one over the number of units, as 1e-6.
        share: of the values, in (0, 1), that the range is to hold.
        transform: None for cells of equal width; "log1p" or "asinh" for cells that are equal after it, as a wide
            range needs.
        num_cells: number of cells.
        group: the person of each value; private. A person's values then count as one unit, clipped to norm 1.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        run: `dpvb.Run` whose ledger is charged. None (default): the run of the block around the call, or of the
            environment.

    Raises:
        ParameterError: a public argument outside its range.
        BudgetError, LedgerError: if the data set cannot be charged; nothing was read.
        DataFormatError: values that are not one-dimensional, or group of another length.
        WallError: if the computation failed behind the wall; the charge stands.
    """
    check_choice("transform", "none" if transform is None else transform, tuple(_TRANSFORMS))
    low = check_number("low", low, low=-1.0 if transform == "log1p" else -1e300, high=1e300, closed="right")
    high = check_number("high", high, low=low, high=1e300, closed="right")
    check_number("share", share, low=0, high=1, closed="neither")
    cells = check_integer("num_cells", num_cells, low=1, high=10**6)
    source = _Column(values, group)
    histogram = _Histogram(low, high, cells, "none" if transform is None else transform)
    release = Release(histogram.blocks, Mechanism(FullBatch(), 1.0))
    relative = Plan([release], neighboring_relation, source.unit)  # type: ignore[arg-type]
    with replace(Run.current(run), checkpoint=None, resume=None).opened() as run:
        method = run.method("pld", relative.events())
        plan = calibrated(relative, epsilon=epsilon, delta=delta, accountant=method)
        doubts.warn(epsilon, delta, unit=plan.unit, events=plan.events(), stacklevel=4)
        doubts.warn_of_ranges([("low", low), ("high", high)], stacklevel=4)
        with run.journal(plan, epsilon=epsilon, delta=delta) as journal:
            released = Wall(source, plan, journal=journal).release(histogram.e_step, plan.releases[0])
    ends = histogram.quantiles(released.total["counts"], released.noise_std["counts"], (1.0 - share) / 2)
    statement = PrivacyStatement.from_plan(
        plan,
        delta=delta,
        private=released.receipt.private,
        run_id=released.receipt.run if journal is None else journal.name,
        public=[f"a grid of {cells} cells from {low:g} to {high:g}, the share {share:g} that the range is to hold"],
        num_examples=None,
        charge=None if journal is None else journal.charge,
    )
    return PrivateRange(*ends, statement)


class _Column(Held):
    """A private column of numbers."""

    def __init__(self, values: object, group: Iterable[object] | None) -> None:
        self._value_n = as_numbers(column("values", values, None))
        self._units = Units(np.arange(len(self._value_n) + 1, dtype=np.int64), group)

    def chunks(self) -> Iterator[Chunk[Floats]]:
        return self._units.chunks(self._rows)

    def _rows(self, which: Which) -> Floats:
        return self._value_n[which]

    def _keep(self, which: Which) -> None:
        self._value_n = self._value_n[which]


@dataclass(frozen=True)
class _Histogram:
    """Counts of values over a public grid; one call of the wall."""

    low: float
    high: float
    num_cells: int
    transform: str

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"counts": Block((self.num_cells,), 1.0, "nonnegative")}

    @property
    def edges(self) -> Floats:
        """Ends of the cells, (num_cells + 1,)."""
        forward, back = _TRANSFORMS[self.transform]
        edges = np.asarray(back(np.linspace(forward(self.low), forward(self.high), self.num_cells + 1)))
        edges[[0, -1]] = self.low, self.high
        return edges

    def e_step(self, value_n: Floats) -> Contributions:
        """A one in the cell of each value."""
        finite = np.isfinite(value_n)
        cell = np.searchsorted(self.edges[1:-1], value_n[finite], side="right")
        indptr = np.concatenate([[0], np.cumsum(finite)])
        return {"counts": SparseRows(indptr, cell.astype(np.int32), np.ones(len(cell)))}

    def quantiles(self, count_c: Floats, noise_std: float, tail: float) -> tuple[float, float]:
        """Ends of the cells in which the quantiles `tail` and 1 - `tail` lie."""
        # The noise of some cell exceeds this with probability 10⁻⁷ at most.
        reach = noise_std * math.sqrt(2.0 * math.log(0.5e7 * self.num_cells))
        total_c = np.cumsum(np.where(count_c > reach, count_c, 0.0))
        if total_c[-1] <= 0.0:
            return self.low, self.high
        first = int(np.searchsorted(total_c, tail * total_c[-1], side="right"))
        last = int(np.searchsorted(total_c, (1.0 - tail) * total_c[-1], side="left"))
        edges = self.edges
        return float(edges[first]), float(edges[last + 1])
