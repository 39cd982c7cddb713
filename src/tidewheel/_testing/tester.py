"""StepTester: run single steps, message by message, without a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidewheel._cells.live import given
from tidewheel._connectors.memory.iterable import iterable
from tidewheel._core.keys import check_n_shards, from_stored, shard_of_stored, to_stored
from tidewheel._core.transient import raise_transient
from tidewheel._core.user_code import described, trimmed
from tidewheel._engine.key_kinds import kinds_by_name, merged_kinds
from tidewheel._operators.base import Process
from tidewheel._operators.graph import Node, Port
from tidewheel._operators.keyed.datetimes import with_datetime
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel._operators.logic import Message
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._program.job import Job
from tidewheel._program.keyed_stream import KeyedStream
from tidewheel._program.stream import Stream
from tidewheel._state.auxiliary_tables import is_auxiliary, owner, reassigned
from tidewheel._state.codec import StateCodec, codec_named
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.raw_table import RawTable
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.row_table import RowTable
from tidewheel._state.segments import SUFFIX as SEGMENTS
from tidewheel._state.segments import segment_key, whole
from tidewheel._state.tagged import is_divided
from tidewheel._state.task_state import TaskState
from tidewheel._state.timers import THERE, is_timers
from tidewheel._state.timers import decode as decode_timer
from tidewheel._state.timers import encode as encode_timer
from tidewheel._testing.clock import Clock
from tidewheel._testing.plain_copies import PlainCopies
from tidewheel._time.duration import in_ns
from tidewheel._values import ANY, Batch
from tidewheel._values.keyed_table import KeyedRows, KeyedTable
from tidewheel.errors import StateError, StepError

if TYPE_CHECKING:
    from tidewheel._connectors.tables.table import Table
    from tidewheel._state.timers import TimerTable

Snapshot = dict[tuple[str, bytes], bytes]
"""Encoded state by table and stored key."""


class StepTester:
    """Run the steps that `build` adds to a keyed stream.

        tester = StepTester(lambda s: s.stateful_map("sum", lambda key, n, total: (total + n, total + n), default=0))
        assert tester.send("ada", 3) == [Message("ada", 3)]
        assert tester.send("ada", 4) == [Message("ada", 7)]
        assert tester.state("ada") == 7

    Each call is one batch: the state is encoded and stored at its end, as in a commit. A call that raises an error does not
    change the state. Every call returns the output of the stream that `build` returned. If `build` returned several streams,
    a call returns the output of the first, and `taken(1)` that of the second.

    Times are ns or datetimes: if the test passes datetimes, the steps and the output have datetimes.
    """

    def __init__(
        self,
        build: Callable[[KeyedStream], Stream | tuple[Stream, ...]],
        *,
        n_shards: int = 1,
        clock: Clock | None = None,
        cells: Mapping[str, Any] | None = None,
    ) -> None:
        """Build the steps. With more than one shard, epochs and schedules are called once per shard.

        `cells` has values of cells by name; other cells have their defaults.
        """
        check_n_shards(n_shards)
        self.n_shards = n_shards
        self.clock = clock or Clock()
        self.cells = dict(cells or {})
        """The values of cells by name; a test can change them between calls."""
        self.last_epoch: int | None = None
        self.written: dict[str, list[dict[str, Any]]] = {}
        """The rows of each sink, by its name."""
        self.seen: dict[str, int | None] = {}
        """The epochs that steps generated, by clock input; in a job they would be sent with the next batch."""
        self.counts: dict[str, int] = {}
        """The counters of the steps, as `step/label`."""
        job = Job("tester", state="memory:")
        self.graph = job.graph
        self.graph.add("tester-in", _Input(iterable([]), ANY))
        self._input = Port(self.graph.add("tester-key", KeyBy("key"), (Port(0),)).id)
        built = build(KeyedStream(job, self._input))
        self._outputs = [stream.port for stream in (built if isinstance(built, tuple) else (built,))]
        self._nodes = self.graph.nodes[2:]
        self._copies = PlainCopies()
        self._key_kinds: dict[str, str] = {}
        self._taken: list[list[Message]] = [[] for _ in self._outputs]
        self.gives_datetimes = False

    def send(self, key: Any, value: Any, time: int | datetime | None = None) -> list[Message]:
        """Send one message to the steps."""
        return self.send_all([Message(key, value, time)])

    def send_all(self, messages: Iterable[Message]) -> list[Message]:
        """Send several messages as one batch."""
        batch_messages = list(messages)
        times = [self._given(message.time) for message in batch_messages]
        if any(time is None for time in times) and any(time is not None for time in times):
            raise ValueError("either all messages of a batch must have a time or none")
        batch = Batch(
            ANY,
            keys=[message.key for message in batch_messages],
            values=[message.value for message in batch_messages],
            times=times if batch_messages and times[0] is not None else None,
        )
        return self._step(lambda step: step.deliver(self._input, batch), lambda process: None)

    def epoch(self, time: int | datetime) -> list[Message]:
        """Send an epoch: no message up to `time` will come. An epoch that is not after the last one is ignored."""
        epoch: int = self._given(time)
        if self.last_epoch is not None and epoch <= self.last_epoch:
            return []
        out = self._step(lambda step: None, lambda process: process.on_epoch(epoch), epoch)
        self.last_epoch = epoch
        return out

    def tick(self, seconds: float = 0) -> list[Message]:
        """Move the clock forward, and run due timers and schedules."""
        self.clock.advance(seconds)
        return self._step(lambda step: None, lambda process: process.on_schedule())

    def taken(self, output: int) -> list[Message]:
        """Return the output of one of several streams since the last call."""
        messages, self._taken[output] = self._taken[output], []
        return messages

    def interrogate(self) -> set[Any]:
        """Return the keys that have state in any step."""
        return {from_stored(key) for table, key in self.snapshot() if not is_auxiliary(table)}

    def collect(self, key: Any) -> dict[str, Any]:
        """Remove the state of a key from every step and return it, decoded, by step; empty if there is none.

        The result also has the timers, as a list under `step/timers`, and the segments of large states.
        """
        stored, copy = self._placed(key)
        states: dict[str, Any] = {}
        for table, held in copy.tables.items():
            if is_auxiliary(table):
                mine = sorted(entry for entry in held if owner(table, entry) == stored)
                taken = {entry: held.pop(entry) for entry in mine}
                if taken:
                    states[table] = list(map(decode_timer, taken)) if is_timers(table) else taken
            elif stored in held:
                states[table] = self._codec(table).decode(held.pop(stored))
        return states

    def acquire(self, key: Any, states: Mapping[str, Any]) -> None:
        """Insert the state of a key, by step, for its next message."""
        stored, copy = self._placed(key)
        entries: list[tuple[str, bytes, bytes]] = []
        for table, state in states.items():
            codec = self._codec(table)
            if is_timers(table):
                moved = (msgspec.structs.replace(timer, key=key) for timer in state)
                entries += [(table, encode_timer(timer), THERE) for timer in moved]
            elif is_auxiliary(table):
                entries += [(table, reassigned(table, entry, stored), raw) for entry, raw in state.items()]
            else:
                entries.append((table, stored, codec.encode(state)))
        for table, entry, raw in entries:
            copy.put(table, entry, raw)

    def state(self, key: Any, step: str | None = None) -> Any:
        """Return the state of a key in a step; None if there is none. The step can be omitted if only one has state."""
        table = step or self._only_stateful()
        stored, copy = self._placed(key)
        raw = copy.tables.get(table, {}).get(stored)
        segments = copy.tables.get(f"{table}/{SEGMENTS}")
        if raw is not None and segments and is_divided(raw):
            raw = whole(raw, lambda number: segments[segment_key(stored, number)])
        return None if raw is None else self._codec(table).decode(raw)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of all state."""
        return {
            (table, key): raw
            for shard in self._copies.shards()
            for table, held in self._copies.shard(shard).tables.items()
            for key, raw in held.items()
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this tester or of another one with the same steps."""
        self._copies.clear()
        for (table, key), raw in snapshot.items():
            self._copies.shard(shard_of_stored(owner(table, key), self.n_shards)).put(table, key, raw)

    def _step(
        self, feed: Callable[[_Step], None], finish: Callable[[Process], None], epoch: int | None = None
    ) -> list[Message]:
        step = _Step(self, epoch)
        with given(self.cells):
            feed(step)
            for node in self._nodes:
                process = step.processes[node.id]
                process.on_end_of_data()
                finish(process)
        for shard, table, items in list(step.state.changes()):
            for key, raw in items:
                self._copies.shard(shard).put(table, key, raw)
        for name, rows in step.written.items():
            self.written.setdefault(name, []).extend(rows)
        for taken, port in zip(self._taken[1:], self._outputs[1:], strict=True):
            taken += self._shown(step, port)
        return self._shown(step, self._outputs[0])

    def _given(self, time: Any) -> Any:
        self.gives_datetimes = self.gives_datetimes or isinstance(time, datetime)
        return in_ns(time)

    def shows_datetimes(self, node: Node) -> bool:
        """Return whether users see the times of a node's messages as datetimes."""
        return self.gives_datetimes or node.timestamps

    def _shown(self, step: _Step, port: Port) -> list[Message]:
        messages = step.out.get(port, [])
        datetimes = self.shows_datetimes(self.graph.nodes[port.node])
        return [with_datetime(message) for message in messages] if datetimes else messages

    def _placed(self, key: Any) -> tuple[bytes, Any]:
        stored = to_stored(key)
        return stored, self._copies.shard(shard_of_stored(stored, self.n_shards))

    def _codec(self, table: str) -> StateCodec:
        for node in self._nodes:
            if node.name == table.partition("/")[0] and node.operator.stateful:
                spec = getattr(node.operator, "state", None)
                return spec.resolved_codec() if "/" not in table and spec is not None else codec_named("msgpack")
        raise StateError(f"there is no step {table!r} with state; there are {', '.join(self._stateful()) or 'none'}")

    def _stateful(self) -> list[str]:
        return [node.name for node in self._nodes if node.operator.stateful]

    def _only_stateful(self) -> str:
        names = self._stateful()
        if len(names) != 1:
            raise StateError(f"say which step's state: {', '.join(names) or 'none of them has any'}")
        return names[0]


class _Input(SourceOperator):
    """The source of the messages of a test, each of which may have a timestamp."""

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        return None


class _Step:
    """Process one batch."""

    def __init__(self, tester: StepTester, epoch: int | None) -> None:
        self.tester, self.epoch = tester, epoch
        stored = dict.fromkeys(tester._copies.shards(), ShardParts())
        self.state = TaskState(tester.n_shards, 0, stored, tester._copies, _no_files)
        self.out: dict[Port, list[Message]] = {}
        self.written: dict[str, list[dict[str, Any]]] = {}
        self.processes = {node.id: node.operator.start(_NodeContext(self, node)) for node in tester._nodes}

    def deliver(self, port: Port, batch: Batch) -> None:
        if len(batch) == 0:
            return
        if port in self.tester._outputs:
            times: Sequence[int | None] = batch.times or [None] * len(batch)
            keys = batch.keys if batch.keyed else [None] * len(batch)
            self.out.setdefault(port, []).extend(map(Message, keys, batch.values, times))
        for reader, at in self.tester.graph.consumers(port):
            self.processes[reader.id].on_batch(batch, at)


class _NodeContext:
    """The `Context` of one step in one call."""

    def __init__(self, step: _Step, node: Node) -> None:
        self._step, self._node = step, node
        self.operator = node.name
        self.shapes = node.shapes
        self.timestamps = step.tester.shows_datetimes(node)
        self.now = step.tester.clock.now
        self.last_epoch, self.epoch = step.tester.last_epoch, step.epoch

    def emit(self, batch: Batch, port: int = 0) -> None:
        self._step.deliver(Port(self._node.id, port), batch)

    def write(self, columns: pa.RecordBatch) -> None:
        self._step.written.setdefault(self.operator, []).extend(columns.to_pylist())

    def reject(self, error: Exception, batch: Batch, position: int, *, stop: bool = False) -> None:
        self.check_transient(error)
        about = f"key {batch.keys[position]!r}, " if batch.keyed else ""
        raise StepError(
            f"step {self.operator!r}, {about}record {batch.values[position]!r}: {described(error)}"
        ) from trimmed(error)

    def check_transient(self, error: Exception) -> None:
        raise_transient(self.operator, error, self._node.retry)

    def keeps_rejected(self) -> bool:
        return False

    def table(self, table: Table) -> KeyedRows:
        return KeyedTable.of(table.checked(table.source.load(None)), table.key)

    def state(self, codec: StateCodec, default: Callable[[], Any], table: str = "") -> KeyedState:
        return self._step.state.keyed(self._table(table), codec, default)

    def raw_table(self) -> RawTable:
        return self._step.state.raw(self._table(""))

    def row_table(self) -> RowTable:
        return self._step.state.rows(self._table(""))

    def timers(self, table: str = "timers") -> TimerTable:
        return self._step.state.timers(self._table(table))

    def columns_read(self) -> Collection[str] | None:
        return None

    def clock(self) -> int | None:
        return self.last_epoch if self.epoch is None else self.epoch

    def report_clock_input(self, name: str, epoch: int | None) -> None:
        known = [time for time in (self._step.tester.seen.get(name), epoch) if time is not None]
        self._step.tester.seen[name] = max(known, default=None)

    def keyed(self, kinds: Mapping[str, set[str]]) -> None:
        tester = self._step.tester
        tester._key_kinds = merged_kinds(tester._key_kinds, kinds_by_name(self.operator, kinds))

    def batch_identity(self, *, keyed: bool) -> str:
        return self.operator

    def count(self, label: str, number: int) -> None:
        counts, name = self._step.tester.counts, f"{self.operator}/{label}"
        counts[name] = counts.get(name, 0) + number

    def _table(self, table: str) -> str:
        return f"{self.operator}/{table}" if table else self.operator

    def shards(self) -> Iterable[int]:
        return sorted(set(self._step.tester._copies.shards()) | self._step.state.touched())

    def shards_awake(self, timers: TimerTable) -> Iterable[int]:
        return timers.candidates(self.shards)

    def all_shards(self) -> Iterable[int]:
        return range(self._step.tester.n_shards)


def _no_files(ref: FileRef) -> Any:
    raise StateError(f"a step under test has no state files, but needs {ref.name}")
