"""The files of a federated run: what is read, and that every fault is named with its key."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from each import each

import dpvb
from dpvb.errors import DpvbError, FederationError, ParameterError
from dpvb.estimators import PrivateEstimator
from dpvb.federated.config import Agreement, ClientConfig, ServerConfig
from dpvb.federated.keys import Identity
from dpvb.federated.trust import Trust

PARTIES = {name: Identity.generate(name) for name in ("server", "north", "south", "east")}
TOP = {"kind": '"LogisticRegression"', "epsilon": "1", "delta": "1e-5", "trust": '"none"', "width": "3"}
OWN = {"agreement": '"agreement.toml"', "address": '"127.0.0.1:9092"'}
SERVER = {**OWN, "identity": '"server.key"', "out": '"model.dpvb"'}
CLIENT = {**OWN, "identity": '"north.key"', "folder": '"state"'}


def agreement(
    folder: Path, *, model: str = "", clients: tuple[str, ...] = ("north", "south"), **top: str | None
) -> Path:
    """Write an agreement; a top key that is None is left out."""
    keys = {key: value for key, value in {**TOP, **top}.items() if value is not None}
    lines = [f"{key} = {value}" for key, value in keys.items()]
    lines += ["[model]", model, "[server]", f'key = "{PARTIES["server"].public.hex()}"', "[clients]"]
    lines += [f'{name} = "{PARTIES[name].public.hex()}"' for name in clients]
    path = folder / "agreement.toml"
    path.write_text("\n".join(lines))
    return path


def own(folder: Path, name: str, keys: dict[str, str | None], data: str | None = 'file = "x.npy"') -> Path:
    """Write a party's own file."""
    lines = [f"{key} = {value}" for key, value in keys.items() if value is not None]
    path = folder / f"{name}.toml"
    path.write_text("\n".join([*lines, *([] if data is None else ["[data]", data])]))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, identity in {**PARTIES, "west": Identity.generate("west")}.items():
        identity.save(tmp_path / f"{name}.key")
    agreement(tmp_path)
    return tmp_path


def test_an_agreement(tmp_path: Path) -> None:
    found = Agreement.load(agreement(tmp_path))
    assert (found.kind, found.epsilon, found.delta, found.width) == ("LogisticRegression", 1.0, 1e-5, 3)
    assert (found.num_rounds, found.unit) == (None, "example")
    assert found.trust == Trust("none", 2)
    assert (found.server, found.server_key) == ("server", PARTIES["server"].public)
    assert found.clients == {name: PARTIES[name].public for name in ("north", "south")}
    more = {
        "num_rounds": "20",
        "trust": '"secure_aggregation"',
        "max_missing": "1",
        "epsilon": "inf",
        "unit": '"client"',
    }
    model = 'max_row_norm = 2\nclasses = ["no", "yes"]\nfit_intercept = false\nn_units = 100'
    names = ("north", "south", "east")
    found = Agreement.load(agreement(tmp_path, model=model, clients=names, width=None, schema='"people.json"', **more))
    assert (found.num_rounds, found.epsilon, found.unit) == (20, math.inf, "client")
    assert found.trust == Trust("secure_aggregation", 3, 1, 1)
    more |= {"max_missing": "0", "max_colluding": "0"}
    other = Agreement.load(agreement(tmp_path, clients=names, width=None, schema='"people.json"', **more))
    assert other.trust == Trust("secure_aggregation", 3, 0, 0)
    assert found.schema == tmp_path / "people.json"
    estimator = found.estimator()
    assert isinstance(estimator, dpvb.LogisticRegression)
    assert (estimator.max_row_norm, estimator.classes, estimator.fit_intercept) == (2, ("no", "yes"), False)
    assert (estimator.n_units, estimator.epsilon, estimator.delta) == (100, math.inf, 1e-5)


@pytest.mark.parametrize(("said", "found"), [("english:50", "english:50"), ("words.txt", Path("words.txt"))])
def test_a_vocabulary_is_the_name_of_a_list_or_a_path(tmp_path: Path, said: str, found: str | Path) -> None:
    made = Agreement.load(agreement(tmp_path, kind='"LDA"', model="", width=None, vocabulary=f'"{said}"'))
    assert made.vocabulary == (tmp_path / found if isinstance(found, Path) else found)


def test_every_kind_is_an_estimator() -> None:
    shipped = {name: kind for name, kind in PrivateEstimator._registered.items() if kind.__module__.startswith("dpvb.")}
    read = {name for name, kind in shipped.items() if kind._reads is not None}
    assert {"LDA", "LogisticRegression", "SigmoidBeliefNetwork"} <= read
    assert all(PrivateEstimator._registered[name] is getattr(dpvb, name) for name in read)


@each(
    ("change", "said"),
    [
        ({"epsilon": None}, "epsilon is missing; it must be a number"),
        ({"epsilon": "0"}, r"epsilon must be a number in \(0, inf\], got 0"),
        ({"epsilon": '"1"'}, "epsilon must be a number, got '1'"),
        ({"epsilon": "true"}, "epsilon must be a number, got True"),
        ({"delta": "1"}, r"delta must be a number in \(0, 1\), got 1"),
        ({"kind": '"Lda"'}, "kind must be one of .*'LDA'.* got 'Lda'"),
        ({"num_rounds": "0"}, r"num_rounds must be a number in \[1, .*got 0"),
        ({"num_rounds": "2.5"}, "num_rounds must be a whole number, got 2.5"),
        ({"schedule": '"synchronous"'}, "schedule is not a key of this file"),
        ({"unit": '"row"'}, "unit must be one of 'example', 'person', 'client'"),
        ({"trust": '"blind"'}, "trust must be one of 'none'"),
        ({"trust": None}, "trust is missing"),
        ({"max_missing": "7"}, "max_missing must be a number in"),
        ({"max_colluding": "1"}, "max_colluding must be 0 with trust='none', got 1"),
        ({"trust": '"secure_aggregation"', "max_missing": "1"}, "max_missing must be at most 0 of 2 .*got 1"),
        ({"trust": '"secure_aggregation"', "max_colluding": "2"}, "max_colluding must be a number in"),
        ({"epslion": "1"}, "epslion is not a key of this file; did you mean epsilon?"),
        ({"q": "1"}, "q is not a key of this file; known are .*kind.*epsilon"),
        ({"width": None}, "LogisticRegression needs schema or width, .*got neither"),
        ({"schema": '"s.json"'}, "needs schema or width, .*got schema and width"),
        ({"width": None, "vocabulary": '"w.txt"'}, "needs schema or width, .*got vocabulary"),
        ({"kind": '"LDA"', "width": None, "vocabulary": '"private"'}, "must be the path of a public list"),
        ({"width": "0"}, r"width must be a number at least 1"),
        ({"model": "alpha = 1\nalpa = 1"}, r"\[model\] alpa is not a key of this file; did you mean alpha?"),
        ({"model": "epsilon = 1"}, r"\[model\] epsilon is not a key of this table; it stands outside"),
        ({"model": "n_steps = 1"}, "n_steps is not a key of this table; num_rounds says it"),
        ({"model": 'ledger = "x"'}, "ledger is not a key of this table; it is in each client's own file"),
        ({"clients": ("north", "server")}, "every party needs a name and a key of its own"),
        ({"clients": (), "trust": '"secure_aggregation"'}, "num_clients"),
    ],
)
def test_faults_of_an_agreement(tmp_path: Path, change: dict[str, str | None], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        Agreement.load(agreement(tmp_path, **change))


@pytest.mark.parametrize("key", ['"abc"', '"zz"', "3", '""', f'"{"ff" * 32}"', f'"{"00" * 31}"'])
def test_a_public_key_that_is_none(tmp_path: Path, key: str) -> None:
    path = agreement(tmp_path, clients=("north",))
    path.write_text(path.read_text() + f"\nsouth = {key}")
    with pytest.raises(FederationError, match="key"):
        Agreement.load(path)
    path.write_text(path.read_text().replace("north =", '"north pole" ='))
    with pytest.raises(ParameterError, match="name of a party"):
        Agreement.load(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"none\.toml: cannot be read"):
        Agreement.load(tmp_path / "none.toml")
    for content in (b"kind = ", b"\xff\xfe", b"a = " + b"[" * 100_000, b"x" * (2**24 + 1), b"a = 1\na = 2"):
        (tmp_path / "broken.toml").write_bytes(content)
        with pytest.raises(ParameterError, match=r"is not a TOML file|too large"):
            Agreement.load(tmp_path / "broken.toml")


def test_a_servers_file(folder: Path) -> None:
    found = ServerConfig.load(own(folder, "server", SERVER, None))
    assert found.agreement == Agreement.load(folder / "agreement.toml")
    assert found.identity.public == PARTIES["server"].public
    assert (found.address, found.tls, found.out) == (("127.0.0.1", 9092), None, folder / "model.dpvb")
    assert (found.join_seconds, found.answer_seconds) == (3600.0, 600.0)
    more = {"certificate": '"c.pem"', "private_key": '"/k.pem"', "answer_seconds": "5", "address": '"[::]:1"'}
    found = ServerConfig.load(own(folder, "server", {**SERVER, **more}, None))
    assert found.tls == (folder / "c.pem", Path("/k.pem"))
    assert (found.answer_seconds, found.address) == (5.0, ("::", 1))


def test_a_clients_file(folder: Path) -> None:
    found = ClientConfig.load(own(folder, "north", CLIENT))
    assert found.identity.public == PARTIES["north"].public
    assert (found.folder, found.ledger, found.dataset, found.certificate) == (folder / "state", None, None, None)
    assert (found.data.file, found.data.target, found.data.text_column) == (folder / "x.npy", None, "text")
    assert (found.data.separator, found.data.decimal, found.data.encoding) == (",", ".", "utf-8")
    more = {"ledger": '"budget.db"', "dataset": '"people"', "certificate": '"ca.pem"'}
    data = 'file = "x.csv"\ntarget = "y.npy"\nformat = "csv"\ngroup_column = "who"'
    found = ClientConfig.load(own(folder, "north", {**CLIENT, **more}, data))
    assert (found.ledger, found.dataset, found.certificate) == (str(folder / "budget.db"), "people", folder / "ca.pem")
    assert (found.data.target, found.data.file_format, found.data.group_column) == (folder / "y.npy", "csv", "who")
    url = "postgresql://me@db/budget"
    assert ClientConfig.load(own(folder, "north", {**CLIENT, "ledger": f'"{url}"'})).ledger == url


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"agreement": None}, "agreement is missing"),
        ({"agreement": '"none.toml"'}, r"none\.toml: cannot be read"),
        ({"identity": '"none.key"'}, "no identity can be read"),
        ({"identity": '"west.key"'}, "is of 'west', but the agreement has"),
        ({"identity": '"false.key"'}, "has another public key than the agreement"),
        ({"address": '"9092"'}, "address must be host:port"),
        ({"address": "9092"}, "address must be text, got 9092"),
        ({"adress": '"localhost:1"'}, "adress is not a key of this file; did you mean address?"),
    ],
)
def test_faults_of_a_partys_file(folder: Path, change: dict[str, str | None], said: str) -> None:
    for name, keys in (("server", SERVER), ("north", CLIENT)):
        (folder / "false.key").unlink(missing_ok=True)
        Identity.generate(name).save(folder / "false.key")
        kind, data = (ServerConfig, None) if name == "server" else (ClientConfig, 'file = "x.npy"')
        with pytest.raises(DpvbError, match=said):
            kind.load(own(folder, name, {**keys, **change}, data))


def test_faults_of_one_side(folder: Path) -> None:
    with pytest.raises(ParameterError, match="certificate and private_key belong together"):
        ServerConfig.load(own(folder, "server", {**SERVER, "certificate": '"c.pem"'}, None))
    with pytest.raises(ParameterError, match="out is missing"):
        ServerConfig.load(own(folder, "server", {**SERVER, "out": None}, None))
    with pytest.raises(ParameterError, match=r"answer_seconds must be a number in \(0"):
        ServerConfig.load(own(folder, "server", {**SERVER, "answer_seconds": "0"}, None))
    with pytest.raises(ParameterError, match="folder is missing"):
        ClientConfig.load(own(folder, "north", {**CLIENT, "folder": None}))
    with pytest.raises(ParameterError, match="data is missing; it must be a table"):
        ClientConfig.load(own(folder, "north", CLIENT, None))
    with pytest.raises(ParameterError, match=r"\[data\] file is missing"):
        ClientConfig.load(own(folder, "north", CLIENT, ""))
    with pytest.raises(ParameterError, match=r"\[data\] traget is not a key of this file; did you mean target?"):
        ClientConfig.load(own(folder, "north", CLIENT, 'file = "x"\ntraget = "y"'))
