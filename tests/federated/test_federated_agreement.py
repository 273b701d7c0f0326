"""What parties tell each other of their models: the same text in every process, and another one for another model."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from each import each
from small_models import CASES, NAMES

from dpvb.models.topics.lda import LDAModel
from dpvb.results.declared import declared


def density(theta: Any, x: Any, scale: float = 1.0) -> Any:
    """A density as users write it."""
    return -scale * ((x - theta) ** 2).sum()


def other_density(theta: Any, x: Any, scale: float = 1.0) -> Any:
    """Another one."""
    return -scale * abs(x - theta).sum()


@dataclass(frozen=True)
class Held:
    """A model that holds anything."""

    value: Any
    name: str = "held"

    def method(self, x: Any) -> Any:
        return x


VALUES: dict[str, Any] = {
    "nothing": None,
    "a number": 0.1,
    "a whole number": 1,
    "a truth value": True,
    "text": "1",
    "a function": density,
    "another function": other_density,
    "a function with a setting": partial(density, scale=2.0),
    "with another setting": partial(density, scale=3.0),
    "a method": Held(1).method,
    "a method of another": Held(2).method,
    "a class": Held,
    "an array": np.arange(3.0),
    "another array": np.arange(3.0) + 1,
    "a float32 array": np.arange(3, dtype=np.float32),
    "a matrix": np.arange(3.0)[None],
    "a tuple": (1, 2),
    "a list": [1, 2],
    "a set": set("abcdefghij"),
    "a mapping": {"a": density, "b": 2},
    "a model": Held(1),
    "another model": Held(2),
    "an object": np.random.default_rng,
    "long text": "x" * 300,
    "longer text": "x" * 301,
    "a long list": list(range(1000)),
}
TOLD = "from test_federated_agreement import *\nprint({name: declared(Held(value)) for name, value in VALUES.items()})"


def test_equal_models_of_two_processes_are_told_by_the_same_words() -> None:
    """No address, and no order of a set, is in them."""
    told = subprocess.run(
        [sys.executable, "-c", TOLD],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told == f"{ {name: declared(Held(value)) for name, value in VALUES.items()} }\n"
    assert "0x" not in told


def test_models_that_differ_are_told_by_different_words() -> None:
    told = [tuple(declared(Held(value)).items()) for value in VALUES.values()]
    assert len(set(told)) == len(told)
    assert declared(Held(1)) != declared(Held(1, "other"))
    assert all(len(text) < 250 for facts in told for _, text in facts)
    assert declared(Held(np.float64(0.1))) == declared(Held(0.1))


@each("case", CASES, ids=NAMES)
def test_a_model_is_told_by_its_declared_fields(case: Any) -> None:
    told = declared(case.model)
    assert told["class"].endswith(type(case.model).__qualname__)
    assert told == declared(replace(case.model))


def test_each_field_is_told_by_itself() -> None:
    one, other = declared(LDAModel(2, 5)), declared(LDAModel(3, 5))
    assert [name for name in one if one[name] != other[name]] == ["n_components"]
