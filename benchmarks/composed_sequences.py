"""The worked examples of sequences: several hidden chains, and motion that switches, beside the truth and plain models.

Models and made-up data are those of docs/models/factorial-hidden-markov.md and docs/models/switching-dynamics.md.

    python -m benchmarks.composed_sequences
"""

import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpvb
from dpvb.models.sequences import log_likelihood, most_probable

PAGES = Path(__file__).parents[1] / "docs" / "models"
BLOCK = re.compile(r'^```python(?: title="(\w+)\.py")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
FITS, EPSILONS = 3, (0.5, 1.0, 4.0, np.inf)


def page(name: str) -> tuple[Any, Any]:
    """How a page makes its data, its first block; and its model, the block that has a title."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    [(title, model)] = [block for block in blocks if block[0]]
    made = types.ModuleType("data"), types.ModuleType(title)
    for module, code in zip(made, (blocks[0][1], model), strict=True):
        sys.modules[module.__name__] = module
        exec(compile(code, f"{name}.md", "exec"), vars(module))
    return made


def row(people: int, epsilon: float, *values: Any) -> None:
    """A line of a table."""
    print(f"| {people:,} | {epsilon:g} | " + " | ".join(f"{value:.3f}" for value in values) + " |", flush=True)


def mean(fit: Any, epsilon: float) -> Any:
    """The mean of what some fits return; of one where there is no noise."""
    return np.mean([fit() for _ in range(FITS if epsilon < np.inf else 1)], axis=0)


def factorial_truth(data: Any, model: Any) -> Any:
    """The chain that made the readings, as the page's model has it."""
    on_km = np.array([[k >> m & 1 for m in (2, 1, 0)] for k in range(8)], dtype=float)
    off, on = data.STAYS_OFF, data.STAYS_ON
    step_m22 = np.stack([np.stack([off, 1 - off], axis=1), np.stack([1 - on, on], axis=1)], axis=1)
    start_m2 = np.stack([1 - on, 1 - off], axis=1) / (2 - off - on)[:, None]
    noise = np.sqrt(0.8**2 + 1 / 12)  # Rounding to whole levels adds to it.
    return model.Factorial(start_m2, start_m2, step_m22, model.Sum(on_km, data.SIZES, 3.0, noise, data.LEVELS))


def devices() -> None:
    """Several hidden chains."""
    data, model = page("factorial-hidden-markov")
    new, on = data.houses(2_000, np.random.default_rng(0))
    bounds, flat = np.arange(0, new.size + 1, new.shape[1]), new.ravel()

    def told(chain: Any) -> tuple[float, float]:
        """Nats a reading, and the share of devices that are told rightly."""
        order = np.argsort(chain.emissions.size_m)
        state_t = most_probable(chain, bounds, flat)
        right = (chain.emissions.on_km[state_t][:, order] == on.reshape(-1, 3)).mean()
        return log_likelihood(chain, bounds, flat).sum() / new.size, right

    best = told(factorial_truth(data, model))
    print("### Several hidden chains\n\nThree devices behind a meter of 24 levels, 20 readings a house: "
          "log-probability of a held-out reading in nats, and the share of devices that are told rightly. "
          f"The true chain has {best[0]:.3f} and {best[1]:.3f}. Mean of {FITS} fits.\n")  # fmt: skip
    print(
        "| houses | ε | factorial | hidden Markov, 8 states | Markov chain | devices told |\n|---|---|---|---|---|---|"
    )
    for number in (1_000, 5_000, 20_000):
        x, _ = data.houses(number, np.random.default_rng(number))
        for epsilon in EPSILONS:
            given: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6}

            def factorial(x: Any = x, given: dict[str, Any] = given) -> tuple[float, float]:
                released = dpvb.MarkovChain(data.LEVELS, power=1.0, clip_norm=2.0, **given).fit(x)
                return told(model.fitted(released.windows_, 3, data.LEVELS, np.random.default_rng(0)))

            plain = (dpvb.HiddenMarkovModel(8, symbols=data.LEVELS, **given), dpvb.MarkovChain(data.LEVELS, **given))
            scores = [mean(lambda one=one, x=x: one.fit(x).score(new, public=True), epsilon) for one in plain]
            score, right = mean(factorial, epsilon)
            row(number, epsilon, score, *scores, right)


def density(q: Any, y_nt: Any, first: float) -> Any:
    """Log-density of each sequence, (n,), exactly: a Kalman filter along every path of regimes."""
    k, n = len(q.slope_k), len(y_nt)
    last_p, log_np = np.arange(k), np.tile(np.log(q.start_k), (n, 1))
    mean_np, variance_np = np.tile(q.first_k, (n, 1)), np.full((n, k), first)
    for t, y_n in enumerate(y_nt.T):
        if t:
            mean_np = (q.slope_k * mean_np[:, :, None] + q.shift_k).reshape(n, -1)
            variance_np = (q.slope_k**2 * variance_np[:, :, None] + q.noise_k).reshape(n, -1)
            log_np = (log_np[:, :, None] + np.log(q.switch_kk)[last_p]).reshape(n, -1)
            last_p = np.tile(np.arange(k), len(last_p))
        miss_np, total_np = y_n[:, None] - mean_np, variance_np + q.error
        log_np = log_np - 0.5 * (np.log(2 * np.pi * total_np) + miss_np**2 / total_np)
        gain_np = variance_np / total_np
        mean_np, variance_np = mean_np + gain_np * miss_np, variance_np * (1 - gain_np)
    return np.logaddexp.reduce(log_np, axis=1)


def pulses() -> None:
    """Motion that switches."""
    data, model = page("switching-dynamics")
    new, regime = data.people(400, np.random.default_rng(0))
    y, length = (new - 110) / 70, new.shape[1]

    def told(q: Any) -> tuple[float, float]:
        """Nats a point, and the share of points whose regime is told rightly."""
        found = model.explained(q, y.T)[0].argmax(axis=2).T
        return density(q, y, model.FIRST).mean() / length, (found == regime).mean()

    slope, shift, noise, stays = map(np.array, data.TRUE.values())
    switch_kk = np.array([[stays[0], 1 - stays[0]], [1 - stays[1], stays[1]]])
    best = told(
        model.Motions(slope, shift, noise**2, switch_kk, np.array([0.65, 0.35]), np.array([-0.5, 0.4]), 0.05**2)
    )
    print("\n### Motion that switches\n\nTwo regimes, 12 points a person: log-density of a held-out point in nats, in "
          "units of half the range, by all 4,096 paths of regimes, and the share of points whose regime is told "
          f"rightly. The true system has {best[0]:.3f} and {best[1]:.3f}. Mean of {FITS} fits.\n")  # fmt: skip
    print("| people | ε | switching | linear dynamical, 2 states | hidden Markov, 8 states | regimes told |")
    print("|---|---|---|---|---|---|")
    for number in (1_000, 3_000, 10_000):
        x = (data.people(number, np.random.default_rng(number))[0] - 110) / 70
        for epsilon in EPSILONS:
            given: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6}
            range_: dict[str, Any] = {"columns": 1, "low": -1, "high": 1, "max_length": length, **given}
            private = dpvb.PrivateModel(model.Switching(2, length), max_row_norm=length**0.5, **given)
            plain = (
                dpvb.LinearDynamicalSystem(2, **range_),
                dpvb.GaussianHiddenMarkovModel(8, **range_),
            )
            scores = [
                mean(lambda one=one, x=x: one.fit(x[:, :, None]).score(y[:, :, None], public=True), epsilon)
                for one in plain
            ]
            score, right = mean(lambda private=private, x=x: told(private.fit(x).q_), epsilon)
            row(number, epsilon, score, *scores, right)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    print("## Sequence models of one's own\n")
    devices()
    pulses()
