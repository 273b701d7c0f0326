"""Releases that choose: a model among several, a range."""
