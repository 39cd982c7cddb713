"""A run of a job, whatever carries its data: plan, task, report, commit."""
