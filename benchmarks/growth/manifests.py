"""Measure a commit, and what a task reads from it, by the number of shards, if each commit changes 1 % of them.

Every shard has a dozen parts, in the files of 1,000 tasks. `commit_ms` is the driver's time from the reports of the tasks to the
durable record, including pages. `open_ms` is the time in which a task that processed the last commit reads the parts of all its
shards from this one: the record, and the new pages of its shards.
"""

import random
import tempfile
import time
from statistics import median

from benchmarks.growth.growth import Growth, hand_over
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.encoding import decode
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.names import CHAIN, state_file
from tidewheel._checkpoint.pages import PageReader
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._engine.commit import next_shards
from tidewheel._engine.report import Report
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._storage import open_store
from tidewheel._storage.chain import Chain

SHARDS = (1_024, 8_192, 65_536)
TASKS = 1_000
PARTS = 12
COMMITS = 50


def part(sequence: int, task: int) -> PartRef:
    """Return a part in the file that a task wrote for a commit."""
    digest = xxh64_intdigest(b"%d %d" % (sequence, task))
    file = FileRef(state_file(sequence, "c0ffee", task, 0, "delta"), digest % 10**6, digest)
    return PartRef(file, sequence, digest % 10**4, digest % 100)


def reports(sequence: int, n_shards: int, rng: random.Random) -> list[Report]:
    """Return the reports of the tasks of a batch that changes 1 % of the shards."""
    deltas: dict[int, dict[int, list[PartRef]]] = {}
    for shard in rng.sample(range(n_shards), n_shards // 100):
        deltas.setdefault(shard % TASKS, {})[shard] = [part(sequence, shard % TASKS)]
    return [Report(1, task, deltas=deltas.get(task, {})) for task in range(TASKS)]


def measured(n_shards: int) -> tuple[float, float]:
    """Return the ms of a commit, and the ms in which a task reads the parts of its shards."""
    rng = random.Random(16)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = StreamCheckpoints(open_store(folder), "job")
        shards = {
            shard: ShardParts(part(1, shard % TASKS), tuple(part(2 + n, shard % TASKS) for n in range(PARTS - 1)))
            for shard in range(n_shards)
        }
        head = checkpoints.commit(Manifest(CheckpointId("job", 1), run="r", n_shards=n_shards, shards=shards))
        commits, opens = [], []
        for sequence in range(PARTS + 1, PARTS + 1 + COMMITS):
            found = reports(sequence, n_shards, rng)
            started = time.perf_counter()
            changed = next_shards(head.shards, found, n_shards)
            number = head.sequence + 1
            head = checkpoints.commit(head.replace(id=CheckpointId("job", number), parent=number - 1, shards=changed))
            commits.append(time.perf_counter() - started)
            started = time.perf_counter()
            data = Chain(checkpoints.folder, CHAIN).read(number)
            manifest = decode(data, "job", load_page=PageReader(checkpoints.folder))
            assert isinstance(manifest.shards, ShardMap)
            own = {shard: manifest.shards[shard] for shard in manifest.shards.of_task(7, TASKS)}
            opens.append(time.perf_counter() - started)
            assert own[7] == head.shards[7]
    # After some commits, patches have reached their maximum size, and each commit writes pages.
    return round(median(commits[COMMITS // 2 :]) * 1000, 2), round(median(opens[COMMITS // 2 :]) * 1000, 2)


if __name__ == "__main__":
    found = {n_shards: measured(n_shards) for n_shards in SHARDS}
    hand_over(
        Growth(
            "commit_ms_65536",
            "the driver's time per commit, 1 % changed",
            "shards",
            "ms",
            {size: ms for size, (ms, _) in found.items()},
            30,
        ),
        Growth(
            "open_ms_65536",
            "a task learns its shards' parts, 1 % changed",
            "shards",
            "ms",
            {size: ms for size, (_, ms) in found.items()},
            10,
        ),
    )
