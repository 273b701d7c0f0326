"""Variational inference by private gradients, for log-densities written in JAX or NumPyro."""
