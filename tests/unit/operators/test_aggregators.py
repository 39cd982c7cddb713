"""Aggregates whose state is not a number give the results of plain Python, however messages are divided."""

import datetime as dt
import statistics
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Job, Stream, agg, session, sinks, sliding, sources, tumbling
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._operators.aggregates.states import normal
from tidewheel.errors import GraphError, StepError
from tidewheel.testing import MemoryRun
from unit.operators.running import run

COLUMNS = ("user", "x", "name", "at", "paid")


def rows(*given: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, each, strict=False)) for each in given]


def aggregated(**aggregates: Any) -> Any:
    return lambda stream: stream.key_by("key", "user").aggregate("op", **aggregates)


def newest(ran: Any) -> dict[str, dict[str, Any]]:
    return {record["user"]: {k: v for k, v in record.items() if k != "user"} for record in ran.records}


class MiddleOf:
    """Equals a value that about half of the values are below, give or take one of them."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        below = sum(value < other for value in self.values)
        above = sum(value > other for value in self.values)
        return max(below, above) <= len(self.values) / 2 + 1

    __hash__ = None


ALL = {
    "first": agg.first("name"),
    "last": agg.last("name"),
    "earliest": agg.first("name", by="at"),
    "latest": agg.last("name", by="at"),
    "distinct": agg.count_distinct("x"),
    "about": agg.count_distinct("name", approximate=True),
    "some": agg.collect("name", limit=3),
    "best": agg.top(2, by="x"),
    "best_names": agg.top(2, by="x", columns="name"),
    "best_rows": agg.top(2, by="x", columns=["x", "name"]),
    "variance": agg.variance("x"),
    "stddev": agg.stddev("x", population=True),
    "any": agg.any_("paid"),
    "all": agg.all_("paid"),
    "median": agg.approx_quantile("x", 0.5),
    "paid": agg.sum("x", where="paid"),
    "large": agg.count(where=pc.field("x") > 0),
    "large_names": agg.count_distinct("name", where=pc.field("x") > 0),
    "rows": agg.count(),
}


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all aggregates of the messages of one key, as plain Python computes them."""
    xs = [m["x"] for m in messages if m["x"] is not None]
    names = [m["name"] for m in messages if m["name"] is not None]
    paid = [m["paid"] for m in messages if m["paid"] is not None]
    timed = [m for m in messages if m["at"] is not None]
    best = sorted((m for m in messages if m["x"] is not None), key=lambda m: -m["x"])[:2]
    large = [m for m in messages if m["x"] is not None and m["x"] > 0]
    ats = [m["at"] for m in timed]
    charged = [m["x"] for m in messages if m["paid"] and m["x"] is not None]
    return {
        "first": names[0] if names else None,
        "last": names[-1] if names else None,
        "earliest": next((m["name"] for m in timed if m["at"] == min(ats)), None),
        "latest": next((m["name"] for m in reversed(timed) if m["at"] == max(ats)), None),
        "distinct": len(set(xs)),
        "about": len(set(names)),
        "some": names[:3],
        "best": [m["x"] for m in best],
        "best_names": [m["name"] for m in best],
        "best_rows": [{"x": m["x"], "name": m["name"]} for m in best],
        "variance": pytest.approx(statistics.variance(xs)) if len(xs) > 1 else None,
        "stddev": pytest.approx(statistics.pstdev(xs)) if xs else None,
        "any": any(paid) if paid else None,
        "all": all(paid) if paid else None,
        "median": MiddleOf(xs) if xs else None,
        "paid": sum(charged) if charged else None,
        "large": len(large),
        "large_names": len({m["name"] for m in large if m["name"] is not None}),
        "rows": len(messages),
    }


MESSAGES = st.tuples(
    st.sampled_from("abc"),
    st.none() | st.integers(-20, 20),
    st.none() | st.text("xyz", max_size=2),
    st.none() | st.integers(0, 5),
    st.none() | st.booleans(),
)
HISTORIES = st.lists(st.lists(MESSAGES, min_size=1, max_size=8), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(HISTORIES, st.integers(1, 3), st.integers(1, 3))
def test_results_are_those_of_python_for_any_batches_and_shards(batches, parallelism, partitions):
    given = [rows(*batch) for batch in batches]
    ran = run(aggregated(**ALL), *given, plain=False, parallelism=parallelism, partitions=partitions)
    by_user = defaultdict(list)
    for message in (each for batch in given for each in batch):
        by_user[message["user"]].append(message)
    assert newest(ran) == {user: model(messages) for user, messages in by_user.items()}


ARRIVAL = {"first", "last", "some", "earliest", "latest", "best_names", "best_rows"}
"""The aggregates that depend on the order of arrival, some of them only between equal values.

The panes of a sliding window, and sessions that become one, are merged in the order of their times.
"""


@pytest.mark.parametrize("windows", [tumbling("10 ns"), sliding("10 ns", every="5 ns"), session("4 ns")], ids=str)
@settings(max_examples=40, deadline=None)
@given(batches=HISTORIES, parallelism=st.integers(1, 3), partitions=st.integers(1, 3))
def test_windows_have_the_results_of_python(windows, batches, parallelism, partitions):
    given = [[each | {"time": 3 * place} for place, each in enumerate(rows(*batch))] for batch in batches]

    def build(stream: Stream) -> Stream:
        timed = stream.event_time("time", unit="ns", max_delay="1 s").key_by("key", "user")
        return timed.window("op", windows, **ALL)

    ran = run(build, *given, plain=False, parallelism=parallelism, partitions=partitions, flush=True)
    expected = defaultdict(list)
    by_user = defaultdict(list)
    for message in (each for batch in given for each in batch):
        by_user[message["user"]].append(message)
    for user, messages in by_user.items():
        for start, end in spans(windows, [message["time"] for message in messages]):
            expected[user, start, end] += [each for each in messages if start <= each["time"] < end]
    found = {}
    for record in ran.records:
        place = record.pop("user"), record.pop("start"), record.pop("end")
        record.pop("correction")
        found[place] = record
    for place, messages in expected.items():
        wanted = model(messages)
        compared = ALL.keys() if windows == tumbling("10 ns") else ALL.keys() - ARRIVAL
        assert {name: found[place][name] for name in compared} == {name: wanted[name] for name in compared}
    assert found.keys() == expected.keys()


def spans(windows: Any, times: list[int]) -> set[tuple[int, int]]:
    if hasattr(windows, "gap"):
        found: list[tuple[int, int]] = []
        for time in sorted(times):
            if found and time < found[-1][1]:
                found[-1] = found[-1][0], time + windows.gap
            else:
                found.append((time, time + windows.gap))
        return set(found)
    starts = {
        begin
        for time in times
        for begin in range(-10, time + 1, windows.every)
        if begin <= time < begin + windows.length
    }
    return {(start, start + windows.length) for start in starts}


@dataclass
class Sale:
    user: str
    name: str | None
    sold: dt.datetime | None


def at(hour: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC)


def test_declared_text_and_times_have_extremes():
    batches = [[Sale("a", "pear", at(3)), Sale("a", None, None)], [Sale("a", "apple", at(1)), Sale("b", None, None)]]
    build = aggregated(low=agg.min("name"), high=agg.max("name"), early=agg.min("sold"), names=agg.count("name"))
    assert newest(run(build, *batches, value=Sale, plain=False, partitions=2)) == {
        "a": {"low": "apple", "high": "pear", "early": at(1), "names": 2},
        "b": {"low": None, "high": None, "early": None, "names": 0},
    }


def test_decimals_are_compared_and_added_exactly():
    prices = [Decimal("1.10"), None, Decimal("2.25"), Decimal("2.25")]
    build = aggregated(
        high=agg.max("price", type=Decimal), total=agg.sum("price", type=Decimal), some=agg.collect("price", limit=2),
        n=agg.count_distinct("price"), about=agg.count_distinct("price", approximate=True),
    )  # fmt: skip
    found = newest(run(build, *([{"user": "a", "price": price}] for price in prices), plain=False))
    assert found["a"] == {
        "high": prices[2],
        "total": Decimal("5.60"),
        "some": [prices[0], prices[2]],
        "n": 2,
        "about": 2,
    }


def test_a_sum_of_decimals_with_more_than_38_digits_is_rejected():
    build = aggregated(total=agg.sum("price", type=Decimal), n=agg.count())
    batches = [[{"user": "a", "price": Decimal("9" * 37)}] for _ in range(12)]
    ran = run(build, *batches, plain=False, dead_letter=True)
    assert (len(ran.dead), newest(ran)["a"]) == (2, {"total": Decimal("9" * 37 + "0"), "n": 10})
    assert "more than 38 digits" in ran.dead[0]["error"]


def test_text_that_is_not_declared_needs_its_type():
    batch = rows(("a", 1, "y"), ("a", 1, "x"))
    with pytest.raises(StepError, match="min and max take it with type=, such as type=str"):
        run(aggregated(low=agg.min("name")), batch, plain=False)
    assert newest(run(aggregated(low=agg.min("name", type=str)), batch, plain=False)) == {"a": {"low": "x"}}


def test_a_time_with_nanoseconds_is_not_cut():
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        normal(pa.array([1], pa.timestamp("ns")))


class Product(agg.Aggregator):
    """The product of numbers."""

    zero = 1

    def fold(self, groups, values):
        return groups.fold(values, "product")

    def merge(self, groups, states):
        return groups.fold(states, "product")


def test_an_aggregator_of_the_user_has_zero_for_a_key_without_values():
    batches = [rows(("a", 2), ("a", 3), ("b", None)), rows(("a", 4))]
    ran = run(aggregated(x=agg.of(Product(), "x")), *batches, plain=False, partitions=2)
    assert newest(ran) == {"a": {"x": 24}, "b": {"x": 1}}


def test_a_record_that_an_aggregator_refuses_is_rejected_alone():
    class Careful(Product):
        def fold(self, groups, values):
            if pc.any(pc.equal(values, 13)).as_py():
                raise ValueError("thirteen")
            return super().fold(groups, values)

    batch = rows(*(("a", x) for x in (2, 13, 5)))
    ran = run(aggregated(x=agg.of(Careful(), "x")), batch, plain=False, dead_letter=True)
    assert (newest(ran), len(ran.dead)) == ({"a": {"x": 10}}, 1)
    assert "thirteen" in ran.dead[0]["error"]


def test_an_aggregator_that_returns_too_few_states_is_an_error():
    class Wrong(Product):
        def fold(self, groups, values):
            return values[:1]

    with pytest.raises(StepError, match="one state for each of 2 groups"):
        run(aggregated(x=agg.of(Wrong(), "x")), rows(("a", 1), ("b", 2), ("b", 3)), plain=False)


def test_a_variance_of_large_numbers_keeps_its_digits():
    values = [1e9 + x for x in (4, 7, 13, 16)]
    ran = run(aggregated(v=agg.variance("x")), *(rows(("a", x)) for x in values), plain=False)
    assert newest(ran) == {"a": {"v": pytest.approx(30)}}


def test_approximations_of_many_values_are_close():
    batches = [rows(*(("a", x, str(x)) for x in range(begin, begin + 5000))) for begin in range(0, 40_000, 5000)]
    aggregates = {"n": agg.count_distinct("name", approximate=True), "q": agg.approx_quantile("x", 0.99)}
    found = newest(run(aggregated(**aggregates), *batches, plain=False, partitions=2))["a"]
    assert found["n"] == pytest.approx(40_000, rel=0.06)
    assert found["q"] == pytest.approx(39_600, rel=0.01)


@pytest.mark.parametrize("windows", [None, tumbling("1 s"), session("1 s")], ids=["aggregate", "tumbling", "session"])
def test_approximations_count_nan_as_the_same_value_or_as_none(windows):
    aggregates = {"n": agg.count_distinct("x", approximate=True), "q": agg.approx_quantile("x", 0.5)}

    def build(stream: Stream) -> Stream:
        keyed = stream.event_time("at", unit="ns", max_delay="0 s").key_by("key", "user")
        return keyed.aggregate("op", **aggregates) if windows is None else keyed.window("op", windows, **aggregates)

    nan = float("nan")
    batches = [
        rows(("a", nan, "", 1), ("b", nan, "", 1)),
        rows(("b", 3.0, "", 1), ("b", nan, "", 1), ("c", None, "", 1)),
    ]
    found = newest(run(build, *batches, plain=False, flush=True))
    assert {user: (each["n"], each["q"]) for user, each in found.items()} == {
        "a": (1, None),
        "b": (2, 3.0),
        "c": (0, None),
    }


def test_moments_and_quantiles_take_integers_that_floats_round():
    values = [2**53 + 1, 2**62 + 1, -(2**60) - 1]
    aggregates = {"q": agg.approx_quantile("x", 0.5), "v": agg.variance("x"), "s": agg.stddev("x")}
    found = newest(run(aggregated(**aggregates), rows(*(("a", x) for x in values)), plain=False))["a"]
    assert found == {
        "q": float(2**53 + 1),
        "v": pytest.approx(statistics.variance(map(float, values))),
        "s": pytest.approx(statistics.stdev(map(float, values))),
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: agg.top(0, by="x"), "top: n= takes a number from 1 on"),
        (lambda: agg.collect("x", limit=-1), "collect: limit= takes a number from 1 on"),
        (lambda: agg.approx_quantile("x", 95), "a share from 0 to 1, such as 0.95, not 95"),
        (lambda: agg.sum("x", where=lambda row: row.x > 1), "where= takes the name of a column of booleans"),
        (lambda: agg.of(Product, "x"), "takes an instance of a class"),
    ],
    ids=["top", "collect", "quantile", "where", "of"],
)
def test_wrong_arguments_are_refused(wrong, said):
    with pytest.raises(GraphError, match=said):
        wrong()


def test_a_condition_that_is_not_boolean_is_refused_in_the_graph():
    for where in ("user", pc.field("sold")):
        with pytest.raises(GraphError, match="it must be boolean"):
            run(aggregated(n=agg.count(where=where)), value=Sale, plain=False)


def test_quantiles_and_moments_of_a_column_share_their_state():
    ran = run(
        aggregated(
            a=agg.approx_quantile("x", 0.5), b=agg.approx_quantile("x", 0.9), c=agg.stddev("x"), d=agg.variance("x")
        ),
        rows(("a", 1)),
        plain=False,
    )
    ((row, _),) = [(rows[0], tail) for rows, tail in ran.states["op"].values()]
    assert len(row) == 2


CHANGES = {
    "states added": ({"n": agg.sum("x")}, {"n": agg.sum("x"), "d": agg.count_distinct("x")}, {"n": 12, "d": 2}),
    "states removed": ({"d": agg.count_distinct("x"), "n": agg.sum("x")}, {"n": agg.sum("x")}, {"n": 12}),
    "states kept": (
        {"a": agg.collect("name", limit=9), "n": agg.sum("x"), "d": agg.count_distinct("x")},
        {"d": agg.count_distinct("x"), "l": agg.last("name"), "m": agg.mean("x")},
        {"d": 4, "l": "q", "m": 3.0},
    ),
    "another limit": ({"a": agg.collect("name", limit=9)}, {"a": agg.collect("name", limit=8)}, {"a": ["p", "q"]}),
    "another condition": ({"n": agg.count(where="paid")}, {"n": agg.count(where=pc.field("x") > 4)}, {"n": 1}),
}


@pytest.mark.parametrize("windows", [None, tumbling("1 s"), session("1 s")], ids=["aggregate", "tumbling", "session"])
@pytest.mark.parametrize(("before", "after", "found"), CHANGES.values(), ids=CHANGES)
def test_state_continues_when_aggregates_change(windows, before, after, found, request):
    state, out = f"memory:{request.node.name}", sinks.collect()

    def job(**aggregates: Any) -> Job:
        job = Job("job", state=state, n_shards=4)
        stream = job.source("in", sources.dataframe(lambda spark: None))
        keyed = stream.event_time("at", unit="ns", max_delay="9 s").key_by("by", "user")
        made = keyed.aggregate("op", **aggregates) if windows is None else keyed.window("op", windows, **aggregates)
        made.sink("out", out)
        return job

    with MemoryRun(job(**before)) as run:
        run.batch({"in": rows(("a", 1, "x", 1, True), ("a", 2, "y", 2, True))})
    with MemoryRun(job(**after)) as run:
        run.batch({"in": rows(("a", 4, "p", 3, True), ("a", 5, "q", 4, True))})
        run.flush()
    assert {name: out.records[-1][name] for name in found} == found


def test_the_state_of_a_key_is_readable_without_the_program():
    out = sinks.collect()
    job = Job("read", state="memory:read-states", n_shards=4)
    stream = job.source("in", sources.dataframe(lambda spark: None)).key_by("by", "user")
    stream.aggregate("op", n=agg.sum("x"), names=agg.count_distinct("name"), some=agg.collect("x", limit=1)).sink(
        "out", out
    )
    with MemoryRun(job) as run:
        run.batch({"in": rows(("a", 1, "x"), ("a", 2, "y"))})
        assert StateReader(run.run.store, run.run.head).get("op", "a").value == {
            "n": 3,
            "names": ["x", "y"],
            "some": [1],
        }
