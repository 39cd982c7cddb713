"""Durations have units, integer times have a unit, and times are read back unchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidewheel import Job, Message, Output, RunOptions, StatefulLogic, StoredJob, count, session, sliding, tumbling
from tidewheel._state.timers import Timer
from tidewheel.errors import GraphError, StepError
from tidewheel.sinks import collect, files
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun, StepTester

NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)


def job(name: str, *, time="at", **options) -> tuple[Job, object]:
    made = Job(name, state=f"memory:mistaken-{name}", n_shards=4)
    source = made.source("in", iterable([]), type=dict)
    return made, source.assign_timestamps("time", time, **options).limit_out_of_orderness("bound", "1 min")


@pytest.mark.parametrize("number", [0, 10, 1.5, 60_000_000_000])
def test_a_bare_number_is_refused_as_duration_with_a_hint(number):
    hint = rf"is {number}, a number without a unit; write '{number} s', '{number} ms' or the like, or a timedelta"
    for refused in (
        lambda: tumbling(number),
        lambda: sliding("1 min", number),
        lambda: session(number),
        lambda: job("bare")[1].limit_out_of_orderness("again", number),
        lambda: job("bare")[1].key_by("by", "k").deduplicate("once", number),
        lambda: job("bare")[1].key_by("by", "k").window("w", tumbling("1 s"), n=count(), allowed_lateness=number),
        lambda: job("bare", max_ahead=number),
    ):
        with pytest.raises(GraphError, match=hint):
            refused()


def test_units_go_down_to_nanoseconds():
    assert tumbling("1500 ns") == tumbling("1.5 us")
    assert tumbling("2 ms") == tumbling("2000 us") == tumbling(timedelta(milliseconds=2))


@pytest.mark.parametrize(
    ("unit", "name", "factor"), [("s", "seconds", 10**9), ("ms", "milliseconds", 10**6), ("us", "microseconds", 10**3)]
)
@pytest.mark.parametrize("time", ["at", lambda record: record["at"]], ids=["column", "function"])
def test_integers_without_a_unit_are_refused_with_a_suggested_unit(unit, name, factor, time):
    at = int(NINE.timestamp() * 10**9) // factor
    made, stream = job(f"guess-{unit}", time=time)
    stream.sink("out", collect())
    guess = rf"step 'time', record .*the timestamp {at}.*the year 1970; these look like {name}: .*unit='{unit}'"
    with MemoryRun(made) as run, pytest.raises(StepError, match=guess):
        run.batch({"in": [{"k": "a", "at": at}]})
    made, stream = job(f"named-{unit}-{callable(time)}", time=time, unit=unit)
    out = collect()
    stream.key_by("by", "k").window("w", tumbling("1 hour"), n=count()).sink("out", out)
    with MemoryRun(made) as run:
        run.batch({"in": [{"k": "a", "at": at}]})
        run.flush()
    assert out.records[0]["start"] == int(NINE.timestamp()) * 10**9, "integers went in, and ns come out"


def test_an_integer_outside_all_time_units_is_refused():
    made, stream = job("small")
    stream.sink("out", collect())
    with MemoryRun(made) as run, pytest.raises(StepError, match=r"the year 1970; name it in .*'s', 'ms', 'us' or"):
        run.batch({"in": [{"k": "a", "at": 17}]})


def test_a_unit_for_a_timestamp_and_an_unknown_unit_are_refused():
    made, stream = job("both", unit="ms")
    stream.sink("out", collect())
    with (
        MemoryRun(made) as run,
        pytest.raises(StepError, match=r"unit= is for integers, but 'at' has the type timest"),
    ):
        run.batch({"in": [{"k": "a", "at": NINE}]})
    with pytest.raises(GraphError, match=r"unit= is one of 's', 'ms', 'us', 'ns', not 'minutes'"):
        job("unknown", unit="minutes")


def test_streams_of_timestamps_and_of_integers_are_not_mixed():
    made, stream = job("mixed")
    others = made.source("more", iterable([]), type=dict).assign_timestamps("more-time", "at", unit="ms")
    with pytest.raises(GraphError, match=r"some of its streams have timestamps and others have integer times"):
        stream.union("all", others)


WINDOWS = {
    "aggregates": lambda keyed: keyed.window("w", tumbling("10 min"), n=count()),
    "function": lambda keyed: keyed.window("w", tumbling("10 min"), lambda n, _: n + 1, default=0),
    "session of aggregates": lambda keyed: keyed.window("w", session("10 min"), n=count()),
    "session": lambda keyed: keyed.window(
        "w", session("10 min"), lambda n, _: n + 1, default=0, merge=lambda a, b: a + b
    ),
}


@pytest.mark.parametrize("build", WINDOWS.values(), ids=WINDOWS)
def test_window_starts_and_ends_are_timestamps_also_in_sinks(build, tmp_path):
    made, stream = job(f"windows-{id(build)}")
    stages, out = build(stream.key_by("by", "k")), collect()
    stages.sink("out", out)
    stages.sink("files", files(str(tmp_path / "out"), format="parquet"))
    with MemoryRun(made) as run:
        run.batch({"in": [{"k": "a", "at": NINE}, {"k": "a", "at": NINE.replace(tzinfo=None)}]})
        run.flush()
    (row,) = out.records
    assert (row["start"], row["end"]) == (NINE, NINE + timedelta(minutes=10))
    schema = pq.read_table(tmp_path / "out").schema
    assert [schema.field(name).type for name in ("start", "end")] == [pa.timestamp("us", "UTC")] * 2


class Silence(StatefulLogic[list]):
    """Tells what it sees of time."""

    def on_data(self, message: Message, state: list, output: Output) -> list:
        output.set_timer(message.time + timedelta(minutes=5))
        output.set_timer(message.time + timedelta(minutes=9), "never")
        output.cancel_timer(message.time + timedelta(minutes=9), "never")
        assert isinstance(output.now, datetime)
        return state or [message.time]

    def on_timer(self, timer: Timer, state: list, output: Output) -> list:
        output.send(Message("a", {"silent": timer.time - state[0], "at": timer.time}, timer.time))
        return state

    def on_epoch(self, epoch, states, output: Output) -> None:
        assert epoch.tzinfo is UTC


def test_message_time_timers_epochs_and_entries_are_datetimes():
    made, stream = job("logic")
    silence, recent, epochs = collect(), collect(), []
    keyed = stream.key_by("by", "k")
    keyed.stateful_op("silence", Silence(), default=list).sink("out", silence)

    def last_two(message, entries):
        entries.put(str(len(entries)), 1, expires=message.time + timedelta(minutes=2))
        return {"left": entries.expires(str(len(entries) - 1)) - message.time}

    keyed.ttl_map("recent", last_two).inspect_frontier("epochs", epochs.append).sink("recent-out", recent)
    with MemoryRun(made) as run:
        run.batch({"in": [{"k": "a", "at": NINE}]})
        run.batch({"in": [{"k": "a", "at": NINE + timedelta(minutes=7)}]})
        run.finish()
    assert [(row["silent"], row["at"]) for row in silence.records] == [
        (timedelta(minutes=5), NINE + timedelta(minutes=5))
    ]
    assert [row["left"] for row in recent.records] == [timedelta(minutes=2)] * 2
    assert epochs[-1] == NINE + timedelta(minutes=6) - timedelta(microseconds=1)


def test_a_function_that_returns_the_time_gets_and_returns_datetimes():
    made = Job("epochs", state="memory:mistaken-epochs", n_shards=4)
    seen = []

    def epoch(message, last):
        seen.append(last)
        return message.time - timedelta(hours=1)

    timed = made.source("in", iterable([]), type=dict).assign_timestamps("time", "at")
    on_time = timed.generate_epochs("epochs", epoch)
    late = on_time.late
    on_time.sink("out", collect())
    late.sink("late", collect())
    with MemoryRun(made) as run:
        run.batch({"in": [{"at": NINE}]})
        run.batch({"in": [{"at": NINE}]})
    assert seen == [None, NINE - timedelta(hours=1)]


def test_a_tester_given_datetimes_shows_and_returns_datetimes():
    tester = StepTester(lambda keyed: keyed.stateful_op("silence", Silence(), default=list))
    assert tester.send("a", "click", NINE) == []
    five = NINE + timedelta(minutes=5)
    assert tester.epoch(five) == [Message("a", {"silent": timedelta(minutes=5), "at": five}, five)]
    counting = StepTester(lambda keyed: keyed.window("w", tumbling("1 hour"), n=count()))
    counting.send("a", {"x": 1}, NINE)
    (window,) = counting.epoch(NINE + timedelta(hours=2))
    assert (window.value.start, window.time) == (NINE, NINE + timedelta(hours=1) - timedelta(microseconds=1))


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("grace", lambda job: Job("other", grace=600)),
        ("grace", lambda job: StoredJob(job.name, state=job.state).gc(grace=600)),
        ("backoff", lambda job: job.start(options=RunOptions(backoff=1))),
        ("tick", lambda job: job.start(options=RunOptions(tick=0.5))),
        ("ready_within", lambda job: job.start(options=RunOptions(ready_within=300))),
    ],
)
def test_how_a_job_is_run_takes_no_bare_numbers_either(name, asked):
    made = Job("run", state="memory:mistaken-run")
    made.source("in", iterable([])).sink("out", collect())
    with MemoryRun(made) as run:
        run.batch({"in": [1]})
    with pytest.raises(GraphError, match=rf"{name} is .*without a unit; write '.* s'"):
        asked(made)


def test_a_tick_that_leaves_no_time_for_anything_else_is_refused():
    made = Job("run", state="memory:mistaken-run")
    made.source("in", iterable([])).sink("out", collect())
    with pytest.raises(GraphError, match="tick must be at least 1000000 ns, not '0 s'"):
        made.start(options=RunOptions(tick="0 s"))
