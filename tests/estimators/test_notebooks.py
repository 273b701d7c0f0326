"""What a notebook shows of estimators, statements and schemas: what they say as text, and no stranger's program."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn
from read_html import Page
from sklearn.base import clone

import dpvb
from dpvb.data import Binary, Categorical, Numeric, Schema, Target
from dpvb.guards.untrusted import printable

HOSTILE = ["<script>alert('1')</script>", 'a" onload="x', "a\u202eb", "</table>", "&amp;", "\x1b]0;b"]


@pytest.fixture(scope="module")
def fitted():
    x_nd = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    model = dpvb.LogisticRegression(epsilon=math.inf, delta=1e-5, low=-1, high=1, n_steps=2)
    return model.fit(x_nd, x_nd[:, 0] > 0)


def text_of(html: str) -> str:
    return " ".join(Page(html).texts)


def test_a_statement_shows_its_warning_and_all_its_facts(fitted) -> None:
    shown = text_of(fitted.privacy_._repr_html_())
    flat = " ".join(str(fitted.privacy_).replace("!!!", "").split())
    assert "NO PRIVACY: epsilon is infinite" in shown
    for label, paragraphs in fitted.privacy_.sections():
        assert label in shown
        for paragraph in paragraphs:
            assert paragraph in shown
            assert " ".join(paragraph.split()) in flat


def test_a_statement_is_small(fitted) -> None:
    assert len(fitted.privacy_._repr_html_()) < 2 * len(str(fitted.privacy_))


def test_a_schema_shows_what_is_declared_and_hostile_names_are_texts() -> None:
    columns = [
        *(Numeric(name, 0, 10) for name in HOSTILE),
        Categorical("level", tuple(HOSTILE)),
        Binary("agreed", ("no", "yes"), missing="no"),
    ]
    schema = Schema(tuple(columns), target=Target("ill", classes=("no", "yes")), group="person")
    html = schema._repr_html_()
    page = Page(html)
    assert page.cells[0] == ["column", "kind", "declared"]
    assert [row[0] for row in page.cells[1:]] == [printable(column.name) for column in columns]
    assert page.cells[1][1:] == ["numeric", "low=0.0, high=10.0"]
    assert page.cells[-1][2] == "values=('no', 'yes'), missing='no'"
    assert "target=Target(name='ill', classes=('no', 'yes')), group='person'" in page.texts
    wide = Schema((Categorical("place", tuple(f"place {n}" for n in range(10_000))),))
    assert len(wide._repr_html_()) < 2_000


def test_an_estimator_shows_its_parameters_and_then_its_promise(fitted) -> None:
    before = Page(clone(fitted)._repr_html_())
    shown = dict(before.cells)
    assert before.texts[0] == "LogisticRegression, not fitted"
    assert [name for name, _ in before.cells][:5] == ["delta", "epsilon", "high", "low", "n_steps"]
    assert shown == {name: repr(value) for name, value in fitted.get_params().items()}
    after = Page(fitted._repr_html_())
    assert after.texts[0] == "LogisticRegression, fitted"
    assert fitted.privacy_._repr_html_() in fitted._repr_html_()
    assert before.cells[-1] in after.cells


def test_parameters_are_texts() -> None:
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, low=np.zeros(10**5), classes=tuple(HOSTILE[:2]))
    shown = text_of(model._repr_html_())
    assert "<script>" in shown
    assert len(shown) < 5_000


def test_scikit_learns_display_decides(fitted) -> None:
    assert fitted._repr_mimebundle_() == {"text/plain": repr(fitted), "text/html": fitted._repr_html_()}
    with sklearn.config_context(display="text"):
        assert fitted._repr_mimebundle_() == {"text/plain": repr(fitted)}
        assert not hasattr(fitted, "_repr_html_")


def test_a_pipeline_still_draws_its_diagram(fitted) -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    assert "LogisticRegression" in make_pipeline(MaxAbsScaler(), clone(fitted))._repr_html_()
