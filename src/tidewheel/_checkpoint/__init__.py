"""Checkpoints: their content, encoding and storage, and the deletion of unused files."""
