"""The forecast of memory, compared with the measured peak of a process that does nothing but the fit."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpvb
from dpvb.errors import ParameterError

#: Largest factor between the middle of a forecast and the measured peak, as the documentation states.
FACTOR = 1.5
COMMON = "epsilon=1.0, delta=1e-6, n_steps=2"
# How a fit is made, the number of its units, and its rows from `rng`.
FITS = {
    "hardly any rows": (f"dpvb.LogisticRegression(low=0, high=1, {COMMON})", 100, 10, "held"),
    "logistic": (f"dpvb.LogisticRegression(low=0, high=1, {COMMON})", 400_000, 20, "held"),
    "wide rows": (f"dpvb.LogisticRegression(low=0, high=1, {COMMON})", 20_000, 600, "held"),
    "diagonal": (f"dpvb.LogisticRegression(low=0, high=1, covariance='diagonal', {COMMON})", 400_000, 20, "held"),
    "linear": (f"dpvb.LinearRegression(low=0, high=1, y_range=(0, 1), {COMMON})", 500_000, 40, "held"),
    "file, streamed": (f"dpvb.LogisticRegression({COMMON})", 400_000, 20, "streamed"),
    "mixture": (f"dpvb.GaussianMixture(3, low=0, high=1, {COMMON})", 200_000, 20, "held"),
    "factors": ("dpvb.FactorAnalysis(3, low=0, high=1, epsilon=1.0, delta=1e-6)", 400_000, 20, "held"),
    "belief network": (f"dpvb.SigmoidBeliefNetwork(5, {COMMON})", 100_000, 50, "held"),
    "topics": (f"dpvb.LDA(20, public_vocabulary=True, {COMMON})", 2_000, 50_000, "held"),
}
#: What a process needs by itself, rows in memory, sparse rows, and rows in a file.
EVERY_DAY = ("hardly any rows", "mixture", "topics", "file, streamed")
FIT = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from scipy import sparse
import dpvb
kind, n, d, path, topics = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5] == "topics"
model, rng = eval(kind), np.random.default_rng(0)
y = ()
if path:
    names = [f"x{j}" for j in range(d)]
    schema = dpvb.Schema([dpvb.data.Numeric(name, 0, 1) for name in names], dpvb.data.Target("y"))
    X = dpvb.Table(path, schema, stream=True)
elif topics:
    words = rng.integers(d, size=200 * n)
    X = sparse.csr_array((np.ones(200 * n), words, np.arange(0, 200 * n + 1, 200)), shape=(n, d))
else:
    X = rng.random((n, d))
    if "Sigmoid" in kind:
        X = np.round(X, out=X)
    y = (rng.integers(0, 2, n),) if "Regression" in kind else ()
model.fit(X, *y)
# The peak of this program: getrusage has that of the process which started it, if it was larger.
lines = open("/proc/self/status").read().splitlines()
print(next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in EVERY_DAY)) for name in FITS]
)
def test_the_forecast_is_near_the_measured_peak(name: str, tmp_path: Path) -> None:
    kind, n, d, form = FITS[name]
    path, columns = "", {"width": d}
    if form == "streamed":
        import pyarrow as pa
        import pyarrow.parquet as pq

        rng = np.random.default_rng(0)
        numbers = {f"x{j}": rng.random(n) for j in range(d)}
        path = str(tmp_path / "rows.parquet")
        pq.write_table(pa.table({"y": rng.integers(0, 2, n), **numbers}), path, row_group_size=2**16)
        schema = dpvb.Schema([dpvb.data.Numeric(name, 0, 1) for name in numbers], dpvb.data.Target("y"))
        columns = {"schema": schema}
    estimator = eval(kind)
    low, high = getattr(dpvb.plan(estimator, n, epsilons=[], **columns).memory, form)
    told = subprocess.run(
        [sys.executable, "-c", FIT, kind, str(n), str(d), path, name], check=True, capture_output=True, text=True
    )
    measured, middle = float(told.stdout), math.sqrt(low * high)
    print(f"{name}: {low / 1e6:.0f} to {high / 1e6:.0f} MB, measured {measured / 1e6:.0f}: {measured / middle:.2f}")
    assert middle / FACTOR <= measured <= FACTOR * middle
    assert low <= measured <= high


def test_a_forecast_follows_the_rows_of_persons_and_the_width() -> None:
    model = dpvb.LogisticRegression(low=0, high=1, epsilon=1.0, delta=1e-6)

    def held(n: int, width: int, entries: float | None = None) -> float:
        return dpvb.plan(model, n, width, epsilons=[], entries=entries).memory.held[0]

    # A column of float64 has 8 bytes for each row, and an intercept is a column.
    assert held(10**7, 21) - held(10**7, 20) == pytest.approx(8 * 10**7, rel=1e-3)
    assert held(10**6, 20, 10 * 21) == held(10**7, 20)
    summary = dpvb.plan(model, 10**6, 20, epsilons=[])
    assert summary.memory.streamed[1] < summary.memory.held[0] + 2e8
    assert str(summary.memory) in str(summary)
    assert summary.to_dict()["memory"]["held"] == list(summary.memory.held)
    with pytest.raises(ParameterError, match="entries"):
        dpvb.plan(model, 100, 20, epsilons=[], entries=0)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
@pytest.mark.parametrize("kind", ["table", "documents"])
def test_the_temporary_file_of_a_stream_is_as_large_as_forecast(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most the forecast, and at least half of it."""
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    rng, budget = np.random.default_rng(0), {"epsilon": 1.0, "delta": 1e-6}
    if kind == "table":
        names, n = [f"x{j}" for j in range(20)], 3_000
        cells = np.column_stack([rng.random((n, 20)).round(6), rng.integers(0, 2, n)])
        np.savetxt(tmp_path / "x.csv", cells, "%g", delimiter=",", header=",".join([*names, "y"]), comments="")
        schema = dpvb.Schema([dpvb.data.Numeric(name, 0, 1) for name in names], dpvb.data.Target("y"))
        source = dpvb.Table(tmp_path / "x.csv", schema, stream=True).design()
        summary = dpvb.plan(dpvb.LogisticRegression(**budget), n, schema=schema, epsilons=[])
    else:
        words, n = [a + b for a in "abcdefghijklmnopqrst" for b in "uvwxyz"], 2_000
        lines = (" ".join(rng.choice(words, 50, replace=False)) for _ in range(n))
        (tmp_path / "x.txt").write_text("\n".join(lines))
        source = dpvb.data.open_documents(tmp_path / "x.txt", vocabulary=words, stream=True)
        summary = dpvb.plan(dpvb.LDA(5, **budget), n, vocabulary=words, epsilons=[], entries=50)
    assert source.count() == n
    # The file has no name, so that only this process reports its size.
    opened = [link for link in Path("/proc/self/fd").iterdir() if os.path.realpath(link).startswith(str(scratch))]
    written = sum(link.stat().st_size for link in opened)
    print(f"{kind}: {written} of {summary.memory.disk:.0f} bytes")
    assert summary.memory.disk / 2 <= written <= summary.memory.disk
