"""A1 to A5: Malstrom's tests of stateful steps, the same tests on `StepTester` and on Spark."""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import accumulate
from typing import Any

import pytest

from acceptance.driven import OnSpark
from tidewheel import Message, Output, StatefulLogic
from tidewheel._time.duration import MAX_TIME
from tidewheel.errors import StepError
from tidewheel.testing import StepTester


@pytest.fixture(params=["tester", "spark"])
def drive(request, tmp_path):
    """Return what puts steps under test: alone, or in a job on Spark."""
    if request.param == "tester":
        return lambda build: StepTester(build, n_shards=4)
    return lambda build: OnSpark(build, request.getfixturevalue("spark"), tmp_path)


def summing(stream):
    return stream.stateful_map("sum", lambda key, value, total: (total + value, total + value), default=0)


def last_word(stream):
    """Keeps the last word, unless it is longer than three letters, which drops it; emits the word before."""
    last = stream.stateful_map(
        "last", lambda key, word, before: (before, word if len(word) <= 3 else None), default="", state=str
    )
    return last.stateful_map("count", lambda key, value, n: (value, n + 1), default=0)


def test_a1_running_sums_one_key_and_even_and_odd(drive):
    under_test = drive(summing)
    one_key = under_test.send_all(Message(0, number) for number in range(101))
    assert [message.value for message in one_key] == list(accumulate(range(101)))
    two_keys = under_test.send_all(Message(1 + number % 2, number) for number in range(101))
    for parity in (0, 1):
        mine = [message.value for message in two_keys if message.key == 1 + parity]
        assert mine == list(accumulate(range(parity, 101, 2)))


def test_a1_words_by_length_dropped_at_six_letters(drive):
    def joined(length: int, word: str, so_far: str) -> tuple[str, str | None]:
        text = so_far + word
        return text, None if len(text) >= 6 else text

    under_test = drive(lambda stream: stream.stateful_map("join", joined))
    words = ["foo", "bar", "hello", "world", "baz"]
    out = under_test.send_all(Message(len(word), word) for word in words)
    assert {message.value for message in out} == {"foo", "foobar", "hello", "helloworld", "baz"}
    assert [message.value for message in out if message.key == 3] == ["foo", "foobar", "baz"]
    assert under_test.interrogate() == {3}


class Pairs(StatefulLogic[int]):
    """Emits nothing for the first of two messages and both for the second; tells what is left over at the end."""

    def on_data(self, message: Message, state: int, output: Output) -> int | None:
        if state == 0:
            return int(message.value)
        output.emit(state)
        output.emit(message.value)
        return None

    def on_epoch(self, epoch: int, states: MutableMapping[Any, int], output: Output) -> None:
        for key in list(states):
            output.send(Message(key, -states.pop(key)))


def test_a2_none_one_or_many_messages_and_every_state_at_the_epoch(drive):
    under_test = drive(lambda stream: stream.stateful_op("pairs", Pairs(), default=0))
    assert under_test.send(1, 5) == []
    assert under_test.send_all([Message(1, 6), Message(2, 7)]) == [Message(1, 5), Message(1, 6)]
    assert under_test.epoch(MAX_TIME) == [Message(2, -7)]
    assert under_test.interrogate() == set()


def test_a3_an_output_under_another_key_is_refused(drive):
    under_test = drive(lambda stream: stream.stateful_op("rogue", lambda m, state, out: out.send(Message(8, "x"))))
    with pytest.raises(StepError, match=r"'rogue'.*key of its input, 7, but Message\(key=8, value='x'"):
        under_test.send(7, "v")


def test_a4_a5_collect_and_acquire_move_exactly_the_committed_state(drive):
    under_test = drive(last_word)
    under_test.send_all([Message(1, "foo"), Message(5, "bar"), Message(9, "baz")])
    assert under_test.interrogate() == {1, 5, 9}
    assert under_test.state(5, "last") == "bar"
    assert under_test.state(5, "count") == 1
    # A key's state leaves every step under its name; what is gone is gone.
    assert under_test.collect(1) == {"last": "foo", "count": 1}
    assert under_test.collect(1) == {}
    assert under_test.interrogate() == {5, 9}
    under_test.acquire(1337, {"last": "HelloWorld"})
    out = under_test.send_all([Message(1, "qux"), Message(5, "hello"), Message(1337, "")])
    assert {message.key: message.value for message in out} == {1: "", 5: "bar", 1337: "HelloWorld"}
    # "hello" dropped the word of key 5, and only the word.
    assert under_test.state(5, "last") is None
    assert under_test.collect(5) == {"count": 2}
