"""diffprivlib's PCA: pure ε-differential privacy, with mean and largest norm of the rows given free.

Reads a file of arrays, train and test, and prints the variance of test rows that it captures over that of PCA.
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import PCA

warnings.filterwarnings("ignore")


def main() -> None:
    for path in sys.argv[4:]:
        arrays = np.load(path)
        train, test = arrays["train"], arrays["test"]
        k, mean = int(sys.argv[1]), train.mean(axis=0)
        norm = float(np.linalg.norm(train - mean, axis=1).max())
        covariance = np.cov(test.T)
        best = np.linalg.eigh(np.cov(train.T))[1][:, -k:]
        for epsilon in map(float, sys.argv[2].split(",")):
            for seed in range(int(sys.argv[3])):
                fitted = PCA(k, epsilon=epsilon, data_norm=norm, centered=True, random_state=seed).fit(train - mean)
                basis = np.linalg.qr(fitted.components_.T)[0]
                print(epsilon, np.trace(basis.T @ covariance @ basis) / np.trace(best.T @ covariance @ best))


if __name__ == "__main__":
    main()
