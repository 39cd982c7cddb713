"""Sources and sinks: one folder for each system, and their common code."""
