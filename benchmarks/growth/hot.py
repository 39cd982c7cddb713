"""Measure a hot key: thousands of entries wait at one key, and an epoch ends a thousand of them.

The time is that of a whole batch without data, including tasks and commit, for the slowest step that keeps entries:
deduplicate, ttl_map, interval join and as-of join.
"""

import tempfile
from collections.abc import Callable
from itertools import count
from typing import Any

from benchmarks.epochs import OnDisk
from benchmarks.growth.growth import Growth, hand_over, milliseconds

from tidewheel import Job
from tidewheel.sinks import discard

ENTRIES = (5_000, 25_000, 100_000)
DUE = 1_000
ROUNDS = 4


def remember(message: Any, entries: Any) -> int:
    """Keep a number until its time."""
    entries.put(message.value.n, 1, message.time)
    return 1


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "deduplicate": lambda left, right: left.deduplicate("op", horizon="1 ns", by=lambda row: row.n),
    "ttl_map": lambda left, right: left.ttl_map("op", remember),
    "interval_join": lambda left, right: left.interval_join("op", right, how="full"),
    "as_of_join": lambda left, right: left.as_of_join("op", right),
}


def epoch_ms(operator: str, entries: int) -> float:
    """Return the ms of a batch that ends a thousand entries of one key with this number of entries."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job("hot", state=f"file://{folder}/state", n_shards=4)
        streams = [
            job.source(name, lambda spark: None)
            .assign_timestamps(f"t-{name}", "n", unit="ns")
            .key_by(f"by-{name}", "key")
            for name in ("left", "right")
        ]
        OPERATORS[operator](*streams).sink("out", discard())
        streams[1].sink("rights", discard())
        with OnDisk(job, f"{folder}/local") as run:
            for start in range(0, entries, 20_000):
                rows = [{"key": "hot", "n": n} for n in range(start, min(start + 20_000, entries))]
                run.batch({"left": rows, "right": [{"key": "cold", "n": 0}]})
            epochs = count(DUE, DUE)
            run.batch({}, epoch=next(epochs))  # It brings the local copies up to date.
            return milliseconds(lambda: run.batch({}, epoch=next(epochs)), ROUNDS)


if __name__ == "__main__":
    times = {name: {entries: epoch_ms(name, entries) for entries in ENTRIES} for name in OPERATORS}
    slowest = {entries: max(each[entries] for each in times.values()) for entries in ENTRIES}
    more = {f"hot_ms_{name}": each[ENTRIES[-1]] for name, each in times.items()}
    hand_over(Growth("hot_ms", "1,000 of the entries of one key are due", "entries", "ms", slowest, 50, more=more))
