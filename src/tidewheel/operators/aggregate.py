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
from tidewheel.keys import shard_of_stored, to_stored
from tidewheel.operators.aggregates import Accumulator, Aggregate, Array
from tidewheel.operators.base import Context, Operator, Process
from tidewheel.operators.combine import Combiner
from tidewheel.operators.key_by import column_of
from tidewheel.state.view import Items
from tidewheel.values import ROW, Batch, Shape

KEY = "~key"
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

    def __post_init__(self) -> None:
        kept = dict.fromkeys(a for aggregate in self.aggregates.values() for a in aggregate.accumulators())
        if not 1 <= len(kept) <= 15:
            raise GraphError(f"aggregate takes one to about seven aggregates; these need {len(kept)} numbers per key")
        object.__setattr__(self, "accumulators", tuple(kept))

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Aggregating(self, context)

    def combiner(self, operator: str) -> Combiner:
        """Return what makes partial results before the shuffle."""
        return _Partials(self.accumulators, operator)

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


class _Partials(Combiner):
    shape = PARTIAL

    def __init__(self, accumulators: tuple[Accumulator, ...], operator: str) -> None:
        self.accumulators, self.operator = accumulators, operator
        self.waiting: list[pa.Table] = []

    def add(self, batch: Batch) -> Iterator[Batch]:
        if len(batch) == 0:
            return
        self.waiting.append(_partial(batch, self.accumulators, self.operator))
        if sum(table.num_rows for table in self.waiting) > _FLUSH_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[Batch]:
        if self.waiting:
            merged = _merged(self.waiting, self.accumulators, self.operator)
            self.waiting = []
            for chunk in merged.combine_chunks().to_batches():
                keys = chunk.column(chunk.schema.get_field_index(KEY))
                names = [accumulator.name for accumulator in self.accumulators]
                yield Batch(PARTIAL, columns=chunk.select(names), key_column=keys)


def _partial(batch: Batch, accumulators: tuple[Accumulator, ...], operator: str) -> pa.Table:
    """Group one batch of messages by key."""
    keys = batch.key_column if batch.key_column is not None else pa.array(batch.keys)
    arrays, names = [keys], [KEY]
    folds: list[tuple[Any, str]] = []
    for accumulator in accumulators:
        if accumulator.column is None:
            folds.append(([], "count_all"))
            continue
        if accumulator.column not in names:
            values = _numbers(column_of(batch, accumulator.column, operator), accumulator.column, operator)
            if any(a == Accumulator("sum", accumulator.column) for a in accumulators):
                _check_sum(values, accumulator.column, operator)
            arrays.append(values)
            names.append(accumulator.column)
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
    table = pa.concat_tables(tables, promote_options="permissive")
    for accumulator in accumulators:
        if accumulator.fold == "sum":
            _check_sum(table.column(accumulator.name), accumulator.column or "", operator)
    folds = []
    for accumulator in accumulators:
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
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return values if pa.types.is_int64(kind) else values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values if pa.types.is_float64(kind) else values.cast(pa.float64())
    raise OperatorError(
        f"operator {operator!r}: aggregates are over numbers, and column {column!r} is of type {kind}; "
        "convert it with map_batches, or use reduce"
    )


def _check_sum(values: pa.Array, column: str, operator: str) -> None:
    """Refuse integers whose sum might leave 64 bits: Arrow would wrap around silently."""
    if not pa.types.is_integer(values.type) or len(values) == 0:
        return
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    if largest * len(values) >= 2**62 and abs(sum(values.drop_null().to_pylist())) >= 2**62:
        raise OperatorError(
            f"operator {operator!r}: the sum of column {column!r} may leave 64 bits; cast the column to double, "
            "or use reduce, whose Python integers have no limit"
        )


class _PackedState:
    """Accumulators of every key as fixed-width msgpack, merged as arrays."""

    def __init__(self, types: list[Any]) -> None:
        fields: list[tuple[str, Any]] = [("head", "u1")]
        for position, kind in enumerate(types):
            fields += [(f"tag{position}", "u1"), (f"v{position}", ">i8" if kind == _INT else ">f8")]
        self.types = types
        self.layout = np.dtype(fields)

    def pack(self, arrays: list[Array]) -> bytes:
        packed = np.empty(len(arrays[0]), self.layout)
        packed["head"] = 0x90 | len(arrays)
        for position, array in enumerate(arrays):
            packed[f"tag{position}"] = self.types[position]
            packed[f"v{position}"] = array
        return packed.tobytes()

    def unpack(self, states: list[bytes], operator: str) -> list[Array]:
        try:
            packed = np.frombuffer(b"".join(states), self.layout)
        except ValueError:
            packed = np.empty(0, self.layout)
        if len(packed) != len(states) or any((packed[f"tag{p}"] != t).any() for p, t in enumerate(self.types)):
            raise StateError(
                f"operator {operator!r}: its stored state has other aggregates or column types than the program; "
                "give the changed operator a new name"
            )
        return [
            packed[f"v{position}"].astype("i8" if kind == _INT else "f8") for position, kind in enumerate(self.types)
        ]


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
            keys = batch.key_column if batch.key_column is not None else pa.array(batch.keys)
            self.partials.append(pa.table([keys, *columns.columns], names=[KEY, *columns.schema.names]))
        else:
            self.partials.append(_partial(batch, self.operator.accumulators, self.context.operator))

    def on_end_of_data(self) -> None:
        if not self.partials:
            return
        name, accumulators = self.context.operator, self.operator.accumulators
        merged = _merged(self.partials, accumulators, name)
        self.partials = []
        keys = merged.column(KEY).to_pylist()
        by_shard: dict[int, list[tuple[bytes, int]]] = {}
        for position, key in enumerate(keys):
            stored = to_stored(key)
            by_shard.setdefault(shard_of_stored(stored, self.table.n_shards), []).append((stored, position))
        new = [merged.column(a.name).to_numpy() for a in accumulators]
        packing = _PackedState([_INT if array.dtype.kind in "iu" else _FLOAT for array in new])
        nothing = packing.pack([np.zeros(1, array.dtype) for array in new])
        order: list[int] = []
        old: list[bytes] = []
        for shard, members in by_shard.items():
            members.sort()
            order += [position for _, position in members]
            old += [raw or nothing for raw in self.table.get_many(shard, [stored for stored, _ in members])]
        rank = np.array(order)
        totals = _added(accumulators, packing.unpack(old, name), [array[rank] for array in new], name)
        raw, width, at = packing.pack([totals[a] for a in accumulators]), packing.layout.itemsize, 0
        for shard, members in by_shard.items():
            items: Items = []
            for stored, _ in members:
                items.append((stored, raw[at : at + width]))
                at += width
            self.table.put(shard, items)
        self.context.emit(self._results(merged.column(KEY).take(pa.array(rank)), totals))

    def _results(self, keys: pa.ChunkedArray, totals: dict[Accumulator, Array]) -> Batch:
        arrays = []
        for aggregate in self.operator.aggregates.values():
            values, mask = aggregate.result(totals)
            arrays.append(pa.array(values, mask=mask))
        columns = pa.RecordBatch.from_arrays(arrays, list(self.operator.aggregates))
        return Batch(ROW, columns=columns, key_column=keys.combine_chunks())


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
            both = np.minimum(a, b) if accumulator.fold == "min" else np.maximum(a, b)
            merged[accumulator] = np.where(stored[present] == 0, b, np.where(fresh[present] == 0, a, both))
            continue
        total = a + b
        if total.dtype.kind == "i" and (((a ^ total) & (b ^ total)) < 0).any():
            raise OperatorError(
                f"operator {operator!r}: the sum of column {accumulator.column!r} left 64 bits; cast the column to double, "
                "or use reduce, whose Python integers have no limit"
            )
        merged[accumulator] = total
    return merged
