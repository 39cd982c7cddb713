"""The lag of a run: rows as the source reports them, seconds since an end was first seen."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from support.waiting import SOON
from tidewheel import sources
from tidewheel._connectors.mqtt.bridge import opened_buffer
from tidewheel._observe.lag import LagMonitor, Waiting
from tidewheel._observe.records import Behind
from tidewheel.connectors import Log, PartitionedSource, Unread
from tidewheel.fleet import open_inbox
from tidewheel.fleet._inbox import Block, encode_events
from tidewheel.sources import inbox


def test_nothing_unread_waits_for_no_time():
    assert Waiting().look(100.0, 5, 5) == 0


def test_the_next_record_waits_since_the_end_came_past_the_position():
    waiting = Waiting()
    assert waiting.look(0.0, 10, 10) == 0
    assert waiting.look(10.0, 10, 15) == 0, "it came since the last look"
    assert waiting.look(20.0, 10, 30) == 10
    assert waiting.look(30.0, 15, 40) == 10, "record 15 was seen at 20"
    assert waiting.look(40.0, 40, 40) == 0
    assert waiting.look(50.0, 40, 41) == 0


def test_memory_is_bounded_while_a_run_is_idle():
    waiting = Waiting()
    for second in range(10_000):
        age = waiting.look(float(second), 0, second + 1)
    assert age == 9_999
    assert len(waiting._ends) <= 256


def test_a_failing_source_is_reported_once_and_disturbs_no_other(caplog):
    def fails():
        raise RuntimeError("away")

    monitor = LagMonitor({"bad": fails, "good": lambda: {"0": Unread(3, 7, 10)}, "silent": dict})
    monitor.look(0.0)
    monitor.look(4.0)
    assert monitor.behind == {"good": {"0": Behind(3, 4.0)}}
    assert caplog.text.count("the backlog of source 'bad' is unknown: away") == 1


def test_another_kind_of_lag_is_reported_and_disturbs_no_other():
    ends, told = [Unread(3, 7, 10), Unread(0, 10, 10), Unread(0, 10, 10), Unread(1, 10, 11)], []
    monitor = LagMonitor({"in": lambda: {"0": ends.pop(0)}}, changed=told.append)
    for second in range(4):
        monitor.look(float(second))
    assert [each["in"]["0"].rows for each in told] == [3, 0, 1]


def test_a_commit_brings_a_look_before_it_is_time():
    looked = threading.Event()

    def look():
        looked.set()
        return {}

    monitor = LagMonitor({"in": look}, every=3600)
    monitor.start()
    monitor.look_soon()
    assert looked.wait(SOON)
    monitor.close()


def test_a_source_that_knows_since_when_is_believed():
    came = time.time() - 100
    monitor = LagMonitor({"in": lambda: {"folder": Unread(0, 0, 0, files=2, since=came)}})
    monitor.look(0.0)
    behind = monitor.behind["in"]["folder"]
    assert (behind.rows, behind.files) == (0, 2)
    assert behind.seconds >= 100


@pytest.mark.parametrize(("offsets", "rows"), [(2, 1), (3, 0)])
def test_an_iterable_reports_its_unread_items(offsets, rows):
    assert sources.iterable([1, 2, 3]).unread(offsets)["items"].rows == rows


def test_a_source_that_cannot_tell_reports_nothing(tmp_path):
    assert sources.files(str(tmp_path), schema="a long").unread("{}") == {}


def test_a_log_reports_the_distance_to_its_end_by_partition():
    class Numbers(Log):
        def start(self):
            return {}

        def end(self, start):
            return {"a": 10, "b": 4, "new": 3}

        def read(self, partition, first, last):
            return iter(())

    source = PartitionedSource(Numbers, pa.schema([("n", pa.int64())]), None)
    assert source.unread({"a": 7, "b": 4, "gone": 1}) == {"a": Unread(3, 7, 10), "b": Unread(0, 4, 4)}


def test_an_inbox_reports_its_unread_events_by_shard(tmp_path):
    url = f"file://{tmp_path}/inbox"
    with open_inbox(url, n_shards=2) as opened:
        opened.append("test", "one", [Block(0, 1, 2, encode_events([b"sa", b"sb"], [b"1", b"2"]))])
        start = opened.start()
    unread = inbox(url).unread({str(shard): position for shard, position in start.items()})
    assert {shard: left.rows for shard, left in unread.items()} == {"0": 2, "1": 0}


def test_mqtt_reports_the_backlog_of_the_buffer(tmp_path):
    url = f"file://{tmp_path}/buffer"
    with opened_buffer(url) as opened:
        start = opened.start()
        opened.append("test", "one", [Block(0, 1, 2, b"two messages")])
    source = sources.mqtt("mqtt://127.0.0.1:1", "t/#", buffer=url, client_id="c", bridge=False)
    unread = source.unread({"0": start[0], "#id": 7})
    assert {name: left.rows for name, left in unread.items()} == {"buffer": 2}
