"""Peak memory of a private fit with V = 100,000, K = 200 over 1,000,000 streamed documents of 100 tokens."""

import resource
import sys
import time
from collections.abc import Iterator

import numpy as np
from scipy import sparse

import dpvb

NUM_TERMS, NUM_TOPICS, NUM_DOCUMENTS, TOKENS, PIECE = 100_000, 200, 1_000_000, 100, 5_000


def documents(num_documents: int) -> Iterator[sparse.csr_matrix]:
    """Zipf-distributed documents, made anew at each pass."""
    rng = np.random.default_rng(0)
    for start in range(0, num_documents, PIECE):
        rows = min(PIECE, num_documents - start)
        words = np.minimum(rng.zipf(1.1, rows * TOKENS) - 1, NUM_TERMS - 1)
        row = np.repeat(np.arange(rows), TOKENS)
        yield sparse.csr_matrix((np.ones(rows * TOKENS), (row, words)), shape=(rows, NUM_TERMS))


def main() -> None:
    num_documents = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_DOCUMENTS
    stream = dpvb.data.Stream(lambda: documents(num_documents), NUM_TERMS)
    wall, cpu = time.perf_counter(), time.process_time()
    model = dpvb.LDA(NUM_TOPICS, public_vocabulary=True, epsilon=1.0, delta=1e-6, n_steps=1).fit(stream)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert np.isfinite(model.components_).all()
    releases = sum(release.event.n_steps for release in model.privacy_.releases)
    print("## Memory\n")
    print("| documents | tokens each | V | K | releases | wall s | CPU s | peak GiB | target |")
    print("|---|---|---|---|---|---|---|---|---|")
    cells = [
        f"{num_documents:,}",
        TOKENS,
        f"{NUM_TERMS:,}",
        NUM_TOPICS,
        releases,
        f"{wall:.0f}",
        f"{cpu:.0f}",
        f"{peak:.2f}",
    ]
    print("| " + " | ".join(map(str, cells)) + " | under 2 |")


if __name__ == "__main__":
    main()
