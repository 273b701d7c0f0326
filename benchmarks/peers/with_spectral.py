"""The spectral method of DeCarolis et al. (2020) by its authors' code: topics by configuration, as a NumPy archive.

    with_spectral.py CHECKOUT COUNTS DOCUMENTS TOPICS EPSILON DELTA OUT

CHECKOUT is a copy of umd-huang-lab/private-topic-model-tensor-methods. Its sensitivities and its fit are called as its
own experiments call them: moments, whitener and unwhitener are those of the fit without noise, and the noise of an edge
is its Gaussian mechanism (Lemma 8 there).
"""

import contextlib
import io
import math
import sys
import types
from pathlib import Path

import numpy as np
from scipy import sparse

#: Noisy edges of each configuration, with the number of parts into which an edge's budget is split.
CONFIGURATIONS = {"2": {"e6": 2, "e8": 1}, "3": {"e7": 3, "e8": 1}, "4": {"e9": 4}}
EDGES = ("e3", "e4", "e6", "e7", "e8", "e9")
ALPHA = 1.0  # sum over the topics


def main() -> None:
    checkout, counts, documents, topics, epsilon, delta, out = sys.argv[1:]
    number, epsilon, delta = int(topics), float(epsilon), float(delta)
    # What is used here asks nothing of autodp, but its module imports it.
    sys.modules["autodp"] = types.ModuleType("autodp")
    sys.modules["autodp"].privacy_calibrator = None
    sys.path[:0] = [str(Path(checkout, "privatespectrallda")), str(Path(checkout, "experiments", "experiments"))]
    from helpers.configurations import SENSITIVITIES
    from privatespectrallda import DPSLatentDirichletAllocation

    rows = sparse.load_npz(counts).tocsr()[: int(documents)].toarray().astype(float)
    rows = rows[rows.sum(axis=1) >= 3]  # It divides by the number of words less two.

    def fitted(variances, parent=None):
        model = DPSLatentDirichletAllocation(number, np.full(number, ALPHA / number), ALPHA, variances)
        for name in ("whitener", "unwhitener", "whitened_moment3") if parent else ():
            setattr(model, name, getattr(parent, name))
        with contextlib.redirect_stdout(io.StringIO()):
            model.fit(rows)
        return model

    np.random.seed(0)  # noqa: NPY002 - its own generator
    without = dict.fromkeys(EDGES, 0.0)
    parent = fitted(without)
    found = {"none": parent.beta}
    spectra = parent.m2_eigenvalues, parent.m3_eigenvalues[::-1]
    for name, edges in CONFIGURATIONS.items():
        variances = dict(without)
        for edge, parts in edges.items():
            of_edge, its_delta = epsilon / len(edges), delta / parts
            bound = float(np.squeeze(SENSITIVITIES[edge](rows, number, ALPHA, *spectra, of_edge, delta)))
            root = math.sqrt(of_edge / parts - math.log(its_delta)) + math.sqrt(-math.log(its_delta))
            variances[edge] = (bound * root * parts / of_edge) ** 2 / 2
        found[name] = fitted(variances, parent).beta
    np.savez(out, **found)


if __name__ == "__main__":
    main()
