"""Checkpoints in a store: the engine commits through it, and programs can store their own checkpoints.

Each stream (a job) has its own chain; creating the next record if absent is the commit. A job's commits have record
numbers equal to their sequences. A program with its own loop saves checkpoints whose sequences have gaps; their record
numbers have none.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from xxhash import xxh64_intdigest

from tidewheel._checkpoint.encoding import decode, encode
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import CHAIN, folder, page_file, stream_of
from tidewheel._checkpoint.pages import INLINE_BYTES, PageReader, pages_to_write
from tidewheel._checkpoint.pins import Pins
from tidewheel._checkpoint.retention import check_keep, oldest_kept
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.succession import check_epoch, check_follows
from tidewheel._core import faults
from tidewheel._state.references import FileRef
from tidewheel._storage import Store, open_store
from tidewheel._storage.chain import Chain
from tidewheel.errors import FencedError, NotFound, StateError, StorageError

PAGE_WRITTEN = faults.declare("commit.page-written", "a page of the next manifest is durable, and nothing refers to it")

_WRITERS = 16

_States = list[Manifest]
_Numbers = list[int]
_Names = list[str]


class StreamCheckpoints:
    """The checkpoints of one stream, with a cache of the newest one. Not thread-safe."""

    def __init__(
        self,
        store: Store,
        stream_id: str,
        keep: int | None = None,
        clock: Callable[[], int] = time.time_ns,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self.stream_id = stream_id
        self.keep = None if keep is None else check_keep(keep)
        self.folder = store.at(folder(stream_id))
        self.load_page = PageReader(self.folder)
        self.pins = Pins(self.folder)
        self._chain = Chain(self.folder, CHAIN)
        self._clock = clock
        self._inline_bytes = inline_bytes
        self._head: Manifest | None = None
        self._head_checksum: int | None = None
        self._number = 0  # The record number of the head.

    @property
    def head(self) -> Manifest | None:
        """The newest known checkpoint. Unlike `latest`, this does not access the store."""
        return self._head

    @property
    def head_checksum(self) -> int | None:
        """The xxh64 of the head's stored record.

        Encoding the head again can give other bytes, because another release of zstd may have written it.
        """
        return self._head_checksum

    def latest(self) -> Manifest | None:
        """Return the newest checkpoint, or `None` if there is none.

        If a checkpoint is known, this only checks for its successor, and decodes nothing twice.
        """
        record = self._chain.head(hint=self._number or None)
        if record is None:
            self._number, self._head, self._head_checksum = 0, None, None
        elif record.number != self._number or xxh64_intdigest(record.data) != self._head_checksum:
            # The same number with other content: the state URL was restored from a backup, and the job has continued.
            self._remember(record.number, self._decode(record.number, record.data), record.data)
        return self._head

    def commit(self, state: Manifest) -> Manifest:
        """Append a job's next checkpoint durably. Return it as stored, with its pages.

        Committing an identical checkpoint again is allowed. Raises `FencedError` if another run has used its number;
        this run must stop. Raises `StateError` if it does not continue the newest checkpoint, or if this run has
        committed a different one under its number.
        """
        self._check_stream(state)
        newest = self._head or self.latest()
        if newest is not None and newest.sequence != self._number:
            raise StateError(
                f"stream {self.stream_id!r} at {self.folder.url} has checkpoints that a program's own "
                "loop saved; give the job another name or state URL"
            )
        if newest is None or state.sequence > newest.sequence:
            check_follows(newest, state)
        state = self._with_pages(state)
        data = encode(state)
        try:
            won = self._chain.append(state.sequence, data)
        except FencedError as error:
            raise FencedError(f"{_fenced(state, self._newest())} ({error})") from None
        if not won:
            self._refuse_taken(state)
        if state.sequence > self._number:
            self._remember(state.sequence, state, data)
        return state

    def begin(self, state: Manifest, origin: str) -> None:
        """Store a fork's first checkpoint as the first of this stream; raise `StateError` if another job has started the
        stream.
        """
        self._check_stream(state)
        state = self._with_pages(state)
        data = encode(state)
        if self.latest() is not None or not self._chain.begin(state.sequence, data, origin.encode()):
            raise StateError(
                f"a job or an unfinished fork named {self.stream_id!r} already exists at {self.folder.url}; give the "
                "fork another name"
            )
        self._remember(state.sequence, state, data)

    def save(self, state: Manifest) -> None:
        """Store a checkpoint whose sequence is above all earlier ones, then delete those beyond `keep`.

        Saving a kept sequence again with equal content (apart from `created_at`) is allowed. Raises `StateError` for
        other content, a new sequence below the newest, or an epoch that goes back.
        """
        self._check_stream(state)
        while True:
            newest = self.latest()
            if newest is not None and state.sequence <= newest.sequence:
                self._check_saved(state, newest)
                return
            if newest is not None:
                check_epoch(newest, state)
            # Share pages with the newest checkpoint, which is kept: pages of a dropped one may be gone.
            stored = self._with_pages(state)
            data = encode(stored)
            # If another program took the number in the meantime, the next round checks what it saved.
            if self._chain.append(self._number + 1, data):
                break
        self._remember(self._number + 1, stored, data)
        self.retain()

    def load(self, sequence: int) -> Manifest:
        """Return the complete checkpoint of that sequence; raise `NotFound` if it is not kept."""
        manifest = self._find(sequence)
        if manifest is None:
            sequences = self.sequences()
            raise NotFound(
                f"there is no checkpoint {sequence} of job {self.stream_id!r} at {self.folder.url}; "
                + (
                    f"{len(sequences)} are kept, from {sequences[0]} to {sequences[-1]}"
                    if sequences
                    else "none is kept"
                )
            )
        return manifest

    def list(self) -> _States:
        """Return every kept checkpoint, in ascending order."""
        manifests = (self._read(number) for number in self._chain.numbers())
        return [state for state in manifests if state is not None]

    def sequences(self) -> _Numbers:
        """Return the kept sequences, in ascending order."""
        numbers = self._chain.numbers()
        # Both ascend strictly: if the first and last agree, so do all others, and nothing else needs to be read.
        if not numbers or (self._sequence(numbers[0]) == numbers[0] and self._sequence(numbers[-1]) == numbers[-1]):
            return numbers
        return [state.sequence for state in self.list()]

    def count(self) -> int:
        """Return the number of kept checkpoints."""
        return len(self._chain.numbers())

    def delete_before(self, sequence: int) -> int:
        """Delete the checkpoints below a sequence, but never the newest; return the number of deleted checkpoints."""
        numbers = self._chain.numbers()
        if not numbers:
            return 0
        at = bisect_left(numbers, sequence, key=self._sequence)
        return len(self._chain.trim(numbers[min(at, len(numbers) - 1)]))

    def remove(self) -> None:
        """Delete all checkpoints permanently, including the newest; later commits to this stream are fenced. Can be repeated."""
        self._chain.remove()

    def retain(self, keep: int | None = None, *, age: int | None = None) -> int:
        """Delete checkpoints beyond the newest `keep` that are older than `age` ns and not pinned; return their number.

        Without `age`, all checkpoints beyond the newest `keep` are old enough.
        """
        keep = self.keep if keep is None else check_keep(keep)
        if keep is None or len(sequences := self.sequences()) <= keep:
            return 0
        now = self._clock()
        young = None if age is None else self._first_since(sequences, now - age)
        bound = oldest_kept(sequences, keep, self.pins.all(), now, young)
        return 0 if bound is None else self.delete_before(bound)

    def _first_since(self, sequences: _Numbers, time: int) -> int | None:
        """Return the first sequence that was made at or after a time; None if all are older. Reads only few records."""

        def made_at(sequence: int) -> int:
            manifest = self._find(sequence)
            # A record that was trimmed after the listing is older than all others.
            return -1 if manifest is None else manifest.id.created_at

        at = bisect_left(sequences, time, key=made_at)
        return sequences[at] if at < len(sequences) else None

    def _find(self, sequence: int) -> Manifest | None:
        if self._head is not None and self._head.sequence == sequence:
            return self._head
        numbers = self._chain.numbers()
        if numbers and numbers[0] <= sequence <= numbers[-1]:
            # The record number of a job's checkpoint is its sequence.
            manifest = self._read(sequence)
            if manifest is not None and manifest.sequence == sequence:
                return manifest
        at = bisect_left(numbers, sequence, key=self._sequence)
        manifest = self._read(numbers[at]) if at < len(numbers) else None
        return manifest if manifest is not None and manifest.sequence == sequence else None

    def _sequence(self, number: int) -> int:
        """Return the sequence in a record; a record that was trimmed after the listing is below all others."""
        manifest = self._read(number)
        return -1 if manifest is None else manifest.sequence

    def _read(self, number: int) -> Manifest | None:
        """Return the checkpoint in a record, or `None` if it was trimmed after the listing."""
        if number == self._number:
            return self._head
        try:
            return self._decode(number, self._chain.read(number))
        except NotFound:
            return None

    def _newest(self) -> Manifest | None:
        record = self._chain.head()
        return None if record is None else self._decode(record.number, record.data)

    def _decode(self, number: int, data: bytes) -> Manifest:
        return decode(data, self.stream_id, f"in record {number} of {self._chain.url}", self.load_page)

    def _with_pages(self, state: Manifest) -> Manifest:
        """Write pages for the groups of shards that are too large for the record; return the checkpoint with these pages."""
        known = None if self._head is None else self._head.shards
        shards = ShardMap.of(state.shards, state.n_shards, known)
        wanted = pages_to_write([group.patch_bytes for group in shards.groups], self._inline_bytes)
        if not wanted:
            return state.replace(shards=shards)
        with ThreadPoolExecutor(min(_WRITERS, len(wanted))) as writers:
            pages = writers.map(lambda place: self._write_page(state, place, shards.groups[place].as_page()), wanted)
            return state.replace(shards=shards.with_pages(dict(zip(wanted, pages, strict=True))))

    def _write_page(self, state: Manifest, place: int, data: bytes) -> FileRef:
        """Write a page durably, before the record that refers to it."""
        digest = int(xxh64_intdigest(data))
        ref = FileRef(page_file(state.sequence, state.run, place, digest), len(data), digest)
        if not self.folder.create(ref.name, data):
            raise StorageError(f"{ref.name} at {self.folder.url} holds another page; nothing is committed")
        faults.point(PAGE_WRITTEN)
        return ref

    def _remember(self, number: int, state: Manifest, data: bytes) -> None:
        self._number, self._head, self._head_checksum = number, state, xxh64_intdigest(data)

    def _check_stream(self, state: Manifest) -> None:
        if state.id.stream_id != self.stream_id:
            raise StateError(
                f"checkpoint {state.sequence} belongs to stream {state.id.stream_id!r} and cannot be saved in {self.stream_id!r}"
            )

    def _check_saved(self, state: Manifest, newest: Manifest) -> None:
        manifest = self._find(state.sequence)
        if manifest is None:
            raise StateError(
                f"checkpoint {state.sequence} of stream {self.stream_id!r} is below the newest, "
                f"{newest.sequence}: checkpoints are saved in ascending order; read the newest first"
            )
        if manifest != state:
            changed = [name for name in state.__struct_fields__ if getattr(manifest, name) != getattr(state, name)]
            raise StateError(
                f"checkpoint {state.sequence} of stream {self.stream_id!r} is already saved with other "
                f"content ({', '.join(changed)}); save the new content under the next sequence"
            )

    def _refuse_taken(self, state: Manifest) -> NoReturn:
        theirs = self._read(state.sequence) or self._newest()
        if theirs is not None and theirs.id == state.id and theirs.run == state.run:
            raise StateError(
                f"this run ({state.run}) has already committed checkpoint {state.sequence} of "
                f"{self.stream_id!r} with other content, which is kept; read the newest and continue from it"
            )
        raise FencedError(_fenced(state, theirs))


class CheckpointStore:
    """The checkpoints of many streams at one URL.

    >>> from tidewheel._checkpoint.manifest import CheckpointId
    >>> store = CheckpointStore.open("memory:docs-checkpoints", keep=2)
    >>> for sequence in (10, 20, 30):
    ...     store.save(Manifest(CheckpointId("orders", sequence)))
    >>> [state.sequence for state in store.list("orders")], store.latest("payments")
    ([20, 30], None)
    """

    def __init__(self, store: Store, keep: int | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        """Use a store; `keep` is the number of checkpoints to keep per stream (`None`: all)."""
        self.store = store
        self.keep = None if keep is None else check_keep(keep)
        self._clock = clock
        self._streams: dict[str, StreamCheckpoints] = {}

    @classmethod
    def open(cls, url: str, keep: int | None = None) -> CheckpointStore:
        """Open the store at a URL."""
        return cls(open_store(url), keep)

    def of(self, stream_id: str) -> StreamCheckpoints:
        """Return the checkpoints of one stream: the same object each time, because it caches the newest."""
        if stream_id not in self._streams:
            self._streams[stream_id] = StreamCheckpoints(self.store, stream_id, self.keep, self._clock)
        return self._streams[stream_id]

    def streams(self) -> _Names:
        """Return the names of the streams that have checkpoints, sorted. Only the chains are listed."""
        return sorted(name for name, begun in self.folders().items() if begun)

    def folders(self) -> dict[str, bool]:
        """Return the streams that have a folder, and whether they have checkpoints: a starting job has none yet."""
        streams = ((name, stream_of(name)) for name in self.store.folders())
        return {stream: bool(self.store.list(f"{name}/{CHAIN}")) for name, stream in streams if stream is not None}

    def save(self, state: Manifest) -> None:
        """Save a checkpoint of its stream; see `StreamCheckpoints.save`."""
        self.of(state.id.stream_id).save(state)

    def load(self, stream_id: str, sequence: int) -> Manifest:
        """Return one checkpoint; raise `NotFound` if it is not kept."""
        return self.of(stream_id).load(sequence)

    def latest(self, stream_id: str) -> Manifest | None:
        """Return the stream's newest checkpoint, or `None`."""
        return self.of(stream_id).latest()

    def list(self, stream_id: str) -> _States:
        """Return the stream's checkpoints, in ascending order."""
        return self.of(stream_id).list()

    def count(self, stream_id: str) -> int:
        """Return the number of kept checkpoints of the stream."""
        return self.of(stream_id).count()

    def delete_before(self, stream_id: str, sequence: int) -> int:
        """Delete the stream's checkpoints below a sequence, but never the newest; return their number."""
        return self.of(stream_id).delete_before(sequence)


def _fenced(state: Manifest, theirs: Manifest | None) -> str:
    who = "another run"
    if theirs is not None:
        where = f" on {theirs.host}" if theirs.host else ""
        who = f"run {theirs.run}{where}, which committed {theirs.sequence} ({theirs.kind})"
    return (
        f"run {state.run} cannot commit checkpoint {state.sequence} of {state.id.stream_id!r}: "
        f"the job was taken over by {who}; this run must stop"
    )
