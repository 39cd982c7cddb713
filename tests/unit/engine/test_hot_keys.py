"""A sample finds the keys with a large share of the messages."""

from __future__ import annotations

import itertools

import pytest

from tidewheel import Job, count
from tidewheel._engine.figures import Figures
from tidewheel._engine.hot_keys import KeySample, hot_keys
from tidewheel._observe.records import CommitRecord
from tidewheel._values import ANY, Batch
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()


class Kept:
    def __init__(self) -> None:
        self.records: list[CommitRecord] = []

    def committed(self, record: CommitRecord) -> None:
        self.records.append(record)


def batch(keys) -> Batch:
    return Batch(ANY, values=keys, keys=keys)


def test_few_messages_are_counted_and_many_are_sampled():
    sample = KeySample(True)
    sample.look_at("by", batch(["a"] * 60 + ["b"] * 40))
    assert sample.found() == {"by": {"'a'": 60.0, "'b'": 40.0}}
    sample = KeySample(True)
    sample.look_at("by", batch([("u7", 1) if n % 3 == 0 else ("u", n) for n in range(30_000)]))
    key, messages = next(iter(sample.found()["by"].items()))
    assert key == "('u7', 1)"
    assert 5_000 < messages < 16_000


def test_a_pattern_in_the_data_is_no_hot_key():
    sample = KeySample(True)
    for _ in range(20):
        sample.look_at("by", batch([n % 64 for n in range(64_000)]))
    assert hot_keys([sample.found()], {"by": 20 * 64_000}) == {}


def test_long_keys_with_a_common_beginning_are_distinguished():
    sample = KeySample(True)
    first, second = (f"https://example.com/{'path/' * 20}{end}" for end in "ab")
    sample.look_at("by", batch([first] * 60 + [second] * 40))
    found = sample.found()["by"]
    assert list(found.values()) == [60.0, 40.0]
    assert all(key.startswith("'https://example.com/path/") and len(key) < 100 for key in found)
    # Each task calls a key the same.
    assert sorted(hot_keys([sample.found(), sample.found()], {"by": 200})["by"].values()) == [0.4, 0.6]


def test_hot_keys_are_counted_only_on_request():
    sample = KeySample(False)
    sample.look_at("by", batch(["a"]))
    assert sample.found() == {}


def test_memory_is_bounded():
    sample = KeySample(True)
    for start in range(2_000):
        sample.look_at("by", batch([f"{start}-{n}" for n in range(20)] + ["hot"] * 5))
    assert len(sample._counters["by"]) <= 10_020
    assert next(iter(sample.found()["by"])) == "'hot'"


def test_shares_are_of_all_tasks_and_few_messages_have_none():
    found = [{"by": {"a": 90.0, "b": 9.0}}, {"by": {"a": 10.0}}]
    assert hot_keys(found, {"by": 200}) == {"by": {"a": 0.5}}
    assert hot_keys(found, {"by": 99}) == {}


def test_all_keys_of_an_even_batch_are_counted_for_later_shares():
    found = [{"by": {str(key): 125.0 - key for key in range(8)}}]
    assert len(hot_keys(found, {"by": 1000})["by"]) == 8


@pytest.mark.parametrize("key", ["user", lambda record: record["user"]])
def test_a_hot_key_is_in_the_history_of_a_run(key):
    url = f"memory:hot-{next(_fresh)}"
    job = Job("hot", state=url, n_shards=4)
    records = job.source("in", iterable([]), type=dict)
    records.key_by("by-user", key).aggregate("n", n=count()).sink("out", discard())
    kept = Kept()
    with MemoryRun(job, parallelism=2, partitions=2) as run:
        run.run.figures = Figures(run.plan, [kept])
        run.batch({"in": [{"user": "u7" if n % 3 == 0 else f"v{n}"} for n in range(300)]})
    (record,) = kept.records
    assert record.hot == {"by-user": {"'u7'": pytest.approx(1 / 3, abs=0.001)}}
