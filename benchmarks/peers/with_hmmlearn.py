"""A step of hmmlearn's EM on given sequences, from given laws: log-likelihood before it, and CPU-seconds, as JSON.

    with_hmmlearn.py FILE

FILE is a NumPy archive: `lengths` and `symbols` of sequences, and `start`, `step`, `shown`, the laws.
"""

import json
import sys
import time

import numpy as np
from hmmlearn.hmm import CategoricalHMM

given = np.load(sys.argv[1])
symbols, lengths = given["symbols"][:, None], given["lengths"]
model = CategoricalHMM(len(given["start"]), n_iter=1, init_params="", implementation="scaling")
model.startprob_, model.transmat_, model.emissionprob_ = given["start"], given["step"], given["shown"]
log = model.score(symbols, lengths)
start = time.process_time()
model.fit(symbols, lengths)
print(json.dumps({"log": log, "seconds": time.process_time() - start}))
