"""`dpvb fit NAME` says what the estimators say: options, help, names in errors, and what earlier versions kept."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import sparse
from test_cli import refuse, run

import dpvb
from dpvb.cli import fit
from dpvb.estimators import PrivateEstimator

NAMES = ["lda", "logistic", "binomial", "mixture", "poisson", "negbin", "sbn"]


def parameters(name: str) -> dict[str, Any]:
    """The command's parameters as its parser has them."""
    return {parameter.name: parameter for parameter in fit._command(name).params}


def docstrings(kind: type) -> str:
    return " ".join(" ".join((vars(base).get("__doc__") or "").split()) for base in kind.__mro__)


def test_every_kind_with_a_command_has_it() -> None:
    assert sorted(fit.kinds()) == sorted(NAMES)
    assert all(kind is getattr(dpvb, kind.__name__) for kind in fit.kinds().values())
    summaries = fit.summaries()
    assert sorted(summaries) == sorted(NAMES)
    assert all(parameters(name) and fit._command(name).help.startswith(summaries[name]) for name in NAMES)


@pytest.mark.parametrize(("args", "shown"), [(["--help"], "fit"), (["fit", "--help"], "negbin")])
def test_the_commands_are_listed_without_the_estimators(args: list[str], shown: str) -> None:
    program = f"import sys; from dpvb.cli import app; app({args}, standalone_mode=False)"
    program += "; assert not any(name.startswith('dpvb.estimators') or name == 'sklearn' for name in sys.modules)"
    assert shown in subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_an_estimator_is_an_option_with_its_docstrings_help(name: str) -> None:
    kind, options, words = fit.kinds()[name], parameters(name), docstrings(fit.kinds()[name])
    assert set(inspect.signature(kind).parameters) <= options.keys()
    for one, parameter in inspect.signature(kind).parameters.items():
        option = options[one]
        assert option.opts[0] == f"--{kind.spelled.get(one, one).replace('_', '-')}"
        assert option.required == (parameter.default is parameter.empty)
        if one == "vocabulary":
            continue  # a file of words here
        before, text, _ = words.partition(option.help[1:])
        assert text
        assert before.lower().endswith(f": {option.help[0].lower()}")
        assert one in before.rpartition(":")[0].rpartition(". ")[2]
        if not option.required:
            given = tuple(map(str, parameter.default)) if isinstance(parameter.default, tuple) else parameter.default
            assert option.default == given


def test_types_are_those_of_the_annotations() -> None:
    lda, logistic = parameters("lda"), parameters("logistic")
    assert [lda[name].type.name for name in ("tol", "max_iter", "read", "clip", "random_state")] == [
        *("float", "integer", "text", "float", "integer"),
    ]
    assert lda["fixed_work"].is_flag
    assert logistic["fit_intercept"].secondary_opts == ["--no-intercept"]
    assert logistic["classes"].nargs == 2
    assert "trials" in parameters("binomial")
    assert "trials" not in logistic


def test_a_parameter_arrives_at_the_estimator(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(4)[:, :3])
    np.save(tmp_path / "y.npy", np.array(["no", "yes", "no", "yes"]))
    given = [
        "--target",
        tmp_path / "y.npy",
        "--out",
        tmp_path / "m.dpvb",
        "--quiet",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
    ]
    more = [
        "--classes",
        "no",
        "yes",
        "--alpha",
        "2",
        "--no-intercept",
        "--accountant",
        "renyi",
        "--seed",
        "7",
        "--row-norm",
        "1",
    ]
    said = run("fit", "logistic", tmp_path / "x.npy", *given, *more).stderr
    assert "LogisticRegression, epsilon = " in said
    model = dpvb.load(tmp_path / "m.dpvb")
    assert (model.alpha, model.fit_intercept, model.accountant, model.random_state) == (2.0, False, "renyi", 7)
    assert model.classes == ("no", "yes")


def test_errors_name_the_options_of_the_command(tmp_path: Path) -> None:
    np.save(tmp_path / "sbn.npy", np.eye(4))
    sparse.save_npz(tmp_path / "lda.npz", sparse.csr_array(np.eye(4)))
    for name, option, value, said in (
        ("sbn", "--hidden", "0", "--hidden must be"),
        ("lda", "--topics", "0", "--topics must be"),
        ("lda", "--max-iter", "0", "--max-iter must be"),
        ("sbn", "--seed", "-1", "--seed must be"),
    ):
        given = [option, value, "--out", tmp_path / "m", "--epsilon", "1", "--delta", "1e-5", "--quiet"]
        refuse(tmp_path, said, "fit", name, next(tmp_path.glob(f"{name}.*")), *given)


# What a kept call of the first version holds: the names that its options had.
_PLAN = (
    "num_steps sampling_prob batch_size num_examples noise_multiplier neighboring_relation ledger dataset checkpoint "
)
_EVERY = f"data out epsilon delta {_PLAN} resume cluster overwrite quiet "
_ROWS = f"{_EVERY} schema target group row_norm intercept intercept_value solver covariance "
KEPT = {
    "lda": f"{_EVERY} topics vocabulary text_column group_column file_format width token_pattern stream clip "
    "document_length seed",
    "logistic": f"{_ROWS} classes",
    "binomial": f"{_ROWS} max_trials trials",
    "poisson": f"{_ROWS} max_count",
    "negbin": f"{_ROWS} dispersion max_count",
    "mixture": f"{_EVERY} groups schema counts missing seed",
    "sbn": f"{_EVERY} hidden threshold form group seed",
}


@pytest.mark.parametrize("name", NAMES)
def test_what_earlier_calls_were_given_is_known(name: str) -> None:
    """`dpvb resume` takes an option's name for its parameter's."""
    names = {word: one for one, word in fit.kinds()[name].spelled.items()}
    known = inspect.signature(fit.fitting(fit.kinds()[name])).parameters
    kept = {names.get(word, word) for word in KEPT[name].split()}
    assert kept <= known.keys()
    assert {one for one, parameter in known.items() if parameter.default is parameter.empty} <= kept


def test_a_new_kind_needs_nothing_but_its_own_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Doubled(dpvb.LogisticRegression):
        """A regression of a test.

        Args:
            double_norm: twice the bound on a row.
        """

        double_norm: float = 2.0

        command: ClassVar[str | None] = "doubled"
        spelled: ClassVar[dict[str, str]] = {"double_norm": "norm-two"}

    Doubled.__qualname__ = "Doubled"  # As if it stood at the top of this file.
    monkeypatch.setattr(sys.modules[__name__], "Doubled", Doubled, raising=False)
    try:
        assert parameters("doubled")["double_norm"].help == "Twice the bound on a row."
        shown = run("fit", "doubled", "--help").stdout
        assert "A regression of a test." in shown
        assert "dpvb fit doubled people.csv" in shown
        np.save(tmp_path / "x.npy", np.eye(4))
        np.save(tmp_path / "y.npy", np.arange(4) % 2)
        given = [
            "--target",
            tmp_path / "y.npy",
            "--epsilon",
            "1",
            "--delta",
            "1e-5",
            "--norm-two",
            "3",
            "--quiet",
            "--row-norm",
            "1",
        ]
        run("fit", "doubled", tmp_path / "x.npy", *given, "--out", tmp_path / "m.dpvb")
        assert dpvb.load(tmp_path / "m.dpvb").double_norm == 3.0
        assert "coef" in run("coef", tmp_path / "m.dpvb", "--help").stdout
    finally:
        del PrivateEstimator.kinds["Doubled"]
    assert "doubled" not in fit.kinds()


def test_a_number_of_topics_may_be_a_word(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(f"w{chr(97 + v)}" for v in range(20)))
    (tmp_path / "notes.txt").write_text("wa wb wc\n" * 30)
    budget = ["--epsilon", 1, "--delta", 1e-5, "--vocabulary", tmp_path / "words.txt", "--out", tmp_path / "m.dpvb"]
    run("fit", "lda", tmp_path / "notes.txt", "--topics", "auto", "--num-examples", 20_000, *budget)
    assert len(dpvb.load(tmp_path / "m.dpvb").components_) > 1
    for wrong in ("many", "0", "2.5"):
        refused = run("fit", "lda", tmp_path / "notes.txt", "--topics", wrong, *budget[:-2], "--out", "x", code=2)
        assert "--topics" in refused.stderr


def test_a_model_of_public_documents_is_the_prior_of_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(f"w{chr(97 + v)}" for v in range(20)))
    (tmp_path / "public.txt").write_text("wa wb wc wd\nwe wf wg wh\n" * 50)
    (tmp_path / "notes.txt").write_text("wa wb wc\n" * 30)
    words, budget = ["--vocabulary", tmp_path / "words.txt"], ["--delta", 1e-5, "--epsilon"]
    known, out = tmp_path / "public.dpvb", tmp_path / "notes.dpvb"
    run("fit", "lda", tmp_path / "public.txt", "--topics", 2, *words, *budget, "inf", "--out", known)
    given = ["fit", "lda", tmp_path / "notes.txt", "--topics", "auto", "--prior", known, *words]
    given += [*budget, 1, "--out", out]
    assert "--public-prior" in run(*given, code=2).stderr
    run(*given, "--public-prior", "--num-steps", 0)
    assert "2 topics of a model whose documents are said to be public" in " ".join(run("show", out).stdout.split())
