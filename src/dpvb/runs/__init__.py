"""Fits that a ledger counts."""
