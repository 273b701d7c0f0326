"""What is made of releases: statements, model files, measures, pictures."""
