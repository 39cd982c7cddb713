"""Measure the bytes of state files that are written for each changed byte, by the size of the state.

A batch changes a few random keys; values do not compress. Everything that batches and merges write counts: deltas, merged runs,
snapshots. The measurement ends when all state has been rewritten twice, so that it includes every kind of merge.
"""

import random

from benchmarks.growth.growth import Growth, hand_over

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.names import path, state_file
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._engine.commit import next_shards
from tidewheel._engine.merging import Merging, at_once
from tidewheel._engine.report import Report
from tidewheel._state.compaction import merge_due
from tidewheel._state.references import FileRef, PartRef
from tidewheel._state.state_file import StateFileWriter
from tidewheel._storage import open_store

SHARDS = 8
KEYS = (4_096, 12_288, 40_960)
CHANGED = 16
VALUE = 256
TURNS = 2


def key(number: int) -> bytes:
    """Return a key; its shard is its number modulo `SHARDS`."""
    return b"key-%012d" % number


class Written:
    """A job that is changed and merged, without the other parts of a run."""

    def __init__(self, keys: int) -> None:
        """Begin with all keys."""
        self.keys, self.rng = keys, random.Random(16)
        self.store = open_store(f"memory:writes-{keys}")
        self.checkpoints = StreamCheckpoints(self.store, "job")
        self.merging = Merging(self.store, self.checkpoints, "run", merge_due)
        self.merging.submit = at_once
        self.changed = 0
        self.head = Manifest(CheckpointId("job", 0), run="run", n_shards=SHARDS)
        self.batch(range(keys))
        self.before, self.changed = self.written(), 0

    def batch(self, numbers: range | list[int]) -> None:
        """Change some keys, commit, and merge what is due."""
        sequence = self.head.sequence + 1
        merged = self.merging.adopt(self.head)
        deltas = self._delta(sequence, numbers)
        shards = next_shards(
            self.head.shards,
            [Report(1, 0, deltas={shard: [part] for shard, part in deltas.items()}), Report(0, 0, merged=merged)],
            SHARDS,
        )
        self.head = self.checkpoints.commit(self.head.replace(id=CheckpointId("job", sequence), shards=shards))
        self.checkpoints.delete_before(sequence)
        self.merging.committed()
        self.merging.changed(self.head, deltas)

    def written(self) -> int:
        """Return the bytes of all state files so far: nothing is collected."""
        return sum(entry.size for entry in self.checkpoints.folder.list("state"))

    def amplification(self) -> float:
        """Return the bytes written for each changed byte."""
        for _ in range(TURNS * self.keys // CHANGED):
            self.batch(self.rng.sample(range(self.keys), CHANGED))
        return round((self.written() - self.before) / self.changed, 2)

    def _delta(self, sequence: int, numbers: range | list[int]) -> dict[int, PartRef]:
        writer = StateFileWriter()
        for shard in range(SHARDS):
            items = [(key(n), self.rng.randbytes(VALUE)) for n in sorted(numbers) if n % SHARDS == shard]
            self.changed += sum(len(name) + len(value) for name, value in items)
            if items:
                writer.add(shard, "sum", items)
        data, checksum = writer.finish()
        name = state_file(sequence, "run", 0, 0, "delta")
        self.store.create(path("job", name), data)
        return writer.parts(FileRef(name, len(data), checksum), sequence)


if __name__ == "__main__":
    cases = {keys: Written(keys).amplification() for keys in KEYS}
    ratio = round(cases[max(KEYS)] / cases[min(KEYS)], 2)
    hand_over(
        Growth("write_amplification", "bytes written per changed byte", "keys", "", cases, 10),
        Growth("write_amplification_10x", "the same, ten times the state against once", "keys", "", cases, 1.3, ratio),
    )
