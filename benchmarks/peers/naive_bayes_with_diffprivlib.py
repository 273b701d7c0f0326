"""diffprivlib's GaussianNB on the numbers of `benchmarks.naive_bayes`: ε-differential privacy (δ = 0), replace one.

Reads TABLE-SPLIT.npz files of a folder (rows, labels and public ranges) and prints a JSON object for each fit.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import GaussianNB

warnings.filterwarnings("ignore")


def main() -> None:
    for path in sorted(Path(sys.argv[1]).glob("*.npz")):
        rows, (table, split) = np.load(path), path.stem.rsplit("-", 1)
        for epsilon in map(float, sys.argv[2:]):
            model = GaussianNB(epsilon=epsilon, bounds=(rows["low"], rows["high"]), random_state=0)
            found = model.fit(rows["x"], rows["y"])
            test = rows["x_test"][:3000]  # It predicts row by row.
            score = found.predict_proba(test)
            facts = {"accuracy": float(np.mean(found.classes_[score.argmax(axis=1)] == rows["y_test"][:3000]))}
            facts |= {"table": table, "split": int(split), "epsilon": epsilon, "score": score[:, 1].tolist()}
            print(json.dumps(facts))


if __name__ == "__main__":
    main()
