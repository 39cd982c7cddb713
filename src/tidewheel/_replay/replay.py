"""Run the batch of a commit again, from the same state and input, and compare the results.

A commit pins everything that its batch depended on: the state before it, the positions of its sources, its time, its
epoch, the values of its cells and the versions of its reference tables. The second run has as many tasks, which
read the same parts. It writes to a scratch store and publishes nothing, so the job does not change.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh64_intdigest

from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.names import CHAIN, folder
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.diff import TableDiff, diff
from tidewheel._checkpoint.tools.savepoint import job_at
from tidewheel._core.user_code import stopping_at_errors
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import epoch_due, is_computed, next_shards
from tidewheel._engine.control import JobCells
from tidewheel._engine.declaration import check_program
from tidewheel._engine.evolve import continuing, fitted
from tidewheel._engine.key_kinds import without_state
from tidewheel._engine.local_tasks import LocalTasks, MakeStep
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.replay_runtime import LocalRuntime, Runtime
from tidewheel._engine.report import Report
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.task_layout import repeated
from tidewheel._replay.causes import Cause, Emitted, causes_of
from tidewheel._replay.key_debugging import KeyDebugging
from tidewheel._replay.key_trace import KeyTrace, TracedMessage
from tidewheel._replay.other_process import OtherProcess
from tidewheel._replay.recorded_input import RecordedInput
from tidewheel._replay.recording_sinks import Rows, comparable, recording, rows_of
from tidewheel._storage import Store, open_store
from tidewheel._storage.chain import Chain
from tidewheel._time.now import batch_time
from tidewheel.errors import ConfigError, NotFound

_RUN = "replay"
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
    plan: Plan,
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
    Raise `NotFound` if the commit or the one
    before it is not kept, and `ConfigError` if the program or its sources do not allow a second run.
    """
    checkpoints = StreamCheckpoints(store, plan.job)
    base, committed = _kept(checkpoints, sequence)
    if not changed:
        check_program(store, plan, committed)
    with contextlib.ExitStack() as cleanup:
        batch = _Batch.recorded(cleanup.enter_context(RecordedInput(plan, store, plan.job)), base, committed)
        if debug:
            cleanup.enter_context(stopping_at_errors())
        make_step = KeyDebugging(key).make_step if debug and key is not None else None
        again = cleanup.enter_context(_ran(plan, store, batch, runtime, make_step))
        rows = again.rows
        state = diff(open_store(again.url), committed, again.manifest, samples)
        with _ran(plan, store, batch, OtherProcess() if elsewhere else runtime) as third:
            unstable = _unstable(rows, third.rows, samples)
        steps = () if changed else (each.table.partition("/")[0] for each in state)
        names = dict.fromkeys([*steps, *unstable])
        causes = _causes(plan, store, batch, names, samples, elsewhere=elsewhere)
    counts = {output.sink: output.rows for output in committed.outputs if committed.outputs_of is None}
    sinks = sorted(counts.keys() | rows.keys())
    numbers = {name: (counts.get(name, 0), len(rows.get(name, ()))) for name in sinks}
    different = {name: pair for name, pair in numbers.items() if pair[0] != pair[1]}
    return Replayed(sequence, rows, tuple(state), different, unstable, causes)


def run_next(job: ProgramJob, store: Store, *, debug: bool = False, key: Any = None) -> Replayed:
    """Run the batch after the newest commit, which may have failed and was never committed, and publish nothing.

    It begins at the same record as the batch that failed; data that has arrived since may be in it too. Raise the error
    of a user's function, after the debugger if `debug`, and `ConfigError` if there is no data.
    """
    checkpoints = job_at(store, job.name)
    base = checkpoints.latest()
    assert base is not None, "an existing job has a commit"
    plan, _ = fitted(job.plan(), base, job.n_shards, job.aliases)
    with contextlib.ExitStack() as cleanup:
        recorded = cleanup.enter_context(RecordedInput(plan, store, job.name, job.aliases))
        splits = recorded.next_splits(base)
        if not splits:
            raise ConfigError(f"job {job.name!r} has no data after commit {base.sequence}: there is no batch to run")
        cells = JobCells(job.cells_url, plan.cells, JobPlace(job.name, job.state))
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
        ran = cleanup.enter_context(_ran(plan, store, _Batch(base, batch, splits), make_step=make_step))
        return Replayed(batch.sequence, ran.rows, ())


def messages_of_key(
    plan: Plan, store: Store, sequence: int, step: str, key: Any, *, changed: bool = False
) -> list[TracedMessage]:
    """Run the batch of a commit again; return the messages of a key that reached a step or were dropped, in order."""
    trace = KeyTrace(plan, step, key)
    base, committed = _kept(StreamCheckpoints(store, plan.job), sequence)
    if not changed:
        check_program(store, plan, committed)
    with RecordedInput(plan, store, plan.job) as recorded:
        # The trace follows messages through one task for each level.
        batch = _Batch.recorded(recorded, base, committed.replace(layout="one"))
        with _ran(plan, store, batch, make_step=trace.make_step):
            return trace.messages


@dataclass(frozen=True)
class WrittenRow:
    """A row of output, and the commit that wrote it."""

    sequence: int
    at: int
    """When the commit was made, in ns since 1970."""
    row: dict[str, Any]


def rows_written(
    plan: Plan, store: Store, sink: str, where: Callable[[dict[str, Any]], bool], *, changed: bool = False
) -> Iterator[WrittenRow]:
    """Run all kept batches again, oldest first; yield the rows of a sink for which `where` is true."""
    if sink not in {node.name for node in plan.nodes if node.operator.kind == "sink"}:
        raise NotFound(f"the program has no sink {sink!r}")
    for sequence in replayable(StreamCheckpoints(store, plan.job)):
        base, committed = _kept(StreamCheckpoints(store, plan.job), sequence)
        if not changed:
            check_program(store, plan, committed)
        with (
            RecordedInput(plan, store, plan.job) as recorded,
            _ran(plan, store, _Batch.recorded(recorded, base, committed)) as again,
        ):
            for row in again.rows.get(sink, ()):
                if where(row):
                    yield WrittenRow(sequence, committed.id.created_at, row)


def replayable(checkpoints: StreamCheckpoints) -> list[int]:
    """Return the kept commits whose batch can run again: the commit before is kept too."""
    kept = checkpoints.list()
    there = {manifest.sequence for manifest in kept}
    return [each.sequence for each in kept if is_computed(each.kind) and each.parent in there]


@dataclass(frozen=True)
class _Batch:
    """A committed batch and its input."""

    base: Manifest
    committed: Manifest
    splits: Sequence[SourceSplit]
    source_key: str | None = None
    """The column by which each task finds its own records, if each read the whole batch."""

    @classmethod
    def recorded(cls, recorded: RecordedInput, base: Manifest, committed: Manifest) -> _Batch:
        """Return a batch with the input that the commit has recorded."""
        splits = recorded.splits(base, committed)
        return cls(base, committed, splits, recorded.source_key if committed.layout == "shared" else None)


@dataclass(frozen=True)
class _Ran:
    url: str
    """The scratch store with the new state."""
    manifest: Manifest
    rows: Rows


def _kept(checkpoints: StreamCheckpoints, sequence: int) -> tuple[Manifest, Manifest]:
    """Return the commit before a batch, and the batch's own."""
    kept = {manifest.sequence: manifest for manifest in checkpoints.list()}
    job = checkpoints.stream_id
    if sequence not in kept:
        there = f"{min(kept)} to {max(kept)}" if kept else "none"
        raise NotFound(
            f"commit {sequence} of job {job!r} is not kept; kept are {there}. Job(keep=…) keeps more of them"
        )
    committed = kept[sequence]
    if not is_computed(committed.kind):
        batches = [str(number) for number, manifest in sorted(kept.items()) if is_computed(manifest.kind)]
        raise ConfigError(
            f"commit {sequence} of job {job!r} is of the kind {committed.kind!r} and has no batch; commits with a batch: "
            f"{', '.join(batches[-10:]) or 'none'}"
        )
    if committed.parent is None or committed.parent not in kept:
        raise NotFound(
            f"commit {sequence} of job {job!r} was computed from the state of commit {committed.parent}, which is not kept. The "
            f"oldest kept commit is {min(kept)}: replay one of the commits after it"
        )
    return kept[committed.parent], committed


@contextlib.contextmanager
def _ran(
    plan: Plan, store: Store, batch: _Batch, runtime: Runtime | None = None, make_step: MakeStep | None = None
) -> Iterator[_Ran]:
    """Run the batch once and provide its results. `make_step` makes tasks of this process that observe their messages."""
    # As at the start of a run, steps continue state that an older version stored in another layout.
    recorded, committed = recording(continuing(plan, batch.base.operators, {})), batch.committed
    runtime = runtime or LocalRuntime()
    with runtime.place(store, plan.job) as (url, local):
        spec = _spec(store, batch.base, committed, url, local)
        layout = repeated(spec, range(len(plan.levels)), batch.splits, committed.layout, batch.source_key)
        tasks = runtime.tasks(recorded) if make_step is None else LocalTasks(recorded, make_step)
        reports = tasks.reports(layout)
        yield _Ran(url, _state_after(batch.base, committed, reports), rows_of(spec, reports))


def _causes(
    plan: Plan, store: Store, batch: _Batch, names: Collection[str], samples: int, *, elsewhere: bool
) -> dict[str, Cause]:
    """Return the steps that make the state and the rows of these steps and sinks differ between two runs."""

    def here(kept: frozenset[int]) -> Emitted:
        emitted = Emitted(kept)
        with _ran(plan, store, batch, make_step=emitted.make_step):
            return emitted

    def there(kept: frozenset[int]) -> Emitted:
        emitted = Emitted(kept)
        with _ran(plan, store, batch, OtherProcess(emitted)):
            return emitted

    return causes_of(plan, names, here, there if elsewhere else here, samples) if names else {}


def _spec(store: Store, base: Manifest, committed: Manifest, url: str, local: str) -> BatchSpec:
    """Return the values that were pinned for the batch."""
    record = Chain(store.at(folder(base.id.stream_id)), CHAIN).read(base.sequence)
    return BatchSpec(
        stream=base.id.stream_id,
        state=url,
        local=local,
        base=base.sequence,
        base_checksum=int(xxh64_intdigest(record)),
        sequence=committed.sequence,
        run=_RUN,
        n_shards=committed.n_shards,
        parallelism=max(1, committed.parallelism),
        now=committed.now,
        after=base.batch,
        last_epoch=_epoch_before(base, committed),
        behind=base.behind,
        epoch=committed.carried_epoch,
        cells=committed.cells,
        tables=committed.tables,
        key_kinds=without_state(base.key_kinds, base.operators),
    )


def _epoch_before(base: Manifest, committed: Manifest) -> int | None:
    """Return the epoch that the steps had received. It can be above that of the commit before, if inputs were silent."""
    return committed.delivered_epoch if committed.carried_epoch is None else base.delivered_epoch


def _state_after(base: Manifest, committed: Manifest, reports: Sequence[Report]) -> Manifest:
    return committed.replace(shards=next_shards(base.shards, reports, base.n_shards))


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
