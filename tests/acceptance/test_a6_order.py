"""A6: messages of one key from one source partition are processed in source order."""

from __future__ import annotations

from tidewheel.sinks import collect


def test_a6_one_key_keeps_the_order_of_its_source(runner):
    def seen(key: int, number: int, last: int) -> tuple[bool, int]:
        return number > last, number

    job, out = runner.job(), collect()
    numbers = runner.source(job, "numbers", list(range(600)), batch=200)
    numbers.key_by("by", lambda number: number % 7).stateful_map("ordered", seen, default=-1).sink("out", out)
    runner.run(job, parallelism=3)
    assert len(out.records) == 600
    assert all(record["value"] for record in out.records)


def test_a6_order_holds_through_two_keyed_stages(runner):
    def numbered(key: int, number: int, last: int) -> tuple[int, int]:
        return number, number

    def seen(key: str, number: int, last: int) -> tuple[bool, int]:
        return number > last, number

    job, out = runner.job(), collect()
    numbers = runner.source(job, "numbers", list(range(400)), batch=100)
    first = numbers.key_by("one", lambda number: 0).stateful_map("pass", numbered, default=-1)
    first.key_by("two", lambda number: str(number % 3)).stateful_map("ordered", seen, default=-1).sink("out", out)
    runner.run(job, parallelism=2)
    assert len(out.records) == 400
    assert all(record["value"] for record in out.records)
