"""The privacy boundary: read this to believe the promise."""
