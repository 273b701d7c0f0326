"""Noise multipliers of 20 epochs by this package's accountant, for peers that take one as given (d3p, plain DP-SGD).

Run in the package's own environment; writes noise.json, which the peers' environments read.
"""

import json

import protocol

from dpvb import accounting


def main() -> None:
    known = json.loads(protocol.NOISE.read_text()) if protocol.NOISE.exists() else {}
    for data in protocol.TABLES:
        y = protocol.load(data)[1]
        sampling_prob, n_steps = protocol.rate(data, len(protocol.split(len(y), 0)[0]))
        for epsilon in protocol.EPSILONS:
            plan = {"epsilon": epsilon, "delta": protocol.DELTA, "sampling_prob": sampling_prob, "n_steps": n_steps}
            if str(epsilon) not in known.setdefault(data, {}):
                known[data][str(epsilon)] = accounting.noise_multiplier(**plan)
                protocol.NOISE.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
