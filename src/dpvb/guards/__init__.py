"""What every room stands on: what keeps private values in, and strangers' values out, and what is said of both."""
