"""Mixtures over columns of several kinds: the model, a file for each kind of column, and how sums are read."""
