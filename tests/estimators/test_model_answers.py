"""What a model of one's own returns of q is checked before the charge, and again when it is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import dpvb
from dpvb.data import Categorical, Interaction, Numeric, Response, Schema, Target
from dpvb.errors import DataFormatError, ParameterError
from dpvb.results.figures import Facts, Grid

X = np.full((40, 2), 0.5)
Y = np.where(np.arange(40) % 2, "yes", "no")
LABELS = Response("classes", classes=("no", "yes"))
BUDGET: dict[str, Any] = {"max_row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "response": LABELS}


@dataclass(frozen=True)
class Sums(dpvb.Model):
    """The sum of the rows, with the labels and names of columns."""

    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    n_steps: int = 1
    score_range: ClassVar[Any] = (-1.0, 1.0)

    @property
    def blocks(self) -> Any:
        return {"s": dpvb.Block((len(self.columns),), 1.0)}

    def init(self, rng: np.random.Generator) -> Any:
        return np.zeros(len(self.columns))

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {"s": dpvb.Rows(batch.x_nd)}

    def m_step(self, s: dpvb.Estimate, q: Any) -> Any:
        return s.noisy("s")


def answering(**methods: Any) -> Any:
    """A model with these methods."""
    return type("Answering", (Sums,), methods)()


def grid(*values: float) -> Any:
    return Grid(title="t", name="g", rows=("r",), columns=("a", "b"), values=(values,))


WRONG: dict[str, dict[str, Any]] = {
    "intervals gave .*nan": {"intervals": lambda self, q, level: [("a", math.nan, 0.0, 1.0)]},
    "intervals gave .* from 1 to 0 of 'a'": {"intervals": lambda self, q, level: [("a", 0.5, 1.0, 0.0)]},
    "intervals gave .*a name twice": {"intervals": lambda self, q, level: [("a", 0.5, 0.0, 1.0)] * 2},
    "intervals gave ValueError: not enough": {"intervals": lambda self, q, level: [("a", 0.0, 1.0)]},
    "figures gave .*with NaN": {"figures": lambda self, q: [grid(0.0, math.nan)]},
    "figures gave .*other lengths": {"figures": lambda self, q: [Facts(title="t", head=("a", "b"), rows=(("u",),))]},
    "figures gave TypeError: str": {"figures": lambda self, q: ["text"]},
    r"sample gave .*shape \(2, 3\)": {"sample": lambda self, q, n, rng: np.zeros((n, 3))},
    "sample gave .*rows of": {"sample": lambda self, q, n, rng: np.full((n, 2), math.nan)},
    "sample gave .*0 to 1": {"sample": lambda self, q, n, rng: (np.zeros((n, 2)), np.full(n, 7.0))},
    "sample gave .*whole": {"sample": lambda self, q, n, rng: (np.zeros((n, 2)), np.full(n, 0.5))},
    "sample gave .*responses of shape": {"sample": lambda self, q, n, rng: (np.zeros((n, 2)), np.zeros(n + 1))},
    "score on .*NaN": {"score": lambda self, q, batch: np.full(len(batch), math.nan)},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_answer_is_named_before_anything_is_spent(message: str, ledger: Any) -> None:
    model = dpvb.PrivateModel(answering(**WRONG[message]), **BUDGET)
    with pytest.raises(ParameterError, match=message):
        model.fit(X, Y, run=dpvb.Run(ledger=ledger, dataset="a"))
    with dpvb.Ledger(ledger) as book:
        assert len(book.entries()) == 3  # of the registrations


class Later:
    """Answers right at first, and wrong afterwards."""

    def __init__(self, right: Any, wrong: Any) -> None:
        self.right, self.wrong, self.fitted = right, wrong, False

    def __call__(self) -> Any:
        if not self.fitted:
            return self.right
        if isinstance(self.wrong, Exception):
            raise self.wrong
        return self.wrong


@pytest.mark.parametrize("wrong", [[("a", 0.5, math.nan, 1.0)], np.linalg.LinAlgError("Singular matrix")])
def test_a_wrong_answer_after_the_fit_names_the_method(wrong: Any) -> None:
    answer = Later([("a", 0.5, 0.0, 1.0)], wrong)
    model = dpvb.PrivateModel(answering(intervals=lambda self, q, level: answer()), **BUDGET).fit(X, Y)
    answer.fitted = True
    with pytest.raises(
        ParameterError, match=r"^model must give what its fit is asked for: intervals gave .*(nan|Singular)"
    ):
        model.intervals()
    with pytest.raises(ParameterError, match="intervals gave "):
        model.report()


@dataclass(frozen=True)
class Rows(Sums):
    """The sum of the rows, of which `units` says what they mean."""

    units: tuple[float, ...] = ()


def test_units_are_what_one_unit_of_a_column_adds_to_a_row_of_a_table_or_matrix() -> None:
    columns = [Numeric("a", 10, 60), Numeric("b", -2, 2), Categorical("k", ("u", "v"))]
    schema = Schema([*columns, Interaction("a", "b")], target=Target("y", classes=("no", "yes")))
    free = {"epsilon": math.inf, "delta": 1e-6}

    def of_table(a: float, b: float, k: str) -> Any:
        table = dpvb.Table({"a": [a], "b": [b], "k": [k], "y": ["no"]}, schema)
        return dpvb.PrivateModel(Rows(), **free).fit(table)

    start = of_table(20.0, 0.0, "u")
    unit = dict(zip(start._fitted_model.columns, start._fitted_model.units, strict=True))
    moved = {
        "a": of_table(21.0, 0.0, "u").q_ - start.q_,
        "b": of_table(20.0, 1.0, "u").q_ - start.q_,
        "k=v": of_table(20.0, 0.0, "v").q_ - start.q_,
    }
    moved["a:b"] = of_table(21.0, 1.0, "u").q_ - start.q_ - moved["a"] - moved["b"]
    for place, name in enumerate(start._fitted_model.columns):
        if name in moved:
            assert moved[name][place] == pytest.approx(unit[name], rel=1e-6), name  # Sums are on a grid.
    plain = {**free, "max_row_norm": 4.0, "response": LABELS}
    by_matrix = [dpvb.PrivateModel(Rows(), **plain).fit([[x, 0.5]], ["no"]) for x in (0.0, 1.0)]
    assert by_matrix[1].q_[0] - by_matrix[0].q_[0] == pytest.approx(by_matrix[0]._fitted_model.units[0])
    with pytest.raises(ParameterError, match=r"field units the steps of the features .*Nothing was charged"):
        dpvb.PrivateModel(Rows(units=(1.0, 1.0)), **plain).fit([[0.0, 0.5]], ["no"])


def test_labels_and_names_are_filled_in_or_compared() -> None:
    import pandas as pd

    named = pd.DataFrame(X, columns=["a", "b"])
    fitted = dpvb.PrivateModel(Sums(), **BUDGET).fit(named, Y)
    assert fitted._fitted_model == Sums(("no", "yes"), ("a", "b"))
    assert dpvb.PrivateModel(Sums(), **BUDGET).fit(X, Y)._fitted_model.columns == ("x0", "x1")
    assert dpvb.PrivateModel(Sums(columns=("u", "v")), **BUDGET).fit(X, Y)._fitted_model.columns == ("u", "v")
    for model, rows in (
        (Sums(classes=("yes", "no")), X),
        (Sums(classes=("no", "yes", "perhaps")), X),
        (Sums(columns=("b", "a")), named),
        (Sums(columns=("a", "b", "c")), X),
    ):
        with pytest.raises(
            ParameterError, match=r"model must have in its field (classes|columns) the .* in their order"
        ):
            dpvb.PrivateModel(model, **BUDGET).fit(rows, Y)


def test_rows_without_a_score_are_refused() -> None:
    model = dpvb.PrivateModel(answering(score=lambda self, q, batch: batch.x_nd.sum(axis=1)), **BUDGET).fit(X, Y)
    assert model.score(X, Y, public=True) == pytest.approx(1.0)
    with pytest.raises(DataFormatError, match="a row that the model gives a score"):
        model.score(np.full((2, 2), np.nan), ["no", "yes"], public=True)
