"""The command line on small real files: end to end, bad input, silence about private numbers."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_models
import pytest
from command_line import CliRunner
from planted import edit, kills
from scipy import io, sparse

import dpvb
from dpvb import accounting, cli
from dpvb.cli import files, fit
from dpvb.errors import PrivacyError
from dpvb.guards.version import version_with_commit
from dpvb.results import metrics

WORDS = ["apple", "pear", "plum", "cherry", "quince", "wheel", "brake", "pedal", "saddle", "chain"]
CANARY = "zyzzyvaquux"
FIT = ["--topics", "2", "--n-steps", "2", "--seed", "1", "--public-vocabulary"]
BUDGET = ["--epsilon", "1", "--delta", "1e-4", *FIT]


def run(*args: object, code: int = 0) -> Any:
    """Call a command; code 2 stands for every error, whose codes `test_exit_codes` tells apart."""
    result = CliRunner().invoke(cli.app, [str(a) for a in args])
    assert result.exit_code in (range(2, 10) if code == 2 else [code]), (result.stdout, result.stderr, result.exception)
    return result


def corpus(num_documents: int) -> sparse.csr_array:
    rng = np.random.default_rng(3)
    counts = rng.poisson(2.0, (num_documents, len(WORDS)))
    counts[::2, :5] = 0
    counts[1::2, 5:] = 0
    return sparse.csr_array(counts)


def texts_of(counts: sparse.csr_array) -> list[str]:
    return [" ".join(np.repeat(WORDS, row)) + f" {CANARY}" for row in counts.toarray()]


@pytest.fixture(scope="module")
def words_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return path


def write(folder: Path, name: str, num_documents: int = 60) -> Path:
    counts = corpus(num_documents)
    texts, path = texts_of(counts), folder / name
    if name == "folder":
        path.mkdir()
        for n, text in enumerate(texts):
            (path / f"{n:04}.txt").write_text(text)
    elif name.endswith(".npz"):
        sparse.save_npz(path, counts)
    elif name.endswith(".mtx"):
        io.mmwrite(path, counts)
    elif name.startswith("docword"):
        triples = zip(*counts.tocoo().coords, counts.tocoo().data, strict=True)
        lines = [str(counts.shape[0]), str(counts.shape[1]), str(counts.nnz)]
        path.write_text("\n".join(lines + [f"{n + 1} {v + 1} {c}" for n, v, c in triples]) + "\n")
    elif name.endswith(".dat"):
        rows = [[f"{v}:{row[v]}" for v in np.flatnonzero(row)] for row in counts.toarray()]
        path.write_text("".join(f"{len(row)} {' '.join(row)}\n" for row in rows))
    elif name.endswith(".jsonl"):
        path.write_text("".join(json.dumps({"text": text, "who": n % 7}) + "\n" for n, text in enumerate(texts)))
    elif name.endswith(".csv"):
        path.write_text("id,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    elif name.endswith(".parquet"):
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    elif name.endswith(".txt.gz"):
        path.write_bytes(gzip.compress("".join(text + "\n" for text in texts).encode()))
    else:
        path.write_text("".join(text + "\n" for text in texts))
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, words_file: Path) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    out = folder / "m.dpvb"
    run("fit", "lda", write(folder, "c.npz"), "--vocabulary", words_file, "--out", out, *BUDGET)
    return out


KINDS = ["c.npz", "c.mtx", "docword.c.txt", "c.dat", "c.jsonl", "c.csv", "c.parquet", "c.txt", "c.txt.gz", "folder"]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file(tmp_path: Path, words_file: Path, name: str) -> None:
    data, out = write(tmp_path, name), tmp_path / "m.dpvb"
    reading = ["--stream"] if name == "c.txt.gz" else []
    run("fit", "lda", data, "--vocabulary", words_file, "--out", out, *reading, *BUDGET)
    bars = json.loads(run("show", out, "--what", "topics", "--words", 10, "--as", "json").stdout)
    assert sorted(one["name"] for one in bars) == sorted([*WORDS, *WORDS])
    theta = tmp_path / "theta.npz"
    run("transform", out, data, "--out", theta)
    expected = dpvb.load(out).transform(corpus(60))
    with np.load(theta) as stored:
        assert stored["proportions"] == pytest.approx(expected)


def test_help_teaches_and_starts_fast() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = [sys.executable, "-c", "from dpvb.cli import app; app()", "--help"]
    shown = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    for command in ("plan", "fit", "transform", "evaluate", "show", "demo"):
        assert command in shown
    for command in (["plan"], ["fit", "lda"], ["transform"], ["evaluate"], ["show"], ["demo"]):
        assert f"dpvb {' '.join(command)} " in run(*command, "--help").stdout


def test_version() -> None:
    assert run("--version").stdout == f"{version_with_commit()}\n"
    assert version_with_commit().startswith(dpvb.__version__)


def test_plan_as_json_agrees_with_the_accountant() -> None:
    result = run(*("plan", "--epsilon", "1", "--delta", "1e-5", "--sampling-prob", "0.1", "--n-steps", "10", "--json"))
    facts = json.loads(result.stdout)
    assert result.stderr.strip() == ""
    same = {"sampling_prob": 0.1, "n_steps": 10, "noise_multiplier": facts["noise_multiplier"]}
    assert facts["epsilon"] == pytest.approx(accounting.epsilon(**same, delta=1e-5))
    assert 0.995 <= facts["epsilon"] <= 1.0
    deltas, epsilons = zip(*facts["curve"], strict=True)
    assert list(epsilons) == sorted(epsilons)
    assert list(deltas) == sorted(deltas, reverse=True)
    assert facts["noise_of_average"] == pytest.approx(facts["noise_multiplier"] / 0.1 / math.sqrt(10))


def test_plan_of_a_full_batch_is_the_closed_form() -> None:
    facts = json.loads(run("plan", "--epsilon", "0.5", "--n-steps", "20", "--delta", "1e-4", "--json").stdout)
    # ACCOUNTING: one Gaussian release of noise 5.8938 meets (0.5, 1e-4); 20 take sqrt(20) times as much.
    assert facts["noise_multiplier"] == pytest.approx(5.8938 * math.sqrt(20), rel=2e-3)
    assert facts["noise_of_average"] == pytest.approx(5.8938, rel=2e-3)


def test_plan_from_noise_and_in_words() -> None:
    arguments = ["--noise-multiplier", "1.24", "--sampling-prob", "0.05", "--n-steps", "20", "--delta", "1e-4"]
    facts = json.loads(run("plan", *arguments, "--json").stdout)
    assert facts["epsilon"] == pytest.approx(0.932, rel=5e-3)
    assert json.loads(run("plan", "--noise-multiplier", "0", "--json").stdout)["epsilon"] == "inf"


def test_plan_forecasts_topics() -> None:
    given = ("plan", "lda", "--n-units", 2000, "--width", 7702, "--topics", 10, "--epsilon", 1, "--delta", 1e-5)
    shown = run(*given).stdout
    assert shown.startswith(
        "Topics above the noise, of 10: 0, expected for 2,000 documents at epsilon = 1.\n"
        "Noise hides the result. It would not at 5 or more. This needs about 12,000 documents instead of 2,000; or "
        "epsilon = 7.3 instead of 1; or --topics = 1 instead of 10.\n"
    )
    assert "in the data guesses right with a probability of at most 73.2 %" in shown
    facts = json.loads(run(*given, "--json").stdout)
    assert facts["strength"] < 1 < facts["budget_table"][-1]["strength"]
    assert "--n-units must be" in run(*given[:2], "--n-units", 0, *given[4:], code=2).stderr
    assert "There is no model 'nonsense'" in run("plan", "nonsense", code=2).stderr
    assert "no_such:Model must be a dpvb.Model" in run("plan", "no_such:Model", code=2).stderr


def test_a_model_of_ones_own_is_planned_by_its_name_as_in_python() -> None:
    given = ("--n-units", 2000, "--width", 2, "--max-row-norm", 1, "--epsilon", 1, "--delta", 1e-5, "--json")
    facts = json.loads(run("plan", "own_models:Noting", *given, "--n-steps", 4).stdout)
    fit = dpvb.PrivateModel(own_models.Noting(n_steps=4), max_row_norm=1.0, epsilon=1.0, delta=1e-5)
    assert facts["value"] == dpvb.plan(fit, 2000, 2).expected_accuracy.number
    assert "--n-steps" in " ".join(run("plan", "own_models:Noting", "--help").stdout.split())


@pytest.mark.parametrize("words", [("lda", "--width", 50, "--topics", 3), ("markov-chain", "--symbols", 5)])
def test_a_plan_of_persons_is_that_of_persons(words: tuple[object, ...]) -> None:
    given = ("plan", *words, "--n-units", 5000, "--epsilon", 1, "--delta", 1e-5)
    assert "expected for 5,000 persons at epsilon = 1" in run(*given, "--grouped").stdout
    assert "persons" not in run(*given).stdout


def test_a_schema_says_itself_whose_the_rows_are(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    dpvb.Schema([dpvb.data.Numeric("a", 0, 1)], group="who").save(schema)
    given = ("plan", "pca", "--schema", schema, "--n-units", 5000, "--epsilon", 1, "--delta", 1e-5)
    assert "5,000 persons" in run(*given).stdout
    assert "--grouped must be False with a schema" in run(*given, "--grouped", code=2).stderr


@pytest.mark.parametrize("name", sorted(fit.summaries()))
def test_every_kind_that_is_fitted_is_planned(name: str) -> None:
    assert f"dpvb plan {name} --n-units" in " ".join(run("plan", name, "--help").stdout.split())


def test_plan_of_a_table_takes_its_schema_alone(tmp_path: Path) -> None:
    schema, picture = tmp_path / "s.json", tmp_path / "p.svg"
    columns = [dpvb.data.Numeric("age", 18, 90), dpvb.data.Categorical("job", ["a", "b"])]
    dpvb.Schema(columns, target=dpvb.data.Target("y", "logistic", classes=(0, 1))).save(schema)
    given = ("--n-units", 20_000, "--schema", schema, "--epsilon", 1, "--delta", 1e-6)
    assert (
        "Standard deviation of a coefficient, in log odds" in run("plan", "logistic", *given, "--plot", picture).stdout
    )
    assert picture.read_text().startswith("<?xml")
    assert "--n-units" in run("plan", "logistic", *given[2:], code=2).stderr


def test_plan_of_replaced_documents_in_words() -> None:
    fixed = ["--batch-size", "100", "--n-units", "100", "--neighboring-relation", "replace_one"]
    shown = run("plan", "--epsilon", "1", *fixed, "--n-steps", "1", "--delta", "1e-5").stdout
    # Every document each time: one Gaussian release with sqrt(2) times the noise of add/remove.
    noise = math.sqrt(2) * accounting.noise_multiplier(
        epsilon=1, delta=1e-5, sampling_prob=1, n_steps=1, sampler="full_batch"
    )
    printed = float(re.search(r"oise multiplier ([\d.]+):", shown).group(1))
    assert printed == pytest.approx(noise, rel=5e-3)
    assert "guesses right with a probability of at most 73.1 %" in " ".join(shown.split())
    assert "renyi" not in shown


def test_topics_show_and_evaluate(tmp_path: Path, fitted: Path) -> None:
    model = dpvb.load(fitted)
    shown = run("show", fitted, "--what", "topics", "--words", 3).stdout
    for one in model.topics(3):
        assert " ".join(one) in shown
    assert all(fact in shown for fact in model.privacy_.remarks)
    assert run("show", fitted).stdout.strip() == str(model.privacy_)
    brief = run("show", fitted, "--what", "brief").stdout.rstrip().splitlines()
    assert [line.split("  ")[0] for line in brief] == [
        "Guarantee",
        "Meaning",
        "Computed from",
        "Result",
        "Ledger",
        "Not covered",
    ]
    assert brief[0].endswith(f"{model.privacy_.brief}.")
    assert json.loads(run("show", fitted, "--as", "json").stdout) == model.privacy_.to_dict()
    data = write(tmp_path, "held_out.csv", 40)
    facts = json.loads(run("evaluate", fitted, data, "--public", "--words", 4, "--json").stdout)
    assert facts["perplexity"] == pytest.approx(model.perplexity(corpus(40), public=True))
    assert facts["completion_perplexity"] == pytest.approx(metrics.completion_perplexity(model, corpus(40)))
    coherence = metrics.npmi_coherence(metrics.top_words(model.components_, 4), corpus(40))
    assert facts["coherence_of_topics"] == pytest.approx(coherence.tolist())
    assert f"{facts['perplexity']:.4g}" in run("evaluate", fitted, data, "--public").stdout
    with pytest.raises(PrivacyError, match="public=True"):
        model.evaluate(corpus(40))


def test_words_are_shown_as_they_are(tmp_path: Path) -> None:
    words = ["[bold]", "[/]", "a\x1b[31m", *"bcdefgh"]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    out = tmp_path / "m.dpvb"
    run("fit", "lda", write(tmp_path, "c.npz"), "--vocabulary", tmp_path / "words.txt", "--out", out, *BUDGET)
    shown = run("show", out, "--what", "topics").stdout
    assert shown.count("[bold]") == shown.count("[/]") == shown.count("a?[31m") == 2
    assert "\x1b" not in shown


def test_transform_to_csv(tmp_path: Path, fitted: Path) -> None:
    data, out = write(tmp_path, "c.csv"), tmp_path / "theta.csv"
    assert "no guarantee" in run("transform", fitted, data, "--out", out).stderr
    assert out.read_text().startswith("topic_0,topic_1\n")
    assert np.loadtxt(out, delimiter=",", skiprows=1) == pytest.approx(
        dpvb.load(fitted).transform(corpus(60)), abs=1e-5
    )


def test_rows_of_a_folder_carry_the_names_of_its_files(tmp_path: Path, fitted: Path) -> None:
    """Also names that CSV quotes, and one that is no UTF-8; in the order of the names."""
    folder = tmp_path / "notes"
    (folder / "more").mkdir(parents=True)
    names = [b"a.txt", b'b,"c".txt', b"more/d.txt", b"x\xff.txt"]
    for name, text in zip(names, texts_of(corpus(4)), strict=True):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_text(text)
    (folder / "no document").write_text("apple")
    for ending in ("csv", "npz"):
        run("transform", fitted, folder, "--out", tmp_path / f"theta.{ending}")
    expected = dpvb.load(fitted).transform(corpus(4))
    with (tmp_path / "theta.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["document", "topic_0", "topic_1"]
    assert [os.fsencode(row[0]) for row in rows] == names
    assert np.array([row[1:] for row in rows], dtype=float) == pytest.approx(expected, abs=1e-5)
    with np.load(tmp_path / "theta.npz") as stored:
        assert [os.fsencode(name) for name in stored["document"]] == names
        assert stored["proportions"] == pytest.approx(expected)


@pytest.mark.guarantees("Dask")
@kills("leaks", "rows of documents for all to read")
@edit("guards/file_ownership.py", "mode: int = 0o600", "mode: int = 0o644")
@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_rows_of_documents_are_their_owners_alone(ending: str, tmp_path: Path, fitted: Path) -> None:
    data, out = write(tmp_path, "c.csv"), tmp_path / f"theta.{ending}"
    before = os.umask(0)
    try:
        for _ in range(2):
            run("transform", fitted, data, "--out", out, "--overwrite")
            assert out.stat().st_mode & 0o777 == 0o600
            out.chmod(0o644)
    finally:
        os.umask(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.csv", out.name]


def test_persons_are_the_unit_of_a_group_column(tmp_path: Path, words_file: Path) -> None:
    data, out = write(tmp_path, "c.jsonl"), tmp_path / "m.dpvb"
    asked = ["fit", "lda", data, "--vocabulary", words_file, "--group-column", "who", "--out", out, *BUDGET]
    for stream in ([], ["--stream", "--overwrite"]):
        run(*asked, *stream)
        assert json.loads(run("show", out, "--as", "json").stdout)["unit"] == "person"


def test_no_noise_says_so(tmp_path: Path, words_file: Path) -> None:
    data, out = write(tmp_path, "c.npz"), tmp_path / "m.dpvb"
    result = run("fit", "lda", data, "--out", out, "--epsilon", "inf", *BUDGET[2:])
    assert "NO PRIVACY" in result.stderr
    assert "NO PRIVACY" in run("show", out).stdout


def test_a_second_fit_replaces_a_model_only_when_told(tmp_path: Path, words_file: Path) -> None:
    data, out = write(tmp_path, "c.npz"), tmp_path / "m.dpvb"
    run("fit", "lda", data, "--out", out, *BUDGET)
    before = out.read_bytes()
    assert "--overwrite" in run("fit", "lda", data, "--out", out, *BUDGET, code=2).stderr
    assert out.read_bytes() == before
    run("fit", "lda", data, "--out", out, *BUDGET, "--overwrite")
    assert out.read_bytes() != before


def test_the_bar_counts_steps(tmp_path: Path, words_file: Path) -> None:
    data = write(tmp_path, "c.npz")
    shown = run("fit", "lda", data, "--out", tmp_path / "a.dpvb", *BUDGET).stderr
    assert re.search(r"\b(\d+)/\1\b", shown)
    quiet = run("fit", "lda", data, "--out", tmp_path / "b.dpvb", *BUDGET, "--quiet").stderr
    assert not re.search(r"\b(\d+)/\1\b", quiet)


def without_counts(text: str) -> str:
    """What was printed, without noisy numbers of documents and topics, and what is said of few of them."""
    text = re.sub(r"warning: [^\n]* included: [^\n]*\n", "", text)
    text = re.sub(r"[^\n]*(above the noise|any of the others)[^\n]*\n", "", text)
    return re.sub(r"(included|clipped):\s+[\d,]+ ±\s+[\d,]+", r"\1", text)


def outputs(folder: Path, words_file: Path, num_documents: int) -> str:
    """Everything that a session prints, and the bytes of its model."""
    data, out = write(folder, "c.csv", num_documents), folder / "m.dpvb"
    results = [run("fit", "lda", data, "--vocabulary", words_file, "--out", out, *BUDGET, "--quiet")]
    results += [run("show", out, "--what", what) for what in ("topics", "statement", "all")]
    results += [run("transform", out, data, "--out", folder / "theta.npz")]
    printed = "".join(r.stdout + r.stderr for r in results).replace(str(folder), "")
    assert CANARY not in printed
    assert CANARY.encode() not in out.read_bytes()
    return printed


@pytest.mark.guarantees("models")
def test_nothing_private_is_printed(tmp_path: Path, words_file: Path) -> None:
    printed = []
    for num_documents in (137, 138):
        folder = tmp_path / str(num_documents)
        folder.mkdir()
        printed.append(outputs(folder, words_file, num_documents))
        stable = without_counts(printed[-1])  # A noisy number may be any.
        assert not re.search(rf"\b{num_documents}\b", stable)
        assert not re.search(rf"\b{corpus(num_documents).sum()}\b", stable)

    def public(text: str) -> list[str]:
        """All but the random name of the run, the noisy counts and the words of the topics, whose order is noisy."""
        kept = [line for line in without_counts(text).splitlines() if not any(word in line for word in WORDS)]
        return [re.sub(r"\b[0-9a-f]{32}\b", "RUN", line) for line in kept]

    assert public(printed[0]) == public(printed[1])


def test_faults_of_a_document_are_silent(tmp_path: Path, words_file: Path) -> None:
    data = tmp_path / "c.jsonl"
    lines = ['{"text": "apple pear"}', "{broken", '{"text": 7}', '{"other": "plum"}', '{"text": ""}', "[]"]
    data.write_text("\n".join(lines) + "\n")
    result = run("fit", "lda", data, "--vocabulary", words_file, "--out", tmp_path / "m.dpvb", *BUDGET, "--quiet")
    empty = tmp_path / "e.jsonl"
    empty.write_text("")
    other = run("fit", "lda", empty, "--vocabulary", words_file, "--out", tmp_path / "e.dpvb", *BUDGET, "--quiet")
    assert result.stdout == other.stdout == ""
    printed = [without_counts(one.stderr) for one in (result, other)]
    assert printed[0].replace("m.dpvb", "") == printed[1].replace("e.dpvb", "")


def refuse(folder: Path, expected: str, *args: object) -> None:
    """An error's exit code, one line on standard error, and no new file."""
    before = sorted(folder.rglob("*"))
    result = run(*args, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert expected in result.stderr
    assert sorted(folder.rglob("*")) == before


BAD_FITS: dict[str, tuple[list[str], str]] = {
    "epsilon": (["--epsilon", "0"], "--epsilon must be"),
    "epsilon-nan": (["--epsilon", "nan"], "--epsilon must be"),
    "delta": (["--delta", "1"], "--delta must be"),
    "topics": (["--topics", "0"], "--topics must be"),
    "n-steps": (["--n-steps", "0"], "--n-steps must be"),
    "sampling-prob": (["--sampling-prob", "1.5"], "--sampling-prob must be"),
    "batch-size-alone": (["--batch-size", "5"], "n_units"),
    "two-samplers": (["--batch-size", "5", "--sampling-prob", "0.1", "--n-units", "9"], "not both"),
    "clip_scale": (["--clip-scale", "2"], "--clip-scale must be"),
    "relation": (["--neighboring-relation", "similar"], "--neighboring-relation must be"),
    "too-little-noise": (["--noise-multiplier", "0.1"], "--epsilon = 1 is not met"),
    "format": (["--format", "excel"], "--format must be"),
    "width": (["--width", "11"], "10 columns"),
    "group": (["--group-column", "who"], "--group-column needs"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_options(tmp_path: Path, name: str) -> None:
    options, expected = BAD_FITS[name]
    refuse(tmp_path, expected, "fit", "lda", write(tmp_path, "c.npz"), "--out", tmp_path / "m.dpvb", *BUDGET, *options)


def test_bad_files(tmp_path: Path, words_file: Path) -> None:
    def refuse_fit(expected: str, data: Path, *options: object) -> None:
        refuse(tmp_path, expected, "fit", "lda", data, "--out", tmp_path / "m.dpvb", *BUDGET, *options)

    csv, npz, dat = write(tmp_path, "c.csv"), write(tmp_path, "c.npz"), write(tmp_path, "c.dat")
    refuse_fit("there is no such file", tmp_path / "missing.csv", "--vocabulary", words_file)
    (tmp_path / "data.xlsx").touch()
    refuse_fit("does not tell its format", tmp_path / "data.xlsx")
    refuse_fit("Three ways out", csv)
    refuse_fit("body", csv, "--vocabulary", words_file, "--text-column", "body")
    refuse_fit("--token-pattern must be", csv, "--vocabulary", words_file, "--token-pattern", "(")
    refuse_fit("vocabulary file", csv, "--vocabulary", tmp_path / "missing.txt")
    refuse_fit("how many words", dat)
    (tmp_path / "twice.txt").write_text("apple\npear\napple\n")
    refuse_fit("must not repeat", csv, "--vocabulary", tmp_path / "twice.txt")
    (tmp_path / "short.txt").write_text("apple\npear\n")
    refuse_fit("10 columns", npz, "--vocabulary", tmp_path / "short.txt")
    (tmp_path / "broken.npz").write_bytes(npz.read_bytes()[:200])
    refuse_fit("cannot be read", tmp_path / "broken.npz")


def test_the_place_of_the_output_is_checked_first(tmp_path: Path) -> None:
    missing = tmp_path / "there_is_no_data.npz"  # had it been opened, the error would name it

    def refuse_out(expected: str, out: Path) -> None:
        refuse(tmp_path, expected, "fit", "lda", missing, "--out", out, *BUDGET)

    refuse_out("no folder", tmp_path / "nowhere" / "m.dpvb")
    refuse_out("got the folder", tmp_path)
    (tmp_path / "file").write_text("")
    refuse_out("no folder", tmp_path / "file" / "m.dpvb")
    refuse_out("already there", tmp_path / "file")
    refuse(tmp_path, "must be a folder", "demo", "--out", tmp_path / "file")
    if Path("/proc/self").is_dir():
        refuse_out("cannot be written", Path("/proc/self/m.dpvb"))


def test_bad_models(tmp_path: Path, fitted: Path) -> None:
    data = write(tmp_path, "c.npz")
    (tmp_path / "cut.dpvb").write_bytes(fitted.read_bytes()[:-100])
    (tmp_path / "text.dpvb").write_text("hello")
    for model, expected in (("none.dpvb", "no such file"), ("cut.dpvb", "end is missing"), ("text.dpvb", "not a dpvb")):
        for command in (["show"], ["report", "--json"], ["transform", data, "--out", tmp_path / "o.npz"]):
            refuse(tmp_path, expected, command[0], tmp_path / model, *command[1:])
    refuse(tmp_path, "end in .npz or .csv", "transform", fitted, data, "--out", tmp_path / "o.xls")
    refuse(tmp_path, "already there", "transform", fitted, data, "--out", data)
    sparse.save_npz(tmp_path / "wide.npz", sparse.csr_array((2, 11)))
    refuse(tmp_path, "11 columns", "transform", fitted, tmp_path / "wide.npz", "--out", tmp_path / "o.npz")
    refuse(tmp_path, "--public", "evaluate", fitted, data)
    refuse(tmp_path, "--words must be", "show", fitted, "--what", "topics", "--words", "0")


def test_bad_plans(tmp_path: Path) -> None:
    for args, expected in (
        ([], "Give either"),
        (["--epsilon", "1", "--noise-multiplier", "1"], "Give either"),
        (["--epsilon", "inf"], "--epsilon must be"),
        (["--epsilon", "1", "--delta", "0"], "--delta must be"),
        (["--noise-multiplier", "nan"], "--noise-multiplier must be"),
        (["--epsilon", "1", "--n-steps", "0"], "--n-steps must be"),
        (["--epsilon", "1", "--swap-ratio", "3"], "--swap-ratio must be"),
        (["--epsilon", "1", "--batch-size", "3"], "--batch-size needs"),
        (["--epsilon", "1", "--batch-size", "3", "--sampling-prob", "0.1"], "not both"),
        (["--epsilon", "1", "--neighboring-relation", "x"], "--neighboring-relation must be"),
    ):
        refuse(tmp_path, expected, "plan", *args)


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, KeyError])
def test_an_unforeseen_error_does_not_quote_anything(
    monkeypatch: pytest.MonkeyPatch, fitted: Path, kind: type[Exception]
) -> None:
    def fails(path: Path) -> None:
        raise kind(CANARY)

    monkeypatch.setattr(files, "read_statement", fails)
    result = run("show", fitted, code=2)
    assert result.stderr.startswith(f"error: unexpected {kind.__name__} at test_cli.py:")
    assert CANARY not in result.stderr
    assert not isinstance(result.exception.__context__.__context__, kind)


def test_a_faulty_command_line_is_explained() -> None:
    for args in (["nonsense"], ["show"], ["topics", "m.dpvb"], ["plan", "--epsilon", "one"], ["fit", "lda", "c.csv"]):
        result = run(*args, code=2)
        assert result.stdout == ""
        assert "unexpected" not in result.stderr
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
