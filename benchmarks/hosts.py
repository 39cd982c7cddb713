"""Measure what it costs when shards change hosts: a batch on a host with old copies or none, compared with a normal batch.

    python -m benchmarks.hosts [--keys 1000000] [--rows 250000] [--batches 5] [--folder]

One job runs all the time, with its state on an S3-compatible server or in a folder. A host is a folder for local copies: between
two batches, all shards move from one folder to the other, so only the state is cold. `new_host_s` is the first batch without
any copies, `back_s` the first batch on a host that missed the previous batches, and `normal_s` the median of the others. The
bytes are those of the files that the tasks read to catch up. The last line is one JSON object.
"""

import argparse
import contextlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.rescale import generate
from benchmarks.state import session
from benchmarks.state.generate import SCHEMA

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from servers.stores import running_seaweedfs  # noqa: E402
from tidewheel import Job, RunOptions  # noqa: E402
from tidewheel._checkpoint.manifest import Manifest  # noqa: E402
from tidewheel._checkpoint.store import StreamCheckpoints  # noqa: E402
from tidewheel._engine.shards import task_of  # noqa: E402
from tidewheel._spark.progress import BatchProgress  # noqa: E402
from tidewheel._storage import open_store  # noqa: E402
from tidewheel.sinks import discard  # noqa: E402
from tidewheel.sources import files  # noqa: E402

CACHE = Path(".cache/bench-hosts")
TASKS = 2
NAME = "hosts"


def make(work: Path, state: str) -> Job:
    job = Job(NAME, state=state, keep=10_000, collect_every=10_000)
    source = files(work / "input", schema=SCHEMA, max_files_per_trigger=1)
    keyed = job.source("in", source).key_by("by-key", "key", value="value")
    keyed.stateful_map("sum", lambda key, value, total: (total + value, total + value), default=0).sink(
        "out", discard()
    )
    return job


def read_to_catch_up(base: Manifest, since: int) -> int:
    """Return the bytes that a batch reads to bring copies as of commit `since` (0: no copies) up to its base."""
    found = {}
    for shard, parts in base.shards.items():
        known = parts.snapshot is not None and parts.snapshot.sequence <= since
        lacking = [parts.snapshot] if parts.snapshot is not None and not known else []
        lacking += [delta for delta in parts.deltas if delta.sequence > since]
        for part in lacking:
            # A task reads a file whole, and once.
            found[task_of(shard, TASKS), part.file.name] = part.file.size
    return sum(found.values())


class Hosts:
    """Move the running job's shards from host to host, and record which batch ran where."""

    def __init__(self, work: Path, batches: int) -> None:
        self.work, self.batches = work, batches
        self.ran: list[tuple[str, BatchProgress]] = []
        self.at = "a"
        (work / "copies").mkdir()
        # Only the copies move; Spark's folder next to them stays.
        self.copies = next((work / "host-a").glob(f"{NAME}-*")).name
        self._point()

    def __call__(self, batch: BatchProgress) -> None:
        if batch.batch is None:
            return
        self.ran.append((self.at, batch))
        print(f"    on {self.at}: {batch.rows:,} rows, {batch.seconds:.2f} s", flush=True)
        if len(self.ran) % self.batches == 0:
            self.at = "b" if self.at == "a" else "a"
            self._point()

    def _point(self) -> None:
        target = self.work / f"host-{self.at}" / self.copies
        target.mkdir(parents=True, exist_ok=True)
        fresh = self.work / "copies" / "fresh"
        fresh.symlink_to(target.absolute())
        fresh.rename(self.work / "copies" / self.copies)


def measure(work: Path, state: str, keys: int, rows: int, batches: int) -> dict[str, object]:
    generate(work / "input", keys, rows, 3 * batches)
    later = sorted((work / "input").iterdir())[-3 * batches :]
    (work / "later").mkdir()
    for path in later:
        path.rename(work / "later" / path.name)
    options = RunOptions(until="caught-up", parallelism=TASKS, local=str(work.absolute() / "host-a"))
    make(work, state).run(options=options)
    for path in later:
        (work / "later" / path.name).rename(path)
    hosts = Hosts(work, batches)
    make(work, state).run(options=replace(options, local=str(work.absolute() / "copies"), progress=hosts))
    commits = {commit.sequence: commit for commit in StreamCheckpoints(open_store(state), NAME).list()}
    ran = [batch for _, batch in hosts.ran]
    new, back = ran[batches], ran[2 * batches]
    # The first batch of a run is slower for other reasons.
    normal = median(batch.seconds for at, batch in enumerate(ran) if at % batches)
    last_on_a = ran[batches - 1].sequence
    return {
        "keys": keys,
        "rows": rows,
        "state": state.partition(":")[0],
        "normal_s": round(normal, 3),
        "new_host_s": round(new.seconds, 3),
        "new_host_bytes": read_to_catch_up(commits[new.sequence - 1], 0),
        "back_s": round(back.seconds, 3),
        "back_bytes": read_to_catch_up(commits[back.sequence - 1], last_on_a - 1),
        "missed_batches": batches,
        "new_host_vs_normal": round(new.seconds / normal, 3),
        "back_vs_normal": round(back.seconds / normal, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=250_000, help="rows of a batch; above 10,000, or one task takes it")
    parser.add_argument("--batches", type=int, default=5, help="batches on a host before all shards go to the other")
    parser.add_argument("--folder", action="store_true", help="state in a folder instead of an S3-compatible server")
    options = parser.parse_args()
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    with contextlib.ExitStack() as held:
        if options.folder:
            state = f"file:{CACHE.absolute()}/state"
        else:
            state = held.enter_context(running_seaweedfs(CACHE.absolute() / "server")).url("hosts")
        session.prepare(CACHE.absolute())
        print(f"{options.keys:,} keys, batches of {options.rows:,} rows, {options.batches} on a host", flush=True)
        result = measure(CACHE, state, options.keys, options.rows, options.batches)
    shutil.rmtree(CACHE, ignore_errors=True)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
