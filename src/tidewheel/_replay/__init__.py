"""Committed batches run again: replay, explain, shadow, and the switch to another program."""
