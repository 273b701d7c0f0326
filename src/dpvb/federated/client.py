"""A client: one owner's side of a federated run. It believes nothing that a server says, and forgets nothing it said.

A message is answered in this order, each step durable before the next:

1. bytes that were answered before get the same answer, so that repeating a message costs nothing and averages nothing;
   where that answer is gone (see `memory`) they are refused, and never answered anew;
2. what is asked is held against this client's own configuration, its plan and what it has begun, and a q against the
   form that the model gives it: whatever does not fit is refused, and nothing is spent;
3. the release is charged, and bound to the digest of this very request;
4. the wall looks, adds this client's noise, masks the sum under that digest, and puts it on record;
5. the answer is kept, then given.

So a process killed anywhere goes on, from its folder: what is on record is given again, the same bytes; what is not was
never given, and is made afresh. Each release of the plan is given for one request; releases that a server passes over
are forgone. Another request for the newest release (others take part, since one was lost) is another release: fresh
noise, fresh masks, charged again on top of the plan. Masks hide one sum each: where a folder may have been set back, so
that the same masks could hide another one, nothing more is given.

With trust="trusted_server" what leaves has no noise of this client's: it must be sealed for the server on its way.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, final

import numpy as np

from dpvb.arrays import Ints
from dpvb.core import loop
from dpvb.core.estimate import Estimate
from dpvb.core.forks import Origin
from dpvb.core.journal import Journal
from dpvb.core.noise import NoiseSource
from dpvb.core.plan import Plan, Release
from dpvb.core.wall import Conceal, Wall
from dpvb.errors import (
    BudgetError,
    CheckpointError,
    DpvbError,
    FederationError,
    LedgerError,
    ParameterError,
    PrivacyError,
    WallError,
    check_integer,
)
from dpvb.estimators.base import generator
from dpvb.estimators.conducted import Task
from dpvb.federated import messages
from dpvb.federated.agreement import Federation
from dpvb.federated.keys import Identity, check_name
from dpvb.federated.masks import Masks
from dpvb.federated.memory import Memory
from dpvb.federated.messages import Accepted, Farewell, Offer, Refusal, Request, Share
from dpvb.federated.trust import Trust
from dpvb.guards import domains
from dpvb.guards.silence import silence
from dpvb.guards.strangers import say
from dpvb.ledger import Ledger
from dpvb.results.statement import PrivacyStatement
from dpvb.runs import run as runs
from dpvb.runs.checkpoint import Checkpoint
from dpvb.version import __version__

_SILENT: Final = "this client failed; the reason stays with its owner."
_MOST_SHOWN, _MOST_SAID = 200, 4096
# A model's q is looked at before so many releases of each kind: by then it has all its parts.
_REHEARSED: Final = 3


@final
class Client:
    """One owner's side; it may be used by several threads.

    Args:
        name: among the participants.
        task: the fit of this client's own estimator on its own data, which go no further than its wall.
        federation: what this client agrees to, its own epsilon and delta included; nothing of it comes from a server.
        identity: this client's keys; needed for secure aggregation.
        ledger, dataset: what is charged with the whole plan once an offer is accepted, and with every repeated attempt;
            None: nobody keeps count, which is said on standard error.
        folder: this client's memory, for it alone (see `memory`); None: an interrupted run cannot be continued.
        max_attempts: how often one release may be asked for in all; each time is spent on top of epsilon.
        noise: tests only.

    Raises:
        ParameterError: for parameters that do not go together.
        CheckpointError, FederationError: if the folder cannot be used, or another client uses it.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        federation: Federation,
        *,
        identity: Identity | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        dataset: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        max_attempts: int = 3,
        noise: NoiseSource | None = None,
    ) -> None:
        self.name: Final = check_name(name)
        self._task, self._federation, self._identity = task, federation, identity
        self._max_attempts = check_integer("max_attempts", max_attempts, low=1, high=100)
        runs.check_account(ledger, dataset)
        self._dataset, self._given_noise = dataset, noise
        if name not in federation.participants:
            raise ParameterError(f"name must be one of the participants {sorted(federation.participants)}.")
        if federation.trust.secure and identity is None:
            raise ParameterError("identity is needed for secure aggregation: its keys make the masks.")
        if identity is not None and (identity.name, identity.public) != (name, federation.participants[name]):
            raise ParameterError(f"identity must be that of {name!r}, with the public key that participants has.")
        self._turn = threading.Lock()
        self._origin = Origin()
        self._held = ExitStack()
        self._no_rows: list[Any] | None = None
        self._closed = False
        with ExitStack() as held:
            self._ledger = None if ledger is None else held.enter_context(runs.opened(ledger))
            self._memory = Memory(folder)
            held.callback(self._memory.close)
            self._current = self._newest()
            self._held = held.pop_all()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.name!r})"

    def __reduce__(self) -> str:
        raise PrivacyError("a client holds private data and keys; it cannot be pickled or copied.")

    def close(self) -> None:
        """Let go of ledger and folder; a run that is going on can be continued if there is a folder."""
        if not self._origin.is_here:
            return
        with self._turn:
            current = self._current
            if (
                current is not None
                and current.run is not None
                and not (self._closed or current.ended or self._memory.lasting)
            ):
                current.run.interrupted(FederationError("the client was closed."))
            if current is not None and current.run is not None:
                current.run.close()
            self._closed = True
            self._held.close()

    def answer(self, data: bytes) -> bytes:
        """Answer a message: an offer, a request or a farewell; anything else is refused. Never raises for its contents.

        A refusal tells public things alone.
        """
        digest = _digest(data := bytes(data))
        with self._turn:
            try:
                self._origin.check("this client")
                if self._closed:
                    raise FederationError("this client was closed.")
                known = self._memory.reply(digest)
                return self._answered(digest, data) if known is None else known
            except DpvbError as error:
                if isinstance(error, LedgerError | CheckpointError):
                    say(f"client {self.name!r}: {error}")
                return _refused(digest, str(error))
            except Exception:  # What failed may speak of private data.
                return _refused(digest, _SILENT)

    def leave(self) -> None:
        """End the run that is going on, as a farewell would; what was charged stays charged."""
        self._origin.check("this client")
        with self._turn:
            if (current := self._current) is not None and not self._memory.ended(current.offer):
                self._end(current)

    @property
    def statement(self) -> PrivacyStatement:
        """What this client has promised by the newest run: its plan, and all attempts beyond it.

        Raises:
            PrivacyError: if no offer was accepted, or what was promised by the newest one is lost; or in a process that
                was forked from this client's.
        """
        self._origin.check("this client")
        with self._turn:
            current, federation = self._current, self._federation
            newest = next(reversed(self._memory.offers()), "")
            if newest and (current is None or current.offer != newest) and self._memory.reply(newest) is None:
                raise PrivacyError(
                    "the answer to the newest offer is gone from this client's folder, so that what it promised by it "
                    "is not known. What was charged for it stands in the ledger, if there is one."
                )
            if current is None:
                known = (
                    "as it is configured" if self._memory.lasting else "since it began; a folder would know of others"
                )
                raise PrivacyError(
                    f"no offer was accepted by this client {known}: it promises nothing, and spent nothing."
                )
            if current.run is None and self._ledger is not None:
                self._open(current)
            again = [
                current.plan.releases[step]
                for step, attempts in sorted(self._memory.begun(current.offer).items())
                for _ in range(len(attempts) - 1)
            ]
            spent = replace(current.plan, releases=[*current.plan, *again])
            promised = _promised(_Same(spent.digest, spent), federation.delta, federation.trust.method)
            return replace(
                promised,
                secret_noise=self._given_noise is None or self._given_noise.private,
                run_id=current.name if current.run is None else current.run.name,
                public=tuple(self._task.public),
                num_examples=federation.num_examples,
                charge=None if current.run is None else current.run.charge,
                against=federation.trust.against(),
            )

    def _answered(self, digest: str, data: bytes) -> bytes:
        message = _decoded(data)
        if isinstance(message, Offer):
            return self._accepted(digest, data, message)
        if isinstance(message, Request):
            return self._shared(digest, message)
        if isinstance(message, Farewell):
            return self._parted(message)
        raise FederationError(f"a client is asked by offers, requests and farewells, not by {type(message).__name__}.")

    # --- offers ---------------------------------------------------------------------------------------------------

    def _accepted(self, digest: str, data: bytes, offer: Offer) -> bytes:
        self._check_offer(offer)
        earlier, newest = self._memory.offers(), self._current
        if digest in earlier:
            raise FederationError(
                "this client accepted this very offer before, and the answer is gone: it is not accepted anew. Begin a "
                "new run."
            )
        if any(messages.decode(known).run == offer.run for known in earlier.values()):
            raise FederationError(f"the run {offer.run!r} was offered to this client before, with other contents.")
        if newest is not None and not self._memory.ended(newest.offer):
            raise FederationError(
                f"this client takes part in the run {newest.name!r}, which is not over. Its server ends it with a "
                "farewell; or its owner with Client.leave."
            )
        self._memory.check_room()
        current = self._run_of(digest, offer)
        self._charge(current)
        facts = {
            "multipliers": tuple(float(release.mechanism.noise_multiplier) for release in current.plan),
            "plan": current.plan.digest.hex(),
            "epsilon": float(self._federation.epsilon),
            "delta": float(self._federation.delta),
            "num_examples": self._federation.num_examples,
        }
        answer = messages.encode(Accepted(digest, self.name, current.nonce, facts))
        self._memory.accept(digest, data, answer)
        self._current = current
        return answer

    def _check_offer(self, offer: Offer) -> None:
        """Refuse an offer that differs from this client's own configuration in anything.

        Raises:
            FederationError: naming what differs, and both values.
        """
        federation, plan = self._federation, self._task.plan
        compared = {
            "version of dpvb": (offer.version, __version__),
            "estimator": (offer.kind, federation.kind),
            "model": (offer.model, repr(self._task.model)),
            "columns": (offer.columns, federation.columns),
            "unit": (offer.unit, plan.unit),
            "neighboring relation": (offer.neighboring_relation, plan.neighboring_relation),
            "trust model": (offer.trust, federation.trust.name),
            "number of tolerated clients": (offer.tolerated, federation.trust.tolerated),
            "number of colluders": (offer.colluders, federation.trust.colluders),
            "public number of examples": (offer.num_examples, federation.num_examples),
            "number of releases": (len(offer.multipliers), len(plan)),
            "participants": (sorted(offer.participants), sorted(federation.participants)),
        }
        for name, (offered, own) in compared.items():
            if offered != own:
                raise FederationError(
                    f"the {name} differs: {_shown(offered)} is offered, and this client has {_shown(own)}."
                )
        for name, public in federation.participants.items():
            if offer.participants[name] != public:
                raise FederationError(
                    f"the public key of {name!r} differs: {offer.participants[name].hex() or 'none'} is offered, and "
                    f"this client has {public.hex() or 'none'}. Compare keys with its owner."
                )

    def _run_of(self, digest: str, offer: Offer) -> _Run:
        """The run of an offer, with the noise that this client adds in it."""
        federation, trust = self._federation, self._federation.trust
        budget = {
            "epsilon": federation.epsilon,
            "delta": federation.delta,
            "num_examples": federation.num_examples,
        }
        place = self._memory.checkpoint(digest)
        relative = _Same(self._task.plan.digest, self._task.plan)
        method = runs.accountant(trust.method, ledger=self._ledger, dataset=self._dataset, checkpoint=place)
        reply = self._memory.reply(digest)
        known = None if reply is None else messages.decode(reply)
        if known is not None or trust.name != "none":
            multipliers = offer.multipliers if known is None else known.facts["multipliers"]
            plan = _adopted(relative, trust, multipliers, **budget)
        else:
            plan = _planned(relative, trust, method=method, **budget)
        nonce = secrets.token_bytes(messages.NONCE_BYTES) if known is None else known.nonce
        return _Run(digest, offer.run, nonce, plan, method, restarted=known is not None)

    def _charge(self, current: _Run) -> None:
        """Charge the whole plan, or say that nobody counts it."""
        if self._ledger is None:
            _uncounted(_Same(current.plan.digest, current.plan), self._federation.epsilon, self._federation.delta)
        self._open(current)

    def _open(self, current: _Run) -> None:
        """Begin or continue the run's journal, and put the data behind its wall."""
        if current.run is not None:
            current.run.close()
        current.run = self._journal(current)
        if self._federation.trust.secure and current.restarted and current.run is not None and not current.ended:
            current.may_repeat_masks |= current.run.has_lost
        current.wall = None if current.ended else self._wall(current.plan, current.run)
        current.position = 0

    def _journal(self, current: _Run) -> runs.Run | None:
        """The journal of the plan, charged by this unless it was; of a plan that cannot be, nothing is left."""
        if self._ledger is None or self._dataset is None:
            return None
        place = self._memory.checkpoint(current.offer)
        checkpoint = None if place is None else Checkpoint(place)
        if current.ended and (checkpoint is None or checkpoint.manifest() is None):  # Nobody kept count of it then.
            return None
        facts = {"client": self.name, "offer": current.offer, "accountant": current.method}
        mode = "read" if current.ended else "continue"
        is_new = checkpoint is None or checkpoint.manifest() is None
        if is_new and current.restarted and self._federation.trust.secure:
            current.may_repeat_masks = True
            return None
        try:
            return runs.Run(self._ledger, self._dataset, current.plan, checkpoint=checkpoint, resume=mode, facts=facts)
        except (BudgetError, ParameterError):
            if checkpoint is not None and is_new:
                shutil.rmtree(checkpoint.path, ignore_errors=True)
            raise

    def _wall(self, plan: Plan, journal: Journal | None) -> Wall[Any]:
        federation = self._federation
        return Wall(
            self._task.source,
            plan,
            noise=self._given_noise,
            num_examples=federation.num_examples,
            journal=journal,
            party=federation.trust.party,
        )

    def _opened(self, current: _Run) -> Wall[Any]:
        """The wall of a run that goes on.

        Raises:
            FederationError: if this client's masks may have hidden another sum before.
        """
        if current.wall is None:
            self._open(current)
        assert current.wall is not None
        if current.may_repeat_masks:
            raise FederationError(
                "the folder of this client has not all that was released in this run: it was set back, or files of it "
                "were lost, so that masks could hide two sums alike. Begin a new run."
            )
        return current.wall

    # --- requests -------------------------------------------------------------------------------------------------

    def _shared(self, digest: str, request: Request) -> bytes:
        current = self._current
        if current is None or request.offer != current.offer:
            raise FederationError("this request belongs to no offer that this client has accepted.")
        if self._memory.ended(current.offer):
            raise FederationError(f"the run {current.name!r} is over.")
        self._check_request(current, request)
        again = self._is_again(current, digest, request)
        release = current.plan.releases[request.step]
        self._check_q(digest, release, request.q)
        query = loop.query(self._task.model, request.q, release)
        conceal = self._conceal(digest, request)
        try:
            give = self._give_again if again else self._give
            with self._reopening(current):
                arrays, private = give(current, digest, request, query, conceal)
                return self._kept(digest, Share(digest, dict(arrays), private))
        except WallError as error:
            return self._kept(digest, Refusal(digest, str(error)))

    def _check_request(self, current: _Run, request: Request) -> None:
        trust, every = self._federation.trust, self._federation.participants
        if strangers := [name for name in request.participants if name not in every]:
            raise FederationError(f"{strangers[0]!r} is asked too, and is no participant of this run.")
        if self.name not in request.participants:
            raise FederationError(f"the request is for {', '.join(request.participants)}, not for {self.name!r}.")
        if trust.secure and current.restarted and self._ledger is None:
            raise FederationError(
                "this client was started anew in the middle of its run, and has no ledger to show that its folder was "
                "not set back, so that masks could hide two sums alike. Begin a new run; one that a ledger counts from "
                "its beginning would go on."
            )
        if trust.secure and request.nonces.get(self.name) != current.nonce:
            raise FederationError(
                "the request has not the nonce that this client gave when it accepted, so that masks could hide two "
                "sums alike. Begin a new run."
            )
        if trust.secure and len(request.participants) < trust.least:
            raise FederationError(
                f"{len(request.participants)} participants have too little noise together: at least {trust.least} must "
                "take part."
            )
        if request.step >= len(current.plan):
            raise FederationError(f"the plan has {len(current.plan)} releases, and none of number {request.step}.")

    def _is_again(self, current: _Run, digest: str, request: Request) -> bool:
        """Whether a request is for another attempt at the newest release; else it is for one of the plan.

        Raises:
            FederationError: if it is for neither.
        """
        begun, step = self._memory.begun(current.offer), request.step
        newest = max(begun, default=-1)
        attempts = begun.get(step, {})
        if digest in attempts.values():  # It was begun, and got no answer.
            return attempts[min(attempts)] != digest
        if step > newest:
            return False
        if not attempts:
            raise FederationError(f"release {step} was passed over, and release {newest} is the newest one.")
        if step < newest:
            raise FederationError(
                f"release {step} was given for another request, and release {newest} is the newest one."
            )
        if request.attempt <= max(attempts):
            raise FederationError(
                f"release {step} was given for another request as attempt {max(attempts)}, so that attempt "
                f"{request.attempt} is refused: the same attempt must be the same bytes."
            )
        if len(attempts) >= self._max_attempts:
            raise FederationError(f"release {step} was given {len(attempts)} times; this client gives it no more.")
        return True

    def _check_q(self, digest: str, release: Release, q: Any) -> None:
        """Refuse a q that is not of the model's form and in its domain, before anything private meets it.

        The form settles that a row's statistic depends on no other row: an array that is one row of q for each row of
        data, or is shorter than indices reach, would break that.
        """
        if (fault := domains.outside(q)) is not None:
            raise FederationError(f"{fault}; the request is refused, and nothing is spent on it.")
        task = self._task
        model = _Model(f"{type(task.model)} {task.model!r} {task.plan.digest.hex()}", task.model, task.plan)
        if not _sound(_Question(digest, model, release, q, self._empty_batch())):
            raise FederationError("q is not one of this model's; the request is refused, and nothing is spent on it.")

    def _empty_batch(self) -> list[Any]:
        """A batch of no rows, in a list; none where the data have no chunk at all."""
        if self._no_rows is None:
            with silence(logs=True):
                first = next(iter(self._task.source.chunks()), None)
                self._no_rows = [] if first is None else [first.select(np.zeros(first.num_units, dtype=np.bool_)).rows]
        return self._no_rows

    def _conceal(self, digest: str, request: Request) -> Conceal:
        """What masks this client's sums for those who are asked together, and for this request alone."""
        if self._identity is None or not self._federation.trust.secure:
            return dict
        assert self._current is not None
        masks = self._current.masks.get(request.participants)
        if masks is None:
            every = self._federation.participants
            masks = Masks(self._identity, {name: every[name] for name in request.participants})
            self._current.masks[request.participants] = masks
        return partial(masks.conceal, bytes.fromhex(digest))

    def _give(
        self,
        current: _Run,
        digest: str,
        request: Request,
        query: Callable[[Any], Any],
        conceal: Conceal,
    ) -> tuple[Mapping[str, Ints], bool]:
        """A release of the plan."""
        step, wall = request.step, self._opened(current)
        if current.position > step:
            raise FederationError(
                f"release {step} was begun before and its answer is gone: it is not given anew. Ask for the next one."
            )
        self._memory.begin(current.offer, step, request.attempt, digest)
        for passed in current.plan.releases[current.position : step]:
            wall.forgo(passed)
        current.position = step + 1
        return wall.share(query, current.plan.releases[step], conceal)

    def _give_again(
        self,
        current: _Run,
        digest: str,
        request: Request,
        query: Callable[[Any], Any],
        conceal: Conceal,
    ) -> tuple[Mapping[str, Ints], bool]:
        """A release beyond the plan: charged by itself, behind a wall of its own."""
        release = current.plan.releases[request.step]
        plan = replace(current.plan, releases=[release])
        known = digest in self._memory.begun(current.offer).get(request.step, {}).values()
        if known and not self._memory.lasting:
            raise FederationError("this attempt was begun before and its answer is gone; ask for another one.")
        self._opened(current)
        self._memory.begin(current.offer, request.step, request.attempt, digest)
        journal = None if current.run is None else current.run.repeated(request.step, digest)
        return self._wall(plan, journal).share(query, release, conceal)

    @contextmanager
    def _reopening(self, current: _Run) -> Iterator[None]:
        """After a failure what is on record decides how a run with a folder goes on, as after a kill."""
        try:
            yield
        except (FederationError, WallError):
            raise
        except BaseException:
            if self._memory.lasting:
                current.wall, current.restarted = None, True
                current.masks.clear()
            raise

    # --- ends -----------------------------------------------------------------------------------------------------

    def _parted(self, farewell: Farewell) -> bytes:
        current = self._current
        if current is not None and farewell.offer == current.offer and not self._memory.ended(current.offer):
            self._end(current)
        if not self._memory.ended(farewell.offer):
            raise FederationError("this farewell belongs to no run that this client takes part in.")
        return messages.encode(Farewell(farewell.offer, f"{self.name} has ended the run."))

    def _end(self, current: _Run) -> None:
        if self._ledger is not None and current.run is None:
            self._open(current)
        self._memory.end(current.offer)
        self._finish(current)

    def _finish(self, current: _Run) -> None:
        if current.run is not None and self._memory.begun(current.offer):
            current.run.finish()
        elif current.run is not None:  # Others refused, say: nobody has looked at anything.
            current.run.withdraw()
        current.ended = True
        current.wall = None

    def _newest(self) -> _Run | None:
        """The run in this client's memory that is not over; else the last one that was, for its statement."""
        over = None
        for digest, data in self._memory.offers().items():
            reply = self._memory.reply(digest)
            if reply is None:  # It is refused, should somebody make it again.
                continue
            try:
                offer, accepted = messages.decode(data), messages.decode(reply)
            except FederationError as error:
                raise CheckpointError(
                    f"client {self.name!r}: its folder is of another version of dpvb. End its run with that version; "
                    "then give the client a new folder."
                ) from error
            if not isinstance(offer, Offer) or not _is_own(accepted, digest):
                raise CheckpointError(f"client {self.name!r}: its folder is damaged. Give the client a new folder.")
            if not self._memory.ended(digest):
                return self._run_of(digest, offer)
            over = partial(self._over, digest, offer, accepted.facts["plan"])
            if self._memory.is_open(digest):  # Killed at its end.
                over()
        return None if over is None else over()

    def _over(self, digest: str, offer: Offer, plan: str) -> _Run | None:
        """A run that is over, ended for good; None if this client's configuration is no longer that of the run."""
        current = None
        with suppress(DpvbError):
            current = self._run_of(digest, offer)
        if current is not None and current.plan.digest.hex() != plan:
            current = None
        if current is not None:
            if self._memory.is_open(digest):
                with suppress(CheckpointError):
                    self._open(current)
            self._finish(current)
        self._memory.close_run(digest)
        return current

    def _kept(self, digest: str, reply: Any) -> bytes:
        data = messages.encode(reply)
        self._memory.keep(digest, data)
        return data


@dataclass
class _Run:
    """A run that this client takes part in.

    Attributes:
        offer: digest of the offer.
        name: public name of the run.
        nonce: what this client drew when it accepted.
        plan: what this client gives.
        method: of the accountant that its noise was found by.
        run: journal of the plan; None without a ledger, or before it is opened.
        wall, position: the wall, and how many releases of the plan are behind it.
        masks: by participants.
        restarted: whether what is on record decides how it goes on, after a failure or in another process.
        may_repeat_masks: whether a release may be lost that this client's masks have hidden.
        ended: whether it is over.
    """

    offer: str
    name: str
    nonce: bytes
    plan: Plan
    method: str
    run: runs.Run | None = None
    wall: Wall[Any] | None = None
    position: int = 0
    masks: dict[tuple[str, ...], Masks] = field(default_factory=dict)
    restarted: bool = False
    may_repeat_masks: bool = False
    ended: bool = False


@dataclass(frozen=True)
class _Same:
    """A plan that equals another with the same digest: clients in one process calculate once."""

    digest: bytes
    plan: Plan = field(compare=False)


@lru_cache(maxsize=64)
def _planned(relative: _Same, trust: Trust, *, method: str, **budget: Any) -> Plan:
    return trust.planned(relative.plan, method=method, **budget)


@lru_cache(maxsize=64)
def _adopted(relative: _Same, trust: Trust, multipliers: tuple[float, ...], **budget: Any) -> Plan:
    return trust.adopted(relative.plan, list(multipliers), **budget)


@lru_cache(maxsize=64)
def _promised(spent: _Same, delta: float, method: str) -> PrivacyStatement:
    return PrivacyStatement.from_plan(
        spent.plan, delta=delta, private=True, run_id="", public=(), epsilon_method=method
    )


@lru_cache(maxsize=64)
def _uncounted(spent: _Same, epsilon: float, delta: float) -> None:
    """Say it once for all clients of a process that take part in such a run."""
    runs.uncounted(spent.plan, epsilon=epsilon, delta=delta)


# --- the form of q ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """A model with its plan, which equals another of the same name."""

    name: str
    model: Any = field(compare=False)
    plan: Plan = field(compare=False)


class _Nothing:
    """No data."""

    def chunks(self) -> Iterator[Any]:
        return iter(())

    def count(self) -> int:
        return 0


@lru_cache(maxsize=16)
def _forms(named: _Model) -> tuple[Any, ...]:
    """The forms that q has in an honest run, as one on no data shows them; what it costs is the noise."""
    model, kinds, kept = named.model, Counter[tuple[str, ...]](), []
    for release in named.plan:
        kinds[tuple(release.blocks)] += 1
        if kinds[tuple(release.blocks)] <= _REHEARSED:
            kept.append(release)
    plan = replace(named.plan, releases=kept)
    wall: Wall[Any] = Wall(_Nothing(), plan)
    with silence(logs=True):
        q, s = model.init(generator("seed", 0)), Estimate.empty(model.blocks)
        forms = [_form(q)]
        for release in plan.releases[:-1]:
            s = s.update(wall.release(loop.query(model, q, release), release), 1.0)
            q = model.m_step(s, q)
            forms.append(_form(q))
    return tuple(dict.fromkeys(forms))


# The form of a part that may be None and is.
_MISSING: Final = (Ellipsis, None)


def _form(value: Any) -> Any:
    """Classes, shapes and dtypes of a tree, without its numbers; a field that may be None is marked by an ellipsis."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return bool
    if isinstance(value, int | np.integer):
        return int
    if isinstance(value, float | np.floating):
        return float
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype.str, value.shape
    if isinstance(value, Mapping):
        return type(value), tuple(sorted(value)), *(_form(value[name]) for name in sorted(value))
    if isinstance(value, tuple | list):
        return type(value), *map(_form, value)
    if is_dataclass(value):
        return type(value), *(
            (Ellipsis if "None" in str(part.type) else None, _form(getattr(value, part.name))) for part in fields(value)
        )
    return type(value)


def _fits(form: Any, wanted: Any) -> bool:
    """Whether a form is the wanted one, where a part that may be None is, and a whole number may stand for any."""
    if form is int and wanted is float:
        return True
    if not isinstance(form, tuple) or not isinstance(wanted, tuple) or form[0] is np.ndarray:
        return bool(form == wanted)
    if form == _MISSING and wanted[0] is Ellipsis:
        return True
    return len(form) == len(wanted) and form[0] is wanted[0] and all(map(_fits, form[1:], wanted[1:]))


@dataclass(frozen=True)
class _Question:
    """A request's q for a release of a model, with batches of no rows to try it on."""

    digest: str
    model: _Model
    release: Release = field(compare=False)
    q: Any = field(compare=False)
    batches: list[Any] = field(compare=False)


@lru_cache(maxsize=2)
def _sound(asked: _Question) -> bool:
    """Whether q has a form of the model's, and the model answers at it for no rows."""
    model, release = asked.model.model, asked.release
    if not any(_fits(_form(asked.q), form) for form in _forms(asked.model)):
        return False
    try:
        with silence(logs=True):
            answers = [model.e_step(asked.q, rows, release.blocks) for rows in asked.batches]
    except Exception:  # A q of strangers' making may raise anything.
        return False
    return all(release.blocks.keys() <= made.keys() for made in answers)


def _is_own(accepted: Any, offer: str) -> bool:
    """Whether an answer has the form of those by which a client accepts an offer."""
    if not isinstance(accepted, Accepted) or accepted.offer != offer:
        return False
    return type(accepted.facts.get("plan")) is str and accepted.multipliers is not None


# In one process many clients get the very same bytes.
_decoded = lru_cache(maxsize=2)(messages.decode)
_digest = lru_cache(maxsize=2)(messages.digest)


def _refused(digest: str, reason: str) -> bytes:
    return messages.encode(Refusal(digest, reason[:_MOST_SAID]))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... (SHA-256 {messages.digest(text.encode())})"
