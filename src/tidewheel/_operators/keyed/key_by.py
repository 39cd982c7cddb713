"""key_by: say which messages belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.fields_read import fields_read
from tidewheel._core.keys import kinds_of, to_stored
from tidewheel._operators.accepted import accepted, accepted_places
from tidewheel._operators.base import Context, Operator, Process, Reads, columns_of, each, reads_of_function, without
from tidewheel._values import Batch, Shape
from tidewheel._values.exact import plain_array
from tidewheel.errors import GraphError, OperatorError

_KEYABLE = "a string, integer, binary, boolean or floating-point column"


@dataclass(frozen=True)
class KeyBy(Operator):
    """Give each message a key: the value of a column, or what a function returns for it.

    `value` names the one column that is all the rest of the program needs: it becomes the value, and no other
    column is carried through the shuffle.
    """

    key: str | Callable[[Any], Any]
    value: str | None = None
    former_key: str | None = None
    """The column that rows of aggregates get, which do not have it themselves, for the key that they had until here."""
    kind = "key_by"
    shuffles = True

    @property
    def key_name(self) -> str:
        """The name of the key's column in a sink."""
        return self.key if isinstance(self.key, str) else "key"

    def start(self, context: Context) -> Process:
        return _ByColumn(self.key, self, context) if isinstance(self.key, str) else _ByFunction(self.key, self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Values pass unchanged, unless one column is chosen."""
        return inputs if self.value is None else (inputs[0].column_shape(self.value),)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs if self.value is None else (None,)

    def with_former_key(self, batch: Batch) -> Batch:
        """Return rows with a column for the key that they have had, where it is known and they lack one of its name."""
        name = self.former_key
        if name is None or not batch.has_columns or not batch.keyed or name in batch.columns.schema.names:
            return batch
        keys = batch.key_array()
        if keys is None:
            return batch
        names = [name, *batch.columns.schema.names]
        return batch.with_columns(batch.shape, pa.RecordBatch.from_arrays([keys, *batch.columns.columns], names))

    def reads(self) -> Reads | None:
        if not isinstance(self.key, str):
            return None
        return Reads((self.key,), (0,)) if self.value is None else Reads((self.key, self.value))

    def reads_by_code(self, shape: Shape) -> Reads | None:
        if isinstance(self.key, str) or self.value is not None:
            return self.reads()
        return reads_of_function(fields_read(self.key, 0), shape, (0,))

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        for column in (self.key, self.value):
            if isinstance(column, str) and known is not None and column not in known:
                raise GraphError(f"there is no column {column!r}; {inputs[0].describe()} has {', '.join(known)}")


def chosen(context: Context, batch: Batch, column: str | None) -> Batch:
    """Return the batch with the one column as its value, or as it is when none is chosen."""
    if column is None:
        return batch
    array = column_of(batch, column)
    return batch.with_columns(context.shapes[0], pa.RecordBatch.from_arrays([array], [column]))


def column_of(batch: Batch, column: str) -> pa.Array:
    """Return a column of the values, or say which columns there are."""
    columns = columns_of(batch)
    position = columns.schema.get_field_index(column)
    if position < 0:
        raise OperatorError(f"there is no column {column!r}; the values have {', '.join(columns.schema.names)}")
    return columns.column(position)


def key_array(array: pa.Array) -> pa.Array:
    """Return the key column in the one type per kind of key that the shuffle carries."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return key_array(array.dictionary_decode())
    for fits, carried in _CARRIED:
        if fits(kind):
            # 0.0 and -0.0 are one key.
            return pc.add(array.cast(carried), 0.0) if pa.types.is_floating(kind) else array.cast(carried)
    hint = "; a time as a key is text, such as start.isoformat()" if pa.types.is_temporal(kind) else ""
    raise OperatorError(f"a key must be {_KEYABLE}; this one is of type {kind}{hint}")


_CARRIED = (
    (pa.types.is_string, pa.string()),
    (pa.types.is_integer, pa.int64()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_floating, pa.float64()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_null, pa.string()),
)
"""Types of columns that can be keys, each with the type that it is carried as."""

_KINDS = {pa.string(): "str", pa.int64(): "int", pa.binary(): "bytes", pa.bool_(): "bool", pa.float64(): "float"}
"""What keys of the carried types are in Python."""


class _ByColumn(Process):
    def __init__(self, column: str, operator: KeyBy, context: Context) -> None:
        self.column, self.operator, self.context = column, operator, context

    def on_batch(self, batch: Batch, port: int) -> None:
        # Values are made columns once: for the key, and for the shuffle behind it.
        for part, (keyed, keys) in accepted(self.context, self.operator.with_former_key(batch).exact(), self._keyed):
            for position in _not_keys(keys):
                what = "NaN" if keys[position].is_valid else "null"
                error = OperatorError(
                    f"the key column {self.column!r} is {what}; filter such records out before key_by"
                )
                self.context.reject(error, part, position)
            self.context.emit(keyed)

    def _keyed(self, batch: Batch) -> tuple[Batch, pa.Array]:
        """Return the messages that have a key under it, and the keys of all, which may be null."""
        carried = batch.carried
        if batch.form is not None and carried is not None and self.column in carried.schema.names:
            column = carried.column(self.column)
        else:
            column = column_of(batch, self.column)
        keys = present = key_array(column)
        refused = _not_keys(keys)
        if refused:
            batch, present = without(batch, refused), keys.filter(pa.array(_mask(len(keys), refused)))
        keyed = chosen(self.context, batch, self.operator.value).keyed_by(column=present)
        if len(present):
            self.context.keyed({"": {_KINDS[keys.type]}})
        return keyed, keys


def _not_keys(keys: pa.Array) -> list[int]:
    """Return the positions of keys that are null or NaN."""
    wrong = pc.is_null(keys, nan_is_null=True)
    positions: list[int] = pc.indices_nonzero(wrong).to_pylist()
    return positions


def _mask(length: int, refused: list[int]) -> npt.NDArray[np.bool_]:
    mask = np.ones(length, bool)
    mask[refused] = False
    return mask


class _ByFunction(Process):
    def __init__(self, function: Callable[[Any], Any], operator: KeyBy, context: Context) -> None:
        self.function, self.operator, self.context = function, operator, context
        self.read = fields_read(function, 0)

    def on_batch(self, batch: Batch, port: int) -> None:
        batch = self.operator.with_former_key(batch)
        keys, rejected = each(self.context, batch, self.function, self.read)
        parts = accepted_places(
            self.context, without(batch, rejected), lambda part, place: self._keyed(part, keys[place])
        )
        for _, keyed in parts:
            self.context.emit(keyed)

    def _keyed(self, batch: Batch, keys: list[Any]) -> Batch:
        column = plain_array(keys)
        if column is None or pa.types.is_floating(column.type):
            for key in keys:
                to_stored(key)
            keys = [key + 0.0 if type(key) is float else key for key in keys]
            column = plain_array(keys)
        keyed = chosen(self.context, batch, self.operator.value).keyed_by(keys=keys, column=column)
        if keys:
            self.context.keyed(kinds_of(keys) if column is None else {"": {_KINDS[column.type]}})
        return keyed
