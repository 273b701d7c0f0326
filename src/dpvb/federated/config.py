"""The files of a federated run: one agreement that all parties hold, one of each party's own, and the certificate.

The agreement and the parties' files are TOML. Every key is checked: an unknown or missing one, and a value of another
type, are refused by name. Paths are relative to the file in which they stand.

The server's certificate is signed by an authority that is made for this one time. The authority's key is forgotten when
it has signed: no other server can be made that the clients would trust. A new certificate has a new authority,
which all clients get again.
"""

from __future__ import annotations

import difflib
import inspect
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpvb.data.documents import word_lists
from dpvb.data.documents.vocabulary import PRIVATE
from dpvb.estimators import PrivateEstimator
from dpvb.federated.keys import Identity, check_name, check_public
from dpvb.federated.transport import Address, parse_address
from dpvb.federated.trust import TRUST, Trust
from dpvb.guards.errors import (
    FederationError,
    ParameterError,
    check_choice,
    check_delta,
    check_integer,
    check_number,
    check_path,
    reason_of,
)
from dpvb.guards.file_ownership import write_own
from dpvb.guards.untrusted import printable

# The longest period of validity that browsers accept.
_MOST_DAYS = 398
# A client's clock may be behind the server's.
_BEFORE = timedelta(hours=1)
_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True)
class Certificate:
    """The server's certificate, the authority that its clients trust, and the secret key; all PEM.

    Attributes:
        chain: the server's certificate and its authority's; public.
        authority: for the clients; public.
        private_key: of the server; secret.
    """

    chain: bytes
    authority: bytes
    private_key: bytes

    @classmethod
    def generate(cls, host: str, *, days: int = 365, now: datetime | None = None) -> Certificate:
        """Make a certificate for one host.

        Args:
            host: public: the name or the IP address by which clients call the server, without the port.
            days: public: how long it is valid, at most 398.
            now: from when on; the clock's time if not given.

        Raises:
            ParameterError: for a value outside its range.
        """
        check_integer("days", days, low=1, high=_MOST_DAYS)
        begin = datetime.now(UTC) if now is None else now
        authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        above = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of one dpvb server")])
        authority = _signed(
            above, above, authority_key, authority_key, (begin - _BEFORE, begin + timedelta(days=days)),
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(signs_certificates=True), True),
        )  # fmt: skip
        server = _signed(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dpvb server")]), above, key, authority_key,
            (begin - _BEFORE, begin + timedelta(days=days)),
            (x509.SubjectAlternativeName([_host(host)]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        )  # fmt: skip
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return cls(server + authority, authority, secret)

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write three new files: the chain, its name with `.key`, and `authority.pem` in the same folder.

        Returns:
            The three paths; only the owner can read the second.

        Raises:
            FederationError: if one of them is there already or cannot be written, or two would have one name.
        """
        chain = check_path("path", path)
        key, authority = chain.with_name(f"{chain.name}.key"), chain.with_name("authority.pem")
        if chain == authority:
            raise FederationError(f"{chain}: this is the name of the authority's file. Choose another, as server.pem.")
        if taken := [str(one) for one in (chain, key, authority) if one.exists() or one.is_symlink()]:
            raise FederationError(f"{' and '.join(taken)}: already there. Choose another folder, or remove it.")
        try:
            write_own(key, self.private_key, new=True)
            for public, data in ((chain, self.chain), (authority, self.authority)):
                with open(public, "xb") as file:
                    file.write(data)
        except OSError as error:
            raise FederationError(f"{chain}: a certificate cannot be written here ({reason_of(error)}).") from error
        return chain, key, authority


def _host(text: str) -> x509.GeneralName:
    """A name or an address, as a certificate has it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        if _HOST.fullmatch(text) is None:
            raise ParameterError(
                f"host must be a name such as federation.example.org or an IP address, without a port; got "
                f"{printable(text)!r}."
            ) from None
        return x509.DNSName(text)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Key usage: that of the authority signs certificates; that of the server signs its messages."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    valid: tuple[datetime, datetime],
    *extensions: tuple[x509.ExtensionType, bool],
) -> bytes:
    """Return a certificate in PEM. Each extension comes with whether it is critical (RFC 5280, 4.2)."""
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=valid[0].astimezone(UTC).replace(tzinfo=None),
        not_valid_after=valid[1].astimezone(UTC).replace(tzinfo=None),
    )
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for extension, critical in (*extensions, (identity, False), (above, False)):
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


UNITS: Final = ("example", "person", "client")
# Parameters of estimators that are not keys of [model], and where else they come from.
_ELSEWHERE: Final = {
    "epsilon": "it stands outside [model]",
    "delta": "it stands outside [model]",
    "vocabulary": "it stands outside [model], as the name or path of a list of words",
    "n_steps": "num_rounds says it",
    "noise_multiplier": "epsilon and num_rounds say it",
    "accountant": "trust says it",
    "ledger": "it is in each client's own file",
    "dataset": "it is in each client's own file",
    "checkpoint": "it is `folder` in each client's own file",
    "resume": "a client resumes by itself",
}
_TYPES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}
_MAX_BYTES: Final = 2**24
_NEEDED: Final = object()


@dataclass(frozen=True)
class Agreement:
    """The agreement of all parties; public, and the same file for all.

    Attributes:
        kind: name of the estimator.
        params: parameters of the estimator that are set.
        epsilon, delta: budget of each client.
        num_rounds: number of requests to each client. None: as many as the estimator plans.
        unit: protected unit: an "example" (row or document) at one client, all data of a "person" there, or all data of
            a "client".
        trust: trust model: "none", "secure_aggregation" or "trusted_server".
        schema: path of the schema of a table. Exactly one of `schema`, `vocabulary` and `width` is needed.
        vocabulary: name or path of a public word list.
        width: number of columns, of words or of symbols.
        server: name of the server, with its public key.
        server_key: public key of the server.
        clients: public key of each client, by its name.
    """

    kind: str
    params: Mapping[str, Any]
    epsilon: float
    delta: float
    num_rounds: int | None
    unit: str
    trust: Trust
    schema: Path | None
    vocabulary: Path | str | None
    width: int | None
    server: str
    server_key: bytes
    clients: Mapping[str, bytes]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Agreement:
        """Read an agreement.

        Raises:
            ParameterError: naming the key that is unknown, missing or wrong.
            FederationError: for a public key that is none.
        """
        file = _Table.read(path)
        kinds = tuple(name for name, kind in PrivateEstimator._registered.items() if kind._reads is not None)
        kind = check_choice("kind", file.take("kind", str), kinds)
        rounds, width = file.take("num_rounds", int, None), file.take("width", int, None)
        clients = {name: _public(file, name, key) for name, key in file.take("clients", dict).items()}
        server = file.inner("server")
        name = check_name(server.take("name", str, "server"))
        data = cls(
            kind=kind,
            params=_params(kind, file),
            epsilon=check_number("epsilon", file.take("epsilon", float), low=0, closed="right"),
            delta=check_delta(file.take("delta", float)),
            num_rounds=None if rounds is None else check_integer("num_rounds", rounds, low=1, high=10**6),
            unit=check_choice("unit", file.take("unit", str, UNITS[0]), UNITS),
            trust=Trust(
                check_choice("trust", file.take("trust", str), TRUST),
                len(clients),
                max_missing=file.take("max_missing", int, 0),
                max_colluding=file.take("max_colluding", int, None),
            ),
            schema=file.path("schema", None),
            vocabulary=file.word_list("vocabulary"),
            width=None if width is None else check_integer("width", width, low=1),
            server=name,
            server_key=_public(server, name, server.take("key", str)),
            clients=clients,
        )
        server.end()
        file.end()
        forms = tuple(key for key in ("schema", "vocabulary", "width") if getattr(data, key) is not None)
        declared = PrivateEstimator._registered[kind]._declares
        if len(forms) != 1 or forms[0] not in declared:
            raise ParameterError(
                f"{path}: {kind} needs {' or '.join(declared)}, the public columns of all parties' data; "
                f"got {' and '.join(forms) or 'neither'}."
            )
        if data.vocabulary is not None and Path(data.vocabulary).name == PRIVATE:
            raise ParameterError(
                f"{path}: vocabulary must be the path of a public list: all parties count the same words."
            )
        keys = [data.server_key, *clients.values()]
        if name in clients or len(set(keys)) < len(keys):
            raise ParameterError(f"{path}: every party needs a name and a key of its own: dpvb federate keys NAME.")
        return data

    def estimator(self) -> Any:
        """The estimator, not fitted.

        Raises:
            ParameterError: for parameters that it does not take.
        """
        try:
            return PrivateEstimator._registered[self.kind](epsilon=self.epsilon, delta=self.delta, **self.params)
        except ParameterError as error:
            raise ParameterError(f"[model] of the agreement: {error}") from error


@dataclass(frozen=True)
class ServerConfig:
    """The server's own file.

    Attributes:
        agreement: path of the agreement.
        identity: path of the server's secret key.
        address: listening address, host and port.
        tls: paths of certificate and private key, or None.
        out: path of the model file that is written.
        folder: record of the run until it ends. None: a killed server loses the run.
        join_seconds: time to wait for clients at the start.
        answer_seconds: time to wait for one answer.
    """

    agreement: Agreement
    identity: Identity
    address: Address
    tls: tuple[Path, Path] | None
    out: Path
    folder: Path | None
    join_seconds: float
    answer_seconds: float

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ServerConfig:
        """Read a server's file, its agreement and its key.

        Raises:
            ParameterError: naming the key that is unknown, missing or wrong.
            FederationError: for an identity that cannot be read.
        """
        file = _Table.read(path)
        agreement = Agreement.load(file.path("agreement"))
        certificate, private = file.path("certificate", None), file.path("private_key", None)
        party = cls(
            agreement=agreement,
            identity=_own(file, {agreement.server: agreement.server_key}),
            address=parse_address(file.take("address", str)),
            tls=None if certificate is None or private is None else (certificate, private),
            out=file.path("out"),
            folder=file.path("folder", None),
            join_seconds=_seconds(file, "join_seconds", 3600.0),
            answer_seconds=_seconds(file, "answer_seconds", 600.0),
        )
        file.end()
        if (certificate is None) != (private is None):
            raise ParameterError(f"{path}: certificate and private_key belong together; give both, or neither.")
        return party


@dataclass(frozen=True)
class DataFiles:
    """Where a client's private rows lie, and how they are read: the options of `dpvb fit`.

    Attributes:
        file: path of the table, matrix or documents.
        target, trials, exposure, offset, weights, group: paths of `.npy` files with one value per row of a matrix.
        text_column, file_format, token_pattern: format of documents, as in `dpvb fit lda`.
        group_column: column of the person ID. None: documents have none, and events have the column "person".
        symbol_column, time_column, sequence_column: columns of a long table of sequences.
        separator, decimal, encoding: format of a CSV file.
    """

    file: Path
    target: Path | None = None
    trials: Path | None = None
    exposure: Path | None = None
    offset: Path | None = None
    weights: Path | None = None
    group: Path | None = None
    text_column: str = "text"
    group_column: str | None = None
    file_format: str | None = None
    token_pattern: str = "[a-z]+"
    symbol_column: str = "symbol"
    time_column: str = "time"
    sequence_column: str | None = None
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    @classmethod
    def taken(cls, table: _Table) -> DataFiles:
        """Read the table [data], whose keys are the fields; `file_format` is `format` there."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            key, default = field.name.removeprefix("file_"), _NEEDED if field.default is MISSING else field.default
            is_path = "Path" in str(field.type)
            values[field.name] = table.path(key, default) if is_path else table.take(key, str, default)
        table.end()
        return cls(**values)


@dataclass(frozen=True)
class ClientConfig:
    """A client's own file.

    Attributes:
        agreement: path of the agreement.
        identity: path of the client's secret key.
        address: address of the server, host and port.
        certificate: path of the authority of the server's certificate. None: the system's list of authorities.
        folder: state of the client, which a restart needs.
        ledger, dataset: ledger and data set that are charged before data are read. None: the run is not recorded.
        server_seconds: time to wait for an unreachable server.
        data: private rows.
    """

    agreement: Agreement
    identity: Identity
    address: Address
    certificate: Path | None
    folder: Path
    ledger: str | None
    dataset: str | None
    server_seconds: float
    data: DataFiles

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClientConfig:
        """Read a client's file, its agreement and its key; not its data.

        Raises:
            ParameterError: naming the key that is unknown, missing or wrong.
            FederationError: for an identity that cannot be read.
        """
        from dpvb.ledger import is_address
        from dpvb.ledger.address import Address

        file = _Table.read(path)
        agreement = Agreement.load(file.path("agreement"))
        ledger = file.take("ledger", str, None)
        party = cls(
            agreement=agreement,
            identity=_own(file, agreement.clients),
            address=parse_address(file.take("address", str)),
            certificate=file.path("certificate", None),
            folder=file.path("folder"),
            ledger=None if ledger is None else Address(ledger if is_address(ledger) else file.folder / ledger),
            dataset=file.take("dataset", str, None),
            server_seconds=_seconds(file, "server_seconds", 3600.0),
            data=DataFiles.taken(file.inner("data")),
        )
        file.end()
        return party


class _Table:
    """A table of a TOML file, whose keys are taken out one by one."""

    def __init__(self, content: dict[str, Any], path: Path, name: str = "") -> None:
        self._left, self._path, self._name = dict(content), path, name
        self._known: list[str] = []
        self.folder = path.parent

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> _Table:
        """The whole of a file."""
        path = check_path("path", path).absolute()
        try:
            with open(path, "rb") as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise ParameterError(f"{path}: is too large for a configuration.")
            return cls(tomllib.loads(content.decode("utf-8")), path)
        except OSError as error:
            raise ParameterError(f"{path}: cannot be read ({reason_of(error)}).") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ParameterError(f"{path}: is not a TOML file: {error}.") from error

    def take(self, key: str, kind: type, default: Any = _NEEDED) -> Any:
        """The value of a key; the default, where there is one, if it is not there."""
        self._known.append(key)
        if key not in self._left:
            if default is _NEEDED:
                raise ParameterError(f"{self.where(key)} is missing; it must be {_TYPES[kind]}.")
            return default
        value = self._left.pop(key)
        if kind is not object and type(value) is not kind and not (kind is float and type(value) is int):
            raise ParameterError(f"{self.where(key)} must be {_TYPES[kind]}, got {value!r}.")
        return value

    def has(self, key: str) -> bool:
        """Whether a key is there, and not taken yet."""
        return key in self._left

    def path(self, key: str, default: Any = _NEEDED) -> Any:
        """A path, made absolute."""
        value = self.take(key, str, default)
        if value is default:
            return default
        try:
            return self.folder / check_path(self.where(key), value).expanduser()
        except RuntimeError as error:  # "~name" of an unknown user.
            raise ParameterError(f"{self.where(key)}: {str(error).rstrip('.')}, got {value!r}.") from error

    def word_list(self, key: str) -> Path | str | None:
        """The name of a list that ships with the package, or a path."""
        path: Path | str | None = (
            self.take(key, str) if word_lists.is_name(self._left.get(key)) else self.path(key, None)
        )
        return path

    def inner(self, key: str, default: Any = _NEEDED) -> _Table:
        """A table inside this one."""
        return _Table(self.take(key, dict, default), self._path, f"[{key}] ")

    def end(self) -> None:
        """Refuse keys that were not read."""
        for key in self._left:
            close = difflib.get_close_matches(key, self._known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(self._known)}."
            raise ParameterError(f"{self.where(key)} is not a key of this file; {hint}")

    def where(self, key: str) -> str:
        """A key for an error message."""
        return f"{self._path}: {self._name}{key}"


def _params(kind: str, file: _Table) -> dict[str, Any]:
    """Parameters of the estimator, all of them known to it."""
    settings = file.inner("model", {})
    signature = inspect.signature(PrivateEstimator._registered[kind]).parameters
    names = [name for name in signature if name not in _ELSEWHERE]
    for name, instead in _ELSEWHERE.items():
        if settings.has(name):
            raise ParameterError(f"{settings.where(name)} is not a key of this table; {instead}.")
    params = {name: settings.take(name, object, None) for name in names}
    settings.end()
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in params.items()}
    # TOML has no null: the text "none" stands for None where the default is a number.
    nothing = [name for name, value in values.items() if value == "none" and type(signature[name].default) is float]
    return {name: value for name, value in values.items() if value is not None} | dict.fromkeys(nothing)


def _public(file: _Table, name: str, key: object) -> bytes:
    """A public key in hexadecimal."""
    try:
        return check_public(check_name(name), bytes.fromhex(key) if isinstance(key, str) else b"")
    except ValueError as error:
        if isinstance(error, ParameterError):
            raise
        raise FederationError(
            f"{file.where(name)}: the public key is 64 hexadecimal digits, as `dpvb federate keys` prints it."
        ) from error


def _own(file: _Table, allowed: Mapping[str, bytes]) -> Identity:
    """One's own identity, which the agreement must know."""
    identity = Identity.load(file.path("identity"))
    if identity.name not in allowed:
        raise ParameterError(
            f"{file.where('identity')} is of {identity.name!r}, but the agreement has {', '.join(map(repr, allowed))} "
            "in this place."
        )
    if identity.public != allowed[identity.name]:
        raise ParameterError(
            f"{file.where('identity')} of {identity.name!r} has another public key than the agreement: "
            f"{identity.public.hex()}. All parties must hold the same agreement."
        )
    return identity


def _seconds(file: _Table, key: str, default: float) -> float:
    return check_number(key, file.take(key, float, default), low=0, high=1e9, closed="right")
