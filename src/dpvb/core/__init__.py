"""The privacy boundary: read this to check the guarantee."""
