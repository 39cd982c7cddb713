"""Batches that the run offers itself, where tasks read all sources and these say in Python where they end.

Spark would ask the same sources the same questions, by a process for each, and then write its logs, make a frame of the
batch, plan it and call back: several times what a small batch takes. Nothing rests on it: what a batch is, its commit
says, and a run begins with the newest commit. The offsets are recorded as Spark records them, so that a run by Spark can
follow.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from tidewheel._connectors.stream_reader import DirectStream
from tidewheel._spark.checkpoint_folder import SparkFolder
from tidewheel._spark.query import BatchQuery, Durations

_BETWEEN_LOOKS_S = 0.01
"""How long a source that had nothing new is left in peace."""
_KEPT = 1000


class OwnQuery(BatchQuery):
    """Asks streams for what is new, records the offsets, and calls the run with the number of the batch."""

    def __init__(
        self,
        streams: Sequence[DirectStream],
        folder: SparkFolder,
        on_batch: Callable[[int], None],
        cancel: Callable[[], None],
        thread: type[threading.Thread] = threading.Thread,
    ) -> None:
        """Begin at once, in a thread of this class. `cancel` ends the batch that runs.

        The streams are those of the lines of Spark's offsets, in their order, and know where they begin.
        """
        self._streams, self._folder, self._on_batch, self._cancel = streams, folder, on_batch, cancel
        self._durations: deque[tuple[int, Durations]] = deque(maxlen=_KEPT)
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._working = self._waiting = False
        self._thread = thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def await_end(self, seconds: float) -> bool:
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def is_starting(self) -> bool:
        return False

    def is_waiting(self) -> bool:
        return self._waiting

    def stop(self) -> None:
        self._stopped.set()
        if self._working and self._thread.is_alive():
            self._cancel()
        self._thread.join()

    def durations(self) -> dict[int, Durations]:
        return dict(self._durations)

    def _run(self) -> None:
        try:
            self._offer()
        except BaseException as error:
            self._error = error
        finally:
            for stream in self._streams:
                stream.reader.stop()

    def _offer(self) -> None:
        batch, recorded = self._folder.newest()
        starts = [None if text is None else json.loads(text) for text in recorded]
        while not self._stopped.is_set():
            began = time.perf_counter()
            found = [stream.end(start) for stream, start in zip(self._streams, starts, strict=True)]
            texts = [json.dumps(end) for end in found]
            ends = [json.loads(text) for text in texts]
            # A first batch may be empty: its commit says where the job begins.
            if ends == starts:
                self._waiting = True
                self._stopped.wait(_BETWEEN_LOOKS_S)
                continue
            self._waiting = False
            batch += 1
            self._work(batch, texts, began)
            starts = ends

    def _work(self, batch: int, offsets: Sequence[str], began: float) -> None:
        asked = time.perf_counter()
        self._folder.plan(batch, offsets)
        planned = time.perf_counter()
        self._working = True
        try:
            self._on_batch(batch)
        finally:
            self._working = False
        done = time.perf_counter()
        steps = {
            "latestOffset": asked - began,
            "walCommit": planned - asked,
            "addBatch": done - planned,
            "triggerExecution": done - began,
        }
        self._durations.append((batch, {step: round(seconds * 1000) for step, seconds in steps.items()}))
