"""Shards that move between nodes with different clocks emit each window once, as in one run with all shards."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fleet_nodes import SHARDS, Fleet, MemoryNode, started
from support.internals import shard_of
from tidewheel import Job, count, session, sliding, sum_, tumbling
from tidewheel._time.shard_epochs import earliest, epoch_of, latest, shards_behind
from tidewheel.sinks import collect, files
from tidewheel.sources import inbox, iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()

WINDOWS = {
    "tumbling of a function": lambda keyed: keyed.window("w", tumbling("10 ns"), lambda n, v: n + 1, default=0),
    "sliding of a function": lambda keyed: keyed.window("w", sliding("10 ns", "5 ns"), lambda n, v: n + 1, default=0),
    "tumbling of aggregates": lambda keyed: keyed.window("w", tumbling("10 ns"), value=count()),
    "sliding of aggregates": lambda keyed: keyed.window("w", sliding("10 ns", "5 ns"), value=count()),
    "sessions of a function": lambda keyed: keyed.window(
        "w", session("4 ns"), lambda n, v: n + 1, default=0, merge=lambda a, b: a + b
    ),
    "sessions of aggregates": lambda keyed: keyed.window("w", session("4 ns"), value=count()),
    "windows of windows": lambda keyed: keyed.window("v", tumbling("5 ns"), n=count()).window(
        "w", tumbling("10 ns"), value=sum_("n")
    ),
}


def job(kind: str, name: str, state: str, out, late) -> Job:
    made = Job(name, state=state, n_shards=4)
    timed = made.source("in", iterable([]), type=dict).assign_timestamps("time", "at", unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "2 ns")
    late_stream = on_time.late
    late_stream.sink("late", late)
    WINDOWS[kind](on_time.key_by("by", "key")).sink("out", out)
    return made


def in_one_run(kind: str, records) -> Counter:
    """Return the windows of records that are all on time."""
    out, late = collect(), collect()
    with MemoryRun(job(kind, "one", f"memory:holders-{next(_fresh)}", out, late)) as run:
        run.batch({"in": records})
        run.flush()
    assert not late.records
    return windows(out.records)


def windows(rows) -> Counter:
    return Counter((row["key"], row["start"], row["end"], row["value"], row["correction"]) for row in rows)


class WindowNode(MemoryNode):
    """A node whose program counts by windows."""

    kind: str

    def build(self) -> Job:
        where = self.fleet.where
        made = Job("orders", state=f"file://{where}/state", n_shards=SHARDS)
        timed = made.source("in", inbox(f"{where}/inbox", schema="key string, at long")).assign_timestamps(
            "time", "at", unit="ns"
        )
        on_time = timed.limit_out_of_orderness("bound", "0 s")
        late = on_time.late
        late.sink("late", files(f"{where}/late", format="json"))
        WINDOWS[self.kind](on_time.key_by("by", "key")).sink("out", files(f"{where}/out", format="json"))
        return made


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_a_node_with_a_fast_clock_emits_due_results_of_adopted_shards(kind, tmp_path):
    fleet = Fleet(tmp_path)
    try:
        a, b, c = nodes = started(fleet, "a", "b", "c", node=type("Node", (WindowNode,), {"kind": kind}))
        keys = {}
        for node in nodes:
            keys[node.name] = next(key for key in map(str, range(99)) if shard_of(key, SHARDS) in node.shards())

        def send(name, *times):
            for at in times:
                fleet.router.route(keys[name], {"key": keys[name], "at": at})
            fleet.router.flush()

        send("a", 61, 62)
        send("b", 1000)
        a.step()
        b.step()
        send("b", 1005)
        b.step()
        # The shards of the two nodes that leave have different clocks.
        for at in (61, 70):
            send("c", at)
            c.step()
        a.coordinator.leave("a")
        c.coordinator.leave("c")
        b.begin()
        for at in (1020, 1040):
            send("b", at)
            b.step()
        b.flush()
        b.close()
        fed = [("a", 61), ("a", 62), ("c", 61), ("c", 70), ("b", 1000), ("b", 1005), ("b", 1020), ("b", 1040)]
        assert windows(fleet.published()) == in_one_run(kind, [{"key": keys[name], "at": at} for name, at in fed])
        assert not list((tmp_path / "late").glob("*.json"))
    finally:
        fleet.close()


epochs = st.none() | st.integers(0, 5)


@given(st.dictionaries(st.integers(0, 7), epochs), epochs)
def test_shards_behind_and_the_delivered_epoch_give_each_shards_epoch(epochs_of, delivered):
    delivered = latest([*epochs_of.values(), delivered])
    lagging = shards_behind(epochs_of, delivered)
    assert all(epoch_of(shard, delivered, lagging) == epoch for shard, epoch in epochs_of.items())
    assert delivered not in lagging.values()
    if lagging:
        assert earliest(lagging.values()) == earliest([*epochs_of.values(), delivered])
