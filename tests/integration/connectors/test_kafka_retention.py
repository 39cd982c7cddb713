"""A broker deletes records that the job has not read yet."""

from __future__ import annotations

import secrets
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from integration.connectors.test_kafka_source import Topic, offsets_in, produce
from servers.kafka_server import real_kafka  # noqa: F401
from support.waiting import eventually
from tidewheel.errors import ConnectorError
from tidewheel.testing.connectors import DrivenSource

DAY_MS = 24 * 60 * 60 * 1000


class Forgetful(Topic):
    """A topic that retains records for a day."""

    def __init__(self, server, **settings) -> None:
        self.server, self.name, self.partitions = server, f"day-{secrets.token_hex(4)}", 1
        self.settings = settings
        server.create(self.name, 1, {"retention.ms": str(DAY_MS)})

    def source(self, *, max_records=None):
        return super().source(max_records=max_records, **self.settings)

    def forget(self, count: int) -> None:
        """Append records that are too old to be retained, and wait until they are gone."""
        old = int(time.time() * 1000) - 2 * DAY_MS
        produce(self.server, self.name, [{"value": b"old", "timestamp": old}] * count)
        first = TopicPartition(self.name, 0)
        admin = AdminClient({"bootstrap.servers": self.server.brokers})

        def spanned(spec: OffsetSpec) -> int:
            return admin.list_offsets({first: spec})[first].result(30).offset

        end = spanned(OffsetSpec.latest())
        eventually(lambda: spanned(OffsetSpec.earliest()) == end)


def test_a_job_begins_with_the_oldest_retained_record(real_kafka):  # noqa: F811
    topic = Forgetful(real_kafka)
    topic.forget(3)
    topic.append([b"1"])
    source = DrivenSource(topic)
    assert offsets_in(source.start()) == {f"{topic.name}/0": 3}
    assert [batch for _, batch in source.batches(source.start())] == [[b"1"]]


def test_a_job_that_was_passed_by_stops_with_both_numbers(real_kafka):  # noqa: F811
    topic = Forgetful(real_kafka)
    start = DrivenSource(topic).start()
    topic.forget(3)
    topic.append([b"1"])
    source = DrivenSource(topic)
    said = r"at offset 0 of partition .*/0 .* oldest retained offset is 3: 3 records are lost"
    with pytest.raises(ConnectorError, match=said):
        source.read(start, source.end(start))


@pytest.mark.parametrize(("lost", "found"), [("earliest", [b"1"]), ("latest", [])])
def test_a_job_that_was_overtaken_may_continue(real_kafka, lost, found):  # noqa: F811
    topic = Forgetful(real_kafka, lost=lost)
    start = DrivenSource(topic).start()
    topic.forget(3)
    topic.append([b"1"])
    source = DrivenSource(topic)
    end = source.end(start)
    assert source.read(start, end) == found
    topic.append([b"2"])
    assert source.read(end, source.end(end)) == [b"2"]


@pytest.mark.parametrize(("lost", "found"), [("earliest", [b"1"]), ("latest", [])])
def test_a_planned_batch_may_be_passed_by_too(real_kafka, lost, found):  # noqa: F811
    topic = Forgetful(real_kafka, lost=lost)
    start = DrivenSource(topic).start()
    topic.forget(3)
    topic.append([b"1"])
    end = {f"{topic.name}/0": 4}
    assert DrivenSource(topic).read(start, end) == found
    assert DrivenSource(topic).read(start, {f"{topic.name}/0": 2}) == []
