"""Everything that starts and drives Spark."""
