"""The local copy of one shard: an LMDB environment to which the parts of the shard's state are applied.

**What a copy survives.** Nothing is synced to disk. A process that dies at any point leaves the operating system's page
cache consistent for LMDB: the pages of an unfinished transaction are not reachable from the newest meta page, which is
written last. When the *machine* dies, pages have reached the disk in any order or not at all, and the copy is garbage
that may look complete. Therefore its folder's name contains the boot id (`folder_name`): after a reboot nobody opens it
again, and a new copy is built from the store.

**Why not through the memory map.** LMDB's `writemap` would save 0.05 us per key. But then a full disk is not an error:
the process dies of SIGBUS at some memory access. And a process that opens an environment with a smaller map truncates
the file of a writer that has just enlarged it, which then also dies.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from tidewheel._core import faults
from tidewheel._state.apply_delta import (
    LONG,
    PLAIN,
    apply_part,
    database_names,
    empty_copy,
    last_applied,
    remember_applied,
)
from tidewheel._state.missing_parts import Applied, Missing, missing_parts
from tidewheel._state.private_folder import make_private
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.shard_reader import Handles, ShardReader
from tidewheel._state.state_file import Block, IndexEntry, StateFile, Table
from tidewheel.errors import LocalDiskFull, StateError, TidewheelError

Fetch = Callable[[FileRef], StateFile]

FILLED = faults.declare("copy.filled", "a local copy has taken in parts, in a transaction not yet committed")

_MAX_DATABASES = 512
_MAX_READERS = 1024
_OPEN_ATTEMPTS = 100

_OUT_OF_DATE = "If a newer batch is at work on this machine, this one is out of date and must end. If not: "


class CopyLimits(msgspec.Struct, frozen=True):
    """The sizes at which a local copy changes how it works."""

    map_size: int = 1 << 30
    """The first size of the memory map, in bytes: 65,536 of them fit in a process. It grows with the state."""
    fetched_ahead: int = 64 << 20
    """How many bytes of missing parts are read before the write transaction begins."""
    stale_bytes: int = 64 << 20
    """After applying this many bytes to stale copies in a batch, a task reads its other stale shards by block."""
    many_keys: int = 2000
    many_pages: int = 512
    """After applying more keys than this to a larger environment, it is reopened, which releases memory."""


class ShardCopy:
    """The local copy of one shard: one LMDB environment, a named database for each table."""

    def __init__(self, folder: Path, number: int, limits: CopyLimits) -> None:
        self.number, self._limits = number, limits
        self.path = folder / f"{number:05d}"
        # Two transactions of a process must not open databases at the same time, and the map must not be replaced
        # during a transaction.
        self._lock = threading.RLock()
        self._handles: dict[Table, Handles] = {}
        self._names_known = 0
        self._readers = 0
        self._reached = threading.local()
        self.was_filled = False
        """Whether it applied so much at once that its environment was reopened to release memory."""
        self.was_stale = False
        """Whether the last `catch_up` found more missing than the shard's newest commit: other hosts had worked on it."""
        self._environment = self._open(limits.map_size)
        self._opened_file = self._file()

    @property
    def applied(self) -> int:
        """The sequence of the newest commit in the copy; 0 if it is empty."""
        return _sequence(self._applied())

    def lacks(self, parts: ShardParts, sequence: int, run: str = "") -> tuple[PartRef, ...]:
        """Return the parts that `catch_up` would apply if the copy is stale; none if it lacks at most the newest commit."""
        applied = self._applied()
        todo = self._missing_parts(parts, sequence, applied, run)
        return todo.parts if _is_stale(todo, applied) else ()

    def catch_up(self, parts: ShardParts, sequence: int, fetch: Fetch, run: str = "") -> int:
        """Bring the copy to the state of the manifest `sequence`, which names these parts of the shard.

        Return the size in bytes of the missing parts. `run` is the calling run.

        Uses one write transaction if a part is missing, none otherwise. Other processes may do the same at the same
        time. A copy of another history is replaced. Raises `StateError`, without changes, if the copy has a newer
        commit of the same run.
        """
        if self._file() != self._opened_file:
            # The folder was deleted: create a new one, which other processes find too.
            self._reopen()
        applied, lacked, self.was_stale = self._applied(), 0, False
        while todo := self._missing_parts(parts, sequence, applied, run):
            self.was_stale |= _is_stale(todo, applied)
            contents = _Contents(self.number, todo.parts, fetch, self._limits.fetched_ahead)
            applied = self._apply(parts, sequence, run, applied, todo, contents)
            lacked += sum(part.bytes for part in todo.parts)
            if not self._wrote_many_pages(todo.parts) or not self._reopen():
                break
            self.was_filled = True
            # The folder may have been deleted since it was opened; then everything is missing again.
            applied = self._applied()
        self._reached.applied = applied
        return lacked

    def begin(self) -> ShardReader:
        """Return a reader of the state that this thread's last `catch_up` reached.

        Raises `StateError` if another process has advanced the copy since: the caller's base is then out of date.
        """
        with self._lock:
            transaction = self._begin()
            if transaction.stat()["entries"] != self._names_known:
                transaction.abort()
                self._open_databases()
                transaction = self._begin()
            self._readers += 1
            reader = ShardReader(transaction, self._handles, self._reader_closed)
        applied = last_applied(transaction)
        expected = getattr(self._reached, "applied", applied)
        if applied != expected:
            reader.close()
            raise self._error(
                f"the copy was moved from commit {_sequence(expected)} to {_sequence(applied)} since it was caught up",
                _OUT_OF_DATE,
            )
        return reader

    def close(self) -> None:
        """Close the environment; close its readers first."""
        self._environment.close()

    def release(self) -> bool:
        """Close the environment if there is no reader; return whether it is closed."""
        with self._lock:
            if self._readers:
                return False
            self._environment.close()
            return True

    def _wrote_many_pages(self, parts: Sequence[PartRef]) -> bool:
        """Return whether applying these parts may have changed more pages than LMDB should keep in memory."""
        many = sum(part.keys for part in parts) > self._limits.many_keys
        return many and self._environment.info()["last_pgno"] > self._limits.many_pages

    def _reopen(self) -> bool:
        """Close and reopen the environment, unless there is a reader; return whether this was done.

        This releases the memory of a large transaction: LMDB keeps every page of its largest transaction for the next
        one.
        """
        with self._lock:
            if self._readers:
                return False
            map_size = self._environment.info()["map_size"]
            self._environment.close()
            self._environment = self._open(map_size)
            self._opened_file = self._file()
            self._handles, self._names_known = {}, 0
            return True

    def _file(self) -> tuple[int, int] | None:
        """Return the identity of the copy's file, or None if there is none."""
        try:
            status = os.stat(self.path / "data.mdb")
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _open(self, map_size: int) -> Any:
        for attempt in range(_OPEN_ATTEMPTS):
            try:
                make_private(self.path.parent)
                self.path.mkdir(0o700, exist_ok=True)
                return lmdb.open(
                    str(self.path),
                    map_size=map_size,
                    max_dbs=_MAX_DATABASES,
                    max_readers=_MAX_READERS,
                    sync=False,
                    metasync=False,
                    meminit=False,
                    mode=0o600,
                )
            except (OSError, lmdb.Error) as error:
                if attempt == _OPEN_ATTEMPTS - 1 or not _may_open_again(error):
                    raise self._failed("opened", error) from error

    def _applied(self) -> Applied | None:
        with self._lock, self._begin() as transaction:
            return last_applied(transaction)

    def _missing_parts(self, parts: ShardParts, sequence: int, applied: Applied | None, run: str) -> Missing:
        try:
            return missing_parts(parts, sequence, applied, run)
        except StateError as error:
            raise self._error(str(error), _OUT_OF_DATE) from None

    def _apply(
        self,
        parts: ShardParts,
        sequence: int,
        run: str,
        expected: Applied | None,
        todo: Missing,
        contents: _Contents,
    ) -> Applied | None:
        with self._lock:
            self._make_room(contents.raw_bytes)
            while True:
                # A process that was killed while reading blocks the reuse of its pages until somebody checks for it.
                self._environment.reader_check()
                try:
                    with self._begin(write=True) as transaction:
                        applied = last_applied(transaction)
                        if applied != expected:
                            todo = self._missing_parts(parts, sequence, applied, run)
                        if todo.replace:
                            empty_copy(self._environment, transaction)
                            applied = None
                        for part in todo.parts:
                            blocks = contents.blocks(part)
                            apply_part(self._environment, transaction, self.number, part, applied is None, blocks)
                            applied = Applied.of(part)
                            remember_applied(transaction, applied)
                        faults.point(FILLED)
                    return applied
                except lmdb.MapFullError as error:
                    self._resize(self._environment.info()["map_size"] * 2, error)
                except lmdb.DbsFullError:
                    raise self._error(f"the shard has more than {_MAX_DATABASES} tables") from None
                except lmdb.Error as error:
                    raise self._failed("written", error) from error

    def _open_databases(self) -> None:
        """Open the databases that this process or another has created since the last call."""
        # Use a write transaction that writes nothing: handles opened in a read transaction end with it.
        with self._begin(write=True) as transaction:
            names = database_names(transaction)
            databases = {name: self._environment.open_db(name, transaction, create=False) for name in names}
            self._names_known = transaction.stat()["entries"]
        # Create a new dict: an open reader must not see a handle that is newer than its transaction.
        tables = [name.removeprefix(PLAIN) for name in names if name.startswith(PLAIN)]
        self._handles = {
            table.decode(): Handles(databases[PLAIN + table], databases.get(LONG + table)) for table in tables
        }

    def _begin(self, write: bool = False) -> Any:
        while True:
            try:
                return self._environment.begin(write=write)
            except lmdb.MapResizedError:
                self._resize(0)
            except lmdb.ReadersFullError:
                raise self._error(f"more than {_MAX_READERS} readers are open") from None

    def _make_room(self, raw_bytes: int) -> None:
        """Enlarge the map before it is full: a transaction that finds it full must be restarted."""
        info = self._environment.info()
        needed_bytes = (info["last_pgno"] + 1) * self._environment.stat()["psize"] + 4 * raw_bytes
        map_size = info["map_size"]
        while map_size < needed_bytes:
            map_size *= 2
        if map_size > info["map_size"] and not self._readers:
            self._resize(map_size)

    def _resize(self, map_size: int, cause: Exception | None = None) -> None:
        """Use a larger map, or with 0 the size that another process has set."""
        if self._readers:
            raise LocalDiskFull(
                self._about(f"the map must grow, but {self._readers} readers of this process are open")
            ) from cause
        try:
            self._environment.set_mapsize(map_size)
        except lmdb.Error as error:
            raise LocalDiskFull(self._about(f"the map cannot grow to {map_size} bytes ({error})")) from error

    def _reader_closed(self) -> None:
        with self._lock:
            self._readers -= 1

    def _failed(self, done: str, error: Exception) -> TidewheelError:
        """Return the error for a copy that could not be opened or written."""
        if disk_is_full(error):
            return LocalDiskFull(
                f"the local disk is full, or fails: the copy of shard {self.number} in {self.path} "
                f"({free_bytes(self.path)} free) could not be {done} ({error}). Nothing is lost: make room there, or choose "
                "another folder (--local, TIDEWHEEL_LOCAL), and the copy is rebuilt from the store"
            )
        return self._error(f"it cannot be {done} ({error})")

    def _error(self, problem: str, to_do: str = "") -> StateError:
        return StateError(self._about(problem, to_do))

    def _about(self, problem: str, to_do: str = "") -> str:
        return (
            f"local copy of shard {self.number} in {self.path} ({free_bytes(self.path)} free): {problem}. {to_do}The copy "
            "is only a cache: stop what uses it, delete its folder, and it is rebuilt from the store"
        )


class _Contents:
    """The blocks of missing parts, fetched before the write transaction as far as memory allows.

    The rest is fetched while others wait for the write lock. Blocks are decoded one by one when they are written, while
    their keys and values are in the processor's cache.
    """

    def __init__(self, shard: int, parts: Sequence[PartRef], fetch: Fetch, fetched_ahead: int) -> None:
        self._shard = shard
        self._fetch = fetch
        self._files: dict[PartRef, StateFile] = {part: fetch(part.file) for part in parts}
        self._fetched: dict[PartRef, list[tuple[IndexEntry, memoryview]]] = {}
        self.raw_bytes = 0
        held = 0
        for part, file in self._files.items():
            entries = file.entries(shard)
            self.raw_bytes += sum(entry.raw_length for entry in entries)
            held += sum(entry.length for entry in entries)
            if held <= fetched_ahead:
                self._fetched[part] = list(file.read(shard))

    def blocks(self, part: PartRef) -> Iterable[Block]:
        """Return the blocks of a part; can be called repeatedly."""
        file = self._files.get(part) or self._fetch(part.file)
        fetched = self._fetched.get(part) or file.read(self._shard)
        return (file.decode(entry, data) for entry, data in fetched)


def _is_stale(todo: Missing, applied: Applied | None) -> bool:
    """Return whether more is missing than the shard's newest commit: other hosts have worked on it."""
    older = len({part.sequence for part in todo.parts}) > 1
    return bool(todo) and (older or todo.replace or applied is None)


def _sequence(applied: Applied | None) -> int:
    return applied.sequence if applied else 0


def _may_open_again(error: Exception) -> bool:
    """Return whether opening failed for a reason that a retry may fix."""
    if isinstance(error, lmdb.MapResizedError):
        # Another process has enlarged the map after this one had read its size.
        return True
    if isinstance(error, FileNotFoundError) or os.strerror(errno.ENOENT) in str(error):
        # The folder was deleted after it was created.
        return True
    return os.strerror(errno.EMFILE) in str(error) and _allow_more_files()


def _allow_more_files() -> bool:
    """Raise this process's limit of open files as far as allowed: an environment needs three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


def disk_is_full(error: Exception) -> bool:
    """Return whether an error of LMDB or the system means that the disk is full."""
    # LMDB reports a write that a full disk truncated as an input/output error.
    full = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    return isinstance(error, lmdb.DiskError) or any(
        getattr(error, "errno", None) == code or os.strerror(code) in str(error) for code in full
    )


def free_bytes(path: Path) -> str:
    """Return the free space of a folder's disk, for an error."""
    try:
        status = os.statvfs(path)
    except OSError:
        return "an unknown number of bytes"
    return f"{status.f_bavail * status.f_frsize:,} bytes"
