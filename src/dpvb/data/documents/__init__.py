"""Documents: counts of words, in memory, from files, or from a stream."""
