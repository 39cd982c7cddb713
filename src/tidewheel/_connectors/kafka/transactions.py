"""Send to Kafka in transactions, each with its marker.

How a repeated publication is detected. The transactional id is the name of job and sink, so `init_transactions` ends
any transaction of an earlier process: afterwards it is committed or aborted as a whole, and that process can neither
send nor commit. The committed content of the marker topic is then final. The marker is written in the same transaction
as its records: both are there, or neither is. Other jobs share the marker topic, and readers of committed records stop
at the first undecided transaction: the sink waits for it, because a marker may follow it. A publication is complete
when readers see its marker; transactions that the brokers did not end are ended first (`markers`).

Why markers have a separate topic. In the target, a marker would have to be searched among the records of other
producers, and retention would delete it. Offsets of a consumer group can be committed in a transaction too, and are
read at once; but brokers delete the offsets of a group that was inactive for a week, and a job may stop for longer. A
compacted topic keeps the newest marker of each job and sink for as long as the topic exists.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidewheel._connectors.kafka.client import LastError
from tidewheel._connectors.kafka.markers import (
    Last,
    MarkerTopic,
    Range,
    Sent,
    Target,
    keys_of,
    newest_marker,
    to_send_again,
    unknown_ranges,
)
from tidewheel._connectors.kafka.producer import Message, payloads, producer, send_all
from tidewheel._connectors.marker import Marker
from tidewheel._connectors.over_runs import over_marker, over_stream, over_stream_of, refuse_over, streams_of
from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel.errors import ConnectorUnavailable, FencedError, TidewheelError

SENT = faults.declare("kafka.sent", "a batch's records are in an open Kafka transaction, without their marker")
COMMITTED = faults.declare(
    "kafka.committed", "a Kafka transaction with a batch's records and their marker is committed"
)

_LOG = logger(__name__)

_ENDINGS, _ENDINGS_IN_TARGET = 6, 2
"""How often a sink aborts transactions without an end: brokers may forget the abort too. The rest belongs to others."""
_LIMIT = "transaction.timeout.ms"
_DEFAULT_LIMIT = 60_000
"""How many milliseconds a transaction may last, as librdkafka has it."""
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


def forget_runs(target: Target, job: str, sink: str, runs: Sequence[int]) -> None:
    """Delete the publish markers of finished runs of a fleet."""
    names = [_name_of(stream, sink) for stream in streams_of(job, runs)]
    Transactions(target, over_stream(job), sink).forget(names, over_marker(runs))


def _name_of(job: str, sink: str) -> str:
    return f"{job}/{sink}"


class _TransactionTimedOut(ConnectorUnavailable):
    """The brokers ended a transaction that lasted too long: nothing of it is visible."""


class _NotDecided(ConnectorUnavailable):
    """A transaction was committed, and readers do not see it."""


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Raise internal errors that cannot be handled here as the public error class."""
    try:
        yield
    except (_TransactionTimedOut, _NotDecided) as error:
        raise ConnectorUnavailable(str(error)) from error.__cause__


class Transactions:
    """The transactions of one job and sink. Any failure closes the producer, and the next publication reads the marker
    to find out what became of the last one.
    """

    def __init__(self, target: Target, job: str, sink: str) -> None:
        """Take the target; nothing is contacted yet."""
        self._target, self._connection = target, target.connection
        self._name = _name_of(job, sink)
        over = over_stream_of(job)
        self._over_name = None if over is None else _name_of(over, sink)
        self._over = 0
        """The last finished run of the fleet; looked up if there is no marker."""
        self._producer: Any = None
        self._begun = 0.0
        self._marker = Marker()
        self._topic: MarkerTopic | None = None
        self._ends: dict[int, int] = {}
        """The ends of the target's partitions before the next publication, or earlier ones."""

    def publish(self, publication: Publication) -> None:
        """Send a publication, unless it was sent before."""
        try:
            self._publish(publication)
        except (FencedError, _TransactionTimedOut, _NotDecided) as error:
            # The process that fenced this one may have published for it. The marker shows whether it did.
            _LOG.warning("%s; asking for the marker again", error)
            with _as_unavailable():
                self._publish(publication)

    def _publish(self, publication: Publication) -> None:
        try:
            if self._producer is None or self._errors.error is not None:
                # After an outage, brokers may have forgotten to end the last committed transaction.
                self.close()
                self._begin()
            refuse_over(publication, self._over)
            if not self._marker.has(publication):
                self._send(publication)
        except BaseException:
            self.close()
            raise

    @_as_unavailable()
    def forget(self, sinks: Iterable[str], marker: Marker) -> None:
        """Delete the markers of other names and write the over marker, unless it or a later one exists, in one transaction."""
        try:
            self._open()
            known = newest_marker(self._target, self._name)
            doing = "delete markers"
            produce = partial(self._do, doing, self._producer.produce, self._target.markers)
            self._do(doing, self._producer.begin_transaction)
            if known.sequence < marker.sequence:
                produce(marker.encoded(), self._name.encode(), 0)
            for key in (key for name in sinks for key in keys_of(name)):
                # In a compacted topic, a record without a value deletes its key.
                produce(None, key, 0)
            self._do(doing, self._producer.commit_transaction, self._connection.timeout)
        finally:
            self.close()

    def close(self) -> None:
        """Drop the producer; the next publication creates another one."""
        self._producer = None
        if self._topic is not None:
            self._topic.close()
            self._topic = None

    def _begin(self) -> None:
        """Take the transactional id, and make sure that readers see all or nothing of the last publication under it."""
        topic = self._topic = MarkerTopic(self._target, self._name)
        for number in range(_ENDINGS):
            self._open()
            found = topic.open()
            in_target = bool(found.partitions) and number < _ENDINGS_IN_TARGET
            if not found.marker and not in_target:
                break
            _LOG.warning("the brokers left a transaction without an end, perhaps of %s", self._name)
            if found.last is not None and found.concerns_last:
                self._note(found.last)
            if in_target:
                self._drop(self._target.topic, found.partitions)
            else:
                assert self._target.markers is not None
                self._drop(self._target.markers, [0])
        self._ends = topic.ends()
        last = topic.last()
        if last is not None and (last.is_note or not last.is_seen):
            if last.sent.where is None:
                raise unknown_ranges(self._target, self._name)
            again = to_send_again(last, topic.seen(last.sent.where))
            if again is not None:
                _LOG.warning(
                    "%s sends again the messages of a commit that brokers dropped, in %d partitions",
                    self._name,
                    len(again),
                )
                self._send_again(topic, last.sent.published, last.sent.where, again)
        self._marker = topic.newest()
        if not self._marker.published and self._over_name is not None:
            self._over = newest_marker(self._target, self._over_name).sequence
        # From now on, an error means an outage of the brokers; before, one of several addresses may just be closed.
        self._errors.error = None

    def _open(self) -> None:
        identity = {"transactional.id": f"tidewheel/{self._name}"}
        self._errors, self._begun = LastError(), time.monotonic()
        self._producer = producer(self._connection, self._errors, **identity)
        self._do("begin transactions", self._producer.init_transactions, self._connection.timeout)

    def _note(self, last: Last) -> None:
        """Note a marker that may be dropped. The note is durable when this returns."""
        assert self._topic is not None
        doing, refused = "note a marker", list[Any]()
        note = replace(last.sent, seen=last.is_seen).encoded()
        plain = producer(self._connection, self._errors)
        plain.produce(
            self._target.markers,
            note,
            self._topic.note_key,
            0,
            lambda error, _: refused.append(error) if error else None,
        )
        if plain.flush(self._connection.timeout) or refused:
            raise self._connection.failed(doing, refused[0] if refused else self._errors.text("no answer"))

    def _drop(self, topic: str, partitions: Iterable[int]) -> None:
        """Drop transactions without an end in some partitions: an aborted transaction there ends them too."""
        assert self._topic is not None
        doing = f"end a transaction in {topic}"
        self._do(doing, self._producer.begin_transaction)
        for partition in partitions:
            self._do(doing, self._producer.produce, topic, b"", self._topic.drop_key, partition)
        self._flush(doing)
        self._do(doing, self._producer.abort_transaction, self._connection.timeout)

    def _send(self, publication: Publication) -> None:
        marker = self._marker.after(publication)
        self._transact(payloads(publication), marker.published, {})
        self._marker = marker

    def _send_again(
        self, topic: MarkerTopic, published: dict[int, int], where: Mapping[int, Range], partitions: Iterable[int]
    ) -> None:
        chosen = {partition: where[partition] for partition in partitions}
        messages = ((*each, number) for number, place in chosen.items() for each in topic.dropped(number, *place))
        kept = {partition: each for partition, each in where.items() if partition not in chosen}
        self._transact(messages, published, kept)

    def _transact(self, messages: Iterable[Message], published: dict[int, int], kept: Mapping[int, Range]) -> None:
        """Send messages and their marker; `kept` are ranges with other messages of the same marker."""
        topic = self._topic
        assert topic is not None
        self._begun = time.monotonic()
        at: list[int] = []
        self._do("begin a transaction", self._producer.begin_transaction)
        try:
            self._do(f"send to {self._target.topic}", send_all, self._producer, self._target.topic, messages)
            self._flush(f"send to {self._target.topic}")
            faults.point(SENT)
            ends = topic.ends()
            grown = {number: (self._ends.get(number, 0), end) for number, end in ends.items()}
            where = {**{number: each for number, each in grown.items() if each[0] < each[1]}, **kept}
            self._do(
                "send a marker",
                self._producer.produce,
                self._target.markers,
                Sent(published, where).encoded(),
                topic.key,
                0,
                lambda error, message: None if error else at.append(message.offset()),
            )
            doing = f"commit a transaction to {self._target.topic}"
            self._do(doing, self._producer.commit_transaction, self._connection.timeout)
        except BaseException:
            self._abort()
            raise
        faults.point(COMMITTED)
        self._producer.poll(0)
        marker, records = topic.is_decided(at[0], where) if at else (False, False)
        # Records may be behind an open transaction of another producer, unless brokers were away.
        if not marker or not (records or self._errors.error is None):
            raise _NotDecided(
                f"a transaction of {self._name} was committed, and readers at the Kafka brokers {self._connection.brokers} do "
                "not see its end"
            )
        self._ends = ends

    def _flush(self, doing: str) -> None:
        from confluent_kafka import KafkaException

        try:
            left = self._producer.flush(self._connection.timeout)
        except KafkaException as error:
            raise self._failed(doing, error.args[0]) from None
        if left:
            silent = f"{left} messages are not acknowledged after {self._connection.timeout:g} seconds"
            raise self._connection.failed(doing, self._errors.text(silent))

    def _abort(self) -> None:
        """Abort the transaction, so that readers need not wait for the next run to do it."""
        from confluent_kafka import KafkaException

        try:
            self._producer.abort_transaction(min(self._connection.timeout, 5.0))
        except KafkaException as error:
            _LOG.info("a transaction of %s is left open: %s", self._name, self._connection.hidden(str(error.args[0])))

    def _do(self, doing: str, call: Any, *arguments: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            call(*arguments)
        except KafkaException as error:
            raise self._failed(doing, error.args[0]) from None

    def _failed(self, doing: str, error: Any) -> TidewheelError:
        if error.name() in _FENCED:
            # The brokers answer a producer whose transaction timed out as if another producer had fenced it.
            limit, seconds = int(self._connection.options.get(_LIMIT, _DEFAULT_LIMIT)), time.monotonic() - self._begun
            if seconds * 1000 >= limit:
                return _TransactionTimedOut(
                    f"cannot {doing}: the transaction of {self._name} lasted {seconds:.1f} seconds, and the Kafka brokers "
                    f"{self._connection.brokers} end one after {limit / 1000:g}. Make batches smaller (max_records), or raise "
                    f"the option {_LIMIT} (up to the brokers' transaction.max.timeout.ms)"
                )
            return FencedError(
                f"cannot {doing}: another run sends as {self._name} to the Kafka brokers {self._connection.brokers}"
            )
        known = self._errors.error
        return self._connection.failed(doing, known if error.name() == "_TIMED_OUT" and known is not None else error)
