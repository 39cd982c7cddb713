"""The tasks of one batch: their layout, their runner and their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame

from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._core.closing import Closing
from tidewheel._core.logs import logger
from tidewheel._engine.batch_spec import BatchSpec, WholeRecordsNeeded
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.task_layout import Layout, divided, in_one_task, is_small
from tidewheel._engine.task_runner import TaskRunner, checked
from tidewheel._engine.work_estimate import WorkEstimate
from tidewheel._spark.program import Program
from tidewheel._spark.worker_pool import BatchFailed, WorkerPool

_LOG = logger(__name__)


class Outcome(NamedTuple):
    """How the tasks of a batch ended."""

    reports: list[Report]
    tasks: int
    """How many tasks each level had."""
    ran_in: str
    """Where they ran, and whether messages were shuffled."""


class BatchTasks(Closing):
    """Runs the tasks of a job's batches: in tasks of Spark, or in a pool of processes.

    The pool runs batches without a shuffle, on a local Spark.
    """

    def __init__(self, program: Program, *, local: bool) -> None:
        """Take the program, and whether its tasks run on this machine."""
        self._program, self._local = program, local
        self._small_bytes = program.limits.small_bytes
        self._levels = range(len(program.plan.levels))
        self._pool: WorkerPool | None = program.worker_pool() if local else None
        self._runners: list[TaskRunner] = [program] if self._pool is None else [self._pool, program]
        self._work = WorkEstimate()
        self._warmed = self._whole = False
        """Whether tasks read whole records, even if the program's functions read only a part of them."""

    def run(
        self,
        spec: BatchSpec,
        splits: Sequence[SourceSplit],
        frames: Mapping[int, DataFrame],
        narrowed: Sequence[SourceSplit] | None = None,
    ) -> Outcome:
        """Run the tasks of a batch.

        `frames` has the rows of the sources that Spark reads, by their numbers. `narrowed` are the same splits with only the
        columns that the program's functions read, if that saves work.
        """
        if self._pool is not None:
            self._pool.count_batch()
        if frames:
            layout = divided(spec, self._levels, splits, None)
            found = checked(self._program.run_with_frames(layout, frames), {**layout.tasks, 0: None})
            return Outcome(found, spec.parallelism, layout.ran_in(self._program.place))
        if narrowed is not None and not self._whole:
            try:
                return self._run_splits(narrowed, msgspec.structs.replace(spec, partial=True))
            except WholeRecordsNeeded:
                # Nothing is committed. A source with a rejected record may have more, so later batches read whole records too.
                self._whole = True
                _LOG.info(
                    "a batch has an error or a dead letter, which shows the whole record: from now on tasks read all columns"
                )
        return self._run_splits(splits, spec)

    def run_without_input(self, spec: BatchSpec, state: ShardMap) -> Outcome:
        """Run the tasks of a batch without records, which only handles due state."""
        little = _holds_at_most(self._small_bytes, state)
        layout = in_one_task(spec, self._levels, []) if little else divided(spec, self._levels, [], None)
        return self._run(layout)

    def run_layout(self, layout: Layout) -> list[Report]:
        """Run the tasks of a batch with a layout that another run chose."""
        if self._pool is not None:
            self._pool.count_batch()
        return self._run(layout).reports

    def warm(self, spec: BatchSpec) -> None:
        """Load the program and bring local copies up to date, in the processes that batches will run in."""
        spec = msgspec.structs.replace(spec, warms=True, silent=True, behind={}, epoch=None)
        if self._pool is None or not self._warmed:
            # The query of a batch with a shuffle.
            self._program.reports(divided(spec, self._levels, [], None))
            self._warmed = True
        if self._pool is not None:
            self._pool.count_batch()
            # Each process of the pool opens the shards that it will have.
            self._run(Layout(spec, self._levels[-1:], [[]] * spec.parallelism))

    def cancel(self) -> None:
        """End the tasks of the pool in the middle of a batch. Spark ends its own tasks."""
        if self._pool is not None:
            self._pool.cancel()

    def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            self._pool.close()

    def _run_splits(self, splits: Sequence[SourceSplit], spec: BatchSpec) -> Outcome:
        size = sum(split.size for _, split in splits)
        outcome = self._run(self._layout(splits, spec, size))
        if size > self._small_bytes:  # The time of a smaller batch says little about its size.
            self._work.note(size, outcome.reports)
        return outcome

    def _layout(self, splits: Sequence[SourceSplit], spec: BatchSpec, size: int) -> Layout:
        layout = divided(spec, self._levels, splits, self._program.shared_key)
        seconds = self._work.seconds(size) if self._local else None
        for runner in self._runners:
            if is_small(size, seconds, runner.overhead(layout), len(layout.splits), self._small_bytes):
                return in_one_task(spec, self._levels, splits)
            if runner.accepts(layout):
                break
        return layout

    def _run(self, layout: Layout) -> Outcome:
        if self._pool is not None and self._pool.accepts(layout):
            try:
                return self._outcome(self._pool, layout)
            except BatchFailed as failed:
                _LOG.info("a batch failed in a worker process, and runs in tasks of Spark: %s", failed)
        return self._outcome(self._program, layout)

    def _outcome(self, runner: TaskRunner, layout: Layout) -> Outcome:
        return Outcome(runner.reports(layout), layout.spec.parallelism, layout.ran_in(runner.place))


def _holds_at_most(size: int, state: ShardMap) -> bool:
    """Return whether a job has stored at most this many bytes."""
    # A state with pages is large; there is no need to read the pages.
    return not state.pages() and sum(file.size for file in state.files()) <= size


def rows_of(plan: Plan, found: Sequence[Report]) -> int:
    """Return how many records the sources gave."""
    sources = {node.name for node in plan.sources()}
    return sum(number for report in found for name, number in report.counts.items() if name in sources)
