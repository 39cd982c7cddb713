"""The batches of one run: each is decided, run in tasks, committed, published and reported."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from tidewheel._checkpoint.manifest import Kind
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._core import faults
from tidewheel._core.closing import Closing
from tidewheel._core.logs import logger
from tidewheel._engine.autoscale import PATIENCE_S, AutoScale, Limits
from tidewheel._engine.batch_loop import Positions
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.figures import labelled
from tidewheel._engine.phases import Phases
from tidewheel._engine.report import Report
from tidewheel._engine.run import ChainRun
from tidewheel._engine.run_reporter import RunReporter
from tidewheel._engine.task_layout import Layout
from tidewheel._spark import jvm
from tidewheel._spark.batch_tasks import BatchTasks, rows_of
from tidewheel._spark.cluster import default_parallelism, is_connect, master_of, most_tasks, request_executors
from tidewheel._spark.failures import summary_line
from tidewheel._spark.lifecycle import Lifecycle, Stopped
from tidewheel._spark.masters import is_local
from tidewheel._spark.option_kinds import AUTO
from tidewheel._spark.options import RunOptions
from tidewheel._spark.program import Program
from tidewheel._spark.progress import BatchProgress
from tidewheel._spark.run_sources import RunSources
from tidewheel._time.duration import MAX_TIME, seconds_or_none

_LOG = logger(__name__)

BATCH_STARTED = faults.declare("batch.started", "a batch is due, nothing is decided")
BATCH_RAN = faults.declare("batch.ran", "all tasks have reported, nothing is committed")
FLUSHING = faults.declare("flush.before", "a bounded run has read all there is, and is about to flush")

_KEEP_BATCHES = 1000


class BatchRunner(Closing):
    """Runs the batches of one run, one at a time. A loop calls `run` in a thread of its own."""

    def __init__(self, run: ChainRun, options: RunOptions, sources: RunSources, life: Lifecycle, local: Path) -> None:
        """Take the run, its sources, and the folder for local copies on this machine. `start` comes before all else."""
        self._run, self._options, self._sources, self._life, self._local = run, options, sources, life, local
        self.done: list[BatchProgress] = []
        """The last committed batches."""
        self.late: Counter[str] = Counter()
        """By step, how many messages came too late for it."""
        self.failed: int | None = None
        """The batch that ended the newest attempt of the run, by an error."""
        self._spark: SparkSession
        self._tasks: BatchTasks
        self._reporter: RunReporter
        self._to_close = contextlib.ExitStack()
        self._parallelism = 1
        self._auto: AutoScale | None = None
        """Chooses the number of tasks, if the user leaves it to the run."""
        self._held: Collection[str] = ()
        """The sources that the next batch does not read, because they are too far ahead in event time."""
        self._idle = threading.Event()
        self._idle.set()

    def start(self, spark: SparkSession, program: Program, reporter: RunReporter) -> None:
        """Run the tasks of batches in this session from now on."""
        self.close()
        self._spark, self._reporter = spark, reporter
        # Elsewhere, tasks run on hosts that were chosen for them.
        self._tasks = self._to_close.enter_context(BatchTasks(program, local=is_local(master_of(spark))))
        chosen = self._options.parallelism
        self._parallelism = chosen if isinstance(chosen, int) else default_parallelism(spark)
        if chosen == AUTO and self._auto is None:
            interval = seconds_or_none(self._options.every, "every") or 0.0
            at_start = self._task_limits()
            # Through Spark Connect, the number of cores takes a Spark job to find out.
            limits = (lambda: at_start) if is_connect(spark) else self._task_limits
            self._auto = AutoScale(self._parallelism, limits, max(PATIENCE_S, 2 * interval))

    def close(self) -> None:
        """Close the pool of processes that run tasks."""
        self._to_close.close()

    @property
    def is_idle(self) -> bool:
        """Whether no batch runs now."""
        return self._idle.is_set()

    def settle(self) -> None:
        """Wait until the batch that runs has ended: it may still be at its commit, which needs no Spark."""
        self._idle.wait()

    def cancel(self) -> None:
        """End the tasks of a batch that runs. Spark ends its own tasks."""
        if not self.is_idle:
            self._tasks.cancel()

    def run(self, starts: Positions, ends: Positions, asked: float) -> None:
        """Run the batch between these positions, which took so many seconds to ask for, and commit it."""
        self._idle.clear()
        batch = 0 if self._run.head.batch is None else self._run.head.batch + 1
        try:
            if self._life.stopping:
                raise Stopped
            with self._reporter.batch(batch) as phases:
                phases.begun_earlier(asked, "offsets")
                self._run_batch(batch, starts, ends, phases)
        except BaseException:
            self.failed = batch
            raise
        finally:
            self._idle.set()

    def _run_batch(self, batch: int, starts: Positions, ends: Positions, phases: Phases) -> None:
        faults.point(BATCH_STARTED)
        self._run.check_open()
        self._run.refresh_tables(self._spark)
        spec, sources = self._spec(), self._sources.opened
        splits = sources.splits(starts, ends, spec.parallelism)
        phases.done("offsets")
        frames, narrowed = self._sources.frames(starts, ends), sources.narrowed(splits)
        found, phases.tasks, phases.ran_in = self._tasks.run(spec, splits, frames, narrowed)
        faults.point(BATCH_RAN)
        phases.done("tasks")
        phases.reports = found
        progress = self._sources.progress(batch, starts, ends, spec.sequence)
        committed = self._run.commit(spec, found, "batch", self._spark, progress, phases=phases)
        self._rescale(found, phases.tasks or spec.parallelism)
        if committed:
            self._report(spec, batch, found, phases)
        else:
            # There was nothing to do: the loop waits for data.
            self._life.enter(None)
            self._reporter.turned(waiting=True)

    def compute(self, layout: Layout) -> list[Report]:
        """Run the tasks of a batch that another run decided, and return their reports. `Stopped` if the run is to stop."""
        self._life.check()
        spec = msgspec.structs.replace(layout.spec, local=self._local_everywhere)
        return self._tasks.run_layout(msgspec.structs.replace(layout, spec=spec))

    def warm(self) -> None:
        """Prepare the processes that run tasks for a batch that follows the newest commit."""
        try:
            self._tasks.warm(self._spec(asks=False))
        except Exception as error:
            if jvm.ended(error) is not None:
                raise
            _LOG.warning("job %r: local copies are not updated: %s", self._run.job.name, summary_line(error))

    def hold_back(self, waiting: Collection[str]) -> Collection[str]:
        """Return which sources with new data the next batch does not read."""
        self._held = self._run.held_back(waiting)
        return self._held

    def flush(self) -> None:
        """End a bounded run: every step gets the epoch after all time, and the job takes no more data."""
        if self._run.flushed is None:
            faults.point(FLUSHING)
            self._run_without_input("flush", MAX_TIME)

    def finish(self) -> None:
        """Deliver the epochs that are due: emit everything that is due before the run ends.

        Sources are not polled meanwhile, so silence moves no clock.
        """
        while self._run.owes_epoch and not self._life.stopping:
            self._run_without_input("epoch")

    def _run_without_input(self, kind: Kind, epoch: int | None = None) -> None:
        phases = Phases()
        spec = self._spec(epoch=epoch, asks=False)
        found: list[Report] = []
        if self._run.plan.driven_by_time():
            head = self._run.head
            state = ShardMap.of(head.shards, head.n_shards)
            found, phases.tasks, phases.ran_in = self._tasks.run_without_input(spec, state)
        phases.done("tasks")
        self._run.commit(spec, found, kind, self._spark, phases=phases)
        self._report(spec, None, found, phases, kind)

    def _spec(self, *, epoch: int | None = None, asks: bool = True) -> BatchSpec:
        tasks = self._parallelism if self._auto is None else self._auto.tasks
        return self._run.spec(tasks, self._local_everywhere, epoch=epoch, asks=asks, held=self._held)

    @property
    def _local_everywhere(self) -> str:
        # If tasks run on other hosts and the user gave no folder, each host chooses its own.
        chosen = is_local(master_of(self._spark)) or self._options.local is not None
        return str(self._local) if chosen else ""

    def _task_limits(self) -> Limits:
        """Return how many tasks a batch may have on the hosts that are there now."""
        n_shards = self._run.job.n_shards
        return Limits(1, min(most_tasks(self._spark) or n_shards, n_shards))

    def _rescale(self, found: Sequence[Report], tasks: int) -> None:
        """Choose the number of tasks of the next batch, unless a rescale has set it."""
        auto = self._auto
        if auto is None or self._run.cells.parallelism() is not None:
            return
        before = auto.tasks
        auto.note(found, tasks, self._reporter.waited)
        request_executors(self._spark, auto.tasks, before)

    def _report(
        self, spec: BatchSpec, batch: int | None, found: list[Report], phases: Phases, kind: Kind = "batch"
    ) -> None:
        progress = BatchProgress(
            spec.sequence,
            batch,
            rows_of(self._run.plan, found),
            sum(number for report in found for number in report.changed.values()),
            phases.total,
            (phases.seconds["commit"] + phases.seconds["publish"]) * 1000,
            phases.tasks or spec.parallelism,
            sum(report.rejected for report in found),
            phases.milliseconds,
            kind,
        )
        for report in found:
            self.late.update(labelled(report.counts, "late"))
        self.done.append(progress)
        del self.done[:-_KEEP_BATCHES]
        self._life.enter(None)
        if self._options.progress is not None:
            self._options.progress(progress)
