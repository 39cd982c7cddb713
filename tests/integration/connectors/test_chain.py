"""A chain of files and a topic: each record once across the seam, and an error if there is no seam."""

from __future__ import annotations

import datetime
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyarrow import parquet

from integration.connectors.test_kafka_source import Topic, produce
from servers.kafka_server import real_kafka  # noqa: F401
from tidewheel import codecs, sources
from tidewheel._connectors.bad_lines import parted
from tidewheel._connectors.split import Split
from tidewheel._core import pickling
from tidewheel._testing.connectors.driving import recorded
from tidewheel.errors import ConfigError, StateError
from tidewheel.testing.connectors import SourceConformance

NOON = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - datetime.timedelta(hours=3)
"""A time so near that the broker does not delete its records."""
COLUMNS = "value binary, partition long, offset long"


@dataclass
class Event:
    n: int
    at: datetime.datetime


@dataclass
class Optional:
    n: int
    at: datetime.datetime | None = None


class LiveChain(Topic):
    """A chain whose history is empty: everything is in the topic."""

    def __init__(self, server, folder):
        super().__init__(server)
        self.folder = folder

    def source(self, *, max_records=None, **more):
        history = sources.files(self.folder, "parquet", schema=COLUMNS)
        seam = dict.fromkeys(range(self.partitions), 0)
        return sources.chain(history, then=super().source(max_records=max_records, **more), at=seam)


class TestChainInItsTopic(SourceConformance):
    @pytest.fixture
    def harness(self, kafka, tmp_path):
        (tmp_path / "history").mkdir()
        return LiveChain(kafka, tmp_path / "history")


@pytest.fixture
def topic(kafka):
    return Topic(kafka)


def write(folder: Path, rows: list[dict]) -> None:
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), folder / f"{len(list(folder.iterdir())):04}.parquet")


def archived(topic, numbers, ends) -> list[dict]:
    """Return the records of the topic before these offsets, as an archive has them; message n has the value n."""
    records = [
        {"value": b"%d" % n, "partition": n % topic.partitions, "offset": n // topic.partitions} for n in numbers
    ]
    return [record for record in records if record["offset"] < ends[record["partition"]]]


def read_all(source, chance: random.Random) -> list[dict]:
    """Read to the end. Now and then the process ends before a commit, and the next one continues from the last commit."""
    rows: list[dict] = []
    seen: list = []
    position, reader = None, None
    while True:
        if reader is None:
            reader = source().open()
            reader.recall(seen)
        start = recorded(reader.start()) if position is None else position
        end = recorded(reader.end(start))
        batch = [
            row for split in reader.splits(start, end, 2) for each in _copy(split).read() for row in each.to_pylist()
        ]
        if chance.random() < 0.3:
            reader.close()
            reader = None
            continue  # A crash before the commit: nothing of this batch counts.
        rows += batch
        seen += reader.seen(start, end)
        position = end
        if end == start:
            return rows
        reader.committed(end)


def _copy(split: Split) -> Split:
    return pickling.loads(pickling.dumps(split))


def test_by_offset_each_record_is_read_once(topic, tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    topic.append([b"%d" % n for n in range(120)])
    ends = [chance.randrange(5, 35) for _ in range(topic.partitions)]
    rows = archived(topic, range(120), ends)
    chance.shuffle(rows)
    for begin in range(0, len(rows), 20):
        write(tmp_path / "history", rows[begin : begin + 20])
    history = sources.files(tmp_path / "history", "parquet", schema=COLUMNS, max_files_per_trigger=2)
    found = read_all(lambda: sources.chain(history, then=topic.source(max_records=17)), chance)
    assert sorted(int(row["value"]) for row in found) == list(range(120))
    # The history comes first.
    assert {int(row["value"]) for row in found[: len(rows)]} == {int(row["value"]) for row in rows}


def test_late_files_with_records_beyond_the_seam_are_left_to_the_topic(topic, tmp_path):
    topic.append([b"%d" % n for n in range(30)])
    write(tmp_path / "history", archived(topic, range(30), [4, 4, 4]))
    history = sources.files(tmp_path / "history", "parquet", schema=COLUMNS)
    reader = sources.chain(history, then=topic.source()).open()
    start = reader.start()
    write(tmp_path / "history", archived(topic, range(30), [9, 9, 9])[12:])
    values = []
    while (end := reader.end(start)) != start:
        values += [
            row["value"]
            for split in reader.splits(start, end, 1)
            for batch in split.read()
            for row in batch.to_pylist()
        ]
        start = end
    assert sorted(map(int, values)) == list(range(30))


def test_by_time_with_a_codec_each_record_comes_once(topic, tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    # Messages reach the topic up to ten minutes after their time, and in another order.
    events = [{"n": n, "at": NOON + datetime.timedelta(minutes=n)} for n in range(60)]
    sent = sorted(events, key=lambda event: event["n"] + chance.randrange(10))
    producer = Producer({"bootstrap.servers": topic.server.brokers})
    for event in sent:
        late = int((event["at"].timestamp() + 600) * 1000)
        value = json.dumps({"n": event["n"], "at": event["at"].isoformat()})
        producer.produce(topic.name, value.encode(), partition=event["n"] % topic.partitions, timestamp=late)
    assert producer.flush(30) == 0
    write(tmp_path / "history", [{"n": event["n"], "at": event["at"]} for event in events[:25]])
    history = sources.files(tmp_path / "history", "parquet", schema="n long, at timestamp")
    found = read_all(
        lambda: sources.chain(history, then=topic.source(max_records=9), by="at", codec=codecs.json(Event)), chance
    )
    assert [row["n"] for row in found[:25]] == list(range(25))
    assert sorted(row["n"] for row in found) == list(range(60))


@pytest.mark.parametrize("projected", [None, ["value"]], ids=["all columns", "one column"])
def test_a_message_that_does_not_fit_the_history_is_rejected(topic, tmp_path, projected):
    """Without a codec too: otherwise each start would fail at this message again."""
    topic.append([b"first", b"\xff", b"last"])
    (tmp_path / "history").mkdir()
    history = sources.files(tmp_path / "history", "parquet", schema=COLUMNS.replace("binary", "string"))
    reader = sources.chain(history, then=topic.source(), at=dict.fromkeys(range(topic.partitions), 0)).open()
    if projected:
        reader.project(projected)
    start = reader.start()
    batches = [batch for split in reader.splits(start, reader.end(start), 2) for batch in _copy(split).read()]
    records, bad = [], []
    for batch in batches:
        good, lines = parted(batch)
        records += good.column("value").to_pylist()
        bad += lines
    assert sorted(records) == ["first", "last"]
    assert [(line.where.rpartition("/")[2], line.text) for line in bad] == [("1", "\\xff")]
    assert "does not fit the columns of the history" in bad[0].reason


def test_a_message_without_a_time_is_rejected(topic, tmp_path):
    """It is on no side of a seam in time."""
    write(tmp_path / "history", [{"n": 1, "at": NOON}])
    late = NOON + datetime.timedelta(hours=1)
    topic.append([json.dumps({"n": 2, "at": late.isoformat()}).encode(), b'{"n": 3}'])
    history = sources.files(tmp_path / "history", "parquet", schema="n long, at timestamp")
    codec = codecs.json(Optional)
    reader = sources.chain(history, then=topic.source(), by="at", at=NOON, codec=codec, overlap="3 hours").open()
    start = reader.start()
    found = []
    while (end := reader.end(start)) != start:
        found += [parted(batch) for split in reader.splits(start, end, 2) for batch in _copy(split).read()]
        start = end
    assert [row["n"] for records, _ in found for row in records.to_pylist()] == [2]
    (line,) = [line for _, lines in found for line in lines]
    assert "the column 'at' is null, so the record is on no side of the seam" in line.reason


def test_the_seam_is_in_the_first_position_and_stays(topic, tmp_path):
    topic.append([b"%d" % n for n in range(9)])
    write(tmp_path / "history", archived(topic, range(9), [1, 2, 3]))
    history = sources.files(tmp_path / "history", "parquet", schema=COLUMNS)
    reader = sources.chain(history, then=topic.source()).open()
    start = reader.start()
    seam = {f"{topic.name}/{number}": number + 1 for number in range(3)}
    assert start["seam"] == {"offsets": seam}
    assert {name: start["then"][name] for name in seam} == seam
    first = reader.end(start)
    last = reader.end(first)
    assert (start["live"], first["live"], last["live"]) == (False, False, True)
    assert last["seam"] == start["seam"]
    with pytest.raises(StateError, match="another by="):
        sources.chain(history, then=topic.source(), by="value").open().end(start)


def no_seam(topic, folder, rows, **options):
    write(folder, rows)
    history = sources.files(folder, "parquet", schema=COLUMNS)
    with pytest.raises(ConfigError) as error:
        sources.chain(history, then=topic.source(), **options).open().start()
    return str(error.value)


def test_a_partition_that_the_topic_does_not_have(topic, tmp_path):
    assert "has no such partition" in no_seam(topic, tmp_path / "h", [{"value": b"", "partition": 7, "offset": 0}])


def test_offsets_that_the_topic_has_not_reached(topic, tmp_path):
    text = no_seam(topic, tmp_path / "h", [{"value": b"", "partition": 0, "offset": 3}])
    assert "ends at offset 4" in text
    assert "of another topic" in text


def test_a_history_without_the_column_or_without_records(topic, tmp_path):
    (tmp_path / "h").mkdir()
    empty = sources.files(tmp_path / "h", "parquet", schema=COLUMNS)
    with pytest.raises(ConfigError, match="no records, so there is no seam"):
        sources.chain(empty, then=topic.source()).open().start()
    other = sources.files(tmp_path / "h", "parquet", schema="value binary")
    with pytest.raises(ConfigError, match="no column 'partition', 'offset' to find the seam by"):
        sources.chain(other, then=topic.source()).open()
    records = sources.files(tmp_path / "h", "parquet", schema="n long, partition int, offset long")
    with pytest.raises(ConfigError, match="give the chain a codec="):
        sources.chain(records, then=topic.source()).open()


def test_a_topic_that_no_longer_reaches_back_to_the_seam(real_kafka, tmp_path):  # noqa: F811
    topic = Topic(real_kafka, 1)
    produce(
        topic.server,
        topic.name,
        [{"value": b"%d" % n, "timestamp": int(NOON.timestamp()) * 1000 + n} for n in range(20)],
    )
    admin = AdminClient({"bootstrap.servers": topic.server.brokers})
    for answer in admin.delete_records([TopicPartition(topic.name, 0, 10)]).values():
        answer.result(30)
    write(tmp_path / "h", archived(topic, range(20), [6]))
    history = sources.files(tmp_path / "h", "parquet", schema=COLUMNS)
    with pytest.raises(ConfigError, match="retains records from 10 on; 4 offsets between are in neither"):
        sources.chain(history, then=topic.source()).open().start()
    accepted = sources.chain(history, then=topic.source(lost="earliest")).open().start()
    assert accepted["seam"] == {"offsets": {f"{topic.name}/0": 6}}
    by_time = {"by": "timestamp", "at": NOON}
    timed = sources.files(tmp_path / "h", "parquet", schema="value binary, timestamp timestamp")
    with pytest.raises(ConfigError, match="there may be no seam: the topic retains no record of"):
        sources.chain(timed, then=topic.source(), **by_time).open().start()
