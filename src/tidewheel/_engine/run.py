"""A run: how it begins, its head, its commits and their publication, whatever carries the data.

The Spark driver and the in-memory runtime are two ways to get a batch's reports; everything that makes a batch count is
here. A run of a whole job claims it. A run in a fleet adopts shards, see `tidewheel._fleet.run`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tidewheel._checkpoint.garbage import collect
from tidewheel._checkpoint.manifest import CheckpointId, Kind, Manifest, OperatorInfo
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._checkpoint.transfer import JobPlace
from tidewheel._checkpoint.unpublished import owes_output, settled
from tidewheel._core import faults
from tidewheel._engine.asking import Asking
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.claim import ClaimTerms, check_alone, claim
from tidewheel._engine.commit import SourceProgress, epoch_due, is_computed, next_manifest, operator_infos
from tidewheel._engine.control import JobCells
from tidewheel._engine.declaration import declare
from tidewheel._engine.due_times import DueTimes
from tidewheel._engine.ended_job import check_open
from tidewheel._engine.evolve import evolve, fitted, notices
from tidewheel._engine.figures import Figures
from tidewheel._engine.idle import clock_is_owed, is_idle, moved_on
from tidewheel._engine.job_lease import JobLease
from tidewheel._engine.key_kinds import without_state
from tidewheel._engine.merging import Merging
from tidewheel._engine.move import settle
from tidewheel._engine.plan import Plan
from tidewheel._engine.plan_sinks import (
    check_newest,
    check_published,
    check_unpublished,
    check_void,
    dropped_output,
    publish_output,
    start_sinks,
    stop_sinks,
    take_back,
)
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.report import Report
from tidewheel._engine.steps import Steps
from tidewheel._engine.stored_names import dropped, idle_aliases
from tidewheel._state.compaction import merge_due
from tidewheel._storage import open_store
from tidewheel._time.now import batch_time
from tidewheel.errors import CorruptError, FencedError, NotFound, StateError, StorageError

_LOG = logging.getLogger(__name__)

COMMITTING = faults.declare("commit.before", "the manifest is made and not yet created")
SKIPPED = faults.declare("commit.skipped", "a batch that changed nothing has run and is not committed")
COMMITTED = faults.declare("commit.created", "the manifest is in the chain, its output not published")
PUBLISHED = faults.declare("publish.done", "all sinks have published")


class ChainRun(ABC):
    """A run that commits to one chain: the newest commit that it knows, and the way to the next.

    Whoever drives a run calls `reserve`, starts what takes time, calls `begin`, commits batches, and calls `release` in
    the end, whatever happened.
    """

    commits_idle_batches: ClassVar[bool] = True
    """Whether a batch that changes nothing is committed too."""

    def __init__(self, job: ProgramJob, plan: Plan, stream: str, token: str) -> None:
        """Take a job whose graph is checked, the stream of the chain, and the name under which the run commits."""
        self.job, self.plan, self.stream, self.token = job, plan, stream, token
        self.store = open_store(job.state)
        self.folder = self.store.at(folder(self.stream))
        self.checkpoints = StreamCheckpoints(self.store, self.stream)
        self.cells = JobCells(job.cells_url, plan.cells, JobPlace(job.name, job.state))
        self._to_release = contextlib.ExitStack()
        self._to_release.callback(self.cells.close)
        self.merging = Merging(self.store, self.checkpoints, token, lambda parts: merge_due(parts, job.snapshot_every))
        self._to_release.callback(self.merging.close)
        self._to_release.callback(stop_sinks, plan, stream)
        self.head: Manifest
        self.clock: Callable[[], int] = time.time_ns
        """What tells the time of a batch, in ns."""
        self.asking = Asking()
        self.figures: Figures | None = None
        """Who tells the figures of each commit; None: nobody wants them."""
        self.notices: list[str] = []
        """What becomes of the state of a program that has changed, for whoever starts the job."""
        self.held: frozenset[int] | None = None
        """The shards that the run has; None: all."""
        self._published = False
        """Whether this run has published and taken back all that the head owes."""
        self._clock_ahead = False
        """Whether silence has moved the clock in batches that are not committed."""
        self._failed = False
        self._due_times = DueTimes(job.n_shards)

    @abstractmethod
    def reserve(self) -> None:
        """Check all that `begin` checks, before anything is started that takes time, and raise what it would raise.

        From here on `plan` is the one to run: its operators go on with the state that there is.
        """

    @abstractmethod
    def begin(self) -> None:
        """Become the run that commits, with the state under the program's names and versions as the head.

        `HeldError`: another run has the job. `FencedError`: the run was overtaken. `StateError`: the program cannot
        continue the state.
        """

    def recall(self) -> None:
        """Look again which commit is the newest: after a failure this run may have made one without knowing."""
        newest = self.checkpoints.latest()
        if newest is None or newest.run != self.token:
            raise self._fenced(newest)
        if newest.sequence < getattr(self, "head", newest).sequence:
            # Going on would give numbers of this run's own commits to others: nobody could tell them apart.
            raise StateError(
                f"the state of job {self.job.name!r} at {self.store.url} was put back while this run was at work: its newest "
                f"checkpoint is {newest.sequence}, and this run has committed {self.head.sequence}. Start the job again"
            )
        self._published = self._published and newest.sequence == self.head.sequence
        self.head, self._clock_ahead = newest, False
        self.asking.interrupt()

    def enter(self, phase: str | None) -> None:  # noqa: B027  # not every kind of run is looked at by its lease
        """Tell those who look at the job from outside what the run's start is at; None: it has come past it."""

    def release(self, *, failed: bool = False) -> None:
        """Let go of all that the run holds; the job can be started again at once. `failed` is told to those who look at it."""
        self._failed = failed
        self._record_end()
        self._to_release.close()

    def spec(self, parallelism: int, local: str, *, epoch: int | None = None, asks: bool = True) -> BatchSpec:
        """Decide all that is the same for every task of the next batch.

        It carries the merged epoch of the commits so far, or the one given here, if that is new to the operators. `asks`
        tells whether it is a batch for which the sources were asked for data.
        """
        sequence = self.head.sequence + 1
        asked = self.asking.begin()
        now, last, epoch = (
            batch_time(self.clock(), self.head.now),
            self.head.delivered_epoch,
            epoch_due(self.head, epoch),
        )
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
            asked=asked if asks else None,
            last_epoch=last,
            behind=self.head.behind,
            epoch=epoch,
            shards=self.held,
            awake=self._due_times.awake(self.head.sequence, last if epoch is None else epoch, now, self.head.behind),
            cells=self.cells.pin(),
            key_kinds=without_state(self.head.key_kinds, self.head.operators),
            figures=self.figures is not None,
        )

    def overridden(self, parallelism: int | None) -> str | None:
        """Return what to tell whoever starts the job with a parallelism that an earlier rescale overrides; None if none does."""
        ordered = self.cells.parallelism()
        if parallelism is None or ordered is None or ordered == parallelism:
            return None
        return (
            f"it runs with {ordered} tasks, not {parallelism}: it was rescaled, which overrides parallelism. To change that: "
            f"tidewheel rescale {self.job.name} {parallelism}"
        )

    @property
    def owes_epoch(self) -> bool:
        """Whether operators act on epochs, and one is due that they have not got."""
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
        steps: Steps | None = None,
        former: Mapping[str, str] | None = None,
    ) -> bool:
        """Commit a batch and publish its output. When this returns, both are done; after an error, the chain tells.

        Return whether it is committed: a batch that changed nothing need not be. The run then goes on as if it were. After a
        crash, its number is given to another batch. `steps` has the time of the batch so far.
        """
        steps = steps or Steps()
        self._check_shards(reports)
        if is_computed(kind) and not self._published:
            self.publish(spark)  # What the manifest says of all commits before it.
        if merged := self.merging.adopt(self.head):
            reports = [*reports, Report(0, 0, merged=merged)]
        manifest = next_manifest(self.head, spec, self.plan, reports, kind, progress, operators, former)
        if kind == "batch" and self._need_not_commit(manifest):
            self._clock_ahead |= manifest.epoch != self.head.epoch
            self._due_times.take(self.head.sequence, self.head.shards.keys(), self.head.sequence, reports)
            self.head = moved_on(self.head, manifest)
            self.asking.end()
            faults.point(SKIPPED)
            return False
        faults.point(COMMITTING)
        committed = self.checkpoints.commit(manifest)
        steps.done("commit")
        faults.point(COMMITTED)
        if is_computed(kind):
            self._due_times.take(self.head.sequence, self.head.shards.keys(), manifest.sequence, reports)
        self.head, self._clock_ahead = committed, False
        self._published = self._published and not is_computed(kind)
        if is_computed(kind):
            self.publish(spark, steps)
            self.asking.end()
        faults.point(PUBLISHED)
        steps.done("publish")
        if self.figures is not None:
            self.figures.committed(manifest, spec, reports, steps)
        self.merging.committed()
        self.merging.changed(self.head, {shard for report in reports for shard in (*report.deltas, *report.merged)})
        if manifest.sequence % self.job.collect_every == 0:
            self.checkpoints.retain(self.job.keep, age=self.job.keep_age)
            self._collect()
        return True

    def _collect(self) -> None:
        """Remove what nobody needs. A kept checkpoint that is damaged is no reason to stop: all stays until it is let go."""
        try:
            collect(self.checkpoints, grace=self.job.grace)
        except (CorruptError, NotFound) as error:
            _LOG.warning("nothing is collected while what a kept checkpoint needs is not known: %s", error)

    def _need_not_commit(self, manifest: Manifest) -> bool:
        """Tell whether a batch changed nothing. `FencedError` if another run has committed: what a commit would find out."""
        inputs = self.plan.inputs()
        if self.commits_idle_batches or not is_idle(self.head, manifest, inputs):
            return False
        newest = self.checkpoints.latest()
        if newest is None or newest.sequence != self.head.sequence:
            raise self._fenced(newest)
        return not clock_is_owed(newest, manifest, inputs)

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
        """Let the sinks check, once `reserve` is done, that they can be written to and go on with what is there."""
        start_sinks(self.plan, self.stream)

    def publish(self, spark: Any, steps: Steps | None = None) -> None:
        """Make the newest commit's output visible, after taking back what a restore made void; doing it again does no harm."""
        for line in take_back(self.plan, self.head):
            _LOG.warning("job %r: %s", self.job.name, line)
            self.notices.append(line)
        publish_output(self.plan, self.folder, self.head, spark, steps)
        self._published = True

    def publish_left(self, spark: Any) -> None:
        """Publish what a run before this one may have left; let the sinks refuse to go on with it where they cannot."""
        self.publish(spark)
        if self.head.outputs:
            # It may be the first output that there is: at the start of the sinks there was none to go on with.
            check_published(self.plan, self.stream)

    def _record_end(self) -> None:
        """Commit that all output is published and taken back, if this run has done it, and how far silence has moved the clock.

        Batches need no record of their own: the next batch's commit is the proof that the last one's output is published.
        Only the last commit of a run has no successor. After a crash this record is missing, so the next run publishes
        that output again. Where this commit fails, the same happens, and nothing is lost: so its errors are no failure.
        """
        if not self._published or not (owes_output(self.head) or self._clock_ahead):
            return
        manifest = self.head.replace(
            id=CheckpointId(self.stream, self.head.sequence + 1),
            kind="stop",
            run=self.token,
            parent=self.head.sequence,
            **settled(self.head),
        )
        with contextlib.suppress(FencedError, StateError, StorageError):
            self.head = self.checkpoints.commit(manifest)


class JobRun(ChainRun):
    """A run of a whole job: it takes the job's lease, and claims the job with a record in its chain.

    Nobody but its successor reads its chain, so what changes nothing is not committed. In a fleet, other nodes wait for what a
    node commits.
    """

    commits_idle_batches = False

    def __init__(self, job: ProgramJob, plan: Plan, terms: ClaimTerms | None = None) -> None:
        """Take a job whose graph is checked. Nothing is claimed yet."""
        super().__init__(job, plan, job.name, secrets.token_hex(6))
        self._declared = plan
        self.terms = terms or ClaimTerms()
        self.lease = JobLease(self.cells.connection, self.token)
        self._found: Manifest | None = None
        """The newest commit before this run's own."""
        self._to_release.callback(lambda: self.lease.release(failed=self._failed))

    def enter(self, phase: str | None) -> None:
        self.lease.enter(phase)

    def start_sinks(self) -> None:
        super().start_sinks()
        if self._found is not None:
            check_newest(self.plan, self._found, self.store.url)

    def reserve(self) -> None:
        self.lease.acquire(self.job.name, self.terms.take_over)
        newest = self._found = self.checkpoints.latest()
        if newest is None:
            # So that others find the lease of a first start: by it they see that the job is starting.
            declare(self.store, self.job)
        if newest is not None:
            check_alone(newest)
            sizes = self._dropped_sizes(newest)
            self.plan, converted = fitted(
                self._declared,
                newest,
                self.job.n_shards,
                self.job.aliases,
                allow_dropped_state=self.terms.allow_dropped_state,
                sizes=sizes,
            )
            told = {name: conversion.said for name, conversion in converted.items()}
            self.notices = [f"operator {name!r}: {said}" for name, said in told.items() if said]
            self.notices += notices(self.plan, newest.operators, self.job.aliases)
            self.notices += [f"operator {name!r}: its state is removed, {held}" for name, held in sizes.items()]
            idle = idle_aliases(newest.operators, operator_infos(self.plan), self.job.aliases)
            self.notices += [f"{line} names nothing that is stored: the step begins without state" for line in idle]
            check_void(self.plan, newest, self.terms.drop_unpublished)
            check_unpublished(self.plan, newest, self.terms.drop_unpublished)
            self.notices += dropped_output(newest, self.terms.drop_unpublished)

    def begin(self) -> None:
        self.reserve()
        first = Manifest(CheckpointId(self.job.name, 1), n_shards=self.job.n_shards, lineage=secrets.token_hex(4))
        claimed = claim(self.checkpoints, self.lease, self.token, first, self.terms.drop_unpublished)
        place = JobPlace(self.job.name, self.job.state, self.job.cells_at)
        self.head = settle(self.checkpoints, self.store, claimed, self.token, (place,))
        declare(self.store, self.job)
        evolve(self)

    def _dropped_sizes(self, newest: Manifest) -> dict[str, str]:
        """Return how much the operators hold that the program lacks, for people."""
        reader = StateReader(self.store, newest)
        sizes = {}
        for name in dropped(newest.operators, operator_infos(self.plan), self.job.aliases):
            keys, exact = reader.count(name)
            sizes[name] = f"{'' if exact else 'up to '}{keys:,} {'key' if keys == 1 else 'keys'}"
        return sizes
