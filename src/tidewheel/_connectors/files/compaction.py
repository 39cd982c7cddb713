"""Compaction: small files become larger ones, in the background of a run or by a command.

The compaction of a table changes no rows and deletes no files. It is one commit of the table, so readers see the small files
or the large ones. It does not conflict with appends, so a run neither waits for it nor fails because of it. A folder of files
has no commits, so its small files become larger ones before readers see them.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from tidewheel._connectors.sink import Sink
from tidewheel._core.logs import logger
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._time.duration import Duration, seconds

TARGET_BYTES = 128 << 20
"""The size of the files that a compaction writes."""
_SMALL = 0.75
"""Files of at least this part of the target size are not rewritten."""

_LOG = logger(__name__)

T = TypeVar("T")


class Compaction(NamedTuple):
    """How many files were replaced, and by how many."""

    before: int
    after: int


class CompactingSink(Sink):
    """A sink whose files can be compacted, also in the background of a run, at intervals."""

    def __init__(self, compact: Duration | None) -> None:
        self.compact_every = None if compact is None else seconds(compact, "compact of a sink", least=1)
        self._background: _Background | None = None

    @abstractmethod
    def compact(self, target_bytes: int = TARGET_BYTES) -> Compaction:
        """Turn small files into larger ones."""

    @abstractmethod
    def compacted_at(self) -> float | None:
        """Return when the files were last compacted, by any writer, in seconds since 1970; None if that is unknown."""

    def compact_if_due(self) -> None:
        """Compact in the background as soon as the interval of the sink has passed since the last compaction."""
        if self.compact_every is not None:
            if self._background is None:
                self._background = _Background(self, self.compact_every)
            self._background.start()

    def stop(self, job: str) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.end()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_background": None}


def small_groups(files: Iterable[tuple[T, int]], target_bytes: int) -> Iterator[list[T]]:
    """Divide files, each with its size, into groups of about the target size. Leave out large files and single ones.

    >>> list(small_groups([("a", 5), ("b", 90), ("c", 4), ("d", 3), ("e", 1)], target_bytes=10))
    [['a', 'c'], ['d', 'e']]
    """
    group: list[T] = []
    total = 0
    for file, size in files:
        if size >= _SMALL * target_bytes:
            continue
        if group and total + size > target_bytes:
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(file)
        total += size
    if len(group) > 1:
        yield group


class _Background:
    """The compactions of one run: one at a time, in a thread."""

    def __init__(self, sink: CompactingSink, every: float) -> None:
        self._sink, self._every = sink, every
        self._due = 0.0
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._wanted = False
        self._thread: BackgroundThread | None = None

    def start(self) -> None:
        """Compact the current files, as soon as a compaction is due."""
        with self._lock:
            self._wanted = True
            if self._thread is None or not self._thread.is_here:
                self._thread = BackgroundThread(self._run, "tidewheel-compaction", self._failed)
                self._thread.start()

    def end(self) -> None:
        """Wait for a compaction that is in progress."""
        self._ended.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            last = self._sink.compacted_at()
            # A run that was started often would otherwise compact at each start.
            left = max(self._due - time.monotonic(), 0 if last is None else self._every - (time.time() - last))
            if left > 0 and self._ended.wait(left):
                return
            self._wanted = False
            self._due = time.monotonic() + self._every
            done = self._sink.compact()
            if done.before:
                _LOG.info("compacted %s: %s files became %s", self._sink.describe(), done.before, done.after)
            with self._lock:
                if not self._wanted or self._ended.is_set():
                    self._thread = None
                    return

    def _failed(self, error: BaseException) -> OnError:
        _LOG.warning(
            "%s was not compacted: %s. No rows are lost; the run tries again later", self._sink.describe(), error
        )
        with self._lock:
            self._thread = None
        return "end"
