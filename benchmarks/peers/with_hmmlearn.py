"""A step of hmmlearn's EM on given sequences, from given laws: log-likelihood before it, and CPU-seconds, as JSON.

    with_hmmlearn.py FILE

FILE is a NumPy archive: `lengths` and `symbols` of sequences, and `start`, `step`, `shown`, the laws. The fastest of
five steps counts.
"""

import json
import sys
import time

import numpy as np
from hmmlearn.hmm import CategoricalHMM

given, seconds = np.load(sys.argv[1]), []
symbols, lengths = given["symbols"][:, None], given["lengths"]
for _ in range(5):
    model = CategoricalHMM(len(given["start"]), n_iter=1, init_params="", implementation="scaling")
    model.startprob_, model.transmat_, model.emissionprob_ = given["start"], given["step"], given["shown"]
    start = time.process_time()
    model.fit(symbols, lengths)
    seconds.append(time.process_time() - start)
model.startprob_, model.transmat_, model.emissionprob_ = given["start"], given["step"], given["shown"]
print(json.dumps({"log": model.score(symbols, lengths), "seconds": min(seconds)}))
