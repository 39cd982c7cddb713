"""What a run tells while it goes and when it ends."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BatchProgress:
    """One committed batch."""

    sequence: int
    batch: int | None
    """Spark's number; None for the final flush."""
    rows: int
    """Records that the sources gave."""
    keys: int
    """Keys whose state changed, over all operators."""
    seconds: float
    """From the start of the batch to its output being visible."""
    commit_ms: float
    """Of these, the commit and the publishing."""
    parallelism: int
    """How many tasks the batch was divided among: the run's parallelism, or 1 where the batch was expected to be small."""
    rejected: int = 0
    durations: dict[str, int] = field(default_factory=dict)
    """Where Spark's time went, in ms by its own names; known when the run ends."""

    def with_durations(self, durations: dict[str, int]) -> BatchProgress:
        """Return the same with what Spark tells of the whole trigger."""
        seconds = durations.get("triggerExecution", self.seconds * 1000) / 1000
        return dataclasses.replace(self, durations=durations, seconds=seconds)


@dataclass(frozen=True)
class RunResult:
    """How a run ended: the newest sequence, and its batches, the last thousand at most."""

    job: str
    sequence: int
    event_count: int
    batches: list[BatchProgress]
    stopped: bool = False
    """Whether it was asked to stop before its end."""
