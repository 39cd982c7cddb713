"""A1: `stateful_map(name, fn)`: fn(key, value, state) -> (output, new_state); state per key; None drops it."""

from __future__ import annotations

from itertools import accumulate

from tidewheel.sinks import collect

WORDS = ["foo", "bar", "hello", "world", "baz"]


def test_a1_running_sums_with_one_key(runner):
    job, out = runner.job(), collect()
    numbers = runner.source(job, "numbers", list(range(101)), batch=25)
    summed = numbers.key_by("all", lambda number: 0).stateful_map(
        "sum", lambda key, value, total: (total + value, total + value), default=0
    )
    summed.sink("out", out)
    runner.run(job)
    assert [record["value"] for record in out.records] == list(accumulate(range(101)))


def test_a1_running_sums_for_even_and_odd(runner):
    job, out = runner.job(), collect()
    numbers = runner.source(job, "numbers", list(range(101)), batch=30)
    numbers.key_by("parity", lambda number: number % 2).stateful_map(
        "sum", lambda key, value, total: (total + value, total + value), default=0
    ).sink("out", out)
    runner.run(job)
    for parity in (0, 1):
        mine = [record["value"] for record in out.records if record["key"] == parity]
        assert mine == list(accumulate(range(parity, 101, 2)))


def test_a1_words_by_length_dropped_at_six_letters(runner):
    def joined(length: int, word: str, so_far: str) -> tuple[str, str | None]:
        text = so_far + word
        return text, None if len(text) >= 6 else text

    job, out = runner.job(), collect()
    words = runner.source(job, "words", WORDS, batch=1)
    words.key_by("length", len).stateful_map("join", joined).sink("out", out)
    runner.run(job)
    assert [record["value"] for record in out.records] == ["foo", "foobar", "hello", "helloworld", "baz"]


def test_a1_the_default_of_a_new_key_is_not_shared(memory_runner):
    def gathered(key: int, value: int, state: list[int]) -> tuple[int, list[int]]:
        state.append(value)
        return len(state), state

    job, out = memory_runner.job(), collect()
    numbers = memory_runner.source(job, "numbers", [1, 2, 3, 4], batch=2)
    numbers.key_by("each", lambda number: number).stateful_map("gather", gathered, default=[]).sink("out", out)
    memory_runner.run(job)
    assert [record["value"] for record in out.records] == [1, 1, 1, 1]
