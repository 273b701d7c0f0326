"""A step of dynamax's EM on given sequences, from given laws, or a linear dynamical system's passes, as JSON.

    with_dynamax.py FILE

FILE is a NumPy archive. Of hidden Markov chains it holds `lengths` and `symbols` of sequences, and `start`, `step`,
`shown`, the laws; what is printed is their log-likelihood, and the CPU-seconds of the fastest of five E-steps.
Sequences of one length go together, as dynamax has neither shorter ones nor missing symbols in a batch. Of linear
systems it holds `points`, and the parameters under the names of `make_lgssm_params`; what is printed is the
log-likelihood of each sequence, and the smoothed means and variances of its states.
"""

import json
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import CategoricalHMM
from dynamax.linear_gaussian_ssm import lgssm_smoother
from dynamax.linear_gaussian_ssm.inference import make_lgssm_params


def chains(given):
    """Log-likelihood of all sequences, and CPU-seconds of an E-step."""
    num, symbols = given["shown"].shape
    model = CategoricalHMM(num, 1, symbols)
    shown = jnp.asarray(given["shown"])[:, None, :]
    params, _ = model.initialize(
        initial_probs=jnp.asarray(given["start"]), transition_matrix=jnp.asarray(given["step"]), emission_probs=shown
    )
    lengths, first = given["lengths"], np.append(0, np.cumsum(given["lengths"]))[:-1]
    batches = [
        jnp.asarray(given["symbols"][first[lengths == length][:, None] + np.arange(length)][:, :, None])
        for length in np.unique(lengths)
    ]

    @jax.jit
    def step(batch):
        sums, log = jax.vmap(partial(model.e_step, params))(batch)
        return jax.tree.map(lambda own: own.sum(axis=0), sums), log.sum()

    seconds = []
    for _ in range(6):  # The first one compiles.
        begun = time.process_time()
        found = jax.block_until_ready([step(batch) for batch in batches])
        seconds.append(time.process_time() - begun)
    return {"log": float(sum(log for _, log in found)), "seconds": min(seconds[1:])}


def systems(given):
    """Log-likelihoods, and laws of states."""
    names = set(given) - {"points"}
    params = make_lgssm_params(**{name: jnp.asarray(given[name]) for name in names})
    found = jax.jit(jax.vmap(partial(lgssm_smoother, params)))(jnp.asarray(given["points"]))
    variances = jnp.diagonal(found.smoothed_covariances, axis1=2, axis2=3)
    shown = {"log": found.marginal_loglik, "means": found.smoothed_means, "variances": variances}
    return {name: np.asarray(value).tolist() for name, value in shown.items()}


jax.config.update("jax_enable_x64", True)
given = dict(np.load(sys.argv[1]))
print(json.dumps(systems(given) if "points" in given else chains(given)))
