"""A certificate for the server of a federated run, and the authority that signed it, for this one time.

The authority's key is forgotten when it has signed: nobody can make another server that the clients would believe. A
new certificate has a new authority, which all clients get again.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpvb.guards.errors import FederationError, ParameterError, check_integer, check_path, reason_of
from dpvb.guards.own import write_own
from dpvb.guards.strangers import printable

# As long as browsers take one for.
_MOST_DAYS = 398
# A client's clock may be behind the server's.
_BEFORE = timedelta(hours=1)
_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True)
class Certificate:
    """What a server shows, what its clients believe, and the secret between; all PEM.

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
        """Write three new files: the chain, its name with `.key`, and `authority.pem` beside them.

        Returns:
            The three paths; the second can be read by its owner alone.

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
    """Of the authority's key: it signs certificates; of the server's: it signs what it says."""
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
    """A certificate in PEM; of each extension, whether whoever does not know it must refuse."""
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


def check_readable(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the path of a public file of TLS if it can be read.

    Raises:
        ParameterError, FederationError: naming it, if not.
    """
    place = check_path(name, path)
    try:
        with open(place, "rb"):
            return place
    except OSError as error:
        raise FederationError(f"{name}: {place} cannot be read ({reason_of(error)}).") from error


def check_certificate(certificate: str | os.PathLike[str], private_key: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what an HTTP server needs for TLS: the paths of its certificate chain and of its key.

    Raises:
        ParameterError, FederationError: if they cannot be used, or the certificate has expired.
    """
    chain, key = check_readable("certificate", certificate), check_readable("private_key", private_key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    except ssl.SSLError as error:
        raise FederationError(
            f"certificate {chain} and private_key {key} do not belong together, or are not PEM files."
        ) from error
    until = x509.load_pem_x509_certificate(chain.read_bytes()).not_valid_after_utc
    if until < datetime.now(UTC):
        raise FederationError(
            f"certificate {chain} expired on {until:%Y-%m-%d}. Make a new one with `dpvb federate certificate`, and "
            "give its authority.pem to all clients."
        )
    return {"ssl_certfile": chain, "ssl_keyfile": key}
