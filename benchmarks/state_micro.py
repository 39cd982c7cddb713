"""Measure the cost of state files and local copies, in microseconds per key.

    python benchmarks/state_micro.py [--keys 1000000] [--delta 250000] [--shards 32] [--rounds 5]

It uses one process and one core. The state has random string keys and small values; every round draws another delta from the
same keys, as a steady job does. The last line is one JSON object. Wall time and processor time are those of the best round,
because other load on the machine only makes rounds slower.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel._state.compaction import merge
from tidewheel._state.local_copies import LocalCopies
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.state_file import StateFile, StateFileWriter

TABLE = "sums"


class Stopwatch:
    """Add up the wall and processor time of the blocks in which it is used."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def __enter__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self.start[0]
        self.processor += time.process_time() - self.start[1]


class Bench:
    def __init__(self, keys: int, shards: int, folder: Path) -> None:
        self.shards = shards
        self.random = random.Random(1)
        self.keys = [to_stored(f"user-{self.random.getrandbits(40):x}") for _ in range(keys)]
        self.shard_of = {key: shard_of_stored(key, shards) for key in self.keys}
        self.folder = folder
        self.copies = LocalCopies.at(folder / "copies")
        self.files: dict[str, StateFile] = {}
        self.parts = dict.fromkeys(range(shards), ShardParts())
        self.sequence = 0
        self.times: dict[str, list[tuple[float, float]]] = {}

    def timed(self, name: str, work: Callable[[], object]) -> object:
        watch = Stopwatch()
        with watch:
            result = work()
        self.note(name, watch)
        return result

    def note(self, name: str, watch: Stopwatch) -> None:
        self.times.setdefault(name, []).append((watch.wall, watch.processor))

    def write(self, prefix: str, keys: list[bytes]) -> dict[int, PartRef]:
        """Write a state file and return the part of each shard."""
        # New objects: a task creates its keys, it does not take them from a list of all keys.
        by_shard: list[list[bytes]] = [[] for _ in range(self.shards)]
        for key in keys:
            by_shard[self.shard_of[key]].append(bytes(bytearray(key)))
        writer = StateFileWriter()
        sort, add = Stopwatch(), Stopwatch()
        for shard, of_shard in enumerate(by_shard):
            with sort:
                of_shard.sort()
            # As a task does: a shard's values are encoded right before they are added.
            items = [(key, b"\xcf" + self.random.getrandbits(64).to_bytes(8, "big")) for key in of_shard]
            with add:
                writer.add(shard, TABLE, items)
        with add:
            data, checksum = writer.finish()
        self.note(f"{prefix}sort", sort)
        self.note(f"{prefix}encode", add)
        ref = FileRef(f"{self.sequence}.state", len(data), checksum)
        self.timed(f"{prefix}write_file", lambda: (self.folder / ref.name).write_bytes(data))
        return writer.parts(ref, self.sequence)

    def fetch(self, ref: FileRef) -> StateFile:
        if ref.name not in self.files:
            self.files[ref.name] = StateFile.of((self.folder / ref.name).read_bytes(), ref)
        return self.files[ref.name]

    def catch_up(self) -> None:
        for shard in range(self.shards):
            self.copies.shard(shard).catch_up(self.parts[shard], self.sequence, self.fetch)

    def commit(self, prefix: str, keys: list[bytes]) -> None:
        self.sequence += 1
        added = self.write(prefix, keys)
        self.parts = {
            shard: merge(parts, [added[shard]] if shard in added else []) for shard, parts in self.parts.items()
        }
        self.timed(f"{prefix}catch_up", self.catch_up)

    def read(self, keys: list[bytes]) -> None:
        by_shard: list[list[bytes]] = [[] for _ in range(self.shards)]
        for key in keys:
            by_shard[self.shard_of[key]].append(bytes(bytearray(key)))
        readers = self.timed("begin", lambda: [self.copies.shard(n).begin() for n in range(self.shards)])
        assert isinstance(readers, list)

        def get() -> None:
            for reader, wanted in zip(readers, by_shard, strict=True):
                for key in wanted:
                    reader.get(TABLE, key)

        def get_many() -> None:
            for reader, wanted in zip(readers, by_shard, strict=True):
                reader.get_many(TABLE, wanted)

        self.timed("get", get)
        self.timed("get_many", get_many)
        for wanted in by_shard:
            wanted.sort()
        self.timed("get_many_sorted", get_many)
        for wanted in by_shard:
            wanted[::2] = [key + b"?" for key in wanted[::2]]
        self.timed("get_many_half_missing", get_many)
        for reader in readers:
            reader.close()

    def snapshot(self) -> dict[int, PartRef]:
        writer = StateFileWriter()
        for shard in range(self.shards):
            with self.copies.shard(shard).begin() as reader:
                for table in reader.tables():
                    writer.add(shard, table, list(reader.items(table)))
        data, checksum = writer.finish()
        ref = FileRef("snapshot.state", len(data), checksum)
        (self.folder / ref.name).write_bytes(data)
        return writer.parts(ref, self.sequence)

    def disk_bytes(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in (self.folder / "copies").rglob("data.mdb"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--delta", type=int, default=250_000)
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="state-micro-", dir=options.folder))
    try:
        bench = Bench(options.keys, options.shards, folder)
        bench.commit("first_", bench.keys)
        disk = [bench.disk_bytes()]
        for _ in range(options.rounds):
            delta = bench.random.sample(bench.keys, options.delta)
            bench.commit("", delta)
            bench.timed("nothing_lacking", bench.catch_up)
            bench.read(delta)
            disk.append(bench.disk_bytes())
        added = bench.timed("snapshot", bench.snapshot)
        assert isinstance(added, dict)
        bench.copies.close()
        bench.copies = LocalCopies.at(folder / "fresh")
        bench.parts = {shard: ShardParts(part) for shard, part in added.items()}
        bench.timed("snapshot_load", bench.catch_up)
        bench.copies.close()
        report(bench, options, disk)
    finally:
        shutil.rmtree(folder)


def report(bench: Bench, options: argparse.Namespace, disk: list[int]) -> None:
    whole = {"first_sort", "first_encode", "first_write_file", "first_catch_up", "snapshot", "snapshot_load"}
    result: dict[str, object] = {
        "keys": options.keys,
        "delta": options.delta,
        "shards": options.shards,
        "delta_bytes": (bench.folder / "2.state").stat().st_size,
        "disk_mb": [round(size / 1e6, 1) for size in disk],
    }
    print(f"{'':24} {'wall':>8} {'cpu':>8} ms")
    for name, times in bench.times.items():
        wall, processor = (min(column) for column in zip(*times, strict=True))
        count = options.keys if name in whole else options.delta
        per = options.shards if name in {"begin", "nothing_lacking"} else count
        unit = "us_a_shard" if per == options.shards else "us_a_key"
        one = round(wall / per * 1e6, 3)
        print(f"{name:24} {wall * 1e3:8.1f} {processor * 1e3:8.1f} {one:8.3f} {unit.replace('_', ' ')}")
        result[name] = {"ms": round(wall * 1e3, 1), "cpu_ms": round(processor * 1e3, 1), unit: one}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
