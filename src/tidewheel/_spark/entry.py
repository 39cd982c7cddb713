"""What Spark calls in its Python workers: the bridge from `mapInArrow`, or from a plain job, to the task step."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from tidewheel._cells.live import unpinned_after
from tidewheel._connectors import kept_logs
from tidewheel._core import pickling
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import SourceSplit, TaskIdentity, run_level
from tidewheel._spark.masters import local_folder

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_RANDOM_BITS = 32

_plans: dict[str, Plan] = {}
_alone = threading.Lock()
"""Held by the batch that runs in this process: the values that cells are pinned to are those of the whole process."""


def levels_function(
    program: bytes,
    digest: str,
    spec: BatchSpec,
    levels: range,
    hands: Sequence[Sequence[SourceSplit]] = (),
    source: int = 0,
) -> ArrowFunction:
    """Return the function that Spark runs for each partition: one level, or several where there is one partition only.

    `hands` are the splits that the partitions read themselves, by partition; `source` is the number of the source whose rows
    Spark gives to level 0.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _run(program, digest, spec, levels, batches, hands, source)

    return run


def reports_function(
    program: bytes, digest: str, spec: BatchSpec, levels: range, hands: Sequence[Sequence[SourceSplit]]
) -> Callable[[Iterable[Any]], list[bytes]]:
    """Return the function of a plain job, whose partitions read their hands of splits and give the reports of these levels.

    It is pickled by its name, so that what travels with each batch is the program's bytes and the batch's own facts.
    """
    return partial(_reports_of_task, program, digest, spec, levels, hands)


def reports_here(
    program: bytes, digest: str, spec: BatchSpec, levels: range, splits: Sequence[SourceSplit], number: int = 0
) -> list[bytes]:
    """Run these levels of a batch in this process, as the task of this number would, and return their reports."""
    task = TaskIdentity(number, secrets.randbits(2 * _RANDOM_BITS - 1))
    with _alone, unpinned_after():
        return wire.reports_in(_levels(program, digest, spec, levels, task, iter(()), splits))


def _reports_of_task(
    program: bytes,
    digest: str,
    spec: BatchSpec,
    levels: range,
    hands: Sequence[Sequence[SourceSplit]],
    rows: Iterable[Any],
) -> list[bytes]:
    for _ in rows:  # A worker whose input was not read to the end is not used again.
        pass
    task = _task()
    return wire.reports_in(_levels(program, digest, spec, levels, task, iter(()), hands[task.partition]))


def _run(
    program: bytes,
    digest: str,
    spec: BatchSpec,
    levels: range,
    batches: Iterator[pa.RecordBatch],
    hands: Sequence[Sequence[SourceSplit]],
    source: int,
) -> Iterator[pa.RecordBatch]:
    task = _task()
    if hands:
        # The one row that Spark gives a partition says no more than that it is there.
        for _ in batches:
            pass
    return _levels(program, digest, spec, levels, task, batches, hands[task.partition] if hands else (), source)


def _levels(
    program: bytes,
    digest: str,
    spec: BatchSpec,
    levels: range,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
    splits: Sequence[SourceSplit],
    source: int = 0,
) -> Iterator[pa.RecordBatch]:
    if digest not in _plans:
        plan = pickling.loads(program)
        # One program at a time: a worker that outlives a job must not keep it.
        _plans.clear()
        _plans[digest] = plan
    kept_logs.keep()
    # Each host has its own folder for local copies unless the driver named one for all.
    spec = msgspec.structs.replace(spec, local=local_folder(spec.local))
    for level in levels:
        batches = run_level(_plans[digest], spec, level, task, batches, splits if level == levels[0] else (), source)
    return batches


def _task() -> TaskIdentity:
    context = TaskContext.get()
    assert context is not None
    return TaskIdentity(context.partitionId(), _attempt(context))


def _attempt(context: TaskContext) -> int:
    """Return a number that no other attempt of the run has. Spark counts anew in each JVM, and a run may outlive its JVM."""
    return context.taskAttemptId() << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
