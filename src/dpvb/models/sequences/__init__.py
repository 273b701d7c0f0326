"""Models of sequences: windows of them are released once, and all inference is made of what was released."""
