"""DP-SGD in NumPy: Poisson batches, noise by this package's accountant; for data that are too wide for dense batches.

A row's gradient (σ(ψ) - y) x has norm at most 1 here, so that clipping to 1 changes nothing.
"""

import json

import numpy as np
import protocol
from scipy.special import expit

LEARNING_RATE = 4.0


def fit(data, X, y, epsilon, seed):
    rng = np.random.default_rng(seed)
    sampling_prob, n_steps = protocol.rate(data, len(y))
    noise = json.loads(protocol.NOISE.read_text())[data][str(epsilon)]
    w = np.zeros(X.shape[1])
    for t in range(n_steps):
        batch = np.flatnonzero(rng.random(len(y)) < sampling_prob)
        x = X[batch]
        gradient = x.T @ (expit(x @ w) - y[batch]) + noise * rng.standard_normal(len(w))
        w -= LEARNING_RATE * (1 - t / n_steps) * gradient / (sampling_prob * len(y))
    return w


if __name__ == "__main__":
    protocol.run(
        "DP-SGD in NumPy",
        ["icd"],
        ["numpy", "scipy"],
        "learning rate 4 falling linearly to 0, Poisson batches of 1,024 on average, 20 epochs, clip 1, our noise, "
        "last iterate; add/remove",
        fit,
    )
