"""The driver: one run of a job on Spark, from its claim to its last commit."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import InheritableThread

from tidewheel._checkpoint.manifest import Kind, Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.unpublished import owes_output
from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.source import Files
from tidewheel._connectors.source import Source
from tidewheel._connectors.stream_reader import DirectStream
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.figures import labelled
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._engine.run import ChainRun, JobRun
from tidewheel._engine.steps import Steps
from tidewheel._engine.telling import Telling
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._operators.time_checks import doubts
from tidewheel._spark import jvm
from tidewheel._spark.batch_tasks import BatchTasks, Offered, rows_of
from tidewheel._spark.checkpoint_folder import SparkFolder, planned_at, source_offsets
from tidewheel._spark.diagnosis import cause, readable
from tidewheel._spark.hosts import check_hosts
from tidewheel._spark.interrupts import Interrupts
from tidewheel._spark.masters import check_reachable, is_local, local_folder
from tidewheel._spark.merging import merge_on
from tidewheel._spark.options import RunOptions
from tidewheel._spark.own_query import OwnQuery
from tidewheel._spark.program import Program
from tidewheel._spark.progress import FIRST_BATCH, BatchProgress, RunResult
from tidewheel._spark.query import BatchQuery, SparkQuery
from tidewheel._spark.query_sources import QuerySources, query_sources
from tidewheel._spark.restarts import Restarts
from tidewheel._spark.seen_files import SeenFiles
from tidewheel._spark.session import is_own, session
from tidewheel._spark.shipping import ship
from tidewheel._spark.source_folders import check_folders
from tidewheel._spark.source_lines import Continuation, continued, dropped_sources, offsets_by_name, recorded_kinds
from tidewheel._spark.unread_files import UnreadFiles
from tidewheel._time.duration import MAX_TIME
from tidewheel.errors import ConfigError, FencedError, StateError, TidewheelError

if TYPE_CHECKING:
    from tidewheel._program.job import Job

_LOG = logger(__name__)

PUBLISHED_AGAIN = faults.declare("start.published", "the newest commit's output was published again")
REBUILT = faults.declare("start.rebuilt", "Spark's folder is rebuilt, the query not started")
BATCH_STARTED = faults.declare("batch.started", "Spark has called with a batch, nothing is decided")
BATCH_RAN = faults.declare("batch.ran", "all tasks have reported, nothing is committed")
FLUSHING = faults.declare("flush.before", "a bounded run has read all there is, and is about to flush")

_KEEP_BATCHES = 1000
_POLL_SECONDS = 0.2
_POLLS_PER_STATUS = 25


class _Stopped(Exception):
    """Raised where a batch, or a phase of the start, must not begin because the run was asked to stop."""


class Driver:
    """One run of a job: it claims the job, starts the query, commits its batches and publishes their output."""

    def __init__(self, job: Job, plan: Plan, options: RunOptions, run: ChainRun | None = None) -> None:
        """Take a job whose graph is checked, and the run that commits it, if it is not one that claims the whole job."""
        self.job, self.plan, self.options = job, plan, options
        terms = ClaimTerms(options.take_over, options.allow_dropped_state, options.drop_unpublished)
        self.run = run or JobRun(job, plan, terms)
        self.local = Path(local_folder(options.local))
        self.spark_folder = SparkFolder(self.local / f"{self._spark_prefix}{os.getpid()}-{self.run.token}")
        self.seen = SeenFiles(self.run.store, self.run.stream, self.run.token)
        self.batches: list[BatchProgress] = []
        self.phase: str | None = "checking"
        """What the start is at; None: it has run its first batch, or waits for data."""
        self._query: BatchQuery | None = None
        self.spark: SparkSession
        self.sources: QuerySources
        self.program: Program
        self.tasks: BatchTasks
        self._with_session = contextlib.ExitStack()
        """What is let go of with the Spark session that it is for."""
        self.error: BaseException | None = None
        self.failed_batch: int | None = None
        self._polls = 0
        self._late: Counter[str] = Counter()
        self._read_by_spark = False
        """Whether tasks could not read a batch as Spark would, so that Spark's own rows must be at hand from then on."""
        self._interrupts = Interrupts(self)
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._turned_at = 0.0
        """When the query began to wait for its next batch, in seconds since 1970."""

    # The run, from its claim to its end.

    def execute(self) -> RunResult:
        """Run to the end: of a bounded job's data, at a stop, or at an error that restarts do not cure."""
        faults.remember_group()
        self.options.check_trigger()
        self.telling = Telling(
            self.run,
            node=self.options.node,
            history_seconds=self.options.history_seconds,
            metrics=self.options.metrics,
            local=str(self.local),
            unread=UnreadFiles(self.seen, lambda: self.run.head).of,
        )
        failed = True
        try:
            with self._interrupts:
                self._run()
            failed = False
        except _Stopped:
            failed = False  # It had not begun.
        except BaseException as error:
            if not self._was_stopped_with_spark(error):
                told = self._readable(error) if isinstance(error, Py4JError | PySparkException | OSError) else error
                self.telling.failed(told, self.failed_batch)
                if told is error:
                    raise
                raise told from error
            failed = False
        finally:
            self._with_session.close()
            self.run.release(failed=failed)
            self.telling.close()
            self.spark_folder.remove()
        head = getattr(self.run, "head", None) or self.run.checkpoints.latest()
        if head is None:
            return RunResult(self.job.name, 0, 0, self.batches, self.stopping)
        at_end = head.epoch == MAX_TIME
        holding = tuple(node.name for node in self.job.graph.nodes if node.operator.holds_back and not at_end)
        epoch, unread = None if at_end else head.epoch, self.job.graph.unread("late")
        late = {name: number for name, number in self._late.items() if number and name in unread}
        return RunResult(
            self.job.name, head.sequence, head.event_count, self.batches, self.stopping, epoch, holding, late
        )

    def _run(self) -> None:
        """Claim the job and run its batches to the end."""
        self._enter("checking")
        self.run.reserve()
        self._check_open()
        self.plan = self.run.plan
        for notice in self.run.notices:
            _LOG.warning("job %r: %s", self.job.name, notice)
        self.run.start_sinks()
        for node in self.plan.nodes:
            if isinstance(node.operator, SourceOperator):
                node.operator.source.check()
                for doubt in node.operator.source.doubts():
                    _LOG.warning("job %r: source %r: %s", self.job.name, node.name, doubt)
        # A bounded run ends after all time, and with it all that waits for a clock, or is kept for want of one.
        for doubt in () if self.options.bounded else doubts(self.job.graph):
            _LOG.warning("job %r: %s", self.job.name, doubt)
        self._start_spark()
        newest = self.run.checkpoints.latest()
        self._continued(newest)
        for name in dropped_sources(newest.spark if newest is not None else None, self.sources.lines, self.job.aliases):
            _LOG.warning("job %r: source %r: its offsets are forgotten", self.job.name, name)
        if newest is not None and newest.batch is not None and newest.spark is None:
            _LOG.warning(
                "job %r: a MemoryRun has made its state, of records that it was given: the sources are read from their beginning",
                self.job.name,
            )
        self._enter("claiming")
        self.run.begin()
        self.telling.started()
        self._with_restarts()

    def _check_open(self) -> None:
        """Refuse to start a job that has ended for good, unless the run may do without data.

        A bounded run that is repeated reads nothing more. What a crash left unpublished is published whatever comes next.
        """
        newest = self.run.checkpoints.head
        if newest is not None and not self.options.bounded and not owes_output(newest):
            self.run.check_open()

    def stop(self) -> None:
        """Let the batch that is running finish and commit, then end the run."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stop.is_set()

    @property
    def starting(self) -> bool:
        """Whether it has not come to its first batch yet."""
        return self.phase not in (None, FIRST_BATCH)

    def _start_spark(self) -> None:
        """Get a session, check that tasks can run where it runs them, send them their code, and load the sources."""
        self._enter("Spark")
        self.spark = self.options.spark or session(self.options.master, self.options.conf)
        self._interrupts.take()
        check_reachable(self.job.name, self.job.state, self.spark.sparkContext.master, self.options.shared_state)
        self._enter("hosts")
        ship(self.spark, self.plan)
        self.run.merging.merge = merge_on(self.spark, self.run.store)
        check_hosts(self.spark, self.plan)
        tick = self.options.tick if self._ticks else None
        self.sources = query_sources(self.plan, self.spark, tick, self._recorded_kinds())
        if self.options.is_direct:
            self.sources.streams()  # Refused here, before anything is claimed.
        self.program = Program(self.plan, self.sources.frame)
        self._tell_readers(self.sources.direct.told)
        self._with_session.close()
        # Elsewhere, tasks run on hosts that were chosen for them.
        beside = is_local(self.spark.sparkContext.master)
        self.tasks = BatchTasks(self.program, self.sources, in_driver=self.options.in_driver, beside=beside)
        self._with_session.enter_context(self.tasks)

    def _with_restarts(self) -> None:
        restarts = Restarts(self.options.restarts, self.options.backoff)
        ended = False
        while True:
            try:
                if ended:
                    jvm.forget()
                    self._start_spark()
                    ended = False
                self._attempt()
                return
            except _Stopped:
                return
            except ReadBySpark as error:
                # The same batch again, from the same base, over a frame that has its rows.
                self._idle.wait()
                self._read_by_spark = True
                self._tell_readers(
                    dict.fromkeys(self.sources.direct.told, f"spark where tasks cannot, because {error}"),
                    logging.WARNING,
                )
            except Exception as error:
                # The batch may still be at its commit, which needs no JVM: what the newest commit is must be settled.
                self._idle.wait()
                # A signal to the whole process group, by which the run was told to stop, ends the JVM too.
                ended = ended or jvm.ended(error, ending=self.stopping) is not None
                if ended and self.stopping:
                    return
                self._check_fenced(error)
                again = restarts.after(error, self.run.head.sequence, self.failed_batch, cause(error))
                if again is not None and self.stopping:
                    return  # What would be tried again is left to the next run.
                told = self._readable(error)
                if told is not error:
                    told.__cause__ = error
                if again is None or (ended and not self._may_start_spark()):
                    raise told from told.__cause__
                self.telling.failed(told, self.failed_batch, restarted=True)
                _LOG.warning("job %r: %s", self.job.name, again.why)
                self._stop.wait(again.seconds)

    def _check_fenced(self, error: Exception) -> None:
        """Raise a `FencedError` if the run was overtaken: it then fails in many ways, on files that its successor removed."""
        if not isinstance(error, FencedError | StateError | ConfigError):
            try:
                self.run.recall()
            except FencedError:
                raise
            except TidewheelError:
                return  # The store does not answer; the next attempt tells.

    def _was_stopped_with_spark(self, error: BaseException) -> bool:
        """Whether the start failed since a signal to the whole process group, which asks the run to stop, ended the JVM too."""
        return self.stopping and self.starting and jvm.ended(error, ending=True) is not None

    def _may_start_spark(self) -> bool:
        """Whether a new JVM can take the place of one that has ended: only of one that was started for this run."""
        return self.options.spark is None and is_own(self.spark)

    def _readable(self, error: Exception) -> Exception:
        what = f"batch {self.failed_batch}" if self.error is not None else "the query" if self.batches else "the start"
        return readable(error, f"{what} of job {self.job.name!r}")

    def _attempt(self) -> None:
        """Publish what a crash may have left unpublished, rebuild Spark's folder, and run the query to its end."""
        self.error = None
        self._enter("rebuilding")
        self.run.recall()
        self.run.publish_left(self.spark)
        faults.point(PUBLISHED_AGAIN)
        self._clean_local()
        head = self.run.head
        continuation = self._continued(head)
        self.seen.ages = self._ages(continuation)
        seen = self.seen.load(head)
        check_folders(seen, continuation.sources, self._folders())
        self.spark_folder.rebuild(head.spark, seen, continuation)
        faults.point(REBUILT)
        self._enter(FIRST_BATCH)
        self._turned_at = time.time()
        query = self._query = self._start_query()
        try:
            self._await(query)
        finally:
            self._enter(None)
            if not self._idle.is_set():
                self.tasks.cancel()
            # With a JVM that has ended there is nothing to stop.
            with contextlib.suppress(*jvm.CONNECTION_ERRORS):
                query.stop()
                self.batches = self._with_durations(query)
            self._query = None
        if self.options.bounded and not self.stopping:
            self._flush()
        elif self.options.ends_by_itself and self.options.finishes:
            self._finish()

    def _start_query(self) -> BatchQuery:
        """Start what offers the batches: Spark, unless the caller chose that the run does it."""
        frame = self.sources.frame
        if self.sources.direct.why_not is None and not self._read_by_spark:
            self.sources.direct.begin(self.run.head.source_offsets)
            if self.options.is_direct:
                return self._own_query(self.sources.streams())
            # Only what makes Spark offer batches.
            frame = self.sources.bare
        writer = frame.writeStream.foreachBatch(self._on_batch).trigger(**self.options.spark_trigger())
        # Not `as_uri`, which writes some signs as %3D and the like: Spark would take that for the name.
        return SparkQuery(writer.option("checkpointLocation", f"file://{self.spark_folder.path}").start())

    def _own_query(self, streams: list[DirectStream]) -> BatchQuery:
        context, group = self.spark.sparkContext, f"{self.run.stream} {self.run.token}"

        @cache
        def join_group() -> None:
            context.setJobGroup(group, f"the batches of job {self.job.name!r}", interruptOnCancel=True)

        def on_batch(batch: int) -> None:
            join_group()
            self._on_batch(None, batch)

        return OwnQuery(
            streams, self.spark_folder, on_batch, lambda: context.cancelJobGroup(group), thread=InheritableThread
        )

    def _await(self, query: BatchQuery) -> None:
        try:
            while not query.await_end(_POLL_SECONDS):
                waiting = self._waiting(query)
                self.telling.turned(waiting)
                if waiting and self._idle.is_set():
                    self._enter(None)
                self._obey()
                if self.stopping and self._idle.is_set() and not query.is_starting():
                    return
        except (StreamingQueryException, _Stopped):
            if isinstance(self.error, _Stopped):
                return
            if self.error is not None:
                raise self.error from self.error.__cause__
            raise

    def _obey(self) -> None:
        """Stop if the run was told to, from any process."""
        if self.run.cells.told_to_stop(self.run.token):
            self.stop()

    def _waiting(self, query: BatchQuery) -> bool:
        """Whether the query waits for data that is not there yet. It is asked every few seconds, and while it starts."""
        self._polls += 1
        asks = self._polls % _POLLS_PER_STATUS == 0 or self.phase is not None
        return asks and query.is_waiting()

    def _enter(self, phase: str | None) -> None:
        """Begin a phase of the start, or with None what comes after it. `_Stopped` if the run was asked to stop."""
        if phase is not None:
            self._obey()
            if self.stopping:
                raise _Stopped
        told = phase == self.phase != "checking"
        self.phase = phase
        self.run.enter(phase)
        if self.options.on_phase is not None and not told:
            self.options.on_phase(phase)

    def _tell_readers(self, readers: Mapping[str, str], level: int = logging.INFO) -> None:
        """Say who reads each source."""
        for source, reader in readers.items():
            _LOG.log(level, "job %r: source %r: reader: %s", self.job.name, source, reader)
        if self.options.on_readers is not None:
            self.options.on_readers(readers)

    # One batch.

    def _on_batch(self, frame: DataFrame | None, batch: int) -> None:
        self._idle.clear()
        try:
            if self.stopping:
                raise _Stopped
            with self.telling.batch(batch) as steps:
                self._run_batch(frame, batch, steps)
        except BaseException as error:
            # What passes through the JVM comes back as text; this keeps the error itself.
            self.error = error
            self.failed_batch = batch
            raise
        finally:
            self._turned_at = time.time()
            self._idle.set()

    def _run_batch(self, frame: DataFrame | None, batch: int, steps: Steps) -> None:
        faults.point(BATCH_STARTED)
        offsets = self.spark_folder.offsets(batch)
        if self._already_committed(batch, offsets):
            self.run.publish(self.spark)
            return
        # Spark's own work on the batch counts; what was before the last one, or before this run, is not about it.
        steps.begun_earlier(max(0.0, time.time() - max(planned_at(offsets), self._turned_at)))
        log, fresh = self.spark_folder.capture(batch, self.run.head.spark)
        steps.done("offsets")
        offered = Offered(frame, log.offsets.get(batch - 1), offsets, fresh, self.spark_folder.logs)
        ran = self.tasks.run(offered, self._spec(), read_by_spark=self._read_by_spark)
        spec, found, steps.tasks = ran.spec, ran.reports, ran.tasks
        faults.point(BATCH_RAN)
        steps.done("tasks")
        steps.reports = found
        log, seen = self.seen.record(self.run.head, log, fresh, spec.sequence)
        progress = SourceProgress(batch, offsets_by_name(source_offsets(offsets), self.sources.lines), log, seen)
        if self.run.commit(spec, found, "batch", self.spark, progress, steps=steps):
            self._tell(spec, batch, found, steps)
        else:
            # There was nothing to do, as for a query that waits for data.
            self._enter(None)
            self.telling.turned(waiting=True)

    def _already_committed(self, batch: int, offsets: str) -> bool:
        """Tell whether the newest commit holds this batch; refuse any batch but that one and the next."""
        self.run.check_open()
        head = self.run.head
        # Without Spark's log, the number is of a batch that was given its records in memory.
        last = head.batch if head.spark is not None else None
        if head.spark is not None and last == batch:
            if head.spark.offsets.get(batch) == offsets:
                return True
            raise StateError(
                f"Spark offers batch {batch} of job {self.job.name!r} with other offsets than those committed as sequence "
                f"{head.sequence}; start the job again, which rebuilds Spark's folder from the commit"
            )
        expected = 0 if last is None else last + 1
        if batch != expected:
            raise StateError(
                f"Spark offers batch {batch} of job {self.job.name!r}, and the newest commit, {head.sequence}, makes {expected} "
                "the next; start the job again, which rebuilds Spark's folder from the commit"
            )
        return False

    def _spec(self, *, epoch: int | None = None, asks: bool = True) -> BatchSpec:
        wanted = self.options.parallelism or self.spark.sparkContext.defaultParallelism
        # Where tasks run on other hosts, a folder that nobody named is for each of them to choose.
        chosen = is_local(self.spark.sparkContext.master) or self.options.local is not None
        everywhere = str(self.local) if chosen else ""
        return self.run.spec(wanted, everywhere, epoch=epoch, asks=asks)

    def _tell(
        self, spec: BatchSpec, batch: int | None, found: list[Report], steps: Steps, kind: Kind = "batch"
    ) -> None:
        progress = BatchProgress(
            spec.sequence,
            batch,
            rows_of(self.plan, found),
            sum(number for report in found for number in report.changed.values()),
            steps.total,
            (steps.seconds["commit"] + steps.seconds["publish"]) * 1000,
            steps.tasks or spec.parallelism,
            sum(report.rejected for report in found),
            kind=kind,
        )
        for report in found:
            self._late.update(labelled(report.counts, "late"))
        self.batches.append(progress)
        del self.batches[:-_KEEP_BATCHES]
        self._enter(None)
        if self.options.progress is not None:
            self.options.progress(progress)

    def _flush(self) -> None:
        """End a bounded run: every operator gets the epoch after all time, and the job takes no more data."""
        if self.run.flushed is None:
            faults.point(FLUSHING)
            self._run_without_input("flush", MAX_TIME)

    def _finish(self) -> None:
        """Deliver the epochs that are due: a run that ends leaves nothing that one that goes on would emit.

        No source is asked for data meanwhile, so silence moves no clock.
        """
        while self.run.owes_epoch and not self.stopping:
            self._run_without_input("epoch")

    def _run_without_input(self, kind: Kind, epoch: int | None = None) -> None:
        steps = Steps()
        spec = self._spec(epoch=epoch, asks=False)
        found: list[Report] = []
        if self.plan.driven_by_time():
            head = self.run.head
            ran = self.tasks.run_without_input(spec, ShardMap.of(head.shards, head.n_shards))
            found, steps.tasks = ran.reports, ran.tasks
        steps.done("tasks")
        self.run.commit(spec, found, kind, self.spark, steps=steps)
        self._tell(spec, None, found, steps, kind)

    # Around the batches.

    def _recorded_kinds(self) -> dict[str, str]:
        """Return what kind of stream each source of the program has read so far."""
        state = self.run.checkpoints.latest()
        names = [node.name for node in self.plan.sources()]
        return recorded_kinds(state.spark if state is not None else None, names, self.job.aliases)

    def _continued(self, state: Manifest | None) -> Continuation:
        """Return what the sources of the program continue of a commit; raise a `StateError` if they cannot."""
        log = state.spark if state is not None else None
        return continued(log, self.sources.lines, self.job.aliases, self.options.allow_dropped_source)

    def _sources(self) -> dict[str, Source]:
        """Return the sources of the program, by name."""
        return {
            node.name: node.operator.source for node in self.plan.nodes if isinstance(node.operator, SourceOperator)
        }

    def _folders(self) -> dict[str, str]:
        """Return the folders of Spark's file sources, by name."""
        return {name: source.path for name, source in self._sources().items() if isinstance(source, Files)}

    def _ages(self, continuation: Continuation) -> dict[int, int]:
        """Return for how many ms the files of each log are remembered, where that is not for ever."""
        ages = {name: source.seen_age_ms() for name, source in self._sources().items()}
        known = ((source.log, ages.get(source.name)) for source in continuation.sources)
        return {log: age for log, age in known if age is not None}

    @property
    def _ticks(self) -> bool:
        """Whether the clock is a source too: where something waits for time, and the run does not end by itself."""
        return self.plan.driven_by_time() and not self.options.ends_by_itself

    def _clean_local(self) -> None:
        """Remove the Spark folders of this job's runs whose process is gone."""
        for path in self.local.glob(f"{self._spark_prefix}*"):
            pid = path.name.removeprefix(self._spark_prefix).split("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
                shutil.rmtree(path, ignore_errors=True)

    @property
    def _spark_prefix(self) -> str:
        return f"spark-{folder(self.run.stream)}-"

    def progress(self) -> list[BatchProgress]:
        """Return the last committed batches, with the durations that Spark has told of them. From any thread."""
        with contextlib.suppress(Py4JError, *jvm.CONNECTION_ERRORS):
            if (query := self._query) is not None:
                return self._with_durations(query)
        return list(self.batches)

    def _with_durations(self, query: BatchQuery) -> list[BatchProgress]:
        durations = query.durations()
        return [
            entry.with_durations(durations[entry.batch]) if entry.batch in durations else entry
            for entry in self.batches
        ]
