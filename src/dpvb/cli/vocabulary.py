"""`dpvb vocabulary`: a list of words from public texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import remark
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
    line that somebody used a word. Words of private texts are found by --vocabulary private of `dpvb fit lda`.

        dpvb vocabulary public_notes --public --min-df 5 --out field.txt
    """
    import numpy as np

    from dpvb.data import open_documents
    from dpvb.data.documents.texts import Texts
    from dpvb.data.documents.vocabulary import PRIVATE
    from dpvb.data.documents.word_lists import stop_words as words_to_leave

    if not public:
        raise PrivacyError(
            "these texts would be treated as public: their words are written without noise. Add --public if they are; "
            "words of private texts are found by --vocabulary private of `dpvb fit lda`."
        )
    check_integer("--min-df", min_df, low=1)
    check_integer("--most", most, low=1)
    files.check_target(out, overwrite)
    left_out = frozenset[str]() if stop_words is None else words_to_leave(stop_words)
    how: dict[str, Any] = {"file_format": file_format, "text_column": text_column, "token_pattern": token_pattern}
    texts = open_documents(data, vocabulary=PRIVATE, separator=separator, encoding=encoding, **how)
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
