"""Programs that a type checker must refuse: each line that is wrong says so, with a word of what must be told."""

from __future__ import annotations

from dataclasses import dataclass

import tidewheel
from tidewheel import Job, Message, Output, StatefulLogic, sinks, sources, tumbling
from tidewheel.connectors import Sink


@dataclass
class Order:
    user: str
    cents: int


def add(user: str, order: Order, total: int) -> tuple[int, int]:
    return total + order.cents, total + order.cents


def add_text(user: str, order: Order, total: str) -> tuple[str, str]:
    return total, total


def of_text(user: str, text: str, total: int) -> tuple[int, int]:
    return total, total


class OfText(StatefulLogic[int, str, str]):
    def on_data(self, message: Message[object, str], state: int, output: Output[str]) -> int:
        output.emit(3)  # error: emit
        return "state"  # error: int


job = Job("wrong")
tidewheel.Jobb("wrong")  # error: Jobb
orders = job.source("orders", sources.files("orders/"), type=Order)
by_user = orders.key_by("by-user", lambda order: order.user)
by_cents = orders.key_by("by-cents", lambda order: order.cents)
words = job.source("words", sources.iterable(["a", "b"]))
limit = job.cell("limit", int, default=100)

job.cell("c1", float, default="high")  # error: cell
job.cell("c2", int, default="100")  # error: cell
job.cell("c3", list[str], default=[1])  # error: cell
job.cell("c4", dict[str, float], default={"a": "b"})  # error: cell
job.cell("c5", Order, default=3)  # error: cell
job.cell("c6", 0.5)  # error: cell
job.cell("c7", float, 0.5)  # error: cell
orders.filter("f0", lambda order: order.cents > limit)  # error: JobCell
orders.map("m0", lambda order: order.cents + limit)  # error: JobCell

orders.map("m", lambda order: order.centz)  # error: centz
orders.map(lambda order: order.centz)  # error: centz
by_user.filter(lambda order: order.centz)  # error: centz
orders.key_by(lambda order: order.uzer)  # error: uzer
orders.filter("f", lambda order: order.centz > 3)  # error: centz
orders.filter("f2", 3)  # error: filter
orders.expect("e", lambda order: order.centz > 3)  # error: centz
orders.expect("e2", lambda order: order.cents > 3, otherwise="ignore")  # error: otherwise
orders.with_columns("w0", euros=3)  # error: with_columns
orders.select("s0", 3)  # error: select
orders.key_by("k", lambda order: order.centz)  # error: centz
orders.flat_map("fm", lambda order: order.cents)  # error: int
orders.map("m2", lambda order: order.cents).map("m3", lambda cents: cents.upper())  # error: upper
by_user.map("m4", lambda order: order.centz)  # error: centz
words.map("m5", lambda word: word.cents)  # error: cents
orders.stateful_map("s", add)  # error: stateful_map
by_user.stateful_map("s2", lambda user, order, total: (total, order.centz), default=0)  # error: centz
by_user.stateful_map("s3", lambda user, order, total: total, default=0)  # error: stateful_map
by_user.stateful_map("s4", of_text)  # error: str
by_user.stateful_map("s5", add_text, default=0)  # error: stateful_map
by_user.stateful_map("s6", add).map("m6", lambda total: total.upper())  # error: upper
by_user.stateful_op("o", OfText(), default=0)  # error: Order
by_user.window("w", tumbling("10 ns"), lambda total, order: total + order.centz, default=0)  # error: centz
by_user.window("w2", tumbling("10 ns"), lambda n, order: n + 1, default=0).map("m7", lambda r: r.valu)  # error: valu
by_user.interval_join("j", words)  # error: interval_join
by_user.interval_join("j2", by_cents)  # error: KeyedStream
by_user.interval_join("j3", by_user).map("m8", lambda pair: pair.left.centz)  # error: centz
by_user.interval_join("j4", by_user, how="left").map("m9", lambda pair: pair.right.cents)  # error: None
by_user.interval_join("j5", by_user, how="outer")  # error: interval_join
limit.value.upper()  # error: upper
job.cell("default", int).value + 1  # error: None
orders.union("u", 1)  # error: union
orders.sink("out", print)  # error: Sink
orders.late.sink("late", sinks.collect())  # error: late


def given(sink: Sink[Order]) -> None:
    words.sink("words-out", sink)  # error: Sink
    orders.sink("orders-out", sink).sink("again", sinks.collect())
