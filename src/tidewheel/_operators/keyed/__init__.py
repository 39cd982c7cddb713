"""Operators that keep state by key, and what they share."""
