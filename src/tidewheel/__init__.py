"""Keyed, stateful stream programs in plain Python, run on Spark."""
