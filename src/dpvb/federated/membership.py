"""A client's part in one run: its plan, the journal that is charged with it, and the wall that the data stay behind."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, final

from dpvb.accounting import budget_warnings
from dpvb.core import loop
from dpvb.core.journal import Journal
from dpvb.core.noise import NoiseSource
from dpvb.core.plan import Plan
from dpvb.core.wall import Conceal, Wall
from dpvb.estimators.base import Task
from dpvb.federated import messages
from dpvb.federated.agreement import Federation
from dpvb.federated.keys import Identity
from dpvb.federated.masks import Masks
from dpvb.federated.memory import Memory
from dpvb.federated.messages import Accepted, Offer, Request
from dpvb.federated.shared import Shared
from dpvb.guards.arrays import Ints
from dpvb.guards.errors import BudgetError, CheckpointError, FederationError, ParameterError, PrivateComputationError
from dpvb.ledger import Ledger
from dpvb.results.statement import PrivacyStatement
from dpvb.runs.checkpoint import Checkpoint
from dpvb.runs.journal import RunJournal
from dpvb.runs.run import Run, warn_not_recorded


@dataclass(frozen=True)
class Owner:
    """Settings of an owner for each run.

    Attributes:
        name: among the participants.
        task: the fit of the owner's estimator on the owner's data.
        federation: what the owner agrees to.
        identity: keys, from which masks are made; None: there are no masks.
        ledger, dataset: what is charged; None: the run is not recorded in a ledger.
        memory: what must not be forgotten.
        noise: tests only.
        shared: what is calculated once.
    """

    name: str
    task: Task
    federation: Federation
    identity: Identity | None
    ledger: Ledger | None
    dataset: str | None
    memory: Memory
    noise: NoiseSource | None
    shared: Shared


@final
class Membership:
    """A run that an owner takes part in, from the acceptance of its offer on.

    Args:
        owner: whose part it is.
        offer: digest of the offer's bytes.
        said: the offer; it is what the owner agrees to.

    Attributes:
        offer: digest of the offer's bytes.
        name: public name of the run.
        nonce: what the client drew when it accepted.
        plan: what the client gives.
        restarted: whether what is on record decides how the run goes on, after a failure or in another process.
        ended: whether the run is over.

    Raises:
        ParameterError: if the noise that is offered does not keep to the budget.
    """

    def __init__(self, owner: Owner, offer: str, said: Offer) -> None:
        federation, trust, relative = owner.federation, owner.federation.trust, owner.task.relative
        reply = owner.memory.reply(offer)
        accepted = None if reply is None else messages.decode(reply)
        self._owner: Final = owner
        self.offer: Final = offer
        self.name: Final = said.run
        self.nonce: Final[bytes] = secrets.token_bytes(messages.NONCE_BYTES) if accepted is None else accepted.nonce
        self.restarted = accepted is not None
        self.ended = False
        run = Run(ledger=owner.ledger, dataset=owner.dataset, checkpoint=owner.memory.checkpoint(offer))
        self._method: Final = run.method(trust.method)
        budget = {"epsilon": federation.epsilon, "delta": federation.delta, "n_units": federation.n_units}
        if accepted is not None or trust.name != "none":
            multipliers = said.multipliers if accepted is None else accepted.facts["multipliers"]
            self.plan = owner.shared.once(trust.adopted, relative, tuple(multipliers), **budget)
        else:
            self.plan = owner.shared.once(trust.planned, relative, method=self._method, **budget)
        self._run: RunJournal | None = None
        self._wall: Wall[Any] | None = None
        self._position = 0  # How many releases of the plan are behind the wall.
        self._masks: dict[tuple[str, ...], Masks] = {}
        self._may_repeat_masks = False

    def acceptance(self) -> Accepted:
        """The answer to the offer, with public facts of the owner's own guarantee."""
        federation = self._owner.federation
        facts = {
            "multipliers": tuple(float(release.mechanism.noise_multiplier) for release in self.plan),
            "plan": self.plan.digest.hex(),
            "epsilon": float(federation.epsilon),
            "delta": float(federation.delta),
            "n_units": federation.n_units,
        }
        return Accepted(self.offer, self._owner.name, self.nonce, facts)

    def charge(self) -> None:
        """Charge the whole plan, or warn that it is not recorded."""
        owner, federation = self._owner, self._owner.federation
        budget_warnings.warn(federation.epsilon, federation.delta, unit=self.plan.unit, num_units=federation.n_units)
        if owner.ledger is None:
            owner.shared.once(_warn_not_recorded, self.plan, federation.epsilon)
        self._open()

    def statement(self) -> PrivacyStatement:
        """The guarantee of this run: the plan, and all attempts beyond it."""
        owner, federation = self._owner, self._owner.federation
        if self._run is None and owner.ledger is not None:
            self._open()
        again = [
            self.plan.releases[step]
            for step, attempts in sorted(owner.memory.begun(self.offer).items())
            for _ in range(len(attempts) - 1)
        ]
        spent = replace(self.plan, releases=[*self.plan, *again])
        return replace(
            owner.shared.once(_promised, spent, federation.delta, federation.trust.method),
            secret_noise=owner.noise is None or owner.noise.private,
            run_id=self.name if self._run is None else self._run.name,
            public=tuple(owner.task.public),
            n_units=federation.n_units,
            charge=None if self._run is None else self._run.charge,
            against=federation.trust.against(),
        )

    def give(self, digest: str, request: Request, *, again: bool) -> tuple[Mapping[str, Ints], bool]:
        """The masked sums that are asked for, and whether their noise is secret.

        Args:
            digest: of the request's bytes.
            request: it was held against all that the owner agrees to, and its q against the model.
            again: whether it asks for a release beyond the plan.

        Raises:
            FederationError: if the release cannot be given, or this client's masks may have hidden another sum before.
            LedgerError, CheckpointError: if it cannot be charged or put on record.
            PrivateComputationError: if a computation on the data failed.
        """
        query = loop.query(self._owner.task.model, request.q, self.plan.releases[request.step])
        conceal = self._conceal(digest, request)
        return (self._again if again else self._planned)(digest, request, query, conceal)

    @contextmanager
    def reopening(self) -> Iterator[None]:
        """After a failure drop the wall: the next request opens the run from its folder, as after a crash."""
        try:
            yield
        except (FederationError, PrivateComputationError):
            raise
        except BaseException:
            if self._owner.memory.lasting:
                self._wall, self.restarted = None, True
                self._masks.clear()
            raise

    def end(self) -> None:
        """End the run. Charges stay, unless no release was begun."""
        if self._owner.ledger is not None and self._run is None:
            self._open()
        self._owner.memory.end(self.offer)
        self._finish()

    def end_for_good(self) -> None:
        """End a run that was killed at its end."""
        if self._owner.memory.is_open(self.offer):
            with suppress(CheckpointError):
                self._open()
        self._finish()

    def close(self, *, interrupts: bool) -> None:
        """Let go of the journal; without a folder the run is broken off, if this `interrupts` it."""
        if self._run is None:
            return
        if interrupts and not self.ended and not self._owner.memory.lasting:
            self._run.interrupted(FederationError("the client was closed."))
        self._run.close()

    def _planned(
        self, digest: str, request: Request, query: Callable[[Any], Any], conceal: Conceal
    ) -> tuple[Mapping[str, Ints], bool]:
        """A release of the plan."""
        step, wall = request.step, self._opened()
        if self._position > step:
            raise FederationError(
                f"Release {step} was begun before and its answer is gone: it is not given anew. Ask for the next one."
            )
        self._owner.memory.begin(self.offer, step, request.attempt, digest)
        for passed in self.plan.releases[self._position : step]:
            wall.forgo(passed)
        self._position = step + 1
        return wall.share(query, self.plan.releases[step], conceal)

    def _again(
        self, digest: str, request: Request, query: Callable[[Any], Any], conceal: Conceal
    ) -> tuple[Mapping[str, Ints], bool]:
        """A release beyond the plan: charged by itself, behind a wall of its own."""
        memory, release = self._owner.memory, self.plan.releases[request.step]
        repeated = digest in memory.begun(self.offer).get(request.step, {}).values()
        if repeated and not memory.lasting:
            raise FederationError("This attempt was begun before and its answer is gone; ask for another one.")
        self._opened()
        memory.begin(self.offer, request.step, request.attempt, digest)
        journal = None if self._run is None else self._run.repeated(request.step, digest)
        return self._behind(replace(self.plan, releases=[release]), journal).share(query, release, conceal)

    def _conceal(self, digest: str, request: Request) -> Conceal:
        """Masks of the sums for those who are asked together, and only for this request."""
        identity, federation = self._owner.identity, self._owner.federation
        if identity is None or not federation.trust.secure:
            return dict
        masks = self._masks.get(request.participants)
        if masks is None:
            masks = Masks(identity, {name: federation.participants[name] for name in request.participants})
            self._masks[request.participants] = masks
        return partial(masks.conceal, bytes.fromhex(digest))

    def _opened(self) -> Wall[Any]:
        """The wall of a run that goes on.

        Raises:
            FederationError: if this client's masks may have hidden another sum before.
        """
        if self._wall is None:
            self._open()
        assert self._wall is not None
        if self._may_repeat_masks:
            raise FederationError(
                "The folder of this client has not all that was released in this run: it was set back, or files of it "
                "were lost, so that masks could hide two sums alike. Begin a new run."
            )
        return self._wall

    def _open(self) -> None:
        """Begin or continue the run's journal, and put the data behind its wall."""
        self.close(interrupts=False)
        self._run = self._journal()
        if self._owner.federation.trust.secure and self.restarted and self._run is not None and not self.ended:
            self._may_repeat_masks |= self._run.has_lost
        self._wall = None if self.ended else self._behind(self.plan, self._run)
        self._position = 0

    def _journal(self) -> RunJournal | None:
        """The journal of the plan, charged by this unless it was; of a plan that cannot be, nothing is left."""
        owner = self._owner
        if owner.ledger is None or owner.dataset is None:
            return None
        place = owner.memory.checkpoint(self.offer)
        checkpoint = None if place is None else Checkpoint(place)
        is_new = checkpoint is None or checkpoint.manifest() is None
        if self.ended and is_new:  # The run was not recorded in a ledger.
            return None
        if is_new and self.restarted and owner.federation.trust.secure:
            self._may_repeat_masks = True
            return None
        facts = {"client": owner.name, "offer": self.offer, "accountant": self._method}
        mode = "load" if self.ended else "continue"
        try:
            return RunJournal(owner.ledger, owner.dataset, self.plan, checkpoint=checkpoint, resume=mode, facts=facts)
        except (BudgetError, ParameterError):
            if checkpoint is not None and is_new:
                shutil.rmtree(checkpoint.path, ignore_errors=True)
            raise

    def _behind(self, plan: Plan, journal: Journal | None) -> Wall[Any]:
        """The data behind a wall."""
        owner = self._owner
        return Wall(
            owner.task.source,
            plan,
            noise=owner.noise,
            n_units=owner.federation.n_units,
            journal=journal,
            party=owner.federation.trust.party,
        )

    def _finish(self) -> None:
        if self._run is not None and self._owner.memory.begun(self.offer):
            self._run.finish()
        elif self._run is not None:  # No release was begun, for example because other clients refused the offer.
            self._run.withdraw()
        self.ended = True
        self._wall = None


def _promised(spent: Plan, delta: float, method: str) -> PrivacyStatement:
    return PrivacyStatement.from_plan(spent, delta=delta, private=True, run_id="", public=(), epsilon_method=method)


def _warn_not_recorded(spent: Plan, epsilon: float) -> None:
    """Warn once for all clients that share a plan."""
    warn_not_recorded(epsilon)
