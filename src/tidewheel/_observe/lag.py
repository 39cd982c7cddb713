"""The lag of a run behind its sources: rows by partition, and how long the oldest row has waited.

A source reports the current end of each partition. Repeated measurements show when the end passed a position: that is,
to the nearest measurement, when the first unread record was appended. This does not need record timestamps.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from tidewheel._core.logs import logger
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._observe.records import Behind

_LOG = logger(__name__)

LOOK_SECONDS = 10.0
SOON_SECONDS = 1.0
"""The delay of a measurement after a commit: data that the commit has read no longer waits."""
_PART = 100
"""Measurements take at most about a hundredth of the time."""
_SAMPLES = 256
"""The number of ends remembered per partition; beyond that, every other one is dropped."""


class Unread(Protocol):
    """The unread data of a partition."""

    @property
    def rows(self) -> int:
        """The number of unread rows."""

    @property
    def position(self) -> int:
        """The job's position; it grows as the job reads."""

    @property
    def end(self) -> int:
        """The position after the last record; it grows as records are appended."""

    @property
    def files(self) -> int | None:
        """The number of waiting files, for a file source."""

    @property
    def since(self) -> float | None:
        """When the oldest waiting data arrived, in seconds since 1970, if the source reports it."""


class Waiting:
    """The measured ends of one partition with their times. The caller passes the time."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []

    def look(self, now: float, position: int, end: int) -> float:
        """Record a job's position and the partition's end; return how many seconds the next record has waited."""
        if not self._ends or self._ends[-1][1] != end:
            self._ends.append((now, end))
        # Data that was read in the meantime no longer waits; ends before the position are not needed.
        self._ends = list(itertools.dropwhile(lambda seen: seen[1] <= position, self._ends))
        if len(self._ends) > _SAMPLES:
            self._ends = self._ends[::2]
        return now - self._ends[0][0] if self._ends else 0.0


class LagMonitor:
    """Measures every few seconds, in its own thread, how far the sources are ahead of the last commit."""

    def __init__(
        self,
        looks: Mapping[str, Callable[[], Mapping[str, Unread]]],
        every: float = LOOK_SECONDS,
        changed: Callable[[dict[str, dict[str, Behind]]], None] = lambda behind: None,
    ) -> None:
        """Use a function per source that returns its unread data; if the source cannot report it, nothing.

        `changed` is called with each measurement that differs from the previous one.
        """
        self._looks, self._every, self._changed = dict(looks), every, changed
        self._waiting: dict[tuple[str, str], Waiting] = {}
        self.behind: dict[str, dict[str, Behind]] = {}
        """By source and partition: the latest measurement. Replaced as a whole, never modified."""
        self._failing: set[str] = set()
        self._done, self._wake = threading.Event(), threading.Event()
        self._thread = BackgroundThread(self._work, "tidewheel-lag", self._failed)

    def start(self) -> None:
        """Start to measure."""
        if self._looks:
            self._thread.start()

    def close(self) -> None:
        """Stop, without waiting for a measurement in progress."""
        self._done.set()
        self._wake.set()

    def look_soon(self) -> None:
        """Measure early if the cost budget allows it. Returns at once."""
        self._wake.set()

    def _failed(self, error: BaseException) -> OnError:
        _LOG.warning("how far the sources are ahead cannot be seen: %s", error)
        return "end" if self._done.is_set() else "go on"

    def _work(self) -> None:
        # Not at once: a starting run has other requests to its sources.
        at_least = SOON_SECONDS
        while True:
            asked_at = time.monotonic()
            self._wake.wait(max(self._every, at_least))
            if self._done.wait(max(0.0, at_least - (time.monotonic() - asked_at))):
                return
            self._wake.clear()
            began = time.monotonic()
            self.look(began)
            # Listing a folder of many files takes long: it must slow down the batches only a little.
            at_least = max(SOON_SECONDS, _PART * (time.monotonic() - began))

    def look(self, now: float) -> None:
        """Measure every source once."""
        behind: dict[str, dict[str, Behind]] = {}
        for source, look in self._looks.items():
            try:
                unread = look()
            except Exception as error:
                # A source that does not answer is asked again; report the failure once.
                if source not in self._failing:
                    _LOG.warning("the backlog of source %r is unknown: %s", source, error)
                self._failing.add(source)
                continue
            self._failing.discard(source)
            if unread:
                behind[source] = {name: self._of(now, source, name, found) for name, found in unread.items()}
        before, self.behind = self.behind, behind
        if behind != before:
            self._changed(behind)

    def _of(self, now: float, source: str, partition: str, unread: Unread) -> Behind:
        if unread.since is not None:
            seconds = max(0.0, time.time() - unread.since)
        else:
            waiting = self._waiting.setdefault((source, partition), Waiting())
            seconds = waiting.look(now, unread.position, unread.end)
        return Behind(unread.rows, round(seconds, 3), unread.files)
