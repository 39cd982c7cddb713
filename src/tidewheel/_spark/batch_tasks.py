"""The tasks of one batch: who reads its records, where they run, and what they report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._connectors.split import dealt, may_be_shared
from tidewheel._core.closing import Closing
from tidewheel._core.logs import logger
from tidewheel._engine import report as reports
from tidewheel._engine.batch_spec import BatchSpec, WholeRecordsNeeded
from tidewheel._engine.commit import check_reports
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.wire import REPORT
from tidewheel._spark.program import Program
from tidewheel._spark.work_estimate import WorkEstimate
from tidewheel._spark.workers_beside import BatchFailed, WorkersBeside

_LOG = logger(__name__)

SMALL_BYTES = 256 * 1024
"""A batch whose splits, or without any whose state, have up to this many bytes runs in one task without a shuffle."""
QUERY_SECONDS = 0.25
"""About what a query with a shuffle costs on a local Spark, beside the work of its tasks."""
PLAIN_JOB_SECONDS = 0.05
"""The same of a plain job, where the tasks need not shuffle."""
BESIDE_SECONDS = 0.005
"""The same where processes beside this one run them."""


class Ran(msgspec.Struct, frozen=True):
    """What became of a batch's tasks: what was pinned for them, what they reported, and how many there were."""

    spec: BatchSpec
    reports: list[Report]
    tasks: int


class BatchTasks(Closing):
    """Runs the tasks of a job's batches in one Spark session."""

    def __init__(self, program: Program, *, in_driver: bool, beside: bool) -> None:
        """Take the program, and where batches without a shuffle may run: in this process, or in some beside it."""
        self._program, self._in_driver = program, in_driver
        self._levels = range(len(program.plan.levels))
        self._beside: WorkersBeside | None = program.beside() if beside and not in_driver else None
        self._local, self._work = beside, WorkEstimate()
        self._whole = False
        """Whether tasks read whole records, also where the program's functions read a part of them."""
        self._told_left = False

    def run(
        self,
        spec: BatchSpec,
        splits: Sequence[SourceSplit],
        frames: Mapping[int, DataFrame],
        narrowed: Sequence[SourceSplit] | None = None,
    ) -> Ran:
        """Run the tasks of a batch.

        `frames` has the rows of the sources that Spark reads, by their numbers. `narrowed` are the same splits with only the
        columns that the program's functions read, if that saves work.
        """
        if self._beside is not None:
            self._beside.count_batch()
        if frames:
            hands = hands_of(splits, spec.parallelism) if splits else []
            rows = self._program.frames_query(spec, frames, hands).collect()
            return Ran(spec, _decoded(_payloads(rows), self._levels, spec), spec.parallelism)
        if narrowed is not None and not self._whole:
            try:
                return self._run_splits(narrowed, msgspec.structs.replace(spec, partial=True))
            except WholeRecordsNeeded:
                # Nothing is committed. Where records were rejected once, more may be.
                self._whole = True
                _LOG.info(
                    "a batch has an error or a dead letter, which shows the whole record: from now on tasks read all columns"
                )
        return self._run_splits(splits, spec)

    def run_without_input(self, spec: BatchSpec, state: ShardMap) -> Ran:
        """Run the tasks of a batch that has no records: its work is what is due in the state."""
        if _holds_little(state):
            return self._run_small([], spec)
        if _are_shuffled(self._levels, spec):
            found = _payloads(self._program.direct_query(spec, self._levels, [[]]).collect())
        else:
            found = self._program.in_tasks(spec, self._levels, [[]])
        return Ran(spec, _decoded(found, self._levels, spec), spec.parallelism)

    def cancel(self) -> None:
        """End what runs beside this process in the middle of a batch. What Spark runs is Spark's to end."""
        if self._beside is not None:
            self._beside.kill()

    def close(self) -> None:
        """Let go of the processes beside this one."""
        if self._beside is not None:
            self._beside.close()

    def _run_splits(self, splits: Sequence[SourceSplit], spec: BatchSpec) -> Ran:
        size = sum(split.size for _, split in splits)
        ran = self._run_divided(splits, spec, size) or self._run_small(splits, spec)
        if size > SMALL_BYTES:  # Of fewer bytes, most of the time is not theirs.
            self._work.note(size, ran.reports)
        return ran

    def _run_divided(self, splits: Sequence[SourceSplit], spec: BatchSpec, size: int) -> Ran | None:
        """Run a batch in its tasks; None: it is small, and one should do it sooner."""
        levels = self._levels
        if self._program.shared_key is not None and may_be_shared([split for _, split in splits], spec.parallelism):
            # They are done soonest if each of them reads the whole batch.
            spec, levels = msgspec.structs.replace(spec, shared_key=self._program.shared_key), levels[1:]
            hands: Sequence[Sequence[SourceSplit]] = [splits] * spec.parallelism
        else:
            hands = hands_of(splits, spec.parallelism)
        if _are_shuffled(levels, spec):
            if self._is_small(size, QUERY_SECONDS, spec.parallelism):
                return None
            found = _payloads(self._program.direct_query(spec, levels, hands).collect())
        elif not self._is_small(size, BESIDE_SECONDS, len(hands)) and self._are_beside(len(hands)):
            found = self._run_beside(spec, levels, hands)
        elif self._is_small(size, PLAIN_JOB_SECONDS, spec.parallelism):
            return None
        else:
            found = self._program.in_tasks(spec, levels, hands)
        return Ran(spec, _decoded(found, levels, spec), spec.parallelism)

    def _is_small(self, size: int, cost: float, tasks: int) -> bool:
        """Tell whether a batch of this many bytes is done by one task sooner than by several, which cost so many seconds more."""
        # Elsewhere, one task would have to catch up the shards that other hosts worked on.
        seconds = self._work.seconds(size) if self._local else None
        return size <= SMALL_BYTES or (seconds is not None and seconds <= cost + seconds / max(tasks, 2))

    def _run_small(self, splits: Sequence[SourceSplit], spec: BatchSpec) -> Ran:
        """Run a batch in one task: in this process if the caller of the run chose that, beside it, or in a task of Spark."""
        alone = msgspec.structs.replace(spec, parallelism=1)
        found: list[bytes] | None = None
        if self._in_driver:
            try:
                found = self._program.in_this_process(splits, alone)
            except Exception as error:
                # What fails elsewhere than in a task, and is not the program's own error, has the attempts of a task left.
                self._tell_left(f"{type(error).__name__}: {error}")
        elif self._are_beside(1):
            found = self._run_beside(alone, self._levels, [splits])
        if found is None:
            found = self._program.in_tasks(alone, self._levels, [splits])
        return Ran(spec, _decoded(found, self._levels, alone), 1)

    def _tell_left(self, why: str) -> None:
        """Say once that what was to run in this process runs in tasks: each batch that fails here costs both."""
        if not self._told_left:
            self._told_left = True
            _LOG.warning("a small batch failed in the driver, and runs in a task of Spark, as others may: %s", why)

    def _are_beside(self, tasks: int) -> bool:
        """Tell whether processes beside this one can run so many tasks of the batch at hand."""
        return self._beside is not None and self._beside.are_ready(tasks)

    def _run_beside(self, spec: BatchSpec, levels: range, hands: Sequence[Sequence[SourceSplit]]) -> list[bytes]:
        """Run levels in the processes beside this one, a task for each hand; what these fail at, in tasks of Spark."""
        assert self._beside is not None
        try:
            return self._beside.reports(spec, levels, hands)
        except BatchFailed as failed:
            _LOG.info("a batch failed beside the driver, and runs in tasks of Spark: %s", failed)
            return self._program.in_tasks(spec, levels, hands)


def hands_of(splits: Sequence[SourceSplit], tasks: int) -> list[list[SourceSplit]]:
    """Divide the splits among at most this many tasks; a batch without any has one task all the same."""
    hands = dealt([split.size for _, split in splits], tasks)
    return [[splits[position] for position in hand] for hand in hands] or [[]]


def _are_shuffled(levels: range, spec: BatchSpec) -> bool:
    """Tell whether messages go from tasks to others between these levels."""
    return len(levels) > 1 and spec.parallelism > 1


def _holds_little(state: ShardMap) -> bool:
    """Tell whether all that a job has stored is soon gone through by one task."""
    # A state with pages is large, and they need not be read to know it.
    return not state.pages() and sum(file.size for file in state.files()) <= SMALL_BYTES


def rows_of(plan: Plan, found: Sequence[Report]) -> int:
    """Return how many records the sources gave."""
    sources = {node.name for node in plan.sources()}
    return sum(number for report in found for name, number in report.counts.items() if name in sources)


def _payloads(rows: list[Any]) -> list[bytes]:
    return [bytes(row.payload) for row in rows if row.edge == REPORT]


def _decoded(payloads: list[bytes], levels: Sequence[int], spec: BatchSpec) -> list[Report]:
    found = [reports.decode(payload) for payload in payloads]
    check_reports(found, levels, spec.parallelism)
    return found
