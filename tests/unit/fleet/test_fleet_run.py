"""A run in a fleet: what it checks before its first batch, and which shards it may commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from fleet_nodes import Fleet, MemoryNode, started
from tidewheel import Job, KeyedStream, Stream, sum_, tumbling
from tidewheel._fleet.run import fingerprint
from tidewheel.errors import FencedError, StateError
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


def test_a_run_that_lost_a_shard_before_its_first_batch_is_refused_before_anything_is_started(fleet):
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


def reduced(keyed: KeyedStream) -> Stream:
    def latest(event) -> datetime:
        return datetime.min

    return keyed.map("m", latest).reduce("s", max)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (mapped(0), "94b687cad52436cd"),
        (mapped({}), "909825a070f62cb2"),
        (mapped(0, version=2, upgrade=lambda state, version: state), "5d2cb1dffbd7f90e"),
        (mapped(Total(), state=Total), "792437ad770ce8fc"),
        (mapped(Total(7), state=Total), "792437ad770ce8fc"),
        (mapped(datetime.min, state=datetime), "2660c28aa97f438e"),
        (lambda keyed: keyed.reduce("s", max, state=datetime), "ce90e04cec08a21a"),
        (lambda keyed: keyed.window("s", tumbling("1 s"), n=sum_("n")), "31eb2319897fa1d2"),
        *((mapped(default), "b920772173819349") for default in (None, lambda: 0, datetime.min, Decimal(0), Total())),
        *((folded(default), "dbc84d603fbb7933") for default in (None, 0, datetime.min, Total())),
        (folded(Total(), state=Total), "dbc84d603fbb7933"),
        (reduced, "b9c60e7496a5a913"),
    ],
)
def test_a_program_has_the_fingerprint_that_nodes_of_earlier_versions_have_of_it(step, expected):
    # A node with another fingerprint is refused beside living ones: a new version could not be rolled out node by node.
    job = Job("p", state="memory:fingerprints", n_shards=4)
    events = job.source("in", lambda spark: None).assign_timestamps("at", "at", unit="s")
    step(events.limit_out_of_orderness("b", "0 s").key_by("k", "user")).sink("o", discard())
    assert fingerprint(job.plan(), 4) == expected
