"""Algorithm 3 on Wikipedia: Figures 2 and 3 and Table 1 of the journal version, and the extended abstract's."""

import math
import os
import textwrap
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy import sparse

import dpvb
from benchmarks.papers_runs import remembered
from dpvb import accounting
from dpvb.data import BagOfWords
from dpvb.errors import DpvbWarning
from dpvb.papers.lda import VIPSTopics

#: Articles that are held out, and those that the first table uses.
HELD_OUT, FEW = 5_000, 60_000
#: Articles of the papers, whose rates S/N are kept.
PAPER_ROWS = 400_000
DELTA = 1e-4
#: σ and S of Figure 2; ε of Figure 3 and Table 1, whose cell is σ = 1.24, S = 20,000.
SIGMAS, SIZES = (1.0, 1.1, 1.24, 1.5, 2.0), (5_000, 10_000, 20_000)
SEEDS = range(5)
#: K.
TOPICS = 50
#: Documents are brought to this length (journal version, section 4.2).
LENGTH = 500
#: Top words by topic in Table 1, and topics of it.
TOP, SHOWN = 10, 3
#: Printed in Table 1: mass of the first word of topic 35, "station", by method.
PRINTED_MASS = {"no privacy": 0.0846, "moments accountant": 0.0318, "strong composition": 0.0118}


@cache
def corpus() -> sparse.csr_array:
    """Word counts of all articles."""
    return sparse.csr_array(sparse.load_npz(Path(os.environ["DPVB_DATA"]) / "wikipedia" / "bow.npz"))


@cache
def vocabulary() -> list[str]:
    return (Path(os.environ["DPVB_DATA"]) / "wikipedia" / "vocab.txt").read_text().split()


def perplexity(model: VIPSTopics, n_bar: Mapping[str, Any]) -> float:
    """Bound of the articles that are held out, by exp⟨log β⟩, as the authors' code has it."""
    test = corpus()[-HELD_OUT:]
    learned = model.topics(n_bar)
    bounds = [
        model.documents.bound(learned, chunk.rows, topics="expected_log").sum()
        for chunk in BagOfWords(test, vocabulary=vocabulary()).chunks()
    ]
    return float(math.exp(-sum(bounds) / test.sum()))


@dataclass(frozen=True)
class WatchedTopics(VIPSTopics):
    """Algorithm 3, whose q keeps the perplexity after each step."""

    def expected(self, nu: Mapping[str, Any], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        new = super().expected(nu, n_bar)
        return {**new, "perplexities": (*n_bar.get("perplexities", ()), perplexity(self, new))}


def fitted(
    rows: int | None = None,
    rate: float = 0.05,
    n_steps: int = 20,
    sigma: float = 1.24,
    clip: float = 0.1,
    offset: float = 1.0,
    fixed: bool = False,
    watched: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Fit Algorithm 3, and measure.

    Args:
        rows: the first articles; None: all but those that are held out.
        rate: S/N.
        n_steps: J.
        sigma: noise standard deviation over the bound on a document; 0: no noise.
        clip: a; 1: no clipping.
        offset: τ₀.
        fixed: batches of fixed size and replace-one neighbours, as in the extended abstract; else Poisson batches.
        watched: whether the perplexity is measured at every step, and the top words are kept.
        seed: of the start.
    """
    train = corpus()[: corpus().shape[0] - HELD_OUT][:rows]
    kind = WatchedTopics if watched else VIPSTopics
    model = kind(
        TOPICS, train.shape[1], clip_scale=clip, document_length=LENGTH, n_steps=n_steps, learning_offset=offset
    )
    batches: dict[str, Any] = {"sampling_prob": rate}
    if fixed:
        batches = {"batch_size": round(rate * train.shape[0]), "n_units": train.shape[0]}
        batches["neighboring_relation"] = "replace_one"
    noise = {"epsilon": 1e3, "noise_multiplier": sigma} if sigma else {"epsilon": math.inf}
    begin = time.perf_counter()
    with warnings.catch_warnings():
        # δ = 1e-4 is above one over the number of articles, and the fits are in no ledger.
        warnings.simplefilter("ignore", DpvbWarning)
        fit = dpvb.PrivateModel(model, delta=DELTA, random_state=seed, **batches, **noise).fit(
            BagOfWords(train, vocabulary=vocabulary())
        )
    result: dict[str, Any] = {"seconds": round(time.perf_counter() - begin, 1)}
    result["epsilon"] = fit.privacy_.epsilon if sigma else "inf"
    result["perplexity"] = perplexity(model, fit.q_.n_bar)
    if watched:
        result["perplexities"] = fit.q_.n_bar["perplexities"][1:]
        result["topics"] = top_words(fit.q_.n_bar["lambda"])
    return result


def top_words(lambda_vk: np.ndarray) -> list[list[tuple[str, float]]]:
    """The most probable words of every topic, with their probabilities."""
    beta_vk = lambda_vk / lambda_vk.sum(axis=0)
    best = np.argsort(-beta_vk, axis=0)[:TOP]
    return [[(vocabulary()[v], round(float(beta_vk[v, k]), 5)) for v in best[:, k]] for k in range(best.shape[1])]


def say(*sentences: str) -> None:
    """A paragraph."""
    print(textwrap.fill(" ".join(sentences), 120), end="\n\n")


def row(*cells: object) -> None:
    print(
        "| " + " | ".join(f"{cell:,.0f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |", flush=True
    )


def head(*cells: str) -> None:
    row(*cells)
    print("|" + "---|" * len(cells))


def spread(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{mean(listed):,.0f}" + (f" ± {stdev(listed):,.0f}" if len(listed) > 1 else "")


def pld(sigma: float, rate: float, n_steps: int) -> str:
    """ε of the guarantee."""
    plan = {"sampling_prob": rate, "n_steps": n_steps, "noise_multiplier": sigma}
    return f"{accounting.epsilon(delta=DELTA, **plan):.4f}"


def noise(method: str, epsilon: float, rate: float, n_steps: int) -> float:
    """σ with which a method claims ε."""
    plan = {"sampling_prob": rate, "n_steps": n_steps}
    return round(accounting.noise_multiplier(epsilon=epsilon, delta=DELTA, **plan, method=method), 4)


def capped(sigma: float, rate: float, n_steps: int) -> float:
    """ε of the papers' moments accountant."""
    plan = {"sampling_prob": rate, "n_steps": n_steps, "noise_multiplier": sigma}
    return accounting.epsilon(delta=DELTA, **plan, method="moments_capped")


def cell(size: int, sigma: float, clip: float = 0.1) -> dict[str, Any]:
    """Settings of a fit at S of 400,000; those of the largest S are watched, for Figure 3 and Table 1."""
    plan = {"rate": size / PAPER_ROWS, "n_steps": PAPER_ROWS // size}
    largest = {"watched": True} if size == SIZES[-1] else {}
    return {**plan, "sigma": sigma, "clip": clip, "seed": 0, **largest}


def methods(epsilon: float) -> dict[str, dict[str, Any]]:
    """What is compared at S = 20,000 and σ = 1.24."""
    size, sigma = SIZES[-1], 1.24
    return {
        "no privacy": cell(size, 0.0),
        "moments accountant": cell(size, sigma),
        "strong composition": cell(size, noise("strong", epsilon, size / PAPER_ROWS, PAPER_ROWS // size)),
        "moments accountant, no clipping": cell(size, sigma, 1.0),
    }


def headline() -> None:
    """ε = 2.44 in five seeds, by both accountants, with and without clipping, at two τ₀."""
    noises = {name: run["sigma"] for name, run in list(methods(capped(1.24, 0.05, 20)).items())[:3]}
    print(f"\n### Topics: Algorithm 3 at ε = 2.44, {FEW:,} articles\n")
    say(
        f"{corpus().shape[1]:,} terms, K = 50, q = 0.05, 20 steps, δ = {DELTA:g}; five seeds (one without privacy),",
        f"mean ± standard deviation. Perplexity bound of {HELD_OUT:,} articles that were held out, by exp⟨log β⟩ as",
        f"the authors' code has it. σ: 1.24 by the moments accountant, {noises['strong composition']:.3f} by strong",
        "composition.",
    )
    head("accountant", "clipping", "τ₀ = 1", "τ₀ = 1,024")
    offsets, clips = (1.0, 1024.0), {0.1: "a = 0.1", 1.0: "none"}
    reached: dict[tuple[str, float, float], list[float]] = {}
    for name, sigma in noises.items():
        seeds = SEEDS if sigma else SEEDS[:1]
        for clip, clipping in clips.items():
            for offset in offsets:
                runs = [{"rows": FEW, "sigma": sigma, "clip": clip, "offset": offset, "seed": seed} for seed in seeds]
                reached[name, clip, offset] = [remembered(run, fitted)["perplexity"] for run in runs]
            row(name, clipping, *(spread(reached[name, clip, offset]) for offset in offsets))
    moments, strong = list(noises)[1:]
    accountants = [
        ours < theirs
        for clip in clips
        for offset in offsets
        for ours, theirs in zip(reached[moments, clip, offset], reached[strong, clip, offset], strict=True)
    ]
    clipping_helps = [
        ours < theirs
        for name in (moments, strong)
        for offset in offsets
        for ours, theirs in zip(reached[name, 0.1, offset], reached[name, 1.0, offset], strict=True)
    ]
    print(
        f"\n* moments accountant below strong composition: {sum(accountants)} of {len(accountants)} pairs of one seed"
    )
    print(f"* clipping below none: {sum(clipping_helps)} of {len(clipping_helps)} pairs of one seed")


def figure_2() -> None:
    """The fifteen cells."""
    print("\n### Topics: Figure 2, perplexity of the fifteen cells\n")
    say(
        f"166,061 articles, where the papers have {PAPER_ROWS:,}: q = S/{PAPER_ROWS:,} and J = {PAPER_ROWS:,}/S are",
        "the papers', so that ε is, too, and batches are 2.4 times smaller beside the same noise. One epoch, K = 50,",
        "τ₀ = 1, one seed. Strong composition: the noise with which it claims the same ε. *: q is not below 1/(16σ),",
        "so that the theorem of Abadi et al. does not hold for this ε; the loss distribution needs no such",
        "condition. -: not run.",
    )
    head("S", "σ", "ε (moments)", "ε (PLD)", "moments", "strong", "its σ")
    below = []
    for size in SIZES:
        plan = {"rate": size / PAPER_ROWS, "n_steps": PAPER_ROWS // size}
        for sigma in SIGMAS:
            epsilon = capped(sigma, **plan)
            strong = noise("strong", epsilon, **plan)
            ours, theirs = (remembered(cell(size, s), fitted) for s in (sigma, strong))
            if ours and theirs:
                below.append(ours["perplexity"] < theirs["perplexity"])
            mark = "" if plan["rate"] < 1 / (16 * sigma) else " *"
            perplexities = (reached.get("perplexity", "-") for reached in (ours, theirs))
            row(f"{size:,}", f"{sigma}{mark}", f"{epsilon:.4f}", pld(sigma, **plan), *perplexities, f"{strong:.3f}")
        row(f"{size:,}", "0", "∞", "∞", remembered(cell(size, 0.0), fitted).get("perplexity", "-"), "", "")
    print(f"\nMoments accountant below strong composition: {sum(below)} of {len(below)} cells.")


def figure_3_and_table_1() -> None:
    """Perplexity by iteration, and the words of three topics, at ε = 2.44."""
    runs = {name: remembered(run, fitted) for name, run in methods(capped(1.24, 0.05, 20)).items()}
    runs = {name: run for name, run in runs.items() if run}
    print("\n### Topics: Figure 3, perplexity by iteration\n")
    say("S = 20,000 of 400,000, σ = 1.24, ε = 2.44, one seed, 166,061 articles.")
    steps = (1, 2, 3, 5, 10, 15, 20)
    head("method", *(f"t = {t}" for t in steps))
    for name, run in runs.items():
        row(name, *(run["perplexities"][t - 1] for t in steps))
    # The topics of the noiseless fit whose top words have most mass; a topic has the same start in each fit.
    mass = [sum(probability for _, probability in words) for words in runs["no privacy"]["topics"]]
    print("\n### Topics: Table 1, top words\n")
    say(
        f"The {SHOWN} topics whose {TOP} top words have most mass without privacy, and the same topics of the private",
        "fits, which have the same start. In brackets: mass of these words.",
    )
    head("topic", *runs)
    for k in np.argsort(mass)[::-1][:SHOWN]:
        listed = [run["topics"][k] for run in runs.values()]
        row(int(k), *(", ".join(w for w, _ in words) + f" ({sum(p for _, p in words):.3f})" for words in listed))
    print()
    head("mass of the first word", *runs)
    row("mean over all topics", *(f"{np.mean([words[0][1] for words in run['topics']]):.4f}" for run in runs.values()))
    row("printed: “station”, topic 35", *(str(PRINTED_MASS.get(name, "")) for name in runs))


def conference() -> None:
    """The extended abstract: replace-one neighbours, batches of fixed size, Wang et al."""
    plan: dict[str, Any] = {"sampling_prob": 0.05, "noise_multiplier": 1.24, "n_steps": 20, "sampler": "fixed_size"}
    plan |= {"neighboring_relation": "replace_one", "delta": DELTA}
    printed = accounting.epsilon(**plan, swap_ratio=1.0, method="wang")
    wang, pld = (accounting.epsilon(**plan, swap_ratio=math.sqrt(2), method=method) for method in ("wang", "pld"))
    print("\n### Topics: the extended abstract\n")
    say(
        "Replace-one neighbours and batches of fixed size, drawn without replacement: S = 20,000 of 400,000, σ =",
        f"1.24, δ = {DELTA:g}. ε by Wang et al. with the printed sensitivity N/S: {printed:.4f}, printed as 2.38.",
        f"With the sensitivity √2 N/S, which two documents reach: {wang:.4f} by Wang et al., {pld:.4f} by the loss",
        "distribution, the guarantee. Strong composition: the noise with which it claims 2.38.",
    )
    head("method", "σ", "ε (PLD)", "perplexity")
    for name, run in list(methods(printed).items())[1:]:
        settings = {"sigma": run["sigma"], "clip": run["clip"], "fixed": True, "seed": 0}
        result = remembered(settings, fitted)
        row(name, f"{run['sigma']:g}", f"{result['epsilon']:.4f}" if result else "-", result.get("perplexity", "-"))


def main() -> None:
    headline()
    figure_2()
    figure_3_and_table_1()
    conference()
