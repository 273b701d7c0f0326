"""A client: one owner's side of a federated run. It trusts no message of a server, and remembers its own.

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

A client accepts as a q the forms that its own model gives it, with numbers in their domains (`FormOfQ`). The forms are
found by a dry run: the client's own plan on no data. The form settles that a row's statistic depends on
no other row: an array that is one row of q for each row of data, or is shorter than indices reach, would break that.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Final, final

import numpy as np

from dpvb.core import loop
from dpvb.core.estimate import Estimate
from dpvb.core.forks import Origin
from dpvb.core.model import Model, e_step_q, updated
from dpvb.core.noise import NoiseSource
from dpvb.core.plan import Plan, Release
from dpvb.core.source import Nobody, chunks_of
from dpvb.core.wall import Wall
from dpvb.estimators.base import Task, generator
from dpvb.federated import messages
from dpvb.federated.agreement import Federation
from dpvb.federated.keys import Identity, check_name
from dpvb.federated.membership import Membership, Owner
from dpvb.federated.memory import Memory
from dpvb.federated.messages import Accepted, Farewell, Offer, Refusal, Request, Share, classes_in
from dpvb.federated.shared import Shared
from dpvb.guards import domains
from dpvb.guards.blas import one_blas_thread
from dpvb.guards.errors import (
    BudgetError,
    CheckpointError,
    DpvbError,
    FederationError,
    LedgerError,
    ParameterError,
    PrivacyError,
    PrivateComputationError,
    check_integer,
)
from dpvb.guards.imports import check_numba
from dpvb.guards.suppress_output import silence
from dpvb.guards.untrusted import say
from dpvb.guards.version import __version__
from dpvb.ledger import Ledger
from dpvb.results.declared import declared
from dpvb.results.statement import PrivacyStatement
from dpvb.runs.run import check_account, opened

# Number of releases of each kind before which the form of q is recorded: by then q has all its parts.
_REHEARSED: Final = 3
# The form of a part that may be None and is.
_MISSING: Final = (Ellipsis, None)


@final
class FormOfQ:
    """The forms that a task's q has in an honest run.

    Args:
        task: model, plan and data; of the data only a batch of no rows is taken, when a q is first checked.
        shared: where clients with equal models and plans find the forms of one dry run.

    Attributes:
        classes: the classes that these forms are made of.
    """

    def __init__(self, task: Task, shared: Shared) -> None:
        self._task = task
        self._forms, self.classes = shared.once(_forms_of_a_dry_run, task.model, task.relative)
        self._no_rows: list[Any] | None = None

    def check(self, q: Any, release: Release) -> None:
        """Let a q pass that has a form and the domain of the model's, and with which the model answers for no rows.

        Args:
            q: from an untrusted party.
            release: what it is asked for.

        Raises:
            FederationError: for any other q; nothing private has met it.
        """
        if (fault := domains.outside(q)) is not None:
            raise FederationError(f"{fault}; the request is refused, and nothing is spent on it.")
        form = _form(q)
        if not any(_fits(form, expected) for expected in self._forms) or not self._answers(q, release):
            raise FederationError("q is not one of this model's; the request is refused, and nothing is spent on it.")

    def _answers(self, q: Any, release: Release) -> bool:
        batches = self._empty_batch()
        try:
            with silence(logs=True):
                answers = [self._task.model.e_step(q, rows, release.asked) for rows in batches]
        except Exception:  # A q of strangers' making may raise anything.
            return False
        return all(release.asked.keys() <= answer.keys() for answer in answers)

    def _empty_batch(self) -> list[Any]:
        """A batch of no rows, in a list; none where a source of the user's own has no chunk at all."""
        if self._no_rows is None:
            with silence(logs=True):
                first = next(chunks_of(self._task.source), None)
                self._no_rows = [] if first is None else [first.select(np.zeros(first.num_units, dtype=np.bool_)).rows]
        return self._no_rows


def _forms_of_a_dry_run(model: Model[Any, Any], plan: Plan) -> tuple[tuple[Any, ...], frozenset[type]]:
    """The forms of q before the releases of a run on no data, and its classes; what such a run costs is the noise."""
    kinds, forms = Counter[tuple[str, ...]](), []
    for release in plan:
        kinds[tuple(release.blocks)] += 1
        if kinds[tuple(release.blocks)] <= _REHEARSED:
            forms.append(release)
    plan = replace(plan, releases=forms)
    wall: Wall[Any] = Wall(Nobody(), plan)
    with silence(logs=True):
        s, qs = Estimate.empty(model.blocks), [model.init(generator("seed", 0))]
        for release in plan.releases[:-1]:
            s = s.update(wall.release(loop.query(model, qs[-1], release), release), 1.0)
            qs.append(updated(model, s, qs[-1]))
    asked = [e_step_q(model, q, release.asked) for q, release in zip(qs, plan, strict=True)]
    return tuple(dict.fromkeys(map(_form, asked))), classes_in(asked)


def _form(value: Any) -> Any:
    """Classes, shapes and dtypes of a tree, without its numbers; a field that may be None is marked by an ellipsis."""
    if value is None or isinstance(value, str):
        return value
    for kind, of_numpy in ((bool, np.bool_), (int, np.integer), (float, np.floating)):
        if isinstance(value, (kind, of_numpy)):
            return kind
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
    return len(form) == len(wanted) and form[0] == wanted[0] and all(map(_fits, form[1:], wanted[1:]))


_SILENT: Final = "this client failed; the reason stays with its owner."
_MOST_SHOWN, _MOST_SAID = 200, 4096


@final
class Client:
    """One owner's side; it may be used by several threads.

    Args:
        name: among the participants.
        task: the fit of this client's own estimator on its own data, which go no further than its wall.
        federation: what this client agrees to, its own epsilon and delta included; nothing of it comes from a server.
        identity: this client's keys; needed for secure aggregation.
        ledger, dataset: what is charged with the whole plan once an offer is accepted, and with every repeated attempt;
            None: the run is not recorded in a ledger, with a warning.
        folder: this client's memory, which only it uses (see `memory`); None: an interrupted run cannot be continued.
        max_attempts: how often one release may be asked for in all; each time is spent on top of epsilon.
        noise: tests only.
        shared: what clients of one process calculate once; None: this client calculates for itself.

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
        shared: Shared | None = None,
    ) -> None:
        self.name: Final = check_name(name)
        self._federation = federation
        self._max_attempts = check_integer("max_attempts", max_attempts, low=1, high=100)
        check_numba()
        check_account(ledger, dataset)
        if name not in federation.participants:
            raise ParameterError(f"name must be one of the participants {sorted(federation.participants)}.")
        if federation.trust.secure and identity is None:
            raise ParameterError("identity is needed for secure aggregation: its keys make the masks.")
        if identity is not None and (identity.name, identity.public) != (name, federation.participants[name]):
            raise ParameterError(f"identity must be that of {name!r}, with the public key that participants has.")
        self._turn = threading.Lock()
        self._origin = Origin()
        self._shared = Shared() if shared is None else shared
        self._form_of_q = FormOfQ(task, self._shared)
        self._closed = False
        with ExitStack() as held:
            books = None if ledger is None else held.enter_context(opened(ledger))
            self._memory = Memory(folder)
            held.callback(self._memory.close)
            self._owner = Owner(name, task, federation, identity, books, dataset, self._memory, noise, self._shared)
            self._current = self._newest()
            self._held = held.pop_all()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.name!r})"

    def __reduce__(self) -> str:
        raise PrivacyError("A client holds private data and keys; it cannot be pickled or copied.")

    def close(self) -> None:
        """Let go of ledger and folder; a run that is going on can be continued if there is a folder."""
        if not self._origin.is_here:
            return
        with self._turn:
            if self._current is not None:
                self._current.close(interrupts=not self._closed)
            self._closed = True
            self._held.close()

    def answer(self, data: bytes) -> bytes:
        """Answer a message: an offer, a request or a farewell; anything else is refused. Never raises for its contents.

        A refusal contains only public facts.
        """
        digest = self._shared.digest(data := bytes(data))
        with self._turn, one_blas_thread():
            try:
                self._origin.check("this client")
                if self._closed:
                    raise FederationError("This client was closed.")
                reply = self._memory.reply(digest)
                return self._answered(digest, data) if reply is None else reply
            except DpvbError as error:
                if isinstance(error, LedgerError | CheckpointError):
                    say(f"client {self.name!r}: {error}")
                return _refused(digest, str(error))
            except Exception:  # The error may contain private data.
                return _refused(digest, _SILENT)

    def leave(self) -> None:
        """End the run that is going on, as a farewell would; what was charged stays charged."""
        self._origin.check("this client")
        with self._turn:
            if (current := self._current) is not None and not self._memory.ended(current.offer):
                current.end()

    @property
    def is_over(self) -> bool:
        """Whether the newest run of this client is over."""
        with self._turn:
            return self._current is not None and self._memory.ended(self._current.offer)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of this client for the newest run: its plan, and all attempts beyond it.

        Raises:
            PrivacyError: if no offer was accepted, or the plan of the newest one is lost; or in a process that
                was forked from this client's.
        """
        self._origin.check("this client")
        with self._turn:
            current = self._current
            newest = next(reversed(self._memory.offers()), "")
            if newest and (current is None or current.offer != newest) and self._memory.reply(newest) is None:
                raise PrivacyError(
                    "The answer to the newest offer is gone from this client's folder, so its terms are unknown. "
                    "Charges for it remain in the ledger, if there is one."
                )
            if current is None:
                members = (
                    "as it is configured" if self._memory.lasting else "since it began; a folder would know of others"
                )
                raise PrivacyError(
                    f"No offer was accepted by this client {members}: it has no guarantee, and spent nothing."
                )
            return current.statement()

    def _answered(self, digest: str, data: bytes) -> bytes:
        message = self._shared.decode(data, self._form_of_q.classes)
        if isinstance(message, Offer):
            return self._accepted(digest, data, message)
        if isinstance(message, Request):
            return self._asked(digest, message)
        if isinstance(message, Farewell):
            return self._parted(message)
        raise FederationError(f"A client is asked by offers, requests and farewells, not by {type(message).__name__}.")

    # --- offers ---------------------------------------------------------------------------------------------------

    def _accepted(self, digest: str, data: bytes, offer: Offer) -> bytes:
        self._check_offer(offer)
        earlier, newest = self._memory.offers(), self._current
        if digest in earlier:
            raise FederationError(
                "This client accepted this very offer before, and the answer is gone: it is not accepted anew. Begin a "
                "new run."
            )
        if any(messages.decode(request).run == offer.run for request in earlier.values()):
            raise FederationError(f"The run {offer.run!r} was offered to this client before, with other contents.")
        if newest is not None and not self._memory.ended(newest.offer):
            raise FederationError(
                f"This client takes part in the run {newest.name!r}, which is not over. Its server ends it with a "
                "farewell; or its owner with Client.leave."
            )
        self._memory.check_room()
        current = Membership(self._owner, digest, offer)
        answer = messages.encode(current.acceptance())
        self._memory.prepare(digest, data, answer)
        try:
            current.charge()
        except (BudgetError, ParameterError):
            self._memory.decline(digest)
            raise
        self._memory.accept(digest, data, answer)
        self._current = current
        return answer

    def _check_offer(self, offer: Offer) -> None:
        """Refuse an offer that differs from this client's own configuration in anything.

        Raises:
            FederationError: naming what differs, and both values.
        """
        federation, plan = self._federation, self._owner.task.relative
        model = declared(self._owner.task.model)
        compared = {
            "version of dpvb": (offer.version, __version__),
            "estimator": (offer.kind, federation.kind),
            **{f"{name} of the model": (offer.model.get(name), value) for name, value in model.items()},
            "fields of the model": (sorted(offer.model), sorted(model)),
            "columns": (offer.columns, federation.columns),
            "unit": (offer.unit, plan.unit),
            "neighboring relation": (offer.neighboring_relation, plan.neighboring_relation),
            "trust model": (offer.trust, federation.trust.name),
            "max_missing": (offer.max_missing, federation.trust.max_missing),
            "max_colluding": (offer.max_colluding, federation.trust.max_colluding),
            "public number of examples": (offer.n_units, federation.n_units),
            "number of releases": (len(offer.multipliers), len(plan)),
            "participants": (sorted(offer.participants), sorted(federation.participants)),
        }
        for name, (offered, here) in compared.items():
            if offered != here:
                raise FederationError(
                    f"The {name} differs: {_shown(offered)} is offered, and this client has {_shown(here)}."
                )
        for name, public in federation.participants.items():
            if offer.participants[name] != public:
                raise FederationError(
                    f"The public key of {name!r} differs: {offer.participants[name].hex() or 'none'} is offered, and "
                    f"this client has {public.hex() or 'none'}. Compare keys with its owner."
                )

    # --- requests -------------------------------------------------------------------------------------------------

    def _asked(self, digest: str, request: Request) -> bytes:
        current = self._current
        if current is None or request.offer != current.offer:
            raise FederationError("This request belongs to no offer that this client has accepted.")
        if self._memory.ended(current.offer):
            raise FederationError(f"The run {current.name!r} is over.")
        self._check_request(current, request)
        again = self._is_again(current, digest, request)
        self._form_of_q.check(request.q, current.plan.releases[request.step])
        try:
            with current.reopening():
                arrays, private = current.give(digest, request, again=again)
                return self._kept(digest, Share(digest, dict(arrays), private))
        except PrivateComputationError as error:
            return self._kept(digest, Refusal(digest, str(error)))

    def _check_request(self, current: Membership, request: Request) -> None:
        trust, every = self._federation.trust, self._federation.participants
        if strangers := [name for name in request.participants if name not in every]:
            raise FederationError(f"{strangers[0]!r} is asked too, but is not a participant of this run.")
        if self.name not in request.participants:
            raise FederationError(f"The request is for {', '.join(request.participants)}, not for {self.name!r}.")
        if trust.secure and current.restarted and self._owner.ledger is None:
            raise FederationError(
                "This client was started anew in the middle of its run, and has no ledger to show that its folder was "
                "not set back, so that masks could hide two sums alike. Begin a new run. A run that a ledger "
                "records from its beginning can resume."
            )
        if trust.secure and request.nonces.get(self.name) != current.nonce:
            raise FederationError(
                "The request has not the nonce that this client gave when it accepted, so that masks could hide two "
                "sums alike. Begin a new run."
            )
        if trust.secure and len(request.participants) < trust.least:
            raise FederationError(
                f"{len(request.participants)} participants have too little noise together: at least {trust.least} must "
                "take part."
            )
        if request.step >= len(current.plan):
            raise FederationError(f"The plan has {len(current.plan)} releases, and none of number {request.step}.")

    def _is_again(self, current: Membership, digest: str, request: Request) -> bool:
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
            raise FederationError(f"Release {step} was passed over, and release {newest} is the newest one.")
        if step < newest:
            raise FederationError(
                f"Release {step} was given for another request, and release {newest} is the newest one."
            )
        if request.attempt <= max(attempts):
            raise FederationError(
                f"Release {step} was given for another request as attempt {max(attempts)}, so that attempt "
                f"{request.attempt} is refused: the same attempt must be the same bytes."
            )
        if len(attempts) >= self._max_attempts:
            raise FederationError(f"Release {step} was given {len(attempts)} times; this client gives it no more.")
        return True

    # --- ends -----------------------------------------------------------------------------------------------------

    def _parted(self, farewell: Farewell) -> bytes:
        current = self._current
        if current is not None and farewell.offer == current.offer and not self._memory.ended(current.offer):
            current.end()
        if not self._memory.ended(farewell.offer):
            raise FederationError("This farewell belongs to no run that this client takes part in.")
        return messages.encode(Farewell(farewell.offer, f"{self.name} has ended the run."))

    def _newest(self) -> Membership | None:
        """The run in this client's memory that is not over; else the last one that was, for its statement."""
        over = None
        for digest, data in self._memory.offers().items():
            reply = self._memory.reply(digest)
            if reply is None:  # The request is refused if it is made again.
                continue
            try:
                offer, accepted = messages.decode(data), messages.decode(reply)
            except FederationError as error:
                raise CheckpointError(
                    f"Client {self.name!r}: its folder is of another version of dpvb. End its run with that version; "
                    "then give the client a new folder."
                ) from error
            if not isinstance(offer, Offer) or not _is_own(accepted, digest):
                raise CheckpointError(f"Client {self.name!r}: its folder is damaged. Give the client a new folder.")
            if not self._memory.ended(digest):
                return Membership(self._owner, digest, offer)
            over = partial(self._over, digest, offer, accepted.facts["plan"])
            if self._memory.is_open(digest):  # Killed at its end.
                over()
        return None if over is None else over()

    def _over(self, digest: str, offer: Offer, plan: str) -> Membership | None:
        """Return an ended run, its checkpoint closed; None if the configuration differs from that of the run."""
        current = None
        with suppress(DpvbError):
            current = Membership(self._owner, digest, offer)
        if current is not None and current.plan.digest.hex() != plan:
            current = None
        if current is not None:
            current.end_for_good()
        self._memory.close_run(digest)
        return current

    def _kept(self, digest: str, reply: Any) -> bytes:
        data = messages.encode(reply)
        self._memory.keep(digest, data)
        return data


def _is_own(accepted: Any, offer: str) -> bool:
    """Whether an answer has the form of those by which a client accepts an offer."""
    if not isinstance(accepted, Accepted) or accepted.offer != offer:
        return False
    return type(accepted.facts.get("plan")) is str and accepted.multipliers is not None


def _refused(digest: str, reason: str) -> bytes:
    return messages.encode(Refusal(digest, reason[:_MOST_SAID]))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... (SHA-256 {messages.digest(text.encode())})"
