"""A broker killed during a sink's commit may forget the end of the transaction: how the sink recovers."""

from __future__ import annotations

import json
import random
import secrets
import threading

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from integration.connectors.test_kafka_sink import MortalTopic, Topic
from integration.connectors.test_kafka_transactions import in_transaction
from servers.kafka_server import real_kafka  # noqa: F401
from tidewheel._connectors.kafka import transactions
from tidewheel._connectors.kafka.markers import Last, Open, Sent, newest_marker, to_send_again
from tidewheel.errors import TidewheelError
from tidewheel.testing.connectors import DrivenSink

SEED = 20261116
HERE = Sent({2: 1}, {0: (0, 5), 1: (3, 9)})
NOTE, SEEN_NOTE = Last(HERE, True, False), Last(replace(HERE, seen=True), True, False)


@pytest.mark.parametrize(
    ("last", "seen", "again"),
    [
        (None, {}, None),
        # Nothing was dropped since readers saw the marker.
        (Last(HERE, False, True), {}, None),
        # Nothing is seen: whoever wants it published sends all of it.
        (Last(HERE, False, False), {0: False, 1: False}, None),
        (NOTE, {0: False, 1: False}, None),
        (NOTE, {}, None),
        # A part is seen: the rest is sent again, and the marker.
        (Last(HERE, False, False), {0: True, 1: False}, [1]),
        (NOTE, {0: True, 1: False}, [1]),
        (NOTE, {0: True, 1: True}, []),
        # The marker was seen, so nobody will send it.
        (SEEN_NOTE, {0: False, 1: False}, [0, 1]),
        (SEEN_NOTE, {0: True}, []),
    ],
)
def test_all_is_seen_or_nothing(last, seen, again):
    assert to_send_again(last, seen) == again


@pytest.mark.parametrize(
    ("found", "concerns"),
    [
        (Open(None, False, frozenset({0})), False),
        (Open(Last(HERE, False, False), True, frozenset()), True),
        (Open(Last(HERE, False, True), False, frozenset({1, 2})), True),
        (Open(Last(HERE, False, True), False, frozenset({2})), False),
        (Open(NOTE, True, frozenset({1})), False),
    ],
)
def test_a_marker_is_noted_before_it_or_its_records_may_be_dropped(found, concerns):
    assert found.concerns_last is concerns


def partly_ended(topic: Topic, name: str, drop_marker: bool) -> None:
    """Leave what a commit leaves of which the brokers ended the second partition only, after the sink has dropped the rest.

    A note stands for the marker, as if the sink had been killed then.
    """
    settings = {"bootstrap.servers": topic.server.brokers, "transactional.id": secrets.token_hex(4)}
    rows = [json.dumps(row).encode() for row in topic.rows([1, 2, 3, 4]).to_pylist()]
    producer = Producer(settings)
    producer.init_transactions(30)
    for number, ending in ((0, producer.abort_transaction), (1, producer.commit_transaction)):
        producer.begin_transaction()
        for row in rows[number * 2 : number * 2 + 2]:
            producer.produce(topic.name, row, b"k", number)
        assert producer.flush(30) == 0
        ending(30)
    sent = Sent({2: 77}, {0: (0, 2), 1: (0, 2)}, seen=not drop_marker)
    plain = Producer({"bootstrap.servers": topic.server.brokers})
    plain.produce(f"{topic.name}-markers", sent.encoded(), f"{name} noted".encode(), 0)
    assert plain.flush(30) == 0


@pytest.mark.parametrize("drop_marker", [False, True])
def test_dropped_records_of_a_commit_are_sent_again_from_the_log(real_kafka, drop_marker):  # noqa: F811
    topic = Topic(real_kafka, 2)
    sink = DrivenSink(topic)
    sink.sink.start("orders")
    partly_ended(topic, "orders/out", drop_marker)
    for sequence in (3, 4):
        sink.publish(sink.stage(sequence, topic.rows([sequence * 10])))
    assert sorted(row["id"] for row in topic.contents()) == [1, 2, 3, 4, 30, 40]
    found = newest_marker(sink.sink.target, "orders/out")
    assert found.published[2] == 77
    assert found.sequence == 4


def test_the_marker_has_the_place_of_its_records(real_kafka):  # noqa: F811
    topic = Topic(real_kafka, 1)
    sink = DrivenSink(topic)
    sink.publish(sink.stage(2, topic.rows([1, 2])))
    sink.publish(sink.stage(3, topic.rows([3])))
    (sending,) = sink.sink._sending.values()
    # Behind the end of the first transaction, which takes an offset too.
    assert sending._topic.ends() == {0: 5}
    assert sending._ends == {0: 4}


def test_records_without_a_marker_are_dropped_before_new_ones_are_sent(real_kafka, monkeypatch):  # noqa: F811
    monkeypatch.setattr("tidewheel._connectors.kafka.markers._GRACE", 0.1)
    topic = Topic(real_kafka, 1)
    # Another producer's transaction looks the same, and stays as it is.
    other = in_transaction(topic, [b'{"id": 7}'])
    sink = DrivenSink(topic)
    sink.publish(sink.stage(2, topic.rows([1])))
    assert topic.contents() == []
    other.commit_transaction(30)
    assert sorted(row["id"] for row in topic.contents()) == [1, 7]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("phase", ["sent", "committing", "committed", "later"])
def test_a_broker_killed_in_a_commit_loses_and_repeats_nothing(phase, durable_kafka, monkeypatch):
    draw = random.Random(f"{SEED} {phase}")
    topic = MortalTopic(durable_kafka, 2, timeout="10 s")
    sink, killer = DrivenSink(topic), []

    def restart(pause: float) -> None:
        killed = threading.Event()

        def run() -> None:
            killed.wait(pause)
            durable_kafka.kill()
            killed.set()
            durable_kafka.start()

        killer.append(threading.Thread(target=run))
        killer[-1].start()
        if pause == 0:
            killed.wait()

    def point(name: str) -> None:
        if armed and name == {"sent": transactions.SENT, "committing": transactions.SENT}.get(
            phase, transactions.COMMITTED
        ):
            armed.clear()
            restart({"committing": draw.random() * 0.02, "later": draw.random() * 0.02}.get(phase, 0.0))

    monkeypatch.setattr(transactions.faults, "point", point)
    armed: list[bool] = []
    for sequence in range(2, 14):
        publication = sink.stage(sequence, topic.rows([sequence * 10 + number for number in range(8)]))
        armed.append(True)
        for _ in range(10):
            try:
                sink.publish(publication)
                break
            except TidewheelError as error:
                print(f"{phase} {sequence}: {error}")
        else:
            pytest.fail("it was never published")
        killer[-1].join()
        # As a fresh process that does not know whether the last one came to publish.
        sink = DrivenSink(topic, store=sink.store)
        sink.publish(publication)
        found = sorted(row["id"] for row in topic.contents())
        assert found == [each * 10 + number for each in range(2, sequence + 1) for number in range(8)]
