"""The driver: one run of a job on Spark, from its claim to its last commit."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import InheritableThread

from tidewheel._checkpoint.manifest import Kind, Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.spark_log import GIVEN, recorded_kinds
from tidewheel._checkpoint.unpublished import owes_output
from tidewheel._connectors.source import Source, SourceReader, Unread
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel._core.own_code import own_code
from tidewheel._engine.autoscale import PATIENCE_S, AutoScale, Limits
from tidewheel._engine.batch_loop import BatchLoop, Positions
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.continued_sources import check_positions, check_sources, continued, job_sources, kind_of
from tidewheel._engine.figures import labelled
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.job_sources import JobSources
from tidewheel._engine.phases import Phases
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.report import Report
from tidewheel._engine.run import ChainRun
from tidewheel._engine.run_reporter import RunReporter
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._engine.task_layout import DEFAULT_LIMITS, Layout, TaskLimits
from tidewheel._observe.metrics import Metrics
from tidewheel._operators.order_checks import order_warnings
from tidewheel._operators.readers import readers_of
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._operators.time_checks import clock_warnings
from tidewheel._spark import jvm
from tidewheel._spark.batch_tasks import BatchTasks, rows_of
from tidewheel._spark.cluster import JobGroup, default_parallelism, is_connect, master_of, most_tasks, request_executors
from tidewheel._spark.diagnosis import SPARK_ERRORS, cause, readable
from tidewheel._spark.failures import summary_line
from tidewheel._spark.frame_reader import FrameReader
from tidewheel._spark.hosts import check_hosts
from tidewheel._spark.interrupts import Interrupts
from tidewheel._spark.masters import check_reachable, is_local, local_folder
from tidewheel._spark.merging import merge_on
from tidewheel._spark.option_kinds import AUTO
from tidewheel._spark.options import RunOptions
from tidewheel._spark.program import Program
from tidewheel._spark.progress import FIRST_BATCH, STANDBY, BatchProgress, RunResult
from tidewheel._spark.restarts import Restarts
from tidewheel._spark.session import is_own, release, session
from tidewheel._spark.shipping import ship
from tidewheel._time.duration import MAX_TIME, seconds, seconds_or_none
from tidewheel.errors import ConfigError, FencedError, StateError, TidewheelError

_LOG = logger(__name__)

PUBLISHED_AGAIN = faults.declare("start.published", "the newest commit's output was published again")
REBUILT = faults.declare("start.rebuilt", "the sources are positioned, no batch has begun")
BATCH_STARTED = faults.declare("batch.started", "a batch is due, nothing is decided")
BATCH_RAN = faults.declare("batch.ran", "all tasks have reported, nothing is committed")
FLUSHING = faults.declare("flush.before", "a bounded run has read all there is, and is about to flush")

_KEEP_BATCHES = 1000
_POLL_SECONDS = 0.2
_POLLS_PER_STATUS = 25


class _Stopped(Exception):
    """Raised where a batch, or a phase of the start, must not begin because the run was asked to stop."""


def terms_of(options: RunOptions) -> ClaimTerms:
    """Return the permissions that these options give to a run when it claims its job."""
    lease = seconds(options.lease, "lease")
    return ClaimTerms(options.take_over, options.allow_dropped_state, options.drop_unpublished, lease)


class Driver:
    """One run of a job: it claims the job, runs its batches, commits them and publishes their output."""

    def __init__(
        self,
        job: ProgramJob,
        plan: Plan,
        options: RunOptions,
        run: ChainRun | None = None,
        *,
        node: str = "",
        metrics: Metrics | None = None,
        finishes: bool = True,
        limits: TaskLimits = DEFAULT_LIMITS,
    ) -> None:
        """Prepare a run of a job whose graph is checked.

        - `run`: the run that commits; by default a run that claims the whole job.
        - `node`: the name of the fleet's node; empty outside of a fleet.
        - `metrics`: the metrics to fill, if they are served.
        - `finishes`: whether a run that ends by itself delivers the epochs that are due. False for a run that stands
          for one batch of a longer run.
        - `limits`: when it pays to divide a batch among tasks.
        """
        own_code()  # While the files are those that this process has loaded.
        self.job, self.plan, self.options = job, plan, options
        self._node, self._metrics, self._finishes, self._limits = node, metrics, finishes, limits
        self.run = run or JobRun(job, plan, terms_of(options))
        self.local = Path(local_folder(options.local))
        self._scratch = self.local / f"{self._spark_prefix}{os.getpid()}-{self.run.token}"
        """For the checkpoint folders of the streaming queries that read users' DataFrames."""
        self.seen = SeenFiles(self.run.store, self.run.stream, self.run.token)
        self.batches: list[BatchProgress] = []
        self.phase: str | None = "checking"
        """The phase of the start; None: the run has run its first batch, or waits for data."""
        self.spark: SparkSession
        self._readers: dict[str, SourceReader] | None = None
        """The readers that are open and that no loop has yet."""
        self.sources: JobSources
        self.program: Program
        self.tasks: BatchTasks
        self._auto: AutoScale | None = None
        """Chooses the number of tasks, if the user leaves it to the run."""
        self._with_session = contextlib.ExitStack()
        """Resources that are closed together with the Spark session."""
        self.error: BaseException | None = None
        self.failed_batch: int | None = None
        self._polls = 0
        self._held: Collection[str] = ()
        """The sources that the next batch does not read, because they are too far ahead in event time."""
        self._late: Counter[str] = Counter()
        self._interrupts = Interrupts(self)
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._idle.set()

    # The run, from its claim to its end.

    def execute(self) -> RunResult:
        """Run to the end: of a bounded job's data, at a stop, or at an error that restarts do not cure."""
        faults.remember_group()
        self.reporter = RunReporter(
            self.run,
            node=self._node,
            history_seconds=seconds_or_none(self.options.history, "history"),
            metrics=self._metrics,
            local=str(self.local),
            unread=self._unread,
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
                shown = self._readable(error) if isinstance(error, (*SPARK_ERRORS, OSError)) else error
                self.reporter.failed(shown, self.failed_batch)
                if shown is error:
                    raise
                raise shown from error
            failed = False
        finally:
            self._close_readers()
            self._with_session.close()
            self.run.release(failed=failed)
            self.reporter.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
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
        overridden = self.run.overridden(self.options.parallelism)
        for notice in [*self.run.notices, *([] if overridden is None else [overridden])]:
            _LOG.warning("job %r: %s", self.job.name, notice)
        self.run.start_sinks()
        for node in self.plan.nodes:
            if isinstance(node.operator, SourceOperator):
                for warning in node.operator.check_source(node.name, runs=True):
                    _LOG.warning("job %r: %s", self.job.name, warning)
        for warning in order_warnings(self.job.graph):
            _LOG.warning("job %r: %s", self.job.name, warning)
        # The final epoch of a bounded run is after all times, so it emits everything that waits for a clock.
        for warning in () if self.options.bounded else clock_warnings(self.job.graph):
            _LOG.warning("job %r: %s", self.job.name, warning)
        newest = self.run.checkpoints.latest()
        dropped = check_sources(newest, job_sources(self.plan), self.job.aliases, self.options.allow_dropped_source)
        self._start_spark()
        for name in dropped:
            _LOG.warning("job %r: source %r: its offsets are deleted", self.job.name, name)
        if newest is not None and newest.batch is not None and GIVEN in recorded_kinds(newest).values():
            _LOG.warning(
                "job %r: a MemoryRun has made its state, of records that it was given: the sources are read from their beginning",
                self.job.name,
            )
        self.run.check_sources = self._check_sources
        self._enter("claiming")
        self.run.begin()
        self.reporter.started(self.sources.schemas)
        self._with_restarts()

    def _check_open(self) -> None:
        """Refuse to start a job that has ended for good, unless the run does not need data.

        A repeated bounded run reads nothing more. Output that a crash left unpublished is published in any case.
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
        """Whether it has not begun its first batch yet."""
        return self.phase not in (None, FIRST_BATCH)

    def _start_spark(self) -> None:
        """Get a session, check that tasks can run where it runs them, send them their code, and load the sources."""
        self._enter("Spark")
        self._with_session.close()
        self.spark = self.options.spark or session(self.options.master, self.options.conf)
        if self.options.spark is None:
            self._with_session.callback(release, self.spark, self.options.master)
        self._interrupts.take()
        check_reachable(self.job.name, self.job.state, master_of(self.spark), self.options.shared_state)
        self._enter("hosts")
        ship(self.spark, self.plan)
        # On one machine, tasks of Spark would take the cores of the batches, and longer than a thread of the driver.
        self.run.merging.spread = is_local(master_of(self.spark))
        if not self.run.merging.spread:
            self.run.merging.merge = merge_on(self.spark, self.run.store)
        check_hosts(self.spark, self.plan)
        self.run.load_tables(self.spark)
        self._open_sources()
        self.program = Program(self.plan, self.spark, self.sources.schemas, self._limits)
        self._report_readers()
        # Elsewhere, tasks run on hosts that were chosen for them.
        local = is_local(master_of(self.spark))
        self.tasks = BatchTasks(self.program, local=local)
        self._with_session.enter_context(self.tasks)
        chosen = self.options.parallelism
        self._parallelism = chosen if isinstance(chosen, int) else default_parallelism(self.spark)
        if chosen == AUTO and self._auto is None:
            interval = seconds_or_none(self.options.every, "every") or 0.0
            at_start = self._task_limits()
            # Through Spark Connect, the number of cores takes a Spark job to find out.
            limits = (lambda: at_start) if is_connect(self.spark) else self._task_limits
            self._auto = AutoScale(self._parallelism, limits, max(PATIENCE_S, 2 * interval))

    def _task_limits(self) -> Limits:
        """Return how many tasks a batch may have on the hosts that are there now."""
        return Limits(1, min(most_tasks(self.spark) or self.job.n_shards, self.job.n_shards))

    def _with_restarts(self) -> None:
        restarts = Restarts(self.options.restarts, seconds(self.options.backoff, "backoff"))
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
            except Exception as error:
                # The batch may still be at its commit, which needs no JVM: what the newest commit is must be settled.
                self._idle.wait()
                # A signal to the whole process group, which asks the run to stop, ends the JVM too.
                ended = ended or jvm.ended(error, ending=self.stopping) is not None
                if ended and self.stopping:
                    return
                self._check_fenced(error)
                again = restarts.after(error, self.run.head.sequence, self.failed_batch, cause(error))
                if again is not None and self.stopping:
                    return  # The run is to stop: it leaves the retry to the next run.
                shown = self._readable(error)
                if shown is not error:
                    shown.__cause__ = error
                if again is None or (ended and not self._may_start_spark()):
                    raise shown from shown.__cause__
                self.reporter.failed(shown, self.failed_batch, restarted=True)
                _LOG.warning("job %r: %s", self.job.name, again.why)
                self._stop.wait(again.seconds)

    def _check_fenced(self, error: Exception) -> None:
        """Raise a `FencedError` if another run has taken over: missing files of this run are then a consequence."""
        if not isinstance(error, FencedError | StateError | ConfigError):
            try:
                self.run.recall()
            except FencedError:
                raise
            except TidewheelError:
                return  # The store does not answer; the next attempt shows whether another run has taken over.

    def _was_stopped_with_spark(self, error: BaseException) -> bool:
        """Whether the start failed since a signal to the whole process group, which asks the run to stop, ended the JVM too."""
        return self.stopping and self.starting and jvm.ended(error, ending=True) is not None

    def _may_start_spark(self) -> bool:
        """Whether a new JVM can take the place of one that has ended: only of one that was started for this run."""
        return self.options.spark is None and is_own(self.spark)

    def _readable(self, error: Exception) -> Exception:
        what = f"batch {self.failed_batch}" if self.error is not None else "the run" if self.batches else "the start"
        return readable(error, f"{what} of job {self.job.name!r}")

    def _open_sources(self) -> None:
        """Open the reader of each source; a DataFrame is read by a streaming query of Spark."""
        self._close_readers()
        readers = self._readers = {}
        for name, source in job_sources(self.plan).items():
            readers[name] = self._opened(name, source)
        self.sources = JobSources(self.plan, readers)

    def _opened(self, name: str, source: Source) -> SourceReader:
        if not source.has_reader:
            if is_connect(self.spark):
                raise ConfigError(
                    f"source {name!r} is a streaming DataFrame, which a run cannot read through Spark Connect: run the job "
                    "with --master (a classic session), or read the data with sources.files, sources.kafka or another "
                    "source of Tidewheel"
                )
            return FrameReader(self.spark, name, source, self._scratch / folder(name))
        try:
            return source.open()
        except TidewheelError:
            raise
        except Exception as error:
            raise ConfigError(f"source {name!r} ({source.describe()}) cannot be read: {summary_line(error)}") from error

    def _close_readers(self) -> None:
        """Close the readers that were opened and that no loop has taken."""
        for reader in (self._readers or {}).values():
            reader.close()
        self._readers = None

    def _attempt(self) -> None:
        """Publish output that a crash may have left unpublished, and run batches to the end."""
        self.error = self.failed_batch = None
        self._enter("rebuilding")
        self.run.recall()
        self.run.publish_left(self.spark)
        self.run.pin_tables()
        faults.point(PUBLISHED_AGAIN)
        self._clean_local()
        if self._readers is None:
            self._open_sources()
        self._continue()
        faults.point(REBUILT)
        self._enter(FIRST_BATCH)
        loop = self._loop()
        try:
            self._await(loop)
        finally:
            self._enter(None)
            if not self._idle.is_set():
                self.tasks.cancel()
            loop.stop()
        if self.options.bounded and not self.stopping:
            self._flush()
        elif self.options.until is not None and self._finishes:
            self._finish()

    def _check_sources(self, newest: Manifest) -> None:
        """Refuse sources that cannot continue at the positions of the newest commit."""
        if self._readers is None:
            self._open_sources()
        head = continued(newest, job_sources(self.plan), self.job.aliases, self.seen)
        check_positions(head, self.sources.readers, self.seen)

    def _continue(self) -> None:
        """Give the sources their positions, and the files that they have seen."""
        sources = job_sources(self.plan)
        self.seen.ages = {name: age for name, source in sources.items() if (age := source.seen_age_ms()) is not None}
        self.run.head = continued(self.run.head, sources, self.job.aliases, self.seen)
        seen = self.seen.load(self.run.head)
        for name, reader in self.sources.readers.items():
            reader.recall([file for file in seen if file.source == name])

    def _loop(self) -> BatchLoop:
        """Start the loop, which closes the readers at its end."""
        jobs = JobGroup(self.spark, f"{self.run.stream} {self.run.token}")

        def run_batch(starts: Positions, ends: Positions, asked: float) -> None:
            jobs.join()
            self._on_batch(starts, ends, asked)

        readers, self._readers = self.sources.readers, None
        return BatchLoop(
            readers,
            self.run.head.source_offsets,
            self.options.loop_trigger(ticks=self.plan.driven_by_time()),
            run_batch,
            jobs.cancel,
            # Such a thread has the properties of the caller's jobs, a scheduler pool for example.
            thread=threading.Thread if is_connect(self.spark) else InheritableThread,
            held_back=self._hold_back,
        )

    def _hold_back(self, waiting: Collection[str]) -> Collection[str]:
        self._held = self.run.held_back(waiting)
        return self._held

    def _await(self, loop: BatchLoop) -> None:
        try:
            while not loop.await_end(_POLL_SECONDS):
                waiting = self._waiting(loop)
                self.reporter.turned(waiting)
                if waiting and self._idle.is_set():
                    self._enter(None)
                self._check_stop_order()
                if self.stopping and self._idle.is_set():
                    return
        except _Stopped:
            return

    def _check_stop_order(self) -> None:
        """Stop if a process has ordered it."""
        if self.run.stop_ordered():
            self.stop()

    def _waiting(self, loop: BatchLoop) -> bool:
        """Whether the loop waits for data that is not there yet. It is asked every few seconds, and while the run starts."""
        self._polls += 1
        asks = self._polls % _POLLS_PER_STATUS == 0 or self.phase is not None
        return asks and loop.is_waiting

    def _enter(self, phase: str | None) -> None:
        """Begin a phase of the start; None ends the start. Raise `_Stopped` if the run was asked to stop."""
        if phase is not None:
            self._check_stop_order()
            if self.stopping:
                raise _Stopped
        reported = phase == self.phase != "checking"
        self.phase = phase
        self.run.enter(phase)
        if self.options.on_phase is not None and not reported:
            self.options.on_phase(phase)

    def _report_readers(self) -> None:
        """Report who reads each source."""
        readers = readers_of(job_sources(self.plan))
        for source, reader in readers.items():
            _LOG.info("job %r: source %r: reader: %s", self.job.name, source, reader)
        if self.options.on_readers is not None:
            self.options.on_readers(readers)

    # One batch.

    def _on_batch(self, starts: Positions, ends: Positions, asked: float) -> None:
        self._idle.clear()
        batch = self._next_batch
        try:
            if self.stopping:
                raise _Stopped
            with self.reporter.batch(batch) as phases:
                phases.begun_earlier(asked, "offsets")
                self._run_batch(batch, starts, ends, phases)
        except BaseException as error:
            self.error = error
            self.failed_batch = batch
            raise
        finally:
            self._idle.set()

    @property
    def _next_batch(self) -> int:
        return 0 if self.run.head.batch is None else self.run.head.batch + 1

    def _run_batch(self, batch: int, starts: Positions, ends: Positions, phases: Phases) -> None:
        faults.point(BATCH_STARTED)
        self.run.check_open()
        self.run.refresh_tables(self.spark)
        spec = self._spec()
        splits = self.sources.splits(starts, ends, spec.parallelism)
        phases.done("offsets")
        frames, narrowed = self._frames(starts, ends), self.sources.narrowed(splits)
        found, phases.tasks, phases.ran_in = self.tasks.run(spec, splits, frames, narrowed)
        faults.point(BATCH_RAN)
        phases.done("tasks")
        phases.reports = found
        committed = self.run.commit(
            spec, found, "batch", self.spark, self._progress(batch, starts, ends, spec), phases=phases
        )
        self._rescale(found, phases.tasks or spec.parallelism)
        if committed:
            self._report_batch(spec, batch, found, phases)
        else:
            # There was nothing to do: the loop waits for data.
            self._enter(None)
            self.reporter.turned(waiting=True)

    def _rescale(self, found: Sequence[Report], tasks: int) -> None:
        """Choose the number of tasks of the next batch, unless a rescale has set it."""
        auto = self._auto
        if auto is None or self.run.cells.parallelism() is not None:
            return
        before = auto.tasks
        auto.note(found, tasks, self.reporter.waited)
        request_executors(self.spark, auto.tasks, before)

    def compute(self, layout: Layout) -> list[Report]:
        """Run the tasks of a batch that another run decided, and return their reports. `_Stopped` if the run is to stop."""
        self._check_stop_order()
        if self.stopping:
            raise _Stopped
        spec = msgspec.structs.replace(layout.spec, local=self._local_everywhere)
        return self.tasks.run_layout(msgspec.structs.replace(layout, spec=spec))

    def stand_by(self) -> None:
        """Show that the run waits while another run has the job. `_Stopped` if it is to stop."""
        # The sources are the other run's: some give a record to one reader only. They are opened again for the first batch.
        self._close_readers()
        self._enter(STANDBY)

    def warm(self) -> None:
        """Prepare the processes that run tasks for a batch that follows the newest commit."""
        try:
            self.tasks.warm(self._spec(asks=False))
        except Exception as error:
            if jvm.ended(error) is not None:
                raise
            _LOG.warning("job %r: local copies are not updated: %s", self.job.name, summary_line(error))

    def _frames(self, starts: Positions, ends: Positions) -> dict[int, DataFrame]:
        """Return the frames of the sources that Spark reads and that have something new, by their numbers."""
        return {
            number: reader.frame()
            for number, (name, reader) in enumerate(self.sources.readers.items())
            if isinstance(reader, FrameReader) and starts[name] != ends[name]
        }

    def _progress(self, batch: int, starts: Positions, ends: Positions, spec: BatchSpec) -> SourceProgress:
        """Return the record of the sources in the commit of a batch."""
        fresh = [
            msgspec.structs.replace(file, source=name)
            for name, reader in self.sources.readers.items()
            for file in reader.seen(starts[name], ends[name])
        ]
        seen, driver = self.seen.record(self.run.head, fresh, spec.sequence, ends)
        # A start position that never changes is not worth a commit.
        positions = {
            name: end
            for name, end in ends.items()
            if name in self.run.head.source_offsets or end != starts[name] or not self.sources.readers[name].fixed_start
        }
        kinds = {name: kind_of(source) for name, source in job_sources(self.plan).items() if name in positions}
        began = {name: starts[name] for name in positions if name not in self.run.head.source_offsets}
        return SourceProgress(batch, positions, kinds, seen, driver, began)

    def _spec(self, *, epoch: int | None = None, asks: bool = True) -> BatchSpec:
        wanted = self._parallelism if self._auto is None else self._auto.tasks
        return self.run.spec(wanted, self._local_everywhere, epoch=epoch, asks=asks, held=self._held)

    @property
    def _local_everywhere(self) -> str:
        # If tasks run on other hosts and the user gave no folder, each host chooses its own.
        chosen = is_local(master_of(self.spark)) or self.options.local is not None
        return str(self.local) if chosen else ""

    def _report_batch(
        self, spec: BatchSpec, batch: int | None, found: list[Report], phases: Phases, kind: Kind = "batch"
    ) -> None:
        progress = BatchProgress(
            spec.sequence,
            batch,
            rows_of(self.plan, found),
            sum(number for report in found for number in report.changed.values()),
            phases.total,
            (phases.seconds["commit"] + phases.seconds["publish"]) * 1000,
            phases.tasks or spec.parallelism,
            sum(report.rejected for report in found),
            phases.milliseconds,
            kind,
        )
        for report in found:
            self._late.update(labelled(report.counts, "late"))
        self.batches.append(progress)
        del self.batches[:-_KEEP_BATCHES]
        self._enter(None)
        if self.options.progress is not None:
            self.options.progress(progress)

    def _flush(self) -> None:
        """End a bounded run: every step gets the epoch after all time, and the job takes no more data."""
        if self.run.flushed is None:
            faults.point(FLUSHING)
            self._run_without_input("flush", MAX_TIME)

    def _finish(self) -> None:
        """Deliver the epochs that are due: emit everything that is due before the run ends.

        Sources are not polled meanwhile, so silence moves no clock.
        """
        while self.run.owes_epoch and not self.stopping:
            self._run_without_input("epoch")

    def _run_without_input(self, kind: Kind, epoch: int | None = None) -> None:
        phases = Phases()
        spec = self._spec(epoch=epoch, asks=False)
        found: list[Report] = []
        if self.plan.driven_by_time():
            head = self.run.head
            state = ShardMap.of(head.shards, head.n_shards)
            found, phases.tasks, phases.ran_in = self.tasks.run_without_input(spec, state)
        phases.done("tasks")
        self.run.commit(spec, found, kind, self.spark, phases=phases)
        self._report_batch(spec, None, found, phases, kind)

    # Around the batches.

    def _unread(self, name: str, source: Source) -> Mapping[str, Unread] | None:
        """Return the backlog of a source, if its reader knows it; None: ask the source. Callable from any thread."""
        sources = getattr(self, "sources", None)
        position = self.run.head.source_offsets.get(name)
        if sources is None or position is None:
            return None
        found: Mapping[str, Unread] | None = sources.readers[name].unread(position)
        return found

    def _clean_local(self) -> None:
        """Remove the folders of this job's runs whose process is gone."""
        for path in self.local.glob(f"{self._spark_prefix}*"):
            pid = path.name.removeprefix(self._spark_prefix).split("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
                shutil.rmtree(path, ignore_errors=True)

    @property
    def _spark_prefix(self) -> str:
        return f"spark-{folder(self.run.stream)}-"

    def progress(self) -> list[BatchProgress]:
        """Return the last committed batches. From any thread."""
        return list(self.batches)
