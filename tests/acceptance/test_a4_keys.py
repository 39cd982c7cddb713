"""A4: interrogate, collect and acquire keys of a stopped job."""

from __future__ import annotations

import msgspec

from support.internals import shard_of
from tidewheel._engine.stopped_job import StoppedJob
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


def last_word(job, out):
    """Keeps the last word of three letters at most per key; emits the state before it."""
    (
        job.source("in", iterable([]), type=dict)
        .key_by("by", lambda record: record["key"])
        .stateful_map("last", lambda k, r, state: (state, r["word"] if len(r["word"]) <= 3 else None), default="")
        .stateful_map("count", lambda key, value, n: (value, n + 1), default=0)
        .sink("out", out)
    )
    return job


def send(job, *records):
    with MemoryRun(job, parallelism=2) as run:
        run.batch({"in": [{"key": key, "word": word} for key, word in records]})


def test_a4_interrogate_lists_the_keys_that_have_state(memory_runner):
    job = last_word(memory_runner.job(), collect())
    send(job, (1, "foo"), (5, "bar"))
    with StoppedJob(job) as stopped:
        assert stopped.interrogate() == {1, 5}
        assert stopped.interrogate([shard_of(5, job.n_shards)]) == {5}


def test_a4_a_dropped_key_is_not_listed_and_collects_nothing(memory_runner):
    job = memory_runner.job()
    (
        job.source("in", iterable([]), type=dict)
        .key_by("by", lambda record: record["key"])
        .stateful_map("last", lambda k, r, state: (state, r["word"] if len(r["word"]) <= 3 else None), default="")
        .sink("out", collect())
    )
    send(job, (1, "foo"))
    send(job, (1, "hello"))
    with StoppedJob(job) as stopped:
        assert stopped.interrogate() == set()
        assert stopped.collect(1) == {}


def test_a4_collect_takes_the_state_out_of_every_operator_under_its_name(memory_runner):
    out = collect()
    job = last_word(memory_runner.job(), out)
    send(job, (1, "foo"), (5, "bar"))
    with StoppedJob(job) as stopped:
        taken = stopped.collect(1)
        assert {name: msgspec.msgpack.decode(raw) for name, raw in taken.items()} == {"last": "foo", "count": 1}
        assert stopped.interrogate() == {5}
        stopped.commit()
    send(job, (1, "baz"), (5, "qux"))
    # The key that left starts from the default, the other goes on.
    assert [(r["key"], r["value"]) for r in out.records[-2:]] == [(1, ""), (5, "bar")]


def test_a4_acquired_state_is_seen_by_the_next_message(memory_runner):
    out = collect()
    job = last_word(memory_runner.job(), out)
    send(job, (1, "foo"))
    with StoppedJob(job) as stopped:
        stopped.acquire(1337, {"last": msgspec.msgpack.encode("HelloWorld")})
        stopped.commit()
    send(job, (1337, ""))
    assert out.records[-1] == {"key": 1337, "value": "HelloWorld"}


def test_a4_uncommitted_changes_do_not_count(memory_runner):
    job = last_word(memory_runner.job(), collect())
    send(job, (1, "foo"))
    with StoppedJob(job) as stopped:
        stopped.collect(1)
    with StoppedJob(job) as stopped:
        assert stopped.interrogate() == {1}
