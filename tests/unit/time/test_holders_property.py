"""Keys that move between holders whose clocks differ: what they owe is emitted once, as in one run that held them all."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_nodes import SHARDS, Fleet, MemoryNode, started
from tidewheel import Job, count, session, sliding, sum_, tumbling
from tidewheel._checkpoint.transfer import JobPlace
from tidewheel._connectors.inbox.source import inbox
from tidewheel._core.keys import shard_of
from tidewheel._engine.move import move
from tidewheel._time.shard_epochs import earliest, epoch_of, latest, shards_behind
from tidewheel.errors import StateError
from tidewheel.sinks import collect, files
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()
HOLDERS, KEYS = ("a", "b", "c"), ("x", "y", "z")

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
    timed = made.source("in", iterable([]), value=dict).assign_timestamps("time", "at", unit="ns")
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


sends = st.tuples(st.sampled_from(KEYS), st.integers(-2, 15))
jumps = st.tuples(st.sampled_from(HOLDERS), st.integers(1, 200))
moves = st.tuples(st.sampled_from(KEYS), st.sampled_from(HOLDERS), st.just("move"))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(WINDOWS)), st.lists(sends | jumps | moves, min_size=3, max_size=10))
def test_keys_that_move_give_the_windows_of_one_run(kind, steps):
    state, out, late = f"memory:holders-{next(_fresh)}", collect(), collect()
    clock = dict.fromkeys(HOLDERS, 0)
    holder = {key: HOLDERS[number] for number, key in enumerate(KEYS)}
    # A key's time does not go back, wherever the key goes: what is sent is above all clocks that it has met.
    met = dict.fromkeys(KEYS, 0)
    fed = []

    def feed(who: str, records) -> None:
        with MemoryRun(job(kind, who, state, out, late)) as run:
            run.batch({"in": records})
            run.batch({})
        fed.extend(records)
        clock[who] = max([clock[who], *(record["at"] for record in records)])

    for who in HOLDERS:
        feed(who, [{"key": f"own-{who}", "at": 1}])
    for step in steps:
        if len(step) == 3:
            key, target, _ = step
            if holder[key] != target:
                try:
                    move(JobPlace(holder[key], state), JobPlace(target, state), keys=[key])
                except StateError as error:
                    if "none of these keys has state" not in str(error):
                        raise
                met[key] = max(met[key], clock[holder[key]])
                holder[key] = target
        elif step[0] in HOLDERS:
            who, ahead = step
            feed(who, [{"key": f"own-{who}", "at": clock[who] + ahead}])
        else:
            key, ahead = step
            feed(holder[key], [{"key": key, "at": max(met[key] + 1, clock[holder[key]] + ahead, 0)}])
    for who in HOLDERS:
        with MemoryRun(job(kind, who, state, out, late)) as run:
            run.flush()
    too_late = Counter((record["key"], record["at"]) for record in late.records)
    on_time = list((Counter((record["key"], record["at"]) for record in fed) - too_late).elements())
    assert windows(out.records) == in_one_run(kind, [{"key": key, "at": at} for key, at in on_time])


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
def test_a_node_whose_clock_is_ahead_emits_what_the_shards_that_it_adopts_owe(kind, tmp_path):
    fleet = Fleet(tmp_path)
    try:
        a, b = started(fleet, "a", "b", node=type("Node", (WindowNode,), {"kind": kind}))
        keys = {}
        for node in (a, b):
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
        a.coordinator.leave("a")
        b.begin()
        for at in (1020, 1040):
            send("b", at)
            b.step()
        b.flush()
        b.close()
        fed = [("a", 61), ("a", 62), ("b", 1000), ("b", 1005), ("b", 1020), ("b", 1040)]
        assert windows(fleet.published()) == in_one_run(kind, [{"key": keys[name], "at": at} for name, at in fed])
        assert not list((tmp_path / "late").glob("*.json"))
    finally:
        fleet.close()


epochs = st.none() | st.integers(0, 5)


@given(st.dictionaries(st.integers(0, 7), epochs), epochs)
def test_the_shards_behind_and_the_delivered_epoch_say_what_each_shard_got(epochs_of, delivered):
    delivered = latest([*epochs_of.values(), delivered])
    lagging = shards_behind(epochs_of, delivered)
    assert all(epoch_of(shard, delivered, lagging) == epoch for shard, epoch in epochs_of.items())
    assert delivered not in lagging.values()
    if lagging:
        assert earliest(lagging.values()) == earliest([*epochs_of.values(), delivered])


@pytest.mark.parametrize("kind", ["sliding of aggregates", "sliding of a function"])
def test_a_key_that_got_more_epochs_than_another_emits_no_window_again(kind):
    """Both come to a holder that is ahead of both. A pane of sliding windows stays after the first of them is emitted."""
    state, out, late = f"memory:holders-{next(_fresh)}", collect(), collect()
    for who, key, times in (("a", "x", (61, 64)), ("b", "y", (61, 70)), ("c", "z", (990, 1000))):
        with MemoryRun(job(kind, who, state, out, late)) as run:
            for at in times:
                run.batch({"in": [{"key": key, "at": at}]})
            run.batch({})
    for who, key in (("a", "x"), ("b", "y")):
        move(JobPlace(who, state), JobPlace("c", state), keys=[key])
    with MemoryRun(job(kind, "c", state, out, late)) as run:
        run.batch({})
        run.flush()
    fed = [("x", 61), ("x", 64), ("y", 61), ("y", 70), ("z", 990), ("z", 1000)]
    assert windows(out.records) == in_one_run(kind, [{"key": key, "at": at} for key, at in fed])
