"""The sort order of an Iceberg table: each data file is sorted by it and names it, also after a change and a compaction."""

from __future__ import annotations

import datetime
import functools
import math
import random
import struct
import sys
from urllib.parse import urlsplit

import datafusion
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tidewheel import sinks
from tidewheel._connectors.files import known_tables, sorting
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel.errors import ConfigError

NAME = "shop.orders"
INNER = StructType(NestedField(8, "x.y", LongType()))
SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "f", DoubleType()),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "yes", BooleanType()),
    NestedField(6, "in", INNER),
    NestedField(7, "bytes", FixedType(2)),
    NestedField(9, "some", ListType(10, LongType())),
    NestedField(11, "raw", BinaryType()),
)
ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
SAME = IdentityTransform()


class _Sorted:
    def __init__(self, folder, harnessed):
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self._folder, self._harnessed = folder, harnessed

    def create(self, *fields, spec=()):
        """Create the table with a sort order, and return a harness of a sink to it."""
        client = load_catalog("default", **self.catalog)
        client.create_namespace_if_not_exists("shop")
        client.create_table(NAME, SCHEMA, partition_spec=PartitionSpec(*spec), sort_order=SortOrder(*fields))
        return self.harness()

    def harness(self, **options):
        return self._harnessed(
            sinks.iceberg(NAME, catalog=self.catalog, create=False, **options), str(self._folder / "state")
        )

    @property
    def table(self):
        return TableName.of(NAME, self.catalog).load("the test")

    def files(self):
        """Return for each file the id of its order and its rows, as DataFusion reads them in one thread."""
        # With statistics, DataFusion reads a column of inf and NaN as inf: the statistics of Parquet leave NaN out.
        settings = datafusion.SessionConfig().set("datafusion.execution.collect_statistics", "false")
        context = datafusion.SessionContext(settings.with_target_partitions(1))
        files = self.table.inspect.files().select(["file_path", "sort_order_id"]).to_pylist()
        return [
            (file["sort_order_id"], context.read_parquet(urlsplit(file["file_path"]).path).to_arrow_table().to_pylist())
            for file in files
        ]


@pytest.fixture
def place(tmp_path, harnessed):
    return _Sorted(tmp_path, harnessed)


def _rows(draw, count):
    at = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    floats = [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -1.5]
    return [
        {
            "n": n,
            "s": draw.choice([None, "", "a", "ab", "abc", "ü", "\U0001f600", "\uffee"]),
            "f": draw.choice(floats),
            "at": draw.choice([None, at + datetime.timedelta(hours=draw.randrange(-60, 60))]),
            "yes": draw.choice([None, True, False]),
            "in": draw.choice([None, {"x.y": None}, {"x.y": draw.randrange(5)}]),
            "bytes": draw.choice([None, b"\x00\xff", b"\xff\x00", b"ab"]),
            "some": [n],
            "raw": None,
        }
        for n in range(count)
    ]


def _batch(rows):
    types = pa.schema(
        [
            ("n", pa.int64()),
            ("s", pa.string()),
            ("f", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("yes", pa.bool_()),
            ("in", pa.struct([("x.y", pa.int64())])),
            ("bytes", pa.binary()),
            ("some", pa.list_(pa.int64())),
            ("raw", pa.binary()),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, types)


def _total(number):
    """Return a float as an integer in the total order of IEEE 754."""
    (bits,) = struct.unpack(">q", struct.pack(">d", number))
    return bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF


def _sorted(rows, *fields):
    """Sort rows in Python; each field is a function of a row, a direction and a place of nulls."""

    def compare(left, right):
        for value, direction, nulls in fields:
            a, b = value(left), value(right)
            if a is None or b is None:
                if (a is None) != (b is None):
                    return 1 if (a is None) == (nulls is LAST) else -1
            elif a != b:
                return 1 if (a > b) == (direction is ASC) else -1
        return 0

    return sorted(rows, key=functools.cmp_to_key(compare))


def _shown(file):
    order, rows = file
    return repr((order, [{**row, "at": row["at"] and row["at"].isoformat()} for row in rows]))


def _inner(row):
    return None if row["in"] is None else row["in"]["x.y"]


CASES = {
    "a text": [((2, SAME), lambda row: None if row["s"] is None else row["s"].encode())],
    "a float": [((3, SAME), lambda row: None if row["f"] is None else _total(row["f"]))],
    "a boolean": [((5, SAME), lambda row: row["yes"])],
    "bytes": [((7, SAME), lambda row: row["bytes"])],
    "a nested column": [((8, SAME), _inner)],
    "a day": [((4, DayTransform()), lambda row: None if row["at"] is None else row["at"].date())],
    "a start of a text": [
        ((2, TruncateTransform(2)), lambda row: None if row["s"] is None else row["s"][:2].encode()),
    ],
    "several": [((5, SAME), lambda row: row["yes"]), ((8, SAME), _inner), ((1, SAME), lambda row: row["n"])],
}


@pytest.mark.parametrize("held", [1 << 20, 2000], ids=["in memory", "in a temporary file"])
@pytest.mark.parametrize("case", CASES)
def test_files_are_sorted_by_the_order_of_the_table(place, monkeypatch, case, held):
    """Directions and places of nulls are random. Rows that are equal keep their order."""
    monkeypatch.setattr(sorting, "GROUP_BYTES", held)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    ways = [(draw.choice([ASC, DESC]), draw.choice([FIRST, LAST])) for _ in CASES[case]]
    harness = place.create(*(SortField(*given, *way) for (given, _), way in zip(CASES[case], ways, strict=True)))
    given = [_rows(draw, 200), _rows(draw, 3)]
    batches = [_batch(given[0][start : start + 20]) for start in range(0, 200, 20)]
    harness.publish(2, harness.stage(2, *batches), harness.stage(2, _batch(given[1]), task=1))
    by = [(value, *way) for (_, value), way in zip(CASES[case], ways, strict=True)]
    expected = [(1, _sorted(rows, *by)) for rows in given]
    # NaN is not equal to itself, and readers have other names for UTC.
    assert sorted(map(_shown, place.files())) == sorted(map(_shown, expected))


def test_each_partition_is_sorted(place):
    harness = place.create(SortField(1, SAME, DESC, LAST), spec=[PartitionField(5, 1000, SAME, "yes")])
    rows = _rows(random.Random(1), 50)
    harness.publish(2, harness.stage(2, _batch(rows)))
    files = place.files()
    assert len(files) == 3
    for order, found in files:
        assert order == 1
        assert [row["n"] for row in found] == sorted((row["n"] for row in found), reverse=True)


def _numbers(*numbers):
    return [{"n": number, "s": str(number)} for number in numbers]


def _found(place):
    return sorted((order, [row["n"] for row in rows]) for order, rows in place.files())


def test_files_name_the_order_that_they_were_sorted_by(place, monkeypatch):
    """The order changes between the tasks and the publication, and then tasks sort by the new one."""
    harness = place.create(SortField(1, SAME, ASC, FIRST))
    token = harness.stage(2, _numbers(2, 1, 3))
    with place.table.update_sort_order() as update:
        update.desc("n", SAME, LAST)
    harness.publish(2, token)
    assert _found(place) == [(1, [1, 2, 3])]
    monkeypatch.setattr(known_tables, "_KNOWN_S", 0)
    harness.publish(3, harness.stage(3, _numbers(5, 4, 6)))
    assert _found(place) == [(1, [1, 2, 3]), (2, [6, 5, 4])]


def test_files_of_an_order_that_the_table_does_not_have_name_none(place):
    """The table was created again, with another order under the same number."""
    harness = place.create(SortField(1, SAME, ASC, FIRST))
    token = harness.stage(2, _numbers(2, 1))
    load_catalog("default", **place.catalog).drop_table(NAME)
    place.create(SortField(1, SAME, DESC, LAST)).publish(2, token)
    assert _found(place) == [(None, [1, 2])]


def test_a_renamed_column_sorts_as_before(place):
    harness = place.create(SortField(1, SAME, DESC, LAST), SortField(8, SAME, ASC, FIRST))
    with place.table.update_schema() as update:
        update.rename_column("n", "number")
        update.rename_column("in", "out")
    harness = place.harness()
    harness.publish(2, harness.stage(2, [{"number": 1}, {"number": 3}, {"number": 2}]))
    ((order, rows),) = place.files()
    assert (order, [row["number"] for row in rows]) == (1, [3, 2, 1])


@pytest.mark.parametrize(
    "field", [(1, BucketTransform(4)), (11, TruncateTransform(2))], ids=["without pyiceberg-core", "with it"]
)
def test_an_order_that_cannot_be_computed_leaves_files_unsorted(place, monkeypatch, field):
    harness = place.create(SortField(2, SAME, ASC, FIRST), SortField(*field, ASC, FIRST))
    if field[0] == 1:
        monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    harness.publish(2, harness.stage(2, _numbers(3, 1, 2)))
    assert _found(place) == [(None, [3, 1, 2])]


def test_a_partition_that_the_library_computes_for_other_types_is_refused(place):
    """Its truncation fails for bytes only when it is called: the first batch would fail."""
    with pytest.raises(
        ConfigError, match=r"the partition field start \(truncate\[2\]\), which pyiceberg cannot compute"
    ):
        place.create(spec=[PartitionField(11, 1000, TruncateTransform(2), "start")])


def test_a_compaction_sorts(place):
    harness = place.create(SortField(1, SAME, DESC, LAST))
    harness.publish(2, harness.stage(2, _numbers(4, 1)), harness.stage(2, _numbers(2, 3), task=1))
    assert harness.sink.compact() == (2, 1)
    assert _found(place) == [(1, [4, 3, 2, 1])]
    assert harness.sink.compact() == (0, 0)


def test_a_merge_sorts_the_rows_that_stay(place):
    place.create(SortField(1, SAME, DESC, LAST))
    harness = place.harness(mode="merge", key="n")
    harness.publish(2, harness.stage(2, _numbers(1, 2, 3)))
    harness.publish(3, harness.stage(3, _numbers(2)))
    assert _found(place) == [(1, [2]), (1, [3, 1])]


def test_rows_that_the_driver_writes_are_sorted(place):
    place.create(SortField(1, SAME, DESC, LAST))
    harness = place.harness(evolve="add")
    harness.publish(2, harness.stage(2, [{"n": 1, "more": 1}, {"n": 2, "more": 2}]))
    assert _found(place) == [(1, [2, 1])]
