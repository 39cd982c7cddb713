"""The task step: one partition of one level of one batch, from Arrow batches to wire rows and a report.

It knows nothing of Spark. Whoever calls it gives the level's input and takes its output: Spark's `mapInArrow`, or the
in-memory runtime.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel import faults, storage
from tidewheel.chain import Chain
from tidewheel.checkpoint.encoding import decode as decode_manifest
from tidewheel.checkpoint.manifest import CheckpointState
from tidewheel.checkpoint.names import CHAIN, Suffix, path, state_file
from tidewheel.errors import CorruptError, OperatorError, StateError, TidewheelError
from tidewheel.graph import Node, Port
from tidewheel.live import pin
from tidewheel.operators.base import Process
from tidewheel.operators.combine import Combiner
from tidewheel.operators.sink import SinkOperator
from tidewheel.runtime import report as reports
from tidewheel.runtime import wire
from tidewheel.runtime.plan import Edge, Plan
from tidewheel.runtime.report import Failure, Report, Staged
from tidewheel.runtime.shards import task_of
from tidewheel.runtime.spec import BatchSpec
from tidewheel.sinks.base import SinkPartition, Staging
from tidewheel.state.codec import Codec
from tidewheel.state.compaction import newest_sequence
from tidewheel.state.files import StateFile, StateFileWriter
from tidewheel.state.local import LocalCopies, folder_name
from tidewheel.state.refs import FileRef, PartRef
from tidewheel.state.timers import SUFFIX as TIMERS
from tidewheel.state.timers import TimerTable
from tidewheel.state.view import KeyedState, RawTable, TaskState
from tidewheel.storage import Store
from tidewheel.values import Batch, Shape

STARTED = faults.declare("task.started", "a task has begun, nothing is read")
DELTA = faults.declare("task.delta", "a task is about to write its delta")
DELTA_WRITTEN = faults.declare("task.delta-written", "a task's delta is durable")
SNAPSHOT_WRITTEN = faults.declare("task.snapshot-written", "a task's snapshots are durable")
OUTPUT_PREPARED = faults.declare("task.output-prepared", "a task's output is staged")
REPORTED = faults.declare("task.reported", "a task has done all but hand over its report")

_RAW = Shape("dict", dict)
_DEAD_LETTERS = 1000
"""How many rejected records are written at once."""


@dataclass(frozen=True)
class TaskIdentity:
    """Which partition of its level a task is, and which attempt: a number that no other attempt of the run has."""

    partition: int
    attempt: int


def run_level(
    plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one partition of a level and yield wire rows, the report of the task last.

    A program error becomes a report with a failure, so that the driver knows operator, key and record as they are; any other
    error is raised, and whoever runs the tasks may try again.
    """
    faults.point(STARTED)
    # A task makes millions of small tuples and drops them all at its end; looking for cycles among them meanwhile
    # takes as long as the work itself.
    collecting = gc.isenabled()
    gc.disable()
    step: _Step | None = None
    try:
        pin(plan.cells, spec.cells)
        step = _Step(plan, spec, level, task)
        yield from step.run(batches)
    except (OperatorError, StateError) as error:
        for _ in batches:  # A worker whose input was not read to the end is not used again.
            pass
        failure = Failure(str(error), type(error).__name__)
        yield _report_row(Report(level, task.partition, failure))
    finally:
        if step is not None:
            step.close()
        if collecting:
            gc.enable()


def _report_row(report: Report) -> pa.RecordBatch:
    return wire.record_batch([(0, wire.REPORT, reports.encode(report))])


class _Step:
    def __init__(self, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> None:
        self.plan, self.spec, self.level, self.task = plan, spec, level, task
        self.store = storage.open(spec.state)
        self.pending: list[wire.Row] = []
        self.counts: dict[str, int] = {}
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.rejected = 0
        self.dead_letters: list[dict[str, str | None]] = []
        self.frontiers: dict[str, int | None] = {}
        self.writers: dict[int, tuple[SinkPartition, list[int]]] = {}
        self.combiners: dict[int, Combiner] = {}
        self._state: TaskState | None = None
        levels = (0, 1) if self._lowered_here else (level,)
        self.nodes = [plan.nodes[number] for each in levels for number in plan.levels[each]]
        self.processes: dict[int, Process] = {}
        for node in self.nodes:
            self.processes[node.id] = node.operator.start(_NodeContext(self, node))

    @property
    def _lowered_here(self) -> bool:
        return self.spec.lowered and self.level == 1

    @property
    def state(self) -> TaskState:
        """The state as of the base manifest, opened when an operator first asks for it."""
        if self._state is None:
            manifest = _base_manifest(self.spec)
            copies = LocalCopies.at(local_folder(self.spec.local, self.spec.job, manifest.lineage))
            fetch = _fetcher(self.spec.state, self.spec.job)
            self._state = TaskState(self.spec.n_shards, self.spec.base, manifest.shards, copies, fetch)
        return self._state

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in self._read(batches):
            if self.pending:
                yield self._drained()
        for node in self.nodes:
            process = self.processes[node.id]
            process.on_end_of_data()
            process.on_schedule()
            if self.spec.epoch is not None:
                process.on_epoch(self.spec.epoch)
            if self.pending:
                yield self._drained()
        for edge, combiner in self.combiners.items():
            for batch in combiner.finish():
                self._send(self.plan.edges[edge], batch)
        if self.pending:
            yield self._drained()
        report = self._finish()
        faults.point(REPORTED)
        yield _report_row(report)

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[None]:
        """Feed the input to the operators, one batch of messages at a time."""
        if self.level == 0 or self._lowered_here:
            sources = self.plan.sources()
            for columns in batches:
                self._feed_source(sources, columns)
                yield
            return
        for target, number, payload in wire.unpacked(batches):
            if number == wire.REPORT or self.plan.edges[number].level > self.level:
                self.pending.append((target, number, payload.to_pybytes()))
                yield
                continue
            edge = self.plan.edges[number]
            combiner = self._combiner_of(edge)
            batch = wire.decode(payload, (combiner and combiner.shape) or edge.shape)
            self.received[number] = self.received.get(number, 0) + len(batch)
            self._deliver(edge.targets, batch)
            yield

    def _feed_source(self, sources: list[Node], columns: pa.RecordBatch) -> None:
        if len(sources) == 1:
            self._deliver(((sources[0].id, 0),), Batch(_RAW, columns=columns))
            return
        # Several sources come as one struct column each, and a row has one of them.
        for node, struct in zip(sources, columns.columns, strict=True):
            present = struct.drop_null()
            if len(present):
                own = pa.RecordBatch.from_struct_array(present)
                self._deliver(((node.id, 0),), Batch(_RAW, columns=own))

    def _deliver(self, targets: Iterable[tuple[int, int]], batch: Batch) -> None:
        if len(batch) == 0:
            return
        for number, at in targets:
            name = self.plan.nodes[number].name
            self.counts[name] = self.counts.get(name, 0) + len(batch)
            self.processes[number].on_batch(batch, at)

    def emit(self, port: Port, batch: Batch) -> None:
        """Send what an operator gave to the operators of this level and over the edges to later ones."""
        self._deliver(self.plan.local.get(port, ()), batch)
        for edge in self.plan.crossing(port):
            if self._lowered_here and edge.level == self.level:
                self._deliver(edge.targets, batch)
                continue
            combiner = self._combiner_of(edge)
            for outgoing in (batch,) if combiner is None else combiner.add(batch):
                self._send(edge, outgoing)

    def _combiner_of(self, edge: Edge) -> Combiner | None:
        if not edge.combines:
            return None
        if edge.id not in self.combiners:
            node = self.plan.nodes[edge.targets[0][0]]
            self.combiners[edge.id] = node.operator.combiner(_NodeContext(self, node))
        return self.combiners[edge.id]

    def _send(self, edge: Edge, batch: Batch) -> None:
        self.sent[edge.id] = self.sent.get(edge.id, 0) + len(batch)
        spec = self.spec
        self.pending.extend(wire.rows(batch, edge.id, edge.keyed, spec.n_shards, spec.parallelism, self.task.partition))

    def _drained(self) -> pa.RecordBatch:
        rows, self.pending = self.pending, []
        return wire.record_batch(rows)

    def shards(self) -> list[int]:
        """Return this task's shards that have state or got data."""
        known = set(self.state.parts) | self.state.touched()
        return sorted(shard for shard in known if task_of(shard, self.spec.parallelism) == self.task.partition)

    def writer(self, node: Node) -> tuple[SinkPartition, list[int]]:
        """Return the task's partition of a sink, opened at its first row, and the number of rows written so far."""
        if node.id not in self.writers:
            operator = node.operator
            assert isinstance(operator, SinkOperator)
            attempt = f"{self.spec.run}-{self._task_number}-{self.task.attempt}"
            staging = Staging(
                self.store.at(_folder(self.spec.job)), self.spec.job, node.name, self.spec.sequence, attempt
            )
            self.writers[node.id] = (operator.sink.open(staging), [0])
        return self.writers[node.id]

    @property
    def _task_number(self) -> int:
        """A number for file names that no other partition of any level has."""
        return self.task.partition * len(self.plan.levels) + self.level

    def reject(self, node: Node, error: Exception, batch: Batch, position: int) -> None:
        key = batch.keys[position] if batch.keyed else None
        value = batch.values[position]
        about = f"key {key!r}, " if batch.keyed else ""
        cause = str(error) if isinstance(error, TidewheelError) else f"{type(error).__name__}: {error}"
        if self.plan.dead_letter is None:
            raise OperatorError(f"operator {node.name!r}, {about}record {_shown(value)}: {cause}") from error
        row = {
            "operator": node.name,
            "key": None if key is None else str(key),
            "record": _shown(value),
            "error": cause,
        }
        self.dead_letters.append(row)
        self.rejected += 1
        if len(self.dead_letters) >= _DEAD_LETTERS:
            self._write_dead_letters()

    def _write_dead_letters(self) -> None:
        if self.plan.dead_letter is not None and self.dead_letters:
            writer, rows = self.writer(self.plan.nodes[self.plan.dead_letter])
            writer.write(pa.RecordBatch.from_pylist(self.dead_letters, schema=DEAD_LETTER_SCHEMA))
            rows[0] += len(self.dead_letters)
            self.dead_letters = []

    def _finish(self) -> Report:
        self._write_dead_letters()
        outputs = {}
        for number, (writer, rows) in self.writers.items():
            outputs[self.plan.nodes[number].name] = Staged(rows[0], writer.prepare())
        if outputs:
            faults.point(OUTPUT_PREPARED)
        snapshots = self._write_snapshots() if self.level == 1 else {}
        deltas, changed = self._write_delta()
        return Report(
            level=self.level,
            partition=self.task.partition,
            deltas=deltas,
            snapshots=snapshots,
            outputs=outputs,
            counts=self.counts,
            sent=self.sent,
            received=self.received,
            changed=changed,
            rejected=self.rejected,
            frontiers=self.frontiers,
        )

    def _write_delta(self) -> tuple[dict[int, PartRef], dict[str, int]]:
        if self._state is None:
            return {}, {}
        writer = StateFileWriter()
        changed: dict[str, int] = {}
        for shard, table, items in self._state.changes():
            writer.add(shard, table, items)
            changed[table] = changed.get(table, 0) + len(items)
        if not changed:
            return {}, {}
        faults.point(DELTA)
        ref = self._store_file(writer, "delta")
        faults.point(DELTA_WRITTEN)
        return writer.parts(ref, self.spec.sequence), changed

    def _write_snapshots(self) -> dict[int, PartRef]:
        mine = [s for s in sorted(self.spec.snapshots) if task_of(s, self.spec.parallelism) == self.task.partition]
        if not mine:
            return {}
        writer = StateFileWriter()
        for shard in mine:
            self.state.reader(shard).snapshot_into(writer, shard)
        ref = self._store_file(writer, "snap")
        faults.point(SNAPSHOT_WRITTEN)
        written = writer.parts(ref, 0)
        # A shard whose keys were all dropped has nothing in the file; its part of it is empty, and that is its snapshot.
        nothing = PartRef(ref, 0, 0, 0)
        return {
            shard: msgspec.structs.replace(
                written.get(shard, nothing), sequence=newest_sequence(self.state.parts[shard])
            )
            for shard in mine
        }

    def _store_file(self, writer: StateFileWriter, suffix: Suffix) -> FileRef:
        data, checksum = writer.finish()
        name = state_file(self.spec.sequence, self.spec.run, self._task_number, self.task.attempt, suffix)
        self.store.create(path(self.spec.job, name), data)
        return FileRef(name, len(data), checksum)

    def close(self) -> None:
        if self._state is not None:
            self._state.close()


DEAD_LETTER_SCHEMA = pa.schema(
    [("operator", pa.string()), ("key", pa.string()), ("record", pa.string()), ("error", pa.string())]
)
"""The columns of a dead-letter sink."""


class _NodeContext:
    """The `Context` of one operator in one task."""

    def __init__(self, step: _Step, node: Node) -> None:
        self._step, self._node = step, node
        self.operator = node.name
        self.shapes = node.shapes
        self.now = step.spec.now
        self.last_epoch = step.spec.last_epoch
        self.epoch = step.spec.epoch

    def emit(self, batch: Batch, port: int = 0) -> None:
        self._step.emit(Port(self._node.id, port), batch)

    def write(self, columns: pa.RecordBatch) -> None:
        writer, rows = self._step.writer(self._node)
        writer.write(columns)
        rows[0] += columns.num_rows

    def reject(self, error: Exception, batch: Batch, position: int) -> None:
        self._step.reject(self._node, error, batch, position)

    def keeps_rejected(self) -> bool:
        return self._step.plan.dead_letter is not None

    def state(self, codec: Codec, default: Callable[[], Any], table: str = "") -> KeyedState:
        return self._step.state.keyed(self._table(table), codec, default)

    def raw_table(self) -> RawTable:
        return self._step.state.raw(self._table(""))

    def timers(self, table: str = TIMERS) -> TimerTable:
        return self._step.state.timers(self._table(table))

    def clock(self) -> int | None:
        return self.last_epoch if self.epoch is None else self.epoch

    def saw(self, name: str, epoch: int | None) -> None:
        before = self._step.frontiers.get(name)
        if epoch is None or before is None or epoch > before:
            self._step.frontiers[name] = before if epoch is None else epoch

    def count(self, label: str, number: int) -> None:
        name = f"{self.operator}/{label}"
        self._step.counts[name] = self._step.counts.get(name, 0) + number

    def _table(self, table: str) -> str:
        return f"{self.operator}/{table}" if table else self.operator

    def shards(self) -> Iterable[int]:
        return self._step.shards()


def local_folder(local: str, job: str, lineage: str) -> str:
    """Return the folder of a job's local copies on this host."""
    return f"{local}/{folder_name(job, lineage)}"


def _shown(value: Any, limit: int = 500) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _folder(job: str) -> str:
    return path(job, "").rstrip("/")


_manifests: dict[tuple[str, str, int, int], CheckpointState] = {}


def _base_manifest(spec: BatchSpec) -> CheckpointState:
    """Return the manifest that the batch starts from, read once per process, and checked against what the driver named."""
    known = (spec.state, spec.job, spec.base, spec.base_checksum)
    if known not in _manifests:
        data = Chain(storage.open(spec.state).at(_folder(spec.job)), CHAIN).read(spec.base)
        if int(xxh64_intdigest(data)) != spec.base_checksum:
            raise CorruptError(
                f"manifest {spec.base} of job {spec.job!r} at {spec.state} is not the one the driver started the batch from; "
                "nothing is committed: start the job again"
            )
        _manifests.clear()
        _manifests[known] = decode_manifest(data, spec.job)
    return _manifests[known]


def _fetcher(state: str, job: str) -> Callable[[FileRef], StateFile]:
    store: Store = storage.open(state)
    opened: dict[str, StateFile] = {}

    def fetch(ref: FileRef) -> StateFile:
        if ref.name not in opened:
            # A whole file in one read: a task that catches up needs most of it.
            data = store.read(path(job, ref.name))
            opened[ref.name] = StateFile.of(data, ref)
        return opened[ref.name]

    return fetch
