"""Delta and Iceberg tables as history: one version, whatever becomes of the table, and then the topic."""

from __future__ import annotations

import datetime
import itertools
import json
import random
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from integration.connectors.test_chain import archived, read_all
from integration.connectors.test_kafka_source import Topic
from tidewheel import sources
from tidewheel.errors import ConfigError, StateError, StepError, StorageError, TidewheelError

_numbers = itertools.count()
COLUMNS = pa.schema([("value", pa.binary()), ("partition", pa.int64()), ("offset", pa.int64())])
MARCH = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


class DeltaPlace:
    gone = "is gone, which the version that the job reads has: it was vacuumed"

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "table")

    def append(self, rows: pa.Table) -> None:
        deltalake.write_deltalake(self.url, rows, mode="append", schema_mode="merge")

    def delete(self, predicate: str) -> None:
        deltalake.DeltaTable(self.url).delete(predicate)

    def rewrite(self) -> None:
        deltalake.DeltaTable(self.url).optimize.compact()

    def lose(self) -> None:
        self.rewrite()
        table = deltalake.DeltaTable(self.url)
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def source(self, **options):
        return sources.delta(self.url, **options)


class IcebergPlace:
    gone = "no longer has the snapshot"

    def __init__(self, folder: Path) -> None:
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        self.client = load_catalog("default", **self.catalog)
        self.client.create_namespace("shop")

    @property
    def table(self):
        return self.client.load_table("shop.orders")

    def append(self, rows: pa.Table) -> None:
        table = self.client.create_table_if_not_exists("shop.orders", rows.schema)
        with table.update_schema() as update:
            update.union_by_name(rows.schema)
        table.append(rows)

    def delete(self, predicate: str) -> None:
        self.table.delete(predicate)

    def rewrite(self) -> None:
        self.table.overwrite(self.table.scan().to_arrow())

    def lose(self) -> None:
        before = self.table.current_snapshot().snapshot_id
        self.rewrite()
        self.table.maintenance.expire_snapshots().by_id(before).commit()

    def source(self, **options):
        return sources.iceberg("shop.orders", catalog=self.catalog, **options)


@pytest.fixture(params=[DeltaPlace, IcebergPlace])
def place(request, tmp_path):
    return request.param(tmp_path)


def numbers(first: int, last: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, last), pa.int64())})


def read(source, position=None) -> list[dict]:
    reader = source.open()
    start = reader.start() if position is None else position
    rows: list[dict] = []
    while (end := reader.end(start)) != start:
        rows += [r for split in reader.splits(start, end, 2) for b in split.read() for r in b.to_pylist()]
        start = end
    reader.close()
    return rows


def test_a_job_reads_the_tables_version_of_its_first_start(place):
    for number in range(4):
        place.append(numbers(10 * number, 10 * number + 10))
    first = place.source(max_files=1).open()
    start = first.start()
    end = first.end(start)
    before = sorted(r["n"] for split in first.splits(start, end, 1) for b in split.read() for r in b.to_pylist())
    place.append(numbers(40, 50))
    place.delete("n < 35")
    place.rewrite()
    again = place.source(max_files=1).open()
    assert sorted(r["n"] for s in again.splits(start, end, 1) for b in s.read() for r in b.to_pylist()) == before
    rest = read(place.source(max_files=1), end)
    assert sorted(before + [row["n"] for row in rest]) == list(range(40))
    # A job that starts now reads what is there now.
    assert sorted(row["n"] for row in read(place.source())) == list(range(35, 50))


def test_a_column_that_a_later_version_has_is_null(place):
    for number in range(2):
        place.append(numbers(number, number + 1))
    first = place.source(max_files=1).open()
    end = first.end(first.start())
    place.append(pa.table({"n": pa.array([2], pa.int64()), "shop": ["north"]}))
    [row] = read(place.source(), end)
    assert row["shop"] is None


def test_files_are_read_in_the_order_of_a_column(place):
    days = [4, 1, 3, 0, 2]
    for day in days:
        at = [MARCH + datetime.timedelta(days=day, hours=hour) for hour in (9, 3)]
        place.append(pa.table({"at": pa.array(at, pa.timestamp("us", "UTC")), "day": [day, day]}))
    found = [row["day"] for row in read(place.source(order="at", max_files=1))]
    assert found == sorted(days * 2)
    with pytest.raises(ConfigError, match="has no column 'when'"):
        place.source(order="when").open()


def test_columns_that_came_later_are_null_before_and_only_wanted_ones_are_read(place):
    place.append(numbers(0, 2))
    place.append(pa.table({"n": pa.array([2], pa.int64()), "shop": ["north"]}))
    assert sorted((row["n"], row["shop"]) for row in read(place.source())) == [(0, None), (1, None), (2, "north")]
    reader = place.source().open()
    reader.project(["shop"])
    start = reader.start()
    splits = reader.splits(start, reader.end(start), 1)
    assert sorted(str(r) for split in splits for b in split.read() for r in b.to_pylist()) == [
        "{'shop': 'north'}",
        "{'shop': None}",
        "{'shop': None}",
    ]


def test_a_version_that_is_gone_is_an_error_and_so_is_a_table_that_is_not_there(place):
    with pytest.raises(ConfigError, match=r"there is no (Delta|Iceberg) table"):
        place.source().check()
    place.append(numbers(0, 3))
    place.append(numbers(3, 6))
    position = place.source().open().start()
    place.lose()
    with pytest.raises(TidewheelError, match=place.gone) as error:
        read(place.source(), position)
    assert isinstance(error.value, ConfigError | StorageError | StepError)
    with pytest.raises(StateError, match="its position is not the version of a table"):
        place.source().open().check(7, None)
    with pytest.raises(ConfigError, match="max_files"):
        place.source(max_files=0)


def test_a_changed_program_does_not_continue_in_another_table_or_order(place, tmp_path):
    for number in (1, 0):
        place.append(numbers(10 * number, 10 * number + 5))
    reader = place.source(max_files=1).open()
    position = reader.end(reader.start())
    assert sorted(row["n"] for row in read(place.source(max_files=7), position)) in ([0, 1, 2, 3, 4], [*range(10, 15)])
    with pytest.raises(StateError, match="with order=None, and now has order='n'"):
        place.source(order="n").open().check(position, None)
    (tmp_path / "other").mkdir()
    other = type(place)(tmp_path / "other")
    other.append(numbers(0, 5))
    same_version = {**other.source().open().start(), "table": position["table"]}
    with pytest.raises(StateError, match="it has begun to read another table than the present"):
        other.source().open().check(same_version, None)
    place.source().open().check(position, None)


def test_a_delta_table_with_features_that_cannot_be_read_is_refused_by_name(tmp_path):
    place = DeltaPlace(tmp_path)
    place.append(numbers(0, 3))
    log = tmp_path / "table" / "_delta_log" / f"{1:020}.json"
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    log.write_text(json.dumps({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}) + "\n")
    with pytest.raises(ConfigError, match=r"cannot be read: .*deletionVectors"):
        place.source().check()


def test_a_table_and_then_the_topic_give_each_record_once(place, kafka):
    seed = random.randrange(10**6)
    print("seed", seed)
    chance, topic = random.Random(seed), Topic(kafka)
    topic.append([b"%d" % n for n in range(120)])
    ends = [chance.randrange(5, 35) for _ in range(topic.partitions)]
    rows = archived(topic, range(120), ends)
    chance.shuffle(rows)
    for begin in range(0, len(rows), 20):
        place.append(pa.Table.from_pylist(rows[begin : begin + 20], COLUMNS))
    found = read_all(lambda: sources.chain(place.source(max_files=2), then=topic.source(max_records=17)), chance)
    assert sorted(int(row["value"]) for row in found) == list(range(120))
    assert {int(row["value"]) for row in found[: len(rows)]} == {int(row["value"]) for row in rows}


def test_records_archived_after_the_seam_are_read_from_the_topic(place, kafka):
    topic = Topic(kafka)
    topic.append([b"%d" % n for n in range(30)])
    place.append(pa.Table.from_pylist(archived(topic, range(30), [4, 4, 4]), COLUMNS))
    reader = sources.chain(place.source(), then=topic.source()).open()
    place.append(pa.Table.from_pylist(archived(topic, range(30), [9, 9, 9])[12:], COLUMNS))
    start, values = reader.start(), []
    while (end := reader.end(start)) != start:
        values += [r["value"] for split in reader.splits(start, end, 1) for b in split.read() for r in b.to_pylist()]
        start = end
    assert sorted(map(int, values)) == list(range(30))


def test_a_table_without_a_seam_is_refused_before_the_first_record(place, kafka):
    topic = Topic(kafka)
    topic.append([b"%d" % n for n in range(9)])
    place.append(COLUMNS.empty_table())
    with pytest.raises(ConfigError, match="no records, so there is no seam"):
        sources.chain(place.source(), then=topic.source()).open().start()
    place.append(pa.Table.from_pylist([{"value": b"", "partition": 0, "offset": 7}], COLUMNS))
    with pytest.raises(ConfigError, match="that partition ends at"):
        sources.chain(place.source(), then=topic.source()).open().start()
    place.append(pa.Table.from_pylist([{"value": b"", "partition": None, "offset": 0}], COLUMNS))
    with pytest.raises(ConfigError, match="no partition or no offset"):
        sources.chain(place.source(), then=topic.source()).open().start()
