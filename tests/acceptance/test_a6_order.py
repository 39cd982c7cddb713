"""A6: messages of one key are processed in the order of their source, whatever the splits and the parallelism."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Job, RunOptions, StoredJob
from tidewheel.sinks import collect, discard
from tidewheel.sources import files
from tidewheel.testing import MemoryRun

_names = itertools.count()


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


def joined(left: str, right: str) -> str:
    return left + right


def appended(key: str, record: Any, text: str) -> tuple[None, str]:
    return None, text + record["text"]


def texts(records: list[dict[str, str]]) -> dict[str, str]:
    """Return what an order-dependent program makes of the records, in their order."""
    found: dict[str, str] = {}
    for record in records:
        found[record["key"]] = found.get(record["key"], "") + record["text"]
    return found


def in_order(stream: Any, *, by_column: bool) -> None:
    """Add steps that depend on the order of their messages, one of them combined before the shuffle."""
    keyed = stream.key_by("by", "key" if by_column else lambda record: record["key"])
    keyed.stateful_map("appended", appended, default="").sink("a", discard())
    keyed.map("text", lambda record: record["text"]).reduce("reduced", joined).sink("b", discard())
    direct = stream.map("pair", lambda record: (record["key"], record["text"])).key_by("pairs", lambda pair: pair[0])
    direct.map("second", lambda pair: pair[1]).reduce("combined", joined).sink("c", discard())


ORDERED = ("appended", "reduced", "combined")


@given(
    st.lists(st.fixed_dictionaries({"key": st.sampled_from("abc"), "text": st.text("xyz", max_size=3)}), max_size=30),
    st.integers(1, 4),
    st.integers(1, 7),
    st.booleans(),
)
def test_a6_any_split_and_any_parallelism_give_one_result(records, parallelism, partitions, by_column):
    job = Job(f"order-{next(_names)}", state=f"memory:order-{next(_names)}", n_shards=8)
    in_order(job.source("in", lambda spark: None), by_column=by_column)
    with MemoryRun(job, parallelism=parallelism, partitions=partitions) as run:
        run.batch({"in": records})
        run.flush()
    stored = StoredJob(job.name, state=job.state)
    assert [dict(stored.scan(name)) for name in ORDERED] == [texts(records)] * 3


@pytest.mark.parametrize(("rows", "parallelism"), [(40_000, 3), (40_000, 1), (300, 3)])
def test_a6_files_of_a_batch_are_processed_in_their_order_on_spark(tmp_path, spark, rows, parallelism):
    """With a shuffle, with one task, and in a batch that is too small for a shuffle."""
    records = [{"key": f"k{n * n % 7}", "text": f"{n},"} for n in range(rows)]
    folder = tmp_path / "in"
    folder.mkdir()
    # The names are not in the order of time.
    for number, name in enumerate("dbeca"):
        part = records[number * rows // 5 : (number + 1) * rows // 5]
        (folder / f"{name}.json").write_text("".join(json.dumps(record) + "\n" for record in part))
        os.utime(folder / f"{name}.json", (1_700_000_000 + number, 1_700_000_000 + number))
    job = Job("files", state=f"file://{tmp_path}/state", n_shards=8)
    in_order(job.source("in", files(folder, format="json", schema="key string, text string")), by_column=False)
    job.run(until="end", parallelism=parallelism, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    stored = StoredJob(job.name, state=job.state)
    assert [dict(stored.scan(name)) for name in ORDERED] == [texts(records)] * 3
