"""Checkpoints in a store: the engine commits through it, and programs keep their own checkpoints in it.

Each stream (a job) has a chain of its own; creating the next record if absent is the commit. A job's
commits have record numbers equal to their sequences. A program that drives its own loop saves checkpoints
whose sequences have gaps; their records are numbered without any.
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
    """The checkpoints of one stream. It remembers the newest one seen; for use by one thread at a time."""

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
        """The newest checkpoint seen here, without a look into the store, as `latest` takes one."""
        return self._head

    @property
    def head_checksum(self) -> int | None:
        """The xxh64 of the head's record as it is stored. Encoding the head again may give other bytes: another
        release of zstd may have written it.
        """
        return self._head_checksum

    def latest(self) -> Manifest | None:
        """Return the newest checkpoint, or `None` if there is none.

        Once one is known, this costs a look for its successor, and nothing is decoded twice.
        """
        record = self._chain.head(hint=self._number or None)
        if record is None:
            self._number, self._head, self._head_checksum = 0, None, None
        elif record.number != self._number or xxh64_intdigest(record.data) != self._head_checksum:
            # The same number with other content: the state URL was put back from a backup, and the job has gone on.
            self._remember(record.number, self._decode(record.number, record.data), record.data)
        return self._head

    def commit(self, state: Manifest) -> Manifest:
        """Append a job's next checkpoint; when this returns, it is durable. It is returned as it is stored: with its pages.

        Committing the very same checkpoint again is fine. `FencedError`: another run has taken its number;
        this run must stop. `StateError`: it does not continue the newest checkpoint, or this run has
        committed another one under its number.
        """
        self._check_stream(state)
        newest = self._head or self.latest()
        if newest is not None and newest.sequence != self._number:
            raise StateError(
                f"stream {self.stream_id!r} at {self.folder.url} holds checkpoints that a program's own "
                "loop saved; a job needs a name or a state URL of its own"
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
        """Make a fork's first checkpoint the first of this stream; `StateError` if the stream was begun by anybody else."""
        self._check_stream(state)
        state = self._with_pages(state)
        data = encode(state)
        if self.latest() is not None or not self._chain.begin(state.sequence, data, origin.encode()):
            raise StateError(
                f"there is a job {self.stream_id!r} at {self.folder.url} already, or another fork of that name was begun; "
                "a fork needs a name of its own"
            )
        self._remember(state.sequence, state, data)

    def save(self, state: Manifest) -> None:
        """Keep a checkpoint whose sequence is above all earlier ones, then let go of those beyond `keep`.

        Saving a kept sequence again with equal content (whatever its `created_at`) is fine. `StateError`:
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
            # It shares pages with the newest, which is kept: those of one that was let go meanwhile may be gone.
            stored = self._with_pages(state)
            data = encode(stored)
            # A number that another program took meanwhile is judged by what it saved, in the next round.
            if self._chain.append(self._number + 1, data):
                break
        self._remember(self._number + 1, stored, data)
        self.retain()

    def load(self, sequence: int) -> Manifest:
        """Return the checkpoint of that sequence, whole; `NotFound` if it is not kept."""
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
        """Return every kept checkpoint, ascending by sequence."""
        manifests = (self._read(number) for number in self._chain.numbers())
        return [state for state in manifests if state is not None]

    def sequences(self) -> _Numbers:
        """Return the sequences that are kept, ascending."""
        numbers = self._chain.numbers()
        # Both ascend strictly: when the ends agree, so does all between them, and nothing else need be read.
        if not numbers or (self._sequence(numbers[0]) == numbers[0] and self._sequence(numbers[-1]) == numbers[-1]):
            return numbers
        return [state.sequence for state in self.list()]

    def count(self) -> int:
        """Return how many checkpoints are kept."""
        return len(self._chain.numbers())

    def delete_before(self, sequence: int) -> int:
        """Remove the checkpoints below a sequence, never the newest; return how many went."""
        numbers = self._chain.numbers()
        if not numbers:
            return 0
        at = bisect_left(numbers, sequence, key=self._sequence)
        return len(self._chain.trim(numbers[min(at, len(numbers) - 1)]))

    def remove(self) -> None:
        """Remove all checkpoints, the newest too, for good: whoever commits to this stream is fenced. Again does no harm."""
        self._chain.remove()

    def retain(self, keep: int | None = None, *, age: int | None = None) -> int:
        """Remove what is beyond the newest `keep`, older than `age` ns, and not pinned; return how many went.

        Without an age, what is beyond the newest `keep` is old enough.
        """
        keep = self.keep if keep is None else check_keep(keep)
        if keep is None or len(sequences := self.sequences()) <= keep:
            return 0
        now = self._clock()
        young = None if age is None else self._first_since(sequences, now - age)
        bound = oldest_kept(sequences, keep, self.pins.all(), now, young)
        return 0 if bound is None else self.delete_before(bound)

    def _first_since(self, sequences: _Numbers, time: int) -> int | None:
        """Return the first sequence that was made at a time or after it; None if all are older. Few records are read."""

        def made_at(sequence: int) -> int:
            manifest = self._find(sequence)
            # One that was trimmed since it was listed is older than all others.
            return -1 if manifest is None else manifest.id.created_at

        at = bisect_left(sequences, time, key=made_at)
        return sequences[at] if at < len(sequences) else None

    def _find(self, sequence: int) -> Manifest | None:
        if self._head is not None and self._head.sequence == sequence:
            return self._head
        numbers = self._chain.numbers()
        if numbers and numbers[0] <= sequence <= numbers[-1]:
            # A job's checkpoint has its sequence for a record number.
            manifest = self._read(sequence)
            if manifest is not None and manifest.sequence == sequence:
                return manifest
        at = bisect_left(numbers, sequence, key=self._sequence)
        manifest = self._read(numbers[at]) if at < len(numbers) else None
        return manifest if manifest is not None and manifest.sequence == sequence else None

    def _sequence(self, number: int) -> int:
        """Return the sequence in a record; one that was trimmed since it was listed is below all others."""
        manifest = self._read(number)
        return -1 if manifest is None else manifest.sequence

    def _read(self, number: int) -> Manifest | None:
        """Return the checkpoint in a record, or `None` if it was trimmed since it was listed."""
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
        """Return the checkpoint with those groups of shards on pages that are too much for the record; write these pages."""
        known = None if self._head is None else self._head.shards
        shards = ShardMap.of(state.shards, state.n_shards, known)
        wanted = pages_to_write([group.patch_bytes for group in shards.groups], self._inline_bytes)
        if not wanted:
            return state.replace(shards=shards)
        with ThreadPoolExecutor(min(_WRITERS, len(wanted))) as writers:
            pages = writers.map(lambda place: self._write_page(state, place, shards.groups[place].as_page()), wanted)
            return state.replace(shards=shards.with_pages(dict(zip(wanted, pages, strict=True))))

    def _write_page(self, state: Manifest, place: int, data: bytes) -> FileRef:
        """Make a page durable, before the record that refers to it."""
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
                f"checkpoint {state.sequence} is of stream {state.id.stream_id!r} and cannot go to {self.stream_id!r}"
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
                f"content ({', '.join(changed)}); a sequence stands for one content, so go on with the next"
            )

    def _refuse_taken(self, state: Manifest) -> NoReturn:
        theirs = self._read(state.sequence) or self._newest()
        if theirs is not None and theirs.id == state.id and theirs.run == state.run:
            raise StateError(
                f"this run ({state.run}) has already committed checkpoint {state.sequence} of "
                f"{self.stream_id!r} with other content, which stands; read the newest and go on from it"
            )
        raise FencedError(_fenced(state, theirs))


class CheckpointStore:
    """The checkpoints of many streams at one URL, each stream for itself.

    >>> from tidewheel._checkpoint.manifest import CheckpointId
    >>> store = CheckpointStore.open("memory:docs-checkpoints", keep=2)
    >>> for sequence in (10, 20, 30):
    ...     store.save(Manifest(CheckpointId("orders", sequence)))
    >>> [state.sequence for state in store.list("orders")], store.latest("payments")
    ([20, 30], None)
    """

    def __init__(self, store: Store, keep: int | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        """Use a store; `keep` is how many checkpoints of each stream stay (`None`: all)."""
        self.store = store
        self.keep = None if keep is None else check_keep(keep)
        self._clock = clock
        self._streams: dict[str, StreamCheckpoints] = {}

    @classmethod
    def open(cls, url: str, keep: int | None = None) -> CheckpointStore:
        """Open the store at a URL."""
        return cls(open_store(url), keep)

    def of(self, stream_id: str) -> StreamCheckpoints:
        """Return the checkpoints of one stream: the same object each time, as it remembers the newest."""
        if stream_id not in self._streams:
            self._streams[stream_id] = StreamCheckpoints(self.store, stream_id, self.keep, self._clock)
        return self._streams[stream_id]

    def streams(self) -> _Names:
        """Return the streams that have checkpoints, by name. Of what a stream stores only the chain is listed."""
        return sorted(name for name, begun in self.folders().items() if begun)

    def folders(self) -> dict[str, bool]:
        """Return the streams that have a folder, by name, and whether they have checkpoints: a job that starts has none yet."""
        streams = ((name, stream_of(name)) for name in self.store.folders())
        return {stream: bool(self.store.list(f"{name}/{CHAIN}")) for name, stream in streams if stream is not None}

    def save(self, state: Manifest) -> None:
        """Keep a checkpoint of its stream; see `StreamCheckpoints.save`."""
        self.of(state.id.stream_id).save(state)

    def load(self, stream_id: str, sequence: int) -> Manifest:
        """Return one checkpoint; `NotFound` if it is not kept."""
        return self.of(stream_id).load(sequence)

    def latest(self, stream_id: str) -> Manifest | None:
        """Return the stream's newest checkpoint, or `None`."""
        return self.of(stream_id).latest()

    def list(self, stream_id: str) -> _States:
        """Return the stream's checkpoints, ascending by sequence."""
        return self.of(stream_id).list()

    def count(self, stream_id: str) -> int:
        """Return how many checkpoints of the stream are kept."""
        return self.of(stream_id).count()

    def delete_before(self, stream_id: str, sequence: int) -> int:
        """Remove the stream's checkpoints below a sequence, never the newest; return how many went."""
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
