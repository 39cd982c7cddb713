"""A run in a fleet: what it checks before its first batch, and which shards it may commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from support.fleet_nodes import Fleet, MemoryNode, started
from tidewheel import Job, KeyedStream, Stream, sum_, tumbling
from tidewheel.errors import FencedError, StateError
from tidewheel.fleet._nodes.run import fingerprint
from tidewheel.sinks import discard


@dataclass
class Total:
    n: int = 0
    s: str = ""


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    yield opened
    opened.close()


def test_a_run_that_lost_a_shard_early_is_refused_before_it_starts(fleet):
    (slow,) = started(fleet, "a")
    slow.run.reserve()
    taker = MemoryNode(fleet, "b")
    taker.join()
    slow.coordinator.leave("a")
    taker.begin()
    with pytest.raises(FencedError, match="taken over"):
        slow.run.reserve()
    with pytest.raises(FencedError, match="taken over"):
        slow.run.begin()


def test_a_batch_that_changed_a_shard_of_another_run_is_refused(fleet):
    a, b = started(fleet, "a", "b")
    fleet.send(100)
    spec, reports, ends = a.prepare()
    strange = min(b.run.held)
    moved = [
        msgspec.structs.replace(report, deltas=dict.fromkeys([strange], next(iter(report.deltas.values()))))
        for report in reports
        if report.deltas
    ]
    before = a.run.head
    with pytest.raises(StateError, match=f"changed the state of shard {strange}.*Route by that key"):
        a.finish((spec, moved, ends))
    assert a.run.checkpoints.latest() == before
    a.finish((spec, reports, ends))
    b.step()
    fleet.check_exact()


def mapped(default: Any, **options: Any) -> Callable[[KeyedStream], Stream]:
    return lambda keyed: keyed.stateful_map("s", lambda key, value, state: (value, state), default=default, **options)


def folded(default: Any, **options: Any) -> Callable[[KeyedStream], Stream]:
    return lambda keyed: keyed.window("s", tumbling("1 s"), lambda state, value: state, default=default, **options)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (mapped(0), "19e9cdb9151250cf"),
        (mapped({}), "4277963b2f476496"),
        (mapped(0, version=2, upgrade=lambda state, version: state), "d647e2e83c97ae64"),
        (mapped(Total(), state=Total), "7dcadaac1c54b3dc"),
        (mapped(Total(7), state=Total), "7dcadaac1c54b3dc"),
        (lambda keyed: keyed.window("s", tumbling("1 s"), n=sum_("n")), "595b4cfc093887b9"),
        (folded(Total(), state=Total), "41e8144d8b3235bb"),
    ],
)
def test_the_fingerprint_of_a_program_stays_the_same(step, expected):
    # A node with another fingerprint is refused beside living ones: if it changes, all nodes must be replaced together.
    job = Job("p", state="memory:fingerprints", n_shards=4)
    events = job.source("in", lambda spark: None).assign_timestamps("at", "at", unit="s")
    step(events.limit_out_of_orderness("b", "0 s").key_by("k", "user")).sink("o", discard())
    assert fingerprint(job.plan(), 4) == expected
