"""A plain model of time in one process, and a driver of the real steps over the same batches.

The model knows nothing of state, timers or commits: it has all messages, and the epoch of each batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tidewheel import Job
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

KEYS = "abc"
_fresh = itertools.count()

Event = dict[str, Any]
"""key, time and a number that no other event has."""


@dataclass
class Script:
    """Batches by source, and how each is run: the parallelism, and whether the run is killed in it and started again."""

    batches: list[dict[str, list[Event]]]
    parallelism: list[int]
    killed: list[bool]
    bound: int = 0
    sources: tuple[str, ...] = ("in",)


@st.composite
def scripts(draw: Callable[..., Any], sources: tuple[str, ...] = ("in",), ordered: bool = False) -> Script:
    numbers = itertools.count()
    times = draw(st.lists(st.integers(0, 60), max_size=24))
    if ordered:
        times.sort()
    cuts = sorted(draw(st.lists(st.integers(0, len(times)), max_size=6)))
    batches = []
    for start, end in itertools.pairwise([0, *cuts, len(times)]):
        batch: dict[str, list[Event]] = {source: [] for source in sources}
        for time in times[start:end]:
            event = {"key": draw(st.sampled_from(KEYS)), "time": time, "number": next(numbers)}
            batch[draw(st.sampled_from(sources))].append(event)
        batches.append(batch)
    each = st.lists(st.integers(1, 3), min_size=len(batches), max_size=len(batches))
    kills = st.lists(st.booleans(), min_size=len(batches), max_size=len(batches))
    return Script(batches, draw(each), draw(kills), draw(st.sampled_from([0, 3, 20])), sources)


@dataclass
class Model:
    """What the real thing must find: the epoch that each batch carries, and each source's messages that are on time."""

    carried: list[int | None] = field(default_factory=list)
    on_time: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)
    late: list[Event] = field(default_factory=list)

    def events(self, source: str = "in") -> list[Event]:
        return [event for _, event in self.on_time[source]]

    def batch_of(self, time: int) -> int | None:
        """Return the batch in which an epoch first reaches a time; None: the flush."""
        return next((at for at, epoch in enumerate(self.carried) if epoch is not None and epoch >= time), None)


def modelled(script: Script) -> Model:
    model = Model(on_time={source: [] for source in script.sources})
    latest: dict[str, int] = {}
    epoch: int | None = None
    for number, batch in enumerate(script.batches):
        model.carried.append(epoch)
        for source, events in batch.items():
            for event in events:
                if epoch is not None and event["time"] <= epoch:
                    model.late.append(event)
                else:
                    model.on_time[source].append((number, event))
                latest[source] = max(latest.get(source, event["time"]), event["time"])
        if len(latest) == len(script.sources):
            merged = min(latest.values()) - script.bound - 1
            epoch = merged if epoch is None else max(epoch, merged)
    return model


class _Killed(Exception):
    pass


def driven(
    script: Script, build: Callable[..., None], partitions: int = 1
) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Run a job over the script; return what each batch put out, the flush last, and what was late.

    `build` gets one keyed stream for each source, the late streams, and the sink.
    """
    state, out, late_out = f"memory:time-{next(_fresh)}", collect(), collect()

    def job() -> Job:
        made = Job("timed", state=state, n_shards=4)
        streams, lates = [], []
        for source in script.sources:
            timed = made.source(source, lambda spark: None).assign_timestamps(f"time-{source}", "time", unit="ns")
            on_time = timed.limit_out_of_orderness(f"bound-{source}", f"{script.bound} ns", idle_after=None)
            late = on_time.late
            streams.append(on_time.key_by(f"key-{source}", "key"))
            lates.append(late)
        build(streams, lates, out)
        (lates[0].union("lates", *lates[1:]) if len(lates) > 1 else lates[0]).sink("late", late_out)
        return made

    outputs: list[list[dict[str, Any]]] = []
    run = MemoryRun(job(), take_over=True, partitions=partitions)
    try:
        for batch, parallelism, killed in zip(script.batches, script.parallelism, script.killed, strict=True):
            seen = len(out.records)
            if killed:
                run.parallelism = parallelism
                run.run.commit = _fail  # type: ignore[method-assign]
                try:
                    run.batch(batch)
                except _Killed:
                    run.close()
                run = MemoryRun(job(), take_over=True, partitions=partitions)
            run.parallelism = parallelism
            run.batch(batch)
            outputs.append(out.records[seen:])
        seen = len(out.records)
        run.flush()
        outputs.append(out.records[seen:])
    finally:
        run.close()
    return outputs, late_out.records


def _fail(*_: object) -> None:
    raise _Killed
