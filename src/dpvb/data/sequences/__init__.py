"""Sequences of symbols as privacy units: lists, flat arrays with lengths, and long tables of events."""
