"""aggregate: sums, counts and their kin per key, column-wise from end to end.

Partial results are made in the tasks that read the source, before the shuffle; the keyed task merges them with the
stored state as arrays. No Python code runs per record, only per key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import GraphError, OperatorError, StateError
from tidewheel.keys import from_stored, shard_of_stored, to_stored
from tidewheel.operators.aggregates import Accumulator, Aggregate, Array
from tidewheel.operators.base import Context, Operator, Process
from tidewheel.operators.combine import Combiner
from tidewheel.operators.key_by import column_of
from tidewheel.state.view import Items
from tidewheel.values import ROW, Batch, Shape

KEY = "~key"
_STORED = pa.large_binary()
"""The type of a key column that holds stored keys, which stand for keys that have no column of their own."""
PARTIAL = Shape("row", "partial aggregates")
_FLUSH_ROWS = 1_000_000
_ARROW_FOLD = {"sum": "sum", "min": "min", "max": "max", "count": "sum", "rows": "sum"}
_INT, _FLOAT = 0xD3, 0xCB


@dataclass(frozen=True)
class AggregateBy(Operator):
    """Keep the named aggregates of each key, and emit them once per batch for every key that the batch touched."""

    aggregates: dict[str, Aggregate]
    accumulators: tuple[Accumulator, ...] = field(init=False)
    kind = "aggregate"
    stateful = True
    combines = True

    def __post_init__(self) -> None:
        kept = dict.fromkeys(a for aggregate in self.aggregates.values() for a in aggregate.accumulators())
        if not 1 <= len(kept) <= 15:
            raise GraphError(f"aggregate takes one to about seven aggregates; these need {len(kept)} numbers per key")
        object.__setattr__(self, "accumulators", tuple(kept))

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Aggregating(self, context)

    def combiner(self, context: Context) -> Combiner:
        """Return what makes partial results before the shuffle."""
        return _Partials(self.accumulators, context)

    def columns(self) -> set[str]:
        """Return the columns that it reads."""
        return {accumulator.column for accumulator in self.accumulators if accumulator.column is not None}

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, one attribute per aggregate."""
        return (ROW,)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        """Refuse a column that the declared type lacks."""
        known = inputs[0].columns()
        lacking = self.columns() - set(known or self.columns())
        if lacking:
            raise GraphError(
                f"there is no column {', '.join(sorted(lacking))}; {inputs[0].describe()} has {', '.join(known or ())}"
            )

    @property
    def codec_name(self) -> str:
        """Fixed-width msgpack: any msgpack reader takes it, and arrays can be made of it without decoding."""
        return "msgpack"

    @property
    def state_layout(self) -> str:
        """The numbers that are kept, in their order."""
        return ", ".join(accumulator.name for accumulator in self.accumulators)


class _Partials(Combiner):
    shape = PARTIAL

    def __init__(self, accumulators: tuple[Accumulator, ...], context: Context) -> None:
        self.accumulators, self.context = accumulators, context
        self.waiting: list[pa.Table] = []

    def add(self, batch: Batch) -> Iterator[Batch]:
        if len(batch) == 0:
            return
        self.waiting.append(_partial(batch, self.accumulators, self.context))
        if sum(table.num_rows for table in self.waiting) > _FLUSH_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[Batch]:
        if self.waiting:
            merged = _merged(self.waiting, self.accumulators, self.context.operator)
            self.waiting = []
            for chunk in merged.combine_chunks().to_batches():
                yield _keyed(PARTIAL, chunk.select(chunk.schema.names[1:]), chunk.column(0))


def _grouping_keys(batch: Batch) -> pa.Array:
    """Return the keys as a column that Arrow can group by."""
    column = batch.key_array()
    return column if column is not None else pa.array([to_stored(key) for key in batch.keys], _STORED)


def _keyed(shape: Shape, columns: pa.RecordBatch, keys: pa.Array) -> Batch:
    """Return a batch under keys that `_grouping_keys` gave."""
    if keys.type == _STORED:
        return Batch(shape, columns=columns, keys=[from_stored(key) for key in keys.to_pylist()])
    return Batch(shape, columns=columns, key_column=keys)


def _partial(batch: Batch, accumulators: tuple[Accumulator, ...], context: Context) -> pa.Table:
    """Group one batch of messages by key."""
    arrays, names = [_grouping_keys(batch)], [KEY]
    folds: list[tuple[Any, str]] = []
    for accumulator in accumulators:
        if accumulator.column is None:
            folds.append(([], "count_all"))
            continue
        if accumulator.column not in names:
            column = column_of(context, batch, accumulator.column)
            arrays.append(_numbers(column, accumulator.column, context.operator))
            names.append(accumulator.column)
        if accumulator.fold == "sum":
            _check_sum(arrays[0], arrays[names.index(accumulator.column)], accumulator.column, context.operator)
        folds.append((accumulator.column, accumulator.fold))
    grouped = pa.table(arrays, names=names).group_by(KEY, use_threads=False).aggregate(folds)
    return pa.table(
        [grouped.column(KEY)]
        + [
            # A group whose values are all null folds to null; its count of 0 says that the number means nothing.
            pc.fill_null(grouped.column("count_all" if a.column is None else f"{a.column}_{a.fold}"), 0)
            for a in accumulators
        ],
        names=[KEY, *(a.name for a in accumulators)],
    )


def _merged(tables: list[pa.Table], accumulators: tuple[Accumulator, ...], operator: str) -> pa.Table:
    """Group partial results by key."""
    if len(tables) == 1:
        return tables[0]
    kinds = {str(table.schema.field(KEY).type) for table in tables}
    if len(kinds) > 1:
        raise OperatorError(
            f"operator {operator!r}: all keys must be of one type, not {' and '.join(sorted(kinds))}; convert them in key_by"
        )
    table = pa.concat_tables(tables, promote_options="permissive")
    folds = []
    for accumulator in accumulators:
        if accumulator.fold == "sum":
            _check_sum(table.column(KEY), table.column(accumulator.name), accumulator.column or "", operator)
        if accumulator.fold in ("min", "max"):
            # A partial of nothing but nulls must not take part: its 0 is not a value.
            present = pc.greater(table.column(Accumulator("count", accumulator.column).name), 0)
            position = table.schema.get_field_index(accumulator.name)
            column = pc.if_else(present, table.column(accumulator.name), pa.scalar(None, table.field(position).type))
            table = table.set_column(position, accumulator.name, column)
        folds.append((accumulator.name, _ARROW_FOLD[accumulator.fold]))
    grouped = table.group_by(KEY, use_threads=False).aggregate(folds)
    columns = [pc.fill_null(grouped.column(f"{name}_{fold}"), 0) for name, fold in folds]
    return pa.table([grouped.column(KEY), *columns], names=[KEY, *(name for name, _ in folds)])


def _numbers(values: pa.Array, column: str, operator: str) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values if pa.types.is_int64(kind) else values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values if pa.types.is_float64(kind) else values.cast(pa.float64())
    raise OperatorError(
        f"operator {operator!r}: aggregates are over numbers, and column {column!r} is of type {kind}; "
        "convert it with map_batches, or use reduce"
    )


def _check_sum(keys: pa.Array, values: pa.Array, column: str, operator: str) -> None:
    """Refuse integers whose sum leaves 64 bits for any key: Arrow would wrap around silently."""
    if not pa.types.is_integer(values.type) or len(values) == 0:
        return
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest * len(values) < 2**63:
        return
    totals: dict[Any, int] = {}
    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
        totals[key] = totals.get(key, 0) + (value or 0)
    if any(not -(2**63) <= total < 2**63 for total in totals.values()):
        raise _left_64_bits(column, operator)


def _left_64_bits(column: str | None, operator: str) -> OperatorError:
    return OperatorError(
        f"operator {operator!r}: the sum of column {column!r} left 64 bits; cast the column to double, or use reduce, whose "
        "Python integers have no limit"
    )


class _Packing:
    """Accumulators of every key as fixed-width msgpack, merged as arrays.

    A number is an integer or a float, as its tag says. Columns that nobody declared may be of integers in one batch and of
    floats in the next, so either is taken back, and what has both is of floats.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        fields = [("head", "u1")]
        for position in range(size):
            fields += [(f"tag{position}", "u1"), (f"v{position}", ">i8")]
        self.layout = np.dtype(fields)
        self.nothing = self.pack([np.zeros(1, np.int64)] * size)

    def pack(self, arrays: list[Array]) -> bytes:
        packed = np.empty(len(arrays[0]), self.layout)
        packed["head"] = 0x90 | self.size
        for position, array in enumerate(arrays):
            whole = array.dtype.kind == "i"
            packed[f"tag{position}"] = _INT if whole else _FLOAT
            packed[f"v{position}"] = array if whole else array.astype(">f8").view(">i8")
        return packed.tobytes()

    def unpack(self, states: list[bytes], operator: str) -> list[Array]:
        data = b"".join(states)
        if len(data) == len(states) * self.layout.itemsize:
            packed = np.frombuffer(data, self.layout)
            tags = [packed[f"tag{position}"] for position in range(self.size)]
            if (packed["head"] == 0x90 | self.size).all() and all(((t == _INT) | (t == _FLOAT)).all() for t in tags):
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


class _Aggregating(Process):
    def __init__(self, operator: AggregateBy, context: Context) -> None:
        self.operator, self.context = operator, context
        self.partials: list[pa.Table] = []
        self.table = context.raw_table()

    def on_batch(self, batch: Batch, port: int) -> None:
        if len(batch) == 0:
            return
        if batch.shape == PARTIAL:
            columns = batch.columns
            arrays = [_grouping_keys(batch), *columns.columns]
            self.partials.append(pa.table(arrays, names=[KEY, *columns.schema.names]))
        else:
            self.partials.append(_partial(batch, self.operator.accumulators, self.context))

    def on_end_of_data(self) -> None:
        if not self.partials:
            return
        name, accumulators = self.context.operator, self.operator.accumulators
        merged = _merged(self.partials, accumulators, name)
        self.partials = []
        keys = merged.column(KEY).combine_chunks()
        by_shard: dict[int, list[tuple[bytes, int]]] = {}
        for position, key in enumerate(keys.to_pylist()):
            stored = key if keys.type == _STORED else to_stored(key)
            by_shard.setdefault(shard_of_stored(stored, self.table.n_shards), []).append((stored, position))
        packing = _Packing(len(accumulators))
        order: list[int] = []
        old: list[bytes] = []
        for shard, members in by_shard.items():
            members.sort()
            order += [position for _, position in members]
            old += [raw or packing.nothing for raw in self.table.get_many(shard, [stored for stored, _ in members])]
        rank = np.array(order)
        new = [merged.column(a.name).to_numpy()[rank] for a in accumulators]
        totals = _added(accumulators, packing.unpack(old, name), new, name)
        raw, width, at = packing.pack([totals[a] for a in accumulators]), packing.layout.itemsize, 0
        for shard, members in by_shard.items():
            items: Items = []
            for stored, _ in members:
                items.append((stored, raw[at : at + width]))
                at += width
            self.table.put(shard, items)
        self.context.emit(self._results(keys.take(pa.array(rank)), totals))

    def _results(self, keys: pa.Array, totals: dict[Accumulator, Array]) -> Batch:
        arrays = []
        for aggregate in self.operator.aggregates.values():
            values, mask = aggregate.result(totals)
            arrays.append(pa.array(values, mask=mask))
        columns = pa.RecordBatch.from_arrays(arrays, list(self.operator.aggregates))
        return _keyed(ROW, columns, keys)


def _added(
    accumulators: tuple[Accumulator, ...], old: list[Array], new: list[Array], operator: str
) -> dict[Accumulator, Array]:
    """Merge the batch's numbers into the stored ones."""
    stored, fresh = dict(zip(accumulators, old, strict=True)), dict(zip(accumulators, new, strict=True))
    merged: dict[Accumulator, Array] = {}
    for accumulator in accumulators:
        a, b = stored[accumulator], fresh[accumulator]
        if accumulator.fold in ("min", "max"):
            present = Accumulator("count", accumulator.column)
            # As Arrow does: NaN counts only where there is nothing else.
            both = np.fmin(a, b) if accumulator.fold == "min" else np.fmax(a, b)
            merged[accumulator] = np.where(stored[present] == 0, b, np.where(fresh[present] == 0, a, both))
            continue
        total = a + b
        if total.dtype.kind == "i" and (((a ^ total) & (b ^ total)) < 0).any():
            raise _left_64_bits(accumulator.column, operator)
        merged[accumulator] = total
    return merged
