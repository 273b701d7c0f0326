"""Run benchmarks and write what they print to RESULTS.md: `python -m benchmarks [name ...]`.

Each benchmark is a module that prints Markdown. Its section in RESULTS.md is replaced, the others stay.
`python -m benchmarks ablate FAMILY` runs the benchmark `ablate_FAMILY`.
"""

import datetime
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
#: In the order of RESULTS.md, cheap ones first.
NAMES = [
    "same_bits",
    "first_contact",
    "noise_speed",
    "ledger_speed",
    "mailbox",
    "break_it",
    "federated_faults",
    "fuzz",
    "fuzz_readers",
    "audit",
    "hostile_queries",
    "reading_speed",
    "streamed_steps",
    "first_fit",
    "accounting_tables",
    "price_of_adaptivity",
    "planted_bugs",
    "e_step_speed",
    "cluster",
    "exactness",
    "fixed_iterations",
    "threads",
    "factors",
    "factor_coverage",
    "forecasts",
    "memory",
    "memory_of_rows",
    "files_of_persons",
    "growing_data",
    "operations",
    "operations_coverage",
    "growth",
    "growth_limits",
    "cluster_memory",
    "scale",
    "negative_binomial",
    "sbn_speed",
    "federated_exactness",
    "logistic",
    "papers",
    "gradients",
    "linear",
    "federated",
    "dpvi",
    "coverage",
    "coverage_diagonal",
    "coverage_ranges",
    "coverage_terms",
    "coverage_real",
    "coverage_skewed",
    "coverage_levels",
    "own_regression",
    "analyses",
    "mixtures",
    "sequences",
    "hidden_markov",
    "sequence_coverage",
    "pooled_chains",
    "sequence_intervals",
    "linear_dynamical",
    "composed_sequences",
    "naive_bayes",
    "mixture_coverage",
    "mixture_speed",
    "posterior_as_prior",
    "topics",
    "topics_or_words",
    "coverage_counts",
    "coverage_beside",
    "persons",
    "persons_kinds",
    "synthetic_coefficients",
    "ablate_regression",
    "wikipedia",
    "federated_topics",
    "mnist",
    "spectral",
]
#: Those that do not print Markdown: title and command.
PLAIN = {
    "break_it": ("Attacks on the ledger", [sys.executable, "-m", "benchmarks.break_it"]),
    "federated_faults": ("Faults of federated runs", [sys.executable, "-m", "benchmarks.federated_faults"]),
    "fuzz": ("Hostile files", [".venv-fuzz/bin/python", "-m", "benchmarks.fuzz", "10", "-law"]),
    "fuzz_readers": ("The law of readers", [".venv-fuzz/bin/python", "-m", "benchmarks.fuzz", "60", "law"]),
}
#: Those whose module takes arguments.
ARGUMENTS = {
    "ablate_regression": ["benchmarks.ablate", "regression"],
    "operations_coverage": ["benchmarks.operations", "--coverage"],
}
PACKAGES = ["numpy", "scipy", "numba", "scikit-learn", "dp-accounting", "cryptography"]


def machine() -> str:
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    cores = len(re.findall(r"^processor", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    memory = int(re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()).group(1)) / 2**20
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{datetime.date.today()}, {cores} cores of {model.group(1) if model else platform.machine()}, "
        f"{memory:.0f} GiB, Python {platform.python_version()}, {packages}"
    )


def main() -> None:
    chosen = sys.argv[1:] or NAMES
    if chosen[0] == "ablate":
        chosen = [f"ablate_{family}" for family in chosen[1:]]
    unknown = set(chosen) - set(NAMES)
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in chosen:
        title, command = PLAIN.get(name, ("", [sys.executable, "-m", *ARGUMENTS.get(name, [f"benchmarks.{name}"])]))
        run = subprocess.run(command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            sys.exit(f"benchmark {name} failed; RESULTS.md keeps its earlier section")
        # Read anew: another benchmark may have written its section meanwhile.
        text = RESULTS.read_text() if RESULTS.exists() else ""
        sections = dict(re.findall(r"<!-- begin (\w+) -->\n(.*?)<!-- end \1 -->", text, re.DOTALL))
        printed = f"## {title}\n\n```\n{run.stdout.strip()}\n```" if title else run.stdout.strip()
        sections[name] = f"{printed}\n\n*`python -m benchmarks {name}`: {machine()}*\n"
        ordered = [n for n in NAMES if n in sections] + [n for n in sections if n not in NAMES]
        body = "\n".join(f"<!-- begin {n} -->\n{sections[n]}<!-- end {n} -->\n" for n in ordered)
        RESULTS.write_text(f"# Results\n\nEvery number here was printed by the command under its table.\n\n{body}")
        print(f"{name}: written to {RESULTS}", flush=True)


if __name__ == "__main__":
    main()
