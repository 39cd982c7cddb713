"""E5: joins: by key within a time bound, inner and outer; as-of; their state is bounded by the epoch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.internals import open_store
from tidewheel import tumbling
from tidewheel._engine.stopped_job import opener
from tidewheel._state.shard_contents import shard_items
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun


@dataclass
class Event:
    key: str
    time: int


ORDERS = [("a", 1), ("b", 4), ("a", 20), ("c", 30)]
PAYMENTS = [("a", 3), ("a", 6), ("b", 40), ("c", 29)]


def keyed(runner, job, name, items, bound=0):
    source = runner.source(job, name, [Event(*item) for item in items], batch=1)
    timed = source.assign_timestamps(f"time-{name}", lambda event: event.time, unit="ns")
    on_time = timed.limit_out_of_orderness(f"bound-{name}", f"{bound} ns")
    return on_time.key_by(f"by-{name}", lambda event: event.key)


def pairs(out):
    """Return what was joined, by the times of both sides."""

    def time(side):
        return None if side is None else side["time"]

    return sorted(((r["key"], time(r["left"]), time(r["right"])) for r in out.records), key=repr)


MATCHES = [("a", 1, 3), ("a", 1, 6), ("c", 30, 29)]
LEFT = [("a", 20, None), ("b", 4, None)]
RIGHT = [("b", None, 40)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("inner", MATCHES), ("left", MATCHES + LEFT), ("right", MATCHES + RIGHT), ("full", MATCHES + LEFT + RIGHT)],
)
def test_e5_interval_join(memory_runner, how, expected):
    join(memory_runner, how, expected)


def test_e5_interval_join_on_spark(runner_spark):
    join(runner_spark, "full", MATCHES + LEFT + RIGHT)


def join(runner, how, expected):
    job, out = runner.job(), collect()
    orders, payments = keyed(runner, job, "orders", ORDERS, 30), keyed(runner, job, "payments", PAYMENTS, 30)
    orders.interval_join("join", payments, before="2 ns", after="5 ns", how=how).sink("out", out)
    runner.run(job)
    assert pairs(out) == sorted(expected, key=repr)


def test_e5_window_join(memory_runner):
    job, out = memory_runner.job(), collect()
    orders, payments = (keyed(memory_runner, job, n, i, 40) for n, i in (("orders", ORDERS), ("payments", PAYMENTS)))
    orders.window_join("join", payments, tumbling("10 ns"), how="full").sink("out", out)
    memory_runner.run(job)
    expected = [
        ("a", 1, 3),
        ("a", 1, 6),
        ("a", 20, None),
        ("b", 4, None),
        ("b", None, 40),
        ("c", 30, None),
        ("c", None, 29),
    ]
    assert pairs(out) == sorted(expected, key=repr)


def test_e5_as_of_join_uses_the_last_value_at_the_time_of_a_message(runner):
    job, out = runner.job(), collect()
    trades = keyed(runner, job, "trades", [("x", 5), ("x", 10), ("x", 11), ("y", 12)], 20)
    quotes = keyed(runner, job, "quotes", [("x", 9), ("x", 6), ("x", 11), ("x", 30)], 20)
    trades.as_of_join("as-of", quotes).sink("out", out)
    runner.run(job)
    assert pairs(out) == sorted([("x", 5, None), ("x", 10, 9), ("x", 11, 11), ("y", 12, None)], key=repr)


def test_e5_state_is_bounded_by_the_epoch(memory_runner):
    job, out = memory_runner.job(), collect()
    sides = []
    for name in ("left", "right"):
        timed = job.source(name, lambda spark: None).assign_timestamps(f"time-{name}", "time", unit="ns")
        sides.append(timed.limit_out_of_orderness(f"bound-{name}", "0 s").key_by(f"by-{name}", "key"))
    sides[0].interval_join("interval", sides[1], before="5 ns", after="5 ns", how="full").sink("a", out)
    sides[0].window_join("window", sides[1], tumbling("10 ns"), how="full").sink("b", out)
    sides[0].as_of_join("as-of", sides[1], tolerance="5 ns").sink("c", out)
    with MemoryRun(job, parallelism=2) as run:
        held = []
        for start in range(0, 3000, 100):
            rows = [{"key": f"k{n % 7}", "time": start + n} for n in range(100)]
            run.batch({"left": rows, "right": rows[::2]})
            fetch = opener(open_store(job.state), job.name)
            held.append(sum(1 for s, p in run.run.head.shards.items() for _ in shard_items(p, s, fetch)))
        assert max(held[5:]) <= max(held[:5])
        run.flush()
        fetch = opener(open_store(job.state), job.name)
        assert [item for s, p in run.run.head.shards.items() for item in shard_items(p, s, fetch)] == []
