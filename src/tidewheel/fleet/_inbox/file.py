"""An inbox in a folder: several producers and readers on one machine, safe against crashes.

The shards share one log, so an append is one write to disk, whatever its shards. With the index in each entry, a reader
reads only the blocks of its shards. The log is a sequence of files, each named by its first position.

Appends run under a lock, one at a time. The file `end` holds the durable end of the log: it is updated after the entry
is on disk, and readers read no further. If a writer dies, the next one completes its last entry, if all of it was
written, or truncates it. Completing writes the bytes again: after a failed sync, the system assumes that they are
written.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import re
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._core import faults
from tidewheel._core.forks import guard, opened_before_fork
from tidewheel._core.keys import check_n_shards
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._storage.file import FileStore, open_file
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError, CorruptError, NotFound, StorageError
from tidewheel.fleet._inbox import entry as entries
from tidewheel.fleet._inbox.base import (
    Block,
    Bytes,
    Inbox,
    Stored,
    check_producer,
    decode_skipped,
    is_duplicate,
    marks_s,
    new_identity,
)
from tidewheel.fleet._inbox.entry import Mark
from tidewheel.fleet._inbox.errors import InboxError

WRITTEN = faults.declare(
    "inbox.written", "an entry is in the log file, perhaps not on the disk, and not behind the end"
)
DURABLE = faults.declare("inbox.durable", "an entry is on the disk; the end does not include it yet")
ENDED = faults.declare("inbox.ended", "the end includes the entry; its producer has not been answered")

_FORMAT = 2
_DESCRIPTION = "inbox.json"
_SKIPPED = "skipped.json"
_SEGMENT = re.compile(r"(\d{20})\.log")
_END = struct.Struct("<QQ")
_TRIES = 1000
_PIECES = 512
"""How many pieces one call writes; systems allow at most 1,024."""


class _Description(msgspec.Struct, frozen=True):
    format: int
    n_shards: int
    identity: int = 0


class FileInbox(Inbox):
    """The log in one folder. `segment_bytes` is the size at which a new file begins."""

    max_block_bytes = 16 * 2**20

    def __init__(self, url: str, n_shards: int | None = None, *, segment_bytes: int = 64 * 2**20) -> None:
        store = FileStore.from_url(url)
        self.url, self._folder, self._segment_bytes = store.url, store.root, segment_bytes
        described = _described(store, n_shards)
        self.n_shards, self.identity = described.n_shards, described.identity
        self._lock = threading.Lock()
        self._forked = False
        self._marks: dict[str, Mark] = {}
        self._known = -1
        """The position up to which the marks are known; -1 if none are."""
        self._log_begins = 0
        """The position of the first block in the newest file, after its marks."""
        self._broken = -1
        """The first position of a file whose sync failed; nothing more is written to it."""
        with self._explained():
            self._lock_file = open_file(f"{self._folder}/lock", os.O_RDWR)
            self._end_file = open_file(f"{self._folder}/end", os.O_RDWR)
            guard(self)
            with self._locked():
                self._recover()

    def append(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        check_producer(producer)
        with self._explained(), self._locked():
            end = self._recover()
            self._learn(end)
            mark = self._marks.get(producer)
            new = [block for block in blocks if not self._is_stored(producer, session, block, mark)]
            if new:
                at = time.time()
                end = self._write(end, entries.encode(producer, session, new, at))
                self._note(producer, session, ((block.shard, block.last) for block in new), at)
                self._known = end

    def marks(self, producer: str) -> dict[int, int]:
        with self._explained(), self._locked():
            self._learn(self._recover())
            mark = self._marks.get(producer)
            return {} if mark is None else dict(mark.last)

    def forget(self, producer: str) -> None:
        with self._explained(), self._locked():
            end = self._recover()
            self._learn(end)
            if self._marks.pop(producer, None) is not None:
                self._known = self._write(end, [entries.encode_forget(producer, time.time())])

    def after_fork(self) -> None:
        """Refuse to write: parent and child would hold one lock together."""
        self._lock = threading.Lock()
        self._forked = True

    def start(self) -> dict[int, int]:
        first = next(iter(self._bases()), 0)
        return dict.fromkeys(range(self.n_shards), first)

    def end(self, shards: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(shards, self._read_end())

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Stored]:
        for position, found, data in self._entries(start, end):
            at = found.bodies
            for part in found.header.parts:
                if start.get(part.shard, position + 1) <= position < end[part.shard]:
                    body = bytes(data[at : at + part.length])
                    if xxh64_intdigest(body) != part.checksum:
                        raise CorruptError(
                            f"the block of shard {part.shard} at position {position} of {self.url} does not match "
                            "its checksum; "
                            "the file was changed or the disk is failing: restore it from a copy"
                        )
                    block = Block(part.shard, part.first, part.count, body, part.through)
                    yield Stored(position, found.header.producer, block)
                at += part.length

    def sizes(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
        for position, found, _ in self._entries(start, end):
            for part in found.header.parts:
                if start.get(part.shard, position + 1) <= position < end[part.shard]:
                    yield position, part.shard, part.count

    def trim(self, below: Mapping[int, int], older_than: Duration = "0 s") -> None:
        lowest = min((below.get(shard, 0) for shard in range(self.n_shards)), default=0)
        age = seconds(older_than, "older_than=")
        since = time.time() - age
        with self._explained(), self._locked():
            bases = self._bases()
            for base, following in itertools.pairwise(bases):
                if following > lowest or (age and os.path.getmtime(self._path(base)) > since):
                    break
                os.unlink(self._path(base))

    def skip(self, shard: int, position: int, number: int) -> None:
        with self._explained(), self._locked():
            events = sorted({*self.skipped(), (shard, position, number)})
            FileStore(self._folder).write(_SKIPPED, msgspec.json.encode(events))

    def skipped(self) -> set[tuple[int, int, int]]:
        try:
            return decode_skipped(FileStore(self._folder).read(_SKIPPED), self.url)
        except NotFound:
            return set()

    def close(self) -> None:
        with self._lock:
            for descriptor in (self._lock_file, self._end_file):
                if descriptor >= 0:
                    os.close(descriptor)
            self._lock_file = self._end_file = -1

    def _entries(
        self, start: Mapping[int, int], end: Mapping[int, int]
    ) -> Iterator[tuple[int, entries.Found, memoryview]]:
        """Yield position, header and file of every entry in a range."""
        ranges = [(first, end[shard]) for shard, first in start.items() if first < end[shard]]
        if not ranges:
            return
        at, stop = min(first for first, _ in ranges), max(last for _, last in ranges)
        if stop > self._read_end():
            raise InboxError(
                f"{self.url} ends at {self._read_end()} and was to be read to {stop}: it is not the inbox that this "
                "job has "
                "read before, or a part of it was lost"
            )
        bases = self._bases()
        if not bases or at < bases[0]:
            raise InboxError(
                f"{self.url} begins at {bases[0] if bases else 0} and was to be read from {at}: that part was trimmed"
            )
        for base, following in zip(bases, [*bases[1:], stop], strict=True):
            if following <= at or base >= stop:
                continue
            with self._mapped(base, min(following, stop)) as data:
                for found in self._walk(data, base, at - base):
                    yield at, found, data
                    at = base + found.end

    def _walk(self, data: memoryview, base: int, at: int) -> Iterator[entries.Found]:
        while at < len(data):
            found = entries.find(data, at)
            if found is None or found.end > len(data):
                raise CorruptError(
                    f"no entry stands at position {base + at} of {self.url}, in {self._path(base)}; either the "
                    "position is not "
                    "one of this inbox, or the file was changed: restore it from a copy"
                )
            at = found.end
            yield found

    def _recover(self) -> int:
        """Complete or truncate what a dead writer left after the end; return the end. Requires the lock."""
        end = self._read_end(locked=True)
        bases = self._bases()
        if bases and bases[-1] > end:
            # The writer died after creating a new file and before updating the end, or the end was lost.
            end = bases[-1]
        base = bases[-1] if bases else 0
        if not bases or (size := os.path.getsize(self._path(base))) == end - base:
            return end
        with self._mapped(base, max(end, base + size)) as data:
            whole = end - base
            while (found := entries.find(data, whole)) is not None and entries.is_whole(data, found):
                whole = found.end
            rest = bytes(data[end - base : whole])
        with _opened(self._path(base), os.O_WRONLY) as log:
            os.ftruncate(log, whole)
            _write_all(log, [rest], end - base)
            os.fsync(log)
        self._move_end(base + whole)
        return base + whole

    def _is_stored(self, producer: str, session: str, block: Block, mark: Mark | None) -> bool:
        # The producer is new, or sent nothing for so long that its marks have expired.
        known = (session, block.first - 1) if mark is None else mark.of(block.shard)
        return is_duplicate(block, session, known, producer, self.url)

    def _write(self, end: int, entry: Sequence[Bytes]) -> int:
        """Append an entry, in pieces, durably; return the new end. Requires the lock."""
        bases = self._bases()
        base = bases[-1] if bases else 0
        # Marks take at most half as much space as the blocks, however many there are.
        full = max(self._segment_bytes, 2 * (self._log_begins - base))
        if not bases or base == self._broken or end - self._log_begins >= full:
            end, base = self._begin_segment(end), end
        with _opened(self._path(base), os.O_WRONLY) as log:
            size = _write_all(log, entry, end - base)
            faults.point(WRITTEN)
            try:
                os.fdatasync(log)
            except OSError:
                self._broken = base
                raise
        faults.point(DURABLE)
        self._move_end(end + size)
        faults.point(ENDED)
        return end + size

    def _learn(self, end: int) -> None:
        """Read the marks up to the end."""
        if self._known == end:
            return
        bases = self._bases()
        at = self._known
        if at < 0 or (bases and at < bases[-1]):
            at = self._log_begins = bases[-1] if bases else 0
            self._marks = {}
        if bases and at < end:
            with self._mapped(bases[-1], end) as data:
                for found in self._walk(data, bases[-1], at - bases[-1]):
                    header = found.header
                    if header.parts:
                        last = ((part.shard, part.last) for part in header.parts)
                        self._note(header.producer, header.session, last, header.at)
                    elif header.producer:
                        self._marks.pop(header.producer, None)
                    else:
                        self._marks.update(header.marks)
                        self._log_begins = bases[-1] + found.end
        self._known = end

    def _note(self, producer: str, session: str, last: Iterator[tuple[int, int]], at: float) -> None:
        self._marks.setdefault(producer, Mark(session, {})).add(session, last, at)

    def _begin_segment(self, end: int) -> int:
        """Begin a new file with the marks that are still needed; return the new end."""
        now = time.time()
        for mark in self._marks.values():
            mark.at = mark.at or now
        self._marks = {name: mark for name, mark in self._marks.items() if mark.at + marks_s(name) > now}
        data = entries.encode_marks(self._marks)
        # Renamed when complete, so that the newest file always begins with marks.
        FileStore(self._folder).create(f"{end:020}.log", data)
        self._log_begins = end + len(data)
        self._move_end(self._log_begins)
        return self._log_begins

    def _read_end(self, *, locked: bool = False) -> int:
        for _ in range(_TRIES):
            raw = os.pread(self._end_file, _END.size, 0)
            if not raw:
                return 0
            if len(raw) == _END.size:
                end, checksum = _END.unpack(raw)
                if xxh64_intdigest(raw[:8]) == checksum:
                    return int(end)
        if locked:
            # No process is writing it, so it is damaged; the entries of the newest file determine the end.
            return 0
        raise CorruptError(f"{self._folder}/end does not match its checksum; open the inbox again to repair it")

    def _move_end(self, end: int) -> None:
        raw = struct.pack("<Q", end)
        os.pwrite(self._end_file, raw + struct.pack("<Q", xxh64_intdigest(raw)), 0)

    def _bases(self) -> list[int]:
        return sorted(int(match[1]) for name in os.listdir(self._folder) if (match := _SEGMENT.fullmatch(name)))

    def _path(self, base: int) -> str:
        return f"{self._folder}/{base:020}.log"

    @contextlib.contextmanager
    def _mapped(self, base: int, end: int) -> Iterator[memoryview]:
        try:
            log = os.open(self._path(base), os.O_RDONLY)
        except FileNotFoundError:
            raise InboxError(
                f"the part of {self.url} that begins at {base} was trimmed while it was to be read"
            ) from None
        try:
            if (size := os.fstat(log).st_size) < end - base:
                raise CorruptError(
                    f"{self._path(base)} has {size} bytes and must have {end - base}: the file was cut short; "
                    "restore it from a copy"
                )
            mapped = mmap.mmap(log, end - base, prot=mmap.PROT_READ)
        finally:
            os.close(log)
        with mapped, memoryview(mapped) as view:
            yield view

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._lock_file < 0:
                raise InboxError(f"the inbox {self.url} was closed")
            if self._forked:
                raise InboxError(opened_before_fork(f"the inbox {self.url}"))
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"the inbox at {self.url} could not be used: {error.strerror or error}; nothing that was "
                "acknowledged is lost. "
                "Check the folder, its owner and the room on its disk"
            ) from error


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, pieces: Sequence[Bytes], at: int) -> int:
    """Write pieces in order; return their size in bytes."""
    begin = at
    for first in range(0, len(pieces), _PIECES):
        few = pieces[first : first + _PIECES]
        end = at + sum(map(len, few))
        at += os.pwritev(descriptor, few, at)
        if at < end:
            rest = memoryview(b"".join(few))[at - end :]
            while rest:
                written = os.pwrite(descriptor, rest, at)
                rest, at = rest[written:], at + written
    return at - begin


def _described(store: FileStore, n_shards: int | None) -> _Description:
    """Return the description of an inbox; create it if it does not exist."""
    try:
        raw = store.read(_DESCRIPTION)
    except NotFound:
        if n_shards is None:
            raise ConfigError(
                f"there is no inbox at {store.url}; check the URL, or say how many shards a new one has"
            ) from None
        check_n_shards(n_shards)
        # Another process may create it at the same time with another number: the stored one counts.
        store.create(_DESCRIPTION, msgspec.json.encode(_Description(_FORMAT, n_shards, new_identity())))
        raw = store.read(_DESCRIPTION)
    try:
        found = msgspec.json.decode(raw, type=_Description)
        check_n_shards(found.n_shards)
    except (ConfigError, *UNDECODABLE) as error:
        raise CorruptError(f"{_DESCRIPTION} at {store.url} does not decode ({error}); is it an inbox?") from None
    if found.format != _FORMAT:
        advice = (
            "install a newer Tidewheel"
            if found.format > _FORMAT
            else "let its job read all of it with the version that wrote it, then begin another inbox"
        )
        raise ConfigError(f"the inbox at {store.url} has format {found.format}, this version knows {_FORMAT}: {advice}")
    if n_shards not in (None, found.n_shards):
        raise ConfigError(
            f"the inbox at {store.url} has {found.n_shards} shards, not {n_shards}; the number is fixed for its life"
        )
    return found
