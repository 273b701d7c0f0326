"""`dpvb federate`: one model from data that stay where they are: a server, its clients, and their keys."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpvb.cli import files, log, options
from dpvb.cli.reading import read
from dpvb.cli.root import Commands, app
from dpvb.cli.terminal import echo, progress_bar, remark, spent
from dpvb.guards.errors import DpvbError, FederationError, ParameterError

if TYPE_CHECKING:
    from dpvb.estimators.base import Task
    from dpvb.federated.agreement import Federation
    from dpvb.federated.client import Client
    from dpvb.federated.config import Agreement, ClientConfig, ServerConfig
    from dpvb.federated.mailbox_server import Mailbox

federate = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Learn one model from the data of several owners, who keep them (needs the extra `federated`).

    Every party makes a key and tells the others its public half; all write the same agreement; then each starts its
    own side, in any order:

        dpvb federate keys north --out north.key

        dpvb federate server --config server.toml

        dpvb federate client --config north.toml

    `dpvb docs federated` has the files in full.""",
)
app.add_typer(federate, name="federate")

Config = Annotated[Path, typer.Option(help="This party's own file, TOML: `dpvb docs federated`.")]


@federate.command()
def keys(
    name: Annotated[str, typer.Argument(help="Name of the party, as the agreement has it.")],
    out: Annotated[Path, typer.Option(help="The file for the secret key; a new one.")],
) -> None:
    """Make the key of a party; print the line that goes into the agreement.

    Only this party may use the file. The line is public, but it must reach the others by a way on which it cannot be
    it on: read it out on the telephone, or sign it.

        dpvb federate keys north --out north.key
    """
    from dpvb.federated.keys import Identity

    identity = Identity.generate(name)
    identity.save(out)
    echo(f'{name} = "{identity.public.hex()}"')
    remark(f"{out}: the secret key. Keep it to yourself; give the others the line above.")


@federate.command()
def certificate(
    host: Annotated[str, typer.Argument(help="Name or IP address by which clients call the server.")],
    out: Annotated[Path, typer.Option(help="The file for the server's certificate; a new one.")],
    days: Annotated[int, typer.Option(help="How long it is valid, at most 398 days.")] = 365,
) -> None:
    """Make a certificate for the server's TLS, where no authority of your own gives one.

    Three files are written: the certificate, its secret key, and `authority.pem`, which every client needs.

        dpvb federate certificate federation.example.org --out server.pem
    """
    from dpvb.federated.config import Certificate

    chain, key, authority = Certificate.generate(host, days=days).save(out)
    echo(f"{chain}: the certificate, and {key}: its key, only for the server; valid for {days} days.")
    echo(f"{authority}: for the clients, as `certificate` in their files.")


@federate.command()
def server(
    config: Config,
    overwrite: options.Overwrite = False,
    leave: Annotated[
        bool,
        typer.Option("--leave", help="Give up a run that was broken off, and tell the clients; no model is written."),
    ] = False,
    quiet: options.Quiet = False,
    log_file: options.LogFile = None,
) -> None:
    """Run the server: wait for the clients, run the schedule, write the model.

    The server has no data. Its knowledge of a client's people is bounded by that client's own noise, or, with
    trust = "trusted_server", by the guarantee of the run. With a folder in its file, a stopped or killed server goes on
    when it is started again, by the same command.

        dpvb federate server --config server.toml
    """
    from dpvb.federated.channel import Channel
    from dpvb.federated.config import ServerConfig

    settings = ServerConfig.load(config)

    def listening(max_bytes: int) -> Any:
        box = _mailbox("server").Mailbox(
            Channel(settings.identity, settings.agreement.clients),
            settings.agreement.clients,
            address=settings.address,
            tls=settings.tls,
            patience=settings.answer_seconds,
            max_bytes=max_bytes,
            tell=remark,
        )
        remark(f"Waiting for {len(box.clients)} clients at {box.address}.")
        return box

    with _stopping():
        lead(settings, listening, overwrite=overwrite, leave=leave, quiet=quiet)


def lead(
    settings: ServerConfig,
    opened: Callable[[int], AbstractContextManager[Mailbox]],
    *,
    overwrite: bool = False,
    leave: bool = False,
    quiet: bool = False,
) -> None:
    """Run the schedule over a transport to the clients, and write the model.

    Args:
        settings: the server's own file.
        opened: opens the transport; gets the most bytes that an answer can have.
        overwrite, leave, quiet: as on the command line.

    Raises:
        DpvbError: if no model can be learnt; what was charged stays charged.
    """
    from dpvb.estimators.base import generator
    from dpvb.federated.record import Recorded
    from dpvb.federated.server import Server
    from dpvb.guards.blas import one_blas_thread

    agreement = settings.agreement
    if leave and settings.folder is None:
        raise ParameterError("--leave is for a run on record, and the server's file names no folder for one.")
    is_recorded = settings.folder is not None and (settings.folder / "run.sqlite").exists()
    files.check_target(settings.out, overwrite or leave or is_recorded, "out")
    task, federation = _agreed(agreement, _no_rows(agreement))
    model, patience = agreement.estimator(), settings.answer_seconds

    def gather(names: Collection[str]) -> None:
        if missing := link.wait(settings.join_seconds, names):
            remark(f"{', '.join(missing)} did not come within {settings.join_seconds:g} s.")

    def part(link: Mailbox) -> None:
        """Wait for the clients that are on their way back, to tell them that the run is over."""
        if names := link.unheard():
            remark(
                f"The run is over, and {', '.join(names)} has not heard of that: waiting for {patience:g} s at most. "
                "Ctrl-C ends the waiting."
            )
        while link.unheard():
            link.poll(1.0)

    with (
        opened(_most_bytes(task)) as link,
        nullcontext() if settings.folder is None else Recorded(link, settings.folder, gather) as record,
        progress_bar(quiet=quiet, label="federation") as tell,
    ):
        # A server killed after writing its model finds the file.
        is_written = record is not None and _written(settings, record.run)
        files.check_target(settings.out, overwrite or leave or is_written, "out")
        if record is None or leave:
            gather(link.clients)
        elif record.continues:
            remark(f"Going on with the run in {settings.folder}.")

        def prepared(transport: Any) -> Server:
            return Server(task, federation, transport, timeout=patience)

        if leave and record is not None:
            if record.offer is not None:
                prepared(link).dismiss(record.offer, "the server has given it up")
            record.end()
            remark("The run was given up; what was charged stays charged.")
            return part(link)

        try:
            with nullcontext() if record is None else record.until_over():
                run = prepared(record or link)
                seed = record.seed if record is not None and model.random_state is None else model.random_state
                q = run.run(generator("random_state", seed), tell)
                model._set_statement(run.statement(task.public), task.notes)
                with one_blas_thread():
                    model._take(task, q)
                    model._remark(stacklevel=1)
                model.save(settings.out, overwrite=True)
        except FederationError:
            part(link)
            raise
        echo(str(model.privacy_))
        log.write("statement", message=model.privacy_.brief)
        remark(f"{settings.out}: {agreement.kind}, for each client {spent(model)}. Next: dpvb show {settings.out}")
        return part(link)


def _written(settings: ServerConfig, run: str) -> bool:
    """Return whether the model file comes from this run."""
    with suppress(DpvbError):
        return bool(files.load_model(settings.out).privacy_.run_id == run)
    return False


def _most_bytes(task: Task) -> int:
    """The most bytes of an answer to a server: the largest release, or the multipliers of all of them, and words."""
    import math

    sums = (sum(math.prod(block.packed_shape) for block in one.blocks.values()) for one in task.relative)
    # A sum has eight bytes, a multiplier 32 characters in the header of a message, a sentence at most 2^12 characters.
    return 8 * max(sums) + 32 * len(task.relative) + 2**16


@federate.command()
def client(
    config: Config,
    leave: Annotated[
        bool, typer.Option("--leave", help="Give up a run that was broken off, for a new one; what was charged stays.")
    ] = False,
    log_file: options.LogFile = None,
) -> None:
    """Run a client: answer the server until the run has ended, and print the guarantee.

    The data stay here. Everything that the server asks is held against this party's own files first. A client that was
    killed goes on when it is started again, by the same command.

        dpvb federate client --config north.toml
    """
    from dpvb.federated.channel import Channel
    from dpvb.federated.config import ClientConfig

    settings = ClientConfig.load(config)
    agreement = settings.agreement
    with _stopping(), owner(settings) as party:
        over = party.is_over  # Not by --leave: then another run is waited for.
        if leave:
            party.leave()
        talk = _Talk(party)
        try:
            _mailbox("client").serve(
                Channel(settings.identity, {agreement.server: agreement.server_key}),
                agreement.server,
                talk.answer,
                address=settings.address,
                certificate=settings.certificate,
                patience=lambda: 0.0 if over and party.is_over else settings.server_seconds,
                ended=lambda: talk.ended,
                tell=remark,
            )
        except FederationError:
            if not (over and party.is_over):
                raise
            remark(f"The run in {settings.folder} is over, and no server is in reach. For another run start it first.")
        if talk.refusal:
            raise FederationError(f"This client does not take part: {talk.refusal}")
        echo(str(party.statement))
        log.write("statement", message=party.statement.brief)


def owner(settings: ClientConfig) -> Client:
    """One owner's side, from the owner's own file: its rows, its ledger and its folder.

    Raises:
        DpvbError: if a file cannot be used.
    """
    from dpvb.federated.client import Client
    from dpvb.runs.run import opened

    if settings.ledger is not None and settings.dataset is not None:
        with opened(settings.ledger) as account:
            account.remaining(settings.dataset)  # An unregistered data set is reported before other parties wait.
    task, federation = _agreed(settings.agreement, _rows(settings))
    return Client(
        settings.identity.name,
        task,
        federation,
        identity=settings.identity,
        ledger=settings.ledger,
        dataset=settings.dataset,
        folder=settings.folder,
    )


class _Talk:
    """A client's answers, in words for its owner."""

    def __init__(self, owner: Client) -> None:
        self._owner = owner
        self.ended = False
        self.refusal = ""

    def answer(self, data: bytes) -> bytes:
        """The client's answer; a farewell ends the talk, and so does an offer that is refused."""
        from dpvb.federated import messages

        reply = self._owner.answer(data)
        match messages.decode(reply):
            case messages.Accepted():
                remark("The server's offer is accepted: it matches the files of this client.")
            case messages.Farewell():
                self.ended = True
                remark(f"The run has ended: {getattr(_message(data), 'reason', '')}.")
            case messages.Refusal(reason=reason):
                match _message(data):
                    case messages.Offer():
                        self.ended, self.refusal = True, reason
                    case messages.Farewell(reason=over):
                        self.ended, self.refusal = True, f"the server has ended another run: {over}"
                    case _:
                        remark(f"refused: {reason}")
        return reply


def _message(data: bytes) -> Any:
    """A message that needs no classes to be read; None for any other."""
    from dpvb.federated import messages

    try:
        return messages.decode(data)
    except FederationError:
        return None


def _agreed(agreement: Agreement, data: Mapping[str, Any]) -> tuple[Task, Federation]:
    """The task of the fit, and what all parties must find the same, by one's own data and files."""
    from dpvb.estimators.private_words import check_known
    from dpvb.federated.agreement import Federation
    from dpvb.federated.simulation import columns_of, of_unit, steps_of, warn_of_few_clients
    from dpvb.runs.run import Run

    model = agreement.estimator()
    try:
        with Run().isolated():
            model.set_params(n_steps=steps_of(model, data, agreement.num_rounds))
            task = check_known(model._task(**data), "in a federation")
        task = of_unit(task, "client" if agreement.unit == "client" else "example")
    except ParameterError as error:
        raise ParameterError(f"The agreement does not hold together: {error}") from error
    federation = Federation(
        kind=agreement.kind,
        columns=columns_of(task),
        trust=agreement.trust,
        epsilon=agreement.epsilon,
        delta=agreement.delta,
        participants=agreement.clients,
        n_units=model.n_units,
    )
    warn_of_few_clients(model, task, federation, stacklevel=2)
    return task, federation


def _no_rows(agreement: Agreement) -> dict[str, Any]:
    """Data without rows, in the columns of the agreement: what a server has."""
    import numpy as np

    from dpvb.data import check_vocabulary

    words = None if agreement.vocabulary is None else check_vocabulary(agreement.vocabulary)
    schema = None if agreement.schema is None else _schema(agreement)
    rows = agreement.estimator()._no_rows(schema=schema, vocabulary=words, width=agreement.width)
    grouped = agreement.unit != "example" and (schema is None or schema.group is None)
    return {**rows, **({"group": np.empty(0, dtype=np.int64)} if grouped else {})}


def _rows(settings: ClientConfig) -> dict[str, Any]:
    """A client's private rows, read as `dpvb fit` reads them."""
    import numpy as np

    agreement, sources = settings.agreement, settings.data
    estimator, person = agreement.estimator(), agreement.unit == "person"
    events = estimator._reads == "sequences"
    if events and (sources.group or sources.target or not person):
        raise ParameterError(
            "[data] file must be a long table with the columns person, time, and symbol or numbers, and unit must be "
            '"person".'
        )
    matrix = not events and estimator._reads != "documents" and agreement.schema is None
    if matrix:
        brought = estimator._no_rows(schema=None, vocabulary=None, width=agreement.width)
        if (sources.target is None) == ("y" in brought):
            raise ParameterError("[data] target must name a .npy file with the response of each row, for a regression.")
        for name in ("trials", "exposure", "offset", "weights"):
            if (getattr(sources, name) is None) == (name in brought):
                raise ParameterError(
                    f"[data] {name} must name a .npy file with a number for each row where the agreement's estimator "
                    "has a bound of it, and nowhere else."
                )
        if (sources.group is not None) != person:
            raise ParameterError('[data] group belongs to unit = "person": a .npy file with the person of each row.')
    elif agreement.schema is not None:
        _schema(agreement)
    elif not events and (sources.group_column is not None) != person:
        raise ParameterError('[data] group_column belongs to unit = "person": it names the person of a document.')
    public = {name: getattr(agreement, name) for name in ("schema", "vocabulary", "width")}
    columns = {"columns": estimator._named_columns} if events else {}
    rows = read(estimator._reads, {**vars(sources), **public, **columns, "data": sources.file})
    if matrix and (rows["X"].ndim != 2 or rows["X"].shape[1] != agreement.width):
        raise ParameterError(f"[data] file must be a matrix with the {agreement.width} columns of the agreement.")
    if agreement.unit == "client":
        rows["group"] = np.zeros(estimator._task(**rows).source.count(), dtype=np.int64)
    return rows


def _schema(agreement: Agreement) -> Any:
    """The schema, which must have a group column if, and only if, persons are protected."""
    from dpvb.data import Schema

    assert agreement.schema is not None
    schema = Schema.load(agreement.schema)
    if (schema.group is not None) != (agreement.unit == "person"):
        raise ParameterError('unit must be "person" with a schema that has a group column, and with no other.')
    return schema


def _mailbox(end: str) -> Any:
    """The module of one end of the mailbox."""
    from importlib import import_module

    try:
        return import_module(f"dpvb.federated.mailbox_{end}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dpvb"):
            raise
        raise ParameterError(
            "A federated run needs the extra: pip install '.[federated]' in dpvb's source folder."
        ) from error


@contextmanager
def _stopping() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the program in order: no door stays open, and the others are told."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
