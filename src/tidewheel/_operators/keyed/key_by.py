"""key_by: give each message a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.bytecode_reads import analyse_reads
from tidewheel._core.keys import kinds_of, to_stored
from tidewheel._operators.accepted import accepted, accepted_places
from tidewheel._operators.base import Context, Operator, Process, Reads, columns_of, each, reads_of_function, without
from tidewheel._operators.windows.window_result import with_key
from tidewheel._values import Batch, Shape
from tidewheel._values.columns import is_encoded_text
from tidewheel._values.exact import plain_array
from tidewheel.errors import GraphError, StepError

_KEYABLE = "a string, integer, binary, boolean or floating-point column"


@dataclass(frozen=True)
class KeyBy(Operator):
    """Give each message a key: the value of a column, or the result of a function.

    `value` names a column that becomes the new value. Then no other column is sent through the shuffle.
    """

    key: str | Callable[..., Any]
    value: str | None = None
    former_key: str | None = None
    """The column for the previous key, which rows of aggregates would otherwise lose."""
    times_as_numbers: bool = False
    """Whether the key column may have timestamps, whose keys are numbers; users convert them to text themselves."""
    with_key: bool = False
    """Whether the function is called with the previous key and the value."""
    kind = "key_by"
    shuffles = True

    @property
    def key_name(self) -> str:
        """The name of the key's column in a sink."""
        return self.key if isinstance(self.key, str) else getattr(self.key, "key_name", None) or "key"

    def start(self, context: Context) -> Process:
        return _ByColumn(self.key, self, context) if isinstance(self.key, str) else _ByFunction(self.key, self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Values pass unchanged, unless one column is chosen."""
        return inputs if self.value is None else (inputs[0].column_shape(self.value),)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs if self.value is None else (None,)

    def with_former_key(self, batch: Batch) -> Batch:
        """Return rows with a column for their previous key, if its name is known and the rows have no such column."""
        name = self.former_key
        if name is None or not batch.keyed:
            return batch
        if not batch.has_columns:
            return batch.with_values(batch.shape, list(map(partial(with_key, name), batch.keys, batch.values)))
        if name in batch.columns.schema.names:
            return batch
        names, arrays = [name, *batch.columns.schema.names], [batch.written_keys(), *batch.columns.columns]
        return batch.with_columns(batch.shape, pa.RecordBatch.from_arrays(arrays, names))

    def reads(self) -> Reads | None:
        if not isinstance(self.key, str):
            return None
        return Reads((self.key,), (0,)) if self.value is None else Reads((self.key, self.value))

    def reads_by_code(self, shape: Shape) -> Reads | None:
        if isinstance(self.key, str) or self.value is not None:
            return self.reads()
        return reads_of_function(analyse_reads(self.key, int(self.with_key)), shape, (0,))

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        for column in (self.key, self.value):
            if isinstance(column, str) and known is not None and column not in known:
                raise GraphError(f"there is no column {column!r}; {inputs[0].describe()} has {', '.join(known)}")


def chosen(context: Context, batch: Batch, column: str | None) -> Batch:
    """Return the batch with the chosen column as its value, or unchanged if no column is chosen."""
    if column is None:
        return batch
    array = column_of(batch, column)
    return batch.with_columns(context.shapes[0], pa.RecordBatch.from_arrays([array], [column]))


def column_of(batch: Batch, column: str) -> pa.Array:
    """Return a column of the values, or raise an error that lists the columns."""
    columns = columns_of(batch)
    position = columns.schema.get_field_index(column)
    if position < 0:
        raise StepError(f"there is no column {column!r}; the values have {', '.join(columns.schema.names)}")
    return columns.column(position)


def key_array(array: pa.Array) -> pa.Array:
    """Return the key column, converted to the type in which the shuffle sends keys of this kind."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return key_array(array.dictionary_decode())
    for fits, carried in _CARRIED:
        if fits(kind):
            # 0.0 and -0.0 are one key.
            return pc.add(array.cast(carried), 0.0) if pa.types.is_floating(kind) else array.cast(carried)
    hint = "; convert a time to text, such as start.isoformat()" if pa.types.is_temporal(kind) else ""
    raise StepError(f"a key must be {_KEYABLE}; this one has the type {kind}{hint}")


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
"""The column types that can be keys, each with the type in which the shuffle sends it."""

_KINDS = {pa.string(): "str", pa.int64(): "int", pa.binary(): "bytes", pa.bool_(): "bool", pa.float64(): "float"}
"""The Python types of keys, by the type in which the shuffle sends them."""


class _ByColumn(Process):
    def __init__(self, column: str, operator: KeyBy, context: Context) -> None:
        self.column, self.operator, self.context = column, operator, context
        read = context.columns_read()
        self._key_is_read = read is None or column in read
        self._dictionary: pa.Array | None = None
        """The last dictionary that was found to have each key once."""

    def on_batch(self, batch: Batch, port: int) -> None:
        # Convert the values to columns once, for the key and for the shuffle.
        for part, (keyed, keys) in accepted(self.context, self.operator.with_former_key(batch).exact(), self._keyed):
            for position in _not_keys(keys):
                what = "NaN" if keys[position].is_valid else "null"
                error = StepError(f"the key column {self.column!r} is {what}; filter such records out before key_by")
                self.context.reject(error, part, position)
            self.context.emit(keyed)

    def _keyed(self, batch: Batch) -> tuple[Batch, pa.Array]:
        """Return the messages that have a valid key, with that key, and the keys of all messages, which may be null."""
        carried = batch.carried
        if batch.form is not None and carried is not None and self.column in carried.schema.names:
            column = carried.column(self.column)
        else:
            column = column_of(batch, self.column)
        if self._has_keys_as_codes(column):
            self.context.keyed({"": {"str"}})
            return self._under_codes(batch, column), column
        if self.operator.times_as_numbers and pa.types.is_temporal(column.type):
            column = column.cast(pa.int64())
        keys = present = key_array(column)
        refused = _not_keys(keys)
        if refused:
            batch, present = without(batch, refused), keys.filter(pa.array(_mask(len(keys), refused)))
        keyed = chosen(self.context, batch, self.operator.value).keyed_by(column=present)
        if len(present):
            self.context.keyed({"": {_KINDS[keys.type]}})
        return keyed, keys

    def _has_keys_as_codes(self, column: pa.Array) -> bool:
        """Return whether a column is dictionary-encoded text without nulls whose dictionary has each key once."""
        if not is_encoded_text(column.type) or not len(column) or column.null_count or column.dictionary.null_count:
            return False
        # The batches of a file often have the same dictionary.
        if self._dictionary is None or not self._dictionary.equals(column.dictionary):
            if len(column.dictionary.unique()) < len(column.dictionary):
                return False
            self._dictionary = column.dictionary
        return True

    def _under_codes(self, batch: Batch, codes: pa.DictionaryArray) -> Batch:
        """Return the messages under dictionary-encoded keys; a key that a step reads in the values is plain text there."""
        value = self.operator.value
        if value == self.column or (value is None and self._key_is_read):
            position = batch.columns.schema.get_field_index(self.column)
            columns = batch.columns.set_column(position, self.column, codes.dictionary_decode())
            batch = batch.with_columns(batch.shape, columns)
        return chosen(self.context, batch, value).keyed_by(column=codes)


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
    def __init__(self, function: Callable[..., Any], operator: KeyBy, context: Context) -> None:
        self.function, self.operator, self.context = function, operator, context
        self.read = analyse_reads(function, int(operator.with_key))

    def on_batch(self, batch: Batch, port: int) -> None:
        batch = self.operator.with_former_key(batch)
        keys, rejected = each(self.context, batch, self.function, self.read, self.operator.with_key)
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
