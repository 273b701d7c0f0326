"""Results of releases: statements, model files, measures, plots."""
