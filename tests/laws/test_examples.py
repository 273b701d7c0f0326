"""Every example in a docstring runs, and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import dpvb
import dpvb.papers

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
    """Each in a folder of its own, without a ledger; warnings of small examples are not shown."""
    found = [one for one in doctest.DocTestFinder().find(importlib.import_module(name)) if one.examples]
    assert found
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for number, one in enumerate(found):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner.run(one, out=said.append)
    assert not runner.failures, "".join(said)


#: Modules whose `__all__` is for users, in addition to `dpvb` itself.
PUBLIC = ("accounting", "audit", "data", "federated", "testing")
#: Rooms whose classes users meet if a public method returns them.
RESULTS = tuple(f"dpvb.{room}." for room in ("accounting", "estimators", "ledger", "results"))


def public_classes() -> set[type]:
    """Classes that users import, and results that public methods and functions return; exceptions have a table."""
    modules = [dpvb, *(importlib.import_module(f"dpvb.{name}") for name in PUBLIC)]
    todo: list[Any] = [getattr(module, name) for module in modules for name in module.__all__]
    papers = [importlib.import_module(one.name) for one in pkgutil.iter_modules(dpvb.papers.__path__, "dpvb.papers.")]
    todo += [one for module in papers for one in vars(module).values() if is_model_of(one, module.__name__)]
    found: set[type] = set()
    while todo:
        one = todo.pop()
        members = [member for name, member in inspect.getmembers_static(one) if not name.startswith("_")]
        if isinstance(one, type):
            if one in found or not one.__module__.startswith("dpvb.") or issubclass(one, BaseException):
                continue
            found.add(one)
        for member in [one, *members] if isinstance(one, type) or inspect.isfunction(one) else []:
            function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
            returned = getattr(function, "__annotations__", {}).get("return")
            if inspect.isfunction(function) and isinstance(returned, str):
                kinds = [function.__globals__.get(name) for name in re.findall(r"\w+", returned)]
                todo += [kind for kind in kinds if isinstance(kind, type) and kind.__module__.startswith(RESULTS)]
    return found


def is_model_of(one: object, module: str) -> bool:
    """Whether this is a model that a module of a paper defines."""
    return isinstance(one, type) and issubclass(one, dpvb.Model) and one.__module__ == module


def test_every_public_class_has_an_example() -> None:
    classes = public_classes()
    assert {dpvb.LDA, dpvb.data.BagOfWords, dpvb.accounting.Event} < classes
    assert {one.__name__ for one in classes} > {"CoefficientTable", "Remaining", "Line", "VIPSTopics"}
    assert (
        sorted(f"{one.__module__}.{one.__name__}" for one in classes if ">>>" not in (vars(one)["__doc__"] or "")) == []
    )


def test_a_wrong_example_fails() -> None:
    """The check itself: a docstring that prints something else is found."""
    examples = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    said: list[Any] = []
    assert doctest.DocTestRunner(verbose=False).run(examples, out=said.append).failed == 1
