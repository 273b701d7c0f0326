"""`dpvb federate`: keys, what a server takes from no rows, and refusals before anything is opened."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run

import dpvb
from dpvb.cli import federate
from dpvb.data import Binary, Categorical, Numeric, Schema, Target
from dpvb.errors import ParameterError
from dpvb.estimators import PrivateEstimator
from dpvb.federated.client import Client
from dpvb.federated.config import ClientConfig, ServerConfig
from dpvb.federated.keys import Identity
from dpvb.federated.record import Recorded
from dpvb.federated.server import Server
from dpvb.federated.transport import InProcess

NAMES = ("north", "south")


def write_files(folder: Path, top: str, model: str, data: dict[str, str], names: tuple[str, ...] = NAMES) -> None:
    """The files of a server and its clients, as a deployment has them."""
    keys = {}
    for name in ("server", *names):
        identity = Identity.generate(name)
        identity.save(folder / f"{name}.key")
        keys[name] = identity.public.hex()
    clients = "\n".join(f'{name} = "{keys[name]}"' for name in names)
    (folder / "agreement.toml").write_text(
        f'{top}\n[model]\n{model}\n[server]\nkey = "{keys["server"]}"\n[clients]\n{clients}\n'
    )
    for name in ("server", *names):
        lines = ['agreement = "agreement.toml"', f'identity = "{name}.key"', 'address = "127.0.0.1:9092"']
        lines += ['out = "model.dpvb"'] if name == "server" else [f'folder = "{name}.state"', "[data]"]
        lines += [] if name == "server" else [f'{key} = "{value.format(name=name)}"' for key, value in data.items()]
        (folder / f"{name}.toml").write_text("\n".join(lines))


def in_process(folder: Path) -> tuple[Any, list[Any]]:
    """Run from the files, all in this process; the fitted estimator and what the clients state."""
    settings = ServerConfig.load(folder / "server.toml")
    agreement = settings.agreement
    task, federation = federate._agreed(agreement, federate._no_rows(agreement))
    owners = {}
    for name in NAMES:
        own = ClientConfig.load(folder / f"{name}.toml")
        owned, own_federation = federate._agreed(own.agreement, federate._rows(own))
        assert own_federation == federation
        owners[name] = Client(name, owned, federation, identity=own.identity, folder=own.folder)
    model = agreement.estimator()
    handlers = {name: owner.answer for name, owner in owners.items()}
    server = Server(task, federation, InProcess(handlers))
    q = server.run(np.random.default_rng(0))
    model.privacy_ = server.statement(task.public)
    model._take(task, q)
    statements = [owner.statement for owner in owners.values()]
    for owner in owners.values():
        owner.close()
    return model, statements


TOP = 'kind = "{kind}"\nepsilon = 1\ndelta = 1e-5\nnum_rounds = {rounds}\ntrust = "none"\nunit = "{unit}"\n{columns}'


def matrices(folder: Path, **columns: Any) -> None:
    rng = np.random.default_rng(5)
    for name in NAMES:
        for key, made in columns.items():
            np.save(folder / f"{name}.{key}.npy", made(rng))


def binary(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, (40, 6))


def features(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1, 1, (40, 6))


def labels(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, 40)


@pytest.mark.parametrize("unit", ["example", "person", "client"])
@pytest.mark.parametrize("kind", ["LogisticRegression", "BinomialRegression", "SigmoidBeliefNetwork"])
def test_a_server_without_rows_plans_what_its_clients_plan(kind: str, unit: str, tmp_path: Path) -> None:
    belief = kind == "SigmoidBeliefNetwork"
    matrices(
        tmp_path,
        x=binary if belief else features,
        y=labels,
        trials=lambda rng: np.ones(40, dtype=int),
        who=lambda rng: rng.integers(0, 9, 40),
    )
    data = {"file": "{name}.x.npy"} | ({} if belief else {"target": "{name}.y.npy"})
    data |= {"trials": "{name}.trials.npy"} if kind == "BinomialRegression" else {}
    data |= {"group": "{name}.who.npy"} if unit == "person" else {}
    model = {"BinomialRegression": "max_row_norm = 1\nmax_trials = 3", "SigmoidBeliefNetwork": "n_components = 2"}.get(
        kind, "low = [-1, -1, -1, -1, -1, -1]\nhigh = 1"
    )
    write_files(tmp_path, TOP.format(kind=kind, rounds=8, unit=unit, columns="width = 6"), model, data)
    model, statements = in_process(tmp_path)
    assert model.n_features_in_ == 6
    for statement in (model.privacy_, *statements):
        assert statement.unit == {"example": "row"}.get(unit, unit)
        assert statement.epsilon <= 1.0


@pytest.mark.parametrize("unit", ["example", "person", "client"])
def test_tables_with_a_schema(unit: str, tmp_path: Path) -> None:
    schema = Schema(
        columns=(Numeric("age", low=18, high=90), Categorical("work", ("a", "b", "c")), Binary("city", ("n", "y"))),
        target=Target("ill", classes=("no", "yes")),
        group="who" if unit == "person" else None,
    )
    (tmp_path / "people.json").write_text(schema.to_json())
    rng = np.random.default_rng(1)
    for name in NAMES:
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file, delimiter=";")
            rows.writerow(["who", "age", "work", "city", "ill"])
            rows.writerows(
                [
                    rng.integers(5),
                    f"{rng.uniform(18, 90):.2f}".replace(".", ","),
                    rng.choice([*"abc"]),
                    rng.choice([*"ny"]),
                    answer,
                ]
                for answer in rng.choice(["no", "yes"], 30)
            )
    top = TOP.format(kind="LogisticRegression", rounds=8, unit=unit, columns='schema = "people.json"')
    write_files(tmp_path, top, "", {"file": "{name}.csv", "separator": ";", "decimal": ","})
    model, _ = in_process(tmp_path)
    assert model.privacy_.unit == {"example": "row"}.get(unit, unit)
    names = [name.replace("city", "city=y") if name == "city" else name for name in schema.feature_names]
    assert [row.name for row in model.coefficients(coding="none")] == ["intercept", *names]


@pytest.mark.parametrize("unit", ["example", "person"])
def test_documents_with_a_vocabulary(unit: str, tmp_path: Path) -> None:
    words = ["apple", "pear", "plum", "wheel", "brake"]
    (tmp_path / "words.txt").write_text("\n".join(words))
    rng = np.random.default_rng(2)
    for name in NAMES:
        lines = [{"text": " ".join(rng.choice(words, 12)), "who": int(rng.integers(4))} for _ in range(20)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    top = TOP.format(kind="LDA", rounds=3, unit=unit, columns='vocabulary = "words.txt"')
    data = {"file": "{name}.jsonl"} | ({"group_column": "who"} if unit == "person" else {})
    write_files(tmp_path, top, "n_components = 2", data)
    model, _ = in_process(tmp_path)
    assert model.privacy_.unit == {"example": "document"}.get(unit, unit)
    assert model.vocabulary_ == tuple(words)
    assert model.components_.shape == (2, 5)


@pytest.mark.parametrize("given", ["bernoulli", "steps", "gaussian", "linear"])
def test_columns_of_persons_under_their_names(given: str, tmp_path: Path) -> None:
    """Columns by their names or their number, names of the client's own, and `clip_norm = "none"`."""
    rng, linear = np.random.default_rng(3), given == "linear"
    for name in NAMES:
        lines = [f"{who},{t},{rng.integers(2)},{rng.integers(2)}" for who in range(30) for t in range(5)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["who,day,x0,x1", *lines]))
    numbers = linear or given == "gaussian"
    model = ['columns = ["x0", "x1"]' if numbers else "columns = 2", "n_states = 2", "max_length = 5"]
    model += ["low = [0, -1]", "high = 2"] * numbers + ["window = 3"] * linear
    model += ['emissions = "bernoulli"'] * (not numbers) + ['clip_norm = "none"'] * (not linear)
    rounds = {"steps": 3, "linear": 2}.get(given, 1)
    kinds = {"linear": "LinearDynamicalSystem", "gaussian": "GaussianHiddenMarkovModel"}
    kind = kinds.get(given, "HiddenMarkovModel")
    top = TOP.format(kind=kind, rounds=rounds, unit="person", columns="width = 2")
    data = {"file": "{name}.csv", "group_column": "who", "time_column": "day"}
    write_files(tmp_path, top, "\n".join(model), data)
    found, _ = in_process(tmp_path)
    assert found.privacy_.unit == "person"
    assert found._named_columns == ("x0", "x1")
    assert linear or found.clip_norm is None
    assert found.transition_matrix_.shape == (2, 2)


def test_events_of_persons(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for name in NAMES:
        lines = [f"{who},{rng.choice(['a', 'b', 'c'])},{t}" for who in range(30) for t in range(5)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["person,symbol,time", *lines]))
    top = TOP.format(kind="MarkovChain", rounds=1, unit="person", columns="width = 3")
    write_files(tmp_path, top, 'symbols = ["a", "b", "c"]', {"file": "{name}.csv"})
    model, _ = in_process(tmp_path)
    assert model.privacy_.unit == "person"
    assert model.symbols_ == ("a", "b", "c")
    agreement = tmp_path / "agreement.toml"
    agreement.write_text(agreement.read_text().replace("width = 3", "width = 4"))
    with pytest.raises(ParameterError, match="the number of symbols, 3"):
        federate._no_rows(ServerConfig.load(tmp_path / "server.toml").agreement)
    agreement.write_text(agreement.read_text().replace('unit = "person"', 'unit = "example"'))
    with pytest.raises(ParameterError, match='unit must be "person"'):
        federate._rows(ClientConfig.load(tmp_path / "north.toml"))


def test_points_of_persons(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    for name in NAMES:
        lines = [f"{who},{rng.random()},{rng.random()},{t}" for who in range(30) for t in range(7)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["person,x,y,time", *lines]))
    top = TOP.format(kind="LinearDynamicalSystem", rounds=2, unit="person", columns="width = 2")
    given = 'n_states = 2\ncolumns = ["x", "y"]\nlow = 0.0\nhigh = 1.0'
    write_files(tmp_path, top, given, {"file": "{name}.csv"})
    model, _ = in_process(tmp_path)
    assert model.privacy_.unit == "person"
    assert model.columns_ == ("x", "y")


def test_data_that_are_not_what_was_agreed(tmp_path: Path) -> None:
    matrices(tmp_path, x=features, y=labels, wide=lambda rng: rng.uniform(size=(40, 7)))
    data = {"file": "{name}.x.npy", "target": "{name}.y.npy"}
    top = TOP.format(kind="LogisticRegression", rounds=8, unit="{unit}", columns="width = 6")
    faults = [
        ("example", data | {"file": "{name}.wide.npy"}, "must be a matrix with the 6 columns of the agreement"),
        ("example", {"file": "{name}.x.npy"}, r"\[data\] target must name a .npy file"),
        ("example", data | {"group": "{name}.y.npy"}, r"\[data\] group belongs to unit = .person"),
        ("person", data, r"\[data\] group belongs to unit = .person"),
        ("example", data | {"trials": "{name}.y.npy"}, r"\[data\] trials must name"),
    ]
    for number, (unit, given, said) in enumerate(faults):
        folder = tmp_path / str(number)
        folder.mkdir()
        for path in tmp_path.glob("*.npy"):
            (folder / path.name).symlink_to(path)
        write_files(folder, top.format(unit=unit), "", given)
        with pytest.raises(ParameterError, match=said):
            federate._rows(ClientConfig.load(folder / "north.toml"))


class Here(InProcess):
    """Clients in this process, as the command of a server calls them."""

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def wait(self, timeout: float, names: object = None) -> tuple[str, ...]:
        return ()

    def unheard(self) -> tuple[str, ...]:
        return ()


def test_a_server_that_is_killed_after_it_wrote_its_model_ends_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrices(tmp_path, x=features, y=labels)
    top = TOP.format(kind="LogisticRegression", rounds=3, unit="example", columns="width = 6")
    write_files(tmp_path, top, "max_row_norm = 1", {"file": "{name}.x.npy", "target": "{name}.y.npy"})
    text = (tmp_path / "server.toml").read_text()
    (tmp_path / "server.toml").write_text(text + '\nfolder = "server.state"')
    settings = ServerConfig.load(tmp_path / "server.toml")
    owners = {name: federate.owner(ClientConfig.load(tmp_path / f"{name}.toml")) for name in NAMES}

    def lead() -> None:
        federate.lead(settings, lambda most: Here({name: one.answer for name, one in owners.items()}), quiet=True)  # type: ignore[arg-type, return-value]

    def killed(record: Recorded) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Recorded, "end", killed)
        with pytest.raises(SystemExit):
            lead()
    coefficients = dpvb.load(settings.out).coef_
    lead()
    np.testing.assert_array_equal(dpvb.load(settings.out).coef_, coefficients)
    assert all(owner.is_over for owner in owners.values())
    assert not [*(tmp_path / "server.state").iterdir()]
    with pytest.raises(ParameterError, match=r"^out .* is already there"):  # Of a run that is over.
        lead()
    for owner in owners.values():
        owner.close()


def test_the_page_names_every_estimator_of_a_federation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "federated.md").read_text()
    rows = re.findall(r"^\| [a-z, ]+ \| ([A-Z][A-Za-z, ]+) \|", page, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    shipped = [kind for kind in PrivateEstimator._registered.values() if kind.__module__.startswith("dpvb.")]
    kinds = {kind.__name__ for kind in shipped if kind._reads is not None}
    assert named == kinds - {"PrivateModel"}  # Its model is an object of Python.


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "north.key"
    result = run("federate", "keys", "north", "--out", path)
    identity = Identity.load(path)
    assert result.stdout == f'north = "{identity.public.hex()}"\n'
    assert path.stat().st_mode & 0o777 == 0o600
    for arguments, said in (
        (("north", "--out", path), "cannot be written here"),
        (("north pole", "--out", tmp_path / "n.key"), "name of a party"),
    ):
        refused = run("federate", "keys", *arguments, code=2)
        assert refused.stdout == ""
        assert said in refused.stderr
    assert Identity.load(path).public == identity.public
    assert not (tmp_path / "n.key").exists()


def test_faults_end_in_one_line(tmp_path: Path) -> None:
    matrices(tmp_path, x=features, y=labels)
    data = {"file": "{name}.x.npy", "target": "{name}.y.npy"}
    top = TOP.format(kind="LogisticRegression", rounds=8, unit="example", columns="width = 6")
    write_files(tmp_path, top, 'covariance = "magic"\nmax_row_norm = 1', data)

    def refused(said: str, *arguments: object) -> None:
        result = run("federate", *arguments, code=2)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert said in result.stderr

    refused("cannot be read", "server", "--config", tmp_path / "none.toml")
    said = "The agreement does not hold together: covariance must be one of"
    refused(said, "server", "--config", tmp_path / "server.toml")
    refused(said, "client", "--config", tmp_path / "north.toml")
    agreement = tmp_path / "agreement.toml"
    agreement.write_text(agreement.read_text().replace("magic", "full"))
    run("ledger", "init", tmp_path / "budget.db")
    north = tmp_path / "north.toml"
    north.write_text(f"ledger = '{tmp_path / 'budget.db'}'\ndataset = 'peple'\n{north.read_text()}")
    refused("dataset must be one that is registered", "client", "--config", north)  # And nobody waits for a server.
    server = tmp_path / "server.toml"
    text = server.read_text()
    for address in ("0.0.0.0", "192.0.2.1", "server.example.org"):
        server.write_text(text.replace("127.0.0.1", address))
        refused("can be reached from other machines", "server", "--config", server)
    server.write_text(text)
    (tmp_path / "model.dpvb").touch()
    refused("--overwrite", "server", "--config", server)
    refused("names no folder", "server", "--leave", "--config", server)
    assert not (tmp_path / "north.state").exists()


def test_both_sides_say_that_noise_hides_what_few_clients_have_in_common(tmp_path: Path) -> None:
    """Before a server is called, and before one listens."""
    matrices(tmp_path, x=features, y=labels)
    data = {"file": "{name}.x.npy", "target": "{name}.y.npy"}
    top = TOP.format(kind="LogisticRegression", rounds=8, unit="client", columns="width = 6")
    write_files(tmp_path, top, "max_row_norm = 1", data)
    for name, before, after in (
        ("server", "127.0.0.1", "192.0.2.1"),
        ("north", "[data]", "server_seconds = 1\n[data]"),
    ):
        path = tmp_path / f"{name}.toml"
        path.write_text(path.read_text().replace(before, after))
        side = "server" if name == "server" else "client"
        said = run("federate", side, "--config", path, code=2).stderr
        assert f"is expected for {len(NAMES)} clients, each of them a unit" in said.splitlines()[0]
        assert said.startswith("warning: ")


def test_the_guides_files_are_read(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "federated.md").read_text()
    blocks = dict(re.findall(r'```toml title="(.*?)"\n(.*?)```', guide, re.S))
    assert set(blocks) == {"agreement.toml", "server.toml", "north.toml"}
    agreement = blocks["agreement.toml"]
    for name in ("server", "north"):
        identity = Identity.generate(name)
        identity.save(tmp_path / f"{name}.key")
        key = "key" if name == "server" else name
        agreement, count = re.subn(rf'^{key} = "\w+"', f'{key} = "{identity.public.hex()}"', agreement, flags=re.M)
        assert count == 1
    blocks["agreement.toml"] = agreement
    for name, text in blocks.items():
        (tmp_path / name).write_text(text)
    server, client = ServerConfig.load(tmp_path / "server.toml"), ClientConfig.load(tmp_path / "north.toml")
    assert server.agreement == client.agreement
    assert (server.agreement.trust.max_missing, server.agreement.trust.max_colluding) == (1, 1)
    assert server.agreement.estimator().random_state == 1
    assert server.folder == tmp_path / "server.state"
    assert (server.tls, client.ledger) == (
        (tmp_path / "server.pem", tmp_path / "server.pem.key"),
        str(tmp_path / "budget.db"),
    )
    commands = set(re.findall(r"^(?:\$ )?(dpvb federate [\w ]+)", guide, re.M))
    for command in commands:
        words = command.split()[1:3]
        run(*words, "--help")
    assert {"dpvb federate server ", "dpvb federate client ", "dpvb federate keys north "} <= commands
