"""Local copies: committed state of shards in LMDB, on the machine that works on them.

A copy is a cache of the parts that a manifest names. It holds committed state only and only moves forward, so retries
and several processes on one machine are harmless: whoever comes second finds the work done.

**What a copy survives.** Environments are opened without any fsync, and written through the memory map. A process
that dies at any point leaves the operating system's page cache as LMDB wants it: pages of an unfinished transaction are
not reachable from the newest meta page, which is written last. When the *machine* dies, pages reach the disk in any order
or not at all, and the copy is garbage that may look whole. Therefore its folder's name contains the boot id
(`folder_name`): after a reboot nobody opens it again, and the copy is built anew from the store.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lmdb
import msgspec

from tidewheel.errors import CorruptError, StateError
from tidewheel.state.files import Block, StateFile, Table
from tidewheel.state.longkeys import MAX_KEY, long_key, whole_key
from tidewheel.state.reader import Handles, ShardReader
from tidewheel.state.refs import FileRef, PartRef, ShardParts

__all__ = [
    "Applied",
    "LocalCopies",
    "ShardCopy",
    "ShardReader",
    "folder_name",
    "lacking",
    "long_key",
    "whole_key",
]

Fetch = Callable[[FileRef], StateFile]

MAP_SIZE: Final = 1 << 34
"""Address space per shard; the file is sparse, so it costs nothing until it is used. It doubles when it is full."""

_MAX_DBS = 1024
_MAX_READERS = 1024

# Names in the main database: a record of what was applied, and for each table a database of its keys and one of its
# long keys, should it have any. (LMDB ends a name at its first NUL, so the kind must come first.)
_APPLIED = b"applied"
_PLAIN = b"t:"
_LONG = b"l:"


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """The last part that a copy took in."""

    sequence: int
    snapshot: bool
    checksum: int


_encode = msgspec.msgpack.Encoder().encode
_decode_applied = msgspec.msgpack.Decoder(Applied).decode


def lacking(parts: ShardParts, sequence: int, applied: Applied | None) -> list[PartRef]:
    """Return the parts that bring a copy to `sequence`; a snapshot among them comes first and replaces all that is there.

    A `StateError` if the copy is ahead (it took in a part newer than the newest one in `parts` at or below `sequence`)
    or of another history (it took in a part that `parts` would have to name and does not).
    """
    snapshot, deltas = parts.snapshot, parts.deltas
    if snapshot and snapshot.sequence > sequence:
        raise StateError(f"the parts begin with a snapshot of {snapshot.sequence}, which is after {sequence}")
    if deltas and deltas[-1].sequence > sequence:
        deltas = tuple(delta for delta in deltas if delta.sequence <= sequence)
    newest = deltas[-1] if deltas else snapshot
    if applied is None:
        return [snapshot, *deltas] if snapshot else list(deltas)
    if newest is None or applied.sequence > newest.sequence:
        raise StateError(
            f"the copy is ahead: it holds commit {applied.sequence}, but at sequence {sequence} the newest part is that of "
            f"{newest.sequence if newest else 0}"
        )
    if newest.file.checksum == applied.checksum and newest.sequence == applied.sequence:
        return []
    if snapshot and applied.sequence < snapshot.sequence:
        return [snapshot, *deltas]
    held = [part for part in (snapshot, *deltas) if part and part.sequence == applied.sequence]
    alike = [part for part in held if (part is snapshot) == applied.snapshot]
    if not held or (alike and all(part.file.checksum != applied.checksum for part in alike)):
        raise StateError(
            f"the copy is of another history: it holds a part of commit {applied.sequence} that the manifest of sequence "
            f"{sequence} does not name"
        )
    return [delta for delta in deltas if delta.sequence > applied.sequence]


def folder_name(job: str, lineage: str) -> str:
    """Return the name of the folder for a job's local copies on this boot of this machine."""
    return f"{job}-{lineage}-{_boot_id()}"


class LocalCopies:
    """The local copies below one folder; `LocalCopies.at(folder)` gives the one object of this process.

    LMDB forbids a second open of an environment in a process, and an environment must not be used across a fork.
    """

    _open: dict[str, LocalCopies] = {}  # noqa: RUF012
    _inherited: list[Any] = []  # noqa: RUF012
    _lock = threading.Lock()

    def __init__(self, folder: str | Path, map_size: int = MAP_SIZE) -> None:
        self.folder = Path(folder)
        self._map_size = map_size
        self._shards: dict[int, ShardCopy] = {}

    @classmethod
    def at(cls, folder: str | Path, map_size: int = MAP_SIZE) -> LocalCopies:
        """Return this process's copies below the folder."""
        key = os.path.realpath(folder)
        with cls._lock:
            if key not in cls._open:
                cls._open[key] = cls(key, map_size)
            return cls._open[key]

    def shard(self, number: int) -> ShardCopy:
        """Return the copy of a shard, made empty if it does not exist."""
        copy = self._shards.get(number)
        if copy is None:
            with self._lock:
                copy = self._shards.get(number)
                if copy is None:
                    copy = self._shards[number] = ShardCopy(self.folder, number, self._map_size)
        return copy

    def close(self) -> None:
        """Close every environment; readers must be closed before."""
        with self._lock:
            for copy in self._shards.values():
                copy.close()
            self._shards.clear()
            self._open.pop(str(self.folder), None)

    @classmethod
    def _after_fork(cls) -> None:
        # The child must not even close what it inherited: the locks and reader slots are the parent's.
        cls._inherited.append(dict(cls._open))
        cls._open.clear()
        cls._lock = threading.Lock()


os.register_at_fork(after_in_child=LocalCopies._after_fork)


class ShardCopy:
    """The local copy of one shard: one LMDB environment, a named database for each table."""

    def __init__(self, folder: Path, number: int, map_size: int) -> None:
        self.number = number
        self.path = folder / f"{number:05d}"
        self._lock = threading.RLock()
        self._handles: dict[Table, Handles] = {}
        self._known = 0
        self._readers = 0
        self._reached = threading.local()
        self._sequence = 0
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._environment = lmdb.open(
                str(self.path),
                map_size=map_size,
                max_dbs=_MAX_DBS,
                max_readers=_MAX_READERS,
                sync=False,
                metasync=False,
                writemap=True,
                map_async=True,
                meminit=False,
            )
        except (OSError, lmdb.Error) as error:
            raise self._error(f"the copy cannot be opened ({error})") from error

    @property
    def applied(self) -> int:
        """The sequence that the copy is known to be at; 0 when nothing was applied."""
        applied = self._applied()
        if applied is None:
            return 0
        return max(applied.sequence, self._sequence)

    def catch_up(self, parts: ShardParts, sequence: int, fetch: Fetch) -> None:
        """Bring the copy to the state of the manifest `sequence`, whose parts of this shard are given.

        One write transaction if any part is lacking, none otherwise. Concurrent processes are harmless. A copy that is
        ahead of the manifest is a `StateError`, and is left as it is.
        """
        applied = self._applied()
        todo = self._lacking(parts, sequence, applied)
        if todo:
            # Fetched before the transaction, so that nobody waits for the network with the write lock held.
            files = {part.file: fetch(part.file) for part in todo}
            applied = self._apply(parts, sequence, lambda ref: files.get(ref) or fetch(ref))
        self._sequence = max(self._sequence, sequence)
        self._reached.sequence = _sequence(applied)

    def begin(self) -> ShardReader:
        """Return a reader of the state that this thread's last `catch_up` reached.

        A `StateError` if another process has moved the copy on since: the caller's base is then out of date.
        """
        with self._lock:
            transaction = self._begin()
            if transaction.stat()["entries"] != self._known:
                transaction.abort()
                self._open_tables()
                transaction = self._begin()
            self._readers += 1
            reader = ShardReader(transaction, self._handles, self._reader_closed)
        found = _sequence(_record(transaction))
        expected = getattr(self._reached, "sequence", found)
        if found != expected:
            reader.close()
            raise self._error(f"another process moved the copy from commit {expected} to {found} meanwhile")
        return reader

    def close(self) -> None:
        """Close the environment; its readers must be closed before."""
        self._environment.close()

    def _applied(self) -> Applied | None:
        with self._lock, self._begin() as transaction:
            return _record(transaction)

    def _lacking(self, parts: ShardParts, sequence: int, applied: Applied | None) -> list[PartRef]:
        try:
            return lacking(parts, sequence, applied)
        except StateError as error:
            raise self._error(str(error)) from None

    def _apply(self, parts: ShardParts, sequence: int, fetch: Fetch) -> Applied | None:
        with self._lock:
            while True:
                # A process that was killed while reading holds its pages back until somebody notices that it is gone.
                self._environment.reader_check()
                try:
                    with self._begin(write=True) as transaction:
                        applied = _record(transaction)
                        for part in self._lacking(parts, sequence, applied):
                            applied = self._apply_part(
                                transaction, part, part is parts.snapshot, applied, fetch
                            )
                        if applied is not None:
                            transaction.put(_APPLIED, _encode(applied))
                    return applied
                except lmdb.MapFullError:
                    self._resize(self._environment.info()["map_size"] * 2)
                except lmdb.DbsFullError:
                    raise self._error(f"there are more than {_MAX_DBS} tables") from None

    def _apply_part(
        self, transaction: Any, part: PartRef, is_snapshot: bool, applied: Applied | None, fetch: Fetch
    ) -> Applied:
        if is_snapshot and applied is not None:
            self._wipe(transaction)
        empty = is_snapshot or applied is None
        for block in fetch(part.file).blocks(self.number):
            self._apply_block(transaction, block, empty, part)
        return Applied(part.sequence, is_snapshot, part.file.checksum)

    def _apply_block(self, transaction: Any, block: Block, append: bool, part: PartRef) -> None:
        name = block.table.encode()
        database = self._environment.open_db(_PLAIN + name, transaction)
        if block.keys:
            pairs = zip(block.keys, block.values, strict=True)
            try:
                _, added = transaction.cursor(database).putmulti(pairs, append=append)
            except lmdb.BadValsizeError:
                # LMDB took the pairs before the first long key; putting them again changes nothing.
                pairs = zip(block.keys, block.values, strict=True)
                self._put_long(transaction, name, database, list(pairs))
            else:
                if added != len(block.keys):
                    raise CorruptError(
                        f"state file {part.file.name}, shard {self.number}, table {block.table!r}: keys are not "
                        "ascending; a faulty program wrote it, restore the job to a checkpoint that does not need it"
                    )
        for key in block.dropped:
            if len(key) <= MAX_KEY:
                transaction.delete(key, db=database)
            else:
                stored, _ = long_key(key, b"")
                transaction.delete(stored, db=self._environment.open_db(_LONG + name, transaction))

    def _put_long(self, transaction: Any, name: bytes, database: Any, pairs: list[tuple[bytes, bytes]]) -> None:
        transaction.cursor(database).putmulti([pair for pair in pairs if len(pair[0]) <= MAX_KEY])
        long = [long_key(key, value) for key, value in pairs if len(key) > MAX_KEY]
        transaction.cursor(self._environment.open_db(_LONG + name, transaction)).putmulti(long)

    def _wipe(self, transaction: Any) -> None:
        # Emptied, not deleted: other processes hold handles of these databases.
        for name in _names(transaction):
            transaction.drop(self._environment.open_db(name, transaction), delete=False)

    def _open_tables(self) -> None:
        """Open the databases that other processes, or this one, have made since."""
        with self._begin() as transaction:
            names = set(_names(transaction))
            databases = {name: self._environment.open_db(name, transaction, create=False) for name in names}
            self._known = transaction.stat()["entries"]
        # A new dict, because open readers must not see handles that are younger than their transaction.
        self._handles = {
            name.removeprefix(_PLAIN).decode(): Handles(
                databases[name], databases.get(_LONG + name.removeprefix(_PLAIN))
            )
            for name in names
            if name.startswith(_PLAIN)
        }

    def _begin(self, write: bool = False) -> Any:
        while True:
            try:
                return self._environment.begin(write=write)
            except lmdb.MapResizedError:
                self._resize(0)
            except lmdb.ReadersFullError:
                raise self._error(f"more than {_MAX_READERS} readers are open") from None

    def _resize(self, map_size: int) -> None:
        """Take a larger map, or with 0 the size that another process has chosen."""
        if self._readers:
            raise self._error(f"the map must grow, but {self._readers} readers of this process are open")
        self._environment.set_mapsize(map_size)

    def _reader_closed(self) -> None:
        with self._lock:
            self._readers -= 1

    def _error(self, found: str) -> StateError:
        return StateError(
            f"local copy of shard {self.number} in {self.path}: {found}. The copy is only a cache: stop what uses it, "
            "delete the folder, and it is built anew from the store"
        )


def _record(transaction: Any) -> Applied | None:
    data = transaction.get(_APPLIED)
    return None if data is None else _decode_applied(data)


def _sequence(applied: Applied | None) -> int:
    return applied.sequence if applied else 0


def _names(transaction: Any) -> list[bytes]:
    return [name for name in transaction.cursor().iternext(keys=True, values=False) if name != _APPLIED]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Where the kernel gives no id, the time of boot serves: it changes with every boot.
        return subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True).stdout
