"""Run a program of one or a few steps on the in-memory runtime, and return everything that it produced."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from support.internals import states
from tidewheel import Job, Stream
from tidewheel._values import SCALAR
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.sources import dataframe
from tidewheel.testing import MemoryRun

_names = itertools.count()


@dataclass
class BatchOutcome:
    """What a run left: records that came out, records that were rejected, state by step and key."""

    records: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    states: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def values(self) -> list[Any]:
        return [record["value"] for record in self.records]

    def by_key(self, key: str = "key") -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = {}
        for record in self.records:
            found.setdefault(record[key], []).append(record["value"])
        return found


def run(
    build: Callable[[Stream], Stream],
    *batches: Sequence[Any],
    dead_letter: bool = False,
    parallelism: int = 1,
    partitions: int = 1,
    value: Any = None,
    plain: bool = True,
    flush: bool = False,
) -> BatchOutcome:
    """Run `source -> build -> sink` over the batches. Records are plain values, or with `plain=False` rows."""
    ran, out, dead = BatchOutcome(), collect(), collect()
    job = Job(f"job-{next(_names)}", state="memory:unit-operators", n_shards=4)
    source = dataframe(lambda spark: None)
    if plain and value is None:
        source.shape = SCALAR
    build(job.source("in", source, type=value)).sink("out", out)
    if dead_letter:
        job.dead_letter("dead", dead)
    with MemoryRun(job, parallelism=parallelism, partitions=partitions) as memory:
        try:
            for batch in batches:
                memory.batch({"in": batch})
            if flush:
                memory.flush()
        finally:
            ran.records, ran.dead = out.records, dead.records
            head = memory.run.head
            for table, items in states(memory.run.store, head).items():
                decode = pickle.loads if head.operators[table].codec == "pickle" else msgspec.msgpack.decode
                ran.states[table] = {key: decode(raw) for key, raw in items.items()}
    return ran


def failure(build: Callable[[Stream], Stream], *batches: Sequence[Any], **options: Any) -> str:
    """Run a program that must fail with a program error; return what it says."""
    with pytest.raises(StepError) as caught:
        run(build, *batches, **options)
    return str(caught.value)
