"""A run of a job, with or without Spark: plan, task, report, commit."""
