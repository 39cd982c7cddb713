"""Delta tables as history."""
