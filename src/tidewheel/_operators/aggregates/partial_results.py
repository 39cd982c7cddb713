"""Partial results of aggregates: computed from many messages by Arrow, merged, and stored.

A table of partial results has a column for the key, further columns to group by, and one column for each accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._operators.accepted import accepted_places
from tidewheel._operators.aggregates.aggregator import Aggregator, spread
from tidewheel._operators.aggregates.functions import Accumulators, Array, is_number, no_numbers
from tidewheel._operators.aggregates.groups import Groups, combined, groups_of
from tidewheel._operators.aggregates.states import normal
from tidewheel._operators.aggregates.values import TooManyDigits
from tidewheel._operators.base import Context
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._state.key_batch import KeyBatch, sorted_keys
from tidewheel._state.key_order import sorted_column
from tidewheel._state.layout import Accumulator
from tidewheel._values import ANY, Batch, Shape
from tidewheel._values.columns import repeats
from tidewheel.errors import StateError, StepError

KEY, LATEST = "~key", "~latest"
"""The columns of the key and of the latest timestamp; the second exists if the messages have timestamps."""
STORED = pa.large_binary()
"""The type of a column of stored keys, for keys that have no Arrow type."""
FLUSH_ROWS = 1_000_000
"""The maximum number of partial results that wait before a shuffle."""

_GROUP = "~group"
_COUNTS = ("count", "rows")
_ARROW_FOLD = {"sum": "sum", "min": "min", "max": "max", "count": "sum", "rows": "sum"}
INTEGER, _FLOAT = 0xD3, 0xCB
_MANY = 10_000
"""The minimum number of messages for which sorting by key may be worthwhile."""
_FOLDS: Mapping[str, Callable[[Array, Array], Array]] = {
    "sum": np.add.reduceat,
    "min": np.minimum.reduceat,
    "max": np.maximum.reduceat,
}


def grouping_keys(batch: Batch) -> pa.Array:
    """Return the keys as a column that Arrow can group by."""
    column = batch.key_array()
    return column if column is not None else pa.array([to_stored(key) for key in batch.keys], STORED)


def keyed(shape: Shape, columns: pa.RecordBatch, keys: pa.Array, times: list[int] | None = None) -> Batch:
    """Return a batch with the keys that `grouping_keys` returned."""
    if keys.type == STORED:
        return Batch(shape, columns=columns, keys=[from_stored(key) for key in keys.to_pylist()], times=times)
    return Batch(shape, columns=columns, key_column=keys, times=times)


def key_batch_of(keys: pa.Array, n_shards: int) -> KeyBatch:
    """Return the distinct keys of partial results in the order of the stored state."""
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
    accumulators: Accumulators,
    context: Context,
    by: Mapping[str, pa.Array] = MappingProxyType({}),
    latest: bool = True,
) -> list[pa.Table]:
    """Return the partial results of messages by key and further columns, optionally with the latest timestamp.

    The result is one table, unless a record was rejected.
    """
    return [table for _, table in grouped_parts(batch, accumulators, context, by, latest)]


def grouped_parts(
    batch: Batch, accumulators: Accumulators, context: Context, by: Mapping[str, pa.Array], latest: bool
) -> Iterator[tuple[Batch, pa.Table]]:
    """Like `grouped`, but yield each table with the messages that it has the partial results of."""

    def attempt(part: Batch, place: slice) -> pa.Table:
        return _grouped(part, accumulators, {name: column[place] for name, column in by.items()}, latest)

    return accepted_places(context, batch, attempt)


def _grouped(batch: Batch, accumulators: Accumulators, by: Mapping[str, pa.Array], latest: bool) -> pa.Table:
    if not by and not (latest and batch.times is not None):
        by_order = _grouped_by_order(batch, accumulators)
        if by_order is not None:
            return by_order
    groups = [KEY, *by]
    codes = batch.key_data if batch.has_key_codes else None
    arrays, names = [grouping_keys(batch) if codes is None else codes.indices, *by.values()], list(groups)
    masks = {text: where.mask(batch) for text, where in accumulators.conditions.items()}
    folded = {each.column for each in accumulators.numbers if each.fold not in _COUNTS}
    folds: list[tuple[Any, str]] = []
    results: list[str] = []
    for accumulator in accumulators.numbers:
        if accumulator.column is None and not accumulator.where:
            fold: tuple[Any, str] = ([], "count_all")
        else:
            # Accumulators that different program changes added have the same value for these messages.
            name = Accumulator("", accumulator.column, 0, "", accumulator.where).name
            if name not in names:
                arrays.append(_values(batch, accumulator, masks, accumulator.column in folded))
                names.append(name)
            if accumulator.fold == "sum":
                _check_sum(arrays[: len(groups)], arrays[names.index(name)], accumulator.column)
            fold = (name, "count" if accumulator.fold in _COUNTS else accumulator.fold)
        results.append("count_all" if fold[0] == [] else f"{fold[0]}_{fold[1]}")
        if fold not in folds:
            folds.append(fold)
    timed = [LATEST] if latest and batch.times is not None else []
    if timed:
        arrays.append(pa.array(batch.times, pa.int64()))
        folds.append((LATEST, "max"))
        results.append(f"{LATEST}_max")
    states = accumulators.states
    by_row = groups_of(arrays[: len(groups)]) if states else None
    table = _folded_numbers(pa.table(arrays, names=[*names, *timed]), groups, folds, by_row)
    # A group of nulls folds to null; its count of 0 marks the number as invalid.
    columns = [pc.fill_null(table.column(name), 0) for name in results]
    keys = table.column(KEY) if codes is None else codes.dictionary.take(table.column(KEY).combine_chunks())
    numbers = pa.table(
        [keys, *(table.column(name) for name in by), *columns],
        names=[*groups, *(a.name for a in accumulators.numbers), *timed],
    )
    if by_row is None:
        return numbers
    made = []
    for accumulator, aggregator in states.items():
        values = [normal(column_of(batch, name)) for name in accumulators.aggregates[accumulator].columns]
        there = values[0].is_valid()
        if accumulator.where:
            there = pc.and_(there, masks[accumulator.where])
        made.append(_folded(by_row, there, values, aggregator.fold))
    return _with_states(numbers, by_row, states, made)


def _folded_numbers(
    table: pa.Table, groups: Sequence[str], folds: Sequence[tuple[Any, str]], by_row: Groups | None
) -> pa.Table:
    """Return Arrow's folds by group. If the group of each row is given, the result is in the order of the groups."""
    if by_row is None:
        return table.group_by(list(groups), use_threads=False).aggregate(list(folds))
    numbered = table.drop_columns(list(groups)).append_column(_GROUP, pa.array(by_row.index))
    result = numbered.group_by(_GROUP, use_threads=False).aggregate(list(folds)).sort_by(_GROUP)
    rows = pa.array(by_row.first_rows)
    for at, name in enumerate(groups):
        result = result.add_column(at, name, table.column(name).take(rows))
    return result


def _values(batch: Batch, accumulator: Accumulator, masks: Mapping[str, pa.Array], folded: bool) -> pa.Array:
    """Return the values that a number folds; null where its condition is not true."""
    if accumulator.column is None:
        values = pa.array(np.ones(len(batch), bool))
    elif folded:
        values = _numbers(column_of(batch, accumulator.column), accumulator.column)
    else:
        values = column_of(batch, accumulator.column)
        values = pc.if_else(values.is_valid(), True, pa.scalar(None, pa.bool_()))
    return pc.if_else(masks[accumulator.where], values, pa.scalar(None, values.type)) if accumulator.where else values


def _folded(groups: Groups, there: pa.Array, columns: Sequence[pa.Array], fold: Callable[..., pa.Array]) -> pa.Array:
    """Return the state of each group from the rows that are there; null for a group that has none."""
    mask = there.to_numpy(zero_copy_only=False)
    if mask.all():
        return combined(fold(groups, *columns)) if groups.count else pa.nulls(0)
    if not mask.any():
        return pa.nulls(groups.count)
    rows, kept = groups.chosen(mask)
    states = combined(fold(rows, *(column.filter(there) for column in columns)))
    found = np.zeros(groups.count, bool)
    found[kept] = True
    return spread(states, pa.array(found))


def _with_states(
    numbers: pa.Table, groups: Groups, states: Mapping[Accumulator, Aggregator], made: Sequence[pa.Array]
) -> pa.Table:
    """Add the states of groups to the numbers, which are in the same order."""
    if any(len(each) != groups.count for each in made):
        lengths = ", ".join(f"{accumulator.name}: {len(each)}" for accumulator, each in zip(states, made, strict=True))
        raise StepError(f"an aggregator must return one state for each of {groups.count} groups, not {lengths}")
    for accumulator, each in zip(states, made, strict=True):
        numbers = numbers.append_column(accumulator.name, each)
    return numbers


def _grouped_by_order(batch: Batch, accumulators: Accumulators) -> pa.Table | None:
    """Return the partial results of many messages with mostly different keys; None if it is not supported.

    Sorting such keys as numbers takes less time than a hash table that exceeds the processor's cache. It is for integers: the
    sum of floats depends on their order.
    """
    if accumulators.states or accumulators.conditions:
        return None
    keys = None if batch.has_key_codes or len(batch) < _MANY else batch.key_array()
    if keys is None or keys.null_count or repeats(keys):
        return None
    columns: dict[str, pa.Array] = {}
    for name in dict.fromkeys(each.column for each in accumulators if each.column is not None):
        column = column_of(batch, name)
        if not is_number(column.type):
            return None
        columns[name] = _numbers(column, name)
        if not pa.types.is_integer(columns[name].type) or columns[name].null_count:
            return None
    found = sorted_column(keys)
    if found is None:
        return None
    for accumulator in accumulators:
        if accumulator.fold == "sum" and accumulator.column is not None:
            _check_sum([keys], columns[accumulator.column], accumulator.column)
    ordered = {name: column.to_numpy()[found.order] for name, column in columns.items()}
    results = [
        found.counts
        if each.column is None or each.fold == "count"
        else _FOLDS[each.fold](ordered[each.column], found.starts)
        for each in accumulators
    ]
    distinct = keys.take(pa.array(found.order[found.starts]))
    return pa.table([distinct, *map(pa.array, results)], names=[KEY, *(each.name for each in accumulators)])


def merged(
    tables: list[pa.Table],
    accumulators: Accumulators,
    context: Context,
    by: Sequence[str] = (),
    keys: Sequence[Any] | None = None,
) -> pa.Table:
    """Merge several tables of partial results into one.

    If a sum exceeds 64 bits, the partial result that causes this is rejected, but never one of the first table. If the
    key column contains indexes, `keys` has the keys.
    """
    if len(tables) == 1:
        return tables[0]
    kinds = {str(table.schema.field(KEY).type) for table in tables}
    if len(kinds) > 1:
        raise StepError(
            f"step {context.operator!r}: all keys must be of one type, not {' and '.join(sorted(kinds))}; "
            "convert them in "
            "key_by"
        )

    def together(*some: pa.Table) -> pa.Table:
        return regrouped(concatenated(some), accumulators, (KEY, *by))

    try:
        return together(*tables)
    except (Left64Bits, TooManyDigits):
        whole = tables[0]
        for table in tables[1:]:
            whole = _taken_in(whole, table, together, context, keys)
        return whole


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables. If a column has integers in one table and floats in another, the result has floats.

    Integers beyond 2**53 are rounded then.
    """
    floats = {field.name for table in tables for field in table.schema if pa.types.is_floating(field.type)}
    cast = []
    for table in tables:
        for at, field in enumerate(table.schema):
            if field.name in floats and pa.types.is_integer(field.type):
                table = table.set_column(at, field.name, table.column(at).cast(pa.float64(), safe=False))
        cast.append(table)
    return pa.concat_tables(cast, promote_options="permissive")


def regrouped_or_rejected(
    table: pa.Table, accumulators: Accumulators, groups: tuple[str, ...], context: Context
) -> pa.Table:
    """Like `regrouped`, but reject the rows that make a sum exceed 64 bits."""
    try:
        return regrouped(table, accumulators, groups)
    except (Left64Bits, TooManyDigits):
        return _taken_in(
            table[:0], table, lambda *some: regrouped(concatenated(some), accumulators, groups), context, None
        )


def _taken_in(
    whole: pa.Table,
    table: pa.Table,
    together: Callable[[pa.Table, pa.Table], pa.Table],
    context: Context,
    keys: Sequence[Any] | None,
) -> pa.Table:
    """Merge two tables of partial results; reject the rows of the second that cannot be added."""

    def attempt(_: Batch, place: slice) -> pa.Table:
        return together(whole, table[place])

    for _, whole in accepted_places(context, rows_of(table, keys), attempt):  # noqa: B007
        pass
    return whole


def rows_of(table: pa.Table, keys: Sequence[Any] | None) -> Batch:
    """Return partial results as messages, for dead letters. `keys` are the keys, where the table has their numbers."""
    places = table.column(KEY).to_pylist()
    named = [place if keys is None else keys[place] for place in places]
    if table.schema.field(KEY).type == STORED:
        named = [from_stored(key) for key in named]
    return Batch(ANY, values=table.drop_columns([KEY]).to_pylist(), keys=named)


def regrouped(table: pa.Table, accumulators: Accumulators, groups: tuple[str, ...]) -> pa.Table:
    """Return partial results grouped by other columns."""
    folds = []
    for accumulator in accumulators.numbers:
        if accumulator.fold == "sum":
            keys = [table.column(name) for name in groups]
            _check_sum(keys, table.column(accumulator.name), accumulator.column or "")
        if accumulator.fold in ("min", "max"):
            # Exclude partial results of nulls only: their 0 is not a value.
            present = pc.greater(table.column(accumulator.present.name), 0)
            position = table.schema.get_field_index(accumulator.name)
            column = pc.if_else(present, table.column(accumulator.name), pa.scalar(None, table.field(position).type))
            table = table.set_column(position, accumulator.name, column)
        folds.append((accumulator.name, _ARROW_FOLD[accumulator.fold]))
    if LATEST in table.schema.names:
        folds.append((LATEST, "max"))
    states = accumulators.states
    by_row = groups_of([table.column(name) for name in groups]) if states else None
    result = _folded_numbers(table.select([*groups, *(name for name, _ in folds)]), groups, folds, by_row)
    columns = [pc.fill_null(result.column(f"{name}_{fold}"), 0) for name, fold in folds]
    numbers = pa.table(
        [*(result.column(name) for name in groups), *columns], names=[*groups, *(name for name, _ in folds)]
    )
    if by_row is None:
        return numbers
    made = []
    for accumulator, aggregator in states.items():
        column = combined(table.column(accumulator.name))
        made.append(_folded(by_row, column.is_valid(), [column], aggregator.merge))
    return _with_states(numbers, by_row, states, made)


def _numbers(values: pa.Array, column: str) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values if pa.types.is_int64(kind) else values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values if pa.types.is_float64(kind) else values.cast(pa.float64())
    raise StepError(no_numbers(column, kind, undeclared=True))


def _check_sum(groups: list[Any], values: Any, column: str | None) -> None:
    """Raise an error if the integer sum of a group exceeds 64 bits: Arrow would overflow silently."""
    if _too_large(groups, values):
        raise Left64Bits(column)


def _too_large(groups: list[Any], values: Any) -> list[tuple[Any, ...]]:
    """Return the groups of integers whose sum exceeds 64 bits."""
    if not pa.types.is_integer(values.type) or len(values) == 0:
        return []
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest * len(values) < 2**63:
        return []
    totals: dict[Any, int] = {}
    for group, value in zip(zip(*(each.to_pylist() for each in groups), strict=True), values.to_pylist(), strict=True):
        totals[group] = totals.get(group, 0) + (value or 0)
    return [group for group, total in totals.items() if not -(2**63) <= total < 2**63]


def groups_too_large(
    table: pa.Table, accumulators: Accumulators, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], Left64Bits]:
    """Return the groups whose sums leave 64 bits when `regrouped` adds them up, each with its error."""
    keys = [table.column(name) for name in groups]
    return {
        group: Left64Bits(accumulator.column)
        for accumulator in accumulators
        if accumulator.fold == "sum"
        for group in _too_large(keys, table.column(accumulator.name))
    }


class Left64Bits(StepError):
    """A sum that does not fit in 64 bits."""

    def __init__(self, column: str | None) -> None:
        """Take the column."""
        super().__init__(
            f"the sum of column {column!r} exceeds 64 bits; cast the column to double, or use reduce, whose Python integers "
            "have no limit. With job.dead_letter(…) the job rejects such messages and continues"
        )


class Packing:
    """Rows of a few numbers as fixed-width msgpack, so that many rows can be read as an array.

    A tag marks each number as an integer or a float. Undeclared columns can have integers in one batch and floats in the
    next, so both are accepted; a mixture is read as floats.
    """

    def __init__(self, size: int) -> None:
        """Take the number of numbers in a row."""
        self.size = size
        # The header of a msgpack array has one byte up to 15 items, and three bytes from 16 on.
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
        """Return the packed rows, concatenated."""
        return self.packed(arrays).tobytes()

    def packed(self, arrays: list[Array]) -> Array:
        """Return an array of rows."""
        packed = np.empty(len(arrays[0]), self.layout)
        packed["head"] = np.void(self.head)
        for position, array in enumerate(arrays):
            whole = array.dtype.kind == "i"
            packed[f"tag{position}"] = INTEGER if whole else _FLOAT
            packed[f"v{position}"] = array if whole else array.astype(">f8").view(">i8")
        return packed.view(f"V{self.width}")

    def unpack(self, data: bytes | Array, rows: int, operator: str) -> list[Array]:
        """Return the numbers of packed rows, by column."""
        raw = np.frombuffer(data, np.uint8)
        if len(raw) == rows * self.width:
            packed = raw.view(self.layout)
            tags = [packed[f"tag{position}"] for position in range(self.size)]
            if (packed["head"] == np.void(self.head)).all() and all(
                ((t == INTEGER) | (t == _FLOAT)).all() for t in tags
            ):
                return [_numbers_of(tag, packed[f"v{position}"]) for position, tag in enumerate(tags)]
        raise StateError(
            f"step {operator!r}: the stored state has other aggregates than the program; give the changed step a "
            "new "
            "name"
        )


def _numbers_of(tags: Array, raw: Array) -> Array:
    whole = tags == INTEGER
    integers = raw.astype("i8")
    if whole.all():
        return integers
    return np.where(whole, integers.astype("f8"), np.ascontiguousarray(raw).view(">f8").astype("f8"))
