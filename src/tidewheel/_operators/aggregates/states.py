"""States of aggregators as stored bytes, and back: msgpack of plain values, so that tools can read them."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.groups import combined, list_array, list_sizes
from tidewheel._state.tagged import NUMBERS, decode, tagged
from tidewheel.errors import StepError

_EXTENSION, _BYTES, _HEAD = 0xC9, 0xC6, 11
"""The msgpack tags of an extension type and of bytes, with lengths of 4 bytes, and the size of both heads."""
_CODES = {pa.int64(): "q", pa.float64(): "d"}
_encode = msgspec.msgpack.Encoder().encode
_NATIVE = (pa.types.is_int64, pa.types.is_float64, pa.types.is_boolean, pa.types.is_string, pa.types.is_binary)


def encoded(states: Any) -> list[bytes]:
    """Return each state as bytes; a null is empty."""
    array = combined(states)
    if pa.types.is_list(array.type) and array.type.value_type in _CODES and not array.flatten().null_count:
        return _lists_of_numbers(array, NUMBERS[_CODES[array.type.value_type]])
    values = _python(array)
    if _is_native(array.type):
        return [b"" if value is None else _encode(value) for value in values]
    return [b"" if value is None else _encode(tagged(value)) for value in values]


def decoded(states: list[bytes]) -> pa.Array:
    """Return the states as an array, whose type is that of the values."""
    for kind, code in _CODES.items():
        if any(states) and all(not state or (state[0] == _EXTENSION and state[5] == NUMBERS[code]) for state in states):
            numbers = np.frombuffer(b"".join([state[_HEAD:] for state in states]), f"<{code}")
            lists = list_array(pa.array(numbers, kind), np.array([max(len(state) - _HEAD, 0) // 8 for state in states]))
            return lists if all(states) else _with_nulls(lists, states)
    try:
        return _array([decode(state) if state else None for state in states])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StepError(
            f"stored values of an aggregate are of types that do not fit together: {error}; convert the column before it"
        ) from None


def normal(column: pa.Array) -> pa.Array:
    """Return a column in the type that values have when they are read from state again."""
    column = combined(column)
    kind = column.type
    for test, wanted in _WANTED:
        if test(kind):
            return column if kind == wanted else column.cast(wanted)
    if pa.types.is_timestamp(kind):
        # Python's times have no nanoseconds. Those that have are rejected.
        return column if kind.unit == "us" else column.cast(pa.timestamp("us", kind.tz))
    return column


_WANTED = (
    (pa.types.is_integer, pa.int64()),
    (pa.types.is_floating, pa.float64()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_duration, pa.duration("us")),
)


def _lists_of_numbers(lists: pa.ListArray, tag: int) -> list[bytes]:
    """Return lists as extension types whose data is that of the array: no Python object for each number."""
    data, there = lists.flatten().to_numpy().tobytes(), lists.is_valid().to_pylist()
    ends = (np.cumsum(list_sizes(lists)) * 8).tolist()
    made = []
    for begin, end, valid in zip([0, *ends], ends, there, strict=False):
        size = end - begin
        head = bytes((_EXTENSION,)) + (size + 5).to_bytes(4, "big") + bytes((tag, _BYTES)) + size.to_bytes(4, "big")
        made.append(head + data[begin:end] if valid else b"")
    return made


def _with_nulls(lists: pa.ListArray, states: list[Any]) -> pa.ListArray:
    mask = pa.array([not state and not isinstance(state, list) for state in states])
    return pa.ListArray.from_arrays(lists.offsets, lists.values, mask=mask)


def _is_native(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_native(field.type) for field in kind)
    return _is_native(kind.value_type) if pa.types.is_list(kind) else any(test(kind) for test in _NATIVE)


def _python(array: pa.Array) -> list[Any]:
    """Return the values of an array. `to_pylist` takes several times as long for lists and structs."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [_python(array.field(at)) for at in range(len(names))]
        made: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
    elif pa.types.is_list(kind):
        items = _python(array.flatten())
        ends = np.concatenate([[0], np.cumsum(list_sizes(array))]).tolist()
        made = [items[begin:end] for begin, end in pairwise(ends)]
    elif (pa.types.is_int64(kind) or pa.types.is_float64(kind)) and not array.null_count:
        return array.to_numpy().tolist()  # type: ignore[no-any-return]
    else:
        return array.to_pylist()  # type: ignore[no-any-return]
    if array.null_count:
        there = array.is_valid().to_pylist()
        return [value if valid else None for value, valid in zip(made, there, strict=True)]
    return made


def _array(values: list[Any]) -> pa.Array:
    """Return values as an array; the opposite of `_python`."""
    found = next((value for value in values if value is not None), None)
    if isinstance(found, dict):
        fields = [_array([None if value is None else value[name] for value in values]) for name in found]
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(fields, list(found), mask=mask)
    if isinstance(found, list):
        items = _array(list(chain.from_iterable(value for value in values if value is not None)))
        sizes = np.array([0 if value is None else len(value) for value in values], np.int64)
        lists = list_array(items, sizes)
        return _with_nulls(lists, values) if None in values else lists
    return pa.array(values)
