"""Timers of many keys at once equal timers set one by one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from tidewheel import Timer
from tidewheel._operators.aggregates.partial_results import key_batch_of
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.shard_reader import EmptyReader
from tidewheel._state.timers import NEVER, TimerTable

SHARDS = 4


def table() -> TimerTable:
    return TimerTable(SimpleNamespace(n_shards=SHARDS, reader=lambda shard: EmptyReader()), "w/timers", None)


def moved(key_batch: KeyBatch, was: list[int], due: list[int]) -> TimerTable:
    timers = table()
    timers.move(key_batch.stored, key_batch.shards, np.array(was), np.array(due))
    return timers


def changes(timers: TimerTable):
    return {shard: timers.changes(shard) for shard in sorted(timers.touched()) if timers.changes(shard)}


def test_moving_many_is_cancelling_and_putting_each():
    keys = [f"key-{number}" * (number + 1) for number in range(40)]
    key_batch = key_batch_of(pa.array(keys), SHARDS)
    was = [NEVER if number % 3 == 0 else number - 5 for number in range(40)]
    due = [NEVER if number % 4 == 0 else number - 5 if number % 5 == 0 else -number * 10**15 for number in range(40)]
    one_by_one = table()
    for key, before, after in zip(key_batch.keys, was, due, strict=True):
        if before != after:
            if before != NEVER:
                one_by_one.cancel(Timer(key, before))
            if after != NEVER:
                one_by_one.put(Timer(key, after))
    assert changes(moved(key_batch, was, due)) == changes(one_by_one)


def test_due_timers_are_taken_once_by_stored_key_with_the_first_time():
    key_batch = key_batch_of(pa.array(["a", "b", "c"]), 1)
    timers = TimerTable(SimpleNamespace(n_shards=1, reader=lambda shard: EmptyReader()), "w/timers", None)
    timers.move(key_batch.stored, key_batch.shards, np.full(3, NEVER), np.array([5, 7, 9]))
    timers.put(Timer("b", 3, "drop"))
    assert timers.take_due(0, 7) == {b"sa": (5, {""}), b"sb": (3, {"", "drop"})}
    assert timers.take_due(0, 7) == {}
    assert [timer.key for timer in timers.due(0, "event", 100)] == ["c"]
