"""A sample of English Wikipedia that ships with the package; README.md beside this file names its licences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Sample:
    """Word counts of Wikipedia articles; the demo plays that `documents` were private.

    Attributes:
        counts: articles × words, CSR, int32.
        article_ids: number of each article, shape (articles,); `link` turns it into a page.
        is_held_out: which articles are the public held-out part, shape (articles,).
        vocabulary: the words in column order.
    """

    counts: sparse.csr_array[Any]
    article_ids: NDArray[np.int64]
    is_held_out: NDArray[np.bool_]
    vocabulary: tuple[str, ...]

    @cached_property
    def documents(self) -> sparse.csr_array[Any]:
        """The articles to fit, 40,000 × 7,702."""
        return self.counts[~self.is_held_out]

    @cached_property
    def held_out(self) -> sparse.csr_array[Any]:
        """The public held-out articles, 1,000 × 7,702."""
        return self.counts[self.is_held_out]

    @staticmethod
    def link(article_id: int) -> str:
        """Where an article stands, with its authors in the page's history."""
        return f"https://en.wikipedia.org/?curid={article_id}"


def load_sample() -> Sample:
    """Unpack the bundled Wikipedia sample.

    Terms are stored in order of frequency and each as the gap to the one before it, in two bytes.
    """
    folder = files("dpvb.sample")
    vocabulary = tuple(folder.joinpath("words.txt").read_text(encoding="utf-8").split())
    with as_file(folder.joinpath("wikipedia.npz")) as path, np.load(path, allow_pickle=False) as packed:
        stored = {name: packed[name] for name in packed.files}
    indptr = np.concatenate([[0], np.cumsum(stored["terms_per_document"], dtype=np.int64)])
    total = np.cumsum(stored["low"] + 256 * stored["high"].astype(np.int64))
    before_document = np.concatenate([[0], total])[indptr[:-1]]
    rank = total - np.repeat(before_document, np.diff(indptr))
    counts = sparse.csr_array(
        (stored["counts"].astype(np.int32), stored["order"].astype(np.int32)[rank], indptr.astype(np.int32)),
        shape=(len(indptr) - 1, len(vocabulary)),
    )
    counts.sort_indices()
    article_ids = np.cumsum(stored["article_gaps"], dtype=np.int64)
    return Sample(counts, article_ids, stored["is_held_out"], vocabulary)
