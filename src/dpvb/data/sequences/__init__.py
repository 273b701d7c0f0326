"""Sequences of symbols or numbers as privacy units: lists, flat arrays with lengths, and long tables of events."""
