"""Noiseless Pólya-Gamma regression through the wall, beside plain float64 implementations and other packages."""

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from dpvb.core import loop
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import Design, Response
from dpvb.papers.polya_gamma import PolyaGamma

STEPS, CONSTANT = 100, 0.4


def independent(x: np.ndarray, kappa: np.ndarray, b: np.ndarray, alpha: float, steps: int = 1500) -> np.ndarray:
    """Jaakkola and Jordan's iteration in plain float64."""
    curvature = x.T @ (0.25 * b[:, None] * x)
    for _ in range(steps):
        covariance = np.linalg.inv(alpha * np.eye(x.shape[1]) + curvature)
        last, mean = locals().get("mean"), covariance @ (kappa @ x)
        if last is not None and np.linalg.norm(mean - last) < 1e-12 * np.linalg.norm(mean):
            break
        c = np.sqrt(np.einsum("nd,nd->n", x @ covariance, x) + (x @ mean) ** 2)
        curvature = x.T @ ((b * np.tanh(c / 2) / (2 * c))[:, None] * x)
    return mean


def ours(model: PolyaGamma, source: Design) -> np.ndarray:
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget).scaled(0.0)
    q, _ = loop.fit(
        model, Wall(source, plan, num_examples=source.count()), plan, rho=model.step_size, rng=np.random.default_rng(0)
    )
    return q.mean_d


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def counts(folder: Path, name: str, response: str, columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """A table of the folder as rows of norm at most 1, the intercept's constant first, and its counts."""
    frame = pd.read_csv(folder / "counts" / f"{name}.csv", index_col=0)
    x = frame[columns].to_numpy(dtype=float)
    x = np.hstack([np.full((len(x), 1), CONSTANT), x * math.sqrt(1 - CONSTANT**2) / np.linalg.norm(x, axis=1).max()])
    return x, frame[response].to_numpy(dtype=float)


def main() -> None:
    folder = os.environ.get("DPVB_DATA")
    if not folder:
        raise SystemExit("set DPVB_DATA to the folder that holds regression/ and counts/")
    data = Path(folder)
    print("## Exactness of regression\n")
    print(f"No noise, {STEPS} steps, alpha = 1; counts: {2 * STEPS} steps, alpha = 1e-6. Relative L2 distance.\n")
    print("| data | compared with | distance | asked |\n|---|---|---|---|")
    for name in ("stroke", "diabany"):
        x = sparse.load_npz(data / "regression" / f"{'diab' if name == 'diabany' else name}.npz").toarray()[:20_000]
        x, y = x.astype(float), np.load(data / "regression" / f"{name}_y.npy").astype(float)[:20_000]
        source, constant = Design(x[:, 1:], y, intercept=float(x[0, 0])), float(x[0, 0])
        model = PolyaGamma(x.shape[1], intercept=constant, num_steps=STEPS, alpha=1.0, average=False)
        x = np.vstack([chunk.rows.x_nd for chunk in source.chunks()])
        found = distance(ours(model, source), independent(x, y - 0.5, np.ones(len(y)), 1.0))
        print(f"| {name}, {len(y):,} x {x.shape[1]} | Jaakkola & Jordan, plain float64 | {found:.1e} | 1e-5 |")
        mode = PolyaGamma(x.shape[1], intercept=constant, num_steps=STEPS, alpha=1.0, average=False, mode=True)
        peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=5000).fit(x, y).coef_[0]
        print(f"| {name}, mode | scikit-learn, L2 | {distance(ours(mode, source), peer):.1e} | 1e-4 |")
    import statsmodels.api as sm

    for name, response, columns in (
        ("NMES1988", "visits", ["hospital", "chronic", "school", "age"]),
        ("medpar", "los", ["hmo", "white", "type2", "type3"]),
    ):
        x, y = counts(data, name, response, columns)
        cap = int(y.max())
        counted = {"kind": "negative_binomial", "dispersion": 1.5, "max_count": cap, "alpha": 1e-6}
        steps = {"intercept": CONSTANT, "num_steps": 2 * STEPS, "average": False, "mode": True}
        model = PolyaGamma(x.shape[1], **counted, **steps)
        source = Design(x[:, 1:], y, response=Response("negative_binomial", max_count=cap), intercept=CONSTANT)
        means = 1.5 * np.exp(x @ ours(model, source))
        peer = sm.GLM(y, x, family=sm.families.NegativeBinomial(alpha=1 / 1.5)).fit(tol=1e-12)
        print(f"| {name}, dispersion 1.5 | statsmodels' means | {distance(means, peer.mu):.1e} | 1e-3 |")


if __name__ == "__main__":
    main()
