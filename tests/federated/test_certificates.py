"""Certificates of a server, in real TLS handshakes: what a client believes, and what it does not."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dpvb.cli import app
from dpvb.errors import FederationError, ParameterError
from dpvb.federated.config import Certificate, _signed


def shaken(folder: Path, server: Certificate, client: Certificate, host: str) -> str:
    """The version that both ends agree on in a handshake, as a client does it that calls `host`."""
    folder.mkdir()
    chain, key, _ = server.save(folder / "server.pem")
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(chain, key)
    calling = ssl.create_default_context(cadata=client.authority.decode())
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [calling.wrap_bio(there, here, server_hostname=host), listening.wrap_bio(here, there, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].version() or ""


@pytest.mark.parametrize(
    ("host", "called"),
    [
        ("federation.example.org", "federation.example.org"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
    ],
)
def test_a_client_believes_the_server_that_it_calls(host: str, called: str, tmp_path: Path) -> None:
    made = Certificate.generate(host)
    assert shaken(tmp_path / "a", made, made, called) == "TLSv1.3"


def test_a_client_believes_no_other_name(tmp_path: Path) -> None:
    made = Certificate.generate("federation.example.org")
    for n, other in enumerate(("example.org", "a.federation.example.org", "127.0.0.1", "federation.example.com")):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
            shaken(tmp_path / str(n), made, made, other)


def test_a_client_believes_no_other_authority(tmp_path: Path) -> None:
    made, other = Certificate.generate("localhost"), Certificate.generate("localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        shaken(tmp_path / "a", made, other, "localhost")


@pytest.mark.parametrize(("begins", "said"), [(-8, "expired"), (8, "not yet valid")])
def test_a_client_believes_no_certificate_before_or_after_its_time(begins: int, said: str, tmp_path: Path) -> None:
    made = Certificate.generate("localhost", days=7, now=datetime.now(UTC) + timedelta(days=begins))
    with pytest.raises(ssl.SSLCertVerificationError, match=said):
        shaken(tmp_path / "a", made, made, "localhost")


def test_the_servers_key_signs_no_certificate_of_another(tmp_path: Path) -> None:
    made, day = Certificate.generate("localhost"), timedelta(days=1)
    signer = serialization.load_pem_private_key(made.private_key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    above = x509.load_pem_x509_certificate(made.chain).subject
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.SubjectAlternativeName([x509.DNSName("bank.example.org")])
    forged = _signed(above, above, key, signer, (now - day, now + day), (name, False))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        shaken(tmp_path / "a", Certificate(forged + made.chain, b"", secret), made, "bank.example.org")


@pytest.mark.parametrize(
    "host", ["", "a b", "host:9092", "*.example.org", "-a.org", "a..org", "a" * 64, "http://a", "1.2.3.4/8", "ü.org"]
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ParameterError, match="host must be"):
        Certificate.generate(host)


def test_days_have_a_range() -> None:
    for days in (0, 399, -1):
        with pytest.raises(ParameterError, match="days"):
            Certificate.generate("localhost", days=days)


def test_the_command_writes_three_new_files(tmp_path: Path) -> None:
    run = CliRunner().invoke
    command = ["federate", "certificate", "federation.example.org", "--out", str(tmp_path / "server.pem")]
    done = run(app, command)
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["authority.pem", "server.pem", "server.pem.key"]
    assert stat.S_IMODE((tmp_path / "server.pem.key").stat().st_mode) == 0o600
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    again = run(app, command)
    assert again.exit_code == 2
    assert "already there" in again.output
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    with pytest.raises(FederationError, match="cannot be written here"):
        Certificate.generate("localhost").save(tmp_path / "no" / "server.pem")


def test_a_certificate_is_not_called_as_its_authority(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="the name of the authority's file"):
        Certificate.generate("server.example").save(tmp_path / "authority.pem")
    assert not [*tmp_path.iterdir()]
