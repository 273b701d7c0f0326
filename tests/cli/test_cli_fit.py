"""`dpvb fit NAME` follows the estimators: options, help and names in errors."""

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
from test_cli import refuse, run, without_counts

import dpvb
from dpvb.cli import fit
from dpvb.estimators import PrivateEstimator
from dpvb.guards.missing_arguments import described

NAMES = [
    "lda",
    "logistic",
    "binomial",
    "factors",
    "gaussian-hidden-markov",
    "hidden-markov",
    "linear",
    "linear-dynamical",
    "markov-chain",
    "mixture",
    "naive-bayes",
    "pca",
    "poisson",
    "negative-binomial",
    "sbn",
]


def parameters(name: str) -> dict[str, Any]:
    """The command's parameters as its parser has them."""
    return {parameter.name: parameter for parameter in fit._command(name).params}


def test_every_kind_with_a_command_has_it() -> None:
    assert sorted(fit.kinds()) == sorted(NAMES)
    assert all(kind is getattr(dpvb, kind.__name__) for kind in fit.kinds().values())
    summaries = fit.summaries()
    assert sorted(summaries) == sorted(NAMES)
    assert all(parameters(name) and fit._command(name).help.startswith(summaries[name]) for name in NAMES)


@pytest.mark.parametrize(("args", "shown"), [(["--help"], "fit"), (["fit", "--help"], "negative-binomial")])
def test_the_commands_are_listed_without_the_estimators(args: list[str], shown: str) -> None:
    program = f"import sys; from dpvb.cli import app; app({args}, standalone_mode=False)"
    program += "; assert not any(name.startswith('dpvb.estimators') or name == 'sklearn' for name in sys.modules)"
    assert shown in subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_an_estimator_is_an_option_with_its_docstrings_help(name: str) -> None:
    kind, options = fit.kinds()[name], parameters(name)
    assert set(inspect.signature(kind).parameters) <= options.keys()
    for one, parameter in inspect.signature(kind).parameters.items():
        option = options[one]
        assert option.opts[0] == f"--{kind._spelled.get(one, one).replace('_', '-')}"
        assert option.required == (parameter.default is parameter.empty)
        if one == "vocabulary":
            continue  # a file of words here
        if one == "token_pattern":
            continue  # an option of the file
        assert option.help == fit.help_of(kind, described(kind)[one])
        assert not any(f"`{other}`" in option.help for other in options)
        assert "None (default)" not in option.help
        if not option.required:
            given = tuple(map(str, parameter.default)) if isinstance(parameter.default, tuple) else parameter.default
            assert option.default == given


def test_a_kind_may_be_written_as_in_python_and_an_unknown_one_is_told_all_kinds() -> None:
    assert "--max-count" in run("fit", "negative_binomial", "--help").stdout
    refused = run("fit", "negbin", "people.csv", code=2).stderr
    assert "There is no model 'negbin'. Models: " in refused
    assert all(name in refused for name in NAMES)


def test_types_are_those_of_the_annotations() -> None:
    lda, logistic = parameters("lda"), parameters("logistic")
    assert [lda[name].type.name for name in ("tol", "max_iter", "estimate", "clip_scale", "random_state")] == [
        *("float", "integer", "text", "float", "integer"),
    ]
    assert lda["fixed_iterations"].is_flag
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
        "--max-row-norm",
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


def test_a_new_kind_needs_nothing_but_its_own_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Doubled(dpvb.LogisticRegression):
        """A regression of a test.

        Args:
            double_norm: twice the bound on a row.
        """

        double_norm: float = 2.0

        _command: ClassVar[str | None] = "doubled"
        _spelled: ClassVar[dict[str, str]] = {"double_norm": "norm-two"}

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
            "--max-row-norm",
            "1",
        ]
        run("fit", "doubled", tmp_path / "x.npy", *given, "--out", tmp_path / "m.dpvb")
        assert dpvb.load(tmp_path / "m.dpvb").double_norm == 3.0
        assert "coef" in run("show", tmp_path / "m.dpvb", "--help").stdout
    finally:
        del PrivateEstimator._registered["Doubled"]
    assert "doubled" not in fit.kinds()


def test_a_number_of_topics_may_be_a_word(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(f"w{chr(97 + v)}" for v in range(20)))
    (tmp_path / "notes.txt").write_text("wa wb wc\n" * 30)
    budget = ["--epsilon", 1, "--delta", 1e-5, "--vocabulary", tmp_path / "words.txt", "--out", tmp_path / "m.dpvb"]
    run("fit", "lda", tmp_path / "notes.txt", "--topics", "auto", "--n-units", 20_000, "--n-steps", 5, *budget)
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
    run(*given, "--public-prior", "--n-steps", 0)
    assert "2 topics of a model whose data are said to be public" in " ".join(run("show", out).stdout.split())


def test_a_list_that_ships_with_the_package_is_vocabulary_and_prior(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the river and the rock\nnew people\n" * 30)
    out, listed = tmp_path / "notes.dpvb", ["--vocabulary", "english:40", "--prior", "english"]
    budget = ["--topics", 2, "--epsilon", 1, "--delta", 1e-5, "--n-steps", 1, "--out", out]
    run("fit", "lda", tmp_path / "notes.txt", *listed, *budget)
    said = " ".join(run("show", out).stdout.split())
    assert "the vocabulary, 40 terms; source: the most frequent words of the public list 'english' of dpvb" in said
    assert "word frequencies of the public list 'english' of dpvb (wordfreq 3.1.1, CC BY-SA 4.0)" in said
    refused = run("fit", "lda", tmp_path / "notes.txt", "--vocabulary", "german", *budget[:-2], "--out", "x", code=2)
    assert "--token-pattern 'unicode' makes them" in " ".join(refused.stderr.split())


@pytest.mark.guarantees("excluded people")
def test_persons_of_earlier_months_are_left_out_and_nothing_says_so(tmp_path: Path) -> None:
    """The file of persons decides no message, whatever is in it."""
    rows = "".join(f"p{n},the river and the rock\n" for n in range(40))
    (tmp_path / "march.csv").write_text(f"who,text\n{rows}")
    (tmp_path / "public.csv").write_text("text\nriver rock\nnew people\n")
    words, budget = ["--vocabulary", "english:2000"], ["--delta", 1e-5, "--n-steps", 1, "--epsilon"]
    run("fit", "lda", tmp_path / "public.csv", "--topics", 2, *words, *budget, "inf", "--out", tmp_path / "public.dpvb")
    given = ["fit", "lda", tmp_path / "march.csv", "--topics", "auto", "--prior", tmp_path / "public.dpvb", *words]
    given += ["--public-prior", *budget, 1e6, "--group-column", "who"]
    said = set()
    for name, content, counted in (
        ("all", "\n".join(f"p{n}" for n in range(40)), 0),
        ("some", "p1\r\np3\n\n", 38),
        ("none", "", 40),
        ("odd", "\0\n\xff,\n" * 9, 40),
    ):
        ids, out = tmp_path / "persons.txt", tmp_path / "march.dpvb"
        ids.write_text(content)
        told = run(*given, "--exclude-groups", ids, "--out", out, "--overwrite").stderr
        said.add(without_counts(told))
        assert dpvb.load(out).privacy_.counts.included == pytest.approx(counted, abs=1), name
    assert len(said) == 1
    refused = run(*given[:-2], "--exclude-groups", ids, "--out", tmp_path / "x.dpvb", code=2).stderr
    assert "--group-column must name the column of persons" in refused
    assert (
        "cannot be read"
        in run(*given, "--exclude-groups", tmp_path / "gone", "--out", tmp_path / "x.dpvb", code=2).stderr
    )


def test_public_documents_need_no_budget_and_their_model_is_a_public_prior(tmp_path: Path) -> None:
    (tmp_path / "public.txt").write_text("the river and the rock\nnew people\n" * 30)
    words, out = ["--vocabulary", "english:60"], ["--out", tmp_path / "x.dpvb"]
    known, notes = tmp_path / "public.dpvb", tmp_path / "public.txt"
    told = run("fit", "lda", notes, "--public", "--topics", 2, *words, "--out", known).stderr
    assert "public data, no privacy claimed" in told
    assert "not recorded" not in told
    said = " ".join(run("show", known).stdout.split())
    assert "PUBLIC DATA: the caller stated that the data are public. No privacy is claimed for them." in said
    assert "NO PRIVACY" not in said
    given = ["fit", "lda", notes, "--topics", "auto", "--prior", known, *words, "--n-steps", 0]
    run(*given, "--epsilon", 1, "--delta", 1e-5, *out)
    said = " ".join(run("show", tmp_path / "x.dpvb").stdout.split())
    assert "2 topics of a model whose data are said to be public" in said
    run("ledger", "init", tmp_path / "b.db")
    for wrong, refused in (
        (["--epsilon", 1], "--epsilon must be inf with --public: public documents need no noise"),
        (["--ledger", tmp_path / "b.db", "--dataset", "x"], "--ledger must be left out with --public"),
    ):
        assert refused in run("fit", "lda", notes, "--public", *words, *wrong, *out, "--overwrite", code=2).stderr
    assert "Missing option '--epsilon'" in run("fit", "lda", notes, *words, *out, code=2).stderr
