"""ttl: a key's state is dropped some time after its last message, by timestamps or by the clock."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given, settings

from support.internals import shard_of, states
from support.time_model import driven, modelled, scripts
from tidewheel import Job, StatefulLogic
from tidewheel._testing.plain_copies import PlainReader
from tidewheel.errors import StepError
from tidewheel.sinks import collect, discard
from tidewheel.testing import Clock, MemoryRun, StepTester

_names = itertools.count()


def total(key, value, state):
    return state + value, state + value


def summing(**options):
    return lambda keyed: keyed.stateful_map("sum", total, default=0, **options)


def values(messages):
    return [message.value for message in messages]


def test_a_state_goes_when_the_epoch_reaches_its_last_message_and_the_ttl():
    op = StepTester(summing(ttl="10 ns"))
    op.send("k", 1, 5)
    op.send("k", 1, 7)
    op.epoch(16)
    assert op.state("k", "sum") == 2
    op.epoch(17)
    assert op.state("k", "sum") is None
    assert op.interrogate() == set()
    assert values(op.send("k", 1, 20)) == [1]


def test_a_message_extends_the_ttl_even_out_of_order():
    op = StepTester(summing(ttl="10 ns"))
    op.send("k", 1, 5)
    op.send("k", 1, 3)
    op.epoch(14)
    assert op.state("k", "sum") == 2
    op.send("k", 1, 15)
    op.epoch(24)
    assert op.state("k", "sum") == 3
    op.epoch(25)
    assert op.state("k", "sum") is None


def test_the_expiries_of_all_due_keys_of_a_shard_are_read_together(monkeypatch):
    """A shard without a local copy is read from the store, where each read takes a while."""
    op = StepTester(summing(ttl="10 ns"))
    keys = [str(number) for number in range(200)]
    for key in keys:
        op.send(key, 1, 5)
    reads, get_many = [], PlainReader.get_many
    monkeypatch.setattr(
        PlainReader, "get_many", lambda self, table, keys: reads.append(table) or get_many(self, table, keys)
    )
    op.epoch(15)
    assert op.state(keys[0], "sum") is None
    assert reads.count("sum/expires") == 1


def test_by_the_clock():
    op = StepTester(summing(ttl=timedelta(seconds=3), ttl_clock="wall"), clock=Clock(0))
    op.send("k", 1)
    op.tick(2)
    op.send("k", 1)
    op.tick(2)
    assert op.state("k", "sum") == 2
    op.tick(1)
    assert op.state("k", "sum") is None


def test_a_state_that_the_function_dropped_starts_with_a_new_ttl():
    op = StepTester(
        lambda keyed: keyed.stateful_map("op", lambda k, v, s: (v, None if v == "drop" else v), default="", ttl="10 ns")
    )
    op.send("k", "a", 1)
    op.send("k", "drop", 2)
    op.send("k", "b", 8)
    op.epoch(11)
    assert op.state("k", "op") == "b"
    op.epoch(18)
    assert op.state("k", "op") is None


def test_event_time_needs_timestamps():
    with pytest.raises(StepError, match="needs timestamps"):
        StepTester(summing(ttl="10 ns")).send("k", 1)


@settings(max_examples=25, deadline=None)
@given(script=scripts())
def test_a_count_holds_the_messages_since_the_state_last_expired(script):
    model = modelled(script)
    outputs, _ = driven(
        script,
        lambda streams, _, out: (
            streams[0]
            .stateful_op(
                "n",
                lambda message, n, output: (output.emit([message.value.number, n + 1]), n + 1)[1],
                default=0,
                ttl="7 ns",
            )
            .sink("out", out)
        ),
    )
    counts: dict[str, tuple[int, int]] = {}
    expected = []
    for at, event in model.on_time["in"]:
        count, expires = counts.get(event["key"], (0, -1))
        carried = model.carried[at]
        if carried is not None and expires <= carried:
            count, expires = 0, -1
        counts[event["key"]] = (count + 1, max(expires, event["time"] + 7))
        expected.append([event["number"], count + 1])
    assert sorted(r["value"] for batch in outputs for r in batch) == sorted(expected)


class SetAgain(StatefulLogic):
    """Sets the state anew in a timer, 50 after the message."""

    def on_data(self, message, state, output):
        output.set_timer(message.time + 50)
        return message.time

    def on_timer(self, timer, state, output):
        return -1


def test_a_state_that_a_timer_sets_expires_too():
    op = StepTester(lambda keyed: keyed.stateful_op("op", SetAgain(), default=0, ttl="10 ns"))
    op.send("k", 1, 5)
    op.epoch(20)
    assert op.state("k", "op") is None
    op.epoch(60)
    assert op.state("k", "op") == -1
    op.epoch(69)
    assert op.state("k", "op") == -1
    op.epoch(70)
    assert op.interrogate() == set()


class Renewing(StatefulLogic):
    """Sets the state of a key in every schedule."""

    def on_data(self, message, state, output):
        return None

    def on_schedule(self, states, output):
        states["k"] = 1


def test_a_state_that_a_schedule_sets_expires_by_the_clock():
    op = StepTester(
        lambda keyed: keyed.stateful_op("op", Renewing(), default=0, ttl=timedelta(seconds=2), ttl_clock="wall")
    )
    op.send("k", 1)
    op.tick()
    assert op.state("k", "op") == 1
    assert op.collect("k")["op/expires"] == op.clock.now + 2_000_000_000


@pytest.mark.parametrize("epoch_first", [True, False])
def test_a_ttl_added_to_a_program_covers_existing_keys(epoch_first):
    before = StepTester(summing())
    before.send("old", 1, 5)
    after = StepTester(summing(ttl="10 ns"))
    after.restore(before.snapshot())
    if epoch_first:
        after.epoch(6)
    after.send("new", 1, 6)
    after.epoch(7)
    assert after.state("old", "sum") == 1
    after.epoch(20)
    assert after.interrogate() == set()


def test_an_added_ttl_counts_for_each_key_from_when_it_was_added():
    before = StepTester(summing())
    before.send("old", 1, 5)
    after = StepTester(summing(ttl="10 ns"))
    after.restore(before.snapshot())
    after.epoch(100)
    after.epoch(109)
    assert after.state("old", "sum") == 1
    after.epoch(110)
    assert after.state("old", "sum") is None


@pytest.mark.parametrize("had_ttl", [True, False], ids=["ttl before", "ttl added"])
def test_shards_that_catch_up_do_not_keep_others_from_expiring(had_ttl):
    """Shards that were taken over get the epoch that the others have had, before the data of the first batch."""
    url = f"memory:unit-ttl-{next(_names)}"
    out = collect()

    def job(ttl: str | None) -> Job:
        made = Job("ttl", state=url, n_shards=4)
        stream = made.source("in", lambda spark: None).assign_timestamps("times", "t", unit="ns")
        on_time = stream.limit_out_of_orderness("order", "0 s")
        late = on_time.late
        late.sink("late", discard())
        keyed = on_time.key_by("k", "user", value="n")
        keyed.stateful_map("sum", lambda key, n, total: (total + n, total + n), default=0, ttl=ttl).sink("out", out)
        return made

    def rows(*pairs: tuple[str, int]) -> dict:
        return {"in": [{"user": user, "n": 1, "t": time} for user, time in pairs]}

    here = shard_of("a", 4)
    beside = next(name for name in map(str, range(100)) if shard_of(name, 4) == here)
    with MemoryRun(job("10 ns" if had_ttl else None)) as run:
        run.batch(rows(("a", 5), (beside, 5)))
        run.batch({})
        run.batch(rows(("clock", 30)))
    with MemoryRun(job("10 ns")) as run:
        run.run.head = run.run.head.replace(behind={(here + 1) % 4: None})
        run.batch(rows(("a", 31)))
        run.batch(rows(("clock", 60)))
        run.batch({})
        remaining = states(run.run.store, run.run.head)["sum"]
    assert remaining.keys() <= {"clock"}
    assert out.records[-2]["value"] == (1 if had_ttl else 2)
