"""The in-memory runtime: a whole job in one process, without Spark, with the same steps, tasks and commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.spark_log import GIVEN, recorded_kinds
from tidewheel._connectors.split import Split
from tidewheel._core.closing import Closing
from tidewheel._core.logs import logger
from tidewheel._core.text import names_there, shortened
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.batch_state import local_folder
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.continued_sources import continued, job_sources
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.local_tasks import LocalTasks
from tidewheel._engine.merging import at_once
from tidewheel._engine.plan import Plan
from tidewheel._engine.run import ChainRun
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._engine.stored_names import OFFSETS, check_dropped, check_names, dropped
from tidewheel._engine.task import SourceSplit
from tidewheel._engine.task_layout import Layout
from tidewheel._engine.task_tables import in_memory
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

    The records of a batch are divided into `partitions`, as by a source with several splits. The sources are not read: the
    positions of an earlier run on Spark stay unchanged, and its next run continues there.
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
        """Claim the job. The state is where its state URL says.

        `take_over`, `allow_dropped_state`, `allow_dropped_source` and `drop_unpublished` are as in `job.run`. `clock` returns
        the time of each batch; the default is the clock of the machine.
        """
        check_names("allow_dropped_state", allow_dropped_state)
        check_names("allow_dropped_source", allow_dropped_source)
        check_names("drop_unpublished", drop_unpublished)
        self.job, self.parallelism, self.partitions, self.clock = job, parallelism, partitions, clock
        self.plan = job.plan()
        terms = ClaimTerms(take_over, allow_dropped_state, drop_unpublished)
        self.run: ChainRun = _MemoryJobRun(job, self.plan, terms, allow_dropped_source)
        # Merge synchronously, so that results do not depend on a thread.
        self.run.merging.submit = at_once
        if clock is not None:
            self.run.clock = self.run.poll_clock.clock = clock
        try:
            self.run.load_tables(None)
            self.run.begin()
            self.plan = self.run.plan
            seen = SeenFiles(self.run.store, self.run.stream, self.run.token)
            self.run.head = continued(self.run.head, job_sources(self.plan), job.aliases, seen)
            self.run.start_sinks()
            self.run.publish_left(None)
            self.run.pin_tables()
        except BaseException:
            self.run.release()
            raise
        self._tasks = LocalTasks(self.plan)
        # A name that no folder has: the copies at this path are in memory.
        self._local = f"/tidewheel-memory/{self.run.token}"
        in_memory.add(self._local)
        self._copies = PlainCopies.standing_at(local_folder(self._local, job.name, self.run.head.lineage))

    def close(self) -> None:
        """Release the job."""
        self.run.release()
        self._copies.close()
        in_memory.discard(self._local)

    @property
    def next_batch(self) -> int:
        """The number of the next batch."""
        return 0 if self.run.head.batch is None else self.run.head.batch + 1

    def batch(self, inputs: Inputs, *, epoch: int | None = None) -> None:
        """Run one batch with these records by source, commit it and publish its output."""
        self.run.check_open()
        self.run.refresh_tables(None)
        spec = self._spec(epoch)
        self._commit(spec, self._splits(inputs), "batch")

    def set_cell(self, name: str, value: Any) -> None:
        """Change a cell that the job declares, from the next batch on. None clears the cell, so that its default applies."""
        write_cell(self.job, name, value)
        self.run.cells.refresh()

    def flush(self) -> None:
        """End the job like a bounded run: send the last epoch to every step, which closes all windows."""
        self._commit(self._spec(MAX_TIME), (), "flush")

    def finish(self) -> None:
        """End as a run with `until="caught-up"` does: batches without input run until no epoch is due. The job stays open."""
        while self.run.owes_epoch:
            self._commit(self._spec(None, asks=False), (), "epoch")

    def _spec(self, epoch: int | None, *, asks: bool = True) -> BatchSpec:
        return self.run.spec(self.parallelism, self._local, epoch=epoch, asks=asks)

    def _commit(self, spec: BatchSpec, splits: Iterable[SourceSplit], kind: Any) -> None:
        layout = Layout(spec, range(len(self.plan.levels)), [[split] for split in splits] or [[]])
        found = self._tasks.reports(layout)
        self.run.commit(spec, found, kind, None, self._progress() if kind == "batch" else None)

    def _progress(self) -> SourceProgress:
        """Return the unchanged positions of the sources after a batch of given records."""
        head, names = self.run.head, [node.name for node in self.plan.sources()]
        kinds = {**dict.fromkeys(names, GIVEN), **head.source_kinds}
        return SourceProgress(self.next_batch, head.source_offsets, kinds, head.seen, head.driver)

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
                    f"source {node.name!r}: expected a list of records, not {shortened(given)}: "
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


class _MemoryJobRun(JobRun):
    """A run that refuses a program which lacks a source that the job has read, like a start on Spark."""

    def __init__(self, job: Job, plan: Plan, terms: ClaimTerms, allow_dropped_source: Collection[str]) -> None:
        super().__init__(job, plan, terms)
        self._allow_dropped_source = allow_dropped_source

    def begin(self) -> None:
        newest = self.checkpoints.latest()
        super().begin()
        # Forks are meant for trials.
        if newest is not None and newest.forked_from is None and set(recorded_kinds(newest).values()) - {GIVEN}:
            _LOG.warning("%s", _of_a_real_job(newest, self.store.url))

    def reserve(self) -> None:
        super().reserve()
        newest = self.checkpoints.latest()
        if newest is None:
            return
        # In memory, all sources have the same kind, because the records are passed in.
        was = dict.fromkeys(recorded_kinds(newest), GIVEN)
        now = {node.name: GIVEN for node in self.plan.sources()}
        check_dropped(OFFSETS, "the job has read", was, now, self.job.aliases, self._allow_dropped_source)
        gone = dropped(was, now, self.job.aliases)
        self.notices += [f"source {name!r}: its offsets are deleted" for name in gone]


def _of_a_real_job(newest: Manifest, state: str) -> str:
    job = newest.id.stream_id
    return (
        f"a MemoryRun continues job {job!r} at {state}, which has read its sources on Spark: the records that you pass "
        "change the state and output of that job. To keep it unchanged, run a fork of it: "
        f"tidewheel checkpoints savepoint {job} before-trial --state {state}, then "
        f"tidewheel checkpoints fork {job} before-trial {job}-trial --state {state}, "
        f"and name the job of the MemoryRun {job}-trial"
    )


def _columns(source: str, items: Sequence[Any]) -> pa.RecordBatch:
    """Return the items of a source as columns, or raise an error that names the item that does not fit."""
    try:
        return to_columns(list(items), ANY)
    except Exception:
        for position in range(1, len(items)):
            try:
                to_columns(list(items[: position + 1]), ANY)
            except Exception as error:
                raise ConfigError(
                    f"source {source!r}: the item {items[position]!r} has other types than earlier ones, such as "
                    f"{items[0]!r}: the fields of all items of a source must have the same types ({error})"
                ) from None
        raise ConfigError(
            f"source {source!r}: the item {items[0]!r} cannot be a record: it must be a plain value, a dict, a "
            "dataclass "
            "or a Struct, with types that Arrow supports"
        ) from None
