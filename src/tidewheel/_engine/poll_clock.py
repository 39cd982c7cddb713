"""Measure how long a run polls its sources for a batch."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewheel._time.frontier import Asked


class PollClock:
    """Measures the time from the end of a batch to the beginning of the next, in which the run polls, and the time of batches."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Take the clock, in ns. The run has not polled yet."""
        self.clock = clock
        self._began = self._worked = 0
        self._since: int | None = None

    def begin(self) -> Asked:
        """Return how long the sources were asked for the batch that begins now."""
        self._began = self.clock()
        return Asked() if self._since is None else Asked(max(0, self._began - self._since), self._worked)

    def end(self) -> None:
        """Note that the batch is done."""
        self._since = self.clock()
        self._worked = max(0, self._since - self._began)

    def interrupt(self) -> None:
        """Note that the sources are not polled while the run recovers from a failure."""
        self._since = None
