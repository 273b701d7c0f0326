"""Private data: documents and rows of numbers, in memory, from files, or from a stream."""

from __future__ import annotations

from dpvb.data.documents.bag_of_words import BagOfWords, Stream, as_source, in_memory
from dpvb.data.documents.count_rows import DocumentSource
from dpvb.data.documents.files import open_documents
from dpvb.data.documents.vocabulary import check_vocabulary
from dpvb.data.documents.word_lists import stop_words, words
from dpvb.data.sequences.events import Events
from dpvb.data.tables.columns import Binary, Categorical, Interaction
from dpvb.data.tables.design import BinaryMatrix, Design
from dpvb.data.tables.ranged import Date, Numeric, Spline
from dpvb.data.tables.response import Response
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table
from dpvb.data.units import Chunk
from dpvb.rows import CountRows, DesignRows, SparseDesignRows

# The shorter name is older, and stays.
Source = DocumentSource

__all__ = [
    "BagOfWords",
    "Binary",
    "BinaryMatrix",
    "Categorical",
    "Chunk",
    "CountRows",
    "Date",
    "Design",
    "DesignRows",
    "DocumentSource",
    "Events",
    "Interaction",
    "Numeric",
    "Response",
    "Schema",
    "Source",
    "SparseDesignRows",
    "Spline",
    "Stream",
    "Table",
    "Target",
    "as_source",
    "check_vocabulary",
    "in_memory",
    "open_documents",
    "stop_words",
    "words",
]
