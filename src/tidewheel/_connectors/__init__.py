"""Sources and sinks: one folder for each system, and what all of them share."""
