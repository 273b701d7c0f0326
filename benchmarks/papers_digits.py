"""Algorithm 6 on handwritten digits: Figure 7 of the journal version."""

import math
import time
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import dpvb
from benchmarks import mnist
from benchmarks.papers_runs import remembered
from benchmarks.papers_topics import head, row, say
from dpvb import accounting
from dpvb.data.tables.design import BinaryMatrix
from dpvb.errors import DpvbWarning
from dpvb.papers.belief_network import VIPSNetwork

#: Figure 7: mini-batch size → ε of the moments accountant, which both private methods have.
PRINTED = {400: 2.3468, 800: 2.3980, 1600: 3.2262, 3200: 4.8253}
DELTA, SIGMA = 1e-4, 1.0
#: Test images; the paper has 100.
TESTED = 1_000


@cache
def images(part: str) -> np.ndarray:
    return mnist.images(part)


def fitted(size: int, sigma: float, seed: int = 0) -> dict[str, Any]:
    """One pass of Poisson batches of mean size S; accuracy of the pixels of reconstructions."""
    train, test = images("train"), images("t10k")[:TESTED]
    rows, width = train.shape
    # Algorithm 6 has no loop within its E-step.
    network = VIPSNetwork(mnist.K, width, n_rows=rows, sweeps=1, n_steps=rows // size)
    noise = {"epsilon": 1e3, "noise_multiplier": sigma} if sigma else {"epsilon": math.inf}
    begin = time.process_time()
    with warnings.catch_warnings():
        # δ = 1e-4 is above one over the number of images, and the fits are in no ledger.
        warnings.simplefilter("ignore", DpvbWarning)
        fit = dpvb.PrivateModel(
            network, delta=DELTA, sampling_prob=size / rows, n_units=rows, random_state=seed, **noise
        ).fit(BinaryMatrix(train, threshold=0))
    cpu, n_bar = time.process_time() - begin, fit.q_.n_bar
    pi_nk, _ = replace(network, sweeps=mnist.SWEEPS).local(n_bar, (test > 0).astype(float))
    shown_nj = pi_nk @ n_bar["w"].T + n_bar["c"] > 0
    return {
        "accuracy": float((shown_nj == (test > 0)).mean()),
        "epsilon": fit.privacy_.epsilon if sigma else "inf",
        "cpu": round(cpu),
    }


def figure_7() -> None:
    """Accuracy by mini-batch size, without noise, by the moments accountant and by strong composition."""
    rows = 60_000
    print("\n### Belief network: Figure 7\n")
    say(
        f"K = {mnist.K}, σ = {SIGMA:g}, δ = {DELTA:g}, one pass over 60,000 images (pixel > 0), one seed, one round",
        "of (59) and (61) in an E-step. Strong composition: the noise with which it claims the printed ε. Accuracy:",
        f"pixels of the reconstructions of {TESTED:,} test images. Predicting the mean image: 0.844; predicting 0",
        "everywhere: 0.807. -: not run.",
    )
    head("S", "ε printed", "ε (PLD)", "no privacy", "moments accountant", "strong composition", "its σ")
    for size in sorted(PRINTED, reverse=True):
        plan = {"sampling_prob": size / rows, "n_steps": rows // size, "delta": DELTA}
        strong = round(accounting.noise_multiplier(epsilon=PRINTED[size], method="strong", **plan), 4)
        spent = accounting.epsilon(noise_multiplier=SIGMA, **plan)
        columns = []
        for sigma in (0.0, SIGMA, strong):
            result = remembered({"size": size, "sigma": sigma, "seed": 0}, fitted)
            columns.append(f"{result['accuracy']:.4f}" if result else "-")
        row(f"{size:,}", f"{PRINTED[size]}", f"{spent:.4f}", *columns, f"{strong:.3f}")
