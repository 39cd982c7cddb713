"""The progress of a run, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_BATCH = "first batch"
"""The phase of a start in which rows flow already."""
STANDBY = "standby"
"""The phase in which a run waits while another run has the job."""


@dataclass(frozen=True)
class BatchProgress:
    """One committed batch.

    >>> print(BatchProgress(8, 7, 250_000, 1_200, 0.5, 12.4, 4))
    batch 7, sequence 8: 250,000 rows in 0.50 s (500,000 rows/s), 1,200 keys changed, commit 12 ms, 4 tasks
    """

    sequence: int
    batch: int | None
    """The number of the batch; None without input: the final flush, or an epoch at the end of a run until "caught-up"."""
    rows: int
    """Records that the sources gave."""
    keys: int
    """Keys whose state changed, over all steps."""
    seconds: float
    """From asking the sources for new data to the output being visible."""
    commit_ms: float
    """The part of them for the commit and its publication."""
    parallelism: int
    """How many tasks the batch was divided among: the run's parallelism, or 1 where the batch was expected to be small."""
    rejected: int = 0
    durations: dict[str, int] = field(default_factory=dict)
    """The time in ms by phase: `offsets`, `tasks`, `commit`, `publish`."""
    kind: str = "batch"
    """The kind of its commit: `batch`, `epoch` or `flush`."""

    @property
    def label(self) -> str:
        """The name in messages: `batch 7`, `epoch` or `flush`."""
        return self.kind if self.batch is None else f"batch {self.batch}"

    @property
    def rate(self) -> int:
        """Rows per second."""
        return round(self.rows / self.seconds) if self.seconds > 0 else 0

    def __str__(self) -> str:
        tasks = "1 task" if self.parallelism == 1 else f"{self.parallelism} tasks"
        rejected = f", {self.rejected:,} rejected" if self.rejected else ""
        return (
            f"{self.label}, sequence {self.sequence}: {self.rows:,} rows in {self.seconds:.2f} s ({self.rate:,} rows/s), "
            f"{self.keys:,} keys changed, commit {self.commit_ms:,.0f} ms, {tasks}{rejected}"
        )


@dataclass(frozen=True)
class RunResult:
    """How a run ended: the newest sequence, and its batches, the last thousand at most.

    >>> print(RunResult("clicks", 8, 250_000, [], stopped=True))
    clicks: stopped as asked at sequence 8, 250,000 events since its first start
    """

    job: str
    sequence: int
    event_count: int
    batches: list[BatchProgress] = field(repr=False)
    stopped: bool = False
    """Whether it was asked to stop before its end."""
    epoch: int | None = None
    """The clock of the data at the end, in ns since 1970; None: there is none, or a bounded run has come to the end of time."""
    holding: tuple[str, ...] = ()
    """The windows and joins in which results may wait for that clock. Empty after a bounded run."""
    late: dict[str, int] = field(default_factory=dict)
    """By step, how many messages came too late for it in this run, where no step reads them."""

    def __str__(self) -> str:
        how = "stopped as asked" if self.stopped else "done"
        return f"{self.job}: {how} at sequence {self.sequence}, {self.event_count:,} events since its first start"
