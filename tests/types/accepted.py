"""Programs that a type checker must accept, with the types that it must infer. Nothing here runs."""

from __future__ import annotations

import datetime
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, assert_type

import msgspec

import tidewheel
from tidewheel import (
    DecodedStream,
    Job,
    JobCell,
    Joined,
    KeyedDecodedStream,
    KeyedStream,
    KeyedTimedStream,
    Match,
    Message,
    Output,
    Pattern,
    Row,
    StatefulLogic,
    StoredJob,
    Stream,
    TimedStream,
    Timer,
    WindowedStream,
    WindowResult,
    codecs,
    count,
    session,
    sinks,
    sources,
    sum_,
    tumbling,
)
from tidewheel.cells import CellMapWriter, CellWriter, Once
from tidewheel.connectors import Sink, Source

HOUR = datetime.timedelta(hours=1)


class Column:
    """What stubs of pyarrow would have for an expression; pyarrow itself has no types."""

    def is_valid(self) -> Column:
        return self

    def is_nan(self) -> Column:
        return self


@dataclass
class Order:
    user: str
    cents: int
    at: datetime.datetime


class Payment(msgspec.Struct):
    user: str
    paid: bool


@dataclass
class Totals:
    orders: int = 0
    cents: int = 0


job = Job("typed")

# Sources: the declared type, what the source itself gives, or rows.

orders = job.source("orders", sources.files("orders/", "json"), type=Order)
assert_type(orders, Stream[Order])
assert_type(job.source("rows", sources.files("rows/")), Stream[Row])
assert_type(job.source("kafka", sources.kafka("broker", "topic")), Stream[Row])
assert_type(job.source("frame", lambda spark: spark.readStream.load()), Stream[Row])
assert_type(job.source("framed", lambda spark: spark.readStream.load(), type=Payment), Stream[Payment])
assert_type(job.source("numbers", sources.iterable([1, 2])), Stream[int])
assert_type(job.source("records", sources.iterable([Payment("ada", True)])), Stream[Payment])
assert_type(job.source("dicts", sources.iterable([{"user": "ada", "cents": 3}])), Stream[Row])
assert_type(job.source("as-dicts", sources.files("x/"), type=dict[str, Any]), Stream[dict[str, Any]])

# Steps over values.

rows = job.source("more-rows", sources.files("rows/"))
assert_type(orders.map("cents", lambda order: order.cents), Stream[int])
assert_type(orders.filter("big", lambda order: order.cents > 100), Stream[Order])
assert_type(orders.filter("big-column", Column()), Stream[Order])
assert_type(orders.expect("paid", lambda order: order.cents > 0, otherwise="warn"), Stream[Order])
assert_type(orders.with_columns("euros", euros=Column()), Stream[Row])
assert_type(orders.select("users", "user", cents=Column()), Stream[Row])
assert_type(orders.filter_map("some", lambda order: order.user if order.cents else None), Stream[str])
assert_type(orders.flat_map("letters", lambda order: list(order.user)), Stream[str])
assert_type(orders.inspect("look", print), Stream[Order])
assert_type(rows.map("any", lambda row: row.cents), Stream[Any])
assert_type(rows.map("told", lambda row: row.cents, returns=int), Stream[int])
assert_type(rows.map("made", lambda row: Payment(row.user, row.paid)), Stream[Payment])
assert_type(rows.filter("some-rows", lambda row: row.cents > 3), Stream[Row])
assert_type(orders.map_batches("batches", lambda batch: batch), Stream[Row])
assert_type(orders.map_batches("typed-batches", lambda batch: batch, returns=Order), Stream[Order])
assert_type(orders.union("u", orders), Stream[Order])
assert_type(orders.union("mixed", rows), Stream[Order | Row])
assert_type(orders.split("s", 2, lambda order: order.cents % 2), tuple[Stream[Order], ...])
assert_type(orders.branch("b", lambda order: order.cents > 3), tuple[Stream[Order], ...])
assert_type(orders.branch("named", high=lambda order: order.cents > 3).high, Stream[Order])
assert_type(orders.sink("out", sinks.collect()), Stream[Order])

# Codecs.

decoded = rows.decode("json", codecs.json(Payment))
dead = decoded.broken
assert_type(decoded, DecodedStream[Payment])
assert_type(dead, Stream[Row])
assert_type(rows.decode("plain", codecs.json()), DecodedStream[dict[str, Any]])
assert_type(rows.decode("bytes", codecs.raw()), DecodedStream[bytes])
assert_type(
    by_user_decoded := rows.key_by("d", lambda row: "a").decode("k", codecs.raw()), KeyedDecodedStream[str, bytes]
)
assert_type(by_user_decoded.broken, KeyedStream[str, Row])

# Keys.

by_user = orders.key_by("by-user", lambda order: order.user)
assert_type(by_user, KeyedStream[str, Order])
assert_type(orders.key_by("by-column", "user"), KeyedStream[Any, Order])
assert_type(orders.key_by("one-column", "user", value="cents"), KeyedStream[Any, Any])
assert_type(by_user.map("keyed-cents", lambda order: order.cents), KeyedStream[str, int])
assert_type(by_user.filter("keyed-big-column", Column()), KeyedStream[str, Order])
assert_type(by_user.expect("keyed-paid", Column(), otherwise="dead"), KeyedStream[str, Order])
assert_type(by_user.with_columns("keyed-euros", euros=Column()), KeyedStream[str, Row])
assert_type(by_user.select("keyed-users", "user"), KeyedStream[str, Row])
assert_type(by_user.filter("keyed-big", lambda order: order.cents > 100), KeyedStream[str, Order])
assert_type(by_user.flat_map("keyed-letters", lambda order: list(order.user)), KeyedStream[str, str])
assert_type(by_user.key_by("by-cents", lambda order: order.cents), KeyedStream[int, Order])
assert_type(by_user.sink("keyed-out", sinks.collect()), KeyedStream[str, Order])
assert_type(by_user.union("keyed-union", by_user), KeyedStream[str, Order])

# State.


def add(user: str, order: Order, totals: Totals) -> tuple[Totals, Totals | None]:
    new = Totals(totals.orders + 1, totals.cents + order.cents)
    return new, new


assert_type(by_user.stateful_map("annotated", add), KeyedStream[str, Totals])
assert_type(by_user.stateful_map("with-default", add, default=Totals()), KeyedStream[str, Totals])
assert_type(by_user.stateful_map("with-class", add, default=Totals), KeyedStream[str, Totals])
assert_type(
    by_user.stateful_map("sum", lambda user, order, total: (total + order.cents, total + order.cents), default=0),
    KeyedStream[str, int],
)
assert_type(
    by_user.stateful_map("made", lambda user, order, totals: (totals.cents, totals), default=Totals),
    KeyedStream[str, int],
)
assert_type(
    by_user.stateful_map("made-here", lambda user, order, totals: (totals.cents, totals), default=lambda: Totals(1)),
    KeyedStream[str, int],
)
assert_type(
    by_user.stateful_map("both", lambda user, order, seen: (len(seen), seen), default=dict, state=dict[str, int]),
    KeyedStream[str, int],
)
assert_type(
    by_user.stateful_map("declared", lambda user, order, seen: (len(seen), [*seen, order.cents]), state=list[int]),
    KeyedStream[str, int],
)
assert_type(
    by_user.stateful_map("undeclared", lambda user, order, last: (order.cents, order.cents)), KeyedStream[str, int]
)
assert_type(
    by_user.stateful_map("said", lambda user, order, last: (last, order.cents), returns=int, ttl=HOUR, version=2),
    KeyedStream[str, int],
)


class Reminder(StatefulLogic[int, Order, str, str]):
    def on_data(self, message: Message[str, Order], state: int, output: Output[str]) -> int:
        assert_type(message.key, str)
        assert_type(message.value.cents, int)
        output.emit(message.value.user)
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output[str]) -> int | None:
        return None

    def on_epoch(self, epoch: int, states: MutableMapping[str, int], output: Output[str]) -> None:
        for key in states:
            output.send(Message(key, "soon", epoch))


class Loose(StatefulLogic[int]):
    def on_data(self, message: Message, state: int, output: Output) -> int:
        return state


def emit(message: Message[str, Order], state: int, output: Output[str]) -> int:
    return state


class Listing(StatefulLogic[list[int], Order, Payment]):
    def on_data(self, message: Message[Any, Order], state: list[int], output: Output[Payment]) -> list[int]:
        return [*state, message.value.cents]


def total(message: Message[str, Order], state: Totals, output: Output[int]) -> Totals | None:
    output.emit(state.cents)
    return state


assert_type(by_user.stateful_op("listing", Listing(), default=list), KeyedStream[str, Payment])
assert_type(by_user.stateful_op("listed", Listing(), default=[], state=list[int]), KeyedStream[str, Payment])
assert_type(by_user.stateful_op("total", total), KeyedStream[str, int])
assert_type(by_user.stateful_op("from-class", total, default=Totals), KeyedStream[str, int])
assert_type(by_user.stateful_op("from-value", total, default=Totals(1)), KeyedStream[str, int])
assert_type(by_user.stateful_op("reminder", Reminder(), default=0), KeyedStream[str, str])
assert_type(by_user.stateful_op("loose", Loose(), default=0), KeyedStream[str, Any])
assert_type(by_user.stateful_op("function", emit, default=0), KeyedStream[str, str])
assert_type(by_user.stateful_op("told-loose", Loose(), default=0, returns=Payment), KeyedStream[str, Payment])
assert_type(by_user.aggregate("totals", cents=sum_("cents"), orders=count()), KeyedStream[str, Row])
assert_type(by_user.reduce("last", lambda one, other: other), KeyedStream[str, Order])
assert_type(by_user.deduplicate("once", HOUR, by=lambda order: order.user), KeyedStream[str, Order])
assert_type(by_user.ttl_map("recent", lambda message, entries: len(entries)), KeyedStream[str, int])

# Time.

on_time = orders.assign_timestamps("at", lambda order: order.at).limit_out_of_orderness("bound", HOUR)
late = on_time.late
assert_type(on_time, TimedStream[Order])
assert_type(orders.event_time("at", max_delay=HOUR, name="at-2"), TimedStream[Order])
assert_type(late, Stream[Order])
timed = by_user.assign_timestamps("keyed-at", "at").generate_epochs("epochs", lambda message, last: message.time)
too_late = timed.late
assert_type(timed, KeyedTimedStream[str, Order])

# Windows.


def add_up(cents: list[int], order: Order) -> list[int]:
    return [*cents, order.cents]


windows = timed.window("sums", tumbling(HOUR), lambda total, order: total + order.cents, default=0)
assert_type(windows, WindowedStream[str, WindowResult[int], Order])
assert_type(windows.late, KeyedStream[str, Order])
assert_type(windows.map("value", lambda result: result.value), KeyedStream[str, int])
assert_type(timed.window("lists", tumbling(HOUR), add_up), WindowedStream[str, WindowResult[list[int]], Order])
assert_type(
    timed.window("visits", session(HOUR), add_up, default=list[int], merge=lambda one, other: one + other),
    WindowedStream[str, WindowResult[list[int]], Order],
)
assert_type(
    timed.window("rows-of", tumbling(HOUR), cents=sum_("cents"), allowed_lateness=HOUR), WindowedStream[str, Row, Order]
)

# Joins.

payments = job.source("payments", sources.files("payments/"), type=Payment).key_by("by-payer", lambda paid: paid.user)
assert_type(timed.interval_join("j", payments, after=HOUR), KeyedStream[str, Joined[Order, Payment]])
assert_type(timed.interval_join("jl", payments, how="left"), KeyedStream[str, Joined[Order, Payment | None]])
assert_type(timed.interval_join("jr", payments, how="right"), KeyedStream[str, Joined[Order | None, Payment]])
assert_type(timed.interval_join("jf", payments, how="full"), KeyedStream[str, Joined[Order | None, Payment | None]])
assert_type(
    timed.interval_join("jw", payments, how="left", function=lambda order, paid: (order.cents, paid is not None)),
    KeyedStream[str, tuple[int, bool]],
)
assert_type(
    timed.window_join("wj", payments, tumbling(HOUR)), WindowedStream[str, Joined[Order, Payment], Order | Payment]
)
assert_type(timed.as_of_join("aj", payments), KeyedStream[str, Joined[Order, Payment | None]])
assert_type(timed.as_of_join("ai", payments, how="inner"), KeyedStream[str, Joined[Order, Payment]])

# Live configuration.

limit = job.cell("limit", int, default=100)
assert_type(limit, JobCell[int])
assert_type(limit.value, int)
assert_type(job.cell("empty", str).value, str | None)
assert_type(job.cell("words", list[str], default=[]).value, list[str])
assert_type(job.cell("rates", dict[str, float], default={"EUR": 1}).value, dict[str, float])
assert_type(job.cell("weights", list[float], default=[1, 2]).value, list[float])
assert_type(job.cell("names", set[str], default=set()).value, set[str])
assert_type(job.cell("ratio", float, default=1), JobCell[float])
some_order = Order("ada", 1, datetime.datetime(2026, 1, 1))
assert_type(job.cell("order", Order, default=some_order), JobCell[Order])
assert_type(job.cell("pair", tuple[int, str], default=(1, "a")).value, tuple[int, str])
assert_type(job.cell("wait", datetime.timedelta, default=HOUR), JobCell[datetime.timedelta])
assert_type(StoredJob("live", state="memory:").cell("limit", int), CellWriter[int])
assert_type(StoredJob("live", state="memory:").cell("limit"), CellWriter[Any])

assert_type(tidewheel.codecs.raw().decode(b"x"), bytes)

with tidewheel.cells.open("memory:") as connection:
    assert_type(connection.writer("threshold", float).read(), float | None)
    assert_type(connection.map_writer("limits", int), CellMapWriter[int])
    assert_type(connection.once("seed", int), Once[int])

# Connectors of one's own.


def given(source: Source[Order], sink: Sink[Order], any_source: Source, any_sink: Sink) -> None:
    assert_type(job.source("own", source), Stream[Order])
    job.source("own-sunk", source).sink("own-out", sink).sink("any-out", any_sink)
    assert_type(job.source("any", any_source), Stream[Row])


def takes_anything(stream: Stream, keyed: KeyedStream) -> None:
    """A stream without its types is a stream of anything."""
    assert_type(stream, Stream[Any])
    assert_type(keyed.map("m", lambda value: value.x), KeyedStream[Any, Any])


takes_anything(orders, by_user)


def optional_names(orders: Stream[Order], by_user: KeyedStream[str, Order]) -> None:
    """Steps without state need no name, and types are inferred as with a name."""
    assert_type(orders.map(lambda order: order.cents), Stream[int])
    assert_type(orders.map("cents", lambda order: order.cents), Stream[int])
    assert_type(orders.map(lambda order: order, returns=Order), Stream[Order])
    assert_type(orders.filter(lambda order: order.cents > 1), Stream[Order])
    assert_type(orders.filter_map(lambda order: order.cents or None), Stream[int])
    assert_type(orders.flat_map(lambda order: [order.user]), Stream[str])
    assert_type(orders.inspect(print), Stream[Order])
    assert_type(orders.map_batches(lambda batch: batch), Stream[Row])
    assert_type(orders.select(["user"]), Stream[Row])
    assert_type(orders.union(orders.map(lambda order: order.cents)), Stream[Order | int])
    assert_type(orders.key_by("user"), KeyedStream[Any, Order])
    assert_type(orders.key_by(lambda order: order.user), KeyedStream[str, Order])
    assert_type(orders.key_by(lambda order: order.user, value="cents"), KeyedStream[str, Any])
    assert_type(by_user.map(lambda order: order.cents), KeyedStream[str, int])
    assert_type(by_user.filter(lambda order: order.cents > 1), KeyedStream[str, Order])
    assert_type(by_user.flat_map(lambda order: [order.at]), KeyedStream[str, datetime.datetime])
    assert_type(by_user.select(["user"]), KeyedStream[str, Row])


def with_keys_and_columns(orders: Stream[Order], by_user: KeyedStream[str, Order]) -> None:
    """Functions get the key if they ask for it, and a column stands for a function."""
    assert_type(by_user.map(lambda user, order: (user, order.cents), with_key=True), KeyedStream[str, tuple[str, int]])
    assert_type(by_user.filter("own", lambda user, order: user == order.user, with_key=True), KeyedStream[str, Order])
    assert_type(by_user.flat_map("users", lambda user, order: [user], with_key=True), KeyedStream[str, str])
    assert_type(by_user.key_by(lambda user, order: len(user), with_key=True), KeyedStream[int, Order])
    assert_type(orders.map("users", "user"), Stream[Any])
    large = Pattern("large", lambda order, matched: order.cents > 100)
    assert_type(by_user.match("large", large, within="1 hour"), WindowedStream[str, Match[Order], Order])
    assert_type(by_user.map("their-users", "user"), KeyedStream[str, Any])
    assert_type(orders.filter("named", "user"), Stream[Order])
