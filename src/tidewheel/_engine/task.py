"""The task step: one partition of one level of one batch, from Arrow batches to wire rows and a report.

It is independent of Spark. Its caller passes the level's input and takes its output: Spark's `mapInArrow`, or the in-memory
runtime.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewheel._cells.live import empty_cells, pin
from tidewheel._checkpoint.names import folder, state_file
from tidewheel._connectors.sink import Staging
from tidewheel._connectors.split import Split
from tidewheel._core import faults
from tidewheel._core.user_code import summary, user_traceback
from tidewheel._engine import report as reports
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec, WholeRecordsNeeded
from tidewheel._engine.batch_state import BatchState
from tidewheel._engine.busy_time import BusyTime
from tidewheel._engine.hot_keys import KeySample
from tidewheel._engine.plan import Edge, Plan
from tidewheel._engine.report import Attempt, Failure, Report
from tidewheel._engine.shards import shards_of
from tidewheel._engine.shared_reading import Share
from tidewheel._engine.step_context import StepContext
from tidewheel._engine.task_output import TaskOutput
from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import without
from tidewheel._operators.graph import Node, Port
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._storage import open_store
from tidewheel._time.shard_epochs import earliest
from tidewheel._values import Batch, Shape
from tidewheel.errors import Retry, StateError, StepError, TidewheelError

SourceSplit = tuple[int, Split]
"""The number of a source among the plan's, and a part of its batch."""

STARTED = faults.declare("task.started", "a task has begun, nothing is read")
REPORTED = faults.declare("task.reported", "a task has done all but hand over its report")

RAW = Shape("dict", dict)
"""The shape of the columns of a source."""
_LAST = (1 << 63) - 1
"""The number of a report, which comes after all blocks of its task."""


@dataclass(frozen=True)
class TaskIdentity:
    """Which partition of its level a task is, and which attempt: a number that no other attempt of the run has."""

    partition: int
    attempt: int


def run_level(
    plan: Plan,
    spec: BatchSpec,
    level: int,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
    splits: Sequence[SourceSplit] = (),
    source: int = 0,
    make_step: Callable[[Plan, BatchSpec, int, TaskIdentity], TaskStep] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run one partition of a level and yield wire rows, the report of the task last.

    `splits` are what level 0 reads itself, each with the number of its source. `batches` are for level 0 the rows of one source,
    whose number is `source`; for other levels they are wire rows. `make_step` makes a
    `TaskStep` that observes its messages.

    A program error becomes a report with a failure, so that the driver knows the exact step, key and record. Any other error
    is raised, and the task may be run again.
    """
    faults.point(STARTED)
    # A task makes millions of small tuples and drops them all at its end; looking for cycles among them meanwhile
    # takes as long as the work itself.
    collecting = gc.isenabled()
    gc.disable()
    step: TaskStep | None = None
    try:
        pin(plan.cells, spec.cell_values())
        step = (make_step or TaskStep)(plan, spec, level, task)
        for rows in step.run(batches, splits, source):
            handed = time.perf_counter()
            yield rows
            step.idle += time.perf_counter() - handed
    except (StepError, Retry, StateError, WholeRecordsNeeded) as error:
        # An error names a record, or the columns that there are.
        partial = spec.partial and not isinstance(error, Retry)
        kind = WholeRecordsNeeded if partial else Retry if isinstance(error, Retry) else type(error)
        failure = Failure(f"{summary(error)}{empty_cells(error)}", kind.__name__, user_traceback(error))
        yield from _failed(level, task, failure, batches)
    finally:
        if step is not None:
            step.close()
        if collecting:
            gc.enable()


def failed(level: int, task: TaskIdentity, error: Exception, batches: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Yield the report of a task that did not begin. The driver raises the error as it is."""
    return _failed(level, task, Failure(summary(error), type(error).__name__), batches)


def _failed(level: int, task: TaskIdentity, failure: Failure, batches: Iterable[object]) -> Iterator[pa.RecordBatch]:
    for _ in batches:  # A worker whose input was not read to the end is not used again.
        pass
    yield _report_row(Report(level, task.partition, failure, task.attempt))


def _report_row(report: Report) -> pa.RecordBatch:
    origin = Attempt(report.level, report.partition, report.attempt)
    return wire.record_batch([wire.Row(0, wire.REPORT, origin, _LAST, reports.encode(report))])


class TaskStep:
    """One partition of one level. Subclasses observe its messages."""

    def __init__(self, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> None:
        """Start the processes of the level's steps."""
        self.plan, self.spec, self.level, self.task = plan, spec, level, task
        self.store = open_store(spec.state)
        self.output = TaskOutput(plan, self._staging, silent=spec.silent)
        self.state = BatchState(spec, self.store, task.partition, map(self._delta_file, itertools.count()))
        self.origin = Attempt(level, task.partition, task.attempt)
        self.pending: list[wire.Row[bytes]] = []
        self.blocks_sent = itertools.count()
        self.consumed: dict[Attempt, None] = {}
        self.counts: dict[str, int] = {}
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.key_kinds: dict[str, str] = dict(spec.key_kinds)
        self.frontiers: dict[str, int | None] = {}
        self.combiners: dict[int, Combiner] = {}
        self.emitted: dict[str, int] = {}
        self.busy = BusyTime(spec.figures)
        self.key_sample = KeySample(spec.figures)
        self.reading = self.idle = 0.0
        self.share: Share | None = None
        """The filter for the task's own records, if a task of level 1 reads the whole batch from the source."""
        if spec.shared_key is not None and level == 1:
            self.share = Share(spec.shared_key, spec.n_shards, spec.parallelism, task.partition)
        self.began, self._began = time.time_ns(), time.perf_counter()
        levels = (level,) if self.share is None else (0, 1)
        self.nodes = [plan.nodes[number] for each in levels for number in plan.levels[each]]
        self.contexts = {node.id: StepContext(self, node) for node in self.nodes}
        self.processes = {node.id: node.operator.start(self.contexts[node.id]) for node in self.nodes}

    def close(self) -> None:
        """Release what the task holds."""
        for process in self.processes.values():
            process.close()
        self.state.close()

    @property
    def repeats(self) -> bool:
        """Whether steps get the end of the data several times."""
        return bool(self.spec.behind)

    def run(
        self, batches: Iterator[pa.RecordBatch], splits: Sequence[SourceSplit], source: int
    ) -> Iterator[pa.RecordBatch]:
        """Process all input and the epoch, and yield wire rows."""
        for _ in self._work(batches, splits, source):
            if self.pending:
                rows, self.pending = self.pending, []
                yield wire.record_batch(rows)
        report = self._finish()
        faults.point(REPORTED)
        yield _report_row(report)

    def _work(self, batches: Iterator[pa.RecordBatch], splits: Sequence[SourceSplit], source: int) -> Iterator[None]:
        """Process all input and the epoch, and pause after each part: its rows are sent before the next part."""
        if self.spec.warms:
            self.state.update_copies()
        if self.spec.behind and self.level > 0:
            self._catch_up()
            yield
        yield from self.read_splits(splits)
        yield from self._read(batches, source)
        self._finish_combining(self.level)
        for node in () if self.spec.warms else self.nodes:
            process = self.processes[node.id]
            self.busy.begin(node.name)
            process.on_end_of_data()
            process.on_schedule()
            if self.spec.epoch is not None:
                process.on_epoch(self.spec.epoch)
            self.busy.end()
            yield
        for level in range(self.level + 1, len(self.plan.levels)):
            self._finish_combining(level)
        yield

    def _catch_up(self) -> None:
        """Bring shards that are behind up to the epoch of the others, as a batch without data would.

        Their output up to that epoch has its own timestamps, and passes through the later steps as if it were on time.
        """
        epoch = self.spec.last_epoch
        assert epoch is not None, "what is behind is behind an epoch"
        for context in self.contexts.values():
            context.catch_up(earliest(self.spec.behind.values()), epoch)
        for node in self.nodes:
            process = self.processes[node.id]
            process.on_end_of_data()
            if node.operator.stateful:
                process.on_epoch(epoch)
        for context in self.contexts.values():
            context.begin()

    def read_splits(self, splits: Sequence[SourceSplit]) -> Iterator[None]:
        """Feed the splits that this task reads itself to its source, one batch of columns at a time."""
        sources = self.plan.sources()
        for number, split in splits:
            if self.share is not None:
                split = split.with_codes(self.share.key)
            for columns in self._awaited(split.read()):
                own = columns if self.share is None else self.share.of(columns)
                self.deliver(((sources[number].id, 0),), Batch(RAW, columns=own))
                yield

    def _read(self, batches: Iterator[pa.RecordBatch], source: int) -> Iterator[None]:
        """Feed the input to the steps, one batch of messages at a time."""
        if self.level == 0 or self.share is not None:
            node = self.plan.sources()[source]
            for columns in self._awaited(batches):
                self.deliver(((node.id, 0),), Batch(RAW, columns=columns))
                yield
            return
        last = (0, 0, 0)
        for row in wire.unpacked(self._awaited(batches, of_sources=False)):
            if row.order < last:
                raise TidewheelError(
                    f"task {self.task.partition} of level {self.level} got its blocks out of order: {row.order} after {last}"
                )
            last = row.order
            if row.edge == wire.REPORT or self.plan.edges[row.edge].level > self.level:
                self.pending.append(row._replace(payload=row.payload.to_pybytes()))
                yield
                continue
            if row.target != self.task.partition:
                raise TidewheelError(
                    f"task {self.task.partition} of level {self.level} got a block for task {row.target}: the shuffle did not "
                    "keep partitions by their number"
                )
            self.consumed[row.origin] = None
            edge = self.plan.edges[row.edge]
            combiner = self.combiner_of(edge)
            batch = wire.decode(row.payload, (combiner and combiner.shape) or edge.shape)
            self.received[edge.id] = self.received.get(edge.id, 0) + len(batch)
            self.receive(edge, batch)
            yield

    def receive(self, edge: Edge, batch: Batch) -> None:
        """Hand over messages that came across a shuffle."""
        self.deliver(edge.targets, batch)

    def _awaited(self, batches: Iterator[pa.RecordBatch], *, of_sources: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a source or of other tasks, and note how long they were waited for."""
        while True:
            began = time.perf_counter()
            columns = next(batches, None)
            waited = time.perf_counter() - began
            if of_sources:
                self.reading += waited
            else:
                self.idle += waited
            if columns is None:
                return
            yield columns

    def deliver(self, targets: Iterable[tuple[int, int]], batch: Batch) -> None:
        """Give messages to steps of this level."""
        if len(batch) == 0:
            return
        for number, at in targets:
            name = self.plan.nodes[number].name
            self.counts[name] = self.counts.get(name, 0) + len(batch)
            self.busy.begin(name)
            self.processes[number].on_batch(batch, at)
            self.busy.end()

    def emit(self, port: Port, batch: Batch) -> None:
        """Send the output of a step to the steps of this level and over the edges to later levels."""
        node = self.plan.nodes[port.node]
        if node.operator.shuffles:
            batch = self._of_own_shards(node, batch)
            self.key_sample.look_at(node.name, batch)
        self.emitted[node.name] = self.emitted.get(node.name, 0) + len(batch)
        self.deliver(self.plan.local.get(port, ()), batch)
        for edge in self.plan.crossing(port):
            combiner = self.combiner_of(edge)
            for outgoing in (batch,) if combiner is None else combiner.add(batch):
                self.send(edge, outgoing)

    def _of_own_shards(self, node: Node, batch: Batch) -> Batch:
        """Reject messages whose key belongs to a shard that the run does not have: in a fleet, another node has its state."""
        held = self.spec.shards
        if held is None or len(held) == self.spec.n_shards:
            return batch
        shards = shards_of(batch, self.spec.n_shards)
        strange = np.flatnonzero(~np.isin(shards, list(held))).tolist()
        for position in strange:
            error = StepError(
                f"the key belongs to shard {shards[position]}, which this node of the fleet does not have: the event was sent to "
                "the inbox under another key than the one that key_by takes. Route events by the key of the program"
            )
            self.contexts[node.id].reject(error, batch, position)
        return without(batch, strange)

    def _finish_combining(self, level: int) -> None:
        """Send combined messages to the steps of a level."""
        for edge, combiner in list(self.combiners.items()):
            if self.plan.edges[edge].level == level:
                for batch in combiner.finish():
                    self.send(self.plan.edges[edge], batch)

    def combiner_of(self, edge: Edge) -> Combiner | None:
        """Return the process that combines the messages of an edge before the shuffle, if the edge has one."""
        if not edge.combines:
            return None
        if edge.id not in self.combiners:
            node = self.plan.nodes[edge.targets[0][0]]
            self.combiners[edge.id] = node.operator.combiner(StepContext(self, node))
        return self.combiners[edge.id]

    def send(self, edge: Edge, batch: Batch) -> None:
        """Send messages across a shuffle."""
        if edge.level == self.level:
            # It begins at the source, and has the readers of the edge itself.
            self.deliver(edge.targets, batch)
            return
        # Values that are no columns are pickled, and not every object can be.
        for part, blocks in accepted(self.contexts[edge.source.node], batch, lambda part: self._blocks(edge, part)):
            self.sent[edge.id] = self.sent.get(edge.id, 0) + len(part)
            number = next(self.blocks_sent)
            self.pending += [wire.Row(target, edge.id, self.origin, number, payload) for target, payload in blocks]

    def _blocks(self, edge: Edge, batch: Batch) -> list[tuple[int, bytes]]:
        spec = self.spec
        return list(wire.blocks(batch, edge.keyed, spec.n_shards, spec.parallelism, self.task.partition))

    @property
    def _task_number(self) -> int:
        """A number for file names that no other partition of any level has."""
        return self.task.partition * len(self.plan.levels) + self.level

    def _delta_file(self, place: int) -> str:
        return state_file(self.spec.sequence, self.spec.run, self._task_number, self.task.attempt, "delta", place)

    def _staging(self, sink: str) -> Staging:
        spec = self.spec
        attempt = f"{spec.run}-{self._task_number}-{self.task.attempt}"
        return Staging(
            self.store.at(folder(spec.stream)), spec.stream, sink, spec.sequence, attempt, spec.sinks.get(sink)
        )

    def _finish(self) -> Report:
        outputs = self.output.prepare()
        deltas, changed = self.state.write_delta()
        return Report(
            level=self.level,
            partition=self.task.partition,
            attempt=self.task.attempt,
            consumed=tuple(self.consumed),
            deltas=deltas,
            outputs=outputs,
            counts=self.counts,
            sent=self.sent,
            received=self.received,
            looked_through=None if self.share is None else self.share.looked_through,
            kept=0 if self.share is None else self.share.kept,
            changed=changed,
            rejected=self.output.rejected,
            timers=self.state.next_timers(),
            key_kinds=self.key_kinds,
            frontiers=self.frontiers,
            emitted=self.emitted,
            busy=self.busy.seconds,
            reading=self.reading,
            dead=self.output.rejected_by,
            letters=tuple(self.output.letters),
            stored=self.state.sizes() if self.spec.figures else {},
            grown=self.state.grown,
            caught_up=self.state.caught_up,
            visits=self.state.visits,
            began=self.began,
            took=time.perf_counter() - self._began,
            idle=self.idle,
            hot=self.key_sample.found(),
        )
