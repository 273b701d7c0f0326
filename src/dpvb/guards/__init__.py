"""What keeps private values in, and strangers' values out."""
