"""Change the number of shards of a stopped job: rewrite and check all its state, and switch to it with one commit.

A key's shard is its hash modulo a power of two, so old and new shards fall into groups that exchange nothing: as many as the
smaller of the two numbers. One group at a time is sorted, on local disk where it is large.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.names import state_file
from tidewheel._checkpoint.state_files import file_store, opener
from tidewheel._checkpoint.unpublished import carried
from tidewheel._core import faults
from tidewheel._core.keys import check_n_shards, shard_of_stored
from tidewheel._engine.claimed_job import ClaimedJob, claimed_job
from tidewheel._state.auxiliary_tables import owner
from tidewheel._state.bounded_files import BoundedFiles
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.shard_contents import shard_items
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._time.shard_epochs import earliest
from tidewheel.errors import ConfigError, StateError

WRITTEN = faults.declare("reshard.written", "all state is rewritten, and nothing refers to it")
CHECKED = faults.declare("reshard.checked", "the written state was read again and found equal")
SWITCHED = faults.declare("reshard.switched", "the job's newest commit has the new number of shards")

_MASK = 2**64 - 1


class Tally(msgspec.Struct, frozen=True):
    """The content of a table in any order: the number of its entries and the sum of their digests."""

    entries: int = 0
    digest: int = 0

    def plus(self, key: bytes, value: bytes) -> Tally:
        """Return the tally with one more entry."""
        # The length keeps key and value apart.
        entry = xxh64_intdigest(len(key).to_bytes(4, "little") + key + value)
        return Tally(self.entries + 1, (self.digest + entry) & _MASK)


class Resharded(msgspec.Struct, frozen=True):
    """The result of a reshard."""

    sequence: int
    before: int
    after: int
    tables: dict[str, Tally]
    bytes: int


def reshard(place: JobPlace, n_shards: int) -> Resharded:
    """Give a stopped job another number of shards; its program must then say the same `n_shards`.

    Until the last commit nothing has changed; files that were written for it are garbage and are collected as such. The
    checkpoints before it stay as they are. `HeldError` if the job runs.
    """
    check_n_shards(n_shards)
    with claimed_job(place) as claimed:
        head = claimed.head
        if head.n_shards == n_shards:
            raise ConfigError(f"job {place.job!r} has {n_shards} shards already")
        sequence = head.sequence + 1
        names = (state_file(sequence, claimed.run, number, 0, "snap") for number in count())
        files = BoundedFiles(file_store(claimed.store, place.job, names), sequence)
        before = _rewrite(claimed, n_shards, files)
        parts = files.finish()
        faults.point(WRITTEN)
        after = _read_again(claimed, files.files, n_shards)
        check_equal(place.job, before, after)
        faults.point(CHECKED)
        claimed.checkpoints.commit(resharded(head, claimed.run, n_shards, parts))
        faults.point(SWITCHED)
    return Resharded(head.sequence + 1, head.n_shards, n_shards, after, sum(file.size for file in files.files))


def resharded(head: Manifest, run: str, n_shards: int, parts: Mapping[int, Sequence[PartRef]]) -> Manifest:
    """Return the commit that switches to the new shards. Pure but for the lineage, which is new: local copies are by shard."""
    return head.replace(
        id=CheckpointId(head.id.stream_id, head.sequence + 1),
        kind="reshard",
        run=run,
        n_shards=n_shards,
        parallelism=min(head.parallelism, n_shards),
        shards={shard: ShardParts(some[0], tuple(some[1:])) for shard, some in sorted(parts.items())},
        # Giving a shard an epoch again does no harm: it has nothing more to do up to there.
        behind=dict.fromkeys(parts, earliest(head.behind.values())) if head.behind else {},
        lineage=secrets.token_hex(4),
        parent=head.sequence,
        **carried(head),
    )


def check_equal(job: str, before: Mapping[str, Tally], after: Mapping[str, Tally]) -> None:
    """Refuse to switch to state that differs from the old state. Pure."""
    for table in sorted(before.keys() | after.keys()):
        was, now = before.get(table, Tally()), after.get(table, Tally())
        if was != now:
            raise StateError(
                f"resharding job {job!r} would change {table!r}: it has {was.entries} entries with digest {was.digest:016x}, and "
                f"{now.entries} with {now.digest:016x} were written; nothing is switched. Check the store with "
                "`tidewheel checkpoints verify`, and try again"
            )


def _rewrite(claimed: ClaimedJob, n_shards: int, files: BoundedFiles) -> dict[str, Tally]:
    """Write the state by its new shards; return a tally of the read state."""
    head = claimed.head
    fetch = opener(claimed.store, head.id.stream_id)
    tallies: dict[str, Tally] = {}
    groups = min(head.n_shards, n_shards)
    for group in range(groups):
        with SortedRuns() as entries:
            for shard in (shard for shard in sorted(head.shards) if shard % groups == group):
                for table, key, value in shard_items(head.shards[shard], shard, fetch):
                    tallies[table] = tallies.get(table, Tally()).plus(key, value)
                    entries.add(shard_of_stored(owner(table, key), n_shards), table, key, value)
            for new in entries.shards():
                for table, items in entries.tables(new):
                    files.add(new, table, items)
    return tallies


def _read_again(claimed: ClaimedJob, files: Iterable[FileRef], n_shards: int) -> dict[str, Tally]:
    """Return a tally of the written state, read from the store; every checksum and every key's shard is checked."""
    fetch = opener(claimed.store, claimed.head.id.stream_id)
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
