"""What Spark calls in its Python workers: the bridge from `mapInArrow` to the task step."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from tidewheel._core import pickling
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import SourceSplit, TaskIdentity, run_level
from tidewheel._spark.masters import local_folder

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_RANDOM_BITS = 32

_plans: dict[str, Plan] = {}


def levels_function(
    program: bytes, digest: str, spec: BatchSpec, levels: range, hands: Sequence[Sequence[SourceSplit]] = ()
) -> ArrowFunction:
    """Return the function that Spark runs for each partition: one level, or several where there is one partition only.

    `hands` are the splits that the partitions read themselves, by partition.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _run(program, digest, spec, levels, batches, hands)

    return run


def _run(
    program: bytes,
    digest: str,
    spec: BatchSpec,
    levels: range,
    batches: Iterator[pa.RecordBatch],
    hands: Sequence[Sequence[SourceSplit]],
) -> Iterator[pa.RecordBatch]:
    if digest not in _plans:
        # One program at a time: a worker that outlives a job must not keep it.
        _plans.clear()
        _plans[digest] = pickling.loads(program)
    context = TaskContext.get()
    assert context is not None
    task = TaskIdentity(context.partitionId(), _attempt(context))
    # Each host has its own folder for local copies unless the driver named one for all.
    spec = msgspec.structs.replace(spec, local=local_folder(spec.local))
    if hands:
        # The one row that Spark gives a partition says no more than that it is there.
        for _ in batches:
            pass
    for level in levels:
        splits = hands[task.partition] if hands and level == 0 else ()
        batches = run_level(_plans[digest], spec, level, task, batches, splits)
    return batches


def _attempt(context: TaskContext) -> int:
    """Return a number that no other attempt of the run has. Spark counts anew in each JVM, and a run may outlive its JVM."""
    return context.taskAttemptId() << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
