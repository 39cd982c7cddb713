"""Joins: the messages of two streams with the same key."""
