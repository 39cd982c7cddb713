"""Checkpoints: what a commit says, its bytes, where it is kept, and what may be removed."""
