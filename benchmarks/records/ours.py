"""Tidewheel: minutes of delay by aircraft, over one column and over whole records of each kind."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.records.generate import SCHEMA
from benchmarks.state import measure, session
from benchmarks.state.ours import run

from tidewheel import Job, KeyedStream, Stream
from tidewheel.sinks import discard
from tidewheel.sources import files


@dataclass
class Flight:
    carrier: str
    number: int
    tail: str
    origin: str
    destination: str
    departed: datetime
    delay: int
    distance: int
    cancelled: bool


class FlightStruct(msgspec.Struct):
    carrier: str
    number: int
    tail: str
    origin: str
    destination: str
    departed: datetime
    delay: int
    distance: int
    cancelled: bool


def column(flights: Stream[Any]) -> KeyedStream[Any, int]:
    by_tail = flights.key_by("by-tail", "tail", value="delay")
    return by_tail.stateful_map("sum", lambda tail, delay, total: (total + delay, total + delay), default=0)


def attribute(flights: Stream[Any]) -> KeyedStream[Any, int]:
    by_tail = flights.key_by("by-tail", "tail")
    return by_tail.stateful_map("sum", lambda tail, f, total: (total + f.delay, total + f.delay), default=0)


def item(flights: Stream[Any]) -> KeyedStream[Any, int]:
    by_tail = flights.key_by("by-tail", "tail")
    return by_tail.stateful_map("sum", lambda tail, f, total: (total + f["delay"], total + f["delay"]), default=0)


def filtered(flights: Stream[Any]) -> KeyedStream[Any, int]:
    return attribute(flights.filter("flown", lambda f: not f.cancelled))


def mapped(flights: Stream[Any]) -> KeyedStream[Any, int]:
    return item(flights.map("late", lambda f: {**f, "late": f["delay"] > 15}))


PROGRAMS: dict[str, tuple[Any, Callable[[Stream[Any]], KeyedStream[Any, int]]]] = {
    "column": (None, column),
    "row": (None, attribute),
    "dict": (dict, item),
    "record": (Flight, attribute),
    "struct": (FlightStruct, attribute),
    "row_filter": (None, filtered),
    "dict_map": (dict, mapped),
}


def job(program: str, folder: Path, state: Path) -> Job:
    value, steps = PROGRAMS[program]
    job = Job("records", state=state.as_uri())
    source = files(str(folder), format="parquet", schema=SCHEMA, max_files_per_trigger=1)
    steps(job.source("in", source, type=value)).sink("out", discard())
    return job


def main() -> None:
    task = measure.task()
    session.prepare(task.work)
    work = task.work.absolute()
    batches = run(job(task.variant, task.input, work / "state"), work / "copies")
    task.finish(measure.Measurement(batches, task.warmup))


if __name__ == "__main__":
    main()
