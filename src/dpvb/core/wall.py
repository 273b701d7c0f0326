"""The wall: private data behind two doors, and the only things that come out of them.

To check the promise, read this file. `Wall.release` charges the plan, draws a batch, asks the model for its
contributions, clips them, sums them in integers, adds integer noise, has the result put on record, and seals
it. `Wall.share` does the same for one of several parties: its integers carry the party's part of the noise, and
what conceals them until they are added; `gathered` adds and seals them. Nothing else leaves: no error, no warning,
no size, no norm. `Released` is made only here. A model's M-step takes an `Estimate`, which is made of `Released`
alone, so it cannot be handed anything that was not noised.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block, Floats, Ints
from dpvb.core.contributions import Contribution, Contributions, Grid, grouped, is_gram, nonnegative
from dpvb.core.forks import Origin
from dpvb.core.grids import Party, grids_of
from dpvb.core.journal import Journal, Unrecorded
from dpvb.core.noise import NoiseSource, SecureNoise
from dpvb.core.plan import Draw, Plan, Release
from dpvb.core.source import Chunk, Source
from dpvb.errors import CheckpointError, PrivacyError, WallError
from dpvb.guards.silence import silence

Rows = TypeVar("Rows")
Made = TypeVar("Made")

# Norms are clipped to this share of the bound, so that rounding a product cannot reach past the bound itself.
_MARGIN = 1.0 - 2.0**-20

#: What makes a party's integers fit to leave it: integers of every block -> integers, modulo 2⁶⁴.
Conceal = Callable[[Mapping[str, Ints]], Mapping[str, Ints]]

#: What stops a process, and is no failure of a computation.
STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit)

_SEAL = object()


@final
@dataclass(frozen=True)
class Receipt:
    """Where a release stands in its run; public.

    Attributes:
        run: random public name of the run.
        step: position in the plan, from 0.
        plan_digest: SHA-256 of the plan.
        private: False if the noise came from a test source.
    """

    run: str
    step: int
    plan_digest: str
    private: bool


@final
@dataclass(frozen=True, repr=False)
class Released:
    """Noisy sums of one batch, packed; made by the wall alone.

    Attributes:
        total: clipped, noised sum of every block, in the block's units.
        noise_std: noise std of a scaled coordinate of every block, in the block's units.
        sampling_prob: public inclusion probability of the batch.
        receipt: where it belongs.
    """

    total: Mapping[str, Floats]
    noise_std: Mapping[str, float]
    sampling_prob: float
    receipt: Receipt
    seal: InitVar[object] = None

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise PrivacyError("Released is made by Wall.release alone.")


@final
@dataclass(frozen=True, repr=False)
class Work(Generic[Rows]):
    """What one release does with private data; it may travel to other processes that hold some of them.

    Attributes:
        query: the model's e_step at the current q.
        release: which blocks, by which mechanism.
        grids: the public grid of each block.
        words: uniform words of this step, (count, start); whoever knows them knows who is in the batch.
    """

    query: Callable[[Rows], Contributions]
    release: Release
    grids: Mapping[str, Grid]
    words: Callable[..., NDArray[np.uint64]]

    def draw(self, count: Callable[[], int], start: int = 0) -> Draw:
        """Start the batch at unit number `start`: word n decides on unit n, in whatever process that is."""
        position = start

        def bits(count: int) -> NDArray[np.uint64]:
            nonlocal position
            position += count
            return self.words(count, start=position - count)

        return self.release.mechanism.sampler.draw(bits, count)

    def sums(self, chunks: Iterable[Chunk[Rows]], draw: Draw) -> dict[str, Ints]:
        """Exact integer sums of the clipped contributions of the units that are drawn.

        A function of the arguments alone. Sums of parts add up to the sums of the whole, bit for bit.
        """
        sums, computed, failed = self._nothing(), False, None
        for chunk in chunks:
            batch = chunk.select(draw(chunk.num_units))
            if not batch.num_units:
                continue
            if self._add(batch, sums):
                computed = True
                continue
            failed = batch
            for n in range(batch.num_units):  # A unit that cannot be computed by itself adds nothing.
                computed |= self._add(batch.select(np.arange(batch.num_units) == n), sums)
        if failed is not None and not computed:
            # What fails for no units as well fails for everybody, whatever the data are.
            self._added(failed.select(np.zeros(failed.num_units, dtype=np.bool_)))
        return sums

    def _nothing(self) -> dict[str, Ints]:
        blocks = self.release.blocks
        return {name: np.zeros(block.packed_shape, dtype=np.int64) for name, block in blocks.items()}

    def _add(self, batch: Chunk[Rows], sums: Mapping[str, Ints]) -> bool:
        """Add the units of a batch together, or nothing where that failed; tells which."""
        try:
            added = self._added(batch)
        except BaseException as error:
            if isinstance(error, STOPS):
                raise
            return False
        for name, total in added.items():
            sums[name] += total
        return True

    def _added(self, batch: Chunk[Rows]) -> dict[str, Ints]:
        contributions = self.query(batch.rows)
        if batch.unit_of_row is not None:
            contributions = {
                name: grouped(contribution, batch.unit_of_row, batch.num_units)
                for name, contribution in contributions.items()
            }
        sums = self._nothing()
        _add_clipped(contributions, batch.num_units, self.release, self.grids, sums)
        return sums


class Spread(ABC, Generic[Rows]):
    """Private data of which several processes hold parts; all of them are behind the wall."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk[Rows]]:
        """All units, in a fixed order."""

    @abstractmethod
    def count(self) -> int:
        """Number of units; private under add/remove."""

    @abstractmethod
    def sums(self, work: Work[Rows], step: int) -> Mapping[str, Ints]:
        """What `work.sums` gives for all units; raises if any part is missing."""


@final
class Wall(Generic[Rows]):
    """Keeps private data; `release`, or for a party `share`, is all that it gives out, in the process that made it.

    Args:
        source: private data.
        plan: public; its releases are granted once each, in order.
        noise: source of all secret randomness; only tests and runs pass one.
        num_examples: public number of units, if there is one; it sizes the integer sums.
        journal: where releases are charged and recorded durably, if anywhere.
        party: for one of several walls whose sums are added.

    Raises:
        ParameterError: if a block's integer sum would have no room for so many units, or for a share of noise.
    """

    def __init__(
        self,
        source: Source[Rows],
        plan: Plan,
        *,
        noise: NoiseSource | None = None,
        num_examples: int | None = None,
        journal: Journal | None = None,
        party: Party | None = None,
    ) -> None:
        self.__source = source
        self.__journal = Unrecorded() if journal is None else journal
        self.__noise = SecureNoise() if noise is None else noise
        self.__plan = plan
        self.__step = 0
        self.__turn = threading.Lock()
        self.__origin = Origin()
        self.__party = party
        self.__grids = [grids_of(release, num_examples, party) for release in plan]

    def __repr__(self) -> str:
        return f"Wall(step {self.__step} of {len(self.__plan)})"

    def __reduce__(self) -> str:
        raise PrivacyError("a wall holds private data and cannot be pickled or copied.")

    def release(self, query: Callable[[Rows], Contributions], release: Release) -> Released:
        """Return the noised sums of the contributions of one fresh batch.

        Args:
            query: the model's e_step at the current q; runs behind the wall.
            release: the plan's next release.

        Raises:
            PrivacyError: if this is not the plan's next release, the wall is a party's, or this process was forked from
                the wall's; nothing is read.
            LedgerError: if the journal could not charge it (nothing is read) or record it (nothing is released).
            CheckpointError: if the journal has another release in its place.
            WallError: if the computation failed; the charge stands, the reason is not told.
        """
        if self.__party is not None:
            raise PrivacyError("this wall is one of several parties: its noise may be a part only. Use share.")
        step, total = self._made(query, release, self._in_units)
        noise_std = {name: release.noise_std(name) for name in release.blocks}
        digest = self.__plan.digest.hex()
        receipt = Receipt(self.__noise.run_id, step, digest, self.__noise.private)
        return Released(total, noise_std, release.mechanism.sampler.sampling_prob, receipt, _SEAL)

    def share(
        self, query: Callable[[Rows], Contributions], release: Release, conceal: Conceal
    ) -> tuple[Mapping[str, Ints], bool]:
        """Return this party's integers, which `gathered` adds to the others', and whether their noise is secret.

        Args:
            query, release: as in `release`.
            conceal: what is added to the integers, modulo 2⁶⁴, and cancels in the sum over all parties.

        Raises:
            PrivacyError, LedgerError, CheckpointError, WallError: as in `release`.
        """
        if self.__party is None:
            raise PrivacyError("this wall is alone: use release.")
        _, made = self._made(query, release, lambda step, noised: conceal(noised))
        return made, self.__noise.private

    def forgo(self, release: Release) -> None:
        """Pass over the plan's next release: nothing is read, and what was charged stays charged.

        Raises:
            PrivacyError: if this is not the plan's next release.
        """
        self._charge(release)

    def _made(
        self,
        query: Callable[[Rows], Contributions],
        release: Release,
        leave: Callable[[int, Mapping[str, Ints]], Mapping[str, NDArray[Any]]],
    ) -> tuple[int, Mapping[str, NDArray[Any]]]:
        """Position of a release, and what leaves the wall, by then on record."""
        step = self._charge(release)
        made = self.__journal.recorded(step)
        if made is not None:
            _check_form(made, release, np.int64 if self.__party is not None else np.float64)
        else:
            self.__journal.begin(step)
            sums = self._sums(query, release, step)
            if sums is None:
                raise WallError("a computation behind the wall failed; its charge stands and its reason stays private.")
            made = leave(step, {name: self._noised(name, sums[name], release, step) for name in release.blocks})
            self.__journal.record(step, made)
        return step, made

    def _in_units(self, step: int, noised: Mapping[str, Ints]) -> Mapping[str, Floats]:
        return {name: self.__grids[step][name].units(ints) for name, ints in noised.items()}

    def _charge(self, release: Release) -> int:
        """Spend the plan's next step before anything is read."""
        self.__origin.check("this wall")
        with self.__turn:
            return self._next(release)

    def _next(self, release: Release) -> int:
        step = self.__step
        if step >= len(self.__plan) or release is not self.__plan.releases[step]:
            raise PrivacyError(
                f"the plan fixes {len(self.__plan)} releases and {step} are spent: this is not its next one."
            )
        self.__step += 1
        return step

    def _sums(self, query: Callable[[Rows], Contributions], release: Release, step: int) -> Mapping[str, Ints] | None:
        """Exact integer sums of the clipped contributions, or None if anything failed."""
        source, noise, grids = self.__source, self.__noise, self.__grids[step]

        def sums() -> Mapping[str, Ints]:
            work = Work(query, release, grids, noise.words(step=step, purpose="sampling"))
            if isinstance(source, Spread):
                return source.sums(work, step)
            return work.sums(source.chunks(), work.draw(source.count))

        return _behind(sums)

    def _noised(self, name: str, total: Ints, release: Release, step: int) -> Ints:
        """Integer sum plus this wall's integer noise.

        Adding wraps modulo 2⁶⁴. For an integer x, (x + round(z)) mod 2⁶⁴ is a function of x + z, so that even
        a sum beyond its room would be post-processing of the Gaussian mechanism and leak nothing.
        """
        share = 1.0 if self.__party is None else self.__party.noise_share
        return _with_noise(self.__noise, total, name, release, step, self.__grids[step][name], share, self.__plan)


def _behind(computation: Callable[[], Made]) -> Made | None:
    """The result of a computation on private data, or None if it failed: whatever it says ends here.

    Who stops the process stops it; the new exception knows nothing of what was going on.
    """
    stop: type[BaseException] | None = None
    try:
        with silence(logs=True):
            return computation()
    except BaseException as error:
        stop = next((kind for kind in STOPS if isinstance(error, kind)), None)
    if stop is not None:
        raise stop
    return None


def _check_form(made: Mapping[str, NDArray[Any]], release: Release, dtype: type[Any]) -> None:
    """Refuse a recorded release of another form than this one's: it may come from a folder of somebody else's.

    A statistic of another shape would make a q at which one row meets the statistics of another.
    """
    form = {name: (array.shape, array.dtype) for name, array in made.items()}
    if form != {name: (block.packed_shape, np.dtype(dtype)) for name, block in release.blocks.items()}:
        raise CheckpointError(
            "the record of this run holds a release of another form than its plan's: it was changed, or is another "
            "run's. Nothing is released; begin a new run."
        )


def gathered(
    shares: Sequence[Mapping[str, Ints]],
    release: Release,
    *,
    plan: Plan,
    step: int,
    party: Party,
    num_examples: int | None = None,
    run: str,
    private: bool,
    noise: NoiseSource | None = None,
    journal: Journal | None = None,
) -> Released:
    """Add what all parties shared, and the noise if it is not in there.

    Args:
        shares: of the parties that the noise was planned for, or the one whose noise is whole.
        release, plan, step: which release of which plan.
        party, num_examples: as the parties' walls have them.
        run: public name of the run.
        private: whether the noise of every share is secret.
        noise: of the one who gathers, where the parties add none; the noise of a `party` whose shares have theirs is
            complete.
        journal: of the one who adds noise: a sum is noised once, and on record before anybody can read it.

    Raises:
        PrivacyError: if noise is missing, or given where it is not.
    """
    if party.gathers_noise != (noise is not None):
        raise PrivacyError("who gathers sums without noise must add it, and nobody else may.")
    grids, share_std = grids_of(release, num_examples, party), math.sqrt(len(shares)) * party.noise_share
    noise_std = {name: release.noise_std(name) * (share_std if noise is None else 1.0) for name in release.blocks}
    found = None if journal is None else journal.recorded(step)
    if found is None:
        total = {name: _sum_of(shares, name, release, step, grids[name], plan, noise) for name in release.blocks}
        if journal is not None:
            journal.record(step, total)
    else:
        _check_form(found, release, np.float64)
        total = {name: np.asarray(sums, dtype=np.float64) for name, sums in found.items()}
    private = private if noise is None else noise.private
    receipt = Receipt(run, step, plan.digest.hex(), private)
    return Released(total, noise_std, release.mechanism.sampler.sampling_prob, receipt, _SEAL)


def _sum_of(
    shares: Sequence[Mapping[str, Ints]],
    name: str,
    release: Release,
    step: int,
    grid: Grid,
    plan: Plan,
    noise: NoiseSource | None,
) -> Floats:
    """What all parties shared of a block, in its units, with noise where the parties add none."""
    total = np.zeros(release.blocks[name].packed_shape, dtype=np.int64)
    for share in shares:
        total += share[name]  # Modulo 2⁶⁴: masks cancel.
    return grid.units(total if noise is None else _with_noise(noise, total, name, release, step, grid, 1.0, plan))


def _with_noise(
    noise: NoiseSource, total: Ints, name: str, release: Release, step: int, grid: Grid, share: float, plan: Plan
) -> Ints:
    """Integer sum plus a share of the release's integer noise."""
    noised = np.empty(total.shape, dtype=np.int64)
    for part, ratio in release.blocks[name].noise_parts():
        noised[part] = total[part] + noise.gaussian(
            share * release.noise_std(name) / grid.step * ratio,
            total[part],
            step=step,
            block=f"{name}/{ratio:g}",
            plan_digest=plan.digest,
        )
    return noised


def _add_clipped(
    contributions: Contributions,
    num_units: int,
    release: Release,
    grids: Mapping[str, Grid],
    sums: Mapping[str, Ints],
) -> None:
    """Clip every unit and add it to the sums, so that what the accountant relies on holds whatever q was.

    A unit whose norm is not a finite number adds nothing at all: NaN passes every comparison, so it is taken out before
    weights are formed. Where a unit's norm is 0 nothing of it is read: no entry can speak for it.
    """
    own = {name: _in_domain(contributions[name], block) for name, block in release.blocks.items()}
    norms = {name: contribution.norms() for name, contribution in own.items()}
    if any(norm.shape != (num_units,) for norm in norms.values()):
        raise ValueError("a contribution for every unit, and for nothing else")
    usable = np.logical_and.reduce([np.isfinite(norm) for norm in norms.values()])
    relative = {name: np.where(usable, norms[name], 0.0) / release.blocks[name].bound for name in release.blocks}
    if release.clip == "joint":
        squares = [(release.weights[name] * relative[name]) ** 2 for name in release.blocks]
        relative = dict.fromkeys(relative, np.sqrt(np.sum(squares, axis=0)) * (1.0 + 2.0**-48))
    for name, contribution in own.items():
        weights = np.where(usable & (norms[name] > 0), _MARGIN / np.maximum(relative[name], _MARGIN), 0.0)
        contribution.accumulate(weights, grids[name], sums[name])


def _in_domain(contribution: Contribution, block: Block) -> Contribution:
    """What of a contribution the accountant allows in a block of this domain."""
    if block.domain == "gram" and not is_gram(contribution):
        raise TypeError("a gram block takes Gram contributions alone")
    return nonnegative(contribution) if block.domain == "nonnegative" else contribution
