"""What file sources have seen, kept like state: newest entries in the manifest, older ones in state files.

A file source that reads for a year has seen millions of files. Writing that list with every commit would cost more than the
data; losing it would read every file twice.
"""

from __future__ import annotations

import json
from itertools import count

import msgspec

from tidewheel._checkpoint.manifest import Manifest, SparkLog
from tidewheel._checkpoint.names import Suffix, path, state_file
from tidewheel._state.compaction import merge, newest_sequence
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._storage import Store

INLINE = 256
"""How many entries the manifest itself holds before they go into a state file."""
_MAX_DELTAS = 16
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

    def load(self, state: Manifest) -> list[str]:
        """Return all entries as of a commit, in the order in which they were seen."""
        entries: dict[bytes, str] = {}
        parts = state.driver
        for part in (parts.snapshot, *parts.deltas):
            if part is not None:
                file = StateFile.of(self._store.read(path(self._job, part.file.name)), part.file)
                for _, key, value in file.items(_SHARD, _TABLE):
                    entries[key] = (value or b"").decode()
        for line in state.spark.seen if state.spark is not None else ():
            entries[_key(line)] = line
        return sorted(entries.values(), key=_order)

    def record(self, base: Manifest, log: SparkLog, fresh: list[str], sequence: int) -> tuple[SparkLog, ShardParts]:
        """Return the log and the driver's parts of a commit that saw `fresh` entries more."""
        inline = (*(base.spark.seen if base.spark is not None else ()), *fresh)
        parts = base.driver
        if len(inline) > INLINE:
            parts = self._moved(base, inline, sequence, {source.log for source in log.sources})
            inline = ()
        return msgspec.structs.replace(log, seen=inline), parts

    def _moved(self, base: Manifest, inline: tuple[str, ...], sequence: int, logs: set[int]) -> ShardParts:
        snapshot = None
        if len(base.driver.deltas) >= _MAX_DELTAS:
            older = self.load(base.replace(spark=None))
            # What sources have seen that the job has let go of ends here.
            entries = [line for line in older if _order(line)[0] in logs]
            snapshot = self._write(entries, sequence, "snap", newest_sequence(base.driver))
        return merge(base.driver, (self._write(list(inline), sequence, "delta", sequence),), snapshot)

    def _write(self, lines: list[str], sequence: int, suffix: Suffix, label: int) -> PartRef:
        writer = StateFileWriter()
        writer.add(_SHARD, _TABLE, sorted({_key(line): line.encode() for line in lines}.items()))
        data, checksum = writer.finish()
        # A batch that runs again in this run may have seen more files: each attempt has a name of its own.
        name = state_file(sequence, self._run, _DRIVER_TASK, next(self._attempts), suffix)
        self._store.create(path(self._job, name), data)
        return writer.parts(FileRef(name, len(data), checksum), label)[_SHARD]


def _key(line: str) -> bytes:
    log, _, entry = line.partition("\t")
    return f"{log}\t{json.loads(entry)['path']}".encode()


def _order(line: str) -> tuple[int, int]:
    log, _, entry = line.partition("\t")
    return int(log), int(json.loads(entry)["batchId"])
