"""assign_timestamps, generate_epochs, inspect_frontier, deduplicate, window: what each does alone and refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidewheel import Job, Message, session, sliding, sum_, tumbling
from tidewheel._state.codec import msgpack_codec
from tidewheel._time.duration import instant, nanoseconds
from tidewheel.errors import GraphError, StepError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun, StepTester
from unit.operators.running import run


def timed(time, unit=None):
    tester = StepTester(lambda keyed: keyed.map("row", lambda v: {"at": v}).assign_timestamps("time", time, unit=unit))
    return lambda value: [message.time for message in tester.send("k", value)]


def test_timestamps_are_integers_of_a_unit_datetimes_or_columns():
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert timed(lambda row: row["at"], "ns")(5) == [5]
    assert timed(lambda row: row["at"], "ms")(5) == [5_000_000]
    assert timed(lambda row: row["at"])(second) == [second]
    assert timed(lambda row: row["at"])(second.replace(tzinfo=None)) == [second]
    assert timed("at", "ns")(7) == [7]
    assert timed("at", "s")(7) == [7_000_000_000]
    assert timed("at")(second) == [second]


@pytest.mark.parametrize("wrong", ["text", 1.5, None, True, 2**63 - 1])
def test_an_invalid_timestamp_is_refused_with_step_key_and_record(wrong):
    with pytest.raises(StepError, match=r"step 'time', key 'k', record .*timestamp"):
        timed(lambda row: row["at"])(wrong)


def test_a_column_of_another_type_is_refused_by_name():
    with pytest.raises(
        StepError, match=r"a time column must have timestamps, or integers .* but 'at' has the type string"
    ):
        timed("at")("text")


def test_durations_are_timedeltas_or_texts():
    assert nanoseconds(timedelta(milliseconds=1.5), "x") == 1_500_000
    assert nanoseconds("1s", "x") == nanoseconds("1 second", "x") == 1_000_000_000
    assert instant(3) == 3
    for wrong in (1.5, "soon", True, -1, 0):
        with pytest.raises(GraphError, match="the gap"):
            nanoseconds(wrong, "the gap")


def test_a_duration_that_is_too_long_is_refused():
    with pytest.raises(GraphError, match=r"the gap is too long: .* about 292 years"):
        nanoseconds(f"{2**63 - 1} ns", "the gap")
    with pytest.raises(GraphError, match="the gap of a session is too long"):
        session(timedelta.max)


def test_epochs_without_timestamps_are_refused():
    with pytest.raises(StepError, match="'epochs': the messages have no timestamps; add assign_timestamps before it"):
        StepTester(lambda keyed: keyed.limit_out_of_orderness("epochs", "1 ns")).send("k", 1)


def test_partitions_of_one_stream_do_not_hold_each_other_back_once_idle():
    job = Job("partitions", state="memory:partitions")
    source = job.source("in", lambda spark: None).assign_timestamps("time", "t", unit="ns")
    on_time = source.limit_out_of_orderness("bound", "0 s", partition="p", idle_after=timedelta(seconds=5))
    late = on_time.late
    on_time.sink("out", collect())
    late.sink("late", late_out := collect())
    clock = [0]
    with MemoryRun(job, clock=lambda: clock[0]) as run:
        run.batch({"in": [{"t": 10, "p": 0}, {"t": 3, "p": 1}]})
        assert run.run.head.epoch == 2
        run.batch({"in": [{"t": 20, "p": 0}, {"t": 4, "p": 1}]})
        assert late_out.records == []
        assert run.run.head.epoch == 3
        clock[0] += 6_000_000_000
        run.batch({"in": [{"t": 30, "p": 0}]})
        assert run.run.head.epoch == 29


def test_inspect_frontier_sees_each_epoch_once_and_messages_pass():
    seen: list[int] = []
    tester = StepTester(lambda keyed: keyed.inspect_frontier("look", seen.append))
    assert tester.send("k", 1, 5) == [Message("k", 1, 5)]
    tester.epoch(5)
    tester.epoch(5)
    tester.epoch(9)
    assert seen == [5, 9]


def test_deduplicate_lets_the_first_through_and_forgets_after_the_horizon():
    tester = StepTester(lambda keyed: keyed.deduplicate("once", "10 ns", by=lambda value: value["id"]))
    assert len(tester.send("k", {"id": "x"}, 5)) == 1
    assert len(tester.send("k", {"id": "y"}, 6)) == 1
    assert tester.send("k", {"id": "x"}, 14) == []
    assert tester.send("k", {"id": "x"}, 2) == []
    assert len(tester.send("other", {"id": "x"}, 14)) == 1
    tester.epoch(15)
    assert tester.state("k") == {"y": 16}
    tester.epoch(16)
    assert tester.state("k") is None
    assert len(tester.send("k", {"id": "x"}, 17)) == 1


def test_a_window_takes_a_function_or_aggregates_and_a_session_needs_merge():
    keyed = Job("refused", state="memory:refused").source("in", lambda spark: None).key_by("by", "k")
    with pytest.raises(GraphError, match="step 'a': a window takes either a function or aggregates"):
        keyed.window("a", tumbling("5 ns"))
    with pytest.raises(GraphError, match=r"step 'b'.*pass merge="):
        keyed.window("b", session("5 ns"), lambda n, v: n + 1, default=0)
    with pytest.raises(GraphError, match="cannot have the name start"):
        keyed.window("c", tumbling("5 ns"), start=sum_("v"))
    with pytest.raises(GraphError, match="the length of a window must be at least 1"):
        tumbling("0 s")


def test_a_message_without_a_timestamp_is_refused_by_a_window():
    tester = StepTester(lambda keyed: keyed.window("w", tumbling("5 ns"), lambda n, v: n + 1, default=0))
    with pytest.raises(StepError, match=r"step 'w', key 'k', record 1: the message has no timestamp"):
        tester.send("k", 1)


def test_windows_of_windows():
    tester = StepTester(
        lambda keyed: keyed.window("minutes", tumbling("10 ns"), lambda n, v: n + 1, default=0).window(
            "hours", tumbling("30 ns"), lambda kept, result: [*kept, result.value], default=list
        )
    )
    for time in (1, 2, 15, 29, 31):
        tester.send("k", "x", time)
    (result,) = tester.epoch(40)
    assert (result.value.start, result.value.end, result.value.value) == (0, 30, [2, 1, 1])


@pytest.mark.parametrize(
    "windows",
    [
        tumbling("10 ns"),
        tumbling("7 ns", offset="3 ns"),
        sliding("10 ns", "4 ns"),
        sliding("4 ns", "10 ns"),
        sliding("9 ns", "3 ns"),
    ],
)
def test_every_window_of_a_timestamp_holds_it_and_none_is_left_out(windows):
    for time in range(-40, 40):
        starts = range(-60, 60)
        expected = [
            (start, start + windows.length)
            for start in starts
            if (start - windows.offset) % windows.every == 0 and start <= time < start + windows.length
        ]
        assert windows.of(time) == expected


def test_values_that_wait_in_state_come_out_as_they_were():
    from dataclasses import dataclass

    from tidewheel._operators.keyed.state_values import StateValues
    from tidewheel._values.row import row_class

    @dataclass
    class Undeclared:
        x: int

    row = row_class(("a", "b c"))(1, (2, [3]))
    for value in (
        1,
        "x",
        b"x",
        None,
        1.5,
        (1, (2,)),
        [1, (2,)],
        {"a": (1,)},
        {(1, 2): 3},
        row,
        datetime(2026, 1, 1, tzinfo=UTC),
    ):
        kept = StateValues(msgpack_codec())
        back = kept.get(kept.put(value))
        assert back == value
        assert type(back) is type(value)
    assert StateValues(msgpack_codec()).get(StateValues(msgpack_codec()).put(row)) == row
    assert StateValues(msgpack_codec(Undeclared)).get(
        StateValues(msgpack_codec(Undeclared)).put(Undeclared(3))
    ) == Undeclared(3)
    with pytest.raises(StepError, match="an Undeclared needs a declared type"):
        StateValues(msgpack_codec()).put(Undeclared(3))


def test_only_the_windows_themselves_have_a_late_stream():
    source = Job("late", state="memory:late").source("in", lambda spark: None)
    keyed = source.assign_timestamps("time", "at").key_by("by", "k")
    windows = keyed.window("w", tumbling("5 ns"), n=sum_("v"))
    assert windows.late.port.node == windows.port.node
    assert not hasattr(windows.map("same", lambda row: row), "late")
    assert not hasattr(windows.union("both", windows.map("other", lambda row: row)), "late")


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "totals",
    [
        lambda timed: timed.key_by("by", "user").aggregate("totals", n=sum_("n")),
        lambda timed: timed.key_by("by", "user", value="n").reduce("totals", lambda a, b: a + b),
    ],
    ids=["aggregate", "reduce"],
)
def test_totals_have_the_latest_timestamp_of_the_batch(totals, partitions):
    def build(source):
        # A window of one ns shows the timestamps.
        return totals(source.assign_timestamps("time", "at", unit="ns")).window(
            "when", tumbling("1 ns"), lambda n, _: n + 1, default=0
        )

    rows = [{"user": user, "at": at, "n": at} for user, at in [("a", 3), ("b", 5), ("a", 1), ("a", 2)]]
    ran = run(build, rows, rows[2:3], plain=False, flush=True, partitions=partitions, parallelism=2)
    assert sorted((r["user"], r["start"]) for r in ran.records) == [("a", 1), ("a", 3), ("b", 5)]
