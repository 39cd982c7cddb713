"""Basics for all layers: keys, hashing, pickling, fault points, retries."""
