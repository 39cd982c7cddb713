"""Run the batch of a commit again, from the same state and input, and compare the results.

A commit pins everything that its batch depended on: the state before it, the positions of its sources, its time, its
epoch, the values of its cells and the versions of its reference tables. The second run has as many tasks, which
read the same parts. It writes to a scratch store and publishes nothing, so the job does not change.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import CheckpointId, LayoutKind, Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.diff import TableDiff, diff
from tidewheel._checkpoint.tools.savepoint import job_at
from tidewheel._checkpoint.tools.state_reader import held
from tidewheel._core.user_code import stopping_at_errors
from tidewheel._engine.commit import epoch_due, is_computed
from tidewheel._engine.control import JobCells
from tidewheel._engine.declaration import check_program
from tidewheel._engine.local_tasks import MakeStep
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.replay_runtime import Runtime
from tidewheel._replay.causes import Cause, Emitted, causes_of
from tidewheel._replay.key_debugging import KeyDebugging
from tidewheel._replay.key_trace import KeyTrace, TracedMessage
from tidewheel._replay.other_process import OtherProcess
from tidewheel._replay.recorded_input import RecordedBatch, RecordedInput
from tidewheel._replay.recording_sinks import Rows, comparable
from tidewheel._replay.scratch_run import ScratchRun, scratch_run
from tidewheel._storage import Store
from tidewheel._time.now import batch_time
from tidewheel.errors import ConfigError, NotFound

_TOKEN = "replay"
"""The token of the run in names of scratch files."""


@dataclass(frozen=True)
class Replayed:
    """The differences between a committed batch and a second run of it. The two are equal if both are empty."""

    sequence: int
    rows: Rows
    """The output of the second run by sink, in no particular order."""
    state: tuple[TableDiff, ...]
    """By step: keys whose state differs; `before` is the committed state, `after` that of the second run."""
    output: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By sink: the numbers of rows, committed and of the second run, where they differ."""
    unstable: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    """By sink: some rows that only one of two second runs wrote: the program is not deterministic."""
    causes: Mapping[str, Cause] = field(default_factory=dict)
    """By sink and step that differ: the first step whose messages differ between two second runs. Only for the program
    that made the commit, and only if two runs of this process differ."""

    @property
    def same(self) -> bool:
        """Whether the second run gave the committed results."""
        return not (self.state or self.output or self.unstable)


def replay(
    job: ProgramJob,
    store: Store,
    sequence: int,
    *,
    changed: bool = False,
    samples: int = 5,
    debug: bool = False,
    key: Any = None,
    runtime: Runtime | None = None,
    elsewhere: bool = False,
) -> Replayed:
    """Run the batch of a commit twice and compare state and output, by default in this process.

    With `elsewhere`, the second of the two runs is in another process, in which sets of texts have another order.

    Another program than the one that made the commit is refused, unless it is `changed`. With `debug`, the debugger
    starts at the first error of a user's function, and with `key` too in each function that gets a message of that key.
    Raise `NotFound` if the commit or the one before it is not kept, `ConfigError` if the program or its sources do not
    allow a second run, and `StateError` if a changed program cannot continue the state.
    """
    with contextlib.ExitStack() as cleanup:
        batch = _batch(job, store, sequence, cleanup.enter_context(RecordedInput(job, store)), changed=changed)
        if debug:
            cleanup.enter_context(stopping_at_errors())
        make_step = KeyDebugging(key).make_step if debug and key is not None else None
        again = cleanup.enter_context(_ran(job, store, batch, runtime, make_step))
        state = diff(again.store, batch.committed, again.head, samples, again.follower.former)
        with _ran(job, store, batch, OtherProcess() if elsewhere else runtime) as third:
            unstable = _unstable(again.rows, third.rows, samples)
        steps = () if changed else (each.table.partition("/")[0] for each in state)
        names = dict.fromkeys([*steps, *unstable])
        causes = _causes(job, store, batch, names, samples, elsewhere=elsewhere)
    counted = sorted(again.counted(batch.committed).items())
    different = {name: (was, now) for name, (was, now) in counted if was != now}
    return Replayed(sequence, again.rows, tuple(state), different, unstable, causes)


def run_next(job: ProgramJob, store: Store, *, debug: bool = False, key: Any = None) -> Replayed:
    """Run the batch after the newest commit, which may have failed and was never committed, and publish nothing.

    It begins at the same record as the batch that failed; data that has arrived since may be in it too. Raise the error
    of a user's function, after the debugger if `debug`, and `ConfigError` if there is no data.
    """
    checkpoints = job_at(store, job.name)
    base = checkpoints.latest()
    assert base is not None, "an existing job has a commit"
    with contextlib.ExitStack() as cleanup:
        splits = cleanup.enter_context(RecordedInput(job, store)).next_splits(base)
        if not splits:
            raise ConfigError(f"job {job.name!r} has no data after commit {base.sequence}: there is no batch to run")
        cells = JobCells(job.cells_url, job.plan().cells, JobPlace(job.name, job.state))
        cleanup.callback(cells.close)
        cells.refresh()
        batch = base.replace(
            id=CheckpointId(job.name, base.sequence + 1),
            kind="batch",
            now=batch_time(time.time_ns(), base.now),
            carried_epoch=epoch_due(base),
            cells=cells.pin(),
            layout="one",
        )
        if debug:
            cleanup.enter_context(stopping_at_errors())
        make_step = KeyDebugging(key).make_step if debug and key is not None else None
        next_batch = RecordedBatch(base, batch, splits)
        ran = cleanup.enter_context(scratch_run(job, store, base, _TOKEN, make_step=make_step))
        ran.follow(next_batch)
        return Replayed(batch.sequence, ran.rows, ())


def messages_of_key(
    job: ProgramJob, store: Store, sequence: int, step: str, key: Any, *, changed: bool = False
) -> list[TracedMessage]:
    """Run the batch of a commit again; return the messages of a key that reached a step or were dropped, in order."""
    trace = KeyTrace(job.plan(), step, key)
    with RecordedInput(job, store) as recorded:
        # The trace follows messages through one task for each level.
        batch = _batch(job, store, sequence, recorded, changed=changed, layout="one")
        with _ran(job, store, batch, make_step=trace.make_step):
            return trace.messages


@dataclass(frozen=True)
class WrittenRow:
    """A row of output, and the commit that wrote it."""

    sequence: int
    at: int
    """When the commit was made, in ns since 1970."""
    row: dict[str, Any]


def rows_written(
    job: ProgramJob, store: Store, sink: str, where: Callable[[dict[str, Any]], bool], *, changed: bool = False
) -> Iterator[WrittenRow]:
    """Run all kept batches again, oldest first; yield the rows of a sink for which `where` is true."""
    if sink not in {node.name for node in job.plan().nodes if node.operator.kind == "sink"}:
        raise NotFound(f"the program has no sink {sink!r}")
    with held_batches(store, StreamCheckpoints(store, job.name)) as sequences, RecordedInput(job, store) as recorded:
        for sequence in sequences:
            batch = _batch(job, store, sequence, recorded, changed=changed)
            with _ran(job, store, batch) as again:
                for row in again.rows.get(sink, ()):
                    if where(row):
                        yield WrittenRow(sequence, batch.committed.id.created_at, row)


@contextlib.contextmanager
def held_batches(store: Store, checkpoints: StreamCheckpoints) -> Iterator[list[int]]:
    """Provide the kept commits whose batch can run again. They stay until the block ends, or for at most an hour."""
    with contextlib.ExitStack() as cleanup:
        while True:
            kept = checkpoints.list()
            there = {manifest.sequence for manifest in kept}
            found = [each for each in kept if is_computed(each.kind) and each.parent in there]
            try:
                if found:
                    cleanup.enter_context(held(store, checkpoints, found[0].parent))
                break
            except NotFound:
                # The running job has dropped it since the listing.
                if found[0].parent in checkpoints.sequences():
                    raise
        yield [each.sequence for each in found]


def _batch(
    job: ProgramJob,
    store: Store,
    sequence: int,
    recorded: RecordedInput,
    *,
    changed: bool,
    layout: LayoutKind | None = None,
) -> RecordedBatch:
    """Return the batch of a commit with its input; `layout` replaces that of the commit. Refuse another program."""
    base, committed = _kept(StreamCheckpoints(store, job.name), sequence)
    if not changed:
        check_program(store, job.plan(), committed)
    return recorded.batch(base, committed if layout is None else committed.replace(layout=layout))


def _kept(checkpoints: StreamCheckpoints, sequence: int) -> tuple[Manifest, Manifest]:
    """Return the commit before a batch, and the batch's own."""
    job, there = checkpoints.stream_id, checkpoints.sequences()
    if sequence not in there:
        kept = f"{min(there)} to {max(there)}" if there else "none"
        raise NotFound(f"commit {sequence} of job {job!r} is not kept; kept are {kept}. Job(keep=…) keeps more of them")
    committed = checkpoints.load(sequence)
    if not is_computed(committed.kind):
        batches = [str(manifest.sequence) for manifest in checkpoints.list() if is_computed(manifest.kind)]
        raise ConfigError(
            f"commit {sequence} of job {job!r} is of the kind {committed.kind!r} and has no batch; commits with a batch: "
            f"{', '.join(batches[-10:]) or 'none'}"
        )
    if committed.parent is None or committed.parent not in there:
        raise NotFound(
            f"commit {sequence} of job {job!r} was computed from the state of commit {committed.parent}, which is not kept. The "
            f"oldest kept commit is {min(there)}: replay one of the commits after it"
        )
    return checkpoints.load(committed.parent), committed


@contextlib.contextmanager
def _ran(
    job: ProgramJob,
    store: Store,
    batch: RecordedBatch,
    runtime: Runtime | None = None,
    make_step: MakeStep | None = None,
) -> Iterator[ScratchRun]:
    """Run a committed batch once and provide its results."""
    run = scratch_run(job, store, batch.base, _TOKEN, runtime=runtime, make_step=make_step, allow_dropped_state=None)
    with run as ran:
        ran.follow(batch)
        yield ran


def _causes(
    job: ProgramJob, store: Store, batch: RecordedBatch, names: Collection[str], samples: int, *, elsewhere: bool
) -> dict[str, Cause]:
    """Return the steps that make the state and the rows of these steps and sinks differ between two runs."""

    def here(kept: frozenset[int]) -> Emitted:
        emitted = Emitted(kept)
        with _ran(job, store, batch, make_step=emitted.make_step):
            return emitted

    def there(kept: frozenset[int]) -> Emitted:
        emitted = Emitted(kept)
        with _ran(job, store, batch, OtherProcess(emitted)):
            return emitted

    return causes_of(job.plan(), names, here, there if elsewhere else here, samples) if names else {}


def _unstable(rows: Rows, again: Rows, samples: int) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return some rows of each sink that only one of two runs wrote."""
    found: dict[str, tuple[dict[str, Any], ...]] = {}
    for sink in sorted(rows.keys() | again.keys()):
        one, other = (Counter(map(comparable, side.get(sink, ()))) for side in (rows, again))
        only = (one - other) + (other - one)
        if only:
            found[sink] = tuple(row for row in (*rows.get(sink, ()), *again.get(sink, ())) if comparable(row) in only)[
                :samples
            ]
    return found
