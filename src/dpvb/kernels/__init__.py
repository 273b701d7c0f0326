"""Compiled inner loops, each with a plain NumPy form that is its test oracle."""
