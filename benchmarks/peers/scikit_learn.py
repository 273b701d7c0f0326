"""The same logistic regression without privacy: scikit-learn's L2 optimum at a few precisions of the prior."""

import protocol
from sklearn.linear_model import LogisticRegression


def main() -> None:
    for alpha in (0.01, 1, 5):

        def fit(data, X, y, epsilon, seed, alpha=alpha):
            return LogisticRegression(C=1 / alpha, fit_intercept=False, tol=1e-6, max_iter=1_000).fit(X, y).coef_

        protocol.run(
            f"no privacy, α={alpha:g}",
            list(protocol.TABLES),
            ["scikit-learn", "numpy"],
            f"scikit-learn's LogisticRegression(C=1/{alpha:g}, fit_intercept=False)",
            fit,
            epsilons=(None,),
        )


if __name__ == "__main__":
    main()
