"""Steps that keep state per key, and their common code."""
