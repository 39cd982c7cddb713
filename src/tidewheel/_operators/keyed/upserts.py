"""upserts: a table with one row per key, in state, built from changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel._codecs.debezium import Change
from tidewheel._operators.base import Context, Operator, Process
from tidewheel._operators.graph import Graph, Port
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.stateful_op import LogicProcess
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._operators.stateless.inspect import Inspect
from tidewheel._operators.timestamps.assign_timestamps import AssignTimestamps
from tidewheel._operators.timestamps.generate_epochs import GenerateEpochs
from tidewheel._operators.timestamps.inspect_frontier import InspectFrontier
from tidewheel._values import DICT, Shape
from tidewheel._values.records import field_names, has_fields, optional_field
from tidewheel.errors import StepError

DELETED = "_deleted"
"""The column of emitted rows that says whether the row was deleted."""
_UNCHANGING = (AssignTimestamps, GenerateEpochs, Inspect, InspectFrontier)
"""Steps whose messages are those of their input."""

Row = dict[str, Any]


@dataclass(frozen=True)
class KeyOfChange:
    """A function that returns the key of a changed row: the value of its column, or a tuple of several columns."""

    columns: tuple[str, ...]

    @property
    def key_name(self) -> str | None:
        """The name of the column that has the key; None for several columns."""
        return self.columns[0] if len(self.columns) == 1 else None

    def __call__(self, value: Any) -> Any:
        """Return the key; raise a `StepError` that names the column if there is none."""
        if isinstance(value, Change):
            records: tuple[Any, ...] = (value.row, value.before, value.key)
        else:
            records = (value,)
        found = tuple(self._found(name, value, records) for name in self.columns)
        return found[0] if len(found) == 1 else found

    def _found(self, name: str, value: Any, records: tuple[Any, ...]) -> Any:
        present = [each for each in records if each is not None and has_fields(type(each))]
        values = [optional_field(each, name) for each in present]
        found = next((each for each in values if each is not None), None)
        if found is None:
            what = (
                f"the {value.op} of the table {value.table or 'of a tombstone'}" if isinstance(value, Change) else "it"
            )
            fields = sorted({field for each in present for field in field_names(each)})
            raise StepError(
                f"{what} has no value in the key column {name!r}; it has {', '.join(fields) or 'no columns'}. "
                "Name the columns of the primary key with key="
            )
        return found


@dataclass(frozen=True)
class Upserts(Operator):
    """Keep the newest row of each key. Emit each row that changed, with the column `_deleted`."""

    columns: tuple[str, ...]
    """The columns of the key."""
    delete: Callable[[Any], Any] | None
    """Whether a record deletes the row of its key; not used for a `Change`."""
    without: str | None = None
    """The column of records that is not part of the row."""
    kind = "upserts"
    stateful = True
    order_matters = True

    def start(self, context: Context) -> Process:
        logic = UpsertLogic(self)
        return LogicProcess(logic, (logic.on_data,), self.spec(), context)

    def spec(self) -> StateSpec:
        """Return the description of its state: the row of a key."""
        return StateSpec(default=dict)

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": self.spec()}

    @property
    def codec_name(self) -> str:
        return self.spec().resolved_codec().name

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (DICT,)


class UpsertLogic(StatefulLogic[Row]):
    """The state of a key is its row; a key without a row has an empty one."""

    _all_or_nothing = True

    def __init__(self, operator: Upserts) -> None:
        self.delete, self.without = operator.delete, operator.without

    def on_data(self, message: Message, state: Row, output: Any) -> Row | None:
        """Take a change. A change that changes nothing emits nothing, such as a tombstone after its delete."""
        row = self._row(message.value, state)
        if row is None:
            if state:
                output.emit({**state, DELETED: True})
            return None
        if row != state:
            if DELETED in row:
                raise StepError(f"the row has a column {DELETED!r}, which is reserved; rename it before upserts")
            output.emit({**row, DELETED: False})
        return row

    def _row(self, value: Any, state: Row) -> Row | None:
        """Return the new row; None if it was deleted."""
        if isinstance(value, Change):
            if value.row is None:
                return None
            kept = {name: state[name] for name in value.unchanged if name in state}
            return {**value.row, **kept} if value.unchanged else value.row
        if not has_fields(type(value)):
            raise StepError(f"upserts takes records with columns, or changes of codecs.debezium, not {value!r}")
        if self.delete is not None and self.delete(value):
            return None
        return {name: optional_field(value, name) for name in field_names(value) if name != self.without}


def upserts_at(graph: Graph, port: Port) -> Upserts | None:
    """Return the `upserts` whose rows are the messages of this port; None if other steps may have changed them."""
    node = graph.nodes[port.node]
    while isinstance(node.operator, _UNCHANGING):
        node = graph.nodes[node.inputs[0].node]
    return node.operator if isinstance(node.operator, Upserts) else None


def row_of(value: Row) -> Row | None:
    """Return the row of an emitted change; None if the row was deleted."""
    return None if value[DELETED] else {name: each for name, each in value.items() if name != DELETED}


def time_of_change(change: Change) -> Any:
    """Return the time of a change, for its message."""
    if change.time is None:
        raise StepError("the change has no time: neither the event nor its message has one")
    return change.time
