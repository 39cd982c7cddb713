"""Spill: the part of a batch's changes that memory has no room for, on local disk until the task ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import lmdb

from tidewheel.state.longkeys import long_key, whole_key

_MAP_SIZE = 1 << 40


class Spill:
    """Encoded states by shard and stored key. It belongs to one task and goes with it; nothing in it is committed."""

    def __init__(self) -> None:
        """Make an empty spill in a temporary folder."""
        self._folder = tempfile.mkdtemp(prefix="tidewheel-spill-")
        self._environment = lmdb.open(
            self._folder,
            map_size=_MAP_SIZE,
            max_dbs=65536,
            sync=False,
            metasync=False,
            writemap=True,
            lock=False,
        )
        self._tables: dict[int, Any] = {}

    def put(self, shard: int, items: list[tuple[bytes, bytes]]) -> None:
        """Keep these states, replacing older ones of the same keys; empty bytes stand for a dropped key."""
        table = self._tables.get(shard)
        if table is None:
            table = self._tables[shard] = self._environment.open_db(b"%d" % shard)
        with self._environment.begin(write=True, db=table) as transaction:
            cursor = transaction.cursor()
            cursor.putmulti([long_key(stored, raw) for stored, raw in items])

    def get(self, shard: int, stored: bytes) -> bytes | None:
        """Return what was kept for a key, or None."""
        table = self._tables.get(shard)
        if table is None:
            return None
        short, _ = long_key(stored, b"")
        with self._environment.begin(db=table) as transaction:
            raw = transaction.get(short)
        return None if raw is None else whole_key(short, raw)[1]

    def items(self, shard: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield all of one shard."""
        table = self._tables.get(shard)
        if table is None:
            return
        with self._environment.begin(db=table) as transaction:
            for short, raw in transaction.cursor():
                yield whole_key(short, raw)

    def shards(self) -> set[int]:
        """Return the shards that have something here."""
        return set(self._tables)

    def close(self) -> None:
        """Remove it from disk."""
        self._environment.close()
        shutil.rmtree(self._folder, ignore_errors=True)
