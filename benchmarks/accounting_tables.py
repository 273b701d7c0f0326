"""Print the papers' tables by every method, and how calibration and hostile parameters fare (Markdown)."""

import itertools
import math
import resource
import time

import numpy as np

from dpvb import accounting
from dpvb.accounting import Event

SQRT2 = math.sqrt(2)
DELTA = 1e-4


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n### {title}\n")
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")


def by(method: str, q: float, sigma: float, steps: int, **more) -> str:
    value = accounting.epsilon(
        sampling_prob=q, noise_multiplier=sigma, n_steps=steps, delta=DELTA, method=method, **more
    )
    return f"{value:.4f}"


def topic_model() -> None:
    rows = []
    for size, sigma in itertools.product((5000, 10000, 20000), (1.0, 1.1, 1.24, 1.5, 2.0)):
        plan = size / 400_000, sigma, 400_000 // size
        fixed = {"sampler": "fixed_size", "swap_ratio": SQRT2}
        replace = {"sampler": "fixed_size", "neighboring_relation": "replace_one"}
        rows.append(
            [f"{size}", f"{sigma}"]
            + [by(method, *plan) for method in ("moments_capped", "moments", "renyi", "pld")]
            + [by("wang", *plan, swap_ratio=1.0, **replace), by("pld", *plan, **fixed)]
            + [by("pld", *plan, swap_ratio=SQRT2, **replace), by("strong", *plan), by("linear", *plan)]
        )
    head = ["S", "σ", "moments capped", "moments", "Rényi", "**PLD**", "Wang et al., swap C", "fixed √2, add/remove"]
    table(
        "Topic model: N = 400,000, one pass, δ = 1e-4, ε by method",
        [*head, "fixed √2, replace-one", "strong (claim)", "linear (claim)"],
        rows,
    )


def belief_network() -> None:
    rows = []
    for size, steps in ((400, 150), (800, 75), (1600, 37), (3200, 18)):
        q = size / 60_000
        fixed = {"sampler": "fixed_size", "neighboring_relation": "replace_one", "swap_ratio": 1.0}
        rows.append(
            [f"{size}", f"{steps}", by("moments_capped", size / 50_000, 1.000001, steps)]
            + [by(method, q, 1.0, steps) for method in ("moments_capped", "moments", "renyi", "pld")]
            + [by("pld", q, 1.0, steps, **fixed)]
        )
    table(
        "Belief network: σ = 1, δ = 1e-4, ε by method",
        ["S", "J", "capped, q = S/50000", "capped", "moments", "Rényi", "**PLD**", "fixed, replace-one, swap C"],
        rows,
    )


def full_batch() -> None:
    rows = []
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        sigmas = [
            accounting.noise_multiplier(
                epsilon=epsilon, delta=DELTA, sampling_prob=1.0, n_steps=20, sampler="full_batch", method=method
            )
            for method in ("pld", "renyi", "moments", "zcdp", "strong", "linear")
        ]
        rows.append([f"{epsilon}"] + [f"{sigma / math.sqrt(20):.4f}" for sigma in sigmas])
    table(
        "Full batch, 20 releases, δ = 1e-4: calibrated σ/√20 (ε within 0.5 % of its target)",
        ["ε", "exact Gaussian", "Rényi", "moments", "zCDP", "strong", "linear"],
        rows,
    )


def one_subsample() -> None:
    plans = [
        (2, 10 / 10069, 1.0, 400),
        (2, 0.01, 1.0, 1000),
        (2, 0.05, 1.24, 20),
        (2, 800 / 60000, 1.0, 75),
        (2, 0.001, 0.7, 1000),
        (2, 0.1, 2.0, 100),
        (2, 0.1, 5.0, 1000),
        (2, 1.0, 10.0, 100),
        (7, 800 / 60000, 1.0, 75),
        (7, 0.05, 2.0, 20),
    ]
    rows = []
    for k, q, sigma, steps in plans:
        relation = {"delta": DELTA, "neighboring_relation": "add_or_remove_one"}
        joint = accounting.epsilon_of([Event("poisson", q, sigma / math.sqrt(k), steps)], **relation)
        claim = accounting.epsilon_of([Event("poisson", q, sigma, k * steps)], **relation)
        numbers = [f"{joint:.3f}", f"{claim:.3f}", f"{joint / claim:.2f}×"]
        rows.append([f"{k}", f"{q:.5g}", f"{sigma}", f"{steps}", *numbers])
    table(
        "k releases on one subsample, δ = 1e-4",
        ["k", "q", "σ", "J", "right", 'claimed as "kJ" steps', "under-report"],
        rows,
    )


def calibrations(count: int = 500) -> None:
    rng = np.random.default_rng(11)
    ratios, times = [], []
    for _ in range(count):
        plan = {
            "delta": float(10 ** rng.uniform(-12, -2.5)),
            "sampling_prob": float(min(1.0, np.exp(rng.uniform(math.log(3e-4), 0.3)))),
            "n_steps": int(np.exp(rng.uniform(0, math.log(20_000)))),
            "sampler": str(rng.choice(["poisson", "fixed_size"])),
            "neighboring_relation": str(rng.choice(["add_or_remove_one", "replace_one"])),
            "swap_ratio": float(rng.choice([1.0, SQRT2, 2.0])),
        }
        epsilon = float(np.exp(rng.uniform(math.log(0.05), math.log(30))))
        begin = time.process_time()
        sigma = accounting.noise_multiplier(epsilon=epsilon, **plan)
        times.append(time.process_time() - begin)
        ratios.append(accounting.epsilon(noise_multiplier=sigma, **plan) / epsilon)
    table(
        f"Calibration of {count} random plans (ε .05 to 30, δ 1e-12 to 3e-3, q 3e-4 to 1, J to 20,000, all samplers)",
        ["achieved ε / target, least", "greatest", "CPU-seconds a call, mean", "greatest"],
        [[f"{min(ratios):.5f}", f"{max(ratios):.6f}", f"{np.mean(times):.2f}", f"{max(times):.2f}"]],
    )


def schedules() -> None:
    rows = []
    for levels in (20, 40, 100):
        times, ratios = [], []
        for q, sampler, relation, epsilon in (
            (0.05, "poisson", "add_or_remove_one", 1.0),
            (0.01, "poisson", "replace_one", 1.0),
            (0.2, "fixed_size", "replace_one", 3.0),
            (0.001, "poisson", "add_or_remove_one", 0.5),
        ):
            noise = np.geomspace(2.0, 0.5, levels).tolist()

            def make(scale: float, q: float = q, sampler: str = sampler, noise: list[float] = noise) -> list[Event]:
                return [Event(sampler, q, scale * level) for level in noise]

            promise = {"delta": 1e-5, "neighboring_relation": relation}
            begin = time.process_time()
            scale = accounting.calibrate(make, epsilon=epsilon, **promise)
            times.append(time.process_time() - begin)
            ratios.append(accounting.epsilon_of(make(scale), **promise) / epsilon)
        ends = [f"{min(ratios):.5f}", f"{max(ratios):.6f}"]
        rows.append([f"{levels}", *(f"{seconds:.2f}" for seconds in times), *ends])
    table(
        "Calibration of plans of many noise levels (geometric over a factor 4, one step each, δ = 1e-5): CPU-seconds",
        [
            "levels",
            "q = .05",
            "q = .01, replace-one",
            "q = .2, fixed size, replace-one",
            "q = .001",
            "achieved ε / target, least",
            "greatest",
        ],
        rows,
    )


def hostile(count: int = 1000) -> None:
    rng = np.random.default_rng(12)
    times, bad, used = [], 0, {}
    for _ in range(count):
        delta = float(min(10 ** rng.uniform(-300, 0), 10 ** rng.uniform(-20, 0)) if rng.random() < 0.5 else 0.1)
        sampler = str(rng.choice(["poisson", "fixed_size"]))
        event = Event(
            sampler, float(10 ** rng.uniform(-12, 0)), float(10 ** rng.uniform(-4, 9)), int(10 ** rng.uniform(0, 7))
        )
        relation = str(rng.choice(["add_or_remove_one", "replace_one"]))
        begin = time.process_time()
        answer = accounting.answer([event], delta=max(delta, 1e-300), neighboring_relation=relation)
        times.append(time.process_time() - begin)
        bad += not (math.isfinite(answer.epsilon) and answer.epsilon >= 0)
        used[answer.used] = used.get(answer.used, 0) + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answered = ", ".join(f"{name} {number}" for name, number in sorted(used.items()))
    table(
        f"{count} hostile parameters (σ 1e-4 to 1e9, q 1e-12 to 1, J to 1e7, δ down to 1e-300)",
        [
            "not a finite ε ≥ 0",
            "CPU-seconds a call, mean",
            "greatest",
            "peak memory of this whole run, MiB",
            "answered by",
        ],
        [[f"{bad}", f"{np.mean(times):.2f}", f"{max(times):.2f}", f"{peak:.0f}", answered]],
    )


def main() -> None:
    print("## Accounting")
    topic_model()
    belief_network()
    full_batch()
    one_subsample()
    calibrations()
    schedules()
    hostile()


if __name__ == "__main__":
    main()
