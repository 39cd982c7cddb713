"""Traces: the messages of a key in a batch, for the page. Batches run again in the background, one at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from tidewheel._storage import Store
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._program.job import Job
    from tidewheel._replay.key_trace import TracedMessage

_KEPT = 100
"""The number of finished traces that are kept for later requests."""
_SOON_S = 1.0
"""How long a request waits for a trace."""


class Asked(NamedTuple):
    """The batch of a commit, and a key at a step."""

    job: str
    sequence: int
    step: str
    key: str


class Traces:
    """The messages of keys, as far as the programs of the jobs are known."""

    def __init__(self, store: Store, programs: Mapping[str, Job]) -> None:
        """Take the jobs' store, and programs by the names of their jobs."""
        self._store, self._programs = store, programs
        self._lock = threading.Lock()
        self._found: OrderedDict[Asked, Future[list[TracedMessage]]] = OrderedDict()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="tidewheel-trace")

    def messages(self, asked: Asked, key: Callable[[], Any]) -> list[TracedMessage] | None:
        """Return the messages; None: the batch still runs, ask again. `key` returns the key of that text.

        Raise `ConfigError` if the program of the job is unknown, and errors of the second run.
        """
        program = self._programs.get(asked.job)
        if program is None:
            raise ConfigError(
                f"the page does not have the program of job {asked.job!r}, which it needs to run the batch again: start it with "
                f"tidewheel ui --records PROGRAM, or use tidewheel explain {asked.job} {asked.step} KEY --records PROGRAM"
            )
        with self._lock:
            running = self._found.get(asked)
            if running is None:
                running = self._found[asked] = self._worker.submit(self._traced, program, asked, key())
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)[1].cancel()
        try:
            return running.result(_SOON_S)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Start no more batches."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _traced(self, program: Job, asked: Asked, key: Any) -> list[TracedMessage]:
        from tidewheel._replay.replay import messages_of_key

        return messages_of_key(program, self._store, asked.sequence, asked.step, key)
