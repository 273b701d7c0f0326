"""The wall: private data behind three doors, and the only things that come out of them.

To check the guarantee, read this file. `Wall.release` charges the plan, draws a batch, asks the model for its
contributions, clips them, sums them in integers, adds integer noise, has the result put on record, and seals
it. `Wall.share` does the same for one of several parties: its integers carry the party's part of the noise, and
what conceals them until they are added; `gathered` adds and seals them. `Wall.names` releases names that enough
units share. Nothing else leaves: no error, no warning, no size, no norm. `Released` is made only here. A model's
M-step takes an `Estimate`, which is computed only from `Released`, so it cannot be handed anything that was not noised.
(From the sample to the sum: `clipped_sums`.)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, final

import numpy as np

from dpvb.core import names
from dpvb.core.blocks import Contributions, Grid
from dpvb.core.clipped_sums import STOPS, Spread, Work, zeros
from dpvb.core.forks import Origin
from dpvb.core.grids import Party, grids_of
from dpvb.core.journal import Journal, Unrecorded, recorded
from dpvb.core.noise import NoiseSource, SecureNoise
from dpvb.core.plan import Plan, Release
from dpvb.core.released import SEAL, Released, ReleaseReceipt
from dpvb.core.source import Source, chunks_of
from dpvb.guards.arrays import Batch, Ints
from dpvb.guards.errors import OutOfMemoryError, PrivacyError, PrivateComputationError
from dpvb.guards.suppress_output import silence

#: The model's e_step at the current q.
Query = Callable[[Batch], Contributions]
#: Integers of every block.
Sums = Mapping[str, Ints]
#: Makes a party's integers fit to leave it, modulo 2⁶⁴.
Conceal = Callable[[Sums], Sums]


@final
class Wall(Generic[Batch]):
    """Keeps private data; `release`, or for a party `share`, is all that it gives out, in the process that made it.

    Args:
        source: private data.
        plan: public; its releases are granted once each, in order.
        noise: source of all secret randomness; only tests and runs pass one.
        n_units: public number of units, if there is one; it sizes the integer sums.
        journal: where releases are charged and recorded durably, if anywhere.
        party: for one of several walls whose sums are added.

    Raises:
        ParameterError: if a block's integer sum would have no room for so many units, or for a share of noise.
    """

    def __init__(
        self,
        source: Source[Batch],
        plan: Plan,
        *,
        noise: NoiseSource | None = None,
        n_units: int | None = None,
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
        self.__grids = [grids_of(release, n_units, party) for release in plan]

    def __repr__(self) -> str:
        return f"Wall(step {self.__step} of {len(self.__plan)})"

    def __reduce__(self) -> str:
        raise PrivacyError("A wall holds private data and cannot be pickled or copied.")

    def release(self, query: Query[Batch], release: Release) -> Released:
        """Return the noised sums of the contributions of one fresh batch.

        Args:
            query: the model's e_step at the current q; runs behind the wall.
            release: the plan's next release.

        Raises:
            PrivacyError: if this is not the plan's next release, the wall is a party's, or this process was forked from
                the wall's; nothing is read.
            LedgerError: if the journal could not charge it (nothing is read) or record it (nothing is released).
            CheckpointError: if the journal has another release in its place.
            PrivateComputationError: if the computation failed; the charge stands, the reason is not told.
            OutOfMemoryError: if it had not enough memory; the charge stands.
        """
        if self.__party is not None:
            raise PrivacyError("This wall is one of several parties: its noise may be a part only. Use share.")
        step = self._charge(release)
        total = recorded(self.__journal, step, release, np.float64)
        if total is None:
            noised = self._noised(query, release, step)
            total = {name: self.__grids[step][name].units(ints) for name, ints in noised.items()}
            self.__journal.record(step, total)
        noise_std = {name: release.noise_std(name) for name in release.blocks}
        receipt = ReleaseReceipt(self.__noise.run_id, step, self.__plan.digest.hex(), self.__noise.private)
        return Released(total, noise_std, release.mechanism.sampler.sampling_prob, receipt, SEAL)

    def share(self, query: Query[Batch], release: Release, conceal: Conceal) -> tuple[Sums, bool]:
        """Return this party's integers, which `gathered` adds to the others', and whether their noise is secret.

        Args:
            query, release: as in `release`.
            conceal: what is added to the integers, modulo 2⁶⁴, and cancels in the sum over all parties.

        Raises:
            PrivacyError, LedgerError, CheckpointError, PrivateComputationError: as in `release`.
        """
        if self.__party is None:
            raise PrivacyError("A wall of one party has no masks: use release.")
        step = self._charge(release)
        noisy = recorded(self.__journal, step, release, np.int64)
        if noisy is None:
            noisy = conceal(self._noised(query, release, step))
            self.__journal.record(step, noisy)
        return noisy, self.__noise.private

    def names(self, release: Release) -> names.Found:
        """Return the names of all units that are above a threshold, with their noisy totals; see `names.found`.

        Raises:
            PrivacyError: as in `release`, or for what the proof of names does not cover, or in a party.
            LedgerError, CheckpointError, PrivateComputationError: as in `release`.
        """
        names.check(release, self.__plan, self.__party is None)
        source: Any = self.__source
        step = self._charge(release)
        grid, words = self.__grids[step][names.WORDS], self.__journal.recorded(step)
        if words is None:
            self.__journal.begin(step)
            words = _behind(lambda: names.found(source, release, grid, self.__noise, step=step, plan=self.__plan))
            self.__journal.record(step, words)
        return names.Found.of(words, grid)

    def forgo(self, release: Release) -> None:
        """Pass over the plan's next release: nothing is read, and what was charged stays charged.

        Raises:
            PrivacyError: if this is not the plan's next release.
        """
        self._charge(release)

    def _charge(self, release: Release) -> int:
        """Spend the plan's next step before anything is read."""
        self.__origin.check("this wall")
        with self.__turn:
            step = self.__step
            if step >= len(self.__plan) or release is not self.__plan.releases[step]:
                raise PrivacyError(
                    f"The plan fixes {len(self.__plan)} releases and {step} are spent: this is not its next one."
                )
            self.__step += 1
            return step

    def _noised(self, query: Query[Batch], release: Release, step: int) -> Sums:
        """The sums of a step that the journal has charged, plus this wall's noise."""
        if isinstance(release.mechanism, names.Threshold):
            raise PrivacyError("private names are released only by `names`: nothing was read.")
        self.__journal.begin(step)
        share = 1.0 if self.__party is None else self.__party.noise_share
        grids, plan = self.__grids[step], self.__plan
        return _behind(
            lambda: _with_noise(self.__noise, self._sums(query, release, step), release, step, plan, grids, share)
        )

    def _sums(self, query: Query[Batch], release: Release, step: int) -> Sums:
        """Exact integer sums of the clipped contributions of one fresh batch."""
        work = Work(query, release, self.__grids[step], self.__noise.words(step=step, purpose="sampling"))
        if isinstance(self.__source, Spread):
            return self.__source.sums(work, step)
        return work.sums(chunks_of(self.__source), work.draw(self.__source, self.__source.count))


def _behind(computation: Callable[[], Sums]) -> Sums:
    """Return the result of a computation on private data, or raise a PrivateComputationError without its message.

    An interrupt ends the process; the new exception contains nothing of what was going on, nor of any sum.
    """
    said = "a computation behind the wall failed; its charge stands and its reason stays private."
    end: BaseException = PrivateComputationError(said)
    try:
        with silence(logs=True):
            return computation()
    except MemoryError:
        end = OutOfMemoryError(
            "there is not enough memory for a computation on the rows; its charge stands. Raise the limit, end other "
            "programs, or read files with stream=True."
        )
    except BaseException as error:
        end = next((kind() for kind in STOPS if isinstance(error, kind)), end)
    raise end


def gathered(
    shares: Sequence[Sums],
    release: Release,
    *,
    plan: Plan,
    step: int,
    party: Party,
    n_units: int | None = None,
    run: str,
    private: bool,
    noise: NoiseSource | None = None,
    journal: Journal | None = None,
) -> Released:
    """Add what all parties shared, and the noise if it is not in there.

    Args:
        shares: of the parties that the noise was planned for, or the one whose noise is whole.
        release, plan, step: which release of which plan.
        party, n_units: as the parties' walls have them.
        run: public name of the run.
        private: whether the noise of every share is secret.
        noise: the gatherer's noise source; required if the parties add no noise, refused otherwise.
        journal: the gatherer's, if it adds noise: a sum is noised once, and on record before it can be read.

    Raises:
        PrivacyError: if noise is missing, or given where it is not.
    """
    if party.gathers_noise != (noise is not None):
        raise PrivacyError("The party that gathers sums without noise must add it, and no other party may.")
    journal = Unrecorded() if journal is None else journal
    total = recorded(journal, step, release, np.float64)
    if total is None:
        sums, grids = zeros(release), grids_of(release, n_units, party)
        for share in shares:
            for name in sums:
                sums[name] += share[name]  # Modulo 2⁶⁴: masks cancel.
        noised = sums if noise is None else _with_noise(noise, sums, release, step, plan, grids, 1.0)
        total = {name: grids[name].units(ints) for name, ints in noised.items()}
        journal.record(step, total)
    share_std = math.sqrt(len(shares)) * party.noise_share if noise is None else 1.0
    noise_std = {name: release.noise_std(name) * share_std for name in release.blocks}
    receipt = ReleaseReceipt(run, step, plan.digest.hex(), private if noise is None else noise.private)
    return Released(total, noise_std, release.mechanism.sampler.sampling_prob, receipt, SEAL)


def _with_noise(
    noise: NoiseSource, sums: Sums, release: Release, step: int, plan: Plan, grids: Mapping[str, Grid], share: float
) -> Sums:
    """Integer sums plus a share of the release's integer noise, which is added to them in place.

    Adding wraps modulo 2⁶⁴. For an integer x, (x + round(z)) mod 2⁶⁴ is a function of x + z, so that even
    a sum beyond its room would be post-processing of the Gaussian mechanism and leak nothing.
    """
    for name, block in release.blocks.items():
        for part, ratio in block.noise_parts():
            total, std = sums[name][part], share * release.noise_std(name) / grids[name].step * ratio
            total += noise.gaussian(std, total, step=step, block=f"{name}/{ratio:g}", plan_digest=plan.digest)
    return sums
