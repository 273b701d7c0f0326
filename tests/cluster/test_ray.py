"""Ray as the engine passes the tests of the other engines: the same bits, deaths, failures, and what it refuses."""

from __future__ import annotations

import datetime
import gc
import importlib.util
import ipaddress
import logging
import os
import secrets
import socket
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_queries import Failing, Unpackable, Waiting, added_after_waiting, powers
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from test_cluster import (
    PLAN,
    SAMPLERS,
    SECRET,
    TASKS,
    Recorded,
    X,
    Y,
    assert_same_bits,
    kill_at_work,
    lda,
    logistic,
    npz_shards,
    released,
    task_of,
)

import dpvb
from dpvb import LDA, Ledger
from dpvb.cluster import spread
from dpvb.cluster.engine import PartMissing, Reduction, map_reduce
from dpvb.cluster.ray import RayPool
from dpvb.core.noise import InsecureNoise
from dpvb.core.wall import Wall
from dpvb.data import Design, open_documents
from dpvb.errors import OutOfMemoryError, ParameterError, PrivateComputationError

RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not RAY, reason="the extra `ray` is not installed")
# Ray is imported by tests of workers only: the module starts threads and processes of its own.
SLOW = [pytest.mark.slow, needs_ray, pytest.mark.filterwarnings("ignore")]


def secured(folder: Path) -> dict[str, str]:
    """Write a certificate for this machine; return the environment in which Ray uses it, and tokens."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray")])
    now = datetime.datetime.now(datetime.UTC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # Nothing is sent: this is the address that Ray gives to the machine.
        addresses = {"127.0.0.1", probe.getsockname()[0]}
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    own = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *own))
    place = {"SERVER_CERT": "cert", "SERVER_KEY": "key", "CA_CERT": "cert"}
    files = {f"RAY_TLS_{what}": str(folder / f"{file}.pem") for what, file in place.items()}
    tokens = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])}
    return {"RAY_USE_TLS": "1", "RAY_USAGE_STATS_ENABLED": "0", **files, **tokens, **here}


def connected(folder: str) -> None:
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=8, include_dashboard=False, log_to_driver=True, object_store_memory=2**28, _temp_dir=folder)


@pytest.fixture(scope="module")
def pool() -> Iterator[RayPool]:
    # The paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="r") as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in secured(Path(folder)).items():
            patch.setenv(name, value)
        import ray  # Ray reads the environment when it is imported.

        connected(f"{folder}/r")
        try:
            yield RayPool(3)
        finally:
            ray.shutdown()
            with warnings.catch_warnings():  # Ray does not wait for the ends of its processes.
                warnings.simplefilter("ignore")
                gc.collect()


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        pytest.param(name, sampler, marks=SLOW)
        for name in TASKS
        for sampler in SAMPLERS
        # One form of batch for most, and all of them for documents: an actor takes seconds to start.
        if sampler == "poisson" or name == "documents"
    ],
)
def test_actors_release_the_bits_of_one_process(name: str, sampler: str, pool: RayPool) -> None:
    task = TASKS[name](sampler)
    assert_same_bits(released(task), released(task, pool))
    assert pool._actors == pool._held == []


@pytest.mark.parametrize("make", [pytest.param(make, marks=SLOW) for make in (lda, logistic)])
def test_an_actor_killed_in_mid_step_costs_time_alone(make: Any, pool: RayPool, tmp_path: Path) -> None:
    task = make("poisson")
    killer = kill_at_work(tmp_path / "flag")
    found = released(task, pool, Waiting(task.model, tmp_path / "flag", os.getpid()))
    killer.join()
    assert (tmp_path / "flag").exists()
    assert_same_bits(released(task), found)


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_an_actor_that_is_killed_while_it_adds_answers_costs_time_alone(pool: RayPool, tmp_path: Path) -> None:
    """Each part is a power of two: one that counted twice, or not at all, would show in the total."""
    pool.hold([None] * 12, None)
    killer = kill_at_work(tmp_path / "flag")
    reduction = Reduction(powers, added_after_waiting)
    found = map_reduce(reduction, 12, tmp_path / "flag", [None] * 12, "key", engine=pool)
    killer.join()
    assert (tmp_path / "flag").exists()
    assert found[1].tolist() == [2**12 - 1]
    pool.close()
    with pytest.raises(PartMissing):  # Without parts there is no total.
        map_reduce(reduction, 12, tmp_path / "flag", [None] * 12, "key", engine=pool)


@pytest.mark.parametrize("how", [pytest.param(how, marks=SLOW) for how in ("chained", "memory", "shape", "exit")])
def test_a_part_that_fails_ends_the_release_and_says_nothing(how: str, pool: RayPool, capfd: Any, caplog: Any) -> None:
    journal = Recorded()
    with spread(Design(X, Y), None, pool) as source, caplog.at_level(logging.DEBUG):
        wall: Wall[Any] = Wall(source, PLAN, noise=InsecureNoise(1), journal=journal)
        with pytest.raises(OutOfMemoryError if how == "memory" else PrivateComputationError) as caught:
            wall.release(Failing(how), PLAN.releases[0])
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert (journal.begun, journal.totals) == ([0], [])
    import ray

    written = capfd.readouterr()
    logs = Path(ray.get_runtime_context().get_temp_dir(), "session_latest", "logs")
    texts = [written.out, written.err, caplog.text, *(path.read_text(errors="replace") for path in logs.glob("*.*"))]
    assert len(texts) > 5
    for text in texts:
        for private in (SECRET, repr(X[0, 0]), "x_nd"):
            assert private not in text


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_files_are_read_by_the_actors_and_a_missing_one_is_refused_before_the_charge(
    pool: RayPool, tmp_path: Path
) -> None:
    paths = npz_shards(tmp_path)
    files = task_of(LDA, open_documents(paths), public_vocabulary=True, sampler="poisson", n_components=3)
    assert_same_bits(released(lda("poisson")), released(files, pool))
    with pytest.raises(ParameterError, match="cannot load the model"), spread(Design(X, Y), Unpackable(), pool):
        pass
    source = open_documents(paths)
    paths[2].unlink()
    with Ledger(tmp_path / "ledger") as ledger:
        account: Any = {"neighboring_relation": "add_or_remove_one", "epsilon": 5.0, "delta": 1e-4}
        ledger.register("people", unit="document", **account)
        model = LDA(3, public_vocabulary=True, epsilon=1.0, delta=1e-5, n_steps=2)
        with pytest.raises(dpvb.errors.DataFormatError):
            model.fit(source, run=dpvb.Run(cluster=pool, ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == 0


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_folder_that_others_can_enter_is_refused(pool: RayPool) -> None:
    import ray

    folder = Path(ray.get_runtime_context().get_temp_dir())
    # Ray opens its folder to all users: it must lie in one that is closed.
    inner = next(place for place in (folder, *folder.parents) if place.stat().st_mode & 0o077 == 0)
    inner.chmod(0o755)
    try:
        with pytest.raises(ParameterError, match="0700"), spread(Design(X, Y), None, pool):
            pass
    finally:
        inner.chmod(0o700)
    with spread(Design(X, Y), None, pool) as source:
        assert source.count() == len(X)


@pytest.mark.skipif(RAY, reason="Ray is installed")
def test_a_missing_ray_is_said() -> None:
    with pytest.raises(ParameterError, match=r"\[ray\]"):
        RayPool(2)


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_a_ray_that_is_not_connected_or_is_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    with pytest.raises(ParameterError, match="num_workers"):
        RayPool(0)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ParameterError, match=r"ray\.init"):
        RayPool(2)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    for missing in ("RAY_USE_TLS", "RAY_AUTH_MODE"):
        monkeypatch.setenv("RAY_USE_TLS", "1")
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        assert repr(RayPool(2)) == "RayPool(2)"
        monkeypatch.delenv(missing)
        with pytest.raises(ParameterError, match="RAY_AUTH_MODE=token"):
            RayPool(2)


def test_numbers_of_ray_workers_are_public_and_the_rest_is_not_shown() -> None:
    from dpvb.cluster.engine import Parcel

    assert repr(Parcel(np.arange(3))) == "Parcel()"
