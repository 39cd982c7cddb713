"""What file sources have seen, kept like state: newest entries in the manifest, older ones in state files.

A file source that reads for a year has seen millions of files. Writing that list with every commit would cost more than the
data; losing it would read every file twice. So the state files are merged in tiers, each `FANOUT` times the one below, and
written as a whole only when they have doubled: a new file costs the same, however many there are. Then the entries of files
that are too old to be read again are left out, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import msgspec

from tidewheel._checkpoint.manifest import Manifest, SparkLog
from tidewheel._checkpoint.names import Suffix, path, state_file
from tidewheel._state.compaction import newest_sequence
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._storage import Store

INLINE = 256
"""How many entries the manifest itself holds before they go into a state file."""
FANOUT = 8
"""How many state files of one tier are merged into one of the next."""
_TABLE = "seen"
_SHARD = 0
_DRIVER_TASK = 10**6
"""The task number in the names of the driver's own files; tasks' numbers are far below it."""


class SeenFiles:
    """The entries of all file sources of a job: a line each, with the number of the source's log and what Spark wrote."""

    def __init__(self, store: Store, job: str, run: str) -> None:
        """Take the state store and the run that writes."""
        self._store, self._job, self._run = store, job, run
        self._attempts = count()
        self.ages: Mapping[int, int] = {}
        """By log, how many ms before the newest file a file may be to be read at all; of other logs any may be."""

    def load(self, state: Manifest) -> list[str]:
        """Return the entries as of a commit whose files could be read again, in the order in which they were seen."""
        parts = state.driver
        entries = self._read([part for part in (parts.snapshot, *parts.deltas) if part is not None])
        for line in state.spark.seen if state.spark is not None else ():
            entries[_key(line)] = line
        return remembered(entries.values(), self.ages)

    def entries(self, part: PartRef) -> Iterator[str]:
        """Give the entries of one state file."""
        return (line for _, line in self._items(part))

    def _read(self, parts: Sequence[PartRef]) -> dict[bytes, str]:
        return dict(item for part in parts for item in self._items(part))

    def _items(self, part: PartRef) -> Iterator[tuple[bytes, str]]:
        file = StateFile.of(self._store.read(path(self._job, part.file.name)), part.file)
        for _, key, value in file.items(_SHARD, _TABLE):
            yield key, (value or b"").decode()

    def record(self, base: Manifest, log: SparkLog, fresh: list[str], sequence: int) -> tuple[SparkLog, ShardParts]:
        """Return the log and the driver's parts of a commit that saw `fresh` entries more."""
        inline = (*(base.spark.seen if base.spark is not None else ()), *fresh)
        parts = base.driver
        if len(inline) > INLINE:
            parts = self._moved(base, inline, sequence, {source.log for source in log.sources})
            inline = ()
        return msgspec.structs.replace(log, seen=inline), parts

    def _moved(self, base: Manifest, inline: tuple[str, ...], sequence: int, logs: set[int]) -> ShardParts:
        parts = base.driver
        if has_doubled(parts):
            # What sources have seen that the job has let go of ends here.
            entries = [line for line in self.load(base.replace(spark=None)) if _order(line)[0] in logs]
            snapshot = self._write(entries, sequence, "snap", newest_sequence(parts)) if entries else None
            return ShardParts(snapshot, (self._write(inline, sequence, "delta", sequence),))
        kept, merged = parts.deltas, to_merge([part.keys for part in parts.deltas])
        if merged:
            inline = (*self._read(kept[-merged:]).values(), *inline)
            kept = kept[:-merged]
        return ShardParts(parts.snapshot, (*kept, self._write(inline, sequence, "delta", sequence)))

    def _write(self, lines: Iterable[str], sequence: int, suffix: Suffix, label: int) -> PartRef:
        writer = StateFileWriter()
        writer.add(_SHARD, _TABLE, sorted({_key(line): line.encode() for line in lines}.items()))
        data, checksum = writer.finish()
        # A batch that runs again in this run may have seen more files: each attempt has a name of its own.
        name = state_file(sequence, self._run, _DRIVER_TASK, next(self._attempts), suffix)
        self._store.create(path(self._job, name), data)
        return writer.parts(FileRef(name, len(data), checksum), label)[_SHARD]


def has_doubled(parts: ShardParts) -> bool:
    """Tell whether the deltas have as many entries as the snapshot, and enough to be worth writing it anew. Pure."""
    fresh = sum(part.keys for part in parts.deltas)
    return fresh >= FANOUT * FANOUT * max(INLINE, 1) and fresh >= (
        parts.snapshot.keys if parts.snapshot is not None else 0
    )


def to_merge(sizes: Sequence[int]) -> int:
    """Return how many of the newest deltas, given by their numbers of entries, go into the next one. Pure.

    A tier is full when it has `FANOUT - 1` deltas: with the new entries they make one of the next tier, which may fill that.
    """
    total = tier = max(INLINE, 1)
    merged = 0
    while True:
        tier *= FANOUT
        more = 0
        for size in reversed(sizes[: len(sizes) - merged]):
            if size >= tier:
                break
            more += 1
            total += size
        if more < FANOUT - 1 and total < tier:
            return merged
        merged += more


def remembered(lines: Iterable[str], ages: Mapping[int, int]) -> list[str]:
    """Return the entries in the order in which they were seen, without those of files that are too old to be read. Pure."""
    found = sorted(((_order(line), line) for line in lines), key=lambda each: each[0][:2])
    newest: dict[int, int] = {}
    for (log, _, at), _ in found:
        newest[log] = max(at, newest.get(log, at))
    return [line for (log, _, at), line in found if log not in ages or at >= newest[log] - ages[log]]


def _key(line: str) -> bytes:
    log, _, entry = line.partition("\t")
    return f"{log}\t{json.loads(entry)['path']}".encode()


def _order(line: str) -> tuple[int, int, int]:
    """Return the log, the batch, and the file's time in ms."""
    log, _, text = line.partition("\t")
    entry = json.loads(text)
    return int(log), int(entry["batchId"]), int(entry["timestamp"])
