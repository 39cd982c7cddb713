"""Observability of runs: history, metrics, logs, traces. None of it may delay or fail a batch."""
