"""Keyed state: its files, its local copies, and the view that a task works on."""
