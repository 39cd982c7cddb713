"""Keyed state: its files, its local copies, and the view of it that a task works on."""
