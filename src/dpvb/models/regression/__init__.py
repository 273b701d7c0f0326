"""Regressions: the paper, its reading of noise, its kernel."""
