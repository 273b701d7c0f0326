"""The page on schedules: its script, units, cron line and query do what the page says."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import outputs
import pandas as pd
import pytest
from postgresql_server import Server

import dpvb
from dpvb.cli.root import ExitCode
from dpvb.runs.record import records

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "schedule.md").read_text(encoding="utf-8")
FILES = {block["title"]: block["code"] for block in outputs.BLOCK.finditer(PAGE) if block["title"]}
JOB = "fit-of-the-month.sh"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The folders of the page with a small lake, and the whole environment of a job: no home, no terminal."""
    for name in ("state", "runs", "tmp", "models", "lake", "bin"):
        (tmp_path / name).mkdir(mode=0o700)
    rng = np.random.default_rng(0)
    for day in range(3):
        rows = {"v": rng.uniform(0, 1, 100), "y": np.arange(100) % 2, "who": [f"p{n % 50}" for n in range(100)]}
        pd.DataFrame(rows).to_parquet(tmp_path / "lake" / f"{day}.parquet")
    columns = (dpvb.data.Numeric("v", 0, 1),)
    dpvb.Schema(columns, dpvb.data.Target("y"), group="who").save(tmp_path / "people.json")
    (tmp_path / "bin" / JOB).write_text(FILES[JOB])
    (tmp_path / "bin" / JOB).chmod(0o755)
    program = f"#!{sys.executable}\nfrom dpvb.cli import app\napp(prog_name='dpvb')\n"
    (tmp_path / "bin" / "dpvb").write_text(program)
    (tmp_path / "bin" / "dpvb").chmod(0o755)
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("patients", unit="person", neighboring_relation="add_or_remove_one", epsilon=0.3, delta=1e-5)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return {
        **{"DPVB_LEDGER": str(tmp_path / "budget.db"), "DPVB_DATASET": "patients", "DPVB_REQUIRE_LEDGER": "1"},
        **{"XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path / "tmp"), "LAKE": str(tmp_path / "lake")},
        **{"HOME_OF_FITS": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
    }


def started(line: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    """A line as cron starts it."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(["/bin/sh", "-c", line], env=environment, text=True, start_new_session=True, **pipes)


def ended(line: str, environment: dict[str, str]) -> tuple[int, str]:
    process = started(line, environment)
    said = process.communicate(timeout=300)[0]
    return process.returncode, said


def month() -> str:
    return time.strftime("%Y-%m", time.gmtime())


def charges() -> int:
    with dpvb.Ledger("budget.db", read_only=True) as ledger:
        return sum(entry.kind in ("charge", "sole") for entry in ledger.entries())


def test_the_line_of_cron_runs_the_job_once_and_a_second_start_costs_nothing(machine: dict[str, str]) -> None:
    """Five fields of time, a user and a command, which runs with the lines above it as its environment."""
    *settings, line = FILES["dpvb-fit.cron"].splitlines()
    names = dict(setting.split("=", 1) for setting in settings)
    assert names.keys() - {"SHELL"} == machine.keys()
    *times, user, command = line.split(maxsplit=6)
    assert all(re.fullmatch(r"\*|\d+", one) for one in times)
    assert len(times) == 5
    assert user == "dpvb"
    assert "%" not in command  # Which cron takes for the end of the line.
    code, said = ended(command.replace("/var/lib/dpvb", machine["HOME_OF_FITS"]), machine)
    assert code == 0, said
    assert "LogisticRegression" in Path("models/cron.log").read_text()
    assert dpvb.load(f"models/{month()}.dpvb").privacy_.charge is not None
    assert ended(JOB, machine)[0] == ExitCode.COMPLETED
    Path(f"models/{month()}.dpvb").unlink()
    assert ended(JOB, machine)[0] == 0  # The model is restored from its releases.
    assert dpvb.load(f"models/{month()}.dpvb").privacy_.epsilon <= 0.1
    assert charges() == 1
    assert [*Path("tmp").iterdir()] == []
    assert Path("models/fits.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_job_that_is_stopped_resumes_at_its_next_start(machine: dict[str, str], number: int) -> None:
    process, folder = started(JOB, machine), Path("runs") / month()
    end = time.monotonic() + 120
    while len([*folder.glob("release-*")]) < 2:
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.01)
    os.killpg(process.pid, number)
    process.communicate(timeout=120)
    if not Path(f"models/{month()}.dpvb").exists():  # It was not quicker than the signal.
        code, said = ended(JOB, machine)
        assert code == 0, said
    assert charges() == 1
    [one] = records()
    assert one.state == "finished"
    assert len(one.files) == 3


@pytest.mark.slow
def test_two_jobs_at_once_charge_once(machine: dict[str, str]) -> None:
    both = [started(JOB, machine) for _ in range(2)]
    codes = []
    for process in both:
        said = process.communicate(timeout=300)[0]
        codes.append(process.returncode)
        assert process.returncode in (ExitCode.DONE, ExitCode.COMPLETED, ExitCode.FAILED), said
        if process.returncode == ExitCode.FAILED:
            assert "another" in said
    assert ExitCode.DONE in codes
    assert charges() == 1


def test_the_units_of_systemd(machine: dict[str, str], tmp_path: Path) -> None:
    """systemd accepts them, and the service has every setting of the job and treats each exit code as the page says."""
    service = configparser.RawConfigParser(strict=False, delimiters=("=",))
    service.optionxform = str  # type: ignore[assignment,method-assign]
    service.read_string(FILES["dpvb-fit.service"])
    lines = re.findall(r"^Environment=(.*)$", FILES["dpvb-fit.service"], re.M)
    assert {word.split("=", 1)[0] for line in lines for word in line.split()} == machine.keys()
    unit = service["Service"]
    stays = {ExitCode(int(code)) for code in unit["RestartPreventExitStatus"].split()}
    again = set(ExitCode) - stays - {ExitCode.DONE, ExitCode(int(unit["SuccessExitStatus"]))}
    assert (unit["Restart"], again) == ("on-failure", {ExitCode.LEDGER_UNREACHABLE, ExitCode.RESUMABLE})
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd is not installed")
    for name in ("dpvb-fit.service", "dpvb-fit.timer"):
        here = FILES[name].replace("/opt/dpvb/bin/fit-of-the-month.sh", str(tmp_path / "bin" / JOB))
        (tmp_path / name).write_text(here.replace("User=dpvb\nGroup=dpvb\n", ""))
        done = subprocess.run([analyze, "verify", "--man=no", tmp_path / name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert name not in done.stderr, done.stderr


def test_the_query_reports_what_the_command_reports(postgresql: Server) -> None:
    """A role that only looks runs it."""
    pytest.importorskip("psycopg")
    url = postgresql.new_database()
    if not postgresql.execute("SELECT 1 FROM pg_roles WHERE rolname = 'auditor'"):
        postgresql.execute("CREATE ROLE auditor LOGIN PASSWORD 'auditor'")
    cost = dpvb.accounting.gaussian_noise(20.0, neighboring_relation="add_or_remove_one")
    with dpvb.Ledger(url) as ledger:
        for name in ("a", "b"):
            ledger.register(name, unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        ledger.grant("auditor", append=False)
        for _ in range(3):
            ledger.charge("b", cost, unit="row")
        query = FILES["left.sql"]
        found = postgresql.execute("SET ROLE auditor", query, database=url.split("/")[3].split("?")[0])
        for name, cap, spent, left, number, newest in found:
            said = ledger.remaining(name).to_dict()
            assert float(cap) == said["cap_epsilon"]
            assert float(spent) == pytest.approx(said["spent_adaptive"], abs=1e-9)
            assert float(left) == pytest.approx(said["epsilon"], abs=1e-9)
            assert number == said["num_charges"]
            assert (newest is None) == (number == 0)
    assert [row[0] for row in found] == ["a", "b"]
    assert json.dumps(found[0][0]) == '"a"'
