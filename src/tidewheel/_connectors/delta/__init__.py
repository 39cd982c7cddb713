"""Delta Lake: sink."""
