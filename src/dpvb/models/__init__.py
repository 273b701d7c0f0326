"""Models: each one file over the same loop."""
