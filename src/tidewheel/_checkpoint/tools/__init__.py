"""What people do with checkpoints: list, compare, verify, export, restore, fork, keep as savepoints."""
