"""The seam of a chain: which records come from the history, and which from the topic.

The seam is an offset for each partition, or a time. Both sides are filtered by it, so that no record comes twice or from
neither, whatever the history has beyond the seam.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.bad_lines import BAD_LINE, parted
from tidewheel._connectors.source import SourceReader
from tidewheel.errors import ConfigError, ConnectorError

OFFSET = "offset"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Seam:
    """The end of the history. `by` is "offset" or the name of a time column."""

    by: str
    offsets: Mapping[str, int] = field(default_factory=dict)
    """The first offset that the topic gives, by partition; the history gives those before."""
    time_us: int = 0
    """The first time that the topic gives, in microseconds since 1970."""
    topic: str | None = None
    """The topic of the history's records; None if the column `topic` has it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the history that decide."""
        return columns_of_seam(self.by, self.topic)

    def recorded(self) -> dict[str, Any]:
        """Return the seam as a plain value for the commit."""
        return {"offsets": dict(self.offsets)} if self.by == OFFSET else {"time_us": self.time_us}

    def spelled(self) -> str:
        """Return the seam for messages."""
        if self.by == OFFSET:
            return ", ".join(f"{name} at {offset}" for name, offset in sorted(self.offsets.items()))
        return f"{self.by} at {(EPOCH + datetime.timedelta(microseconds=self.time_us)).isoformat()}"

    def of_history(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records before the seam, and the lines that are not records."""
        if self.by == OFFSET:
            before = pc.fill_null(pc.less(batch.column(OFFSET), self._first_offsets(batch)), False)
        else:
            before = pc.less(self._times(batch), self.time_us)
        if BAD_LINE in batch.schema.names:
            before = pc.or_(pc.fill_null(before, False), batch.column(BAD_LINE).is_valid())
        return batch.filter(before)

    def of_topic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records from the seam on. Offsets before the seam are never read."""
        if self.by == OFFSET:
            return batch
        records, lines = batch, None
        if BAD_LINE in batch.schema.names:
            lines = batch.filter(batch.column(BAD_LINE).is_valid())
            records = batch.filter(batch.column(BAD_LINE).is_null())
        kept = records.filter(pc.greater_equal(self._times(records), self.time_us))
        return kept if lines is None else pa.Table.from_batches([kept, lines]).combine_chunks().to_batches()[0]

    def _first_offsets(self, batch: pa.RecordBatch) -> pa.Array:
        names = _partitions(batch, self.topic)
        known = pa.array(list(self.offsets), pa.string())
        return pa.array(list(self.offsets.values()), pa.int64()).take(pc.index_in(names, known))

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        times = microseconds(batch, self.by)
        records = times if BAD_LINE not in batch.schema.names else times.filter(batch.column(BAD_LINE).is_null())
        if records.null_count:
            raise ConnectorError(
                f"the column {self.by!r} is null in a record, which is then on no side of the seam {self.spelled()}; "
                "give every record a time, or chain by offset"
            )
        return times


def columns_of_seam(by: str, topic: str | None) -> tuple[str, ...]:
    """Return the columns that decide on which side of a seam a record of the history is."""
    return (by,) if by != OFFSET else ("partition", OFFSET) if topic else ("topic", "partition", OFFSET)


def microseconds(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return a time column in microseconds since 1970; a time without a zone is UTC."""
    times = batch.column(column)
    if not pa.types.is_timestamp(times.type):
        raise ConfigError(f"a chain by {column!r} needs a column of timestamps, but it has the type {times.type}")
    # Both sides are rounded down alike, so finer units change nothing.
    return times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())


def end_of_history(reader: SourceReader, start: Position, by: str, topic: str | None, describe: str) -> Seam:
    """Read the columns that decide, from `start` on, and return the seam right after the last record of the history.

    The position says which version of a table is read: the seam is the end of that version, not of a newer one.
    """
    offsets: dict[str, int] = {}
    latest: int | None = None
    position = start
    while (end := reader.end(position)) != position:
        for split in reader.splits(position, end, 1):
            for batch in split.read():
                records, _ = parted(batch)
                if by == OFFSET:
                    _add_offsets(offsets, records, topic, describe)
                elif records.num_rows:
                    found = pc.max(microseconds(records, by)).as_py()
                    latest = found if latest is None else max(latest, found if found is not None else latest)
        position = end
    if not offsets and latest is None:
        raise ConfigError(f"{describe} has no records, so there is no seam to continue from; give the chain at=")
    return Seam(by, offsets, 0 if latest is None else latest + 1, topic)


def _add_offsets(offsets: dict[str, int], records: pa.RecordBatch, topic: str | None, describe: str) -> None:
    names = _partitions(records, topic)
    if names.null_count or records.column(OFFSET).null_count:
        raise ConfigError(f"a record of {describe} has no partition or no offset, so the seam cannot be found")
    table = pa.table({"name": names, "offset": records.column(OFFSET)}).group_by("name").aggregate([("offset", "max")])
    for row in table.to_pylist():
        offsets[row["name"]] = max(offsets.get(row["name"], 0), row["offset_max"] + 1)


def _partitions(batch: pa.RecordBatch, topic: str | None) -> pa.Array:
    """Return the names of the partitions of records, such as `orders/3`."""
    topics = batch.column("topic").cast(pa.string()) if topic is None else pa.scalar(topic)
    return pc.binary_join_element_wise(topics, batch.column("partition").cast(pa.string()), pa.scalar("/"))


def check_columns(schema: pa.Schema, wanted: Sequence[str], describe: str) -> None:
    """Raise a `ConfigError` if the history lacks a column that decides."""
    lacking = [name for name in wanted if name not in schema.names]
    if lacking:
        raise ConfigError(
            f"{describe} has no column {', '.join(map(repr, lacking))} to find the seam by; it has "
            f"{', '.join(schema.names)}. Name a time column with by=, or write the offsets of the topic into the history"
        )
