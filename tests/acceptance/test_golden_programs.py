"""The stateful examples and the programs of the acceptance and chaos tests give the same results under crashes and rescales."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from acceptance.test_a2_stateful_op import Pairs, Ticking
from acceptance.test_e1_epochs import Log, logged
from acceptance.test_e3_ttl_map import WORDS, ttl_job
from acceptance.test_e4_windows import EVENTS, windowed
from acceptance.test_e5_joins import ORDERS, PAYMENTS
from acceptance.test_e5_joins import keyed as joining
from support.debezium_events import history
from support.replayed import check_replays
from tidewheel import Job, Pattern, agg, codecs, count, counted, session, sliding, sum_, triggered, tumbling
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import golden as undisturbed

ROOT = Path(__file__).parents[2]
SEED = 20261115


def golden(job, inputs, **options):
    """Run a program with disturbances; then run it once more, and each batch of that run again."""
    result = undisturbed(job, inputs, **options)
    batches = check_replays(
        job if isinstance(job, Job) else job(), alike(inputs), seed=SEED, batch_size=options.get("batch_size")
    )
    assert batches > 1
    return result


def alike(inputs):
    """Add missing columns to all dicts: columns must not depend on where a batch ends."""
    names = {
        source: dict.fromkeys(name for record in records if isinstance(record, dict) for name in record)
        for source, records in inputs.items()
    }
    return {
        source: [{**names[source], **record} if isinstance(record, dict) else record for record in records]
        for source, records in inputs.items()
    }


def loaded(path: Path, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def test_the_clicks_example(monkeypatch, tmp_path):
    draw = random.Random(SEED)
    clicks = [{"user": f"user-{draw.randrange(20)}", "cents": draw.randrange(5000)} for _ in range(200)]
    result = golden(loaded(ROOT / "examples" / "clicks.py", monkeypatch, tmp_path).job, {"clicks": clicks}, seed=SEED)
    assert sum(totals.clicks for totals in result.states["totals"].values()) == 200


EXAMPLES = {
    # Which records are late depends on where batches end.
    "windows": ({"sales": "SALES"}, {"batch_size": 3}),
    "sessions": ({"clicks": "CLICKS"}, {"batch_size": 2}),
    "joins": ({"orders": "ORDERS", "payments": "PAYMENTS", "rates": "RATES"}, {}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_with_time(name, monkeypatch, tmp_path):
    sources, options = EXAMPLES[name]
    module = loaded(ROOT / "examples" / f"{name}.py", monkeypatch, tmp_path)
    inputs = {source: getattr(module, records) for source, records in sources.items()}
    result = golden(module.job, inputs, seed=SEED, **options)
    assert result.outputs["out"]


PAYMENTS_MADE = [{"user": f"user-{at % 7}", "cents": at} for at in range(200)]

CONNECTED = {
    # The data of the messages, and the source and the column that they are in.
    "kafka_totals": (lambda it: PAYMENTS_MADE, "payments", "value"),
    "nats_sessions": (lambda it: it.day()[:200], "clicks", "data"),
    "sensors_delta": (lambda it: [json.loads(payload) for _, payload in it.messages()], "sensors", "data"),
}


@pytest.mark.parametrize("name", CONNECTED)
def test_an_example_with_servers(name, monkeypatch, tmp_path):
    made, source, column = CONNECTED[name]
    module = loaded(ROOT / "examples" / f"{name}.py", monkeypatch, tmp_path)
    messages = [{column: json.dumps(each).encode()} for each in made(module)]
    # Which records are late depends on where batches end.
    result = golden(module.job, {source: messages}, seed=SEED, batch_size=50)
    assert sum(map(len, result.outputs.values()))


def test_the_chaos_program(monkeypatch, tmp_path):
    draw = random.Random(SEED)
    records = [{"user": f"user-{draw.randrange(12)}", "amount": draw.randrange(-50, 100)} for _ in range(200)]
    program = loaded(ROOT / "tests" / "chaos" / "program.py", monkeypatch, tmp_path)
    golden(lambda: program.build("/data"), {"in": records}, seed=SEED)


def keyed(key, build):
    def make():
        job = Job("program", n_shards=8, snapshot_every=2)
        build(job.source("in", iterable([0])).key_by("key", key)).sink("out", collect())
        return job

    return make


def joined(length, word, so_far):
    return so_far + word, None if len(so_far + word) >= 6 else so_far + word


def last(message, state, output):
    output.emit(state)
    return int(message.value)


PROGRAMS = {
    "a1 sum": (keyed(lambda n: n % 2, lambda s: s.stateful_map("sum", lambda k, v, t: (t + v, t + v), default=0)), {}),
    "a2 pairs": (keyed(lambda n: n % 3, lambda s: s.stateful_op("pairs", Pairs(), default=0)), {}),
    "a2 function": (keyed(lambda n: n % 5, lambda s: s.stateful_op("last", last, default=0)), {}),
    # It counts batches, so they must end where they ended before.
    "a2 ticking": (keyed(lambda n: n, lambda s: s.stateful_op("tick", Ticking(), default=0)), {"batch_size": 11}),
    "a6 order": (keyed(lambda n: n % 7, lambda s: s.stateful_map("up", lambda k, v, b: (v > b, v), default=-1)), {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_numbers(name):
    make, options = PROGRAMS[name]
    golden(make, {"in": list(range(101))}, seed=SEED, **options)


def test_a1_words():
    words = ["foo", "bar", "hello", "world", "baz"] * 20
    golden(keyed(len, lambda s: s.stateful_map("join", joined, default="")), {"in": words}, seed=SEED)


def test_a5_dropped_state_next_to_an_aggregate():
    def make():
        job = Job("program", n_shards=4, snapshot_every=2, keep=2, collect_every=3)
        by = job.source("in", iterable([]), type=dict).key_by("by", "of")
        by.stateful_map("sum", lambda k, r, s: (s + r["n"], (s + r["n"]) or None), default=0).sink("one", collect())
        by.aggregate("total", total=sum_("n")).sink("two", collect())
        by.key_by("n", lambda r: r["n"]).reduce("most", lambda a, b: max(a, b, key=lambda r: r["of"])).sink(
            "three", collect()
        )
        return job

    draw = random.Random(SEED)
    records = [{"of": draw.randrange(6), "n": draw.randrange(-3, 4)} for _ in range(150)]
    golden(make, {"in": records}, seed=SEED)


AGGREGATES = {
    "first": agg.first("name"),
    "latest": agg.last("name", by="time"),
    "names": agg.count_distinct("name"),
    "about": agg.count_distinct("n", approximate=True),
    "median": agg.approx_quantile("n", 0.5),
    "some": agg.collect("n", limit=5),
    "best": agg.top(3, by="n", columns=["n", "name"]),
    "even": agg.any_("even"),
    "paid": agg.sum("n", where="even"),
    "large": agg.count(where=pc.field("n") > 50),
}
EXACT = {name: each for name, each in AGGREGATES.items() if name not in ("about", "median")}
"""The aggregates whose state is the same to the last byte wherever batches end; results of the sketches are, too."""


def named(number, time):
    return {
        "key": f"k{number % 5}",
        "name": f"n{number * 7 % 11}",
        "n": number * 37 % 101,
        "even": number % 2 == 0,
        "time": time,
    }


def test_aggregates_with_states_that_are_not_numbers():
    def make():
        job = Job("program", n_shards=8, snapshot_every=2)
        job.source("in", iterable([named(0, 0)])).key_by("by", "key").aggregate("all", **EXACT).sink("out", collect())
        return job

    result = golden(make, {"in": [named(number, number) for number in range(150)]}, seed=SEED)
    assert len(result.states["all"]) == 5


class LeastCommon(agg.Aggregator):
    """The least common multiple of numbers from 1 on."""

    zero = 1

    def fold(self, groups, values):
        return pa.array([math.lcm(*numbers) for numbers in groups.lists(values).to_pylist()], pa.int64())

    merge = fold


def test_functions_with_the_key_expectations_and_custom_aggregates():
    def make():
        job = Job("program", n_shards=8, snapshot_every=2)
        records = job.source("in", iterable([named(0, 0)]))
        positive = records.expect("positive", "even", otherwise="warn").expect(
            "some", pc.field("n") < 90, otherwise="dead"
        )
        by = positive.key_by("by", "key")
        by.map("names", lambda key, row: f"{key}-{row.name}", with_key=True).sink("said", collect())
        again = by.filter("f", lambda key, row: key != "k2", with_key=True).key_by(
            "again", lambda key, row: f"{key}/{row.name}", with_key=True
        )
        all = {"least": agg.min("name", type=str), "every": agg.all_("even"), "own": agg.of(LeastCommon(), "time")}
        again.aggregate("all", **all).sink("out", collect())
        job.dead_letter("dead", collect())
        return job

    rows = [named(number, 1 + number % 6) for number in range(80)]
    result = golden(make, {"in": rows}, seed=SEED, runs=5)
    kept = [row for row in rows if row["n"] < 90]
    assert Counter(row["value"] for row in result.outputs["said"]) == Counter(f"{r['key']}-{r['name']}" for r in kept)
    assert len(result.outputs["dead"]) == len(rows) - len(kept)
    groups = defaultdict(list)
    for row in kept:
        if row["key"] != "k2":
            groups[f"{row['key']}/{row['name']}"].append(row)
    last = {row["key"]: (row["least"], row["every"], row["own"]) for row in result.outputs["out"]}
    assert last == {
        key: (group[0]["name"], all(row["even"] for row in group), math.lcm(*(row["time"] for row in group)))
        for key, group in groups.items()
    }


def test_a_table_that_follows_changes():
    message = {"key": b"", "value": b"", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}

    def make():
        job = Job("program", n_shards=8, snapshot_every=2)
        changes = job.source("changes", iterable([message])).decode("change", codecs.debezium())
        changes.broken.sink("broken", collect())
        changes.upserts("customers", key="id").sink("out", collect())
        return job

    messages, table = history(SEED, 80)
    result = golden(make, {"changes": [message | each for each in messages]}, seed=SEED, runs=5)
    assert result.states["customers"] == table
    last = {row["id"]: row for row in result.outputs["out"]}
    assert {id for id, row in last.items() if not row["_deleted"]} == table.keys()


class Given:
    """Stands where the acceptance tests of time have their runner, and keeps what it is to give to the job."""

    def __init__(self) -> None:
        self.inputs: dict[str, list] = {}
        self.batch = 1

    def source(self, job, name, items, *, batch):
        self.inputs[name], self.batch = list(items), batch
        return job.source(name, iterable(items))


def timed(given, job, items, bound=None, batch=1):
    stream = given.source(job, "in", items, batch=batch).assign_timestamps("time", lambda time: time, unit="ns")
    if bound is None:
        return stream.generate_epochs("epochs", lambda message, last: message.time)
    return stream.limit_out_of_orderness("bound", f"{bound} ns")


def e1_epochs(given, job):
    on_time = timed(given, job, [5, 6, 3, 9, 9, 12, 1, 20])
    logged(on_time, collect())
    on_time.late.sink("late", collect())


def e1_two_levels(given, job):
    on_time = timed(given, job, list(range(1, 9)))
    first = on_time.key_by("one", lambda time: "k").stateful_op("first", Log(), default=0)
    first.key_by("again", lambda text: "j").stateful_op("second", Log(), default=0).sink("out", collect())


def e2_late(given, job):
    on_time = timed(given, job, [10, 7, 8, 9, 6, 20, 11], bound=2, batch=2)
    on_time.sink("out", collect())
    on_time.late.sink("late", collect())


def e2_too_late_for_a_window(given, job):
    on_time = timed(given, job, [5, 35, 5, 6, 15, 40, 33, 80, 1], bound=0)
    windows = (
        on_time.union("all", on_time.late)
        .key_by("by", lambda value: value % 2)
        .window("w", tumbling("10 ns"), n=count())
    )
    windows.sink("out", collect())
    windows.late.sink("late", collect())


def e3_ttl_map(given, job):
    ttl_job(job, given.source(job, "words", WORDS, batch=1), collect())


def e4_windows(windows):
    def build(given, job):
        windowed(given.source(job, "in", EVENTS, batch=2), windows, collect(), collect())

    return build


def e4_corrections(given, job):
    times = [1, 15, 2, 29, 9, 60, 9]
    rows = [{"key": f"k{number % 2}", "time": time, "amount": number} for number, time in enumerate(times * 2)]
    on_time = (
        given.source(job, "in", rows, batch=1)
        .assign_timestamps("time", "time", unit="ns")
        .limit_out_of_orderness("bound", "0 s")
    )
    late = on_time.late
    windows = on_time.union("all", late).key_by("by", "key")
    windows = windows.window("w", tumbling("10 ns"), allowed_lateness="20 ns", n=count(), total=sum_("amount"))
    windows.sink("out", collect())
    windows.late.sink("late", collect())


def early(windows, when, fold):
    def build(given, job):
        rows = [{"key": f"k{number % 3}", "time": time, "n": number} for number, time in enumerate(range(0, 90, 2))]
        timed = given.source(job, "in", rows, batch=4).event_time("time", unit="ns", max_delay="3 ns", name="clock")
        timed.key_by("by", "key").window("w", windows, early=when, **fold).sink("out", collect())

    return build


def days(fold):
    """Days in Berlin around the change of clocks in October 2026, one record each 5 hours."""

    def build(given, job):
        first = datetime(2026, 10, 23, tzinfo=UTC)
        rows = [{"key": f"k{n % 2}", "time": first + timedelta(hours=5 * n), "n": n} for n in range(30)]
        timed = given.source(job, "in", rows, batch=4).event_time("time", max_delay="7 hours", name="clock")
        windows = sliding("2 days", "1 day", timezone="Europe/Berlin")
        timed.key_by("by", "key").window("w", windows, **fold).sink("out", collect())

    return build


def of_messages(windows, fold):
    def build(given, job):
        rows = [named(number, number) for number in range(60)]
        timed = given.source(job, "in", rows, batch=7).event_time("time", unit="ns", max_delay="3 ns", name="clock")
        timed.key_by("by", "key").window("w", windows, **fold).sink("out", collect())

    return build


def pattern_of_messages(given, job):
    rows = [named(number, number + number * 7 % 5) for number in range(80)]
    timed = given.source(job, "in", rows, batch=7).event_time("time", unit="ns", max_delay="9 ns", name="clock")
    rising = Pattern("low", lambda row, matched: row.n < 40, times=(1, 2)).then(
        "high", lambda row, matched: row.n > matched["low"][0].n + 30, without=lambda row, matched: row.n == 0
    )
    matches = timed.key_by("by", "key").match("m", rising, within="40 ns", incomplete=True)
    matches.map("out-of", lambda match: [each.n for values in match.values.values() for each in values]).sink(
        "out", collect()
    )


def aggregates_of(windows):
    def build(given, job):
        rows = [named(number, number * 13 % 97) for number in range(120)]
        on_time = given.source(job, "in", rows, batch=20).event_time("time", unit="ns", max_delay="9 ns", name="clock")
        results = on_time.union("all", on_time.late).key_by("by", "key")
        results = results.window("w", windows, allowed_lateness="60 ns", **AGGREGATES)
        results.sink("out", collect())
        results.late.sink("late", collect())

    return build


def best_of_each_window(given, job):
    rows = [{"key": f"k{n % 7}", "time": n, "n": n * 37 % 11} for n in range(60)]
    timed = given.source(job, "in", rows, batch=4).event_time("time", unit="ns", max_delay="3 ns", name="clock")
    windows = timed.key_by("by", "key").window("w", tumbling("10 ns"), total=sum_("n"))
    windows.top("best", 3, by="total").sink("out", collect())


SUMMED = {"n": count(), "total": sum_("n")}
COUNTED = {"total": sum_("n"), "names": agg.count_distinct("name"), "some": agg.collect("n", limit=5)}
FOLDED = {"add": lambda kept, row: [*kept, row.n], "default": list, "merge": lambda a, b: a + b}


def e5_join(join):
    def build(given, job):
        orders, payments = joining(given, job, "orders", ORDERS, 30), joining(given, job, "payments", PAYMENTS, 30)
        join(orders, payments).sink("out", collect())

    return build


def interval(how):
    return e5_join(
        lambda orders, payments: orders.interval_join("join", payments, before="2 ns", after="5 ns", how=how)
    )


PROGRAMS_OF_TIME = {
    "e1 epochs": e1_epochs,
    "e1 two levels": e1_two_levels,
    "e2 late": e2_late,
    "e2 too late for a window": e2_too_late_for_a_window,
    "e3 ttl_map": e3_ttl_map,
    "e4 tumbling": e4_windows(tumbling("10 ns")),
    "e4 sliding": e4_windows(sliding("20 ns", "10 ns")),
    "e4 session": e4_windows(session("10 ns")),
    "e4 corrections": e4_corrections,
    "the best of each window": best_of_each_window,
    "days in a time zone": days(SUMMED),
    "days in a time zone of a function": days(FOLDED),
    "aggregates of tumbling windows": aggregates_of(tumbling("10 ns")),
    "aggregates of sliding windows": aggregates_of(sliding("20 ns", "10 ns")),
    "aggregates of sessions": aggregates_of(session("3 ns")),
    "a pattern": pattern_of_messages,
    "counted windows of aggregates": of_messages(counted(4), COUNTED),
    "overlapping counted windows of aggregates": of_messages(counted(6, every=4), COUNTED),
    "counted windows of a function": of_messages(counted(5, every=2), FOLDED),
    "windows with a trigger": of_messages(triggered(lambda kept, row: sum(kept) > 150, timeout="20 ns"), FOLDED),
    "early results of aggregates": early(
        tumbling("10 ns"), "5 ns", {"names": agg.count_distinct("n"), "last": agg.last("n")}
    ),
    "early results by batch": early(tumbling("10 ns"), "batch", SUMMED),
    "early results by time": early(sliding("20 ns", "10 ns"), "5 ns", SUMMED),
    "early results of sessions": early(session("7 ns"), "5 ns", SUMMED),
    "early results of a function": early(tumbling("10 ns"), "5 ns", FOLDED),
    "early results of a function by batch": early(session("7 ns"), "batch", FOLDED),
    **{f"e5 {how} interval join": interval(how) for how in ("inner", "left", "right", "full")},
    "e5 window join": e5_join(
        lambda orders, payments: orders.window_join("join", payments, tumbling("10 ns"), how="full")
    ),
    "e5 as-of join": e5_join(lambda orders, payments: orders.as_of_join("join", payments)),
}


def through_golden(build, **options):
    """Batches end where they end in the acceptance test: what is late depends on it."""
    given = Given()

    def make():
        job = Job("program", n_shards=8, snapshot_every=2)
        build(given, job)
        return job

    make()
    result = golden(make, given.inputs, seed=SEED, batch_size=given.batch, **options)
    assert any(result.outputs.values())


@pytest.mark.parametrize("name", PROGRAMS_OF_TIME)
def test_a_program_of_time(name):
    through_golden(PROGRAMS_OF_TIME[name])


def test_a_program_of_time_on_spark(spark):
    through_golden(PROGRAMS_OF_TIME["e4 session"], runs=0, spark=spark)
