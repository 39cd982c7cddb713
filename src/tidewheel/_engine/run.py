"""A run: its start, its newest commit, its commits and their publication, wherever the tasks run.

The Spark driver and the in-memory runtime only get the reports of a batch; all commits are made here. A run of a whole job
claims the job (`job_run`). A run in a fleet adopts shards (`tidewheel.fleet._nodes.run`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from tidewheel._checkpoint.garbage import collect
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import CheckpointId, Kind, Manifest, OperatorInfo
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.unpublished import carried, owes_output, settled
from tidewheel._core import faults
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import SourceProgress, added, epoch_due, is_computed, next_manifest
from tidewheel._engine.control import JobCells
from tidewheel._engine.due_times import DueTimes
from tidewheel._engine.ended_job import check_open
from tidewheel._engine.figures import Figures
from tidewheel._engine.idle import clock_must_be_committed, is_idle, uncommitted_head
from tidewheel._engine.job_tables import JobTables
from tidewheel._engine.key_kinds import without_state
from tidewheel._engine.merging import Merging
from tidewheel._engine.phases import Phases
from tidewheel._engine.plan import Plan
from tidewheel._engine.plan_sinks import (
    check_output,
    check_published,
    known_to_sinks,
    publish_output,
    start_sinks,
    stop_sinks,
    take_back,
)
from tidewheel._engine.poll_clock import PollClock
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.report import Report
from tidewheel._state.compaction import merge_due
from tidewheel._storage import open_store
from tidewheel._time.alignment import held_back, source_clocks
from tidewheel._time.now import batch_time
from tidewheel.errors import CorruptError, FencedError, NotFound, StateError, StorageError

_LOG = logging.getLogger(__name__)

PINNING = faults.declare("tables.stored", "new versions of tables are stored and not yet pinned")
PINNED = faults.declare("tables.pinned", "new versions of tables are pinned, no batch has used them")
COMMITTING = faults.declare("commit.before", "the manifest is made and not yet created")
SKIPPED = faults.declare("commit.skipped", "a batch that changed nothing has run and is not committed")
COMMITTED = faults.declare("commit.created", "the manifest is in the chain, its output not published")
PUBLISHED = faults.declare("publish.done", "all sinks have published")


class ChainRun(ABC):
    """A run that commits to one chain. `head` is its newest commit.

    A caller calls `reserve`, starts what takes time, calls `begin`, commits batches, and always calls `release` at the end.
    """

    commits_idle_batches: ClassVar[bool] = True
    """Whether a batch that changes nothing is committed too."""

    def __init__(self, job: ProgramJob, plan: Plan, stream: str, token: str) -> None:
        """Take a job whose graph is checked, the stream of the chain, and the token under which the run commits."""
        self.job, self.plan, self.stream, self.token = job, plan, stream, token
        self.store = open_store(job.state)
        self.folder = self.store.at(folder(self.stream))
        self.checkpoints = StreamCheckpoints(self.store, self.stream)
        self.cells = JobCells(job.cells_url, plan.cells, JobPlace(job.name, job.state))
        self.tables = JobTables(plan, self.store, stream, token, job.n_shards)
        self._to_release = contextlib.ExitStack()
        self._to_release.callback(self.cells.close)
        self.merging = Merging(self.store, self.checkpoints, token, lambda parts: merge_due(parts, job.snapshot_every))
        self._to_release.callback(self.merging.close)
        self._to_release.callback(stop_sinks, plan, stream)
        self.head: Manifest
        self.clock: Callable[[], int] = time.time_ns
        """Returns the time of a batch, in ns."""
        self.poll_clock = PollClock()
        self.figures: Figures | None = None
        """Reports the figures of each commit; None: figures are not wanted."""
        self.notices: list[str] = []
        """Messages for the user about state that changes because the program has changed."""
        self.check_sources: Callable[[Manifest], None] = lambda newest: None
        """Raises an error if the sources cannot continue a commit. Called before the first commit of a run of a whole job."""
        self.held: frozenset[int] | None = None
        """The shards that the run has; None: all."""
        self._published = False
        """Whether this run has published and retracted everything that the head requires."""
        self._clock_ahead = False
        """Whether idle inputs have advanced the clock in batches that are not committed."""
        self._failed = False
        self._published_before: dict[str, int] = {}
        """The newest output of each sink before the claim of this run, if a restore has made output void."""
        self._due_times = DueTimes(job.n_shards)

    @abstractmethod
    def reserve(self) -> None:
        """Check everything that `begin` checks and raise the same errors, before anything slow is started.

        Afterwards `plan` is the plan to run: its steps continue the stored state.
        """

    @abstractmethod
    def begin(self) -> None:
        """Become the run that commits. Afterwards the head has the state under the program's names and versions.

        `HeldError`: another run has the job. `FencedError`: the run was overtaken. `StateError`: the program cannot
        continue the state.
        """

    def recall(self) -> None:
        """Read the newest commit again: before a failure this run may have made one without knowing it."""
        newest = self.checkpoints.latest()
        if newest is None or newest.run != self.token:
            raise self._fenced(newest)
        if newest.sequence < getattr(self, "head", newest).sequence:
            # New commits would reuse the numbers of this run's own commits.
            raise StateError(
                f"the state of job {self.job.name!r} at {self.store.url} was restored from a backup while this run was running; "
                f"its newest checkpoint is {newest.sequence}, this run has committed {self.head.sequence}. Start the job again"
            )
        self._published = self._published and newest.sequence == self.head.sequence
        self.head, self._clock_ahead = newest, False
        self.poll_clock.interrupt()

    def stop_ordered(self) -> bool:
        """Return whether the run was ordered to stop."""
        return self.cells.stop_ordered(self.token)

    def enter(self, phase: str | None) -> None:  # noqa: B027  # not every kind of run is looked at by its lease
        """Show the phase of the run's start in the job's status; None: the start is over."""

    def release(self, *, failed: bool = False) -> None:
        """Release everything that the run holds, so that the job can be started again. `failed` is shown in the job's status."""
        self._failed = failed
        self._record_end()
        self._to_release.close()

    def held_back(self, waiting: Collection[str]) -> frozenset[str]:
        """Return which sources with new data are not read for the next batch: they are too far ahead in event time."""
        if self.job.align is None:
            return frozenset()
        clocks = source_clocks(self.head.frontiers, self.plan.inputs(), self.plan.clocked())
        return held_back(clocks, waiting, self.job.align)

    def spec(
        self,
        parallelism: int,
        local: str,
        *,
        epoch: int | None = None,
        asks: bool = True,
        held: Collection[str] = (),
    ) -> BatchSpec:
        """Decide all that is the same for every task of the next batch.

        It carries the merged epoch of the commits so far, or the one given here, if that is new to the steps. `asks`
        tells whether it is a batch for which the sources were asked for data, `held` which sources are held back.
        """
        sequence = self.head.sequence + 1
        asked = self.poll_clock.begin()
        now, last = batch_time(self.clock(), self.head.now), self.head.delivered_epoch
        epoch = epoch_due(self.head, epoch)
        return BatchSpec(
            stream=self.stream,
            state=self.store.url,
            local=local,
            base=self.head.sequence,
            base_checksum=self.checkpoints.head_checksum or 0,
            sequence=sequence,
            run=self.token,
            n_shards=self.job.n_shards,
            parallelism=max(1, min(self.cells.parallelism() or parallelism, self.job.n_shards)),
            now=now,
            after=self.head.batch,
            asked=asked if asks else None,
            held=frozenset(name for source, names in self.plan.clocked().items() if source in held for name in names),
            last_epoch=last,
            behind=self.head.behind,
            epoch=epoch,
            shards=self.held,
            awake=self._due_times.awake(self.head.sequence, last if epoch is None else epoch, now, self.head.behind),
            cells=self.cells.pin(),
            tables=self.head.tables,
            sinks=known_to_sinks(self.plan),
            key_kinds=without_state(self.head.key_kinds, self.head.operators),
            figures=self.figures is not None,
        )

    def load_tables(self, spark: Any) -> None:
        """Load the reference tables that are due, before the run begins: nothing is committed if one cannot be loaded."""
        self.tables.refresh(self.checkpoints.latest(), spark, self.clock())

    def pin_tables(self) -> None:
        """Commit the versions of the reference tables that were loaded: the batches after this commit use them.

        A batch uses the versions of the commit before it. So a batch that is tried again uses the same.
        """
        pins = self.tables.pins(self.head)
        if pins == self.head.tables:
            return
        manifest = self._record("table", tables=pins, **carried(self.head))
        faults.point(PINNING)
        committed = self.checkpoints.commit(manifest)
        faults.point(PINNED)
        self._take_due_times(manifest.sequence)
        self.head, self._clock_ahead = committed, False
        self.tables.committed(self.head)

    def refresh_tables(self, spark: Any) -> None:
        """Load the reference tables that are due, before a batch, and commit new versions."""
        self.tables.refresh(self.head, spark, self.clock())
        self.pin_tables()

    def overridden(self, parallelism: int | str | None) -> str | None:
        """Return a message if an earlier rescale overrides the given parallelism; otherwise None."""
        ordered = self.cells.parallelism()
        if parallelism is None or ordered is None or ordered == parallelism:
            return None
        return (
            f"it runs with {ordered} tasks, not {parallelism}: it was rescaled, which overrides parallelism. To change that: "
            f"tidewheel rescale {self.job.name} {parallelism}"
        )

    @property
    def owes_epoch(self) -> bool:
        """Whether steps act on epochs, and one is due that they have not got."""
        return self.plan.driven_by_time() and epoch_due(self.head) is not None

    @property
    def flushed(self) -> int | None:
        """The sequence of the final flush if a bounded run has ended the job, else None."""
        return self.head.flushed

    def check_open(self) -> None:
        """Refuse more data once a bounded run has ended the job."""
        check_open(self.checkpoints, self.store.url)

    def commit(
        self,
        spec: BatchSpec,
        reports: Sequence[Report],
        kind: Kind,
        spark: Any,
        progress: SourceProgress | None = None,
        operators: Mapping[str, OperatorInfo] | None = None,
        phases: Phases | None = None,
        former: Mapping[str, str] | None = None,
    ) -> bool:
        """Commit a batch and publish its output. After an error, only the chain shows whether the commit was made.

        Return whether it is committed: a batch that changed nothing need not be. The run then goes on as if it were. After a
        crash, its number is given to another batch. `phases` has the time of the batch so far.
        """
        phases = phases or Phases()
        self._check_shards(reports)
        if is_computed(kind) and not self._published:
            self.publish(spark)  # The manifest says that the output of all earlier commits is published.
        if merged := self.merging.adopt(self.head):
            reports = [*reports, Report(0, 0, merged=merged)]
        manifest = next_manifest(self.head, spec, self.plan, reports, kind, progress, operators, former)
        if kind == "batch" and self._need_not_commit(manifest):
            self._clock_ahead |= manifest.epoch != self.head.epoch
            self._take_due_times(self.head.sequence, reports)
            self.head = uncommitted_head(self.head, manifest)
            self.poll_clock.end()
            faults.point(SKIPPED)
            return False
        if is_computed(kind):
            check_output(self.plan, self.folder, manifest, spark)
        faults.point(COMMITTING)
        committed = self.checkpoints.commit(manifest)
        phases.done("commit")
        faults.point(COMMITTED)
        if is_computed(kind):
            self._take_due_times(manifest.sequence, reports)
        self.head, self._clock_ahead = committed, False
        self._published = self._published and not is_computed(kind)
        if is_computed(kind):
            self.publish(spark, phases)
            self.poll_clock.end()
        faults.point(PUBLISHED)
        phases.done("publish")
        self._warn(reports)
        if self.figures is not None:
            self.figures.committed(manifest, spec, reports, phases)
        self.merging.committed()
        self.merging.changed(self.head, {shard for report in reports for shard in (*report.deltas, *report.merged)})
        if manifest.sequence % self.job.collect_every == 0:
            self.checkpoints.retain(self.job.keep, age=self.job.keep_age)
            self._collect()
        return True

    def _take_due_times(self, sequence: int, reports: Sequence[Report] = ()) -> None:
        self._due_times.take(self.head.sequence, self.head.shards.keys(), sequence, reports)

    def _warn(self, reports: Sequence[Report]) -> None:
        """Log the counts that steps want to be warned of."""
        counts = added({}, (report.counts for report in reports))
        for node in self.plan.nodes:
            if (label := node.operator.warns_of) and (number := counts.get(f"{node.name}/{label}")):
                _LOG.warning(
                    "job %r: step %r: %d records of commit %d do not meet the expectation",
                    self.job.name,
                    node.name,
                    number,
                    self.head.sequence,
                )

    def _collect(self) -> None:
        """Collect garbage. If a kept checkpoint is damaged, the run continues and collects nothing until it is removed."""
        try:
            collect(self.checkpoints, grace=self.job.grace)
        except (CorruptError, NotFound) as error:
            _LOG.warning("no files are collected while the files that a kept checkpoint needs are unknown: %s", error)

    def _need_not_commit(self, manifest: Manifest) -> bool:
        """Return whether a batch changed nothing. Raise `FencedError` if another run has committed, as a commit would."""
        inputs = self.plan.inputs()
        if self.commits_idle_batches or not is_idle(self.head, manifest, inputs):
            return False
        return not clock_must_be_committed(self._check_not_fenced(), manifest, inputs)

    def _check_not_fenced(self) -> Manifest:
        """Return the newest commit. Raise a `FencedError` if another run has made it."""
        newest = self.checkpoints.latest()
        if newest is None or newest.sequence != self.head.sequence:
            raise self._fenced(newest)
        return newest

    def _fenced(self, newest: Manifest | None) -> FencedError:
        return FencedError(
            f"job {self.job.name!r} was taken over by run {newest.run if newest else '?'}; this run must stop"
        )

    def _check_shards(self, reports: Sequence[Report]) -> None:
        """Refuse a batch that changed a shard of another run."""
        if self.held is None:
            return
        strange = sorted({shard for report in reports for shard in report.deltas} - self.held)
        if strange:
            raise StateError(
                f"job {self.job.name!r} changed the state of shard {strange[0]}, and this node's inbox has none of its events: "
                "in a fleet, events are routed by the key that the program's key_by takes. Route by that key, or key by the "
                "routed one"
            )

    def start_sinks(self) -> None:
        """Let the sinks check, after `reserve`, that they can write and can continue the existing output."""
        start_sinks(self.plan, self.stream)

    def publish(self, spark: Any, phases: Phases | None = None) -> None:
        """Publish the newest commit's output, after retracting output that a restore made void. Can be repeated."""
        void = self.head.retract
        if void is not None and max(self._published_before.values(), default=0) >= void.before:
            # State from a backup: the void output has numbers that a run which has taken over would use.
            self._check_not_fenced()
        for line in take_back(self.plan, self.head, self._published_before):
            _LOG.warning("job %r: %s", self.job.name, line)
            self.notices.append(line)
        publish_output(self.plan, self.folder, self.head, spark, phases)
        self._published = True

    def publish_left(self, spark: Any) -> None:
        """Publish output that an earlier run may have left unpublished, then let the sinks check their output."""
        self.publish(spark)
        if self.head.outputs:
            # It may be the first output that there is: at the start of the sinks there was none to go on with.
            check_published(self.plan, self.stream)

    def _record_end(self) -> None:
        """Commit that this run has published and retracted all output, and how far silence has moved the clock.

        Batches need no record of their own: the next batch's commit is the proof that the last one's output is published.
        Only the last commit of a run has no successor. After a crash this record is missing, so the next run publishes
        that output again. The same happens if this commit fails: nothing is lost, so its errors are ignored.
        """
        if not self._published or not (owes_output(self.head) or self._clock_ahead):
            return
        with contextlib.suppress(FencedError, StateError, StorageError):
            self.head = self.checkpoints.commit(self._record("stop", **settled(self.head)))

    def _record(self, kind: Kind, **changes: Any) -> Manifest:
        """Return the next commit of this run, which has the head's state."""
        number = CheckpointId(self.stream, self.head.sequence + 1)
        return self.head.replace(id=number, kind=kind, run=self.token, parent=self.head.sequence, **changes)
