"""A run in a fleet: what it checks before its first batch, and which shards it may commit."""

from __future__ import annotations

import msgspec
import pytest

from fleet_nodes import Fleet, MemoryNode, started
from tidewheel.errors import FencedError, StateError


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
