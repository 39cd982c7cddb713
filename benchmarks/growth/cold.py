"""Measure a cold worker: without local copies, it loads all shards of its task from the store. How much memory does it need?

The cost is the peak memory of the process above its memory before it opened the first shard.
"""

import os
import resource
import subprocess
import sys
import tempfile

import msgspec
from benchmarks.growth.growth import Growth, hand_over

from tidewheel._checkpoint.names import path
from tidewheel._checkpoint.state_files import shard_by_shard_opener
from tidewheel._state.local_copies import LocalCopies
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.state_file import StateFileWriter
from tidewheel._state.task_state import TaskState
from tidewheel._storage import open_store

MEGABYTES = (250, 500, 2000)
SHARDS = 64
VALUE_BYTES = 480
JOB = "cold"


def store_state(url: str, megabytes: int) -> dict[int, ShardParts]:
    """Store this many MB of incompressible state, a snapshot for each shard; return its parts."""
    store, shards = open_store(url), {}
    keys = megabytes * 1_000_000 // SHARDS // (VALUE_BYTES + 20)
    for shard in range(SHARDS):
        writer = StateFileWriter()
        writer.add(shard, "op", [(b"s%019d" % key, os.urandom(VALUE_BYTES)) for key in range(keys)])
        data, checksum = writer.finish()
        ref = FileRef(f"state/{shard + 1:020d}-run-0-0.snap", len(data), checksum)
        store.create(path(JOB, ref.name), data)
        shards[shard] = ShardParts(writer.parts(ref, 1)[shard])
    return shards


def peak_mb() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def take_in(megabytes: int) -> float:
    """Return by how many MB a process grows that loads this much state."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"file://{folder}/state"
        command = [sys.executable, "-m", "benchmarks.growth.cold", url, f"{folder}/local", str(megabytes)]
        return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])


def worker(url: str, local: str, megabytes: int) -> None:
    """Run the worker. Another process has stored the state, so that its memory does not count."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(store_state(url, megabytes)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        shards = msgspec.msgpack.decode(pipe.read(), type=dict[int, ShardParts], strict=False)
    os.waitpid(child, 0)
    before = peak_mb()
    task = TaskState(SHARDS, 1, shards, LocalCopies.at(local), shard_by_shard_opener(open_store(url), JOB))
    for shard in range(SHARDS):
        task.reader(shard)
    task.close()
    print(peak_mb() - before)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        worker(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        cases = {size: round(take_in(size), 1) for size in MEGABYTES}
        hand_over(Growth("cold_peak_mb", "a worker that takes in all its shards", "MB of state", "MB", cases, 300))
