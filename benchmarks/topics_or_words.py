"""Topics compared with word frequencies: whether ten topics ever predict worse than one topic of the whole budget.

Needs DPVB_DATA, the folder that holds wikipedia/, newsgroups20/ and reuters21578/. Each fit is a line of
.cache/topics_or_words.jsonl, so that a stopped benchmark resumes; delete the file after a change of the library.
DPVB_CACHED=1 prints the means of the fits that are there. Without it the fits take about two hours on two cores.
"""

import json
import os
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import dpvb
from dpvb.errors import DpvbWarning
from dpvb.sample import load_sample

DELTA, HELD_OUT, SEEDS, TOPICLESS = 1e-5, 1_000, 5, 20
CORPORA = ("newsgroups20", "reuters21578", "wikipedia")
NUMBERS, EPSILONS = (2_000, 10_000), (0.5, 1.0, 4.0)
#: Largest perplexity of ten topics at ε = 1.
LARGEST = {
    ("newsgroups20", 10_000): 2_440,
    ("newsgroups20", 2_000): 2_780,
    ("reuters21578", 10_000): 1_075,
    ("reuters21578", 2_000): 1_475,
    ("wikipedia", 10_000): 2_620,
    ("wikipedia", 2_000): 3_080,
}
#: Largest ratio to one topic of the whole budget, by ε: with ten topics asked for, and with "auto".
RATIO, RATIO_OF_AUTO = {0.5: 1.06, 1.0: 1.035, 4.0: 1.035}, 1.015
RUNS = Path(__file__).parents[1] / ".cache" / "topics_or_words.jsonl"
#: Fits of the table, by name.
KINDS: dict[str, Any] = {"ten": 10, "one": 1, "auto": "auto"}


@cache
def corpus(name: str) -> sparse.csr_array:
    return sparse.csr_array(sparse.load_npz(Path(os.environ["DPVB_DATA"]) / name / "bow.npz"))


def fitted(counts: Any, n_components: Any, epsilon: float, seed: int, **params: Any) -> dpvb.LDA:
    words = load_sample().vocabulary
    model = dpvb.LDA(n_components, epsilon=epsilon, delta=DELTA, vocabulary=words, random_state=seed, **params)
    return model.fit(counts)


def of_corpus(name: str, number: int, epsilon: float, kind: str, seed: int) -> dict[str, Any]:
    counts = corpus(name)
    params = {"n_units": number} if kind == "auto" else {}
    model = fitted(counts[:number], KINDS[kind], epsilon, seed, **params)
    value = model.perplexity(counts[-HELD_OUT:], public=True)
    return {"perplexity": value, "topics": len(model.components_), "gain": model.gain_, "gain_std": model.gain_std_}


def of_no_topics(number: int, epsilon: float, seed: int) -> dict[str, Any]:
    """Documents of 60 words each, drawn alike."""
    rng = np.random.default_rng(seed)
    p_v = np.asarray(corpus("newsgroups20").sum(axis=0), dtype=float).ravel()
    word_j = rng.choice(p_v.size, 60 * number, p=p_v / p_v.sum())
    entries = np.ones(word_j.size), (np.repeat(np.arange(number), 60), word_j)
    model = fitted(sparse.coo_array(entries, shape=(number, p_v.size)).tocsr(), 10, epsilon, seed)
    return {"topics": len(model.components_), "gain": model.gain_, "gain_std": model.gain_std_}


def of_a_permuted_list(number: int, epsilon: float, seed: int) -> dict[str, Any]:
    """A list whose frequencies belong to other words, as the caller's prior."""
    words = load_sample().vocabulary
    known = dpvb.data.documents.word_lists.frequencies_of("english", words)
    shuffled = np.random.default_rng(seed).permutation(known).tolist()
    prior = dict(zip(words, shuffled, strict=True))
    model = fitted(corpus("newsgroups20")[:number], 1, epsilon, seed, prior=prior)
    return {"refused": model.word_list_ is None}


def jobs() -> list[tuple[Any, ...]]:
    """All fits, the first seed of the table first."""
    cells = [(name, number, epsilon) for name in CORPORA for number in NUMBERS for epsilon in EPSILONS]
    of_table = [
        (of_corpus, *cell, kind, seed)
        for seed in range(SEEDS)
        for kind in KINDS
        for cell in cells
        if kind != "auto" or cell[2] == 1.0
    ]
    once = len(of_table) // SEEDS
    return [
        *of_table[:once],
        *[(of_a_permuted_list, 2_000, 1.0, seed) for seed in range(TOPICLESS)],
        *[(of_no_topics, 10_000, 1.0, seed) for seed in range(TOPICLESS)],
        *of_table[once:],
    ]


def runs() -> dict[tuple[Any, ...], dict[str, Any]]:
    """Results by the fit; missing ones are made and written, unless DPVB_CACHED is set."""
    found = {}
    if RUNS.exists():
        for line in map(json.loads, RUNS.read_text().splitlines()):
            found[tuple(line["job"])] = line["result"]
    for function, *given in jobs():
        key = (function.__name__, *given)
        if key in found or "DPVB_CACHED" in os.environ:
            continue
        found[key] = function(*given)
        RUNS.parent.mkdir(exist_ok=True)
        with RUNS.open("a") as file:
            file.write(json.dumps({"job": key, "result": found[key]}) + "\n")
    return found


def kept(value: float, most: float) -> str:
    return f"≤ {most:,} {'reached' if value <= most else '**missed**'}"


def table(found: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    print(
        "| corpus | documents | ε | ten topics asked for | asked | became one topic | gain | one topic, whole budget | "
        'ratio | asked | "auto" | ratio | asked | seeds |'
    )
    print("|---" * 14 + "|")
    for name in CORPORA:
        for number in NUMBERS:
            for epsilon in EPSILONS:
                cell = {
                    kind: [
                        result
                        for seed in range(SEEDS)
                        if (result := found.get(("of_corpus", name, number, epsilon, kind, seed)))
                    ]
                    for kind in KINDS
                }
                if not (cell["ten"] and cell["one"]):
                    continue
                ten, one = (np.mean([run["perplexity"] for run in cell[kind]]) for kind in ("ten", "one"))
                alike = sum(run["topics"] == 1 for run in cell["ten"])
                gain = np.mean([run["gain"] for run in cell["ten"]])
                asked = kept(ten, LARGEST[name, number]) if epsilon == 1.0 else ""
                auto, ratio, asked_of_auto = "", "", ""
                if cell["auto"]:
                    value = np.mean([run["perplexity"] for run in cell["auto"]])
                    auto, ratio = f"{value:,.0f}", f"{value / one:.3f}"
                    asked_of_auto = kept(round(value / one, 3), RATIO_OF_AUTO)
                print(
                    f"| {name} | {number:,} | {epsilon:g} | {ten:,.0f} | {asked} | {alike} of {len(cell['ten'])} | "
                    f"{gain:+.3f} | {one:,.0f} | {ten / one:.3f} | {kept(round(ten / one, 3), RATIO[epsilon])} | "
                    f"{auto} | {ratio} | {asked_of_auto} | {len(cell['ten'])} |",
                    flush=True,
                )


def main() -> None:
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds wikipedia/, newsgroups20/ and reuters21578/")
    warnings.simplefilter("ignore", DpvbWarning)
    found = runs()
    print("## Topics or word frequencies\n")
    print(
        f"δ = {DELTA:g}, add/remove one document, 7,702 terms, 20 steps. Means over seeds of the perplexity bound of "
        f"the last {HELD_OUT:,} rows. Gain: released nats per word over one topic, after 8 steps.\n"
    )
    table(found)
    alike = [result for key, result in found.items() if key[0] == "of_no_topics"]
    refused = [result for key, result in found.items() if key[0] == "of_a_permuted_list"]
    for runs_of, says, name in (
        (alike, [run["topics"] == 1 for run in alike], "10,000 documents of words drawn alike, ε = 1: one topic"),
        (
            refused,
            [run["refused"] for run in refused],
            "A permuted list as the prior of 2,000 documents, ε = 1: refused",
        ),
    ):
        if runs_of:
            verdict = "reached" if all(says) else "**missed**"
            print(f"\n{name} in {sum(says)} of {len(says)} seeds; asked for all: {verdict}.")


if __name__ == "__main__":
    main()
