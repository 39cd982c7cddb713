"""Measure an epoch: its cost grows with the due timers, not with the stored keys.

    python -m benchmarks.epochs [--keys 1000000]

Each stored key has a timer. A few timers are due at the measured epoch, the others much later. The time is that of a whole batch
without data, including tasks and commit, in one process with one task. The last line is one JSON object.
"""

import argparse
import json
import tempfile
import time

from tidewheel import Job, Message, Output, StatefulLogic, Timer
from tidewheel.sinks import discard
from tidewheel.testing import MemoryRun

FAR = 2**60
ROUNDS = 5


class Waiting(StatefulLogic[int]):
    """A state and a timer for each key."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        """Wait until the time that the message says."""
        output.set_timer(message.value)
        return 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        """Emit the key and drop its state."""
        output.emit(timer.time)


class OnDisk(MemoryRun):
    """The in-memory runtime, with local copies like those of Spark's tasks."""

    def __init__(self, job: Job, folder: str) -> None:
        """Keep the copies in a folder."""
        super().__init__(job)
        self._local = folder


def measure(stored: int, due: int) -> dict[str, float]:
    """Return the best ms of a batch whose epoch finds `due` timers among `stored` keys, and of one that finds none."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job("epochs", state=f"file://{folder}/state", n_shards=16)
        source = job.source("in", lambda spark: None)
        keyed = source.key_by("by", "key", value="at")
        keyed.stateful_op("waiting", Waiting(), default=0).sink("out", discard())
        with OnDisk(job, f"{folder}/local") as run:
            soon = [{"key": f"soon-{number}", "at": 100 + number // due} for number in range(due * ROUNDS)]
            run.batch({"in": soon})
            for start in range(0, stored, 250_000):
                count = min(250_000, stored - start)
                run.batch({"in": [{"key": f"key-{start + number}", "at": FAR + number} for number in range(count)]})
            # The next batch brings the local copies up to date.
            idle = [_epoch(run, 10 + number) for number in range(8)]
            busy = [_epoch(run, 100 + number) for number in range(ROUNDS)]
    return {"stored": stored, "due": due, "ms": round(min(busy), 1), "ms_nothing_due": round(min(idle), 1)}


def _epoch(run: MemoryRun, epoch: int) -> float:
    started = time.perf_counter()
    run.batch({}, epoch=epoch)
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    found = [measure(keys // 100, 100), measure(keys, 100), measure(keys, 10_000)]
    print(f"{'keys stored':>12} {'due':>7} {'ms':>8} {'ms, none due':>13}")
    for case in found:
        print(f"{case['stored']:>12,} {case['due']:>7,} {case['ms']:>8} {case['ms_nothing_due']:>13}")
    print(json.dumps({"cases": found}))


if __name__ == "__main__":
    main()
