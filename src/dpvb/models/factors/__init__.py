"""Factor analysis and probabilistic principal components: second moments about a released mean, once."""
