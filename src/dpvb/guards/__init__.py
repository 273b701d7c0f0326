"""Guards for all subpackages: they keep private values in and untrusted values out, and report on both."""
