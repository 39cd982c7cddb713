"""Partial results of aggregates: made of many messages by Arrow, merged with one another, and stored.

A table of partial results has a column for the key, columns that it is grouped by besides, and one for each accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._operators.accepted import accepted_places
from tidewheel._operators.aggregates.functions import Accumulator, Array
from tidewheel._operators.base import Context
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._state.key_batch import KeyBatch, sorted_keys
from tidewheel._values import ANY, Batch, Shape
from tidewheel.errors import OperatorError, StateError

KEY, LATEST = "~key", "~latest"
"""The columns of the key and of the latest timestamp; the second is there where the messages have timestamps."""
STORED = pa.large_binary()
"""The type of a key column that holds stored keys, which stand for keys that have no column of their own."""
FLUSH_ROWS = 1_000_000
"""How many partial results wait before a shuffle at the most."""

_ARROW_FOLD = {"sum": "sum", "min": "min", "max": "max", "count": "sum", "rows": "sum"}
_INT, _FLOAT = 0xD3, 0xCB


def grouping_keys(batch: Batch) -> pa.Array:
    """Return the keys as a column that Arrow can group by."""
    column = batch.key_array()
    return column if column is not None else pa.array([to_stored(key) for key in batch.keys], STORED)


def keyed(shape: Shape, columns: pa.RecordBatch, keys: pa.Array, times: list[int] | None = None) -> Batch:
    """Return a batch under keys that `grouping_keys` gave."""
    if keys.type == STORED:
        return Batch(shape, columns=columns, keys=[from_stored(key) for key in keys.to_pylist()], times=times)
    return Batch(shape, columns=columns, key_column=keys, times=times)


def key_batch_of(keys: pa.Array, n_shards: int) -> KeyBatch:
    """Return the distinct keys of partial results in the order of the store."""
    key_batch = sorted_keys(keys, n_shards) if keys.type != STORED else None
    if key_batch is not None:
        return key_batch
    stored = [key if keys.type == STORED else to_stored(key) for key in keys.to_pylist()]
    order = sorted((shard_of_stored(each, n_shards), each) for each in set(stored))
    place = {each: at for at, (_, each) in enumerate(order)}
    shards: dict[int, slice] = {}
    for at, (shard, _) in enumerate(order):
        shards[shard] = slice(shards[shard].start if shard in shards else at, at + 1)
    listed: list[Any] = [each for _, each in order]
    return KeyBatch([from_stored(each) for each in listed], [place[each] for each in stored], listed, shards)


def grouped(
    batch: Batch,
    accumulators: tuple[Accumulator, ...],
    context: Context,
    by: Mapping[str, pa.Array] = MappingProxyType({}),
    latest: bool = True,
) -> list[pa.Table]:
    """Return the partial results of messages by key, or by key and further columns, with the latest timestamp if wanted.

    They are one table, unless a record was rejected.
    """

    def attempt(part: Batch, place: slice) -> pa.Table:
        return _grouped(part, accumulators, {name: column[place] for name, column in by.items()}, latest)

    return [table for _, table in accepted_places(context, batch, attempt)]


def _grouped(batch: Batch, accumulators: tuple[Accumulator, ...], by: Mapping[str, pa.Array], latest: bool) -> pa.Table:
    groups = [KEY, *by]
    arrays, names = [grouping_keys(batch), *by.values()], list(groups)
    folds: list[tuple[Any, str]] = []
    # What came with different changes of the program is the same of these messages.
    for accumulator in dict.fromkeys(replace(each, since=0) for each in accumulators):
        if accumulator.column is None:
            folds.append(([], "count_all"))
            continue
        if accumulator.column not in names:
            arrays.append(_numbers(column_of(batch, accumulator.column), accumulator.column))
            names.append(accumulator.column)
        if accumulator.fold == "sum":
            values = arrays[names.index(accumulator.column)]
            _check_sum(arrays[: len(groups)], values, accumulator.column)
        folds.append((accumulator.column, accumulator.fold))
    results = ["count_all" if a.column is None else f"{a.column}_{a.fold}" for a in accumulators]
    timed = [LATEST] if latest and batch.times is not None else []
    if timed:
        arrays.append(pa.array(batch.times, pa.int64()))
        folds.append((LATEST, "max"))
        results.append(f"{LATEST}_max")
    table = pa.table(arrays, names=[*names, *timed]).group_by(groups, use_threads=False).aggregate(folds)
    # A group whose values are all null folds to null; its count of 0 says that the number means nothing.
    columns = [pc.fill_null(table.column(name), 0) for name in results]
    return pa.table(
        [*(table.column(name) for name in groups), *columns],
        names=[*groups, *(a.name for a in accumulators), *timed],
    )


def merged(
    tables: list[pa.Table],
    accumulators: tuple[Accumulator, ...],
    context: Context,
    by: Sequence[str] = (),
    keys: Sequence[Any] | None = None,
) -> pa.Table:
    """Return several tables of partial results as one.

    Where a sum leaves 64 bits, the partial result that makes it do so is rejected; never one of the first table. `keys` are
    the keys, where the column of the key has their numbers.
    """
    if len(tables) == 1:
        return tables[0]
    kinds = {str(table.schema.field(KEY).type) for table in tables}
    if len(kinds) > 1:
        raise OperatorError(
            f"operator {context.operator!r}: all keys must be of one type, not {' and '.join(sorted(kinds))}; convert them in "
            "key_by"
        )

    def together(*some: pa.Table) -> pa.Table:
        return regrouped(concatenated(some), accumulators, (KEY, *by))

    try:
        return together(*tables)
    except Left64Bits:
        whole = tables[0]
        for table in tables[1:]:
            whole = _taken_in(whole, table, together, context, keys)
        return whole


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Return one table after the other. A column of integers in some and of floats in others is of floats.

    Integers beyond 2**53 are rounded, as when a float is added to them.
    """
    floats = {field.name for table in tables for field in table.schema if pa.types.is_floating(field.type)}
    cast = []
    for table in tables:
        for at, field in enumerate(table.schema):
            if field.name in floats and pa.types.is_integer(field.type):
                table = table.set_column(at, field.name, table.column(at).cast(pa.float64(), safe=False))
        cast.append(table)
    return pa.concat_tables(cast, promote_options="permissive")


def _taken_in(
    whole: pa.Table,
    table: pa.Table,
    together: Callable[[pa.Table, pa.Table], pa.Table],
    context: Context,
    keys: Sequence[Any] | None,
) -> pa.Table:
    """Return the partial results of both tables; rows of the second that cannot be added are rejected."""

    def attempt(_: Batch, place: slice) -> pa.Table:
        return together(whole, table[place])

    for _, whole in accepted_places(context, _rows(table, keys), attempt):  # noqa: B007
        pass
    return whole


def _rows(table: pa.Table, keys: Sequence[Any] | None) -> Batch:
    """Return partial results as messages, for dead letters."""
    places = table.column(KEY).to_pylist()
    named = [place if keys is None else keys[place] for place in places]
    if table.schema.field(KEY).type == STORED:
        named = [from_stored(key) for key in named]
    return Batch(ANY, values=table.drop_columns([KEY]).to_pylist(), keys=named)


def regrouped(table: pa.Table, accumulators: tuple[Accumulator, ...], groups: tuple[str, ...]) -> pa.Table:
    """Return partial results folded by other columns than they were made by."""
    folds = []
    for accumulator in accumulators:
        if accumulator.fold == "sum":
            keys = [table.column(name) for name in groups]
            _check_sum(keys, table.column(accumulator.name), accumulator.column or "")
        if accumulator.fold in ("min", "max"):
            # A partial of nothing but nulls must not take part: its 0 is not a value.
            present = pc.greater(table.column(accumulator.present.name), 0)
            position = table.schema.get_field_index(accumulator.name)
            column = pc.if_else(present, table.column(accumulator.name), pa.scalar(None, table.field(position).type))
            table = table.set_column(position, accumulator.name, column)
        folds.append((accumulator.name, _ARROW_FOLD[accumulator.fold]))
    if LATEST in table.schema.names:
        folds.append((LATEST, "max"))
    result = table.group_by(list(groups), use_threads=False).aggregate(folds)
    columns = [pc.fill_null(result.column(f"{name}_{fold}"), 0) for name, fold in folds]
    return pa.table(
        [*(result.column(name) for name in groups), *columns], names=[*groups, *(name for name, _ in folds)]
    )


def _numbers(values: pa.Array, column: str) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values if pa.types.is_int64(kind) else values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values if pa.types.is_float64(kind) else values.cast(pa.float64())
    raise OperatorError(
        f"aggregates are over numbers, and column {column!r} is of type {kind}; convert it with map_batches, or use reduce"
    )


def _check_sum(groups: list[Any], values: Any, column: str) -> None:
    """Refuse integers whose sum leaves 64 bits for any group: Arrow would wrap around silently."""
    if not pa.types.is_integer(values.type) or len(values) == 0:
        return
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest * len(values) < 2**63:
        return
    totals: dict[Any, int] = {}
    for group, value in zip(zip(*(each.to_pylist() for each in groups), strict=True), values.to_pylist(), strict=True):
        totals[group] = totals.get(group, 0) + (value or 0)
    if any(not -(2**63) <= total < 2**63 for total in totals.values()):
        raise Left64Bits(column)


class Left64Bits(OperatorError):
    """A sum that does not fit in 64 bits."""

    def __init__(self, column: str | None) -> None:
        """Take the column."""
        super().__init__(
            f"the sum of column {column!r} left 64 bits; cast the column to double, or use reduce, whose Python integers have "
            "no limit"
        )


class Packing:
    """Rows of a few numbers as fixed-width msgpack, so that many of them are an array.

    A number is an integer or a float, as its tag says. Columns that nobody declared may be of integers in one batch and of
    floats in the next, so either is taken back, and what has both is of floats.
    """

    def __init__(self, size: int) -> None:
        """Take the number of numbers in a row."""
        self.size = size
        # A msgpack array's head: one byte up to 15, three from 16 on.
        self.head = bytes((0x90 | size,)) if size < 16 else b"\xdc" + size.to_bytes(2, "big")
        fields: list[tuple[str, str]] = [("head", f"V{len(self.head)}")]
        for position in range(size):
            fields += [(f"tag{position}", "u1"), (f"v{position}", ">i8")]
        self.layout = np.dtype(fields)
        self.nothing = self.pack([np.zeros(1, np.int64)] * size)

    @property
    def width(self) -> int:
        """The bytes of a row."""
        return int(self.layout.itemsize)

    def pack(self, arrays: list[Array]) -> bytes:
        """Return one row after the other."""
        packed = np.empty(len(arrays[0]), self.layout)
        packed["head"] = np.void(self.head)
        for position, array in enumerate(arrays):
            whole = array.dtype.kind == "i"
            packed[f"tag{position}"] = _INT if whole else _FLOAT
            packed[f"v{position}"] = array if whole else array.astype(">f8").view(">i8")
        return packed.tobytes()

    def rows(self, arrays: list[Array]) -> list[bytes]:
        """Return the rows, each for itself."""
        data, width = self.pack(arrays), self.width
        return [data[at : at + width] for at in range(0, len(data), width)]

    def unpack(self, data: bytes, rows: int, operator: str) -> list[Array]:
        """Return the numbers of rows that `pack` gave, by place."""
        if len(data) == rows * self.width:
            packed = np.frombuffer(data, self.layout)
            tags = [packed[f"tag{position}"] for position in range(self.size)]
            if (packed["head"] == np.void(self.head)).all() and all(((t == _INT) | (t == _FLOAT)).all() for t in tags):
                return [_numbers_of(tag, packed[f"v{position}"]) for position, tag in enumerate(tags)]
        raise StateError(
            f"operator {operator!r}: its stored state has other aggregates than the program; give the changed operator a new "
            "name"
        )


def _numbers_of(tags: Array, raw: Array) -> Array:
    whole = tags == _INT
    integers = raw.astype("i8")
    if whole.all():
        return integers
    return np.where(whole, integers.astype("f8"), np.ascontiguousarray(raw).view(">f8").astype("f8"))


class Rewriting:
    """Makes rows of today's numbers of stored rows; a number that was not stored begins as 0, which counts nothing.

    `before` is how many numbers of a row come first and stay.
    """

    def __init__(self, stored: Sequence[Accumulator], numbers: Sequence[Accumulator], before: int = 0) -> None:
        """Take the numbers of stored rows and those of today."""
        self._old, self._new = Packing(before + len(stored)), Packing(before + len(numbers))
        places = {number: before + place for place, number in enumerate(stored)}
        self._places = [*range(before), *(places.get(number) for number in numbers)]

    def convert(self, data: bytes) -> bytes:
        """Return rows for rows, as they were packed."""
        old, new = self._old, self._new
        packed = np.frombuffer(data, old.layout)
        rows = np.empty(len(packed), new.layout)
        rows["head"] = np.void(new.head)
        for place, source in enumerate(self._places):
            rows[f"tag{place}"] = _INT if source is None else packed[f"tag{source}"]
            rows[f"v{place}"] = 0 if source is None else packed[f"v{source}"]
        return rows.tobytes()
