"""Measure an empty batch of a job with one timer step: its cost follows the due timers, not the number of shards.

Every shard has keys whose timers are due much later. The time is that of a whole batch without data whose epoch finds nothing
due, including tasks and commit, in one process with one task, with local copies like those of Spark's tasks.
"""

import tempfile
from itertools import count

from benchmarks.epochs import FAR, OnDisk, Waiting
from benchmarks.growth.growth import Growth, hand_over, milliseconds

from tidewheel import Job
from tidewheel.sinks import discard

SHARDS = (64, 512, 2048)
KEYS_PER_SHARD = 4


def empty_batch(n_shards: int) -> float:
    """Return the ms of an empty batch with this number of shards."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job("empty", state=f"file://{folder}/state", n_shards=n_shards)
        keyed = job.source("in", lambda spark: None).key_by("by", "key", value="at")
        keyed.stateful_op("waiting", Waiting(), default=0).sink("out", discard())
        with OnDisk(job, f"{folder}/local") as run:
            run.batch({"in": [{"key": f"key-{n}", "at": FAR + n} for n in range(n_shards * KEYS_PER_SHARD)]})
            epochs = count(10)
            for _ in range(3):  # The first brings the local copies up to date.
                run.batch({}, epoch=next(epochs))
            return milliseconds(lambda: run.batch({}, epoch=next(epochs)), rounds=10)


if __name__ == "__main__":
    cases = {shards: empty_batch(shards) for shards in SHARDS}
    hand_over(Growth("empty_ms_2048", "an empty batch with one timer step", "shards", "ms", cases, 15))
