"""Offsets that a topic does not retain any more. The tests' broker keeps everything, so the client is a stand-in here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidewheel import sources
from tidewheel._connectors.kafka.log import KafkaLog
from tidewheel.errors import ConnectorError

OLDEST, NEWEST = 20, 50


class Message:
    """A record, or an event in place of one."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def error(self):
        return None if self._code is None else KafkaError(self._code)

    def offset(self):
        return self._offset

    def topic(self):
        return "t"

    def partition(self):
        return 0

    def timestamp(self):
        return (1, 0)

    def headers(self):
        return None

    def key(self):
        return None

    def value(self):
        return b"%d" % self._offset


class Consumer:
    """A partition of which the offsets from OLDEST on are retained, as librdkafka tells it."""

    def assign(self, partitions):
        self.position = partitions[0].offset

    def consume(self, number, timeout):
        if self.position < OLDEST:
            return [Message(-1001, KafkaError._AUTO_OFFSET_RESET)]
        if self.position >= NEWEST:
            return [Message(NEWEST, KafkaError._PARTITION_EOF)]
        found = [Message(offset) for offset in range(self.position, min(self.position + min(number, 7), NEWEST))]
        self.position += len(found)
        return found

    def get_watermark_offsets(self, partition, timeout=None, cached=False):
        return OLDEST, NEWEST

    def list_topics(self, topic, timeout):
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions={0: None})})

    def unassign(self):
        pass

    def close(self):
        pass


@pytest.fixture
def read(monkeypatch):
    monkeypatch.setattr(KafkaLog, "_consumer", lambda self, settings: Consumer())

    def reading(first: int, **settings) -> list[int]:
        reader = sources.kafka("h:1", "t", **settings).reader()
        end = reader.latestOffset({"t/0": first}, ReadAllAvailable())
        assert end == {"t/0": NEWEST}
        parts = reader.partitions({"t/0": first}, end)
        return [offset for part in parts for batch in reader.read(part) for offset in batch["offset"].to_pylist()]

    return reading


def test_they_stop_the_job_with_both_numbers(read):
    with pytest.raises(
        ConnectorError, match=r"at offset 5 of partition t/0 .* oldest that is retained is 20: 15 records"
    ):
        read(5)


def test_a_job_may_go_on_with_the_oldest_or_with_what_comes_next(read):
    assert read(5, lost="earliest") == list(range(OLDEST, NEWEST))
    assert read(5, lost="latest") == []


def test_offsets_that_are_retained_are_read(read):
    assert read(OLDEST) == list(range(OLDEST, NEWEST))
    assert read(NEWEST - 3, lost="latest") == [NEWEST - 3, NEWEST - 2, NEWEST - 1]


def test_a_job_begins_with_the_oldest_that_is_retained(read):
    assert sources.kafka("h:1", "t").reader().initialOffset() == {"t/0": OLDEST}
