"""Make the sample of Wikipedia that ships with the package (src/dpvb/sample), the same bytes at each run.

DPVB_DATA names the folder that holds wikipedia/bow.npz, wikipedia/article_ids.npy and vocab/dictnostops.txt.
The last 5,000 rows of the corpus are the test rows of every benchmark and are never taken.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy import sparse

TEST_ROWS = 5_000
SHORTEST, LONGEST = 50, 300
DOCUMENTS, HELD_OUT = 40_000, 1_000
SEED = 20_080_707


def main() -> None:
    data = Path(os.environ["DPVB_DATA"])
    sample = Path(__file__).parents[1] / "src" / "dpvb" / "sample"
    counts = sparse.load_npz(data / "wikipedia" / "bow.npz").tocsr()[:-TEST_ROWS]
    articles = np.load(data / "wikipedia" / "article_ids.npy")[:-TEST_ROWS]

    length = np.asarray(counts.sum(axis=1)).ravel()
    eligible = np.flatnonzero((length >= SHORTEST) & (length <= LONGEST))
    chosen = np.random.default_rng(SEED).permutation(eligible)[: DOCUMENTS + HELD_OUT]
    is_held_out = np.zeros(counts.shape[0], dtype=np.bool_)
    is_held_out[chosen[DOCUMENTS:]] = True
    chosen = chosen[np.argsort(articles[chosen])]
    counts, articles = counts[chosen], articles[chosen]

    # Terms in order of frequency: the gaps between a document's terms are then small, and pack well.
    order = np.argsort(-np.bincount(counts.indices, minlength=counts.shape[1]), kind="stable")
    ranked = sparse.csr_array(counts[:, order])
    ranked.sort_indices()
    gaps = np.diff(ranked.indices, prepend=0)
    gaps[ranked.indptr[:-1]] = ranked.indices[ranked.indptr[:-1]]
    np.savez_compressed(
        sample / "wikipedia.npz",
        low=(gaps % 256).astype(np.uint8),
        high=(gaps // 256).astype(np.uint8),
        counts=np.asarray(ranked.data, dtype=np.uint8),
        terms_per_document=np.diff(ranked.indptr).astype(np.uint16),
        order=order.astype(np.uint16),
        article_gaps=np.diff(articles, prepend=0).astype(np.uint32),
        is_held_out=is_held_out[chosen],
    )
    words = (data / "vocab" / "dictnostops.txt").read_text().split()
    (sample / "words.txt").write_text("\n".join(words) + "\n")


if __name__ == "__main__":
    main()
