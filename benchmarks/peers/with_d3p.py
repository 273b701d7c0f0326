"""d3p: differentially private variational inference with a factorised Gaussian posterior.

Its batches have a fixed size; they get the noise of Poisson batches under add/remove, which is generous to it.
"""

import argparse
import json
from functools import partial

import d3p.random
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import protocol
from d3p.minibatch import subsample_batchify_data
from d3p.svi import DPSVI
from numpyro.distributions import Bernoulli, Normal
from numpyro.infer import Trace_ELBO
from numpyro.optim import Adam

RATE, FALL, PRIOR_SD, START_SD = 0.05, 10.0, 3.0, 0.1


def model(x, y, num_rows):
    w = numpyro.sample("w", Normal(jnp.zeros(x.shape[-1]), PRIOR_SD).to_event(1))
    with numpyro.handlers.scale(scale=num_rows / x.shape[0]):
        numpyro.sample("y", Bernoulli(logits=x @ w), obs=y)


def guide(x, y, num_rows):
    mean = numpyro.param("mean", jnp.zeros(x.shape[-1]))
    log_sd = numpyro.param("log_sd", jnp.full(x.shape[-1], np.log(START_SD)))
    numpyro.sample("w", Normal(mean, jnp.exp(log_sd)).to_event(1))


def fit(data, X, y, epsilon, seed):
    sampling_prob, n_steps = protocol.rate(data, len(y))
    rows = (jnp.asarray(X.toarray(), dtype=jnp.float32), jnp.asarray(y, dtype=jnp.int32))
    start, batch = subsample_batchify_data(rows, batch_size=round(sampling_prob * len(y)))
    svi = DPSVI(
        model,
        guide,
        Adam(lambda t: RATE * FALL ** (-t / n_steps)),
        Trace_ELBO(),
        clipping_threshold=1.0,
        dp_scale=json.loads(protocol.NOISE.read_text())[data][str(epsilon)],
        num_rows=len(y),
    )
    key, batch_key = d3p.random.split(d3p.random.PRNGKey(seed))
    _, batches = start(batch_key)
    state = svi.init(key, *batch(0, batches))
    step = partial(jax.lax.fori_loop, 0, n_steps, lambda t, s: svi.update(s, *batch(t, batches))[0])
    return svi.get_params(jax.jit(step)(state))["mean"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", default=["adult", "diab30", "diabany", "stroke"])
    protocol.run(
        "d3p DPVI",
        parser.parse_args().data,
        ["d3p", "numpyro", "jax", "jaxlib", "numpy"],
        "Adam, learning rate .05 falling tenfold, N(0, 3²) prior, clip 1, batches and steps as DP-SGD's, "
        "posterior mean; noise of Poisson batches, add/remove",
        fit,
    )
