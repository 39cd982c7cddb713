"""key_by: say which messages belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel.errors import GraphError, OperatorError
from tidewheel.operators.base import Context, Operator, Process, each, without
from tidewheel.values import SCALAR, Batch, Shape

_KEYABLE = "a string, integer, binary, boolean or floating-point column"


@dataclass(frozen=True)
class KeyBy(Operator):
    """Give each message a key: the value of a column, or what a function returns for it.

    `value` names the one column that is all the rest of the program needs: it becomes the value, and no other
    column is carried through the shuffle.
    """

    key: str | Callable[[Any], Any]
    value: str | None = None
    kind = "key_by"

    @property
    def key_name(self) -> str:
        """The name of the key's column in a sink."""
        return self.key if isinstance(self.key, str) else "key"

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _ByColumn(self.key, self, context) if isinstance(self.key, str) else _ByFunction(self.key, self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Values pass unchanged, unless one column is chosen."""
        return inputs if self.value is None else (SCALAR,)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        """Refuse a column that the declared type lacks."""
        known = inputs[0].columns()
        for column in (self.key, self.value):
            if isinstance(column, str) and known is not None and column not in known:
                raise GraphError(f"there is no column {column!r}; {inputs[0].describe()} has {', '.join(known)}")


def chosen(batch: Batch, column: str | None, operator: str) -> Batch:
    """Return the batch with the one column as its value, or as it is when none is chosen."""
    if column is None:
        return batch
    array = column_of(batch, column, operator)
    return batch.with_columns(SCALAR, pa.RecordBatch.from_arrays([array], [column]))


def column_of(batch: Batch, column: str, operator: str) -> pa.Array:
    """Return a column of the values, or say which columns there are."""
    columns = batch.columns
    position = columns.schema.get_field_index(column)
    if position < 0:
        raise OperatorError(
            f"operator {operator!r}: there is no column {column!r}; the values have {', '.join(columns.schema.names)}"
        )
    return columns.column(position)


def key_array(array: pa.Array, operator: str) -> pa.Array:
    """Return the key column in the one type per kind of key that the shuffle carries: string, int64 or binary."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_int64(kind) or pa.types.is_boolean(kind):
        return array
    if pa.types.is_integer(kind):
        return array.cast(pa.int64())
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return array.cast(pa.float64())
    raise OperatorError(f"operator {operator!r}: a key must be {_KEYABLE}; this one is of type {kind}")


class _ByColumn(Process):
    def __init__(self, column: str, operator: KeyBy, context: Context) -> None:
        self.column, self.operator, self.context = column, operator, context

    def on_batch(self, batch: Batch, port: int) -> None:
        name = self.context.operator
        keys = key_array(column_of(batch, self.column, name), name)
        if keys.null_count:
            empty = [position for position, key in enumerate(keys) if not key.is_valid]
            for position in empty:
                error = OperatorError(f"the key column {self.column!r} is null; filter such records out before key_by")
                self.context.reject(error, batch, position)
            batch = without(batch, empty)
            keys = keys.drop_null()
        self.context.emit(chosen(batch, self.operator.value, name).keyed_by(column=keys))


class _ByFunction(Process):
    def __init__(self, function: Callable[[Any], Any], operator: KeyBy, context: Context) -> None:
        self.function, self.operator, self.context = function, operator, context

    def on_batch(self, batch: Batch, port: int) -> None:
        keys: list[Any] = []
        rejected = each(self.context, batch, lambda values: keys.extend(map(self.key, values)))
        kinds = {type(key) for key in keys}
        if len(kinds) > 1:
            # 1, 1.0 and True are one key to a Python dict and three to the store.
            raise OperatorError(
                f"operator {self.context.operator!r}: all keys must be of one type, "
                f"not {' and '.join(sorted(kind.__name__ for kind in kinds))}; convert them in the key function"
            )
        batch = chosen(without(batch, rejected), self.operator.value, self.context.operator)
        self.context.emit(batch.keyed_by(keys=keys))

    def key(self, value: Any) -> Any:
        key = self.function(value)
        if key is None:
            raise OperatorError("the key function returned None; filter such records out, or give them a key")
        return key
