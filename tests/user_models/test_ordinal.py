"""A stranger's ordinal regression, written from docs/new-model.md in public names, opens every door that ours open."""

from __future__ import annotations

import ast
import math
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CliRunner
from each import each
from ordinal import ProportionalOdds
from planted import edit, kills
from scipy.optimize import minimize
from scipy.special import expit, log_expit, ndtri

import dpvb
from dpvb import federated
from dpvb.audit.neighbours import check_bits
from dpvb.cli import app
from dpvb.data import Design, Numeric, Response, Schema, Table, Target
from dpvb.errors import NotSettledWarning, ParameterError, PrivacyError
from dpvb.federated.config import Agreement
from dpvb.testing import Case, check_model

HERE = Path(__file__).parent
LEVELS = Response("classes", classes=("poor", "fair", "good", "best"))
BETA, THETA = np.array([1.5, -1.0, 0.5, 0.0]), np.array([-1.0, 0.0, 1.5])
COLUMNS = ("a", "b", "c", "d")
GIVEN: dict[str, Any] = {"delta": 1e-6, "random_state": 0, "max_row_norm": 2.0, "response": LEVELS}


def people(n: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x_nd = rng.uniform(-1, 1, (n, len(BETA)))
    place_n = ((x_nd @ BETA + rng.logistic(size=n))[:, None] > THETA).sum(axis=1)
    return x_nd, np.array(LEVELS.classes, dtype=object)[place_n]


def odds(epsilon: float = 1.0, model: Any = None, **options: Any) -> Any:
    return dpvb.PrivateModel(model or ProportionalOdds(COLUMNS, 4), epsilon=epsilon, **{**GIVEN, **options})


@pytest.fixture(scope="module")
def fitted() -> Any:
    return odds().fit(*people())


def estimates(model: Any) -> dict[str, float]:
    return {name: mean for name, mean, _, _ in model.intervals()}


def test_its_file_imports_public_names_alone() -> None:
    for node in ast.walk(ast.parse((HERE / "ordinal.py").read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert not name.startswith("dpvb.") or name == "dpvb.kernels.linear", name


def labels(case: str) -> tuple[np.ndarray, np.ndarray]:
    """5,000 rows whose levels are usual, 99 % at one end, of one level, or told apart by the columns in full."""
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-1, 1, (5_000, 4))
    skewed = {"low": [5.0, 6.0, 7.0], "high": [-7.0, -6.0, -5.0], "usual": THETA}
    if case in skewed:
        return x_nd, ((x_nd @ BETA + rng.logistic(size=len(x_nd)))[:, None] > skewed[case]).sum(axis=1)
    if case == "separated":
        return x_nd, ((x_nd @ BETA)[:, None] > THETA).sum(axis=1)
    return x_nd, {
        "separated in two": np.where(x_nd[:, 0] > 0.3, 3, 0),
        "separated and skewed": np.where(x_nd[:, 0] > 0.98, 1, 0),
        "lowest only": np.zeros(len(x_nd), dtype=int),
        "second only": np.ones(len(x_nd), dtype=int),
        "highest only": np.full(len(x_nd), 3),
    }[case]


class FromThePrior(ProportionalOdds):
    """Scores begin at the mean of the prior, far from the rates of the levels."""

    def started(self, s: Any, q: Any) -> Any:
        return super().started(s, q) if s.phase == "second" else q


@each(
    "case",
    [
        *("usual", "low", "high", "separated", "separated in two", "separated and skewed"),
        *("lowest only", "second only", "highest only"),
    ],
)
def test_without_noise_it_reaches_the_posterior_mode_from_any_start(case: str) -> None:
    """Against a general optimiser, which shares no code with the model, up to 1e-4."""
    x_nd, level_n = labels(case)
    rows_nd = x_nd / 2.0

    def loss(m_p: np.ndarray) -> tuple[float, np.ndarray]:
        gap_j = np.logaddexp(0, np.maximum(m_p[1:3], -30.0))
        theta_j = np.concatenate([[-np.inf], m_p[0] + np.append(0.0, np.cumsum(gap_j)), [np.inf]])
        at_n = rows_nd @ m_p[3:]
        upper_n, lower_n = theta_j[level_n + 1] - at_n, theta_j[level_n] - at_n
        # log(σ(u) - σ(l)) in a form without cancellation.
        both = log_expit(upper_n) + log_expit(-lower_n) + np.log(-np.expm1(np.maximum(lower_n - upper_n, -700)))
        up_n = 1 - expit(upper_n) + 1 / np.expm1(np.minimum(upper_n - lower_n, 700))
        low_n = -expit(lower_n) - 1 / np.expm1(np.minimum(upper_n - lower_n, 700))
        by_theta_j = np.bincount(level_n, up_n, 4)[:3] + np.bincount(level_n, low_n, 4)[1:]
        by_gap_j = np.cumsum(by_theta_j[::-1])[::-1][1:] * expit(m_p[1:3])
        gradient_p = np.concatenate([[by_theta_j.sum()], by_gap_j, -(up_n + low_n) @ rows_nd])
        return float(-both.sum() + 0.05 * m_p @ m_p), -gradient_p + 0.1 * m_p

    mode_p = np.zeros(7)
    for _ in range(5):
        mode_p = minimize(loss, mode_p, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 10_000}).x
    assert np.abs(loss(mode_p)[1]).max() < 2e-5, case
    for kind in (ProportionalOdds, FromThePrior):
        model = odds(math.inf, kind(COLUMNS, 4, n_steps=100)).fit(x_nd, np.array(LEVELS.classes, object)[level_n])
        np.testing.assert_allclose(model.q_.known.posterior()[0], mode_p, atol=1e-4, err_msg=kind.__name__)


@each("case", ["high", "second only", "separated in two", "highest only"])
def test_a_path_that_has_not_settled_says_so(case: str) -> None:
    x_nd, level_n = labels(case)
    y_n = np.array(LEVELS.classes, object)[level_n]
    with pytest.warns(NotSettledWarning, match=r"16 steps have not settled: .* FixedCurvature\.at"):
        odds(math.inf, FromThePrior(COLUMNS, 4)).fit(x_nd, y_n)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotSettledWarning)
        odds(math.inf, ProportionalOdds(COLUMNS, 4, n_steps=100)).fit(x_nd, y_n)


def test_intervals_include_the_noise_and_hold_the_truth(fitted: Any) -> None:
    """At level 1 - 1e-7 each of four intervals misses with a chance of 1e-7: a false alarm below 1e-6 in all."""
    report = fitted.report()
    assert [row[0] for row in report.figures[0].rows] == ["threshold", "gap 1", "gap 2", *COLUMNS]
    ends = {name: (low, high) for name, _, low, high in fitted.intervals(1 - 1e-7)}
    for name, truth in zip(COLUMNS, 2 * BETA, strict=True):  # per row, which is x/2
        assert ends[name][0] < truth < ends[name][1], name
    # At ε = 0.1 the noise of the averaged scores is beyond their sampling error.
    widths = [
        sum(high - low for _, _, low, high in odds(epsilon).fit(*people()).intervals()[3:])
        for epsilon in (math.inf, 0.1)
    ]
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.slow  # The mixture beside it is held against every law each day.
def test_it_keeps_every_law() -> None:
    def source(matrix: np.ndarray, person: Any = None) -> Design:
        return Design(matrix[:, 1:], matrix[:, 0], response=replace(LEVELS, classes=(0, 1, 2, 3)), group=person)

    def ordinary(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.column_stack([rng.integers(0, 4, n), rng.uniform(-0.5, 0.5, (n, 4))])

    hostile = np.array(
        [[0, 1, 1, 1, 1], [3, -1, -1, -1, -1], [1, 1e300, 0, 0, 0], [2, 0, 0, 1e-300, 0], [9, 0, 0, 0, 0]]
    )
    check_model(Case("ordinal", ProportionalOdds(COLUMNS, 4), source, ordinary, hostile, responses=1))


def test_it_is_charged_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-6)
        model, place = odds(), {"ledger": ledger, "dataset": "people", "checkpoint": tmp_path / "run"}

        def stop(step: int, plan: Any) -> None:
            if step == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            model.fit(*people(2_000), run=dpvb.Run(progress=stop, **place))
        model.fit(*people(2_000), run=dpvb.Run(**place))
        assert sum(entry.kind in ("charge", "sole") for entry in ledger.entries()) == 1
        assert ledger.remaining("people").epsilon < 1e-3
    assert np.isfinite([*estimates(model).values()]).all()


def test_it_goes_to_a_file_and_back(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    assert again.intervals() == fitted.intervals()
    assert (again.response, again.privacy_) == (LEVELS, fitted.privacy_)
    assert "columns = ('a', 'b', 'c', 'd')" in " ".join(str(fitted.privacy_).split())
    assert again.score(*people(500, 1), public=True) == fitted.score(*people(500, 1), public=True)


def test_clusters_persons_owners_and_dry_runs_are_as_for_ours(two_processes: Any) -> None:
    x_nd, y_n = people(600)
    alone, spread = (odds(math.inf).fit(x_nd, y_n, run=dpvb.Run(cluster=cluster)) for cluster in (None, two_processes))
    assert alone.intervals() == spread.intervals()
    assert odds().fit(x_nd, y_n, group=np.arange(600) // 3).privacy_.unit == "person"
    parts = [(x_nd[:300], y_n[:300]), (x_nd[300:], y_n[300:])]
    assert len(federated.simulate(odds(), parts, trust="secure_aggregation").intervals()) == 7
    assert odds().dry_run(width=4, n_units=50).privacy_.dry_run


def test_it_forecasts_its_own_error() -> None:
    """At ε = 4 the curvature is far above its noise, more than ten standard deviations in every direction."""
    knowledge = dpvb.plan(odds(4.0), 20_000, width=4, epsilons=()).expected_accuracy
    name, std = knowledge.name, knowledge.number
    assert name == "posterior std of a coefficient"
    found = np.mean([(high - low) / 2 for _, _, low, high in odds(4.0).fit(*people()).intervals()[3:]]) / ndtri(0.975)
    assert 0.5 < std / found < 2
    assert dpvb.plan(odds(4.0), 2_000, width=4, epsilons=()).expected_accuracy.number > std
    assert name in str(dpvb.plan(odds(), 3_000, width=4)).lower()


def test_it_draws_rows_of_nobody(fitted: Any) -> None:
    rows = fitted.sample(20_000, 0)
    assert [*rows] == ["x0", "x1", "x2", "x3", "y"]
    assert set(rows["y"]) == set(LEVELS.classes)
    drawn = odds(math.inf).fit(np.column_stack([rows[f"x{j}"] for j in range(4)]), rows["y"])
    # Noise of the first fit and sampling of both: 0.05 each.
    np.testing.assert_allclose([*estimates(drawn).values()][3:], [*estimates(fitted).values()][3:], atol=0.5)


@pytest.mark.guarantees("public scores")
def test_it_is_scored_on_public_rows_alone_and_selected(fitted: Any) -> None:
    held_out = people(2_000, 5)
    assert -1.4 < fitted.score(*held_out, public=True) < -1.0
    with pytest.raises(PrivacyError, match="public=True"):
        fitted.score(*held_out)
    settings = [{"model": ProportionalOdds(COLUMNS, 4, alpha=alpha)} for alpha in (0.1, 1e6)]
    best = dpvb.private_select(odds(), settings, *people(5_000), epsilon=2.0, delta=1e-6)
    assert best.model in [setting["model"] for setting in settings]


def test_an_earlier_fit_of_other_people_is_its_prior(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "earlier.dpvb")
    few = people(300, 7)
    alone, helped = (odds(prior=prior).fit(*few) for prior in (None, tmp_path / "earlier.dpvb"))
    distance = [
        sum((estimates(model)[name] - 2 * b) ** 2 for name, b in zip(COLUMNS, BETA, strict=True))
        for model in (alone, helped)
    ]
    assert distance[1] < distance[0]
    assert any("an earlier release" in said for said in helped.privacy_.public)
    with pytest.raises(ParameterError, match=r"prior must be .*, got LogisticRegression"):
        odds(
            prior=dpvb.LogisticRegression(max_row_norm=1.0, epsilon=1.0, delta=1e-6).fit(few[0], few[1] == "best")
        ).fit(*few)
    with pytest.raises(ParameterError, match="the max_row_norm of the fit, 3; its own is 2"):
        odds(prior=fitted, max_row_norm=3.0).fit(*few)


@pytest.mark.guarantees("public scores")
def test_the_same_people_are_no_prior(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-5)
        place = dpvb.Run(ledger=ledger, dataset="people")
        first = odds().fit(*people(500), run=place)
        with pytest.raises(ParameterError, match="must come from other people"):
            odds(prior=first).fit(*people(500), run=place)
        assert ledger.remaining("people").num_charges == 1


def table(folder: Path, n: int = 2_000) -> tuple[Path, Path]:
    x_nd, y_n = people(n)
    lines = [",".join([*COLUMNS, "health"]), *(",".join([*map(str, row), y]) for row, y in zip(x_nd, y_n, strict=True))]
    (folder / "people.csv").write_text("\n".join(lines))
    target = Target("health", kind="classes", classes=LEVELS.classes)
    Schema([Numeric(name, -1, 1) for name in COLUMNS], target=target).save(folder / "people.json")
    return folder / "people.csv", folder / "people.json"


def test_a_table_brings_rows_and_labels(tmp_path: Path) -> None:
    data, schema = table(tmp_path)
    given = {**GIVEN, "max_row_norm": None, "response": None, "epsilon": math.inf}
    by_table = dpvb.PrivateModel(ProportionalOdds(COLUMNS, 4), **given).fit(Table(data, Schema.load(schema)))
    by_arrays = odds(math.inf).fit(*people(2_000))
    found = [[*estimates(model).values()][3:] for model in (by_table, by_arrays)]
    # A table's rows are divided by its own norm.
    np.testing.assert_allclose(np.array(found[0]) * found[1][0] / found[0][0], found[1], atol=0.1)
    with pytest.raises(ParameterError, match="The schema's target and the model's parameters must agree"):
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-6).fit(Table(data, Schema.load(schema)))


@pytest.mark.guarantees("undeclared labels")
@kills("leaks", "a label that is none of the levels counts as one of them")
@edit("data/tables/response.py", "return np.where(code_n < 0, np.nan, code_n)", "return np.maximum(code_n, 0) + 0.0")
def test_a_label_outside_the_levels_makes_its_row_no_row() -> None:
    x_nd, y_n = people(500)
    strange = np.append(y_n, ["none of them"] * 50)
    one, other = (odds(math.inf).fit(*given) for given in ((x_nd, y_n), (np.vstack([x_nd, x_nd[:50]]), strange)))
    assert one.intervals() == other.intervals()


@pytest.mark.parametrize(
    ("options", "y", "said"),
    [
        ({"response": None}, True, "y needs response="),
        ({}, False, "y must be given"),
        ({"response": "labels"}, True, r"response must be a dpvb\.data\.Response"),
        ({"response": Response("binomial", max_trials=3)}, True, "without trials"),
    ],
)
def test_labels_and_what_they_may_be_go_together(options: Any, y: bool, said: str) -> None:
    x_nd, y_n = people(50)
    with pytest.raises(ParameterError, match=said):
        odds(**options).fit(x_nd, y_n if y else None)


def test_every_label_is_tried_before_anything_is_spent(tmp_path: Path) -> None:
    """A model of three levels with four labels: the error names the label and the cause, and nothing is charged."""
    x_nd, y_n = people(50)
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-6)
        with pytest.raises(ParameterError, match=r"e_step on a row of zeros.* with y = .*'best'.* gave IndexError"):
            odds(model=ProportionalOdds(COLUMNS, 3)).fit(x_nd, y_n, run=dpvb.Run(ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == 0


def test_a_check_that_fails_names_the_record_and_the_cause() -> None:
    def source(matrix: np.ndarray, person: Any = None) -> Design:
        return Design(matrix[:, 1:], matrix[:, 0], response=replace(LEVELS, classes=(0, 1, 2, 3)), group=person)

    def ordinary(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.column_stack([rng.integers(0, 4, n), rng.uniform(-0.5, 0.5, (n, 4))])

    case = Case("ordinal", ProportionalOdds(COLUMNS, 3), source, ordinary, np.ones((3, 5)), responses=1)
    found = {check_bits(part).measured for part in case.parts()}
    assert any(re.search(r"ordinary records: record \d+, \[3, .*\], gives IndexError: index 3 ", one) for one in found)


@pytest.mark.parametrize("method", ["m_step", "finished"])
def test_a_model_that_learns_nothing_from_a_release_is_refused(method: str) -> None:
    kind = type("Deaf", (ProportionalOdds,), {method: getattr(dpvb.Model, method)})
    with pytest.raises(ParameterError, match=f"must define {method}"):
        odds(model=kind(COLUMNS, 4)).fit(*people(50))


@pytest.mark.parametrize(
    ("method", "value", "said"),
    [
        ("figures", lambda self, q: ["a picture"], "figures gave TypeError"),
        ("intervals", lambda self, q, level: [("a", 1.0)], "intervals gave ValueError"),
        ("sample", lambda self, q, n, rng: np.zeros((1, 4)), "sample gave ValueError"),
        ("as_prior", lambda self, q: {"no_field": 1}, "as_prior gave TypeError"),
    ],
)
def test_what_a_model_shows_is_tried_before_anything_is_spent(method: str, value: Any, said: str) -> None:
    kind = type("Odd", (ProportionalOdds,), {method: value})
    with pytest.raises(ParameterError, match=said):
        odds(model=kind(COLUMNS, 4)).fit(*people(50))


@pytest.mark.parametrize(
    "call", [lambda m: m.intervals(), lambda m: m.sample(3), lambda m: m.score(*people(5), public=True)]
)
def test_what_a_model_does_not_define_is_refused_with_a_sentence(call: Any) -> None:
    bare = {name: getattr(dpvb.Model, name) for name in ("intervals", "sample", "score")}
    model = odds(model=type("Bare", (ProportionalOdds,), bare)(COLUMNS, 4)).fit(*people(50))
    with pytest.raises(ParameterError, match=r"must define \w+\(\.\.\.\), and Bare does not"):
        call(model)


# The command line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the stranger's file under another name, which no process has imported."""
    shutil.copy(HERE / "ordinal.py", tmp_path / "my_odds.py")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("my_odds", "uses", "beside", "checks"):
        sys.modules.pop(name, None)


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [*map(str, words)])


def test_the_command_line_opens_it(folder: Path) -> None:
    data, schema = table(folder)
    fit = ("fit", "my_odds:ProportionalOdds", data, "--schema", schema, "--columns", "a,b,c,d", "--n-levels", 4)
    budget = ("--epsilon", 1, "--delta", 1e-6, "--out", "m.dpvb")
    refused = run(*fit, *budget)
    assert refused.exit_code == 2
    assert "dpvb --import my_odds" in refused.stderr
    for words in (
        (*fit, *budget),
        ("show", "m.dpvb"),
        ("show", "m.dpvb", "--what", "estimates"),
        ("report", "m.dpvb", "--out", "m.html"),
        ("synthesize", "m.dpvb", "--rows", 5, "--out", "s.csv"),
    ):
        done = run("--import", "my_odds", *words)
        assert done.exit_code == 0, done.stderr
    assert "threshold" in (folder / "m.html").read_text()
    assert (folder / "s.csv").read_text().splitlines()[0] == "a,b,c,d,health"
    # An auditor reads statements without the code of the model's author.
    del sys.modules["my_odds"]
    for words in (("show", "m.dpvb"), ("show", "m.dpvb", "--what", "brief"), ("show", "m.dpvb", "--json")):
        assert run(*words).exit_code == 0
    assert "import its module first" in run("show", "m.dpvb", "--what", "estimates").stderr


@pytest.mark.guarantees("imports")
@kills("leaks", "a file of the folder comes before an installed module")
@edit(
    "guards/imports.py",
    "if name in sys.modules or find_spec(name) is not None:",
    "if not file.is_file():",
)
def test_only_the_named_module_is_imported_and_an_installed_one_comes_first(folder: Path) -> None:
    (folder / "colorsys.py").write_text("raise SystemExit('taken from the folder of the data')")
    (folder / "uses.py").write_text("import beside")
    (folder / "beside.py").write_text("")
    before = [*sys.path]
    assert run("--import", "colorsys", "demo", "--help").exit_code == 0
    failed = run("--import", "uses", "show", "m.dpvb")
    assert failed.exit_code == 2
    assert "No module named 'beside'" in failed.stderr
    assert "must be the name of a module" in run("--import", "../uses", "show", "m.dpvb").stderr
    assert sys.path == before


def test_a_case_of_ones_own_is_audited_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "checks.py").write_text("CASE = None")
    done = run("--import", "checks", "audit", "checks:CASE")
    assert done.exit_code == 2
    assert "must be a dpvb.audit.Case" in done.stderr


def test_an_agreement_names_it(tmp_path: Path) -> None:
    key = "11" * 32
    (tmp_path / "agreement.toml").write_text(
        f"""
        kind = "PrivateModel"
        epsilon = 1.0
        delta = 1e-6
        trust = "none"
        width = 4
        [model]
        max_row_norm = 2.0
        model = {{class = "ordinal:ProportionalOdds", columns = ["a", "b", "c", "d"], n_levels = 4}}
        response = {{kind = "classes", classes = ["poor", "fair", "good", "best"]}}
        [server]
        key = "{key}"
        [clients]
        a = "{"22" * 32}"
        b = "{"33" * 32}"
        """
    )
    estimator = Agreement.load(tmp_path / "agreement.toml").estimator()
    assert (estimator.model, estimator.response) == (ProportionalOdds(COLUMNS, 4), LEVELS)
    unknown = (tmp_path / "agreement.toml").read_text().replace("ordinal:", "never_imported:")
    (tmp_path / "agreement.toml").write_text(unknown)
    with pytest.raises(ParameterError, match=re.escape("import its module first")):
        Agreement.load(tmp_path / "agreement.toml").estimator()
