"""lookup: join each value with the row of a reference table that has its key, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tidewheel._connectors.tables.table import Table
from tidewheel._operators.accepted import OF_THE_RUN, accepted
from tidewheel._operators.annotations import returned
from tidewheel._operators.base import Context, Operator, Process, Reads, columns_of, each, readable, without
from tidewheel._values import ROW, Batch, Shape, shape_of
from tidewheel._values.columns import repeats
from tidewheel._values.exact import optional_array
from tidewheel._values.keyed_table import KeyedRows, NotAKey, Rows, key_column
from tidewheel.errors import GraphError, StepError

How = Literal["inner", "left"]


@dataclass(frozen=True, eq=False)
class Lookup(Operator):
    """Add columns of the matching row to each value; or combine value and row by a function."""

    table: Table
    on: tuple[str, ...] | Callable[[Any], Any] | None
    """The columns of the value that have the key, or a function that returns it; None: the key of the stream."""
    how: How
    columns: Mapping[str, str] | None = None
    """The columns of the table to add, each with its new name; None: all that are not part of the key."""
    combine: Callable[[Any, Any], Any] | None = None
    """Called with the value and the row, or None; returns the new value."""
    returns: Any = None
    kind = "lookup"

    def start(self, context: Context) -> Process:
        return _Joining(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, because columns are added, unless a function makes the values."""
        return (ROW,) if self.combine is None else (shape_of(self.returns or returned(self.combine)),)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        for column in self._key_columns():
            if known is not None and column not in known:
                raise GraphError(f"there is no column {column!r}; {inputs[0].describe()} has {', '.join(known)}")

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        given, table = inputs[0], self.table.schema
        if given is None or table is None:
            return (None,)
        for column, wanted in zip(self._key_columns(), self.table.key_types() or (), strict=False):
            if column not in given.names:
                raise GraphError(f"there is no column {column!r}; the values have {', '.join(given.names)}")
            self.check_type(column, given.field(column).type, wanted)
        if self.combine is not None:
            return (None,)
        added = self.added(table)
        self.check_names(given.names, added)
        fields = [table.field(name).with_name(new).with_nullable(True) for name, new in added.items()]
        return (pa.schema([*given, *fields]),)

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        if callable(self.on) or self.combine is not None:
            return None
        known = self.columns if self.table.schema is None else self.added(self.table.schema)
        return None if known is None else Reads(self._key_columns(), (0,), made=frozenset(known.values()))

    def added(self, schema: pa.Schema) -> Mapping[str, str]:
        """Return the columns of the table to add, with their new names; raise a `GraphError` if the table lacks one."""
        if self.columns is None:
            return {name: name for name in schema.names if name not in self.table.key}
        for name in self.columns:
            if name not in schema.names:
                raise GraphError(
                    f"the table {self.table.name!r} has no column {name!r}; it has {', '.join(schema.names)}"
                )
        return self.columns

    def check_names(self, present: list[str], added: Mapping[str, str]) -> None:
        """Raise a `GraphError` if the values have one of the added columns already."""
        twice = sorted({*present} & {*added.values()})
        if twice:
            raise GraphError(
                f"the values and the table {self.table.name!r} both have a column {twice[0]!r}; add it under another "
                f"name: columns={{{twice[0]!r}: {self.table.name + '_' + twice[0]!r}, …}}"
            )

    def check_type(self, column: str, given: pa.DataType, wanted: pa.DataType) -> None:
        """Raise a `GraphError` if a key of the values can never be one of the table."""
        try:
            kind = key_column(pa.array([], given)).type
        except NotAKey as error:
            raise GraphError(f"the key {column!r} cannot be looked up: {error}") from None
        if kind != wanted and not pa.types.is_null(given) and not pa.types.is_null(wanted):
            raise GraphError(
                f"the key {column!r} has the type {given} in the stream and {wanted} in the table {self.table.name!r}: "
                "no row would be found. Convert one of them"
            )

    def _key_columns(self) -> tuple[str, ...]:
        return self.on if isinstance(self.on, tuple) else ()


class _Joining(Process):
    def __init__(self, operator: Lookup, context: Context) -> None:
        self.operator, self.context = operator, context
        self.table: KeyedRows = context.table(operator.table)
        self.added = operator.added(self.table.schema)
        self.checked: pa.Schema | None = None
        """The columns whose names were last found to fit."""

    def on_batch(self, batch: Batch, port: int) -> None:
        try:
            parts = list(
                accepted(self.context, batch, lambda part: self._found(part, len(batch)), (*OF_THE_RUN, GraphError))
            )
        except GraphError as error:
            raise StepError(f"step {self.context.operator!r} (lookup): {error}") from None
        for part, rows in parts:
            if self.operator.how == "inner":
                kept = np.flatnonzero(rows >= 0)
                if len(kept) < len(rows):
                    self.context.count("dropped", len(rows) - len(kept))
                    part, rows = part.take(kept), rows[kept]
            self.context.emit(self._joined(part, rows) if self.operator.combine is None else self._combined(part, rows))

    def _found(self, batch: Batch, whole: int) -> Rows:
        """Return the row of each message, or -1. Raise a `GraphError` if the keys of a whole batch have another type."""
        if self.operator.combine is None:
            columns = columns_of(batch)
            if columns.schema != self.checked:
                self.operator.check_names(columns.schema.names, self.added)
                self.checked = columns.schema
        names, keys = self._keys(batch)
        for name, column, wanted in zip(names, keys, self.table.key_types, strict=True):
            try:
                self.operator.check_type(name, column.type, wanted)
            except GraphError as error:
                raise (error if len(batch) == whole else StepError(str(error))) from None
        if len(keys) > 1:
            return self.table.find([key_column(column) for column in keys])
        return _found_by_code(self.table, keys[0])

    def _keys(self, batch: Batch) -> tuple[Sequence[str], list[pa.Array]]:
        """Return the columns with the keys, and their names for messages."""
        on, parts = self.operator.on, self.operator.table.key
        if isinstance(on, tuple):
            columns = columns_of(batch)
            for name in on:
                if name not in columns.schema.names:
                    raise StepError(f"there is no column {name!r}; the values have {', '.join(columns.schema.names)}")
            return on, [columns.column(name) for name in on]
        if on is None and len(parts) == 1 and batch.key_data is not None:
            return parts, [batch.key_data]
        keys = batch.keys if on is None else list(map(on, batch.values))
        if len(parts) == 1:
            return parts, [_key_array(keys)]
        for key in keys:
            if not isinstance(key, tuple) or len(key) != len(parts):
                raise StepError(f"the key {key!r} is not a tuple of {len(parts)} parts: {', '.join(parts)}")
        return parts, [_key_array(list(column)) for column in zip(*keys, strict=True)]

    def _joined(self, batch: Batch, rows: Rows) -> Batch:
        columns = columns_of(batch)
        arrays = [*columns.columns, *self.table.take(rows, list(self.added))]
        names = [*columns.schema.names, *self.added.values()]
        return batch.with_columns(self.context.shapes[0], pa.RecordBatch.from_arrays(arrays, names))

    def _combined(self, batch: Batch, rows: Rows) -> Batch:
        combine = self.operator.combine
        assert combine is not None
        taken = pa.RecordBatch.from_arrays(self.table.take(rows, list(self.added)), list(self.added.values()))
        found = Batch(ROW, columns=taken).values
        batch = readable(self.context, batch) if len(batch) else batch
        pairs = iter([value if row >= 0 else None for value, row in zip(found, rows.tolist(), strict=True)])
        values, rejected = each(self.context, batch, lambda value: combine(value, next(pairs)))
        return without(batch, rejected).with_values(self.context.shapes[0], values)


def _found_by_code(table: KeyedRows, column: pa.Array) -> Rows:
    """Return the row of each key of a column; a key that repeats is looked up once."""
    if not pa.types.is_dictionary(column.type):
        column = key_column(column)
        if not repeats(column):
            return table.find([column])
        column = column.dictionary_encode()
    of_code = table.find([key_column(column.dictionary)])
    # The last place is for null.
    rows: Rows = np.append(of_code, -1)[column.indices.fill_null(len(of_code)).to_numpy()]
    return rows


def _key_array(keys: list[Any]) -> pa.Array:
    found = optional_array(keys)
    if found is None:
        kinds = ", ".join(sorted({type(key).__name__ for key in keys}))
        raise StepError(f"the keys are of the type {kinds}; a key must be text, an integer or bytes")
    return found
