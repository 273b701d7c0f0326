"""Compiled inner loops, each beside a plain NumPy form that is its test oracle."""
