"""Sigmoid belief networks: the paper, its reading of noise, its kernel."""
