"""`dpvb transform`, `evaluate`: what a fitted model makes of documents, and how good it is on public data."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from dpvb.cli import files, options, reading
from dpvb.cli.root import app
from dpvb.cli.terminal import print_json, print_table, remark
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, PrivacyError

_FORMS = ("documents", "rows", "labelled", "sequences")
_OF_A_FIT = frozenset({"data", "schema", "columns", "width", "stream", "exclude_groups", "public", "group", "weights"})
_OF_A_MATRIX = ("target", "trials", "exposure", "offset")
_WORDS = {
    "auc": "AUC",
    "log_likelihood": "log-likelihood per row",
    "log_likelihood_of_a_symbol": "log-likelihood of a symbol, in nats",
    "log_likelihood_of_a_point": "log-likelihood of a point, in nats",
    "calibration_error": "calibration error (10 bins)",
    "deviance": "deviance per row",
    "explained_deviance": "share of deviance explained",
    "reconstruction_accuracy": "reconstruction accuracy",
    "bound": "bound on the log-likelihood of a row",
    "perplexity": "perplexity (bound)",
    "completion_perplexity": "perplexity (completion)",
}


@app.command()
@reading.with_options(reading.options_of("documents", without=_OF_A_FIT | {"group_column"}))
def transform(
    *,
    model: options.Model,
    data: options.Documents,
    out: Annotated[Path, typer.Option(help="The file to write, .npz or .csv.")],
    overwrite: options.Overwrite = False,
    **given: Any,
) -> None:
    """Write the topic proportions of each document, one row per document.

    Rows are in file order. For a folder, rows are sorted by file name, and the column
    `document` holds these names. A .csv file has a column for each topic, a .npz file the array `proportions`.

    These rows and names are as private as the documents themselves: the guarantee covers the topics, not them. Only
    their owner may read the file.

        dpvb transform notes.dpvb notes --out proportions.csv
    """
    import numpy as np

    if out.suffix.lower() not in (".npz", ".csv"):
        raise ParameterError(f"--out must end in .npz or .csv, got {out.name!r}.")
    files.check_target(out, overwrite)
    fitted = files.load_model(model, "topics")
    from dpvb.data.documents.files import document_names

    names = document_names(data, given["file_format"])
    rows = reading.read("documents", {"data": data, **given, **_declared(fitted, "documents", given)})
    proportions = fitted.transform(**rows)
    if names != document_names(data, given["file_format"]):
        raise DataFormatError(f"{data}: files came or went while the folder was read. Nothing is written; call again.")
    with files.private(out) as file:
        if out.suffix.lower() == ".npz":
            named: dict[str, Any] = {} if names is None else {"document": np.array(names, dtype=np.str_)}
            np.savez_compressed(file, proportions=proportions, **named)
        else:
            _write_csv(file, names, proportions)
    remark(f"{out}: one row per document. Keep it private: no guarantee covers it.")


def _write_csv(file: IO[bytes], names: list[str] | None, proportions: Floats) -> None:
    """Rows of proportions, each behind the name of its document where documents have one, as the disk spells it."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
    rows = csv.writer(text, lineterminator="\n")
    first: list[list[str]] = [[]] * len(proportions) if names is None else [[name] for name in names]
    rows.writerow([*([] if names is None else ["document"]), *(f"topic_{k}" for k in range(proportions.shape[1]))])
    rows.writerows([*name, *(f"{share:.6g}" for share in row)] for name, row in zip(first, proportions, strict=True))
    text.detach()


@app.command()
@reading.with_options(reading.options_of(*_FORMS, without=_OF_A_FIT))
def evaluate(
    *,
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="Public data in a form that the model was fitted to.")],
    public: options.Public = False,
    words: Annotated[int, options.data("Topics: top words used by coherence.")] = 10,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Measure a model on public held-out data.

    Topics: perplexity (lower is better) by its bound and by completion, one half of each document's words given the
    other; coherence (NPMI, from -1 to 1): co-occurrence of a topic's top words in these documents. Regressions: AUC,
    log-likelihood, accuracy and calibration of probabilities; deviance of counts. Belief networks: share of entries
    that are reconstructed, and the bound on the log-likelihood. Factor models: log-likelihood. Models of sequences:
    log-likelihood of a symbol or a point, and perplexity of symbols. The data are treated as public: a measurement of
    private data would disclose them, even through choices that depend on the result.

        dpvb evaluate notes.dpvb public_notes.csv --public

        dpvb evaluate people.dpvb public_people.csv --public

        dpvb evaluate m.dpvb X.npz --target y.npy --public

        dpvb evaluate visits.dpvb public.csv --group-column user --symbol-column page --time-column clock --public
    """
    if not public:
        raise PrivacyError(
            "These data would be treated as public: what is measured on them is printed without noise. Add "
            "--public if they are; do not measure on private ones."
        )
    fitted = files.load_model(model, "evaluate")
    form, schema = str(fitted._reads), getattr(fitted, "schema_", None)
    if given["group_column"] is not None and form != "sequences":
        raise ParameterError("--group-column applies only to a model of sequences. Leave --group-column out.")
    if form in ("documents", "sequences", "images") or schema is None:
        rows = reading.read(form, {"data": data, **given, **_declared(fitted, form, given)})
    elif form == "measurements" and data.suffix.lower() in (".npz", ".npy"):
        rows = reading.read(form, {"data": data, **given})
    else:
        from dpvb.data import Table

        if any(given[name] for name in _OF_A_MATRIX):
            words_of = ", ".join(f"--{name}" for name in _OF_A_MATRIX)
            raise ParameterError(f"{words_of} apply only to a matrix. The schema of the model names these columns.")
        how = {name: given[name] for name in ("separator", "decimal", "encoding")}
        rows = {"X": Table(data, replace(schema, group=None), **how)}
    facts = fitted.evaluate(**rows, **({"words": words} if form == "documents" else {}), public=True)
    if as_json:
        print_json(facts)
        return
    shown = [[_WORDS.get(name, name), _short(value)] for name, value in facts.items() if isinstance(value, float)]
    print_table(f"On {data.name}, treated as public", ["measure", "value"], shown)


def _declared(fitted: Any, form: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a fitted model declares about the columns of such data."""
    if form == "sequences":
        return {"columns": fitted._named_columns}
    if form not in ("documents", "labelled"):
        return {}
    return {"vocabulary": given["vocabulary"] or fitted.vocabulary_, "width": fitted.n_features_in_}


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"
