"""chain: history from files or a table first, then a topic from where the history ends."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._codecs.base import PayloadCodec, payload_codec
from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._connectors.kafka.chain_splits import HistorySplit, TopicSplit
from tidewheel._connectors.kafka.log import KafkaLog, Start
from tidewheel._connectors.kafka.seam import EPOCH, OFFSET, Seam, check_columns, columns_of_seam, end_of_history
from tidewheel._connectors.kafka.source import KafkaSource, given_offsets
from tidewheel._connectors.source import Source, SourceReader, Unread
from tidewheel._connectors.split import Split
from tidewheel._core import faults
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values import Shape
from tidewheel.errors import ConfigError, StateError

FOUND = faults.declare("chain.found", "a chain has found its seam, and no commit has it")
CROSSED = faults.declare("chain.crossed", "a chain has planned its first batch of the topic, and no commit has it")

_IN_BYTES = ("files", "delta-history", "iceberg-history")
"""The kinds of sources that measure a batch in bytes."""
_REPORTED = ("topic", "partition", "offset", "value")
_BYTES_PER_RECORD = 100
"""The estimated size of a record in files, so that batches of both parts are limited in one unit."""


def chain(
    first: Source,
    then: Source,
    *,
    by: str = OFFSET,
    at: datetime.datetime | Mapping[Any, Any] | None = None,
    codec: PayloadCodec[Any] | None = None,
    overlap: Duration = "1 hour",
) -> Source:
    """Read history first, then a topic from where the history ends: each record once, and in the order of time.

    - `first`: the history, such as `files("archive/")`, `delta("s3://lake/orders")` or `iceberg("shop.orders", catalog=…)`. Its
      columns are those of the source.
    - `then`: a `kafka(…)`. Its own `start` is not used.
    - `by`: what divides the two. "offset": the history has the columns `partition` and `offset` of the topic (and `topic`,
      if there are several). Otherwise the name of a time column: the history has all records before a time, and the topic
      all from then on.
    - `at`: where the history ends: offsets as `{partition: offset}` or `{topic: {partition: offset}}`, or a time. By default
      the first start finds the end by reading the columns that decide.
    - `codec`: how the topic's payloads are encoded, if the history has records and not the bytes of messages. Messages that
      do not decode, or do not fit the columns of the history, are rejected like bad lines of a file.
    - `overlap`: for a time column, by how much the times of records may be after those that Kafka has for them. The topic is
      read from that much earlier on, and records before the seam are left out.

    The first commit records the seam, which never changes afterwards. If the topic no longer has the records right after the
    seam, the first start fails before that commit, unless `kafka(lost=…)` allows a gap.
    """
    if not isinstance(first, Source) or not first.has_reader:
        raise ConfigError(f"a chain begins with a source such as files(…), not {first!r}")
    if not isinstance(then, KafkaSource):
        raise ConfigError(f"a chain continues with a Kafka source, then=kafka(…), not {then!r}")
    if isinstance(first, ChainSource):
        raise ConfigError("a chain has two parts: its history cannot be another chain")
    if not isinstance(by, str) or not by:
        raise ConfigError(f'by= is "offset" or the name of a time column, not {by!r}')
    decoding = None if codec is None else payload_codec(codec)
    return ChainSource(first, then, _Joint(by, _given(at, by, then), decoding, nanoseconds(overlap, "overlap")))


def _given(at: Any, by: str, then: KafkaSource) -> Seam | None:
    """Return the seam that the program names."""
    if at is None:
        return None
    if isinstance(at, datetime.datetime) and by != OFFSET:
        if at.tzinfo is None:
            raise ConfigError(f"the time {at} at which the history of a chain ends needs a time zone")
        return Seam(by, time_us=(at - EPOCH) // datetime.timedelta(microseconds=1))
    if isinstance(at, Mapping) and by == OFFSET:
        offsets = given_offsets(at, then.topics.names, then.topics.pattern)
        if offsets is not None:
            return Seam(by, offsets, topic=_only_topic(then))
    raise ConfigError(
        "at= of a chain is offsets, {partition: offset} or {topic: {partition: offset}}, or with by= a time column a "
        f"datetime; it is {at!r}, and by= is {by!r}"
    )


def _only_topic(then: KafkaSource) -> str | None:
    return then.topics.names[0] if len(then.topics.names) == 1 else None


@dataclass(frozen=True)
class _Joint:
    """How the two parts of a chain are joined."""

    by: str
    given: Seam | None
    codec: PayloadCodec[Any] | None
    overlap: int


@dataclass(frozen=True)
class _Place:
    """A position of a chain."""

    first: Position
    then: Position
    seam: Seam
    live: bool = False
    """Whether a batch has read the topic; then the history is over."""

    @classmethod
    def of(cls, position: Position, by: str, topic: str | None) -> _Place:
        if not isinstance(position, dict) or "seam" not in position:
            raise StateError(f"the position of a chain has a seam, but it is {position!r}")
        seam = position["seam"]
        if ("offsets" in seam) != (by == OFFSET):
            raise StateError(f"the chain has begun with another by= than {by!r}; its seam is {seam!r}")
        read = Seam(by, seam.get("offsets", {}), seam.get("time_us", 0), topic)
        return cls(position["first"], position["then"], read, bool(position.get("live")))

    def position(self) -> Position:
        return {"first": self.first, "then": self.then, "seam": self.seam.recorded(), "live": self.live}


class ChainSource(Source):
    """A history and a topic."""

    kind = "chain"

    def __init__(self, first: Source, then: KafkaSource, joint: _Joint) -> None:
        self.first, self.then, self.joint = first, then, joint
        self.shape = first.shape

    def declared(self, shape: Shape) -> Source:
        return ChainSource(self.first.declared(shape), self.then, self.joint)

    @property
    def keeps_order(self) -> bool:
        return self.first.keeps_order

    def check(self) -> None:
        self.first.check()

    def check_program(self) -> None:
        self.first.check_program()

    def warnings(self) -> list[str]:
        return self.first.warnings()

    def fields(self) -> dict[str, pa.DataType | None] | None:
        return self.first.fields()

    def seen_age_ms(self) -> int | None:
        return self.first.seen_age_ms()

    def unread(self, position: Position) -> Mapping[str, Unread]:
        return self.then.unread(_Place.of(position, self.joint.by, None).then)

    def describe(self) -> str:
        return f"{self.first.describe()}, then {self.then.describe()}"

    def open(self) -> ChainReader:
        reader = ChainReader(self, self.first.open())
        self.then.open().close()
        return reader

    def found_seam(self, start: Position) -> Seam:
        """Return the seam that the program names, or the end of the history that is read from `start` on."""
        given, by = self.joint.given, self.joint.by
        topic = _only_topic(self.then)
        if given is not None:
            return given
        with closing(self.first.open()) as reader:
            reader.project(columns_of_seam(by, topic))
            return end_of_history(reader, start, by, topic, self.first.describe())

    def start_of_topic(self, seam: Seam) -> Position:
        """Return the position of the topic at a seam; raise an error if the topic does not reach back to it."""
        topics = self.then.topics
        overlap_ms = self.joint.overlap // 10**6
        with closing(KafkaLog(topics)) as log:
            oldest = {name: log.oldest(name) for name in log.listed_ends()}
            if seam.by == OFFSET:
                self._check_offsets(seam, oldest, log.listed_ends())
                start = Start("offsets", offsets=seam.offsets)
            else:
                self._check_time(seam, oldest)
                start = Start("time", milliseconds=seam.time_us // 1000 - overlap_ms)
        with closing(KafkaSource(replace(topics, start=start), None).reader()) as reader:
            return reader.start()

    def _check_offsets(self, seam: Seam, oldest: Mapping[str, int], ends: Mapping[str, int]) -> None:
        for name, offset in seam.offsets.items():
            if name not in ends:
                raise ConfigError(
                    f"there is no seam: the history ends at offset {offset} of {name}, and {self.then.describe()} has no "
                    f"such partition; it has {', '.join(sorted(ends))}"
                )
            if ends[name] < offset:
                raise ConfigError(
                    f"there is no seam: the history ends at offset {offset} of {name}, and that partition ends at "
                    f"{ends[name]}; the history is of another topic, or the topic was deleted and created again"
                )
        for name, retained in oldest.items():
            # Of a partition without a seam, the history has nothing.
            offset = seam.offsets.get(name, 0)
            if retained > offset and self.then.topics.lost == "fail":
                raise ConfigError(
                    f"there is no seam: the history ends at offset {offset} of {name}, and the topic retains records from "
                    f"{retained} on; {retained - offset} offsets between are in neither. Add them to the history, or accept "
                    'the gap with kafka(…, lost="earliest")'
                )

    def _check_time(self, seam: Seam, oldest: Mapping[str, int]) -> None:
        if self.then.topics.lost != "fail":
            return
        # In whole milliseconds, rounded up: a record before the seam shows that nothing after it was deleted.
        start = Start("time", milliseconds=-(-seam.time_us // 1000))
        with closing(KafkaLog(replace(self.then.topics, start=start))) as log:
            at = log.start_offsets()
        gone = sorted(name for name in oldest if oldest[name] > 0 and at[name] == oldest[name])
        if gone:
            raise ConfigError(
                f"there may be no seam: the topic retains no record of {', '.join(gone)} from before {seam.spelled()}, so "
                "records right after it may be deleted. Let the history reach further, or accept a gap with "
                'kafka(…, lost="earliest")'
            )


class ChainReader(SourceReader):
    """Reads the history until it has nothing new, and from then on the topic. No batch has records of both."""

    def __init__(self, source: ChainSource, first: SourceReader) -> None:
        self._source, self._first, self._joint = source, first, source.joint
        self._then: SourceReader = source.then.reader()
        self._topic = _only_topic(source.then)
        self.schema = first.schema
        by, topics = self._joint.by, source.then.schema
        check_columns(first.schema, columns_of_seam(by, self._topic), source.first.describe())
        if self._joint.codec is None:
            lacking = [name for name in first.schema.names if name not in (*topics.names, BAD_LINE)]
            if lacking:
                raise ConfigError(
                    f"{source.first.describe()} has the column {', '.join(map(repr, lacking))}, and messages of a topic have "
                    f"{', '.join(topics.names)}; give the chain a codec= that decodes messages into such records"
                )
        self._scale = _BYTES_PER_RECORD if source.first.kind in _IN_BYTES else 1
        self.project(first.schema.names)

    def project(self, names: Sequence[str]) -> None:
        super().project(names)
        decides = columns_of_seam(self._joint.by, self._topic)
        wanted = [*names, *(name for name in decides if name not in names)]
        self._first.project(wanted)
        topics = self._source.then.schema.names
        if self._joint.codec is None:
            # A message that does not fit is reported with its place and its value.
            self._then.project([name for name in topics if name in {*wanted, *_REPORTED}])

    def start(self) -> Position:
        first = self._first.start()
        seam = self._source.found_seam(first)
        place = _Place(first, self._source.start_of_topic(seam), seam)
        faults.point(FOUND)
        return place.position()

    def end(self, start: Position) -> Position:
        place = self._place(start)
        if not place.live:
            self._first.limit = self.limit and self.limit * self._scale
            if (end := self._first.end(place.first)) != place.first:
                return replace(place, first=end).position()
        self._then.limit = self.limit
        end = self._then.end(place.then)
        if end == place.then:
            return start
        if not place.live:
            faults.point(CROSSED)
        return replace(place, then=end, live=True).position()

    def check(self, position: Position, last: SeenFile | None) -> None:
        place = self._place(position)
        if place.live:
            self._then.check(place.then, None)
        else:
            self._first.check(place.first, last)

    def amount(self, start: Position, end: Position) -> int:
        before, after = self._place(start), self._place(end)
        history = self._first.amount(before.first, after.first) if before.first != after.first else 0
        topic = self._then.amount(before.then, after.then) if before.then != after.then else 0
        return -(-history // self._scale) + topic

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        before, after = self._place(start), self._place(end)
        found: list[Split] = []
        if before.first != after.first:
            read = self._first.splits(before.first, after.first, tasks)
            found += [HistorySplit(split, self.schema, after.seam) for split in read]
        if before.then != after.then:
            read = self._then.splits(before.then, after.then, tasks)
            found += [TopicSplit(split, self.schema, after.seam, self._joint.codec) for split in read]
        return found

    def missing(self, start: Position, end: Position) -> str | None:
        before, after = self._place(start), self._place(end)
        return self._first.missing(before.first, after.first) or self._then.missing(before.then, after.then)

    def freeze(self) -> None:
        self._first.freeze()
        self._then.freeze()

    def recall(self, seen: Iterable[SeenFile]) -> None:
        self._first.recall(seen)

    def reread(self, seen: Iterable[SeenFile]) -> None:
        self._first.reread(seen)

    def seen(self, start: Position, end: Position) -> list[SeenFile]:
        before, after = self._place(start).first, self._place(end).first
        return self._first.seen(before, after) if before != after else []

    def unread(self, position: Position) -> Mapping[str, Unread] | None:
        place = self._place(position)
        return None if place.live else self._first.unread(place.first)

    def committed(self, position: Position) -> None:
        place = self._place(position)
        if place.live:
            self._then.committed(place.then)
        else:
            self._first.committed(place.first)

    def close(self) -> None:
        self._first.close()
        self._then.close()

    def _place(self, position: Position) -> _Place:
        return _Place.of(position, self._joint.by, self._topic)
