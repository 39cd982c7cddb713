"""What a user writes: jobs and streams."""
