"""KeyedTable: rows with a unique key, as columns, in which the rows of many keys are found at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.hashing import shards_of_column

HASH = "__hash"
"""The column of a stored copy that has the hash of each row's key."""

_BITS = 63
_MIX = np.uint64(0x9E3779B97F4A7C15)

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.int64]


class NotAKey(ValueError):
    """Raised for columns that cannot be the key of a table. The text says why and names the row, if one is at fault."""


def key_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one of the types that keys can have: text, 64-bit integers or bytes."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        return key_column(column.dictionary_decode())
    for fits, wanted in _KEY_TYPES:
        if fits(kind):
            return column if kind == wanted else column.cast(wanted)
    raise NotAKey(f"it has the type {kind}, and a key must be text, an integer or bytes")


_KEY_TYPES = (
    (pa.types.is_string, pa.string()),
    (pa.types.is_integer, pa.int64()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_null, pa.string()),
)


def key_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column of this type as a key; the null type if no value has shown it yet."""
    return kind if pa.types.is_null(kind) else key_column(pa.array([], kind)).type


def key_columns(table: pa.Table, key: Sequence[str], before: int = 0) -> list[pa.Array]:
    """Return the columns of a key. Raise `NotAKey` for another type or a null; `before` rows came before these."""
    keys = []
    for name in key:
        try:
            column = key_column(table.column(name))
        except (NotAKey, pa.ArrowInvalid) as error:
            raise NotAKey(f"the column {name!r} cannot be a key: {error}") from None
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise NotAKey(f"the key {name!r} is null in row {before + row + 1}; leave such rows out")
        keys.append(column)
    return keys


def sorted_rows(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows in the order of their keys' hashes, so that equal content has equal bytes.

    Raise `NotAKey` if two rows have the same key, or a key is null.
    """
    keys = key_columns(table, key)
    twice = _duplicate(keys)
    if twice is not None:
        raise NotAKey(f"the key {twice!r} comes twice; a key must be unique")
    hashes = hashes_of(keys)
    # Rows whose hashes are equal are ordered by their keys, so that the order never depends on that of the source.
    order = np.lexsort([*_ranks(keys, hashes), hashes])
    return table.take(pa.array(order)).combine_chunks()


def with_hashes(table: pa.Table, key: Sequence[str]) -> pa.RecordBatch:
    """Return sorted rows as one batch, with their hashes."""
    columns = {name: _one(table.column(name)) for name in table.column_names}
    hashes = pa.array(hashes_of([key_column(columns[name]) for name in key]))
    return pa.RecordBatch.from_arrays([*columns.values(), hashes], [*columns, HASH])


class KeyedRows(ABC):
    """Rows with a unique key. A row is known by a number; -1 is no row."""

    schema: pa.Schema
    key_types: tuple[pa.DataType, ...]
    """The types of the key's columns, as `key_type` returns them."""

    @abstractmethod
    def take(self, rows: Rows, columns: Sequence[str]) -> list[pa.Array]:
        """Return these columns of rows, with nulls for -1."""

    @abstractmethod
    def find_hashed(self, keys: Sequence[pa.Array], hashes: Hashes) -> Rows:
        """Like `find`, for keys without nulls whose hashes are known."""

    def find(self, keys: Sequence[pa.Array]) -> Rows:
        """Return the row of each key, given as columns of `key_column`; -1 where there is none, or a part is null."""
        present = pc.is_valid(keys[0])
        for column in keys[1:]:
            present = pc.and_(present, pc.is_valid(column))
        if not present.false_count:
            return self.find_hashed(keys, hashes_of(keys))
        found: Rows = np.full(len(keys[0]), -1, np.int64)
        chosen = np.flatnonzero(present.to_numpy(zero_copy_only=False))
        if len(chosen):
            found[chosen] = self.find([column.take(pa.array(chosen)) for column in keys])
        return found


class KeyedTable(KeyedRows):
    """Rows that are in one piece. The columns may be in a mapped file."""

    def __init__(self, rows: pa.RecordBatch, key: Sequence[str]) -> None:
        """Use rows from `with_hashes`."""
        self.key = tuple(key)
        self.rows = rows.drop_columns([HASH])
        self.schema = self.rows.schema
        self._keys = [key_column(rows.column(name)) for name in key]
        self.key_types = tuple(key_type(rows.schema.field(name).type) for name in key)
        self._hashes: Hashes = rows.column(HASH).to_numpy()
        self._bits = max(1, min(30, int(rows.num_rows).bit_length()))
        counts = np.bincount(self._hashes >> (_BITS - self._bits), minlength=1 << self._bits)
        self._starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self._starts[1:])

    @classmethod
    def of(cls, table: pa.Table, key: Sequence[str]) -> KeyedTable:
        """Make a table of rows in any order; raise `NotAKey` if the key is not unique."""
        return cls(with_hashes(sorted_rows(table, key), key), key)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def take(self, rows: Rows, columns: Sequence[str]) -> list[pa.Array]:
        indices = pa.array(rows, mask=rows < 0)
        return [self.rows.column(name).take(indices) for name in columns]

    def find_hashed(self, keys: Sequence[pa.Array], hashes: Hashes) -> Rows:
        found: Rows = np.full(len(hashes), -1, np.int64)
        buckets = hashes >> (_BITS - self._bits)
        at, ends = self._starts[buckets], self._starts[buckets + 1]
        open_ = np.flatnonzero(at < ends)
        while len(open_):
            rows = at[open_]
            same = self._hashes[rows] == hashes[open_]
            candidates = open_[same]
            if len(candidates):
                certain = self._equal(rows[same], candidates, keys)
                found[candidates[certain]] = rows[same][certain]
                same[np.flatnonzero(same)[~certain]] = False
            open_ = open_[~same]
            at[open_] += 1
            open_ = open_[at[open_] < ends[open_]]
        return found

    def _equal(self, rows: Rows, places: Rows, keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return whether keys that have the hash of a row also have its key."""
        certain = np.ones(len(rows), bool)
        whole = len(places) == len(keys[0])
        for own, asked in zip(self._keys, keys, strict=True):
            asked = asked if whole else asked.take(pa.array(places))
            certain &= pc.equal(own.take(pa.array(rows)), asked).to_numpy(zero_copy_only=False)
        return certain


def hashes_of(keys: Sequence[pa.Array]) -> Hashes:
    """Return a hash of 63 bits for each key without nulls."""
    hashes = shards_of_column(keys[0], 1 << _BITS)
    for column in keys[1:]:
        with np.errstate(over="ignore"):
            mixed = (hashes.astype(np.uint64) * _MIX) ^ shards_of_column(column, 1 << _BITS).astype(np.uint64)
            mixed = (mixed ^ (mixed >> np.uint64(31))) * _MIX
        hashes = (mixed >> np.uint64(1)).astype(np.int64)
    return hashes


def _duplicate(keys: Sequence[pa.Array]) -> object:
    """Return a key that comes more than once; None: there is none."""
    names = [str(place) for place in range(len(keys))]
    counts = pa.table(list(keys), names).group_by(names).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1).to_pylist()
    if not twice:
        return None
    parts = tuple(twice[0][name] for name in names)
    return parts[0] if len(parts) == 1 else parts


def _ranks(keys: Sequence[pa.Array], hashes: Hashes) -> list[npt.NDArray[np.uint64]]:
    """Return how to order rows of equal hashes; nothing if all hashes differ."""
    if len(np.unique(hashes)) == len(hashes):
        return []
    return [pc.rank(column).to_numpy() for column in reversed(keys)]


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if column.num_chunks > 1:
        column = pa.chunked_array([column.combine_chunks()]) if column.nbytes else column.slice(0, 0)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
