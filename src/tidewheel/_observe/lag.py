"""How far a run is behind its sources: rows by partition, and for how long the oldest of them has waited.

A source tells where each partition ends now. Looking again and again shows when its end came past a position: that is, to
the nearest look, when the first record that is not read yet was appended. No record needs a time of its own for that.
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
"""How long after a commit a look is taken: what it has read does not wait any more."""
_PART = 100
"""Looking takes at most about the hundredth part of the time."""
_SAMPLES = 256
"""How many ends are remembered for a partition; then every other goes."""


class Unread(Protocol):
    """What a partition holds that is not read yet."""

    @property
    def rows(self) -> int:
        """How many rows that are."""

    @property
    def position(self) -> int:
        """Where the job stands; it grows as the job reads."""

    @property
    def end(self) -> int:
        """The position behind the last record; it grows as records are appended."""

    @property
    def files(self) -> int | None:
        """How many files wait, for a source of files."""

    @property
    def since(self) -> float | None:
        """When the oldest of what waits came, in seconds since 1970, if the source itself can tell."""


class Waiting:
    """When the ends of one partition were seen. Pure: the caller tells the time."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []

    def look(self, now: float, position: int, end: int) -> float:
        """Take where a job stands and where the partition ends; return for how many seconds the next record has waited."""
        if not self._ends or self._ends[-1][1] != end:
            self._ends.append((now, end))
        # What was read meanwhile does not wait any more; the end before the position is not needed either.
        self._ends = list(itertools.dropwhile(lambda seen: seen[1] <= position, self._ends))
        if len(self._ends) > _SAMPLES:
            self._ends = self._ends[::2]
        return now - self._ends[0][0] if self._ends else 0.0


class LagMonitor:
    """Looks every few seconds, in a thread of its own, how far the sources are ahead of what is committed."""

    def __init__(
        self,
        looks: Mapping[str, Callable[[], Mapping[str, Unread]]],
        every: float = LOOK_SECONDS,
        changed: Callable[[dict[str, dict[str, Behind]]], None] = lambda behind: None,
    ) -> None:
        """Take a function for each source that returns what is not read yet; one that cannot tell returns nothing.

        `changed` is told what a look saw, if it is not what the look before saw.
        """
        self._looks, self._every, self._changed = dict(looks), every, changed
        self._waiting: dict[tuple[str, str], Waiting] = {}
        self.behind: dict[str, dict[str, Behind]] = {}
        """By source and partition, as it was last seen. Replaced as a whole, never changed."""
        self._failing: set[str] = set()
        self._done, self._wake = threading.Event(), threading.Event()
        self._thread = BackgroundThread(self._work, "tidewheel-lag", self._failed)

    def start(self) -> None:
        """Begin to look."""
        if self._looks:
            self._thread.start()

    def close(self) -> None:
        """End; a look that goes on is not waited for."""
        self._done.set()
        self._wake.set()

    def look_soon(self) -> None:
        """Look before it is time, as soon as that costs no more than it may. Returns at once."""
        self._wake.set()

    def _failed(self, error: BaseException) -> OnError:
        _LOG.warning("how far the sources are ahead cannot be seen: %s", error)
        return "end" if self._done.is_set() else "go on"

    def _work(self) -> None:
        # Not at once: a run that begins has other things to ask its sources.
        at_least = SOON_SECONDS
        while True:
            asked_at = time.monotonic()
            self._wake.wait(max(self._every, at_least))
            if self._done.wait(max(0.0, at_least - (time.monotonic() - asked_at))):
                return
            self._wake.clear()
            began = time.monotonic()
            self.look(began)
            # A folder of many files takes long to look through: that must not cost the batches more than a little.
            at_least = max(SOON_SECONDS, _PART * (time.monotonic() - began))

    def look(self, now: float) -> None:
        """Ask every source once."""
        behind: dict[str, dict[str, Behind]] = {}
        for source, look in self._looks.items():
            try:
                unread = look()
            except Exception as error:
                # A source that does not answer now is asked again; saying so once is enough.
                if source not in self._failing:
                    _LOG.warning("source %r does not tell how far it is ahead: %s", source, error)
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
