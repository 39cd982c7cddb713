"""The services that a task offers one of its steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._connectors.tables.table import Table
from tidewheel._core.transient import raise_transient
from tidewheel._core.user_code import stop_at
from tidewheel._engine.batch_spec import WholeRecordsNeeded
from tidewheel._engine.key_kinds import kinds_by_name, merged_kinds
from tidewheel._engine.plan import columns_read_behind
from tidewheel._engine.task_tables import open_table
from tidewheel._operators.graph import Node, Port
from tidewheel._state.codec import StateCodec
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.raw_table import RawTable
from tidewheel._state.row_table import RepeatedRows, RowTable
from tidewheel._state.timers import SUFFIX as TIMERS
from tidewheel._state.timers import TimerTable
from tidewheel._values import Batch
from tidewheel._values.keyed_table import KeyedRows
from tidewheel.errors import StepError

if TYPE_CHECKING:
    from tidewheel._engine.task import TaskStep


class StepContext:
    """The `Context` of one step in one task."""

    def __init__(self, step: TaskStep, node: Node) -> None:
        """Take the task, and the step that uses it."""
        self._step, self._node = step, node
        self.operator = node.name
        self.shapes = node.shapes
        self.timestamps = node.timestamps
        self.now = step.spec.now
        self.begin()

    def begin(self) -> None:
        """Take the batch's own epochs."""
        self.last_epoch = self._step.spec.last_epoch
        self.epoch = self._step.spec.epoch
        self._only_behind = False

    def catch_up(self, last_epoch: int | None, epoch: int) -> None:
        """Take, until `begin`, the epochs of the shards that are behind, and see no other shards."""
        self.last_epoch, self.epoch, self._only_behind = last_epoch, epoch, True

    def emit(self, batch: Batch, port: int = 0) -> None:
        self._step.emit(Port(self._node.id, port), batch)

    def write(self, columns: pa.RecordBatch) -> None:
        self._step.output.write(self._node, columns)

    def reject(self, error: Exception, batch: Batch, position: int, *, stop: bool = False) -> None:
        stop_at(error)
        self.check_transient(error)
        if self._step.spec.partial:
            raise WholeRecordsNeeded(f"step {self.operator!r} rejects a record") from error
        self._step.output.reject(self._node, error, batch, position, stop=stop)

    def check_transient(self, error: Exception) -> None:
        raise_transient(self.operator, error, self._node.retry)

    def keeps_rejected(self) -> bool:
        return self._step.plan.dead_letter is not None

    def table(self, table: Table) -> KeyedRows:
        return open_table(self._step.spec, self._step.store, table)

    def state(self, codec: StateCodec, default: Callable[[], Any], table: str = "") -> KeyedState:
        return self._step.state.opened.keyed(self._table(table), codec, default)

    def raw_table(self) -> RawTable:
        return self._step.state.opened.raw(self._table(""))

    def row_table(self) -> RowTable | RepeatedRows:
        if self._step.repeats:
            # Shards that catch up do so before the batch's own data.
            return RepeatedRows(self.raw_table())
        return self._step.state.opened.rows(self._table(""))

    def timers(self, table: str = TIMERS) -> TimerTable:
        return self._step.state.opened.timers(self._table(table))

    def columns_read(self) -> Collection[str] | None:
        return columns_read_behind(self._step.plan, Port(self._node.id))

    def clock(self) -> int | None:
        return self.last_epoch if self.epoch is None else self.epoch

    def report_clock_input(self, name: str, epoch: int | None) -> None:
        before = self._step.frontiers.get(name)
        if epoch is None or before is None or epoch > before:
            self._step.frontiers[name] = before if epoch is None else epoch

    def keyed(self, kinds: Mapping[str, set[str]]) -> None:
        try:
            self._step.key_kinds = merged_kinds(
                self._step.key_kinds, kinds_by_name(self.operator, kinds), plan=self._step.plan
            )
        except StepError as error:
            # The step that rejects the record names the step.
            raise StepError(str(error).removeprefix(f"step {self.operator!r}: ")) from None

    def batch_identity(self, *, keyed: bool) -> str:
        spec, task = self._step.spec, "" if keyed else self._step.task.partition
        return f"{spec.stream}:{self.operator}:{spec.after}:{task}"

    def count(self, label: str, number: int) -> None:
        name = f"{self.operator}/{label}"
        self._step.counts[name] = self._step.counts.get(name, 0) + number

    def _table(self, table: str) -> str:
        return f"{self.operator}/{table}" if table else self.operator

    def shards(self) -> Iterable[int]:
        return self._seen(self._step.state.shards())

    def shards_awake(self, timers: TimerTable) -> Iterable[int]:
        return self._seen(timers.candidates(self._step.state.shards))

    def all_shards(self) -> Iterable[int]:
        return self._seen(self._step.state.all_shards())

    def _seen(self, shards: list[int]) -> list[int]:
        return [shard for shard in shards if shard in self._step.spec.behind] if self._only_behind else shards
