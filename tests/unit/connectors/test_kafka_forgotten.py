"""A broker that is killed while a sink commits may forget the end of the transaction: what the sink makes of that."""

from __future__ import annotations

import random
import threading

import pytest

from kafka_server import real_kafka  # noqa: F401
from tidewheel._connectors.kafka import transactions
from tidewheel._connectors.kafka.markers import Forgotten, Sent
from tidewheel.errors import TidewheelError
from tidewheel.testing.connectors import DrivenSink
from unit.connectors.test_kafka_sink import MortalTopic, Topic
from unit.connectors.test_kafka_transactions import in_transaction

SEED = 20261116
HERE = Sent({2: 1}, {0: (0, 5), 1: (3, 9)})


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (Forgotten(), "none"),
        # Without a marker nothing was committed.
        (Forgotten(None, frozenset({1})), "abort"),
        # Nothing is seen, so all of it may be dropped and sent again.
        (Forgotten(HERE, frozenset({0, 1})), "abort"),
        (Forgotten(HERE, frozenset({1}), {0: False}), "abort"),
        (Forgotten(HERE, frozenset(), {0: False, 1: False}), "abort"),
        (Forgotten(Sent({2: 1}, {})), "abort"),
        # All is seen but the marker.
        (Forgotten(HERE, frozenset(), {0: True, 1: True}), "commit"),
        (Forgotten(HERE, frozenset(), {0: True}), "commit"),
        # A part is seen, and the rest can neither be shown nor sent again.
        (Forgotten(HERE, frozenset({1}), {0: True}), "unknown"),
        (Forgotten(HERE, frozenset(), {0: True, 1: False}), "unknown"),
        (Forgotten(Sent({2: 1}), frozenset({1})), "unknown"),
    ],
)
def test_all_is_seen_or_nothing(found, remedy):
    assert found.remedy == remedy


def test_the_marker_says_where_its_records_are(real_kafka):  # noqa: F811
    topic = Topic(real_kafka, 1)
    sink = DrivenSink(topic)
    sink.publish(sink.stage(2, topic.rows([1, 2])))
    sink.publish(sink.stage(3, topic.rows([3])))
    (sending,) = sink.sink._sending.values()
    # Behind the end of the first transaction, which takes an offset too.
    assert sending._topic.ends() == {0: 5}
    assert sending._ends == {0: 4}


def test_what_has_no_marker_is_dropped_before_anything_is_sent_on_top_of_it(real_kafka, monkeypatch):  # noqa: F811
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
def test_a_broker_that_is_killed_in_a_commit_loses_and_repeats_nothing(phase, durable_kafka, monkeypatch):
    draw = random.Random(f"{SEED} {phase}")
    topic = MortalTopic(durable_kafka, 2, timeout=10.0)
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
