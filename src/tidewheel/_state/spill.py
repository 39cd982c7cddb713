"""Spill: changes of a batch that do not fit in memory, on local disk until the task ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from tidewheel._state.local_copy import disk_is_full, free_bytes
from tidewheel._state.long_keys import long_key, whole_key
from tidewheel._state.state_file import DROPPED, MISSING, Absent
from tidewheel.errors import LocalDiskFull, StateError, TidewheelError

_MAP_SIZE = 1 << 40
# A user's codec may encode a state as empty bytes, so these cannot mark a deleted key.
_GONE, _THERE = b"-", b"+"

T = TypeVar("T")


class Spill:
    """Encoded states by shard and stored key. It belongs to one task and is deleted with it; nothing in it is committed."""

    def __init__(self, parent: str | Path | None = None) -> None:
        """Create an empty spill in its own folder below `parent`, or below the system's temporary folder."""
        try:
            self._folder = tempfile.mkdtemp(prefix="tidewheel-spill-", dir=parent)
            self._environment = lmdb.open(
                self._folder,
                map_size=_MAP_SIZE,
                max_dbs=65536,
                sync=False,
                metasync=False,
                lock=False,
            )
        except (OSError, lmdb.Error) as error:
            raise disk_failure(Path(parent or tempfile.gettempdir()), "a batch's changes", error) from error
        self._tables: dict[int, Any] = {}

    def put(self, shard: int, items: list[tuple[bytes, bytes | None]]) -> None:
        """Store these states, replacing older ones of the same keys; None marks a deleted key."""
        table = self._tables.get(shard)
        if table is None:
            table = self._tables[shard] = self._environment.open_db(b"%d" % shard)
        marked = (long_key(stored, _GONE if raw is None else _THERE + raw) for stored, raw in items)
        try:
            with self._environment.begin(write=True, db=table) as transaction:
                transaction.cursor().putmulti(marked)
        except lmdb.Error as error:
            raise disk_failure(Path(self._folder), f"{len(items)} changed keys", error) from error

    def get_many(self, shard: int, stored: list[bytes]) -> list[bytes | Absent]:
        """Return the stored state of each key, or DROPPED or MISSING."""
        table = self._tables.get(shard)
        if table is None:
            return [MISSING] * len(stored)
        with self._environment.begin(db=table) as transaction:
            entries = [(short, transaction.get(short)) for short, _ in (long_key(key, b"") for key in stored)]
        return [MISSING if raw is None else _unmarked(whole_key(short, raw)[1], DROPPED) for short, raw in entries]

    def items(self, shard: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield all entries of one shard."""
        table = self._tables.get(shard)
        if table is None:
            return
        with self._environment.begin(db=table) as transaction:
            for short, raw in transaction.cursor():
                stored, marked = whole_key(short, raw)
                yield stored, _unmarked(marked, None)

    def shards(self) -> set[int]:
        """Return the shards that have entries."""
        return set(self._tables)

    def close(self) -> None:
        """Delete the spill from disk."""
        self._environment.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def disk_failure(folder: Path, what: str, error: Exception) -> TidewheelError:
    """Return the error for a failed write to local disk, with advice."""
    text = f"{what} cannot be moved from memory to {folder} ({free_bytes(folder)} free): {error}"
    if disk_is_full(error):
        return LocalDiskFull(f"{text}; give that disk more room")
    return StateError(f"{text}; choose a folder that can be written to")


def _unmarked(marked: bytes, dropped: T) -> bytes | T:
    return dropped if marked == _GONE else marked[1:]
