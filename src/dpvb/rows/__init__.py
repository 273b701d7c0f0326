"""Batches: clean private rows in the form in which a model's E-step gets them, one file for each form of data."""
