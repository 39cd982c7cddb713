"""Where the time of a batch goes: its steps, and the publishing of each sink."""

from __future__ import annotations

import time


class Steps:
    """A stopwatch that goes through the steps of a batch, one after the other."""

    def __init__(self) -> None:
        """Begin now."""
        self.began = self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}
        """By step."""
        self.sinks: dict[str, float] = {}
        """By sink, the seconds of its publishing."""
        self.tasks: int | None = None
        """How many tasks the batch had; None: as many as its parallelism says."""

    def done(self, step: str) -> None:
        """Put the time since the last step under this one's name."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._since
        self._since = now

    def published(self, sink: str, seconds: float) -> None:
        """Note how long a sink took."""
        self.sinks[sink] = self.sinks.get(sink, 0.0) + seconds

    @property
    def total(self) -> float:
        """Seconds from the beginning to the last step that is done."""
        return self._since - self.began
