"""Output in the job's store: files of bounded size, read back in order with a few of them in memory."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from support.internals import open_store
from tidewheel._connectors import staging
from tidewheel._connectors.sink import Publication, Staging
from tidewheel._connectors.staging import (
    PublishedRows,
    StagedBatches,
    StagedRef,
    common_schema,
    published_batches,
    staged_files,
)
from tidewheel.errors import CorruptError, StepError

BOUND = 20_000


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch):
    monkeypatch.setattr(staging, "FILE_BYTES", BOUND)
    monkeypatch.setattr(staging, "_AHEAD_BYTES", 2 * BOUND)


@pytest.fixture
def store(tmp_path):
    return open_store(f"file://{tmp_path}/state")


def batch(start: int, rows: int = 100) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": range(start, start + rows), "text": ["x" * 50] * rows})


def staged(store, *batches: pa.RecordBatch, task: int = 0) -> bytes | None:
    partition = StagedBatches(Staging(store, "orders", "out", 1, f"run-{task}-0"))
    for each in batches:
        partition.write(each)
    return partition.prepare()


def publication(store, *tokens: bytes) -> Publication:
    return Publication(store, "orders", "out", 1, tokens, None)


def numbers(batches) -> list[int]:
    return [number for each in batches for number in each["n"].to_pylist()]


def test_files_are_bounded_and_come_back_in_order(store):
    tokens = [staged(store, *(batch(task * 10_000 + n * 100) for n in range(40)), task=task) for task in range(3)]
    files = staged_files(publication(store, *tokens))
    assert len(files) == len({file.name for file in files}) > 20
    assert sum(file.rows for file in files) == 3 * 4000
    expected = [task * 10_000 + n for task in range(3) for n in range(4000)]
    assert numbers(published_batches(publication(store, *tokens))) == expected
    assert numbers(published_batches(publication(store, *tokens), tokens[1:2])) == expected[4000:8000]


def test_a_large_batch_is_cut(store):
    token = staged(store, batch(0, 5000))
    assert len(staged_files(publication(store, token))) > 10
    assert numbers(published_batches(publication(store, token))) == list(range(5000))


def test_little_is_one_file_and_nothing_is_none(store):
    assert staged(store) is None
    assert staged(store, batch(0, 0)) is None
    assert len(staged_files(publication(store, staged(store, batch(0, 2), batch(2, 2))))) == 1


def test_a_token_of_an_earlier_version_is_read(store):
    token = msgspec.msgpack.decode(staged(store, batch(0, 2)))
    assert numbers(published_batches(publication(store, msgspec.msgpack.encode(token[:4])))) == [0, 1]


def test_a_file_whose_name_begins_with_another_name_is_refused(store):
    good = msgspec.msgpack.decode(staged(store, *(batch(n * 100) for n in range(10))), type=StagedRef)
    bad = [*msgspec.to_builtins(good)[:4], [["chain/1", 1, 1, 1]]]
    with pytest.raises(CorruptError, match="a token of the commit is invalid"):
        list(published_batches(publication(store, msgspec.msgpack.encode(bad))))


def test_memory_does_not_follow_the_rows(store, arrow_peak):
    token = staged(store, *(batch(n * 100) for n in range(300)))
    rows = PublishedRows(publication(store, token))
    with arrow_peak() as peak:
        assert sum(each.num_rows for each in rows) == 30_000
        assert sum(table.num_rows for tables in rows.tables() for table in tables) == 30_000
    assert 0 < peak.bytes < 300 * batch(0).nbytes / 4


def test_rows_are_gone_through_again_whether_they_are_few_or_many(store):
    for count in (1, 40):
        rows = PublishedRows(publication(store, staged(store, *(batch(n * 100) for n in range(count)), task=count)))
        assert numbers(rows) == numbers(rows) == list(range(count * 100))
        assert rows.schemas() == [batch(0).schema]


def test_schemas_are_those_of_all_batches_and_go_together_or_not(store):
    other = pa.RecordBatch.from_pydict({"n": [1.5]})
    rows = PublishedRows(publication(store, staged(store, batch(0), other, batch(1))))
    assert common_schema(rows.schemas(), "out") == pa.schema([("n", pa.float64()), ("text", pa.string())])
    with pytest.raises(StepError, match=r"sink 'out'.*incompatible types"):
        common_schema([batch(0).schema, pa.schema([("n", pa.list_(pa.int64()))])], "out")
