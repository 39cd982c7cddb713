"""HistoryWriter: write the figures of a run to the state URL, in its own thread.

The run passes records and continues: it never waits for the store, and no failure of the store reaches it. Records that
cannot be written are logged and dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from tidewheel._core.logs import logger
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._observe import places
from tidewheel._observe.records import COMMITS, ERRORS, LAG, RUNS, CommitRecord, ErrorRecord, LagRecord, RunRecord
from tidewheel._storage import Entry, Store

_LOG = logger(__name__)

KEEP_SECONDS = 7 * 24 * 3600.0
"""The default maximum age of history."""
KEEP_BYTES = 64 << 20
"""The maximum size of a job's history."""
CHUNK_COMMITS = 512
CHUNK_BYTES = 1 << 20
"""An object is closed when it has this many commits or, before compression, this many bytes."""
WRITE_SECONDS = 5.0
"""The interval at which new commits are written; a killed run can lose this much of its history."""
STOP_SECONDS = 10.0
"""How long an ending run waits for the rest of its history to be written."""

_WAITING = 4096
"""The maximum number of waiting records while the store does not answer. Beyond that, the oldest are dropped."""
_ERRORS = 200
_RUNS = 500


class HistoryWriter:
    """The history of one run. Every method returns at once, except `close`, which waits for a while."""

    def __init__(
        self,
        store: Store,
        job: str,
        run: str,
        *,
        keep_seconds: float = KEEP_SECONDS,
        keep_bytes: int = KEEP_BYTES,
        chunk_commits: int = CHUNK_COMMITS,
        chunk_bytes: int = CHUNK_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Use the store at the state URL, the job, and the token of the run."""
        self._store = store.at(places.job_folder(job))
        self._run, self._clock = run, clock
        self._keep_seconds, self._keep_bytes = keep_seconds, keep_bytes
        self._most_commits, self._most_bytes = chunk_commits, chunk_bytes
        self._commits: deque[CommitRecord] = deque(maxlen=_WAITING)
        self._others: deque[tuple[str, bytes]] = deque(maxlen=_WAITING)
        self._lag: LagRecord | None = None
        self._noted: LagRecord | None = None
        """The latest lag record, and the latest one that was written or that a commit includes."""
        self._errors = 0
        self._wake, self._ending = threading.Event(), threading.Event()
        self._chunk: list[CommitRecord] = []
        self._chunk_bytes = 0
        self._unwritten = False
        """Whether the open chunk has commits that are not written, because the store did not accept them."""
        self._newest = 0
        """The time of the newest commit."""
        self._chunks = 0
        self._failing = False
        self._thread = BackgroundThread(self._work, "tidewheel-history", self._failed)
        self._thread.start()

    def started(self, record: RunRecord) -> None:
        """Record the run; call it again with the end of the run to replace the first record."""
        self._others.append((places.object_name(places.RUNS, record.at, record.run), RUNS.encode([record])))
        self._wake.set()

    def committed(self, record: CommitRecord) -> None:
        """Record a commit."""
        first = not self._commits and not self._chunk
        self._commits.append(record)
        # Write at once, so that a short run is visible and a fast one does not drop records.
        if first or len(self._commits) >= self._most_commits:
            self._wake.set()

    def failed(self, record: ErrorRecord) -> None:
        """Record an error."""
        self._others.append(
            (places.object_name(places.ERRORS, record.at, record.run, self._errors), ERRORS.encode([record]))
        )
        self._errors += 1
        self._wake.set()

    def waited(self, record: LagRecord) -> None:
        """Record the backlog of the sources, replacing the previous one, unless a commit includes it in time."""
        self._lag = record

    def close(self) -> None:
        """Write the remaining records; give up after a while."""
        self._ending.set()
        self._wake.set()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_here:
            _LOG.warning("the end of this run's history is lost: its place does not answer")

    # In the thread.

    def _work(self) -> None:
        while not self._ending.is_set():
            self._wake.wait(WRITE_SECONDS)
            self._wake.clear()
            self._write()
        self._write()
        self._prune()

    def _failed(self, error: BaseException) -> OnError:
        # Log only the first of consecutive failures, because an outage of an hour is one event.
        if not self._failing:
            _LOG.warning("history cannot be written, and the job continues without it: %s", error)
        self._failing = True
        return "end" if self._ending.is_set() else "go on"

    def _write(self) -> None:
        while self._others:
            # Remove it from the queue first: a record that cannot be written must not block the others forever.
            name, data = self._others.popleft()
            self._store.write(name, data)
        if self._commits or self._unwritten:
            self._write_commits()
        lag = self._lag
        # A commit made since then includes this measurement.
        if lag is not None and lag is not self._noted and lag.at > self._newest:
            self._store.write(places.LAG, LAG.encode([lag]))
        self._noted = lag
        self._failing = False

    def _write_commits(self) -> None:
        while self._commits:
            record = self._commits.popleft()
            self._chunk.append(record)
            self._chunk_bytes += len(msgspec.msgpack.encode(record))
            self._newest, self._unwritten = record.at, True
            if len(self._chunk) >= self._most_commits or self._chunk_bytes >= self._most_bytes:
                self._write_chunk()
                self._chunk, self._chunk_bytes = [], 0
                self._chunks += 1
                self._prune()
        if self._chunk:
            self._write_chunk()

    def _write_chunk(self) -> None:
        """Write the open chunk, replacing its previously written version."""
        name = places.object_name(places.COMMITS, self._chunk[0].at, self._run, self._chunks)
        self._store.write(name, COMMITS.encode(self._chunk))
        self._unwritten = False

    def _prune(self) -> None:
        """Delete history that is too old or too large. Other runs of the job may do the same at the same time."""
        entries = [entry for entry in self._store.list() if places.parse(entry.path) is not None]
        for entry in surplus(entries, self._clock(), self._keep_seconds, self._keep_bytes):
            self._store.delete(entry.path)


def surplus(entries: list[Entry], now: int, keep_seconds: float, keep_bytes: int) -> list[Entry]:
    """Return the objects of all kinds to delete: those that are too old, and the oldest if there are too many.

    The newest object of each kind stays, so that an old job still shows how it ended.
    """
    gone: list[Entry] = []
    most = {places.ERRORS: _ERRORS, places.RUNS: _RUNS}
    for kind in (places.COMMITS, places.RUNS, places.ERRORS):
        own = sorted(
            (entry for entry in entries if entry.path.startswith(f"{kind}/")), key=places.time_of, reverse=True
        )
        total = 0
        for place, entry in enumerate(own):
            total += entry.size
            too_old = now - places.time_of(entry) > keep_seconds * 1e9
            if place and (too_old or total > keep_bytes or place >= most.get(kind, len(own))):
                gone.append(entry)
    return gone
