"""Time of a step with one very long document against one typical document, with and without `fixed_iterations`."""

import time
from functools import partial

import numpy as np
from scipy import sparse

from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.models.topics.lda import LDAModel

NUM_TERMS, NUM_TOPICS, NUM_DOCUMENTS, STEPS = 2_000, 10, 20_000, 25


def main() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, NUM_TERMS, (NUM_DOCUMENTS, 50))
    row = np.repeat(np.arange(NUM_DOCUMENTS), 50)
    typical = sparse.csr_array((np.ones(words.size), (row, words.ravel())), (NUM_DOCUMENTS, NUM_TERMS))
    worst = sparse.vstack([typical[:-1], sparse.csr_array(rng.integers(1, 1000, (1, NUM_TERMS)).astype(float))])
    print("## Time of a record\n")
    print(
        f"{STEPS} steps over {NUM_DOCUMENTS:,} documents of 50 words; one of them has all {NUM_TERMS:,} words, up to "
        "999 times each, against one like the others. Medians of interleaved steps, CPU time.\n"
    )
    print("| fixed_iterations | worst record / typical record | asked |\n|---|---|---|")
    for fixed_iterations in (True, False):
        model = LDAModel(NUM_TOPICS, NUM_TERMS, fixed_iterations=fixed_iterations)
        q = model.init(np.random.default_rng(1))
        release = Release({"counts": model.blocks["counts"]}, Mechanism(FullBatch(), 1.0))
        plan = Plan([release] * STEPS)
        walls = [Wall(BagOfWords(rows), plan, noise=InsecureNoise(0)) for rows in (typical, worst)]
        seconds: list[list[float]] = [[], []]
        for _ in range(STEPS):
            for wall, spent in zip(walls, seconds, strict=True):
                begun = time.process_time()
                wall.release(partial(model.e_step, q, blocks=release.blocks), release)
                spent.append(time.process_time() - begun)
        usual, longest = (float(np.median(spent)) for spent in seconds)
        print(f"| {fixed_iterations} | {longest / usual:.3f} | {'1.02' if fixed_iterations else '-'} |")


if __name__ == "__main__":
    main()
