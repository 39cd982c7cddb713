"""Another number of shards for a stopped job: all its state is written anew, checked, and switched to by one commit.

A key's shard is its hash modulo a power of two, so old and new shards fall into groups that exchange nothing: as many as the
smaller of the two numbers. One group at a time is in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from itertools import groupby

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.names import path, state_file
from tidewheel._checkpoint.state_files import opener
from tidewheel._checkpoint.transfer import JobPlace
from tidewheel._checkpoint.unpublished import carried
from tidewheel._core import faults
from tidewheel._core.keys import check_n_shards, shard_of_stored
from tidewheel._engine.move import ClaimedJob, held, owner
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.shard_contents import shard_items
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._time.shard_epochs import earliest
from tidewheel.errors import ConfigError, StateError

WRITTEN = faults.declare("reshard.written", "all state is written anew, and nothing refers to it")
CHECKED = faults.declare("reshard.checked", "what was written is read again and found equal")
SWITCHED = faults.declare("reshard.switched", "the job's newest commit has the new number of shards")

_FILE_BYTES = 64 * 1024 * 1024
_CHUNK = 8192
_MASK = 2**64 - 1

Entry = tuple[str, bytes, bytes]
"""Table, key and value."""


class Tally(msgspec.Struct, frozen=True):
    """What a table holds, whatever the order and the shards: the number of its entries and the sum of their digests."""

    entries: int = 0
    digest: int = 0

    def plus(self, key: bytes, value: bytes) -> Tally:
        """Return the tally with one more entry."""
        # The length keeps key and value apart.
        entry = xxh64_intdigest(len(key).to_bytes(4, "little") + key + value)
        return Tally(self.entries + 1, (self.digest + entry) & _MASK)


class Resharded(msgspec.Struct, frozen=True):
    """What was done."""

    sequence: int
    before: int
    after: int
    tables: dict[str, Tally]
    bytes: int


def reshard(place: JobPlace, n_shards: int) -> Resharded:
    """Give a stopped job another number of shards; its program must then say the same `n_shards`.

    Until the last commit nothing has changed, and what was written is removed with other files that nothing needs. The
    checkpoints before it stay as they are. `HeldError` if the job runs.
    """
    check_n_shards(n_shards)
    with held(place) as claimed:
        head = claimed.head
        if head.n_shards == n_shards:
            raise ConfigError(f"job {place.job!r} has {n_shards} shards already")
        writing = _Writing(claimed)
        before: dict[str, Tally] = {}
        for new, entries in _groups(claimed, n_shards, before):
            writing.add(new, entries)
        files, parts = writing.finish()
        faults.point(WRITTEN)
        after = _read_again(claimed, files, n_shards)
        check_equal(place.job, before, after)
        faults.point(CHECKED)
        claimed.checkpoints.commit(resharded(head, claimed.run, n_shards, parts))
        faults.point(SWITCHED)
    return Resharded(head.sequence + 1, head.n_shards, n_shards, after, sum(file.size for file in files))


def resharded(head: Manifest, run: str, n_shards: int, parts: Mapping[int, PartRef]) -> Manifest:
    """Return the commit that switches to the new shards. Pure but for the lineage, which is new: local copies are by shard."""
    return head.replace(
        id=CheckpointId(head.id.stream_id, head.sequence + 1),
        kind="reshard",
        run=run,
        n_shards=n_shards,
        parallelism=min(head.parallelism, n_shards),
        shards={shard: ShardParts(part) for shard, part in sorted(parts.items())},
        # Giving a shard an epoch again does no harm: it has nothing more to do up to there.
        behind=dict.fromkeys(parts, earliest(head.behind.values())) if head.behind else {},
        lineage=secrets.token_hex(4),
        parent=head.sequence,
        **carried(head),
    )


def check_equal(job: str, before: Mapping[str, Tally], after: Mapping[str, Tally]) -> None:
    """Refuse to switch to state that is not what was there. Pure."""
    for table in sorted(before.keys() | after.keys()):
        was, now = before.get(table, Tally()), after.get(table, Tally())
        if was != now:
            raise StateError(
                f"resharding job {job!r} would change {table!r}: it has {was.entries} entries with digest {was.digest:016x}, and "
                f"{now.entries} with {now.digest:016x} were written; nothing is switched. Check the store with "
                "`tidewheel checkpoints verify`, and try again"
            )


def _groups(claimed: ClaimedJob, n_shards: int, tallies: dict[str, Tally]) -> Iterator[tuple[int, list[Entry]]]:
    """Yield each new shard with its entries in order, and count what is read."""
    head = claimed.head
    fetch = opener(claimed.store, head.id.stream_id)
    groups = min(head.n_shards, n_shards)
    for group in range(groups):
        old = [shard for shard in sorted(head.shards) if shard % groups == group]
        entries: dict[int, list[Entry]] = {}
        for table, key, value in merge(*(shard_items(head.shards[shard], shard, fetch) for shard in old)):
            tallies[table] = tallies.get(table, Tally()).plus(key, value)
            entries.setdefault(shard_of_stored(owner(table, key), n_shards), []).append((table, key, value))
        yield from sorted(entries.items())


class _Writing:
    """Snapshots of new shards, in files of bounded size; a shard is in one file."""

    def __init__(self, claimed: ClaimedJob) -> None:
        self._claimed = claimed
        self._sequence = claimed.head.sequence + 1
        self._writer, self._bytes = StateFileWriter(), 0
        self._files: list[FileRef] = []
        self._parts: dict[int, PartRef] = {}

    def add(self, shard: int, entries: list[Entry]) -> None:
        for table, group in groupby(entries, key=lambda entry: entry[0]):
            items: list[tuple[bytes, bytes | None]] = [(key, value) for _, key, value in group]
            for start in range(0, len(items), _CHUNK):
                self._writer.add(shard, table, items[start : start + _CHUNK])
        self._bytes += sum(len(key) + len(value) for _, key, value in entries)
        if self._bytes > _FILE_BYTES:
            self._close()

    def finish(self) -> tuple[list[FileRef], dict[int, PartRef]]:
        self._close()
        return self._files, self._parts

    def _close(self) -> None:
        if not self._bytes:
            return
        data, checksum = self._writer.finish()
        name = state_file(self._sequence, self._claimed.run, len(self._files), 0, "snap")
        self._claimed.store.create(path(self._claimed.head.id.stream_id, name), data)
        file = FileRef(name, len(data), checksum)
        self._parts.update(self._writer.parts(file, self._sequence))
        self._files.append(file)
        self._writer, self._bytes = StateFileWriter(), 0


def _read_again(claimed: ClaimedJob, files: list[FileRef], n_shards: int) -> dict[str, Tally]:
    """Return what the store holds of what was written; every checksum and every key's shard is checked."""
    fetch: Callable[[FileRef], StateFile] = opener(claimed.store, claimed.head.id.stream_id)
    tallies: dict[str, Tally] = {}
    for file in map(fetch, files):
        for shard in file.shards():
            for table, key, value in file.items(shard):
                if value is None or shard_of_stored(owner(table, key), n_shards) != shard:
                    raise StateError(
                        f"{file.ref.name} has an entry of {table!r} in shard {shard} that does not belong there"
                    )
                tallies[table] = tallies.get(table, Tally()).plus(key, value)
    return tallies
