"""Aggregates by key: sums, counts and the like, computed on columns."""
