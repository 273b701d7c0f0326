"""Doctor visits of the elderly (NMES1988): negative binomial regression under a public schema, on held-out rows."""

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd

import dpvb
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target
from dpvb.results import metrics

SEEDS, EPSILONS, DELTA = range(5), (1.0, 2.0, 4.0, math.inf), 1e-5
#: Public guesses: the variance is mean + mean²/DISPERSION, and a count above MAX_COUNT counts as MAX_COUNT.
DISPERSION, MAX_COUNT = 1.2, 20
YES_NO = {"values": ("no", "yes")}
SCHEMA = Schema(
    columns=[
        Numeric("hospital", low=0, high=8, transform="log1p"),
        Numeric("chronic", low=0, high=8),
        Numeric("age", low=6.6, high=10),
        Numeric("school", low=0, high=18),
        Numeric("income", low=0, high=30, transform="log1p"),
        Categorical("health", ("poor", "average", "excellent")),
        Categorical("region", ("midwest", "northeast", "west", "other")),
        Binary("adl", values=("normal", "limited")),
        Binary("gender", values=("female", "male")),
        *(Binary(name, **YES_NO) for name in ("afam", "married", "employed", "insurance", "medicaid")),
    ],
    target=Target("visits", kind="negative_binomial", max_count=MAX_COUNT),
)


def reference(train: Table, test: Table) -> float:
    """Held-out deviance of statsmodels' maximum likelihood on the same rows."""
    import statsmodels.api as sm

    family = sm.families.NegativeBinomial(alpha=1 / DISPERSION)
    (x, y), (x_test, y_test) = (dense(table) for table in (train, test))
    seen = x.any(axis=0)
    fitted = sm.GLM(y, x[:, seen], family=family).fit_regularized(alpha=1e-6, L1_wt=0.0)
    return metrics.negative_binomial_deviance(y_test, fitted.predict(x_test[:, seen]), DISPERSION)


def dense(table: Table) -> tuple[np.ndarray, np.ndarray]:
    chunks = [chunk.rows for chunk in table.design().chunks()]
    return np.vstack([rows.x_nd for rows in chunks]), np.concatenate([rows.y_n for rows in chunks])


def main() -> None:
    folder = os.environ.get("DPVB_DATA")
    if not folder:
        raise SystemExit("set DPVB_DATA to the folder that holds counts/NMES1988.csv")
    frame = pd.read_csv(Path(folder) / "counts" / "NMES1988.csv", index_col=0)
    deviance: dict[tuple[str, float], list[float]] = {}
    for seed in SEEDS:
        place = np.random.default_rng(1000 + seed).permutation(len(frame))
        test, train = (Table(frame.iloc[part], SCHEMA) for part in np.split(place, [len(frame) // 5]))
        deviance.setdefault(("statsmodels", math.inf), []).append(reference(train, test))
        for epsilon in EPSILONS:
            given = {"dispersion": DISPERSION, "max_count": MAX_COUNT, "epsilon": epsilon, "delta": DELTA}
            model = dpvb.NegativeBinomialRegression(**given).fit(train)
            deviance.setdefault(("ours", epsilon), []).append(model.evaluate(test, public=True)["deviance"])
    print("## Counts: doctor visits\n")
    print(
        f"NMES1988, {len(frame):,} rows, public schema of {len(SCHEMA.feature_names)} features, dispersion "
        f"{DISPERSION}, counts above {MAX_COUNT} taken as {MAX_COUNT}, delta = {DELTA:g}; deviance per held-out row "
        f"(a fifth), mean of {len(SEEDS)} splits, and how far it is above that without noise.\n"
    )
    names = [f"eps = {epsilon:g}" if epsilon < math.inf else "no noise" for epsilon in EPSILONS]
    print(f"| method | {' | '.join(names)} | asked at eps = 4 |\n|---|{'---|' * len(names)}---|")
    mean = {epsilon: float(np.mean(deviance["ours", epsilon])) for epsilon in EPSILONS}
    cells = [f"{mean[e]:.4f} ({100 * (mean[e] / mean[math.inf] - 1):+.1f} %)" for e in EPSILONS]
    print(f"| first order | {' | '.join(cells)} | +5 % |")
    plain = float(np.mean(deviance["statsmodels", math.inf]))
    print(f"| maximum likelihood (statsmodels) |{' |' * (len(EPSILONS) - 1)} {plain:.4f} | |")


if __name__ == "__main__":
    main()
