"""Published algorithms that a default of this package beats, as `dpvb.Model`s, one file an algorithm."""
