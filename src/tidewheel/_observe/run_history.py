"""The history of a run: records of its start, commits, failures and end."""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping

import msgspec

from tidewheel._core.logs import logger
from tidewheel._core.text import text_of
from tidewheel._observe.history import History
from tidewheel._observe.history_writer import HistoryWriter
from tidewheel._observe.records import Behind, CommitRecord, ErrorRecord, LagRecord, RunRecord, StepRecord, Stored
from tidewheel._observe.redaction import beginning, ending
from tidewheel._storage import Store

_LOG = logger(__name__)

_LONGEST = 64 << 10
"""The maximum length in characters of a recorded error text and of its traceback."""

Sizes = Mapping[str, Mapping[int, Stored]]
"""By step and shard."""


class RunHistory:
    """Records the activity of a run. Only `close` waits for the store, and nothing here raises."""

    def __init__(self, store: Store, job: str, run: str, *, node: str = "", keep_seconds: float) -> None:
        """Use the store at the state URL, the job, and the run's token and node."""
        self._store, self._job, self._run, self._node = store, job, run, node
        self._writer = HistoryWriter(store, job, run, keep_seconds=keep_seconds)
        self._record: RunRecord | None = None
        self._newest: CommitRecord | None = None
        self._failed = False

    def started(self, operators: tuple[StepRecord, ...], n_shards: int, version: str) -> None:
        """Record that the run has claimed the job, with the graph of its program."""
        self._record = RunRecord(
            self._run, time.time_ns(), self._node, socket.gethostname(), os.getpid(), version, n_shards, operators
        )
        self._writer.started(self._record)

    def recall_sizes(self, take: Callable[[Sizes], None]) -> None:
        """Call `take` with the shard sizes that an earlier run recorded last, once they are read."""

        def look() -> None:
            try:
                sizes = History(self._store).sizes(self._job)
            except Exception as error:
                _LOG.warning("the size of the state that earlier runs recorded cannot be read: %s", error)
            else:
                take(sizes)

        threading.Thread(target=look, name="tidewheel-history-sizes", daemon=True).start()

    def committed(self, record: CommitRecord) -> None:
        """Record a commit."""
        self._newest = record
        self._writer.committed(record)

    def waited(self, behind: Mapping[str, Mapping[str, Behind]]) -> None:
        """Record the current backlog of the sources."""
        current = {source: dict(partitions) for source, partitions in behind.items()}
        self._writer.waited(LagRecord(time.time_ns(), self._run, current))

    def failed(self, error: BaseException, batch: int | None = None, *, restarted: bool = False) -> None:
        """Record an error, with its traceback and without secrets; `restarted` if the run continues."""
        self._failed = self._failed or not restarted
        self._writer.failed(
            ErrorRecord(
                at=time.time_ns(),
                run=self._run,
                text=beginning(text_of(error), _LONGEST),
                kind=type(error).__name__,
                traceback=ending("".join(traceback.format_exception(error)), _LONGEST),
                node=self._node,
                batch=batch,
                sequence=None if self._newest is None else self._newest.sequence,
                restarted=restarted,
            )
        )

    def close(self, sizes: Sizes | None = None) -> None:
        """Record the end, unless the run has failed, and wait at most some seconds until everything is written.

        `sizes` are those of all shards as of the newest commit: the next run may not open all of them.
        """
        if self._newest is not None and sizes is not None:
            shards = {operator: dict(held) for operator, held in sizes.items()}
            self._writer.committed(msgspec.structs.replace(self._newest, shards=shards))
        if self._record is not None and not self._failed:
            self._writer.started(msgspec.structs.replace(self._record, ended=time.time_ns()))
        self._writer.close()
