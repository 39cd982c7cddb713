"""State that a job gets before its first batch: from files, or from a Spark query."""
