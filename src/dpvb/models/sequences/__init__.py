"""Models of sequences: statistics are released once, as windows, and all inference is made of what was released."""
