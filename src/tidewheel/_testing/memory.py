"""The in-memory runtime: a whole job in one process, without Spark, with the same operators, tasks and commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from tidewheel._cells.live import unpinned_after
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.spark_log import GIVEN, recorded_kinds
from tidewheel._connectors.split import Split
from tidewheel._core.closing import Closing
from tidewheel._core.logs import logger
from tidewheel._core.text import names_there, shortened
from tidewheel._engine import report as reports
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.batch_state import local_folder
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.commit import SourceProgress, check_reports
from tidewheel._engine.continued_sources import continued, job_sources
from tidewheel._engine.merging import at_once
from tidewheel._engine.plan import Plan
from tidewheel._engine.run import ChainRun, JobRun
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._engine.stored_names import OFFSETS, check_dropped, check_names, dropped
from tidewheel._engine.task import SourceSplit, TaskIdentity, run_level
from tidewheel._program.job import Job
from tidewheel._testing.cells import write_cell
from tidewheel._testing.plain_copies import PlainCopies
from tidewheel._time.duration import MAX_TIME
from tidewheel._values.shape import ANY, to_columns
from tidewheel.errors import ConfigError

_LOG = logger(__name__)

Inputs = Mapping[str, Sequence[Any]]


class MemoryRun(Closing):
    """A run of a job, batch by batch, in this process.

        with MemoryRun(job) as run:
            run.batch({"in": [{"user": "ada", "amount": 3}]})
            run.flush()

    The records of a batch are cut into `partitions` for level 0, as a source with several splits would be. They are given, and
    not read: what a run on Spark has read of the sources stays as it is, and the next one goes on there.
    """

    def __init__(
        self,
        job: Job,
        *,
        parallelism: int = 1,
        partitions: int = 1,
        take_over: bool = False,
        allow_dropped_state: Collection[str] = (),
        allow_dropped_source: Collection[str] = (),
        drop_unpublished: Collection[str] = (),
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Claim the job; its state URL decides whether the state outlives the process.

        `take_over`, `allow_dropped_state`, `allow_dropped_source` and `drop_unpublished` are as in `job.run`. `clock` gives the
        time of each batch; without one it is the machine's.
        """
        check_names("allow_dropped_state", allow_dropped_state)
        check_names("allow_dropped_source", allow_dropped_source)
        check_names("drop_unpublished", drop_unpublished)
        self.job, self.parallelism, self.partitions, self.clock = job, parallelism, partitions, clock
        self.plan = job.plan()
        terms = ClaimTerms(take_over, allow_dropped_state, drop_unpublished)
        self.run: ChainRun = _MemoryJobRun(job, self.plan, terms, allow_dropped_source)
        # Done at once: what a test sees does not depend on when a thread is done.
        self.run.merging.submit = at_once
        if clock is not None:
            self.run.clock = self.run.asking.clock = clock
        try:
            self.run.begin()
            self.plan = self.run.plan
            seen = SeenFiles(self.run.store, self.run.stream, self.run.token)
            self.run.head = continued(self.run.head, job_sources(self.plan), job.aliases, seen)
            self.run.start_sinks()
            self.run.publish_left(None)
        except BaseException:
            self.run.release()
            raise
        self._attempts = count()
        # A name that no folder has: what tasks find there is in memory.
        self._local = f"/tidewheel-memory/{self.run.token}"
        self._copies = PlainCopies.standing_at(local_folder(self._local, job.name, self.run.head.lineage))

    def close(self) -> None:
        """Let go of the job."""
        self.run.release()
        self._copies.close()

    @property
    def next_batch(self) -> int:
        """The number of the batch that has not been committed yet."""
        return 0 if self.run.head.batch is None else self.run.head.batch + 1

    def batch(self, inputs: Inputs, *, epoch: int | None = None) -> None:
        """Run one batch with these records by source, commit it and publish its output."""
        self.run.check_open()
        spec = self._spec(epoch)
        self._commit(spec, list(self._splits(inputs)), 0, "batch")

    def set_cell(self, name: str, value: Any) -> None:
        """Change a cell that the job declares: the next batch sees it. None clears the cell, and its default holds."""
        write_cell(self.job, name, value)
        self.run.cells.refresh()

    def flush(self) -> None:
        """End the job as a bounded run does: the epoch after all time goes to every operator."""
        self._commit(self._spec(MAX_TIME), [], 1, "flush")

    def finish(self) -> None:
        """End as a run with `available-now` does: batches without input run until no epoch is due. The job stays open."""
        while self.run.owes_epoch:
            self._commit(self._spec(None, asks=False), [], 0, "epoch")

    def _spec(self, epoch: int | None, *, asks: bool = True) -> BatchSpec:
        return self.run.spec(self.parallelism, self._local, epoch=epoch, asks=asks)

    def _commit(self, spec: BatchSpec, splits: Sequence[SourceSplit], first: int, kind: Any) -> None:
        levels = range(first, len(self.plan.levels))
        with unpinned_after():
            rows = self._levels(spec, splits, first)
        batch_reports = [reports.decode(payload) for payload in wire.reports_in(rows)]
        check_reports(batch_reports, levels, spec.parallelism)
        self.run.commit(spec, batch_reports, kind, None, self._progress() if kind == "batch" else None)

    def _progress(self) -> SourceProgress:
        """Return how far the sources are read after a batch of given records: as far as before."""
        head, names = self.run.head, [node.name for node in self.plan.sources()]
        kinds = {**dict.fromkeys(names, GIVEN), **head.source_kinds}
        return SourceProgress(self.next_batch, head.source_offsets, kinds, head.seen, head.driver)

    def _levels(self, spec: BatchSpec, splits: Sequence[SourceSplit], first: int) -> list[pa.RecordBatch]:
        """Run the levels one after the other, each shuffle a sort of wire rows; return the rows of the last."""
        out: list[pa.RecordBatch] = []
        for level in range(first, len(self.plan.levels)):
            if level == 0:
                out = [
                    rows
                    for partition, split in enumerate(splits)
                    for rows in run_level(self.plan, spec, 0, self._task(partition), iter(()), [split])
                ]
            else:
                received = _shuffled(out, spec.parallelism)
                out = [
                    rows
                    for partition, batches in enumerate(received)
                    for rows in run_level(self.plan, spec, level, self._task(partition), iter(batches))
                ]
        return out

    def _task(self, partition: int) -> TaskIdentity:
        return TaskIdentity(partition, next(self._attempts))

    def _splits(self, inputs: Inputs) -> Iterator[SourceSplit]:
        sources = self.plan.sources()
        names = [node.name for node in sources]
        unknown = next((name for name in inputs if name not in names), None)
        if unknown is not None:
            raise ValueError(f"job {self.job.name!r} has no source {unknown!r}; {names_there(unknown, names)}")
        for number, node in enumerate(sources):
            given = inputs.get(node.name, ())
            if isinstance(given, Mapping | str | bytes):
                raise ConfigError(
                    f"source {node.name!r}: it is given {shortened(given)}; its records are a list, "
                    f"{{{node.name!r}: [RECORD, …]}}"
                )
            records = list(given)
            for start in range(self.partitions):
                part = records[start * len(records) // self.partitions : (start + 1) * len(records) // self.partitions]
                if part:
                    yield number, GivenSplit(_columns(node.name, part))


@dataclass(frozen=True)
class GivenSplit(Split):
    """Records that a run in memory was given."""

    records: pa.RecordBatch

    @property
    def size(self) -> int:  # type: ignore[override]  # it is not set, it follows
        return int(self.records.nbytes)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield self.records


def _shuffled(batches: Sequence[pa.RecordBatch], parallelism: int) -> list[list[pa.RecordBatch]]:
    """Return the wire rows for each task, in their order."""
    targets: list[list[wire.Row[bytes]]] = [[] for _ in range(parallelism)]
    for row in sorted(wire.unpacked(batches), key=lambda row: row.order):
        targets[row.target].append(row._replace(payload=row.payload.to_pybytes()))
    return [[wire.record_batch(rows)] if rows else [] for rows in targets]


class _MemoryJobRun(JobRun):
    """A run that refuses a program without a source that the job has read, as a start on Spark does."""

    def __init__(self, job: Job, plan: Plan, terms: ClaimTerms, allow_dropped_source: Collection[str]) -> None:
        super().__init__(job, plan, terms)
        self._allow_dropped_source = allow_dropped_source

    def begin(self) -> None:
        newest = self.checkpoints.latest()
        super().begin()
        # A fork is made to be tried.
        if newest is not None and newest.forked_from is None and set(recorded_kinds(newest).values()) - {GIVEN}:
            _LOG.warning("%s", _of_a_real_job(newest, self.store.url))

    def reserve(self) -> None:
        super().reserve()
        newest = self.checkpoints.latest()
        if newest is None:
            return
        # In memory every source is of one kind: its records are given.
        was = dict.fromkeys(recorded_kinds(newest), GIVEN)
        now = {node.name: GIVEN for node in self.plan.sources()}
        check_dropped(OFFSETS, "the job has read", was, now, self.job.aliases, self._allow_dropped_source)
        gone = dropped(was, now, self.job.aliases)
        self.notices += [f"source {name!r}: its offsets are forgotten" for name in gone]


def _of_a_real_job(newest: Manifest, state: str) -> str:
    job = newest.id.stream_id
    return (
        f"a MemoryRun goes on with job {job!r} at {state}, which has read its sources on Spark: the records that it is given "
        "change that job's state and output. To leave it alone, run a fork of it: "
        f"tidewheel checkpoints savepoint {job} before-trial --state {state}, then "
        f"tidewheel checkpoints fork {job} before-trial {job}-trial --state {state}, "
        f"and name the job of the MemoryRun {job}-trial"
    )


def _columns(source: str, items: Sequence[Any]) -> pa.RecordBatch:
    """Return the items of a source as columns, or say which of them does not fit."""
    try:
        return to_columns(list(items), ANY)
    except Exception:
        for position in range(1, len(items)):
            try:
                to_columns(list(items[: position + 1]), ANY)
            except Exception as error:
                raise ConfigError(
                    f"source {source!r}: the item {items[position]!r} does not fit with those before it, such as "
                    f"{items[0]!r}: the fields of all items of a source have the same types ({error})"
                ) from None
        raise ConfigError(
            f"source {source!r}: the item {items[0]!r} cannot be a record: a record is a plain value, a dict, a dataclass "
            "or a Struct, of types that Arrow has"
        ) from None
