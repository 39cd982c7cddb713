"""Records that steps and sinks cannot accept, mixed with good ones."""

from __future__ import annotations

import datetime
import threading
import uuid
from typing import Any

from tidewheel import Job, sinks
from tidewheel.testing import MemoryRun


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Silent:
    """An object that fails whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise RuntimeError("no copy")


def zone(hours: int) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(hours=hours))


GOOD = 10
HOSTILE: dict[str, Any] = {
    "huge int": lambda: 2**70,
    "endless int": lambda: 10**6000,
    "uint64": lambda: 2**63,
    "large sum": lambda: 2**63 - 1,
    "fraction": lambda: 1.5,
    "nan": lambda: float("nan"),
    "year 1": lambda: datetime.datetime(1, 1, 1, tzinfo=zone(14)),
    "year 9999": lambda: datetime.datetime(9999, 12, 31, 23, tzinfo=zone(-14)),
    "surrogate": lambda: "half \ud800 of a pair",
    "nul": lambda: "a\0b",
    "control": lambda: "a\r\n\t\x1b[2Jb",
    "long": lambda: "ü" * 300,
    "longer": lambda: "d" * 1_500_000,
    "bytes": lambda: b"\xff\xfe",
    "nothing": lambda: None,
    "flag": lambda: True,
    "deep": lambda: nested(70),
    "deeper": lambda: nested(5_000),
    "endless": endless,
    "empty record": dict,
    "record": lambda: {"a": [{"b": 1}]},
    "odd names": lambda: {1: 2},
    "half a name": lambda: {"\ud800": 1},
    "object": object,
    "silent": Silent,
    "lock": threading.Lock,
    "function": lambda: lambda: None,
}
NAMES = list(HOSTILE)


def record(number: int) -> dict[str, Any]:
    """Return a good record, or from `GOOD` on a hostile one."""
    good = {"id": number, "k": f"k{number % 3}", "v": number, "at": 1_000 + number}
    if number < GOOD:
        return good
    return {**good, "v": HOSTILE[NAMES[number - GOOD]]()}


def run(build: Any, *, batches: int = 2, out: Any = None, flush: bool = True) -> tuple[list[int], list[dict[str, Any]]]:
    """Run all records through what `build(job, records)` adds; return the ids that came out and the dead letters.

    `build` returns a stream of records with an id, or None where it has added its own sinks.
    """
    dead, collected = sinks.collect(), sinks.collect()
    job = Job("hostile", state=f"memory:{uuid.uuid4().hex}", n_shards=4)
    job.dead_letter("dead", dead)
    stream = build(job, job.source("in", lambda spark: None).map("make", lambda row: record(row.value)))
    if stream is not None:
        stream.map("id", lambda value: {"id": value["id"]}).sink("out", collected if out is None else out)
    numbers = [*range(GOOD + len(NAMES))]
    with MemoryRun(job, parallelism=2) as memory:
        for batch in range(batches):
            memory.batch({"in": [number for number in numbers if number % batches == batch]})
        if flush:
            memory.flush()
    return [row["id"] for row in collected.records], dead.records
