"""Hidden Markov models beyond windows of symbols: private steps, numbers, bits, and the speed of an E-step.

Needs DPVB_DATA, the folder that holds sequences/ (msnbc, pendigits). hmmlearn and dynamax stand beside where
`.venv-peers-hmmlearn` and `.venv-peers-dynamax` have them (`make peers`). Names of parts run these alone:

    python -m benchmarks.hidden_markov [steps] [numbers] [bits] [speed] [systems] [million]
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import dpvb
from benchmarks.sequences import DATA, msnbc
from dpvb.cluster import LocalPool
from dpvb.core.blocks import Grid
from dpvb.data.sequences.content import taken
from dpvb.models.sequences import dynamics, kalman, passes
from dpvb.models.sequences.hidden_markov import HiddenMarkov
from dpvb.rows import SequenceRows

ROOT = Path(__file__).parents[1]
PEERS = ("hmmlearn", "dynamax")
#: People, states, fits of each cell.
STEPS = ((10_000, 20, 3), (100_000, 20, 3), (100_000, 34, 3), (800_000, 34, 2))
#: What numbers must reach: log-density of a point.
MUST = {0.5: -1.22, 1.0: -1.03, 4.0: -1.06, np.inf: None}
#: How many times as fast as the faster peer an E-step must be, and to how much log-likelihoods must be equal.
TIMES, NEAR = 2.0, 1e-6
#: GiB.
MOST = 2


def steps() -> None:
    """Windows alone, and with steps after them."""
    print(
        "## Hidden Markov models: steps, numbers, bits\n\nLog-probability of a held-out page visit in nats: windows "
        "alone, and 4 steps after windows; the first 10 visits of a user count.\n"
    )
    print("| people | states | ε | windows | with steps | seconds of a fit with steps |\n|" + "---|" * 6)
    for number, states, fits in STEPS:
        x, _, test, width, delta = msnbc(number)
        x = [one[:10] for one in x]
        for epsilon in (0.5, 1.0, 4.0):
            found, seconds = [], 0.0
            for n_steps in (0, 4):
                scores = []
                for seed in range(fits):
                    given: dict[str, Any] = {"symbols": width, "max_length": 10, "delta": delta, "random_state": seed}
                    start = time.process_time()
                    model = dpvb.HiddenMarkovModel(states, n_steps=n_steps, epsilon=epsilon, **given).fit(x)
                    seconds = time.process_time() - start
                    scores.append(model.score(test, public=True))
                found.append(f"{np.mean(scores):.4f}")
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
            given: dict[str, Any] = {"columns": 2, "low": -1, "high": 1, "delta": 1e-6}
            model = dpvb.GaussianHiddenMarkovModel(8, epsilon=epsilon, random_state=seed, **given).fit(fit)
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
    print("| D | truth | independent | ε | windows | with steps |\n|---|---|---|---|---|---|")
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
        best = passes.log_likelihood(truth, at, flat).sum() / len(flat)
        p_d = fit.reshape(-1, width).mean(axis=0)
        plain = float(np.mean(flat @ np.log(p_d) + (1 - flat) @ np.log(1 - p_d)))
        for epsilon in (0.5, 1.0, 4.0):
            row = []
            for n_steps in (0, 4):
                model = dpvb.HiddenMarkovModel(3, n_steps=n_steps, epsilon=epsilon, **given).fit(fit)
                row.append(f"{model.score(test, public=True):.3f}")
            print(f"| {width} | {best:.3f} | {plain:.3f} | {epsilon:g} | {' | '.join(row)} |", flush=True)


def speed() -> None:
    """A private E-step as the wall has it: passes, exact norms, integer sums; and those of others."""
    print("\nPositions per CPU-second of a whole E-step of 17 symbols: both passes, exact norms, clipped integer sums. "
          "Beside it a step of hmmlearn 0.3.3 (\"scaling\") and of dynamax 1.0.3 (float64, compiled before, sequences "
          "of one length together), from the same laws, without clip or sums in integers. Must: twice the faster one, "
          "and log-likelihoods per symbol that differ by at most 1e-6. The fastest of five counts.\n")  # fmt: skip
    print("| states | sequences | private E-step | hmmlearn | dynamax | times the faster | differences |")
    print("|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for states in (4, 20):
        for longest in (10, 1000):
            length_n = rng.integers(1, 11, 80_000) if longest == 10 else np.full(400, 1000)
            at, code = np.append(0, np.cumsum(length_n)), rng.integers(0, 17, int(length_n.sum())).astype(np.int32)
            model = HiddenMarkov(17, states, estimate="map", max_length=longest, n_steps=1)
            blocks = {name: block for name, block in model.blocks.items() if block.phase == "step"}
            q, seconds = model.init(rng), []
            for _ in range(6):  # The first one compiles.
                start = time.process_time()
                for first in range(0, len(length_n), 8192):  # As data are read.
                    rows = taken(SequenceRows(at, code), slice(first, min(first + 8192, len(length_n))))
                    form = model.e_step(q, rows, blocks)
                    for name, block in blocks.items():
                        weight_n = np.minimum(1.0, block.bound / np.maximum(form[name].norms(), 1e-9))
                        sums = np.zeros(block.shape, np.int64)
                        form[name].accumulate(weight_n, Grid(2.0**-30, block.bound), sums)
                seconds.append(time.process_time() - start)
            rate, laws = len(code) / min(seconds[1:]) / 1e6, q.chain.laws(expected=False)
            given = {"lengths": length_n, "symbols": code, "start": laws.start_k, "step": laws.step_kk}
            log = passes.log_likelihood(q.chain, at, code.astype(np.int64)).sum()
            others = [told(peer, **given, shown=model.shown_kv(q.chain)) for peer in PEERS]
            rates = [len(code) / other["seconds"] / 1e6 if other else 0.0 for other in others]
            away = [abs(log - other["log"]) / len(code) for other in others if other]
            met = [f"{rate / max(rates):.1f} ({'met' if rate >= TIMES * max(rates) else 'MISSED'})"] * any(rates)
            near = [f"{', '.join(f'{one:.0e}' for one in away)} ({'met' if max(away) <= NEAR else 'MISSED'})"] * any(
                rates
            )
            name = "up to 10 symbols" if longest == 10 else "1,000 symbols"
            cells = [f"{rate:.2f} M", *(f"{one:.2f} M" if one else "" for one in rates), *met, *near]
            print(f"| {states} | {name} | {' | '.join(cells)} |", flush=True)


def systems() -> None:
    """Likelihoods and states of linear dynamical systems, by Kalman's passes and by dynamax's."""
    rng = np.random.default_rng(1)
    print("\nKalman's passes over 100 sequences of 50 points of a linear dynamical system, and those of dynamax 1.0.3 "
          "(`lgssm_smoother`, float64) with the same parameters: largest differences.\n")  # fmt: skip
    print("| states | columns | log-likelihood of a point | means of states | variances of states | must |")
    print("|---|---|---|---|---|---|")
    for states, columns in ((3, 4), (6, 2)):
        step_kk = 0.9 * np.linalg.qr(rng.standard_normal((states, states)))[0]
        shown_dk, start_kk = rng.standard_normal((columns, states)), np.eye(states) * 2.0
        start_k, even = rng.standard_normal(states), np.eye(states) * 0.3
        shown_d, noise_d = rng.standard_normal(columns), 0.1 + rng.random(columns)
        law = start_k, start_kk
        system = kalman.LinearSystem(step_kk, even, shown_dk, shown_d, noise_d, *law, *law)
        x_ntd = kalman.drawn(system, 100, 50, rng)
        own = kalman.smoothed(system, x_ntd)
        other = told(
            "dynamax", points=x_ntd, initial_mean=start_k, initial_cov=start_kk, dynamics_weights=step_kk,
            dynamics_cov=even, emissions_weights=shown_dk, emissions_cov=np.diag(noise_d), emissions_bias=shown_d,
        )  # fmt: skip
        if other:
            variance_ntk = np.diagonal(own.cov_ntkk, axis1=2, axis2=3)
            given = ((own.log_n / 50, np.array(other["log"]) / 50), (own.mean_ntk, other["means"]))
            away = [float(np.abs(a - b).max()) for a, b in (*given, (variance_ntk, other["variances"]))]
            cells = " | ".join(f"{one:.0e}" for one in away)
            print(f"| {states} | {columns} | {cells} | 1e-6 {'met' if max(away) <= NEAR else 'MISSED'} |", flush=True)


def told(peer: str, **given: Any) -> Any:
    """What a peer says of these arrays; None where it is not installed."""
    python = ROOT / f".venv-peers-{peer}" / "bin" / "python"
    if not python.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.npz"
        np.savez(file, **given)
        call = [str(python), str(ROOT / "benchmarks" / "peers" / f"with_{peer}.py"), str(file)]
        alone = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
        run = subprocess.run(call, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=alone)
    return json.loads(run.stdout)


def million() -> None:
    """Time and memory of a million people, each fit in a process of its own."""
    print("\nA million people of 20 points, 4 states, on two cores: in one process, and with a pool of two more "
          f"(`cluster=\"local:2\"`). Asked: less than {MOST} GiB in all.\n")  # fmt: skip
    print("| people show | steps | processes | seconds | CPU-seconds | GiB at most, of each process | asked |")
    print("|---|---|---|---|---|---|---|")
    for kind, n_steps in (("categorical", "0"), ("categorical", "4"), ("gaussian", "0")):
        for workers in (0, 2):
            call = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "benchmarks.hidden_markov",
                "one",
                kind,
                n_steps,
                str(workers),
            ]
            run = subprocess.run(call, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
            seconds, used, *peaks = json.loads(run.stdout)
            cells = (
                kind,
                n_steps,
                str(1 + workers),
                f"{seconds:.1f}",
                f"{used:.1f}",
                " + ".join(f"{p:.2f}" for p in peaks),
            )
            print(f"| {' | '.join(cells)} | {'met' if sum(peaks) < MOST else 'MISSED'} |", flush=True)


def one(kind: str, n_steps: str, workers: str) -> None:
    """A fit to a million made-up people, as JSON: seconds, CPU-seconds, and GiB of each process."""
    rng, number = np.random.default_rng(0), 1_000_000
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-7, "max_length": 20, "random_state": 0}
    if kind == "categorical":
        x: Any = rng.integers(0, 17, (number, 20), dtype=np.int8)
        model = dpvb.HiddenMarkovModel(4, symbols=17, n_steps=int(n_steps), **given)
    else:
        x = rng.random((number, 20, 2), dtype=np.float32)
        model = dpvb.GaussianHiddenMarkovModel(4, columns=2, low=0, high=1, **given)
    with LocalPool(int(workers)) if int(workers) else nullcontext() as pool:
        begun = time.perf_counter()
        model.fit(x, run=dpvb.Run(cluster=pool))
        seconds = time.perf_counter() - begun
        processes = ["self", *(pool.process_ids if pool else [])]
        peaks = [int(re.findall(r"VmHWM:\s*(\d+)", Path(f"/proc/{p}/status").read_text())[0]) for p in processes]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps([seconds, sum(own.ru_utime + own.ru_stime for own in used), *(peak / 2**20 for peak in peaks)]))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if sys.argv[1:2] == ["one"]:
        one(*sys.argv[2:])
        sys.exit()
    parts = {part.__name__: part for part in (steps, numbers, bits, speed, systems, million)}
    for name in sys.argv[1:] or parts:
        parts[name]()
