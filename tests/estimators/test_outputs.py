"""A table of coefficients leaves as a frame, CSV, LaTeX, HTML, draws or a picture of the same rows; two compare."""

from __future__ import annotations

import copy
import csv
import io
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from read_html import Page
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dpvb
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target
from dpvb.errors import DataFormatError, DpvbError, ParameterError
from dpvb.guards.untrusted import printable
from dpvb.results import coefficients, figures, plots
from dpvb.results.coefficients import Coefficient, Normal, Sum

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

HOSTILE = ("<script>", "$\\frac$ & 100%", "a\x1b]0;b\u202e")

FIELDS: dict[str, Any] = {name: str if name in ("name", "note") else float for name in Coefficient._fields}


def schema(*, high: float = 100, transform: Any = None, reference: Any = None, **target: Any) -> Schema:
    columns = (
        Numeric("age", 0, high, transform=transform),
        Categorical("work", HOSTILE, reference=reference, other=False),
        Binary("urban"),
    )
    return Schema(columns, target=Target("ill", **target))


def fitted(like: Schema | None = None, *, seed: int = 0, rows: int = 3_000, epsilon: float = 8.0) -> Any:
    like = schema() if like is None else like
    rng = np.random.default_rng(seed)
    age, work, urban = rng.uniform(0, 100, rows), rng.choice(HOSTILE, rows), rng.integers(0, 2, rows)
    ill = rng.random(rows) < 1 / (1 + np.exp(1 - age / 50 - (work == HOSTILE[1])))
    data = {"age": age, "work": work, "urban": urban, "rural": 1 - urban, "ill": ill.astype(int)}
    return dpvb.LogisticRegression(epsilon=epsilon, delta=1e-5, n_steps=8).fit(Table(data, like))


@pytest.fixture(scope="module")
def model() -> Any:
    return fitted()


@pytest.fixture(scope="module")
def other() -> Any:
    return fitted(schema(high=200), seed=1, epsilon=4.0)


@pytest.fixture(scope="module", params=[False, True], ids=["differences", "ratios"])
def table(request: pytest.FixtureRequest, model: Any) -> Any:
    return model.coefficients(0.9, exp=request.param)


# Forms


def test_a_frame_has_the_rows_of_the_table(table: Any) -> None:
    frame = table.to_frame()
    assert frame.index.name == "name"
    assert [Coefficient(*row) for row in frame.reset_index().itertuples(index=False)] == list(table)
    assert frame.attrs == {"scale": table.scale, "level": 0.9, "epsilon": frame.attrs["epsilon"], "delta": 1e-5}
    assert 7.9 < frame.attrs["epsilon"] <= 8.0


def test_csv_is_the_frame_and_a_file_is_not_replaced_unasked(table: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    text = table.to_csv()
    read = pandas.read_csv(io.StringIO(text), index_col="name", keep_default_na=False)
    pandas.testing.assert_frame_equal(read[list(Coefficient._fields[1:])], table.to_frame(), rtol=1e-12)
    assert set(read["level"]) == {0.9}
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    found = [Coefficient(*(kind(row[name]) for name, kind in FIELDS.items())) for row in rows]
    assert found == list(table)
    path = tmp_path / "coef.csv"
    assert table.to_csv(path) is None
    assert path.read_text(encoding="utf-8") == text
    with pytest.raises(ParameterError, match="overwrite=True"):
        table.to_csv(path)
    table.to_csv(path, overwrite=True)
    with pytest.raises(DataFormatError, match="cannot be written"):
        table.to_csv(tmp_path / "none" / "coef.csv")


def test_a_notebook_shows_each_line_with_four_digits(table: Any) -> None:
    page = Page(table._repr_html_())
    assert page.cells[0][0] == table.scale
    assert [row[0] for row in page.cells[1:]] == [printable(name) for name in table.lines]
    rows = {printable(row.name): row for row in table}
    for name, *cells in page.cells[1:]:
        if name not in rows:
            assert cells[-1] == "reference"
            continue
        row = rows[name]
        numbers = [row.mean, row.low, row.high] if table.exp else [row.mean, row.std, row.low, row.high]
        assert cells == [*(f"{number:.4g}" for number in numbers), f"{100 * row.contraction:.0f} %", row.note]
    said = " ".join("".join(page.texts).split())
    for line in str(table).splitlines():
        if "% from" not in line and line and not line.startswith(tuple(rows)):
            assert " ".join(line.split()) in said or line.endswith("reference")


def test_pandas_makes_latex_of_the_frame(table: Any) -> None:
    """As docs/how-to/coefficients.md says it."""
    pytest.importorskip("jinja2")
    made = table.to_frame().style.format(escape="latex").format_index(escape="latex").to_latex(hrules=True)
    assert made.startswith(r"\begin{tabular}")
    assert made.count(r" \\") == len(table) + 2


def test_a_summary_is_a_text_and_a_table_in_a_notebook(model: Any) -> None:
    summary = model.summary(0.9)
    assert isinstance(summary, str)
    assert summary == str(model.coefficients(0.9))
    assert summary._repr_html_() == model.coefficients(0.9)._repr_html_()
    for copied in (copy.deepcopy(summary), pickle.loads(pickle.dumps(summary))):
        assert copied == summary
        assert copied._repr_html_() == summary._repr_html_()
    assert model.coefficients()._repr_html_() in model._repr_html_()


def test_what_is_not_installed_is_said_with_the_way_out(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (figures, coefficients, plots):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    table = model.coefficients()
    for call, way_out in ((table.to_frame, "to_csv"), (model.to_arviz, r"\[arviz\]"), (table.forest, r"\[plot\]")):
        with pytest.raises(DpvbError, match=way_out):
            call()


# Draws


@pytest.mark.parametrize("options", [{}, {"exp": True}, {"coding": "none"}, {"per": "range"}])
def test_arviz_reads_draws_of_the_tables_rows(model: Any, options: dict[str, Any]) -> None:
    """False alarms below 1e-6: 12 comparisons at 5.6 standard errors; the seed is 0."""
    arviz_base = pytest.importorskip("arviz_base")
    tree = model.to_arviz(2_000, chains=3, rng=0, **options)
    posterior = arviz_base.convert_to_dataset(tree, group="posterior")
    table = model.coefficients(**options)
    assert posterior["coef"].dims == ("chain", "draw", "coefficient")
    assert posterior["coef"].shape == (3, 2_000, len(table))
    assert tuple(posterior["coefficient"].values) == table.names
    assert posterior.attrs["privacy"] == str(model.privacy_)
    assert posterior.attrs["inference_library"] == "dpvb"
    drawn_nr = posterior["coef"].values.reshape(-1, len(table))
    log_nr = np.log(drawn_nr) if table.exp else drawn_nr
    std_r = np.sqrt(np.diag(table.covariance))
    error_r = (log_nr.mean(axis=0) - table.mean) / (std_r / math.sqrt(6_000))
    assert np.abs(error_r).max() < 5.6
    assert np.abs(log_nr.var(axis=0) / std_r**2 - 1).max() < 5.6 * math.sqrt(2 / 6_000)
    again = model.to_arviz(2_000, chains=3, rng=0, **options)
    np.testing.assert_array_equal(again["posterior"]["coef"], posterior["coef"])


@pytest.mark.parametrize("wrong", [{"draws": 0}, {"draws": 1.5}, {"chains": 0}, {"chains": "4"}, {"rng": "x"}])
def test_arviz_asks_for_whole_numbers(model: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        model.to_arviz(**wrong)


# Pictures


def test_a_forest_draws_every_interval(table: Any) -> None:
    axes = table.forest()
    rows = [row for row in table if row.name != "intercept"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        printable(row.name) + (f" ({row.note})" if row.note else "") for row in rows
    ]
    assert not any(label.get_parse_math() or label.get_usetex() for label in axes.get_yticklabels())
    drawn = {}
    for lines in axes.collections:
        for (low, place), (high, _) in lines.get_segments():
            drawn[place] = (low, high, lines.get_alpha())
    assert [drawn[place] for place in range(len(rows))] == [
        (row.low, row.high, 0.35 if row.note else 1.0) for row in rows
    ]
    assert any(row.note for row in rows)
    assert axes.get_xscale() == ("log" if table.exp else "linear")
    assert axes.lines[0].get_xdata()[0] == (1.0 if table.exp else 0.0)
    left, right = axes.get_xlim()
    assert all(left < row.low < row.high < right for row in rows if not row.note)
    assert table.forest(axes) is axes
    matplotlib.pyplot.close(axes.figure)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_saved_forest_is_not_blank(table: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"forest{suffix}"
    with matplotlib.rc_context({"svg.fonttype": "none", "text.usetex": True}):
        plots.save(path, [table], table.scale)
    if suffix == ".png":
        pixels = matplotlib.image.imread(path)
        assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 10
    else:
        assert "work=$\\frac$ &amp; 100%" in path.read_text(encoding="utf-8")


def test_ratios_beyond_numbers_and_tables_without_a_clear_row_are_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-1, 1, (20, 3)) * 1e-6
    poor = dpvb.LogisticRegression(epsilon=0.1, delta=1e-5, low=-1e-6, high=1e-6, n_steps=2)
    with pytest.warns(dpvb.errors.FewUnitsWarning):
        poor.fit(x_nd, rng.integers(0, 2, 20))
    table = poor.coefficients(exp=True)
    assert min(row.low for row in table) == 0.0
    plots.save(tmp_path / "forest.png", [table], table.scale)
    assert (tmp_path / "forest.png").stat().st_size > 1_000


# Two tables


def test_a_difference_is_row_by_row_and_says_what_it_assumes(model: Any, other: Any) -> None:
    """Declared ranges differ, units do not."""
    first, second = model.coefficients(), other.coefficients()
    for disjoint in (False, True):
        made = dpvb.compare(model, other, disjoint=disjoint)
        assert made.names == first.names
        assert made.lines == first.lines
        assert made.scale == "difference of log odds"
        for row, own, theirs in zip(made, first, second, strict=True):
            assert row.mean == pytest.approx(own.mean - theirs.mean, abs=1e-12)
            bound = math.hypot(own.std, theirs.std) if disjoint else own.std + theirs.std
            assert row.std == pytest.approx(bound)
            assert row.high - row.low == pytest.approx(2 * 1.959964 * bound)
        epsilons = [one.privacy_.epsilon for one in (model, other)]
        assert made.to_frame().attrs["epsilon"] == (max(epsilons) if disjoint else sum(epsilons))
        assert ("no person is in the data of both" in str(made)) is disjoint
        ratios = dpvb.compare(model, other, disjoint=disjoint, exp=True)
        assert ratios.scale == "ratio of odds ratios"
        np.testing.assert_allclose([row.mean for row in ratios], np.exp([row.mean for row in made]))
    assert [row.mean for row in dpvb.compare(model, model)] == pytest.approx([0.0] * len(first), abs=1e-12)


def test_a_contrast_of_differences_has_the_bound_of_the_contrasts(model: Any, other: Any) -> None:
    weights = {f"work={HOSTILE[1]}": 1.0, f"work={HOSTILE[2]}": -1.0, "age": 10.0}
    own, theirs = (one.contrast(weights) for one in (model, other))
    assert dpvb.compare(model, other).contrast(weights).std == pytest.approx(own.std + theirs.std)
    apart = dpvb.compare(model, other, disjoint=True)
    assert apart.contrast(weights).std == pytest.approx(math.hypot(own.std, theirs.std))
    np.testing.assert_allclose(np.sqrt(np.diag(apart.covariance)), [row.std for row in apart])
    with pytest.raises(ParameterError, match="joint covariance of two fits"):
        dpvb.compare(model, other).covariance  # noqa: B018


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_no_dependence_of_two_fits_exceeds_the_bound(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2 * size, rng.integers(1, 2 * size + 1)))
    joint = root @ root.T
    one, two = (
        Normal(np.zeros(size), sparse.csr_array(np.eye(size)), part, part)
        for part in (joint[:size, :size], joint[size:, size:])
    )
    turn = rng.normal(size=(4, size))
    wanted = np.diag(np.hstack([turn, -turn]) @ joint @ np.hstack([turn, -turn]).T)
    bound = Sum(one, two.turned(-np.eye(size)), independent=False).turned(turn).variance_r
    assert (wanted <= bound * (1 + 1e-9) + 1e-12).all()
    opposite = Sum(one, one, independent=False).turned(turn).variance_r  # The second is minus the first's mirror.
    np.testing.assert_allclose(opposite, 4 * one.turned(turn).variance_r)


def counts(like: Schema) -> Any:
    rng = np.random.default_rng(0)
    data = {"age": rng.uniform(0, 100, 500), "work": rng.choice(HOSTILE, 500), "urban": rng.integers(0, 2, 500)}
    rows = Table({**data, "ill": rng.integers(0, 5, 500)}, like)
    given: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5, "n_steps": 2}
    return dpvb.NegativeBinomialRegression(**given, dispersion=1.0, max_count=5).fit(rows)


def test_models_that_mean_other_things_are_refused_by_name(model: Any) -> None:
    cases = [
        (fitted(schema(transform="log1p"), rows=200), "Only one of them has 'age', 'log1p.age.'"),
        (fitted(schema(reference=HOSTILE[1]), rows=200), "reference levels.*'work=<script>'"),
        (fitted(schema(classes=(1, 0)), rows=200), "same classes in one order"),
        (fitted(Schema((Numeric("age", 0, 100), Binary("rural")), target=Target("ill")), rows=200), "'rural'"),
        (counts(schema(kind="negative_binomial", max_count=5)), "the same scale, got 'log odds' and 'log rate'"),
        (dpvb.LDA(2, epsilon=1.0, delta=1e-5, public_vocabulary=True), "second must be a fitted regression"),
    ]
    for other, said in cases:
        with pytest.raises(ParameterError, match=said):
            dpvb.compare(model, other)


def test_a_coefficient_of_a_whole_range_is_another_one_where_ranges_differ(model: Any, other: Any) -> None:
    with pytest.raises(ParameterError, match=r"'age' must have one unit.*high=100.*high=200"):
        dpvb.compare(model, other, per="range")


def test_what_is_no_path_no_axes_and_no_answer_is_refused(model: Any) -> None:
    table = model.coefficients()
    for call, said in (
        (lambda: table.to_csv(1), "path must be"),
        (lambda: table.forest("figure"), "ax must be Matplotlib axes"),
        (lambda: dpvb.compare(model, model, disjoint="no"), "disjoint must be True or False"),
        (lambda: dpvb.compare(clone(model), model), "not fitted"),
    ):
        with pytest.raises((ParameterError, NotFittedError), match=said):
            call()


def test_promises_to_persons_and_to_rows_do_not_add_up(model: Any, other: Any) -> None:
    by_person = copy.copy(other)
    by_person.privacy_ = replace(other.privacy_, unit="person")
    assert dpvb.compare(model, by_person).to_frame().attrs["epsilon"] == math.inf
