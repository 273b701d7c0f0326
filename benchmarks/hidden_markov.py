"""Hidden Markov models beyond windows of symbols: private steps, numbers, bits, and the speed of an E-step.

Needs DPVB_DATA, the folder that holds sequences/ (msnbc, pendigits). hmmlearn stands beside where
`.venv-peers-hmmlearn`, or the folder that DPVB_HMMLEARN names, has it (`make .venv-peers-hmmlearn/ready`).
"""

import json
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpvb
from benchmarks.sequences import DATA, msnbc
from dpvb.core.contributions import Grid
from dpvb.data.sequences.rows import SequenceRows
from dpvb.models.sequences import dynamics, forward_backward
from dpvb.models.sequences.hidden_markov import HiddenMarkov
from dpvb.models.sequences.iterated import IteratedHiddenMarkov

ROOT = Path(__file__).parents[1]
PEER = Path(os.environ.get("DPVB_HMMLEARN", ROOT / ".venv-peers-hmmlearn")) / "bin" / "python"
#: People, states, fits of each cell.
STEPS = ((10_000, 20, 3), (100_000, 20, 3), (100_000, 34, 3), (800_000, 34, 2))
#: What numbers must reach: log-density of a point.
MUST = {0.5: -1.22, 1.0: -1.03, 4.0: -1.06, np.inf: None}
#: Positions per CPU-second that an E-step over short sequences must reach, by states.
RATES = {4: 5e6, 20: 1.2e6}


def steps() -> None:
    """Windows alone, with steps after them, and steps from a random start."""
    print(
        "## Hidden Markov models: steps, numbers, bits\n\nLog-probability of a held-out page visit in nats: windows "
        "alone, 4 steps after windows, and 20 steps from a random start; the first 10 visits of a user count.\n"
    )
    print("| people | states | ε | windows | refined | iterated | seconds of a refined fit |\n|" + "---|" * 7)
    for number, states, fits in STEPS:
        x, _, test, width, delta = msnbc(number)
        x = [one[:10] for one in x]
        for epsilon in (0.5, 1.0, 4.0):
            found, seconds = [], 0.0
            for solver in ("windows", "refined", "iterated"):
                # A random start stays far below whatever the number of people is.
                many = (1 if number < 800_000 else 0) if solver == "iterated" else fits
                scores = []
                for seed in range(many):
                    given: dict[str, Any] = {"symbols": width, "max_length": 10, "delta": delta, "random_state": seed}
                    start = time.process_time()
                    model = dpvb.HiddenMarkovModel(states, solver=solver, epsilon=epsilon, **given).fit(x)
                    seconds = time.process_time() - start if solver == "refined" else seconds
                    scores.append(model.score(test, public=True))
                found.append(f"{np.mean(scores):.4f}" if scores else "")
            print(f"| {number:,} | {states} | {epsilon:g} | {' | '.join(found)} | {seconds:.1f} |", flush=True)


def numbers() -> None:
    """Trajectories of pens: two numbers a point."""
    points = np.load(DATA / "pendigits" / "pendigits.npz")["points"] / 50 - 1
    print(
        "\nLog-density of a held-out point of pen trajectories (8 points of 2 numbers in [-1, 1]; 8,000 to fit, 2,992 "
        "to test), 8 states, mean of 3 fits; what must be reached. Many points lie at the ends of the range, where a "
        "state may be narrow: in the second row the deviations of the same fits are brought up to 0.1.\n"
    )
    print("| deviations |" + "".join(f" ε = {e:g} |" for e in MUST) + "\n|---|" + "---|" * len(MUST))
    found: dict[float, list[list[float]]] = {epsilon: [] for epsilon in MUST}
    for epsilon in MUST:
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(len(points))
            fit, test = points[order[:8000]], points[order[8000:]]
            given: dict[str, Any] = {"columns": 2, "low": -1, "high": 1, "emissions": "gaussian", "delta": 1e-6}
            model = dpvb.HiddenMarkovModel(8, epsilon=epsilon, random_state=seed, **given).fit(fit)
            own = [model.score(test, public=True)]
            shown = model._q.chain.emissions
            wide = np.maximum(shown.variance_dk, 0.1**2) * shown.shape_dk
            object.__setattr__(shown, "rate_dk", wide)
            found[epsilon].append([*own, model.score(test, public=True)])
    for place, name in enumerate(("0.01 and more", "0.1 and more")):
        row = [float(np.mean([own[place] for own in found[epsilon]])) for epsilon in MUST]
        told = [
            f"{one:.3f}" + ("" if most is None or place else f" ({most:g} {'met' if one >= most else 'MISSED'})")
            for one, most in zip(row, MUST.values(), strict=True)
        ]
        print(f"| {name} | {' | '.join(told)} |", flush=True)


def bits() -> None:
    """Simulated bits: 5,000 people of 20 points, 3 states."""
    print("\nLog-probability of a held-out point of D bits from 3 known states, 5,000 people of 20 points, 1 fit each "
          "(windows of three patterns up to D = 5, of two above).\n")  # fmt: skip
    print("| D | truth | independent | ε | windows | refined | iterated |\n|---|---|---|---|---|---|---|")
    step_kk = np.array([[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.05, 0.2, 0.75]])
    for width in (2, 4, 6, 8):
        rng = np.random.default_rng(width)
        law_kd = rng.choice([0.1, 0.3, 0.7, 0.9], size=(3, width))
        fit, test = (
            (rng.random((n, 20, width)) < law_kd[dynamics.drawn(np.full(3, 1 / 3), [step_kk], n, 20, rng)]) * 1.0
            for n in (5000, 2000)
        )
        given: dict[str, Any] = {"columns": width, "emissions": "bernoulli", "delta": 1e-6, "random_state": 0}
        model = dpvb.HiddenMarkovModel(3, epsilon=np.inf, **given).fit(fit[:100])
        chain = model._q.chain
        many = 1e9
        true = type(chain.emissions)(many * law_kd.T, many * (1 - law_kd.T))
        even, flat_k = np.full(3, many), np.ascontiguousarray(many * step_kk)
        truth = type(chain)(even, even, flat_k, true)
        at, flat = 20 * np.arange(2001), test.reshape(-1, width)
        best = forward_backward.log_likelihood(truth, at, flat).sum() / len(flat)
        p_d = fit.reshape(-1, width).mean(axis=0)
        plain = float(np.mean(flat @ np.log(p_d) + (1 - flat) @ np.log(1 - p_d)))
        for epsilon in (0.5, 1.0, 4.0):
            row = []
            for solver in ("windows", "refined", "iterated"):
                model = dpvb.HiddenMarkovModel(3, solver=solver, epsilon=epsilon, **given).fit(fit)
                row.append(f"{model.score(test, public=True):.3f}")
            print(f"| {width} | {best:.3f} | {plain:.3f} | {epsilon:g} | {' | '.join(row)} |", flush=True)


def speed() -> None:
    """A private E-step as the wall has it: passes, exact norms, integer sums; and hmmlearn's."""
    peer = PEER.exists()
    print("\nPositions per CPU-second of a whole E-step of 17 symbols: both passes, exact norms, clipped integer sums; "
          "and a step of hmmlearn 0.3.3 (\"scaling\") without clip or sums in integers, from the same laws, with the "
          "difference in log-likelihood per symbol.\n")  # fmt: skip
    print("| states | sequences | private E-step | must | hmmlearn | difference |\n|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for states, most in RATES.items():
        for longest in (10, 1000):
            length_n = rng.integers(1, 11, 80_000) if longest == 10 else np.full(400, 1000)
            at, code = np.append(0, np.cumsum(length_n)), rng.integers(0, 17, int(length_n.sum())).astype(np.int32)
            model = IteratedHiddenMarkov(HiddenMarkov(17, states, estimate="mode", max_length=longest), 1, False)
            q, seconds = model.init(rng), []
            for _ in range(4):  # The first one compiles.
                start = time.process_time()
                for first in range(0, len(length_n), 8192):  # As data are read.
                    rows = SequenceRows(at, code).take(slice(first, min(first + 8192, len(length_n))))
                    form = model.e_step(q, rows, model.blocks)
                    for name, block in model.blocks.items():
                        weight_n = np.minimum(1.0, block.bound / np.maximum(form[name].norms(), 1e-9))
                        sums = np.zeros(block.shape, np.int64)
                        form[name].accumulate(weight_n, Grid(2.0**-30, block.bound), sums)
                seconds.append(time.process_time() - start)
            rate = len(code) / min(seconds[1:])
            told = f"{most / 1e6:g} M {'met' if rate >= most else 'MISSED'}" if longest == 10 else ""
            other = _hmmlearn(model, q, length_n, at, code) if peer else "| "
            name = "up to 10 symbols" if longest == 10 else "1,000 symbols"
            print(f"| {states} | {name} | {rate / 1e6:.2f} M | {told} | {other} |", flush=True)


def _hmmlearn(model: Any, q: Any, length_n: Any, at: Any, code: Any) -> str:
    """The peer's rate, and how far its log-likelihood is off."""
    laws = q.chain.laws(expected=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.npz"
        shown = model.windows.shown_kv(q.chain)
        np.savez(file, lengths=length_n, symbols=code, start=laws.start_k, step=laws.step_kk, shown=shown)
        call = [str(PEER), str(Path(__file__).parent / "peers" / "with_hmmlearn.py"), str(file)]
        run = subprocess.run(call, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = json.loads(run.stdout)
    log = forward_backward.log_likelihood(q.chain, at, code.astype(np.int64)).sum()
    return f"{len(code) / found['seconds'] / 1e6:.2f} M | {abs(log - found['log']) / len(code):.0e}"


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    steps()
    numbers()
    bits()
    speed()
