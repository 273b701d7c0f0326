"""Data that cannot move: many owners, one posterior."""
