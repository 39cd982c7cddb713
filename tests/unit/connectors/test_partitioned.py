"""Sources that are logs: how batches are cut, on a log of lists."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._connectors.log_source import Positions, limited
from tidewheel._connectors.log_stream import LogReader
from tidewheel.connectors import Log, PartitionedSource
from tidewheel.errors import ConfigError, StorageError

SCHEMA = pa.schema([("value", pa.int64())])


class Lists(Log):
    """Partitions that are lists, in this process."""

    opened: ClassVar[list[Lists]] = []

    def __init__(self, lists: dict[str, list[int]]) -> None:
        self.lists, self.closed = lists, False
        self.opened.append(self)

    def start(self) -> Positions:
        return dict.fromkeys(self.lists, 0)

    def end(self, start: Positions) -> Positions:
        if "broken" in self.lists:
            raise StorageError("broken")
        return {name: len(items) for name, items in self.lists.items()}

    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": self.lists[partition][first:last]}, schema=SCHEMA)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _forget():
    Lists.opened.clear()


def reader(lists: dict[str, list[int]], max_records: int | None = None) -> LogReader:
    return PartitionedSource(partial(Lists, lists), SCHEMA, max_records).reader()


positions = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1)


@given(positions, st.integers(1, 120))
def test_a_limited_batch_is_as_large_as_it_may_be_and_never_larger(spans, most):
    start = {name: first for name, (first, _) in spans.items()}
    end = {name: first + size for name, (first, size) in spans.items()}
    cut = limited(start, end, most)
    assert all(start[name] <= cut[name] <= end[name] for name in spans)
    assert sum(cut.values()) - sum(start.values()) == min(most, sum(end.values()) - sum(start.values()))


def test_a_partition_that_was_added_is_read_from_its_first_record():
    lists = {"a": [1, 2]}
    source = reader(lists)
    lists["b"] = [3]
    end = source.end({"a": 2})
    assert end == {"a": 2, "b": 1}
    assert [(split.partition, split.first, split.last) for split in source.splits({"a": 2}, end, 4)] == [("b", 0, 1)]


def test_a_partition_that_is_gone_stays_where_it_is():
    assert reader({"a": [1]}).end({"a": 0, "z": 5}) == {"a": 1, "z": 5}


def test_positions_never_go_back():
    assert reader({"a": [1]}, 3).end({"a": 5}) == {"a": 5}


def test_a_log_that_failed_is_closed_and_opened_again():
    lists: dict[str, list[int]] = {"a": [1], "broken": []}
    source = reader(lists)
    with pytest.raises(StorageError):
        source.end({"a": 0})
    del lists["broken"]
    assert source.end({"a": 0}) == {"a": 1}
    assert [log.closed for log in Lists.opened] == [True, False]


def test_a_limit_below_one_is_refused():
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        reader({}, 0)
