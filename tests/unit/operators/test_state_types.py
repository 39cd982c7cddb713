"""In every step, state keeps the type with which it was written, or its record is refused."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from tidewheel import Job, KeyedStream, StatefulLogic, Stream, sinks, sources, tumbling
from tidewheel.errors import StepError
from tidewheel.testing import MemoryRun, Message, StepTester

_numbers = itertools.count()

VALUES = [
    (1, "a"),
    {1, 2},
    frozenset({1}),
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("America/New_York")),
    dt.date(2024, 1, 1),
    dt.time(1, 2),
    dt.timedelta(1),
    Decimal("1.10"),
    UUID(int=7),
    {"a": [(1, 2)], b"b": 3, 4: {5}},
]


@dataclass
class Order:
    k: str
    n: int


def last_value(stream: KeyedStream) -> Stream:
    return stream.stateful_map("last", lambda key, value, state: (state, value))


class Last(StatefulLogic[Any]):
    def on_data(self, message: Message, state: Any, output: Any) -> Any:
        output.emit(state)
        return message.value


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("build", [last_value, lambda stream: stream.stateful_op("last", Last())])
def test_undeclared_state_keeps_its_type_over_a_commit(build: Callable[[KeyedStream], Stream], value: Any) -> None:
    tester = StepTester(build)
    tester.send("a", value)
    (message,) = tester.send("a", 1)
    assert message.value == value
    assert type(message.value) is type(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("batches", [1, 2])
def test_a_value_that_waits_in_a_join_keeps_its_type(batches: int, value: Any) -> None:
    def build(stream: KeyedStream) -> Stream:
        left, right = stream.branch("side", lambda each: each[0] == "l", lambda each: each[0] == "r")
        return left.interval_join("j", right, before="10 ns", after="10 ns", function=lambda one, other: one)

    tester = StepTester(build)
    messages = [Message("k", ("l", value), 1), Message("k", ("r", 0), 2)]
    sent = [tester.send_all(messages)] if batches == 1 else [tester.send_all([each]) for each in messages]
    ((_, back),) = [message.value for message in sent[-1]]
    assert back == value
    assert type(back) is type(value)


def test_a_join_function_that_mutates_its_argument_changes_no_state() -> None:
    def build(stream: KeyedStream) -> Stream:
        left, right = stream.branch("side", lambda each: "l" in each, lambda each: "r" in each)
        return left.interval_join(
            "j", right, before="10 ns", after="10 ns", function=lambda one, other: one | {"n": one.pop("l")}
        )

    tester = StepTester(build)
    tester.send("k", {"l": 1}, 1)
    assert [message.value for message in tester.send_all([Message("k", {"r": at}, at) for at in (2, 3)])] == [
        {"n": 1}
    ] * 2


def test_the_folded_value_of_a_window_keeps_its_type() -> None:
    def fold(total: Any, value: int) -> Any:
        return total[0] + value, 1

    tester = StepTester(lambda stream: stream.window("w", tumbling("10 ns"), fold, default=(0, 0)))
    tester.send("k", 3, 1)
    (result,) = tester.epoch(20)
    assert result.value.value == (3, 1)


@pytest.mark.parametrize(
    ("default", "state"), [(0, "text"), (0, {"n": 1}), ({}, 0), (list[int], (1,)), ("", b""), (set(), []), (0.5, [1])]
)
def test_a_state_of_another_type_than_its_default_is_refused(default: Any, state: Any) -> None:
    """A function that returns (new state, output) in place of (output, new state) would pass unnoticed otherwise."""
    swapped = StepTester(lambda stream: stream.stateful_map("m", lambda k, v, s: (None, state), default=default))
    with pytest.raises(
        StepError, match=r"step 'm'.*the state begins as an? \w+; if output and new state are in"
    ) as raised:
        swapped.send("k", 1)
    assert f"the new state is a {type(state).__name__}, but" in str(raised.value).replace("is an ", "is a ")


@pytest.mark.parametrize(
    ("default", "state"),
    [
        (0, 1.5),
        (0, Decimal(1)),
        (0.5, 1),
        (False, 3),
        ({}, Counter("a")),
        (set(), frozenset({1})),
        (None, 1),
        (lambda: 0, ""),
    ],
)
def test_a_state_of_a_related_type_is_kept(default: Any, state: Any) -> None:
    tester = StepTester(lambda stream: stream.stateful_map("m", lambda k, v, s: (s, state), default=default))
    tester.send("k", 1)
    assert tester.send("k", 1)[0].value == state


def test_where_batches_end_does_not_show_in_a_comparison_with_the_state() -> None:
    def changed(key: str, value: tuple[int, int], state: Any) -> tuple[bool, Any]:
        return state != value, value

    tester = StepTester(lambda stream: stream.stateful_map("changed", changed))
    assert [tester.send("k", (1, 2))[0].value for _ in range(3)] == [True, False, False]


def run_batches(
    build: Callable[[Job], Any], *batches: list[Any], dead_letters: Any = None, value: Any = None
) -> list[dict[str, Any]]:
    out = sinks.collect()
    job = Job("t", state=f"memory:state-types-{next(_numbers)}", n_shards=4)
    build(job.source("in", sources.iterable([]), type=value)).sink("out", out)
    if dead_letters is not None:
        job.dead_letter("dead", dead_letters)
    with MemoryRun(job) as run:
        for records in batches:
            run.batch({"in": records})
    return out.records


def test_records_are_reduced_in_the_second_batch() -> None:
    records = [Order("a", 1), Order("a", 2)]
    out = run_batches(
        lambda stream: stream.key_by("by", "k").reduce("sum", lambda one, other: Order(one.k, one.n + other.n)),
        records,
        records,
        value=Order,
    )
    assert out == [{"k": "a", "n": 3}, {"k": "a", "n": 6}]


def test_rows_are_reduced_in_the_second_batch() -> None:
    out = run_batches(
        lambda stream: stream.key_by("by", "k").reduce("most", lambda one, other: one if one.n >= other.n else other),
        [{"k": "a", "n": 1}, {"k": "a", "n": 2}],
        [{"k": "a", "n": 3}],
    )
    assert out == [{"k": "a", "n": 2}, {"k": "a", "n": 3}]


def add(state: Any, number: int) -> Any:
    return state + number + (0.5 if number == 3 else 0)


def total(key: str, row: dict[str, Any], state: int) -> tuple[Any, Any]:
    return None, add(state, row["n"])


class Total(StatefulLogic[int]):
    def on_data(self, message: Message, state: int, output: Any) -> int:
        return add(state, message.value["n"])


SUMS: list[Callable[[Stream], Any]] = [
    lambda stream: stream.key_by("by", "k").stateful_map("sum", total),
    lambda stream: stream.key_by("by", "k").stateful_op("sum", Total(), state=int),
    lambda stream: stream.key_by("by", "k", value="n").reduce("sum", add, state=int),
]
ids = ["stateful_map", "stateful_op", "reduce"]


@pytest.mark.parametrize("build", SUMS, ids=ids)
def test_a_wrong_state_type_names_the_first_record_that_caused_it(build: Any) -> None:
    records = [{"k": "a", "n": 1}, {"k": "b", "n": 5}, {"k": "a", "n": 3}, {"k": "a", "n": 2}]
    # What reduce gets has been folded before the shuffle.
    with pytest.raises(StepError, match=r"step 'sum', key 'a', record (.*'n': 3\}|6\.5): .*declared type int"):
        run_batches(build, [{"k": "a", "n": 2}], records, value=dict)


@pytest.mark.parametrize("build", SUMS, ids=ids)
def test_a_record_that_causes_a_wrong_state_becomes_a_dead_letter(build: Any) -> None:
    dead = sinks.collect()
    run_batches(
        lambda stream: build(stream).map("same", lambda value: value),
        [{"k": "a", "n": 1}],
        [{"k": "a", "n": 3}],
        [{"k": "a", "n": 1}, {"k": "b", "n": 1}],
        dead_letters=dead,
        value=dict,
    )
    (letter,) = dead.records
    assert (letter["step"], letter["key"]) == ("sum", "a")
    assert "declared type int" in letter["error"]


def test_an_undeclared_record_in_state_is_refused_when_it_is_written() -> None:
    with pytest.raises(StepError, match=r"step 'last', key 'a', record Order.*an Order needs a declared type"):
        StepTester(last_value).send("a", Order("a", 1))
