"""Private documents: in memory, from files, or from a stream."""

from __future__ import annotations

from dpvb.data.bag_of_words import BagOfWords, Stream, as_source, in_memory
from dpvb.data.files import open_documents
from dpvb.data.rows import Chunk, CountRows, Source
from dpvb.data.vocabulary import check_vocabulary

__all__ = [
    "BagOfWords",
    "Chunk",
    "CountRows",
    "Source",
    "Stream",
    "as_source",
    "check_vocabulary",
    "in_memory",
    "open_documents",
]
