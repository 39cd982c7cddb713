"""Read one shard's committed state, as of the time a reader was opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import takewhile
from typing import Any, NamedTuple

import lmdb

from tidewheel._core.closing import Closing
from tidewheel._state.long_keys import MAX_KEY, long_items, long_key, whole_key
from tidewheel._state.state_file import Table


class Handles(NamedTuple):
    """The LMDB databases of one table: plain keys, and long keys if it ever had any."""

    plain: Any
    long: Any | None


class ShardReader(Closing):
    """A read transaction: it sees one state of the shard, whatever other processes apply.

    Close it when the batch is done: LMDB cannot reuse pages that an open reader may need. It belongs to the process
    that opened it, and is not thread-safe.
    """

    def __init__(self, transaction: Any, handles: Mapping[Table, Handles], on_close: Callable[[], None]) -> None:
        self._transaction = transaction
        self._handles = handles
        self._get = transaction.get
        self._on_close = on_close
        self._closed = False

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the key's value, or `None`."""
        handles = self._handles.get(table)
        if handles is None:
            return None
        try:
            value: bytes | None = self._get(key, None, handles.plain)
        except lmdb.BadValsizeError:
            # The empty key, which a table cannot contain.
            return None
        if value is None and len(key) > MAX_KEY and handles.long is not None:
            return self._get_long(handles.long, key)
        return value

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the keys' values in order, `None` for missing keys; sorted keys are found fastest."""
        handles = self._handles.get(table)
        if handles is None:
            return [None] * len(keys)
        # Faster than LMDB's getmulti, which copies every key and omits missing keys.
        try:
            values = list(map(self._transaction.cursor(handles.plain).get, keys))
        except lmdb.BadValsizeError:
            return [self.get(table, key) for key in keys]
        if handles.long is not None:
            for place, key in enumerate(keys):
                if len(key) > MAX_KEY:
                    values[place] = self._get_long(handles.long, key)
        return values

    def items(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with `start <= key < stop`, ascending by key."""
        handles = self._handles.get(table)
        if handles is None:
            return iter(())
        cursor = self._transaction.cursor(handles.plain)
        plain: Iterator[tuple[bytes, bytes]] = (
            cursor.iternext(keys=True, values=True) if cursor.set_range(start) else iter(())
        )
        if stop is not None:
            end = stop
            plain = takewhile(lambda item: item[0] < end, plain)
        if handles.long is None:
            return plain
        return merge(plain, long_items(self._transaction.cursor(handles.long), start, stop))

    def count(self, table: Table) -> int:
        """Return the number of keys in a table, without reading them."""
        handles = self._handles.get(table)
        return sum(self._transaction.stat(db)["entries"] for db in handles or () if db is not None)

    def size(self, table: Table) -> tuple[int, int]:
        """Return the number of keys in a table, and their size in bytes here, without reading them."""
        handles = self._handles.get(table)
        stats = [self._transaction.stat(db) for db in handles or () if db is not None]
        pages = sum(
            (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"] for stat in stats
        )
        return sum(stat["entries"] for stat in stats), pages

    def tables(self) -> list[Table]:
        """Return the tables that have keys, sorted."""
        return sorted(table for table in self._handles if self.count(table))

    def close(self) -> None:
        """End the transaction; the reader cannot be used afterwards. Can be called twice."""
        if not self._closed:
            self._closed = True
            self._transaction.abort()
            self._on_close()

    def _get_long(self, database: Any, key: bytes) -> bytes | None:
        stored, _ = long_key(key, b"")
        raw = self._get(stored, None, database)
        return None if raw is None else whole_key(stored, raw)[1]


class EmptyReader(ShardReader):
    """The reader of a shard without committed state; it needs no local copy."""

    def __init__(self) -> None:
        self._handles = {}
        self._closed = True
