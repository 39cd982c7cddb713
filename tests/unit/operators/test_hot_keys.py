"""Keys with many waiting entries: due entries are found together, and near entries without a search."""

from __future__ import annotations

import ast
import itertools

import msgspec
import pytest

from tidewheel import Job, tumbling
from tidewheel._engine.stopped_job import StoppedJob
from tidewheel._operators.joins.as_of import AsOfLogic
from tidewheel._operators.joins.interval import IntervalLogic
from tidewheel._operators.keyed.deduplicate import DeduplicateLogic
from tidewheel._operators.keyed.known_ids import KnownIdsCodec
from tidewheel._operators.keyed.ttl_map import TtlLogic
from tidewheel._operators.logic import Message
from tidewheel._state import time_order
from tidewheel._state.time_order import TimeOrderCodec
from tidewheel._state.timers import decode
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_names = itertools.count()


def put(message, entries) -> int:
    entries.put(message.value, 1, message.time + 5)
    return len(entries)


OPERATORS = {
    "deduplicate": (DeduplicateLogic, lambda left, right: left.deduplicate("op", "5 ns", by=lambda row: row.n)),
    "ttl_map": (
        TtlLogic,
        lambda left, right: left.ttl_map("op", lambda message, entries: put(_plain(message), entries)),
    ),
    "interval_join": (IntervalLogic, lambda left, right: left.interval_join("op", right, how="left")),
    "as_of_join": (AsOfLogic, lambda left, right: left.as_of_join("op", right)),
}


def _plain(message: Message) -> Message:
    return Message(message.key, message.value.n, message.time)


def joined(build, out, as_text: bool = False) -> Job:
    """Return a job of one step over two streams; `as_text` takes records that no column can hold."""
    job = Job(f"hot-{next(_names)}", state="memory:unit-hot-keys", n_shards=2)
    left, right = (
        job.source(side, lambda spark: None)
        .map(f"read-{side}", lambda row: ast.literal_eval(row.text) if as_text else row)
        .assign_timestamps(f"t-{side}", "n", unit="ns")
        .key_by(f"by-{side}", "key")
        for side in ("left", "right")
    )
    build(left, right).sink("out", out)
    right.sink("rights", collect())
    return job


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_key_is_searched_once_for_all_timers_due_together(operator, monkeypatch):
    logic, build = OPERATORS[operator]
    calls, on_timer = [], logic.on_timer
    monkeypatch.setattr(
        logic, "on_timer", lambda self, timer, *rest: calls.append(timer.time) or on_timer(self, timer, *rest)
    )
    out = collect()
    with MemoryRun(joined(build, out)) as run:
        run.batch({"left": [{"key": "k", "n": n} for n in range(100)]})
        run.batch({}, epoch=49)
        assert len(calls) == 1
        run.flush()
        assert len(calls) == 2
    sent = [record["n"] if "n" in record else record["left"]["n"] for record in out.records if "join" in operator]
    assert sent == (list(range(100)) if "join" in operator else [])


def test_a_message_that_is_rejected_lets_nothing_expire():
    def count(message, entries):
        if message.value.n == 20:
            raise ValueError("this one")
        put(_plain(message), entries)
        return len(entries)

    out, dead = collect(), collect()
    job = joined(lambda left, right: left.ttl_map("op", count), out)
    job.dead_letter("dead", dead)
    with MemoryRun(job) as run:
        run.batch({"left": [{"key": "k", "n": n} for n in (1, 2, 3)]})
        # The epoch of the batch lets 1 and 2 expire before its first message, which fails: the next does it again.
        run.batch({"left": [{"key": "k", "n": n} for n in (20, 21, 22, 23)]}, epoch=7)
    assert [record["value"] for record in out.records] == [1, 2, 3, 2, 3, 4]
    assert len(dead.records) == 1


def test_pairs_that_fail_are_put_aside_and_all_others_go_out(monkeypatch):
    def pair(left, right):
        if right is not None and right.n == 50:
            raise ValueError("this one")
        return {"left": left.n, "right": None if right is None else right.n}

    monkeypatch.setattr(time_order, "SEGMENT_ENTRIES", 2)
    out, dead = collect(), collect()
    job = joined(lambda left, right: left.interval_join("op", right, before="5 ns", how="left", function=pair), out)
    job.dead_letter("dead", dead)
    with MemoryRun(job) as run:
        run.batch({"left": [{"key": "k", "n": n} for n in range(40, 80)]})
        run.batch({"right": [{"key": "k", "n": n} for n in (50, 60)]})
        run.flush()
    pairs = [(record["left"], record["right"]) for record in out.records]
    alone = [n for n in range(40, 80) if not 60 <= n < 66 and not 50 <= n < 56]
    assert pairs == [(n, 60) for n in range(60, 66)] + [(n, None) for n in alone]
    assert len(dead.records) == 6


@pytest.mark.parametrize(
    "join",
    [
        lambda left, right, pair: left.interval_join("op", right, before="5 ns", how="left", function=pair),
        lambda left, right, pair: left.window_join("op", right, tumbling("5 ns"), how="left", function=pair),
        lambda left, right, pair: left.as_of_join("op", right, how="left", function=pair),
    ],
    ids=["interval_join", "window_join", "as_of_join"],
)
def test_a_join_function_that_fails_at_a_timer_costs_one_message(join):
    def pair(left, right):
        return {"left": left.n, "right": right.n if left.n == 50 else 0}  # No right message ever arrives.

    out, dead = collect(), collect()
    job = joined(lambda left, right: join(left, right, pair), out)
    job.dead_letter("dead", dead)
    with MemoryRun(job) as run:
        run.batch({"left": [{"key": "k", "n": n} for n in (40, 50, 60)]})
        run.flush()
    assert [record["left"] for record in out.records] == [40, 60]
    (letter,) = dead.records
    assert (letter["step"], letter["key"]) == ("op", "k")
    assert "AttributeError" in letter["error"]


def test_messages_that_wait_for_partners_share_the_timer_of_the_first_one():
    job = joined(lambda left, right: left.interval_join("op", right, before="9 ns", after="9 ns"), collect())
    with MemoryRun(job) as run:
        run.batch(
            {"left": [{"key": "k", "n": n} for n in (5, 3, 7, 4)], "right": [{"key": "k", "n": n} for n in (6, 9)]}
        )
    with StoppedJob(job) as stopped:
        timers = msgspec.msgpack.decode(stopped.collect("k")["op/timers"])
    # The message of 3 comes after that of 5, and is the first that can be dropped.
    assert [decode(timer).time for timer in timers] == [12, 14]


@pytest.mark.parametrize("operator", sorted({*OPERATORS} - {"ttl_map"}))
def test_a_hot_key_is_not_copied_for_each_message_with_dead_letters(operator, monkeypatch):
    encoded = []
    for codec in (TimeOrderCodec, KnownIdsCodec):
        encode = codec.encode
        monkeypatch.setattr(
            codec, "encode", lambda self, value, encode=encode: encoded.append(1) or encode(self, value)
        )
    job, dead = joined(OPERATORS[operator][1], collect()), collect()
    job.dead_letter("dead", dead)
    with MemoryRun(job) as run:
        run.batch({side: [{"key": "k", "n": n} for n in range(50)] for side in ("left", "right")})
    assert len(encoded) < 10
    assert dead.records == []


BAD = {
    "deduplicate": [{"key": "k", "n": 3, "id": 2**70}, {"key": "k", "n": 2**63 - 4, "id": "x"}],
    "interval_join": [{"key": "k", "n": 2**63 - 4, "id": "x"}],
    "window_join": [{"key": "k", "n": 2**63 - 4, "id": "x"}],
}
STEPS = {
    "deduplicate": lambda left, right: left.deduplicate("op", "5 ns", by="id"),
    "interval_join": lambda left, right: left.interval_join("op", right, before="9 ns", after="9 ns"),
    "window_join": lambda left, right: left.window_join("op", right, tumbling("10 ns")),
}


@pytest.mark.parametrize("operator", BAD)
def test_a_rejected_message_leaves_the_state_of_its_key_unchanged(operator):
    states = []
    for bad in ([], BAD[operator]):
        job, dead = joined(STEPS[operator], collect(), as_text=True), collect()
        job.dead_letter("dead", dead)
        good = [{"key": "k", "n": n, "id": f"i{n}"} for n in (1, 2)]
        with MemoryRun(job) as run:
            run.batch({"left": [{"text": repr(row)} for row in (good[0], *bad, good[1])], "right": []})
        assert len(dead.records) == len(bad)
        with StoppedJob(job) as stopped:
            states.append(stopped.collect("k"))
    assert states[0] == states[1]
