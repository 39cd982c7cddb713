"""Send to Kafka: the producer, its queue, and publications without transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidewheel._connectors.kafka.client import Connection, LastError, client
from tidewheel._connectors.kafka.markers import Target
from tidewheel._connectors.sink import Publication
from tidewheel._connectors.staging import published_batches

Message = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, int]
"""Key and value, and the partition if it is known."""


def producer(connection: Connection, errors: LastError, **more: Any) -> Any:
    """Return a producer with the user's options, and defaults for publications."""
    from confluent_kafka import Producer

    # Batches of the brokers' default maximum size: a publication sends much at once and waits only for its end.
    chosen = {"linger.ms": "5", "batch.num.messages": "100000", "queue.buffering.max.messages": "1000000"}
    kept = {name: value for name, value in chosen.items() if name not in connection.options}
    return client(Producer, connection, **kept, **more, **{"enable.idempotence": True, "error_cb": errors})


def send_all(producer: Any, topic: str, messages: Iterable[Message], **more: Any) -> None:
    """Pass messages to the producer, and wait while its queue is full."""
    produce = producer.produce
    for key, value, *partition in messages:
        while True:
            try:
                produce(topic, value, key, *partition, **more)
                break
            except BufferError:
                producer.poll(0.05)


def payloads(publication: Publication) -> Iterator[Message]:
    """Yield key and value of each message, task by task, in each task's order."""
    for batch in published_batches(publication):
        yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)


class Plain:
    """Sends without transactions. A failure closes the producer, so that nothing is sent later."""

    def __init__(self, target: Target) -> None:
        """Take the target; nothing is contacted yet."""
        self._target, self._connection = target, target.connection
        self._producer: Any = None

    def publish(self, publication: Publication) -> None:
        """Send, and wait until the brokers have acknowledged everything."""
        try:
            self._publish(publication)
        except BaseException:
            if self._producer is not None:
                self._producer.purge()
            self.close()
            raise

    def close(self) -> None:
        """Drop the producer; the next publication creates another one."""
        self._producer = None

    def _publish(self, publication: Publication) -> None:
        from confluent_kafka import KafkaException

        doing, refused = f"send to {self._target.topic}", list[Any]()
        if self._producer is None:
            self._errors = LastError()
            self._producer = producer(self._connection, self._errors, **{"delivery.report.only.error": True})
        try:
            send_all(
                self._producer,
                self._target.topic,
                payloads(publication),
                on_delivery=lambda error, _: refused.append(error),
            )
        except KafkaException as error:
            raise self._connection.failed(doing, error.args[0]) from None
        left = self._producer.flush(self._connection.timeout)
        if refused or left:
            silent = f"{left} messages are not acknowledged after {self._connection.timeout:g} seconds"
            raise self._connection.failed(doing, refused[0] if refused else self._errors.text(silent))
