"""Measure state that is rewritten while no batch runs: an import, an upgrade, another number of shards.

The cost is the peak memory of the process above its memory when the work began. The state has two shards, so a process that
holds a shard in memory holds half of the state.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from benchmarks.growth.growth import Growth, hand_over

from tidewheel import Job
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._engine.reshard import reshard
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

MEGABYTES = (30, 100, 300)
SHARDS = 2
VALUE_BYTES = 480


def job(folder: str, name: str = "offline", **options: object) -> Job:
    """Return a job whose state is a text for each key."""
    made = Job(name, state=f"file://{folder}", n_shards=SHARDS)
    keyed = made.source("in", iterable([]), type=dict).key_by("by", "user", value="n")
    keyed.stateful_map("last", lambda user, n, last: (None, n), default=b"", **options).sink("out", discard())
    return made


def rows(megabytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield this many MB of incompressible keys and states."""
    return ((key, os.urandom(VALUE_BYTES)) for key in range(megabytes * 1_000_000 // (VALUE_BYTES + 20)))


def imported(folder: str, megabytes: int) -> Callable[[], object]:
    """Import the state."""
    return lambda: job(folder).import_state("last", rows(megabytes))


def upgraded(folder: str, megabytes: int) -> Callable[[], object]:
    """Upgrade the imported state."""
    changed = job(folder, version=2, upgrade=lambda state, version: state[1:])

    def begin() -> None:
        with MemoryRun(changed):
            pass

    return begin


def resharded(folder: str, megabytes: int) -> Callable[[], object]:
    """Reshard the state to four times as many shards."""
    return lambda: reshard(JobPlace("offline", f"file://{folder}"), 4 * SHARDS)


WORKS = {work.__name__: work for work in (imported, upgraded, resharded)}


def peak_mb() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_a_process(work: str, folder: str, megabytes: int) -> float:
    """Return by how many MB a process grows that does the work."""
    command = [sys.executable, "-m", "benchmarks.growth.offline", work, folder, str(megabytes)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])


def grown_mb(work: str, megabytes: int) -> float:
    """Return by how many MB a process grows that does the work with this much state, which another process has imported."""
    with tempfile.TemporaryDirectory() as folder:
        if work != "imported":
            in_a_process("imported", folder, megabytes)
        return round(in_a_process(work, folder, megabytes), 1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        begin = WORKS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
        before = peak_mb()
        begin()
        print(peak_mb() - before)
    else:
        hand_over(
            *(
                Growth(
                    f"{work}_peak_mb",
                    f"state that is {work}: memory of the process",
                    "MB of state",
                    "MB",
                    {size: grown_mb(work, size) for size in MEGABYTES},
                    300,
                )
                for work in WORKS
            )
        )
