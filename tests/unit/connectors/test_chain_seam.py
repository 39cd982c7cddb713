"""The seam of a chain as a pure filter: each record comes from exactly one side."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import codecs, sources
from tidewheel._connectors.bad_lines import BAD_LINE, parted
from tidewheel._connectors.kafka.decoded import decoded_columns
from tidewheel._connectors.kafka.log import SCHEMA
from tidewheel._connectors.kafka.seam import Seam, end_of_history
from tidewheel.errors import ConfigError, ConnectorError

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
TOPIC = sources.kafka("localhost:1", "orders")


def history(rows, columns="partition int, offset long, n long"):
    return sources.iterable(rows) if rows else sources.files("/tmp", "json", schema=columns)


def seam_of(rows, by="offset", topic="orders"):
    reader = sources.iterable(rows, batch_size=3).open()
    return end_of_history(reader, reader.start(), by, topic, "the history")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), min_size=1, unique=True), st.data())
def test_the_seam_is_right_after_the_last_offset_of_each_partition(records, data):
    rows = [{"partition": partition, "offset": offset} for partition, offset in records]
    seam = seam_of(rows)
    ends = {f"orders/{partition}": 1 + max(at for p, at in records if p == partition) for partition, _ in records}
    assert seam.offsets == ends
    # Later files of the history may have records of the topic too; these are left to the topic.
    beyond = [{"partition": p, "offset": data.draw(st.integers(ends[f"orders/{p}"], 99))} for p, _ in records]
    kept = seam.of_history(pa.RecordBatch.from_pylist([*rows, *beyond, {"partition": 7, "offset": 0}]))
    assert kept.to_pylist() == rows


@given(st.lists(st.integers(-5, 5), min_size=1), st.integers(-6, 6), st.sampled_from(["s", "ms", "us", "ns"]))
def test_a_time_divides_records_so_that_each_is_on_one_side(seconds, at, unit):
    seam = Seam("at", time_us=at * 10**6)
    times = pa.array([each * 10**6 for each in seconds], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"))
    batch = pa.RecordBatch.from_arrays([times, pa.array(range(len(seconds)))], ["at", "n"])
    before, after = seam.of_history(batch)["n"].to_pylist(), seam.of_topic(batch)["n"].to_pylist()
    assert sorted(before + after) == list(range(len(seconds)))
    assert all(seconds[n] < at for n in before)


def test_a_seam_in_time_is_after_the_latest_record_of_the_history():
    rows = [{"at": NOON + datetime.timedelta(seconds=second)} for second in (3, 9, 4, 1)]
    seam = seam_of(rows, "at")
    batch = pa.RecordBatch.from_pylist(rows)
    assert seam.of_history(batch).num_rows == 4
    assert seam.of_topic(batch).num_rows == 0


def test_several_topics_are_distinguished_by_their_column():
    rows = [{"topic": "a", "partition": 0, "offset": 4}, {"topic": "b", "partition": 0, "offset": 2}]
    assert seam_of(rows, topic=None).offsets == {"a/0": 5, "b/0": 3}


def test_broken_lines_remain_for_the_step_that_rejects_them():
    batch = pa.RecordBatch.from_pydict(
        {"partition": [0, None], "offset": [9, None], BAD_LINE: pa.array([None, '["f",1,null,"?","x"]'])}
    )
    kept = Seam("offset", {"orders/0": 5}, topic="orders").of_history(batch)
    assert [line.text for line in parted(kept)[1]] == ["x"]


def test_a_record_without_a_time_is_an_error():
    batch = pa.RecordBatch.from_pydict({"at": pa.array([NOON, None], pa.timestamp("us", "UTC"))})
    with pytest.raises(ConnectorError, match="'at' is null in a record, which is then on no side of the seam"):
        Seam("at", time_us=0).of_topic(batch)


def test_messages_become_records_with_the_columns_of_the_history():
    messages = pa.RecordBatch.from_pylist(
        [
            {"value": b'{"n": 1}', "topic": "orders", "partition": 0, "offset": 7, "timestamp": NOON},
            {"value": b"?", "topic": "orders", "partition": 0, "offset": 8, "timestamp": NOON},
            {"value": b'{"n": "two"}', "topic": "orders", "partition": 0, "offset": 9, "timestamp": NOON},
        ],
        schema=SCHEMA,
    )
    columns = pa.schema([("n", pa.int64()), ("offset", pa.int64()), ("note", pa.string())])
    records, bad = parted(decoded_columns(messages, codecs.json(), columns))
    assert records.to_pylist() == [{"n": 1, "offset": 7, "note": None}]
    assert [(line.file, line.line) for line in bad] == [("orders/0", 8), ("orders/0", 9)]
    assert "does not fit the columns of the history" in bad[1].reason


def test_a_column_that_a_record_lacks_is_that_of_its_message():
    messages = pa.RecordBatch.from_pylist(
        [
            {"value": value, "topic": "orders", "partition": 0, "offset": offset, "timestamp": NOON}
            for offset, value in ((7, b"{}"), (8, b'{"offset": 1}'), (9, b'{"offset": null}'))
        ],
        schema=SCHEMA,
    )
    columns = pa.schema([("offset", pa.int64())])
    for order in ([0, 1, 2], [2, 1, 0]):
        records = decoded_columns(messages.take(pa.array(order)), codecs.json(), columns)
        assert records.column("offset").to_pylist() == [[7, 1, None][position] for position in order]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"first": TOPIC, "then": sources.iterable([1])}, "continues with a Kafka source"),
        ({"first": lambda spark: None}, "begins with a source"),
        ({"by": ""}, "by= is"),
        ({"at": NOON}, "and by= is 'offset'"),
        ({"at": {0: 3}, "by": "at"}, "and by= is 'at'"),
        ({"at": {0: "three"}}, "it is {0: 'three'}"),
        ({"at": {"clicks": {0: 3}}}, "it is {'clicks'"),
        ({"at": NOON.replace(tzinfo=None), "by": "at"}, "needs a time zone"),
    ],
)
def test_arguments_that_make_no_chain(arguments, error):
    with pytest.raises(ConfigError, match=error):
        sources.chain(**{"first": sources.iterable([{"n": 1}]), "then": TOPIC, **arguments})


def test_a_gap_in_a_partition_without_history_is_refused():
    chain = sources.chain(history([{"partition": 0, "offset": 4}]), TOPIC)
    ends = {"orders/0": 9, "orders/1": 9}
    seam = Seam("offset", {"orders/0": 5}, topic="orders")
    chain._check_offsets(seam, {"orders/0": 5, "orders/1": 0}, ends)
    with pytest.raises(ConfigError, match="ends at offset 0 of orders/1, and the topic retains records from 3 on"):
        chain._check_offsets(seam, {"orders/0": 5, "orders/1": 3}, ends)
