"""Every example in a docstring runs, and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import dpvb

ROOT = Path(dpvb.__file__).parent


def modules_with_examples() -> list[str]:
    """Modules of the package whose text has an example."""
    names = (one.name for one in pkgutil.walk_packages([str(ROOT)], "dpvb."))
    places = {name: ROOT.joinpath(*name.split(".")[1:]) for name in ["dpvb", *names]}
    files = {
        name: place / "__init__.py" if place.is_dir() else place.with_suffix(".py") for name, place in places.items()
    }
    return sorted(name for name, file in files.items() if ">>>" in file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", modules_with_examples())
def test_every_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, without a ledger; warnings of small examples are not shown."""
    monkeypatch.chdir(tmp_path)
    found = [one for one in doctest.DocTestFinder().find(importlib.import_module(name)) if one.examples]
    assert found
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for one in found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner.run(one, out=said.append)
    assert not runner.failures, "".join(said)


def test_a_wrong_example_fails() -> None:
    """The check itself: a docstring that prints something else is found."""
    examples = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    said: list[Any] = []
    assert doctest.DocTestRunner(verbose=False).run(examples, out=said.append).failed == 1
