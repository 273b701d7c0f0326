"""`dpvb docs`: the pages that messages point to travel with the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from test_cli import refuse, run

ROOT = Path(__file__).parents[2]


def test_every_page_is_named_and_printed() -> None:
    listed = run("docs").stdout
    assert {"index", "federated", "proofs", "how-to/priors"} <= {line.split()[0] for line in listed.splitlines()}
    assert "A federated run" in listed
    for name in ("federated", "docs/federated.md"):
        assert run("docs", name).stdout == (ROOT / "docs" / "federated.md").read_text(encoding="utf-8")


def test_another_page_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path, "such as 'index'", "docs", "../README")
    refuse(tmp_path, "such as 'glossary'", "docs", "glosary")


def test_the_last_part_of_a_name_is_enough() -> None:
    assert run("docs", "epsilon").stdout == (ROOT / "docs" / "how-to" / "epsilon.md").read_text(encoding="utf-8")


def test_what_messages_point_to_is_in_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"docs": "dpvb/docs"}
    told = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"dpvb docs ([a-z][\w/-]*)", told))
    assert named >= {"federated", "how-to/tables"}
    assert [name for name in named if not (ROOT / "docs" / f"{name}.md").exists()] == []
