"""Arrow columns: their types, and their Python values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

_ENDS = pa.struct([("min", pa.int64()), ("max", pa.int64())])
# One day less at both ends, because of time zones.
_FIRST_S, _LAST_S = -62_135_510_400, 253_402_214_400


def without_columns(count: int) -> pa.RecordBatch:
    """Return so many rows that have no columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return one dict per row."""
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*map(values, batch.columns), strict=True)]


def values(column: pa.Array) -> list[Any]:
    """Return a column's Python values, maps as dicts, exactly as `to_pylist` does."""
    kind = column.type
    if kinds.is_timestamp(kind) and kind.unit != "ns":
        return _filled(column, _times)
    if kinds.is_date32(kind):
        return _filled(column, _dates)
    if kinds.is_dictionary(kind):
        # Convert each distinct value once.
        distinct = values(column.dictionary)
        return _filled(column.indices, lambda indices: list(map(distinct.__getitem__, indices.to_numpy().tolist())))
    if kinds.is_struct(kind) and kind.num_fields and _has_times(kind):
        return _structs(column)
    # Requesting dicts takes twenty times as long, even if there are none.
    return column.to_pylist(maps_as_pydicts="strict") if _has_maps(kind) else column.to_pylist()  # type: ignore[no-any-return]


def check_readable(columns: pa.RecordBatch) -> None:
    """Raise if Python cannot represent some of the values: times outside the years 1 to 9999."""
    for column in columns.columns:
        kind = column.type
        if kinds.is_timestamp(kind) or kinds.is_date(kind):
            if kinds.is_timestamp(kind) and kind.unit == "ns":
                continue
            ends = pc.min_max(column.cast(pa.timestamp("s", getattr(kind, "tz", None)), safe=False)).cast(_ENDS).as_py()
            if all(end is None or _FIRST_S < end < _LAST_S for end in ends.values()):
                continue
        elif not _has_times(kind):
            continue
        values(column)


def _has_times(kind: pa.DataType) -> bool:
    return kinds.is_temporal(kind) or any(_has_times(kind.field(at).type) for at in range(kind.num_fields))


def _filled(column: pa.Array, convert: Callable[[pa.Array], list[Any]]) -> list[Any]:
    """Apply `convert` to a column without its nulls, and return None in their places."""
    try:
        if column.null_count == 0:
            return convert(column)
        present = convert(column.drop_null())
    except (OverflowError, ValueError, TypeError):
        # Python cannot represent the time: `to_pylist` raises an error that says so.
        return column.to_pylist()  # type: ignore[no-any-return]
    rest = iter(present)
    return [next(rest) if there else None for there in column.is_valid().to_pylist()]


def _structs(column: pa.StructArray) -> list[Any]:
    """Return records with times, field by field: `to_pylist` looks up the zone for each time."""
    names = [column.type.field(at).name for at in range(column.type.num_fields)]
    if len({*names}) < len(names):
        return column.to_pylist()  # type: ignore[no-any-return]
    rows = zip(*map(values, column.flatten()), strict=True)
    if column.null_count == 0:
        return [dict(zip(names, row, strict=True)) for row in rows]
    present = column.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if there else None for there, row in zip(present, rows, strict=True)]


def _times(column: pa.Array) -> list[Any]:
    """Return times as datetimes, all at once: `to_pylist` looks up the zone for each (7 us per time)."""
    # Arrow detects numbers that are too large in microseconds, numpy does not.
    since = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy().view("m8[us]").tolist()
    if column.type.tz is None:
        return list(map(datetime(1970, 1, 1).__add__, since))
    zone = pa.lib.string_to_tzinfo(column.type.tz)
    return list(map(zone.fromutc, map(datetime(1970, 1, 1, tzinfo=zone).__add__, since)))


def _dates(column: pa.Array) -> list[Any]:
    dates: list[Any] = column.cast(pa.int32()).to_numpy().astype("M8[D]").tolist()
    if {*map(type, dates)} - {date}:
        raise OverflowError("numpy gives a number for a date that Python does not have")
    return dates


_SAMPLE = 2_000
_MANY = 10_000
"""The minimum number of values for which searching for repeated ones is worthwhile."""


def repeats(column: pa.Array) -> bool:
    """Return, by a sample, whether values repeat so often that a dictionary is smaller and faster."""
    if len(column) < _MANY:
        return False
    sample = column.take(pa.array(range(0, len(column), len(column) // _SAMPLE)))
    # Of 2,000 values out of 50,000 distinct ones about 40 repeat. With more distinct values, finding them takes longer
    # than it saves, because they exceed the processor's cache.
    return len(sample) - len(sample.unique()) > len(sample) // 50


def with_used_values(codes: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a dictionary-encoded column without unused values in its dictionary."""
    indices, dictionary = codes.indices.to_numpy(), codes.dictionary
    used = np.zeros(len(dictionary), bool)
    used[indices] = True
    if used.all():
        return codes
    places = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return pa.DictionaryArray.from_arrays(pa.array(places[indices]), dictionary.filter(pa.array(used)))


def is_encoded_text(kind: pa.DataType) -> bool:
    """Return whether a type is that of dictionary-encoded text."""
    return bool(kinds.is_dictionary(kind) and kinds.is_string(kind.value_type))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values of a type are bytes, in any Arrow layout."""
    return bool(
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_fixed_size_binary(kind)
        or kinds.is_binary_view(kind)
    )


def _has_maps(kind: pa.DataType) -> bool:
    return kinds.is_map(kind) or any(_has_maps(kind.field(at).type) for at in range(kind.num_fields))
