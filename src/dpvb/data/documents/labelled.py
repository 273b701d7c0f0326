"""Documents with a label each: the label is one more word, behind those of the vocabulary.

So whatever holds documents holds labelled ones too: persons, samples, processes. A document whose label is none of the
declared ones has no such word, and a model counts it as no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dpvb.data.csv_files import Dialect, check_csv, csv_records
from dpvb.data.documents.bag_of_words import BagOfWords, in_memory
from dpvb.data.documents.count_rows import DocumentSource, concatenate
from dpvb.data.readable import check_readable
from dpvb.data.spelling import Categories
from dpvb.data.tables.matrices import column
from dpvb.guards.errors import ParameterError
from dpvb.rows import CountRows


def labelled(
    documents: DocumentSource, y: object, classes: Sequence[object], group: Iterable[object] | None = None
) -> BagOfWords:
    """Documents whose last columns are their labels, one for each class.

    Args:
        documents: private; each is a unit.
        y: the label of each document, (documents,); private.
        classes: the labels; public.
        group: the person of each document; private. None: each document is a unit.

    Raises:
        DataFormatError: y or group of another length than the documents.
        ParameterError: documents that are grouped by person already: labels have the order in which these were read.
    """
    if documents.unit == "person":
        raise ParameterError(
            "X must not be grouped by person yet where documents have labels: give group= to fit, together with y."
        )
    width = documents.width
    rows = concatenate((chunk.rows for chunk in in_memory(documents).chunks()), width)
    code_n = Categories(classes).places(column("y", y, rows.num_rows), other=-1, missing=-1)
    known_n = code_n >= 0
    end_n = rows.indptr[1:][known_n]  # A label stands behind the words of its document.
    indptr = rows.indptr + np.append(0, np.cumsum(known_n))
    indices = np.insert(rows.indices, end_n, (width + code_n[known_n]).astype(np.int32))
    counts = np.insert(rows.counts, end_n, 1.0)
    return BagOfWords.of_rows(CountRows(indptr, indices, counts, width + len(classes)), group=group)


def read_labelled(
    path: Path, text_column: str, label_column: str, dialect: Dialect
) -> tuple[list[object], list[object]]:
    """Texts and labels of a CSV file, as they stand there; private. A record that cannot be read has neither.

    Args:
        path, text_column, label_column, dialect: public.

    Raises:
        DataFormatError: a file that is not there, or whose header lacks a column.
    """
    check_readable(path)
    check_csv(path, (text_column, label_column), dialect=dialect)
    records = [*csv_records(path, (text_column, label_column), dialect)]
    return [text for text, _ in records], [label for _, label in records]
