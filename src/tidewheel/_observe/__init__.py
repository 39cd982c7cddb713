"""What a run tells of itself: history, metrics, logs, traces. None of it may delay or fail a batch."""
