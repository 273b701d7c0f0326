"""diffprivlib's logistic regression: objective perturbation, ε-differential privacy (δ = 0), replace one row."""

import argparse
import warnings

import protocol
from diffprivlib.models import LogisticRegression

warnings.filterwarnings("ignore")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", default=list(protocol.TABLES))
    chosen = parser.parse_args().data
    for C in (1, 0.1, 0.01, 0.001):

        def fit(data, X, y, epsilon, seed, C=C):
            model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=C, fit_intercept=False, random_state=seed)
            return model.fit(X.toarray().astype(float), y).coef_

        protocol.run(
            f"diffprivlib C={C:g}",
            [data for data in chosen if data != "icd" or C == 0.01],
            ["diffprivlib", "scikit-learn", "numpy"],
            f"LogisticRegression(C={C:g}, data_norm=1, fit_intercept=False), the constant column in X; δ = 0, "
            "replace-one",
            fit,
        )


if __name__ == "__main__":
    main()
