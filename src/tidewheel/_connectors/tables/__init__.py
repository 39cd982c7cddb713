"""Sources of reference tables."""
