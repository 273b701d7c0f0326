"""diffprivlib's linear regression on the designs of `benchmarks.linear`: ε-differential privacy (δ = 0), replace one.

Reads DESIGN-SPLIT.npz files of a folder (train and test rows of norm 1 at most with a constant first, y in [-1, 1]) and
prints a JSON object for each fit.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LinearRegression

warnings.filterwarnings("ignore")


def main() -> None:
    for path in sorted(Path(sys.argv[1]).glob("*.npz")):
        rows, (design, split) = np.load(path), path.stem.rsplit("-", 1)
        x, y, x_test, y_test = (rows[name] for name in ("x", "y", "x_test", "y_test"))
        for epsilon in map(float, sys.argv[2:]):
            model = LinearRegression(
                epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), fit_intercept=False, random_state=0
            )
            error = float(np.mean((y_test - model.fit(x, y).predict(x_test)) ** 2))
            r2 = 1 - error / float(np.var(y_test))
            print(json.dumps({"design": design, "split": int(split), "epsilon": epsilon, "r2": r2}), flush=True)


if __name__ == "__main__":
    main()
