"""State files: the immutable format of deltas and snapshots.

    block block ... block | index (msgpack) | index length, format version, magic

A block has neighbouring keys of one shard and one table: a msgpack list of keys, one of their values, one of deleted
keys, compressed together. Lists of bytes cost the decoder one object each and the garbage collector nothing, and are
written to LMDB unchanged. The index has the position and xxh64 of every block. The reference to a file has the xxh64 of
everything after the blocks, so every byte of a file is covered by a checksum, and opening a file reads only its end.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from heapq import merge
from io import BytesIO
from itertools import islice
from math import ceil
from operator import attrgetter, itemgetter, lt
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import zstandard
from xxhash import xxh64_intdigest

from tidewheel._core.decompression import expand, is_allowed
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.key_run import KeyRun
from tidewheel._state.references import FileRef, PartRef
from tidewheel.errors import CorruptError, StateError

if TYPE_CHECKING:
    from tidewheel._state.packed_run import PackedRun

Table = str
"""A step's name, or the name of an auxiliary table such as `step/timers`."""

Item = tuple[bytes, bytes | None]
"""A key and its value; `None` marks a deleted key."""

Items = Sequence[Item]
"""Items in ascending order of their keys."""

ReadRange = Callable[[str, int, int], bytes | memoryview]
"""`read_range(path, start, length)` of a store."""

FORMAT_VERSION: Final = 1
BLOCK_BYTES: Final = 32 * 1024
"""The approximate size of a block before compression. A look-up reads a whole block; larger ones compress hardly better."""
READ_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of neighbouring blocks are read at once."""

_MAGIC = b"TWSTATE\n"
_TRAILER = struct.Struct("<II8s")
_TAIL_BYTES = 64 * 1024
_LEVEL = 1
_MIN_COMPRESSED = 64
_SAMPLES = 32
_MAX_NAME = 500
_first_key = attrgetter("first_key")


class Absent(Enum):
    """The reason why a state file has no value for a key."""

    DROPPED = "dropped"
    MISSING = "missing"


DROPPED: Final = Absent.DROPPED
"""The file says that the key was deleted."""
MISSING: Final = Absent.MISSING
"""The file does not mention the key."""


class Block(NamedTuple):
    """A decoded block: keys with their values, and deleted keys; both ascend, and no key is in both."""

    table: Table
    keys: list[bytes]
    values: list[bytes]
    dropped: list[bytes]

    def items(self) -> Iterator[Item]:
        """Yield all items in ascending order."""
        pairs = zip(self.keys, self.values, strict=True)
        if not self.dropped:
            return pairs
        return merge(pairs, ((key, None) for key in self.dropped), key=itemgetter(0))

    def find(self, key: bytes) -> bytes | Absent:
        """Return the value of a key, `DROPPED` or `MISSING`."""
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            return self.values[at]
        at = bisect_left(self.dropped, key)
        return Absent.DROPPED if at < len(self.dropped) and self.dropped[at] == key else Absent.MISSING


class IndexEntry(msgspec.Struct, frozen=True, array_like=True):
    """The position and content of a block; `count` includes the deleted keys, `table` is an index of the names."""

    shard: int
    table: int
    first_key: bytes
    count: int
    dropped: int
    offset: int
    length: int
    raw_length: int
    checksum: int


class _Index(msgspec.Struct, frozen=True, array_like=True):
    tables: list[str]
    entries: list[IndexEntry]


_encode = msgspec.msgpack.Encoder().encode
_decode_index = msgspec.msgpack.Decoder(_Index).decode
_decode_block = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes], list[bytes]]).decode


class _Zstd(threading.local):
    """Compression contexts per thread: they are not thread-safe, and too expensive to create for each block."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compress


_zstd = _Zstd()


class StateFileWriter:
    """Collects sorted items and produces the bytes of one state file.

    Equal calls give equal bytes. A run must be in ascending key order without duplicates; a second run of the same
    shard and table must continue after the first.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        # The buffer is also the result, so that a file is never in memory twice.
        self._blocks = BytesIO()
        self._entries: list[IndexEntry] = []
        self._tables: dict[Table, int] = {}
        self._last_keys: dict[tuple[int, Table], bytes] = {}
        self._offset = 0

    def add(self, shard: int, table: Table, items: Sequence[Item]) -> None:
        """Add a run of items in ascending key order; the value `None` marks a deleted key."""
        from tidewheel._state.packed_run import PackedRun  # Readers of files need no Arrow.

        if isinstance(items, PackedRun):
            self._add_packed(shard, table, items)
            return
        size = self._block_keys(
            len(items), len(sample := list(items[:: len(items) // _SAMPLES + 1])), len(_encode(sample))
        )
        for start in range(0, len(items), size):
            run = KeyRun.of(items[start : start + size])
            self._check(shard, table, run.keys)
            self._add_block(shard, table, run.keys, run.values)

    @property
    def size(self) -> int:
        """The size in bytes of the blocks so far."""
        return self._offset

    def finish(self) -> tuple[bytes, int]:
        """Return the bytes of the whole file, and the xxh64 for its reference. Add nothing afterwards."""
        index = _encode(_Index(list(self._tables), self._entries))
        footer = index + _TRAILER.pack(len(index), FORMAT_VERSION, _MAGIC)
        self._blocks.seek(self._offset)
        self._blocks.write(footer)
        return self._blocks.getvalue(), int(xxh64_intdigest(footer))

    def parts(self, ref: FileRef, sequence: int) -> dict[int, PartRef]:
        """Return the part of each shard in this file, after it was stored as `ref`."""
        return parts_of(self._entries, ref, sequence)

    def _block_keys(self, count: int, sampled: int, sampled_bytes: int) -> int:
        """Return the number of keys per block that gives equal blocks of about the right size, by the size of a sample."""
        if not count:
            return 1
        fitting = max(1, self._block_bytes * sampled // sampled_bytes)
        return ceil(count / ceil(count / fitting))

    def _add_packed(self, shard: int, table: Table, items: PackedRun) -> None:
        if not len(items):
            return
        size = self._block_keys(len(items), len(items), items.nbytes)
        if items.ascends:
            self._check(shard, table, [items.keys[at].as_py() for at in sorted({0, len(items) - 1})])
        else:
            self._check(shard, table, items.keys.to_pylist())
        for start in range(0, len(items), size):
            block = items[start : start + size]
            self._write_block(shard, table, block.keys[0].as_py(), len(block), 0, block.msgpack())

    def _check(self, shard: int, table: Table, keys: list[bytes]) -> None:
        """Raise before the commit if keys could not be read again or written to a local copy."""
        if not 0 < len(table.encode()) <= _MAX_NAME or "\0" in table:
            raise StateError(
                f"{table!r} cannot be the name of a table: it must have 1 to {_MAX_NAME} bytes and no NUL; "
                "give the step another name"
            )
        last = self._last_keys.get((shard, table), b"")
        if keys[0] <= last or not all(map(lt, keys, islice(keys, 1, None))):
            raise StateError(
                f"shard {shard}, table {table!r}: {len(keys)} keys from {keys[0]!r}, after {last!r}, are not "
                "non-empty and strictly ascending; sort the items by key, each key once, before adding them"
            )
        self._last_keys[shard, table] = keys[-1]

    def _add_block(self, shard: int, table: Table, keys: list[bytes], values: list[bytes | None]) -> None:
        dropped: list[bytes] = []
        live_keys, live_values = keys, values
        if None in values:
            dropped = [key for key, value in zip(keys, values, strict=True) if value is None]
            live_keys = [key for key, value in zip(keys, values, strict=True) if value is not None]
            live_values = [value for value in values if value is not None]
        raw = _encode((live_keys, live_values, dropped))
        if len(raw) > 4 * self._block_bytes and len(keys) > 1:
            # Some values are much larger than the sample: split the block, because a look-up reads a whole one.
            half = len(keys) // 2
            self._add_block(shard, table, keys[:half], values[:half])
            self._add_block(shard, table, keys[half:], values[half:])
            return
        self._write_block(shard, table, keys[0], len(keys), len(dropped), raw)

    def _write_block(self, shard: int, table: Table, first: bytes, count: int, dropped: int, raw: bytes) -> None:
        data = raw
        if len(raw) >= _MIN_COMPRESSED:
            compressed = _zstd.compress(raw)
            # The reader takes equal lengths as "not compressed".
            if len(compressed) < len(raw) and is_allowed(len(raw), len(compressed)):
                data = compressed
        number = self._tables.setdefault(table, len(self._tables))
        checksum = int(xxh64_intdigest(data))
        self._entries.append(
            IndexEntry(shard, number, first, count, dropped, self._offset, len(data), len(raw), checksum)
        )
        self._blocks.write(data)
        self._offset += len(data)


class StateFile:
    """A state file, read by ranges; opening reads only the index.

    Thread-safe if `read_range` is. Raises `CorruptError` if a checksum does not match.
    """

    def __init__(self, read_range: ReadRange, ref: FileRef, tail_bytes: int = _TAIL_BYTES) -> None:
        """Read the index: the last `tail_bytes` of the file, and the rest, if any, in a second read."""
        self.ref = ref
        self.in_memory = False
        """Whether the whole file is in memory or mapped."""
        self._tail_bytes = tail_bytes
        self._read_range = read_range
        self._tables, entries = self._read_index()
        self.block_count = len(entries)
        self._shards: dict[int, list[IndexEntry]] = {}
        for entry in entries:
            self._shards.setdefault(entry.shard, []).append(entry)

    @classmethod
    def of(cls, data: bytes | memoryview, ref: FileRef) -> StateFile:
        """Open a file whose bytes are in memory or mapped."""
        view = memoryview(data)
        file = cls(lambda _, start, length: view[start : start + length], ref)
        file.in_memory = True
        return file

    def shards(self) -> list[int]:
        """Return the shards in the file, in ascending order."""
        return sorted(self._shards)

    def entries(self, shard: int, table: Table | None = None) -> list[IndexEntry]:
        """Return the index entries of a shard, or of one of its tables, in the order in which the blocks were added."""
        entries = self._shards.get(shard, [])
        return entries if table is None else [entry for entry in entries if self._tables[entry.table] == table]

    def entries_within(self, shard: int, table: Table, start: bytes, stop: bytes | None) -> list[IndexEntry]:
        """Return the index entries of the blocks that may have keys with `start <= key < stop`."""
        entries = self.entries(shard, table)
        low = max(0, bisect_right(entries, start, key=_first_key) - 1)
        return entries[low : None if stop is None else bisect_left(entries, stop, key=_first_key)]

    def parts(self, sequence: int) -> dict[int, PartRef]:
        """Return the part of each shard in this file."""
        return parts_of([entry for entries in self._shards.values() for entry in entries], self.ref, sequence)

    def tables(self, shard: int) -> list[Table]:
        """Return the tables of a shard, sorted."""
        return sorted({self._tables[entry.table] for entry in self.entries(shard)})

    def blocks(self, shard: int, table: Table | None = None) -> Iterator[Block]:
        """Yield the decoded blocks of a shard, or of one of its tables; within a table, keys ascend."""
        for entry, data in self.read(shard, table):
            yield self.decode(entry, data)

    def read(self, shard: int, table: Table | None = None) -> Iterator[tuple[IndexEntry, memoryview]]:
        """Yield the unchecked bytes of a shard's blocks, for `decode`. Each read has up to `READ_BYTES`, or one block."""
        for run in adjacent(self.entries(shard, table), READ_BYTES):
            yield from self.read_together(run)

    def read_together(self, run: Sequence[IndexEntry]) -> Iterator[tuple[IndexEntry, memoryview]]:
        """Yield the unchecked bytes of blocks that are near each other, from one read."""
        start = run[0].offset
        length = run[-1].offset + run[-1].length - start
        data = memoryview(self._read_range(self.ref.name, start, length))
        for entry in run:
            yield entry, data[entry.offset - start : entry.offset - start + entry.length]

    def decode(self, entry: IndexEntry, data: memoryview) -> Block:
        """Decode the bytes of a block; raise `CorruptError` if they are damaged."""
        where = f"block at byte {entry.offset} (shard {entry.shard}, table {self._tables[entry.table]!r})"
        if len(data) != entry.length:
            raise self._corrupt(where, f"{entry.length} bytes should be there, {len(data)} are")
        checksum = int(xxh64_intdigest(data))
        if checksum != entry.checksum:
            raise self._corrupt(where, f"its xxh64 is {checksum:016x}, the index says {entry.checksum:016x}")
        try:
            raw = data if entry.length == entry.raw_length else expand(data, entry.raw_length)
            keys, values, dropped = _decode_block(raw)
        except (ValueError, *UNDECODABLE) as error:
            raise self._corrupt(where, f"it does not decode ({error})") from None
        return Block(self._tables[entry.table], keys, values, dropped)

    def items(self, shard: int, table: Table | None = None) -> Iterator[tuple[Table, bytes, bytes | None]]:
        """Yield `(table, key, value)` of a shard; the value is `None` for a deleted key."""
        for block in self.blocks(shard, table):
            for key, value in block.items():
                yield block.table, key, value

    def get(self, shard: int, table: Table, key: bytes) -> bytes | Absent:
        """Return the value of a key, `DROPPED` or `MISSING`; reads one block."""
        entry = self.entry_of(self.entries(shard, table), key)
        if entry is None:
            return MISSING
        ((_, data),) = self.read_together([entry])
        return self.decode(entry, data).find(key)

    @staticmethod
    def entry_of(entries: Sequence[IndexEntry], key: bytes) -> IndexEntry | None:
        """Return the entry, of one table's, of the only block that may have the key."""
        place = bisect_right(entries, key, key=_first_key) - 1
        return None if place < 0 else entries[place]

    def verify(self) -> int:
        """Read and check every block; return the number of keys, including deleted ones."""
        return sum(len(block.keys) + len(block.dropped) for shard in self._shards for block in self.blocks(shard))

    def _read_index(self) -> tuple[list[str], list[IndexEntry]]:
        size = self.ref.size
        if size < _TRAILER.size:
            raise self._corrupt("end", f"a state file of {size} bytes is too short to be one")
        tail = self._tail(min(size, self._tail_bytes))
        length, version, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        if magic != _MAGIC:
            raise self._corrupt("end", f"the last bytes are {magic!r}, not those of a state file")
        footer = length + _TRAILER.size
        if footer > size:
            raise self._corrupt("end", f"the index of {length} bytes is longer than the file")
        if footer > len(tail):
            tail = self._tail(footer)
        checksum = int(xxh64_intdigest(tail[-footer:]))
        if checksum != self.ref.checksum:
            raise self._corrupt("index", f"its xxh64 is {checksum:016x}, the reference says {self.ref.checksum:016x}")
        if version != FORMAT_VERSION:
            raise StateError(
                f"state file {self.ref.name} has format version {version}; this Tidewheel reads "
                f"{FORMAT_VERSION}. Use the version that wrote it, or a newer one"
            )
        try:
            index = _decode_index(tail[-footer : -_TRAILER.size])
        except UNDECODABLE as error:
            raise self._corrupt("index", f"it does not decode ({error})") from None
        if any(not 0 <= entry.table < len(index.tables) for entry in index.entries):
            raise self._corrupt("index", f"a block is of a table that is not among its {len(index.tables)} tables")
        return index.tables, index.entries

    def _tail(self, length: int) -> bytes:
        data = bytes(self._read_range(self.ref.name, self.ref.size - length, length))
        if len(data) != length:
            raise self._corrupt("end", f"{length} bytes should be there, {len(data)} are")
        return data

    def _corrupt(self, where: str, found: str) -> CorruptError:
        return CorruptError(
            f"state file {self.ref.name}, {where}: {found}. The file is damaged or not the one that was "
            "committed: put a good copy in its place, or restore the job to a checkpoint that does not need it"
        )


def parts_of(entries: Sequence[IndexEntry], ref: FileRef, sequence: int) -> dict[int, PartRef]:
    """Sum up index entries by shard."""
    sums: dict[int, tuple[int, int]] = {}
    for entry in entries:
        length, keys = sums.get(entry.shard, (0, 0))
        sums[entry.shard] = (length + entry.length, keys + entry.count)
    return {shard: PartRef(ref, sequence, length, keys) for shard, (length, keys) in sorted(sums.items())}


def adjacent(entries: Iterable[IndexEntry], read_bytes: int, gap: int = 0) -> Iterator[list[IndexEntry]]:
    """Group neighbouring blocks for one read, up to a size that fits in memory, and with gaps of at most `gap` bytes."""
    run: list[IndexEntry] = []
    for entry in entries:
        if run and (
            not 0 <= entry.offset - run[-1].offset - run[-1].length <= gap
            or entry.offset + entry.length - run[0].offset > read_bytes
        ):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run
