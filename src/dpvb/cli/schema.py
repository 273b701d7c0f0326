"""Public facts that a fit needs: `dpvb schema` of a table's columns, `dpvb vocabulary` of the words of documents."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import dpvb
from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, is_terminal, print_json, print_table, remark
from dpvb.guards.errors import ParameterError, PrivacyError, check_integer


@app.command()
def vocabulary(
    data: options.Documents,
    out: Annotated[Path, typer.Option(help="The list to write, one word a line.")],
    public: options.Public = False,
    min_df: Annotated[int, typer.Option(help="Least number of texts that a word is in.")] = 10,
    most: Annotated[int, typer.Option(help="At most so many words, those in most texts.")] = 10_000,
    stop_words: Annotated[
        str | None, typer.Option(help="Leave out those of english, french, german or spanish.")
    ] = None,
    text_column: options.TextColumn = "text",
    file_format: options.Format = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    separator: options.Separator = ",",
    encoding: options.Encoding = "utf-8",
    overwrite: options.Overwrite = False,
) -> None:
    """Write the words that many public texts use, for --vocabulary of a fit to private texts.

    The texts must be public, of the same kind as the private ones: a word list read off private texts would show by a
    line that a text contains a word. Words of private texts are found by --vocabulary private of `dpvb fit lda`.

        dpvb vocabulary public_notes --public --min-df 5 --out field.txt
    """
    import numpy as np

    from dpvb.data.documents.bag_of_words import Texts
    from dpvb.data.documents.vocabulary import PRIVATE
    from dpvb.data.documents.word_lists import stop_words as words_to_leave

    if not public:
        raise PrivacyError(
            "These texts would be treated as public: their words are written without noise. Add --public if they are; "
            "words of private texts are found by --vocabulary private of `dpvb fit lda`."
        )
    check_integer("--min-df", min_df, low=1)
    check_integer("--most", most, low=1)
    files.check_target(out, overwrite)
    left_out = frozenset[str]() if stop_words is None else words_to_leave(stop_words)
    how: dict[str, Any] = {"file_format": file_format, "text_column": text_column, "token_pattern": token_pattern}
    texts = dpvb.data.open_documents(data, vocabulary=PRIVATE, separator=separator, encoding=encoding, **how)
    assert isinstance(texts, Texts)  # Counts have been refused.
    texts_v = np.zeros(len(texts.names), dtype=np.int64)
    for chunk in texts.chunks():
        np.add.at(texts_v, chunk.rows.indices, 1)
    often = [(-number, word) for word, number in zip(texts.names, texts_v.tolist(), strict=True) if number >= min_df]
    words = sorted(word for _, word in sorted((n, word) for n, word in often if word not in left_out)[:most])
    if not words:
        raise ParameterError(f"--min-df must be smaller: no word is in {min_df:,} of these texts.")
    with files.replacing(out) as part:
        part.write_text("\n".join(words) + "\n", encoding="utf-8")
    remark(f"{out}: {len(words):,} words. Next: dpvb fit lda NOTES --vocabulary {out} ...")


@app.command()
def schema(
    file: Annotated[Path | None, typer.Argument(help="A schema to check; none: print an example.")] = None,
    header: Annotated[
        Path | None, typer.Option(help="A CSV file: write a schema to fill in of its first line.")
    ] = None,
    dictionary: Annotated[
        Path | None, typer.Option(help="A data dictionary, CSV or Frictionless JSON: make it a schema.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column of responses.")] = None,
    group: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="State that the first line is a header, whatever it looks like; or that nothing in the dictionary was "
            "computed from the rows. On a terminal the command asks.",
        ),
    ] = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
    as_json: options.Json = False,
) -> None:
    """Check a schema, print an example of one, or make one to fill in.

    A schema is a JSON file that declares the public facts about a table: each column's range or categories, and the
    target. A column is numeric, date, spline, binary or categorical; an interaction names two of them.
    Nothing is read off the rows. --header reads the first line of a CSV file, shows it and asks whether it is a header;
    --dictionary takes what was declared of the columns, and asks about fields that it does not know. Where no range is
    declared, low and high are null: fill them in, and make categories of what is not a number.

        dpvb schema --header people.csv --target ill --yes > people.json

        dpvb schema --dictionary codebook.csv > people.json

        dpvb schema people.json
    """
    if sum(one is not None for one in (file, header, dictionary)) > 1:
        raise ParameterError("Give one of a schema, --header and --dictionary.")
    if header is not None or dictionary is not None:
        from dpvb.data.csv_files import Dialect

        _print_stub(header, dictionary, Dialect(separator, decimal, encoding), target, group, yes)
        return

    if file is None:
        from dpvb.sample import SCHEMA

        example = dpvb.Schema.from_json(json.dumps(SCHEMA))
        print_json(json.loads(example.to_json()), ensure_ascii=False)
        return
    declared = dpvb.Schema.load(file)
    if as_json:
        print_json(json.loads(declared.to_json()), ensure_ascii=False)
        return
    print_table(
        f"{file.name}: {declared.width} features, row norm {declared.max_row_norm:.4g}, "
        f"intercept {declared.intercept:.4g}",
        ["column", "kind", "features"],
        [[term.name, term.kind, str(term.width)] for term in declared.terms],
        numbers=(2,),
    )
    if declared.target is not None:
        echo(f"target: {declared.target.name} ({declared.target.kind})")
    if declared.group is not None:
        echo(f"person: {declared.group}")


def _check_sure(shown: str, what: str, sure: bool, *, quotes_data: bool) -> None:
    """Show the facts that the user must confirm, and ask for confirmation unless it was given.

    Args:
        shown: what there is to look at; empty: nothing.
        what: to be stated, in words.
        sure: whether it was stated by --yes.
        quotes_data: whether `shown` may hold what is private; then it is for a terminal, or for who is sure.

    Raises:
        PrivacyError: if it is not confirmed.
    """
    asked = not sure and is_terminal(sys.stdin, sys.stderr)
    if not (sure or asked):
        quoted = "" if quotes_data else f"{shown} "
        raise PrivacyError(
            f"{quoted}--yes must state that {what}: without a terminal, the command cannot ask. Check the file first."
        )
    if shown:
        remark(shown)
    if asked and typer.prompt(f"Type yes if {what}", default="", err=True) != "yes":
        raise PrivacyError("Nothing was written: the command needs a typed yes.")


def _print_stub(
    header: Path | None, dictionary: Path | None, dialect: Any, target: str | None, group: str | None, sure: bool
) -> None:
    """Print a schema to fill in, and on standard error what there is to do."""
    from dpvb.data.tables.dictionary import columns_of_dictionary, columns_of_header, stub

    if header is not None:
        columns = columns_of_header(header, dialect, sure=sure)
        shown = f"The first line of {header.name} names: {dialect.separator.join(column.name for column in columns)}"
        what = "the first line is a header, not a row of data"
    else:
        assert dictionary is not None
        columns, others = columns_of_dictionary(dictionary, dialect)
        shown = "; ".join(f"{field!r} of {name!r}" for field, name in others)
        shown = f"{dictionary.name} has fields that may have been computed: {shown}." if others else ""
        what = "nothing in the dictionary, no range and no level either, was computed from people's rows"
        sure = sure or not others
    facts = stub(columns, target=target, group=group)
    _check_sure(shown, what, sure, quotes_data=header is not None)
    print_json(facts, ensure_ascii=False)
    roles = {facts["group"], facts["target"]["name"], *(one["name"] for one in facts["columns"])}
    left_out = [column.name for column in columns if column.name not in roles]
    unknown = [one["name"] for one in facts["columns"] if None in (one.get("low", 0), one.get("high", 0))]
    if left_out:
        remark(f"Left out, as no numbers, levels or roles are declared of them: {', '.join(left_out)}.")
    if unknown:
        remark(
            f"Fill in low and high, from what you know without looking at the rows, of: {', '.join(unknown)}. A "
            'category is {"kind": "categorical", "name": ..., "categories": [...]}. Take out what the model does not '
            "need."
        )
    if facts["target"]["name"] is None:
        remark(
            "Name the target, its kind and any exposure, or write null in its place. Name the person's column in group."
        )
    if facts["target"]["kind"] is None:
        remark(
            'Fill in the kind of the target, and what it may be: "logistic" with "classes": [no, yes]; "poisson" or '
            '"negative_binomial" with "max_count"; "numeric" with "low" and "high"; "binomial" with "trials" and '
            '"max_trials"; "classes" with "classes".'
        )
