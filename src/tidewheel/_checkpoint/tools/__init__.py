"""Tools for checkpoints: list, compare, verify, export, restore, fork, keep as savepoints."""
