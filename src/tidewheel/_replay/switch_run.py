"""Replace the program of a running job by another one, without a gap and without a duplicate.

The new program follows the job on a fork and publishes nothing (`Follower`). When it has caught up and its differences are
accepted, it claims the job, which fences the old run between two commits. It then processes the batches that it still
lacks, and commits its state to the job's chain. From there on it is a run like any other: it publishes what the old run
may have left unpublished, and continues with the next batch.

Until the claim, nothing of the job changes, and the old run continues. Between the claim and the commit of the new state,
the chain has the old program's state: after a crash, either program continues from there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.names import folder, path
from tidewheel._checkpoint.pinning import hold_checkpoint
from tidewheel._checkpoint.pins import Pin
from tidewheel._checkpoint.tools.diff import TableDiff, diff
from tidewheel._checkpoint.unpublished import carried
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel._engine.claim import ClaimTerms, claim
from tidewheel._engine.claimed_job import check_no_move
from tidewheel._engine.commit import is_computed
from tidewheel._engine.control import order_stop
from tidewheel._engine.declaration import declare
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.take_over_run import TakeOverRun
from tidewheel._replay.follower import Compute, Follower
from tidewheel._replay.recorded_input import RecordedInput
from tidewheel._replay.shadow import batches_since
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel.errors import ConfigError, NotFound, StateError

_LOG = logger(__name__)

FORKED = faults.declare("switch.forked", "the new program's state is forked, no batch has been followed")
CAUGHT_UP = faults.declare("switch.caught-up", "the new program has caught up and is accepted, the job is not claimed")
COPIED = faults.declare("switch.copied", "the new program's files are in the job's folder, nothing refers to them")
SWITCHED = faults.declare("switch.committed", "the new program's state is in the job's chain")

_PIN_NS = 24 * 3600 * 10**9
"""How long the files of the fork's base are kept if the switch is killed."""
_ROUNDS = 3
"""After so many rounds at most two commits behind the job, the new program takes over: a busy job never waits for it."""


@dataclass(frozen=True)
class Switching:
    """The differences between the running program and the new one, over the followed batches."""

    sequence: int
    """The last commit that was compared."""
    batches: int
    state: tuple[TableDiff, ...]
    """By step: keys whose state differs; `before` is the job's."""
    counts: Mapping[str, tuple[int, int]]
    """By sink: the numbers of rows, of the job and of the new program, where they differ."""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.state or self.counts)


Accept = Callable[[Switching], bool]
"""Decides, with the differences, whether the new program takes over."""


class SwitchRun(TakeOverRun):
    """A run that takes over a running job with another program."""

    compute: Compute
    """Runs the tasks of a followed batch; set by the owner of the tasks."""

    def __init__(self, job: ProgramJob, plan: Plan, terms: ClaimTerms, last: int, accept: Accept) -> None:
        """Take the new program. It begins `last` batches before the newest commit."""
        super().__init__(job, plan, terms)
        self._last, self._accept = last, accept
        self._fork = f"{job.name}/switch-{self.token}"
        self._pin = f"switch-{self.token}"
        self._rows: dict[str, list[int]] = {}
        self._followed = 0

    def reserve(self) -> None:
        super().reserve()
        if self._found is None:
            raise NotFound(
                f"job {self.job.name!r} at {self.store.url} has no commit, so there is no program to replace: start it with "
                "`tidewheel run`"
            )

    def begin(self) -> None:
        check_no_move(self.store, self.job.name)
        follower = Follower(
            self.job,
            self.store,
            self._fork,
            self.token,
            self.compute,
            # As it continues the newest state: the base of the fork may have none.
            plan=self.plan,
            allow_dropped_state=self.terms.allow_dropped_state,
        )
        with self._forked(follower), RecordedInput(self.job, self.store) as recorded:
            self._catch_up(follower, recorded)
            found = self._compared(follower)
            if not self._accept(found):
                raise ConfigError(
                    f"the differences up to commit {found.sequence} of job {self.job.name!r} are not accepted: nothing is "
                    "changed, and the job continues with its program"
                )
            self._catch_up(follower, recorded)
            copied = self._copy(follower.head, set())
            self._catch_up(follower, recorded)
            faults.point(CAUGHT_UP)
            newest = self._newest()
            self.check_sources(newest)
            self.lease.acquire(self.job.name, take_over=True)
            self.head = claim(self.checkpoints, self.lease, self.token, self._newest(), self.terms.drop_unpublished)
            # It cannot commit any more. Without new data it would not find out.
            order_stop(self.cells.connection, newest.run)
            self._follow_to(follower, recorded, self.head.sequence)
            self._copy(follower.head, copied)
            faults.point(COPIED)
            self._found = self.head
            declare(self.store, self.job, self.token)
            self.head = self.checkpoints.commit(adopted(self.head, follower.head))
            faults.point(SWITCHED)
        self._took_over = True
        self.start_sinks()

    @contextlib.contextmanager
    def _forked(self, follower: Follower) -> Iterator[None]:
        """Fork the job's state, and remove the fork at the end: by then the job has copies of its files, or does without."""
        base, _ = batches_since(self.checkpoints, self._last)
        expires_at = time.time_ns() + _PIN_NS
        hold_checkpoint(self.checkpoints, base.sequence, self._pin, "fork", expires_at=expires_at, holder=self._fork)
        try:
            follower.begin(base)
            faults.point(FORKED)
            yield
        finally:
            follower.checkpoints.remove()
            for entry in self.store.list(folder(self._fork)):
                self.store.delete(entry.path)
            for name in (self._pin, f"{self._pin}-copies"):
                self.checkpoints.pins.drop(name)

    def _newest(self) -> Manifest:
        newest = self.checkpoints.latest()
        assert newest is not None, "the job has been forked"
        return newest

    def _catch_up(self, follower: Follower, recorded: RecordedInput) -> None:
        """Follow the job until no commit, or several times only few, are left."""
        close = 0
        while (left := self._newest().sequence - follower.base.sequence) > 0 and close < _ROUNDS:
            close = close + 1 if left <= 2 else 0
            self._follow_to(follower, recorded, follower.base.sequence + left)

    def _follow_to(self, follower: Follower, recorded: RecordedInput, sequence: int) -> None:
        for number in range(follower.base.sequence + 1, sequence + 1):
            committed = self.checkpoints.load(number)
            if committed.kind == "flush":
                raise StateError(f"job {self.job.name!r} has ended with commit {number}: there is no run to replace")
            if not is_computed(committed.kind):
                follower.skip(committed)
                continue
            rows = follower.follow(recorded.batch(follower.base, committed)).rows
            self._followed += 1
            written = {output.sink: output.rows for output in committed.outputs}
            for sink in written.keys() | rows.keys():
                found = self._rows.setdefault(sink, [0, 0])
                found[0] += written.get(sink, 0)
                found[1] += rows.get(sink, 0)
            _LOG.info("job %r: the new program has followed commit %s", self.job.name, number)

    def _compared(self, follower: Follower) -> Switching:
        state = tuple(diff(self.store, follower.base, follower.head, former=follower.former))
        counts = {sink: (was, now) for sink, (was, now) in sorted(self._rows.items()) if was != now}
        return Switching(follower.base.sequence, self._followed, state, counts)

    def _copy(self, head: Manifest, copied: set[str]) -> set[str]:
        """Copy the fork's own files into the job's folder, with a pin: no commit of the job refers to them yet."""
        own = {file.name for file in head.files() if not file.name.startswith("/")} - copied
        if own and not copied:
            # Files that are copied after the claim need no pin: the run that collected files is fenced.
            expires_at = time.time_ns() + _PIN_NS
            copies = f"{self._pin}-copies"
            self.checkpoints.pins.create(
                Pin(copies, "fork", head.sequence, tuple(sorted(own)), expires_at=expires_at, holder=self._fork)
            )
        for name in sorted(own):
            self.store.create(path(self.job.name, name), self.store.read(path(self._fork, name)))
        return copied | own


def adopted(head: Manifest, follower: Manifest) -> Manifest:
    """Return the commit that continues a job with the state of a follower that has processed the same batches. Pure.

    The unpublished output of the job, the positions of its sources and the files that they have seen do not change.
    """
    job = head.id.stream_id
    epochs = [epoch for epoch in (head.epoch, follower.epoch) if epoch is not None]
    kept = (
        "host",
        "batch",
        "event_count",
        "source_offsets",
        "source_kinds",
        "seen",
        "driver",
        "cells",
        "tables",
        "now",
        "flushed",
    )
    return follower.replace(
        id=CheckpointId(job, head.sequence + 1),
        kind="upgrade",
        run=head.run,
        parent=head.sequence,
        forked_from=head.forked_from,
        epoch=max(epochs, default=None),
        shards={shard: _own_parts(job, parts) for shard, parts in follower.shards.items()},
        **{name: getattr(head, name) for name in kept},
        **carried(head),
    )


def _own_parts(job: str, parts: ShardParts) -> ShardParts:
    """Return a shard's parts with the names that the job itself uses for its files and for the copies."""
    own = f"/{folder(job)}/"

    def part(ref: PartRef) -> PartRef:
        file = FileRef(ref.file.name.removeprefix(own), ref.file.size, ref.file.checksum)
        return msgspec.structs.replace(ref, file=file)

    return ShardParts(None if parts.snapshot is None else part(parts.snapshot), tuple(map(part, parts.deltas)))
