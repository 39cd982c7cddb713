"""E3: `ttl_map`: each entry has its own expiry; at an epoch, entries with expiry <= epoch go; empty maps are dropped."""

from __future__ import annotations

from support.internals import open_store
from tidewheel import ExpiringMap, Message
from tidewheel._engine.stopped_job import opener
from tidewheel._state.shard_contents import shard_items
from tidewheel._state.timers import is_timers
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

WORDS = ["foo", "bar", "hello", "world", "baz"]


def kept_for_two(message: Message, entries: ExpiringMap) -> str:
    entries.put(message.value, message.value, expires=message.time + 2)
    return "|".join(entries.values())


def ttl_job(job, source, out):
    timed = source.assign_timestamps("time", lambda word: WORDS.index(word), unit="ns")
    on_time = timed.generate_epochs("epochs", lambda message, last: message.time)
    on_time.key_by("one", lambda word: "k").ttl_map("ttl", kept_for_two).sink("out", out)


def test_e3_entries_go_when_the_epoch_reaches_their_expiry(runner):
    job, out = runner.job(), collect()
    ttl_job(job, runner.source(job, "words", WORDS, batch=1), out)
    runner.run(job)
    assert [record["value"] for record in out.records] == [
        "foo",
        "foo|bar",
        "foo|bar|hello",
        "bar|hello|world",
        "hello|world|baz",
    ]


def test_e3_an_empty_map_is_dropped(memory_runner):
    job, out = memory_runner.job(), collect()
    source = job.source("in", lambda spark: None).map("word", lambda row: row.value)
    ttl_job(job, source, out)
    with MemoryRun(job) as run:
        run.batch({"in": ["foo"]})
        assert "ttl" in operators_with_state(job, run)
        run.batch({}, epoch=2)
        assert "ttl" not in operators_with_state(job, run)


def operators_with_state(job, run):
    """Return the steps that have a key's state."""
    fetch = opener(open_store(job.state), job.name)
    return {
        table
        for shard, parts in run.run.head.shards.items()
        for table, _, _ in shard_items(parts, shard, fetch)
        if not is_timers(table)
    }
