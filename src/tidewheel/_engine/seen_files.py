"""The files that sources have seen, stored like state: the newest in the manifest, older ones in state files.

A source that reads files for a year has seen millions of them. Writing the whole list with every commit would cost more than
the data; without the list every file would be read twice. So the state files are merged like the files of a shard
(`_state/compaction.py`), and the cost of a new file does not depend on the number of seen files. A merge of all entries drops
the entries of files that are too old to be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from tidewheel._checkpoint.manifest import Manifest, SeenFile
from tidewheel._checkpoint.names import Suffix, path, state_file
from tidewheel._checkpoint.spark_log import OldSeenFile, old_seen_file
from tidewheel._state.compaction import FAN, FLOOR_BYTES, Merged, adopted, merge, merge_due
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._storage import Store


class SeenLimits(NamedTuple):
    """When entries are moved to state files, and when those are merged. Only tests choose other values."""

    inline: int = 256
    """How many entries the manifest itself holds before they go into a state file."""
    fan: int = FAN
    floor_bytes: int = FLOOR_BYTES
    """As for `merge_due`."""


_TABLE = "files"
_OLD_TABLE = "seen"
_SHARD = 0
_DRIVER_TASK = 10**6
"""The task number in the names of the driver's own files; tasks' numbers are far below it."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SeenFile).decode


class SeenFiles:
    """Reads and writes the entries of all sources of a job."""

    def __init__(self, store: Store, job: str, run: str, limits: SeenLimits | None = None) -> None:
        """Take the state store and the run that writes."""
        self._store, self._job, self._run = store, job, run
        self._limits = limits or SeenLimits()
        self._attempts = count()
        self.ages: Mapping[str, int] = {}
        """By source, how many ms older than the newest file a file may be to be read at all; others read any."""

    def load(self, state: Manifest) -> list[SeenFile]:
        """Return the entries as of a commit whose files could be read again, in the order of their numbers."""
        entries = self._read(_parts(state))
        entries.update((_key(file), file) for file in state.seen)
        return remembered(entries.values(), self.ages)

    def newest(self, state: Manifest, sources: Iterable[str]) -> dict[str, SeenFile]:
        """Return the last entry of each of these sources, without reading older state files than needed."""
        wanted, found = set(sources), dict[str, SeenFile]()
        parts = _parts(state)
        entries: Iterable[SeenFile] = state.seen
        while True:
            for file in entries:
                if file.source in wanted and (file.source not in found or file.number > found[file.source].number):
                    found[file.source] = file
            wanted -= found.keys()
            if not wanted or not parts:
                return found
            entries = self.entries(parts.pop())

    def load_old(self, state: Manifest) -> list[OldSeenFile]:
        """Return the entries as of a commit that holds Spark's log."""
        lines = {key: value for part in _parts(state) for key, value in self._items(part, _OLD_TABLE)}
        found = {(file.log, file.path): file for file in (old_seen_file(line.decode()) for line in lines.values())}
        for line in state.spark.seen if state.spark is not None else ():
            file = old_seen_file(line)
            found[file.log, file.path] = file
        return list(found.values())

    def entries(self, part: PartRef) -> Iterator[SeenFile]:
        """Give the entries of one state file."""
        return (_decode(value) for _, value in self._items(part, _TABLE))

    def _read(self, parts: Sequence[PartRef]) -> dict[bytes, SeenFile]:
        return {key: _decode(value) for part in parts for key, value in self._items(part, _TABLE)}

    def _items(self, part: PartRef, table: str) -> Iterator[tuple[bytes, bytes]]:
        file = StateFile.of(self._store.read(path(self._job, part.file.name)), part.file)
        for _, key, value in file.items(_SHARD, table):
            yield key, value or b""

    def replaced(self, base: Manifest, entries: Sequence[SeenFile]) -> Manifest:
        """Return a commit with these entries in place of its own, for the run that continues it."""
        if len(entries) <= self._limits.inline:
            return base.replace(seen=tuple(entries), driver=ShardParts())
        snapshot = self._write(entries, base.sequence + 1, "snap", base.sequence)
        return base.replace(seen=(), driver=ShardParts(snapshot))

    def record(
        self, base: Manifest, fresh: Sequence[SeenFile], sequence: int, sources: Iterable[str]
    ) -> tuple[tuple[SeenFile, ...], ShardParts]:
        """Return the entries in the manifest, and the driver's parts, of a commit that saw `fresh` entries more.

        Entries of sources that are not in `sources` any more are removed when the state files are rewritten.
        """
        inline = (*base.seen, *fresh)
        if len(inline) <= self._limits.inline:
            return inline, base.driver
        return (), self._moved(base, inline, sequence, set(sources))

    def _moved(self, base: Manifest, inline: tuple[SeenFile, ...], sequence: int, sources: set[str]) -> ShardParts:
        limits = self._limits
        parts, due = base.driver, merge_due(base.driver, fan=limits.fan, floor_bytes=limits.floor_bytes)
        if due is not None:
            entries = list(self._read(due.runs).values())
            if due.whole:
                entries = [file for file in remembered(entries, self.ages) if file.source in sources]
            suffix: Suffix = "snap" if due.whole else "delta"
            written = self._write(entries, sequence, suffix, due.runs[-1].sequence) if entries else None
            parts = (
                ShardParts() if written is None else adopted(parts, Merged(due.runs, (written,), due.whole)) or parts
            )
        return merge(parts, [self._write(inline, sequence, "delta", sequence)])

    def _write(self, files: Iterable[SeenFile], sequence: int, suffix: Suffix, label: int) -> PartRef:
        writer = StateFileWriter()
        writer.add(_SHARD, _TABLE, sorted({_key(file): _encode(file) for file in files}.items()))
        data, checksum = writer.finish()
        # A batch that runs again in this run may have seen more files: each attempt has a name of its own.
        name = state_file(sequence, self._run, _DRIVER_TASK, next(self._attempts), suffix)
        self._store.create(path(self._job, name), data)
        return writer.parts(FileRef(name, len(data), checksum), label)[_SHARD]


def remembered(files: Iterable[SeenFile], ages: Mapping[str, int]) -> list[SeenFile]:
    """Return the entries by source and number, without those of files that are too old to be read. Pure."""
    found = sorted(files, key=lambda file: (file.source, file.number))
    newest: dict[str, int] = {}
    for file in found:
        newest[file.source] = max(file.modified_ms, newest.get(file.source, file.modified_ms))
    return [
        file for file in found if file.source not in ages or file.modified_ms >= newest[file.source] - ages[file.source]
    ]


def _parts(state: Manifest) -> list[PartRef]:
    return [part for part in (state.driver.snapshot, *state.driver.deltas) if part is not None]


def _key(file: SeenFile) -> bytes:
    return f"{file.source}\0{file.path}".encode()
