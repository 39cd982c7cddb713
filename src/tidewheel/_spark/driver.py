"""The driver: one run of a job on Spark, from its claim to its last commit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from tidewheel._checkpoint.spark_log import GIVEN, recorded_kinds
from tidewheel._checkpoint.unpublished import owes_output
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel._core.own_code import own_code
from tidewheel._engine.batch_loop import BatchLoop, Positions
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.continued_sources import check_sources, job_sources
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.report import Report
from tidewheel._engine.run import ChainRun
from tidewheel._engine.run_reporter import RunReporter
from tidewheel._engine.task_layout import DEFAULT_LIMITS, Layout, TaskLimits
from tidewheel._observe.metrics import Metrics
from tidewheel._operators.order_checks import order_warnings
from tidewheel._operators.readers import readers_of
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._operators.time_checks import clock_warnings
from tidewheel._spark import jvm
from tidewheel._spark.batch_runner import BatchRunner
from tidewheel._spark.cluster import JobGroup, is_connect, master_of
from tidewheel._spark.diagnosis import SPARK_ERRORS, cause, readable
from tidewheel._spark.hosts import check_hosts
from tidewheel._spark.interrupts import Interrupts
from tidewheel._spark.lifecycle import Lifecycle, Stopped
from tidewheel._spark.masters import check_reachable, is_local, local_folder
from tidewheel._spark.merging import merge_on
from tidewheel._spark.options import RunOptions
from tidewheel._spark.program import Program
from tidewheel._spark.progress import FIRST_BATCH, STANDBY, BatchProgress, RunResult
from tidewheel._spark.restarts import Restarts
from tidewheel._spark.run_sources import RunSources
from tidewheel._spark.session import is_own, release, session
from tidewheel._spark.shipping import ship
from tidewheel._time.duration import MAX_TIME, seconds, seconds_or_none
from tidewheel.errors import ConfigError, FencedError, StateError, TidewheelError

_LOG = logger(__name__)

PUBLISHED_AGAIN = faults.declare("start.published", "the newest commit's output was published again")
REBUILT = faults.declare("start.rebuilt", "the sources are positioned, no batch has begun")

_POLL_SECONDS = 0.2


def terms_of(options: RunOptions) -> ClaimTerms:
    """Return the permissions that these options give to a run when it claims its job."""
    lease = seconds(options.lease, "lease")
    return ClaimTerms(options.take_over, options.allow_dropped_state, options.drop_unpublished, lease)


class Driver:
    """One run of a job: it claims the job, runs its batches to the end, and starts again after failures."""

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
        self.job, self.options = job, options
        self._node, self._metrics, self._finishes, self._limits = node, metrics, finishes, limits
        self.run = run or JobRun(job, plan, terms_of(options))
        self._local = Path(local_folder(options.local))
        self._life = Lifecycle(self.run, options.on_phase)
        self._sources = RunSources(self.run, self._local)
        self._batches = BatchRunner(self.run, options, self._sources, self._life, self._local)
        self._interrupts = Interrupts(self._life)
        self._spark: SparkSession
        self._session = contextlib.ExitStack()
        """Ends the session of this run."""
        self._reporter: RunReporter
        self._plan = plan
        """The plan that tasks run."""

    @property
    def phase(self) -> str | None:
        """The phase of the start; None: the run has run its first batch, or waits for data."""
        return self._life.phase

    def progress(self) -> list[BatchProgress]:
        """Return the last committed batches. From any thread."""
        return list(self._batches.done)

    def stop(self) -> None:
        """Let the batch that is running finish and commit, then end the run. From any thread."""
        self._life.stop()

    def execute(self) -> RunResult:
        """Run to the end: of a bounded job's data, at a stop, or at an error that restarts do not cure."""
        faults.remember_group()
        self._reporter = RunReporter(
            self.run,
            node=self._node,
            history_seconds=seconds_or_none(self.options.history, "history"),
            metrics=self._metrics,
            local=str(self._local),
            unread=self._sources.unread,
        )
        failed = False
        try:
            with self._interrupts:
                self._start()
                self._run()
        except Stopped:
            pass  # It had not begun.
        except BaseException as error:
            failed = not self._was_stopped_with_spark(error)
            if failed:
                shown = self._readable(error) if isinstance(error, (*SPARK_ERRORS, OSError)) else error
                self._reporter.failed(shown, self._batches.failed)
                if shown is error:
                    raise
                raise shown from error
        finally:
            self._sources.close()
            self._batches.close()
            self._session.close()
            self.run.release(failed=failed)
            self._reporter.close()
            self._sources.remove_folders()
        return self._result()

    def _result(self) -> RunResult:
        done, stopped = self._batches.done, self._life.stopping
        head = getattr(self.run, "head", None) or self.run.checkpoints.latest()
        if head is None:
            return RunResult(self.job.name, 0, 0, done, stopped)
        at_end = head.epoch == MAX_TIME
        holding = tuple(node.name for node in self.job.graph.nodes if node.operator.holds_back and not at_end)
        epoch, unread = None if at_end else head.epoch, self.job.graph.unread("late")
        late = {name: number for name, number in self._batches.late.items() if number and name in unread}
        return RunResult(self.job.name, head.sequence, head.event_count, done, stopped, epoch, holding, late)

    # The start.

    def _start(self) -> None:
        """Claim the job, with a Spark that is ready to run its batches."""
        self._life.enter("checking")
        self.run.reserve()
        newest = self.run.checkpoints.head
        # A repeated bounded run reads nothing more. Output that a crash left unpublished is published in any case.
        if newest is not None and not self.options.bounded and not owes_output(newest):
            self.run.check_open()
        overridden = self.run.overridden(self.options.parallelism)
        self._warn([*self.run.notices, *filter(None, [overridden])])
        self.run.start_sinks()
        self._warn(self._program_warnings())
        newest = self.run.checkpoints.latest()
        sources = job_sources(self.run.plan)
        dropped = check_sources(newest, sources, self.job.aliases, self.options.allow_dropped_source)
        self._start_spark()
        self._warn(f"source {name!r}: its offsets are deleted" for name in dropped)
        if newest is not None and newest.batch is not None and GIVEN in recorded_kinds(newest).values():
            given = "a MemoryRun has made its state, of records that it was given"
            self._warn([f"{given}: the sources are read from their beginning"])
        self.run.check_sources = self._sources.check
        self._life.enter("claiming")
        self.run.begin()
        if operator_infos(self.run.plan) != operator_infos(self._plan):
            self._load_program()  # While the run waited to take over, the job's other run has committed state.
        self._reporter.started(self._sources.opened.schemas)

    def _warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            _LOG.warning("job %r: %s", self.job.name, warning)

    def _program_warnings(self) -> Iterator[str]:
        for node in self.run.plan.nodes:
            if isinstance(node.operator, SourceOperator):
                yield from node.operator.check_source(node.name, runs=True)
        yield from order_warnings(self.job.graph)
        # The final epoch of a bounded run is after all times, so it emits everything that waits for a clock.
        if not self.options.bounded:
            yield from clock_warnings(self.job.graph)

    def _start_spark(self) -> None:
        """Get a session, check that tasks can run where it runs them, send them their code, and open the sources."""
        self._life.enter("Spark")
        self._session.close()
        spark = self._spark = self.options.spark or session(self.options.master, self.options.conf)
        if self.options.spark is None:
            self._session.callback(release, spark, self.options.master)
        self._interrupts.take()
        check_reachable(self.job.name, self.job.state, master_of(spark), self.options.shared_state)
        self._life.enter("hosts")
        plan = self.run.plan
        ship(spark, plan)
        # On one machine, tasks of Spark would take the cores of the batches, and longer than a thread of the driver.
        self.run.merging.spread = is_local(master_of(spark))
        if not self.run.merging.spread:
            self.run.merging.merge = merge_on(spark, self.run.store)
        check_hosts(spark, plan)
        self.run.load_tables(spark)
        self._sources.open(spark)
        self._load_program()
        readers = readers_of(job_sources(plan))
        for source, reader in readers.items():
            _LOG.info("job %r: source %r: reader: %s", self.job.name, source, reader)
        if self.options.on_readers is not None:
            self.options.on_readers(readers)

    def _load_program(self) -> None:
        """Let tasks run the plan of the run."""
        self._plan = self.run.plan
        program = Program(self._plan, self._spark, self._sources.opened.schemas, self._limits)
        self._batches.start(self._spark, program, self._reporter)

    def stand_by(self) -> None:
        """Show that the run waits while another run has the job. `Stopped` if it is to stop."""
        # The sources are the other run's: some give a record to one reader only. They are opened again for the first batch.
        self._sources.close()
        self._life.enter(STANDBY)

    def warm(self) -> None:
        """Prepare the processes that run tasks for a batch that follows the newest commit."""
        self._batches.warm()

    def compute(self, layout: Layout) -> list[Report]:
        """Run the tasks of a batch that another run decided, and return their reports. `Stopped` if the run is to stop."""
        return self._batches.compute(layout)

    # The batches, and the restarts after failures.

    def _run(self) -> None:
        restarts = Restarts(self.options.restarts, seconds(self.options.backoff, "backoff"))
        ended = False
        while True:
            self._batches.failed = None
            try:
                if ended:
                    jvm.forget()
                    self._start_spark()
                    ended = False
                self._attempt()
                return
            except Stopped:
                return
            except Exception as error:
                # The batch may still be at its commit, which needs no JVM: what the newest commit is must be settled.
                self._batches.settle()
                # A signal to the whole process group, which asks the run to stop, ends the JVM too.
                ended = ended or jvm.ended(error, ending=self._life.stopping) is not None
                if ended and self._life.stopping:
                    return
                self._check_fenced(error)
                again = restarts.after(error, self.run.head.sequence, self._batches.failed, cause(error))
                if again is not None and self._life.stopping:
                    return  # The run is to stop: it leaves the retry to the next run.
                shown = self._readable(error)
                if shown is not error:
                    shown.__cause__ = error
                if again is None or (ended and not self._may_start_spark()):
                    raise shown from shown.__cause__
                self._reporter.failed(shown, self._batches.failed, restarted=True)
                self._warn([again.why])
                self._life.wait(again.seconds)

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
        return self._life.stopping and self._life.starting and jvm.ended(error, ending=True) is not None

    def _may_start_spark(self) -> bool:
        """Whether a new JVM can take the place of one that has ended: only of one that was started for this run."""
        return self.options.spark is None and is_own(self._spark)

    def _readable(self, error: Exception) -> Exception:
        batch, any_done = self._batches.failed, bool(self._batches.done)
        what = f"batch {batch}" if batch is not None else "the run" if any_done else "the start"
        return readable(error, f"{what} of job {self.job.name!r}")

    def _attempt(self) -> None:
        """Publish output that a crash may have left unpublished, and run batches to the end."""
        self._life.enter("rebuilding")
        self.run.recall()
        self.run.publish_left(self._spark)
        self.run.pin_tables()
        faults.point(PUBLISHED_AGAIN)
        self._sources.remove_old_folders()
        self._sources.position()
        faults.point(REBUILT)
        self._life.enter(FIRST_BATCH)
        loop = self._loop()
        try:
            self._await(loop)
        finally:
            self._life.enter(None)
            self._batches.cancel()
            loop.stop()
        if self.options.bounded and not self._life.stopping:
            self._batches.flush()
        elif self.options.until is not None and self._finishes:
            self._batches.finish()

    def _loop(self) -> BatchLoop:
        """Start the loop, which closes the readers at its end."""
        jobs = JobGroup(self._spark, f"{self.run.stream} {self.run.token}")

        def run_batch(starts: Positions, ends: Positions, asked: float) -> None:
            jobs.join()
            self._batches.run(starts, ends, asked)

        return BatchLoop(
            self._sources.take(),
            self.run.head.source_offsets,
            self.options.loop_trigger(ticks=self.run.plan.driven_by_time()),
            run_batch,
            jobs.cancel,
            # Such a thread has the properties of the caller's jobs, a scheduler pool for example.
            thread=threading.Thread if is_connect(self._spark) else InheritableThread,
            held_back=self._batches.hold_back,
        )

    def _await(self, loop: BatchLoop) -> None:
        """Wait until the loop ends, or is idle after the run was asked to stop."""
        while not loop.await_end(_POLL_SECONDS):
            self._reporter.turned(loop.is_waiting)
            if loop.is_waiting and self._batches.is_idle:
                self._life.enter(None)
            if self._life.is_ordered_to_stop() and self._batches.is_idle:
                return
