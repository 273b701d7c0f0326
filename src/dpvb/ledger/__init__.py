"""A privacy budget that outlives the process."""
