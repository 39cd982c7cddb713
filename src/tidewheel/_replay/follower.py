"""Run another program over the batches that a job has committed, on a fork of the job, and publish nothing.

A commit pins everything that its batch depended on. So another program can process the same batches from the same state:
the records between the same positions, with the same time, cells and reference tables. The follower's commits are in a
chain of their own, whose state begins as a fork of the job's. Nothing of the job changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import Kind, Manifest, OperatorInfo
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.fork import forked, shared_tables
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import SourceProgress, epoch_due, next_manifest, operator_infos
from tidewheel._engine.evolve import evolve, fitted
from tidewheel._engine.key_kinds import without_state
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.report import Report
from tidewheel._engine.stored_names import dropped, renamed
from tidewheel._engine.task_layout import Layout, repeated
from tidewheel._replay.recorded_input import RecordedBatch
from tidewheel._storage import Store
from tidewheel.errors import ConfigError

Compute = Callable[[Layout], Sequence[Report]]
"""Runs the tasks of a batch and returns their checked reports."""


@dataclass(frozen=True)
class Followed:
    """One batch of a follower."""

    sequence: int
    """The job's commit."""
    rows: Mapping[str, int]
    """The number of rows for each sink."""
    seconds: float


class Follower:
    """A program that processes the batches of a job after the job, in a chain of its own."""

    def __init__(
        self,
        job: ProgramJob,
        store: Store,
        stream: str,
        token: str,
        compute: Compute,
        *,
        plan: Plan | None = None,
        allow_dropped_state: Collection[str] | None = (),
    ) -> None:
        """Take the program, the store of its chain, and the chain's stream. Nothing is created yet.

        `plan` is the plan that `compute` runs, by default that of the program.
        `allow_dropped_state` names steps that the program lacks. None allows all, and another number of shards.
        """
        self.job, self.store, self.stream, self.token = job, store, stream, token
        self.checkpoints = StreamCheckpoints(store, stream)
        self.plan = plan or job.plan()
        self.head: Manifest
        """The follower's newest commit."""
        self.base: Manifest
        """The job's commit that the head follows."""
        self.former: dict[str, str]
        """For renamed steps, the names of their state in the job."""
        self._compute, self._allowed = compute, allow_dropped_state

    def begin(self, base: Manifest) -> None:
        """Fork the job's state at a commit, and adapt it to the program as a start does. Raise `StateError` if that fails."""
        steps = operator_infos(self.plan)
        self.former = renamed(base.operators, steps, self.job.aliases)
        allowed, n_shards = self._allowed, self.job.n_shards
        if allowed is None:
            allowed, n_shards = dropped(base.operators, steps, self.job.aliases), base.n_shards
        self.plan, _ = fitted(self.plan, base, n_shards, self.job.aliases, allow_dropped_state=allowed)
        fork = forked(base, self.stream, self.token, "")
        self.checkpoints.begin(fork, origin=f"{base.id.stream_id} {base.sequence}")
        assert self.checkpoints.head is not None
        self.head, self.base = self.checkpoints.head, base
        evolve(self)

    def follow(self, batch: RecordedBatch) -> Followed:
        """Process the job's next batch."""
        began, committed = time.perf_counter(), batch.committed
        same_clock = _times(self.head) == _times(self.base)
        spec, levels = self._spec_of(committed, same_clock), range(len(self.plan.levels))
        reports = self._compute(repeated(spec, levels, batch.splits, committed.layout, batch.source_key))
        progress = SourceProgress(committed.batch or 0, committed.source_offsets, committed.source_kinds)
        manifest = next_manifest(self.head, spec, self.plan, reports, committed.kind, progress)
        if same_clock and _times(manifest) == _times(committed):
            # The sources were silent for the job; the follower has not polled them.
            clock = ("frontiers", "epoch", "carried_epoch", "delivered_epoch")
            manifest = manifest.replace(**{name: getattr(committed, name) for name in clock})
        rows: dict[str, int] = {output.sink: output.rows for output in manifest.outputs}
        # Nothing is staged: there is nothing to publish.
        self.head = self.checkpoints.commit(manifest.replace(outputs=(), sinks={}))
        self.base = committed
        return Followed(committed.sequence, rows, time.perf_counter() - began)

    def skip(self, committed: Manifest) -> None:
        """Take note of a commit without a batch. Raise `ConfigError` if it changed the state."""
        if committed.kind not in ("claim", "stop", "table"):
            raise ConfigError(
                f"commit {committed.sequence} of job {self.job.name!r} is of the kind {committed.kind!r}: it changed the state "
                "without a batch, so a program cannot be compared across it. Begin after it: with fewer batches (--last), once "
                "the job has committed some. A job that does not run needs no switch: start the new program with `tidewheel run`"
            )
        self.base = committed

    def spec(self, parallelism: int, local: str) -> BatchSpec:
        """Return the spec of the follower's next commit."""
        head = self.head
        return BatchSpec(
            stream=self.stream,
            state=self.store.url,
            local=local,
            base=head.sequence,
            base_checksum=self.checkpoints.head_checksum or 0,
            sequence=head.sequence + 1,
            run=self.token,
            n_shards=head.n_shards,
            parallelism=parallelism,
            now=head.now,
            after=head.batch,
            last_epoch=head.delivered_epoch,
            behind=head.behind,
            cells=head.cells,
            tables=head.tables,
            key_kinds=without_state(head.key_kinds, head.operators),
            silent=True,
        )

    def commit(
        self,
        spec: BatchSpec,
        reports: Sequence[Report],
        kind: Kind,
        spark: Any,
        *,
        operators: Mapping[str, OperatorInfo],
        former: Mapping[str, str],
    ) -> bool:
        """Commit a change of all state, for `evolve`."""
        manifest = next_manifest(self.head, spec, self.plan, reports, kind, None, operators, former)
        self.head = self.checkpoints.commit(manifest)
        return True

    def _spec_of(self, committed: Manifest, same_clock: bool) -> BatchSpec:
        """Return the spec of the follower's batch for a batch of the job.

        As long as its clock agrees with that of the job, it gets the job's epochs, also those that silence caused.
        """
        own = self.spec(max(1, committed.parallelism), "")
        last, epoch = own.last_epoch, epoch_due(self.head)
        if same_clock or committed.kind == "flush":
            last = committed.delivered_epoch if committed.carried_epoch is None else self.base.delivered_epoch
            epoch = committed.carried_epoch
        tables = shared_tables(committed.id.stream_id, committed.tables)
        return msgspec.structs.replace(
            own, now=committed.now, cells=committed.cells, tables=tables, last_epoch=last, epoch=epoch
        )


def _times(state: Manifest) -> dict[str, int | None]:
    return {name: frontier.time for name, frontier in state.frontiers.items()}
