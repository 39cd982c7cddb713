"""How long the tasks of a batch will take, judged by the batch before it."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel._engine.report import Report


def work_of(reports: Sequence[Report]) -> float:
    """Return how many seconds one task would need for the work of the tasks of a batch.

    Time spent waiting for other tasks or for Spark is not work:

    >>> work_of([Report(0, 0, took=0.5, idle=0.25), Report(1, 0, took=0.25)])
    0.5

    If every task read the whole batch, one task would read it once instead:

    >>> work_of([Report(1, task, took=0.25, reading=0.125, looked_through=9) for task in (0, 1)])
    0.375
    """
    readings = [report.reading for report in reports if report.looked_through is not None]
    repeated = sum(readings) - max(readings, default=0.0)
    return sum(report.took - report.idle for report in reports) - repeated


def longest_of(reports: Sequence[Report]) -> float:
    """Return how many seconds the busiest task of each level has worked, for all levels together.

    >>> longest_of([Report(0, 0, took=0.5, idle=0.25), Report(1, 0, took=0.25), Report(1, 1, took=0.5)])
    0.75
    """
    longest: dict[int, float] = {}
    for report in reports:
        longest[report.level] = max(longest.get(report.level, 0.0), report.took - report.idle)
    return sum(longest.values())


class WorkEstimate:
    """The seconds that a byte of a source took in the last batch.

    Seconds of the clock, not of the processor: a function that waits for a server is worth several tasks too.

    >>> work = WorkEstimate()
    >>> work.seconds(1000) is None
    True
    >>> work.note(2000, [Report(0, 0, took=0.25), Report(0, 1, took=0.25)])
    >>> work.seconds(1000)
    0.25
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._per_byte: float | None = None

    def note(self, size: int, reports: Sequence[Report]) -> None:
        """Take the reports of the tasks of a batch with this many bytes."""
        self._per_byte = work_of(reports) / max(size, 1)

    def seconds(self, size: int) -> float | None:
        """Return how long a batch of this many bytes would take in one task; None: no batch has run yet."""
        return None if self._per_byte is None else self._per_byte * size
