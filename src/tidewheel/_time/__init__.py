"""Time in a program: timestamps, frontiers, windows and joins, as pure functions and as logics without I/O."""
