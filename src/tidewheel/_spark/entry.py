"""The entry point in Spark's Python workers: the bridge from `mapInArrow`, or from a plain job, to the task step."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from tidewheel._cells.live import unpinned_after
from tidewheel._connectors import kept_logs
from tidewheel._core import pickling
from tidewheel._core.own_code import check_same_code
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import SourceSplit, TaskIdentity, failed, run_level
from tidewheel._spark.masters import local_folder
from tidewheel.errors import ConfigError

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_RANDOM_BITS = 32

_plans: dict[str, Plan] = {}
_alone = threading.Lock()
"""Held by the batch that runs in this process: the pinned values of cells apply to the whole process."""


@dataclass(frozen=True)
class LevelTasks:
    """The tasks of one level of a batch, or of several levels if messages need no shuffle between them.

    It is pickled by the name of its class: only the program's bytes and the facts of the batch travel with each batch.
    """

    program: bytes
    digest: str
    code: str
    """The digest of the driver's own code."""
    spec: BatchSpec
    levels: range
    splits: Sequence[Sequence[SourceSplit]] = ()
    """The splits that each task reads itself; empty: the tasks get rows from Spark."""
    source: int = 0
    """The number of the source whose rows Spark gives to level 0."""
    queues: Sequence[Sequence[int]] = ()
    """For each task of a plain job, the numbers of the tasks that it runs one after the other."""

    def arrow_function(self) -> ArrowFunction:
        """Return the function for `mapInArrow`, which yields wire rows."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if not self.splits:
                return self._rows(_this_task(), batches)
            return self._rows_read(batches)

        return run

    def reports(self, rows: Iterable[Any]) -> list[bytes]:
        """Return the encoded reports of one task of a plain job."""
        _drain(rows)
        found: list[bytes] = []
        for number in self.queues[_this_task().partition]:
            task = TaskIdentity(number, _this_task().attempt)
            found += wire.reports_in(self._rows(task, iter(()), self.splits[number]))
        return found

    def reports_here(self, number: int) -> list[bytes]:
        """Run the task of this number in this process and return its encoded reports."""
        task = TaskIdentity(number, secrets.randbits(2 * _RANDOM_BITS - 1))
        with _alone, unpinned_after():
            return wire.reports_in(self._rows(task, iter(()), self.splits[0]))

    def _rows_read(self, rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        _drain(rows)
        task = _this_task()
        return self._rows(task, iter(()), self.splits[task.partition])

    def _rows(
        self, task: TaskIdentity, batches: Iterator[pa.RecordBatch], splits: Sequence[SourceSplit] = ()
    ) -> Iterator[pa.RecordBatch]:
        if self.digest not in _plans:
            try:
                check_same_code(self.code)
            except ConfigError as error:
                return failed(self.levels[0], task, error, batches)
            plan = pickling.loads(self.program)
            # One program at a time: a worker that outlives a job must not keep it.
            _plans.clear()
            _plans[self.digest] = plan
        kept_logs.keep()
        # Each host has its own folder for local copies unless the driver named one for all.
        spec = msgspec.structs.replace(self.spec, local=local_folder(self.spec.local))
        for level in self.levels:
            own = splits if level == self.levels[0] else ()
            batches = run_level(_plans[self.digest], spec, level, task, batches, own, self.source)
        return batches


def _drain(rows: Iterable[Any]) -> None:
    """Read the one row, which means nothing: Spark does not reuse a worker that has not read all of its input."""
    for _ in rows:
        pass


def _this_task() -> TaskIdentity:
    """Return which task this is. No other attempt of the run has its number: Spark counts from 0 in each JVM of a run."""
    context = TaskContext.get()
    assert context is not None
    return TaskIdentity(context.partitionId(), context.taskAttemptId() << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS))
