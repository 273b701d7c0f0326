"""`dpvb ledger`: from an empty file to a proof that nobody changed it, and every way to be refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CliRunner
from postgresql_server import Server

import dpvb
from dpvb import accounting, cli
from dpvb.accounting.costs import Composition
from dpvb.errors import BudgetError
from dpvb.ledger import Ledger
from dpvb.results.statement import percent

PEOPLE = ("--unit", "row", "--epsilon", "3", "--delta", "1e-6")


def run(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(cli.app, ["ledger", *(str(a) for a in args)])
    # The codes of errors are told apart in `test_exit_codes`.
    assert result.exit_code in (range(2, 10) if code == 2 else [code]), (result.stdout, result.stderr, result.exception)
    if code:
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with a data set and two charges."""
    path = tmp_path / "budget.db"
    run("init", path)
    run("register", path, "people", *PEOPLE)
    with Ledger(path) as found:
        for name in ("a", "b"):
            cost = Composition([accounting.Event("full_batch", 1.0, 20.0)], "add_or_remove_one")
            found.charge("people", cost, run=name, plan_digest=name, unit="row")
    return path


def test_both_totals_and_what_is_left(path: Path) -> None:
    (facts,) = json.loads(run("show", path, "--json").stdout)
    with Ledger(path) as found:
        left = found.remaining("people")
    assert facts["num_charges"] == 2
    assert facts["epsilon"] == left.epsilon == pytest.approx(3.0 - facts["spent_adaptive"])
    fixed = accounting.epsilon(noise_multiplier=20.0, sampling_prob=1.0, n_steps=2, delta=1e-6)
    assert facts["spent_if_fixed"] == pytest.approx(fixed, rel=1e-3)
    assert facts["spent_if_fixed"] < facts["spent_adaptive"] < 3.0
    shown = run("show", path).stdout
    at_limit = accounting.attack_accuracy(facts["cap_epsilon"], facts["delta"])
    assert "for all charges so far" in shown
    assert f"{percent(at_limit)} at the limit." in shown
    for key in ("spent_adaptive", "spent_if_fixed"):
        assert accounting.rounded_up(facts[key]) in shown
    assert accounting.rounded_down(facts["epsilon"]) in shown
    assert run("show", path, "people").stdout == shown


def test_a_quote_spends_nothing_and_agrees_with_the_accountant(path: Path) -> None:
    before = path.read_bytes()
    shape = {"sampling_prob": 0.1, "n_steps": 5}
    options = ("--sampling-prob", 0.1, "--n-steps", 5)
    facts = json.loads(run("quote", path, "--epsilon", 0.5, *options, "--json").stdout)
    assert facts["fits"] is True
    assert 0.3 < facts["epsilon"] < 0.5
    # As a fit would.
    noise = accounting.noise_multiplier(epsilon=0.5, delta=1e-6, **shape)
    assert facts["noise_multiplier"] == pytest.approx(noise)
    same = json.loads(
        run("quote", path, "people", "--noise-multiplier", facts["noise_multiplier"], *options, "--json").stdout
    )
    assert same == facts
    large = json.loads(run("quote", path, "people", "--epsilon", 10, *options, "--json").stdout)
    assert large["fits"] is False
    fitting = large["noise_multiplier"] * large["noise_scale"]
    assert json.loads(run("quote", path, "people", "--noise-multiplier", fitting, *options, "--json").stdout)["fits"]
    assert "does not fit" in run("quote", path, "people", "--epsilon", 10).stdout
    assert large["num_fits"] == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("noise", [2.0, 6.0])
def test_a_quote_says_how_many_such_plans_fit(path: Path, noise: float) -> None:
    """As many as are charged before the first refusal."""
    plan = ("--noise-multiplier", noise, "--n-steps", 1)
    said = json.loads(run("quote", path, "people", *plan, "--json").stdout)["num_fits"]
    number = 0
    with Ledger(path) as found:
        cost = Composition([accounting.Event("full_batch", 1.0, noise)], "add_or_remove_one")
        with suppress(BudgetError):
            while number < 10_000:
                found.charge("people", cost, unit="row", normal=True)
                number += 1
    assert said == number > 0
    assert "Such plans that fit one after another: 0." in run("quote", path, "people", *plan).stdout


@pytest.mark.guarantees("forecasts")
def test_a_plan_says_how_far_the_limit_goes_and_spends_nothing(path: Path) -> None:
    before = path.read_bytes()
    call = ["plan", "logistic", "--n-units", "20000", "--width", "3", "--low", "0", "--high", "1"]
    call += ["--epsilon", "0.2", "--delta", "1e-6", "--ledger", str(path), "--dataset", "people"]
    said = CliRunner().invoke(cli.app, [*call, "--json"])
    assert said.exit_code == 0, said.stderr
    facts = json.loads(said.stdout)["ledger"]
    assert facts["fits"]
    assert f"Such plans that fit one after another: {facts['num_fits']}." in CliRunner().invoke(cli.app, call).stdout
    assert "ledger" not in json.loads(CliRunner().invoke(cli.app, [*call[:-4], "--json"]).stdout)
    assert CliRunner().invoke(cli.app, call[:-2]).exit_code == 2  # One of ledger and data set alone.
    assert path.read_bytes() == before


def test_verify_and_export_of_a_ledger_and_of_its_chain(path: Path, tmp_path: Path) -> None:
    assert "all rows are valid" in run("verify", path).stdout
    chain = tmp_path / "chain.jsonl"
    run("export", path, chain)
    assert len(chain.read_text().splitlines()) == 4
    assert "all rows are valid" in run("verify", chain).stdout
    assert "--overwrite" in run("export", path, chain, code=2).stderr
    lines = chain.read_text().splitlines(keepends=True)
    for broken, found in (
        ([*lines[:2], lines[3]], "row 2 is missing"),
        ([*lines[:2], lines[2].replace("full_batch", "full-batch"), lines[3]], "row 2: its hash"),
        (lines[1:], "not an export"),
        (["{"], "JSON"),
    ):
        chain.write_text("".join(broken))
        assert found in run("verify", chain, code=2).stderr


def test_a_changed_ledger_names_the_row_and_can_be_exported(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b'"b"')
    path.write_bytes(content[: at + 1] + b"x" + content[at + 2 :])
    assert "changed" in run("verify", path, code=2).stderr
    run("export", path, tmp_path / "chain.jsonl")
    assert "row 3" in run("verify", tmp_path / "chain.jsonl", code=2).stderr


@pytest.mark.guarantees("set back")
def test_a_model_knows_a_ledger_that_was_set_back(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (path, path.with_name("budget.db.head"))
    backup = [file.read_bytes() for file in files]
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-0.5, 0.5, (50, 2))
    with Ledger(path) as found:
        model = dpvb.LogisticRegression(epsilon=0.5, delta=1e-6, n_steps=2, max_row_norm=1.0)
        model.fit(x_nd, (x_nd[:, 0] > 0).astype(int), run=dpvb.Run(ledger=found, dataset="people"))
    model.save(tmp_path / "model.dpvb")
    assert "1 of them" in run("verify", path, "--receipt", tmp_path / "model.dpvb").stdout
    chain = tmp_path / "chain.jsonl"
    run("export", path, chain)
    assert "1 of them" in run("verify", chain, "--receipt", tmp_path / "model.dpvb").stdout
    for file, content in zip(files, backup, strict=True):
        file.write_bytes(content)
    assert "set back" in run("verify", path, code=2).stderr
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # Somebody else, who has not seen it before.
    run("verify", path)
    assert "set back" in run("verify", path, "--receipt", tmp_path / "model.dpvb", code=2).stderr
    alone = dpvb.LogisticRegression(epsilon=0.5, delta=1e-6, n_steps=2, max_row_norm=1.0).fit(
        x_nd, (x_nd[:, 0] > 0).astype(int)
    )
    alone.save(tmp_path / "alone.dpvb")
    assert "fitted with a ledger" in run("verify", path, "--receipt", tmp_path / "alone.dpvb", code=2).stderr


def test_what_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("no ledger")
    assert "it is not a ledger" in run("init", tmp_path / "other.txt", code=2).stderr
    assert (tmp_path / "other.txt").read_text() == "no ledger"
    assert "dpvb ledger init" in run("register", tmp_path / "none.db", "people", *PEOPLE, code=2).stderr
    assert not (tmp_path / "none.db").exists()
    for place in (tmp_path / "none.db", tmp_path):
        for command in ("show", "verify"):
            run(command, place, code=2)
    assert "'people'" in run("show", path, "nobody", code=2).stderr
    assert "'people'" in run("quote", path, "nobody", "--epsilon", 1, code=2).stderr
    assert "--noise-multiplier" in run("quote", path, "people", code=2).stderr
    assert "other facts" in run("register", path, "people", *PEOPLE[:-1], "1e-5", code=2).stderr
    for cap in ("nan", "inf", "-1"):
        assert (
            "--epsilon" in run("register", path, "x", "--unit", "row", "--epsilon", cap, "--delta", 0.1, code=2).stderr
        )
    run("register", path, "people", *PEOPLE)


def test_a_part(path: Path) -> None:
    run("register", path, "all", *PEOPLE)
    run("register", path, "north", *PEOPLE, "--part-of", "all")
    assert "north (of" in run("show", path).stdout


def test_a_ledger_of_a_team(postgresql: Server) -> None:
    url = postgresql.new_database()
    assert "no ledger" in run("show", url, code=2).stderr
    run("init", url)
    run("register", url, "people", *PEOPLE)
    assert json.loads(run("show", url, "--json").stdout)[0]["name"] == "people"
    result = run("verify", url)
    assert postgresql.password[:8] not in result.stdout
    assert ") is ready, with 1 data set." in run("init", url).stdout


def test_a_ledger_may_be_made_again(path: Path) -> None:
    """A job that begins with it finds what was charged as it was."""
    before = run("show", path, "--json").stdout
    assert ") is ready, with" in run("init", path).stdout
    assert run("show", path, "--json").stdout == before


@pytest.mark.parametrize("command", ["init", "register", "show", "quote", "verify", "export"])
def test_help_has_an_example(command: str) -> None:
    assert f"dpvb ledger {command} budget.db" in run(command, "--help").stdout
