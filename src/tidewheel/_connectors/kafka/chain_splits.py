"""The splits of a chain: parts of its history and of its topic, divided by the seam."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec
from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._connectors.kafka.decoded import decoded_columns, fitted_columns
from tidewheel._connectors.kafka.seam import OFFSET, Seam
from tidewheel._connectors.split import Split, fitted
from tidewheel.errors import ConnectorError


@dataclass(frozen=True)
class HistorySplit(Split):
    """A part of the history, without records from the seam on."""

    inner: Split
    columns: pa.Schema
    seam: Seam

    @property
    def size(self) -> int:  # type: ignore[override]  # it is that of the part
        return self.inner.size

    @property
    def reading(self) -> Any:  # type: ignore[override]  # it is that of the part
        return self.inner.reading

    def read(self) -> Iterator[pa.RecordBatch]:
        for batch in self.inner.read():
            kept = self.seam.of_history(batch)
            if kept.num_rows:
                yield _fitted(kept, self.columns)

    def narrowed(self, names: Collection[str]) -> Split:
        wanted = {*names, *self.seam.columns}
        columns = pa.schema([column for column in self.columns if column.name in names])
        return replace(self, inner=self.inner.narrowed(wanted), columns=columns)


@dataclass(frozen=True)
class TopicSplit(Split):
    """A part of the topic as records of the history, without records before the seam."""

    inner: Split
    columns: pa.Schema
    seam: Seam
    codec: PayloadCodec[Any] | None

    @property
    def size(self) -> int:  # type: ignore[override]  # it is that of the part
        return self.inner.size

    def read(self) -> Iterator[pa.RecordBatch]:
        needed = self.columns
        time = None if self.seam.by == OFFSET else self.seam.by
        if time is not None and time not in needed.names:
            needed = needed.append(pa.field(time, pa.timestamp("us", "UTC")))
        for batch in self.inner.read():
            records = (
                fitted_columns(batch, needed)
                if self.codec is None
                else decoded_columns(batch, self.codec, needed, time)
            )
            kept = self.seam.of_topic(records)
            if kept.num_rows:
                yield _fitted(kept, self.columns)


def _fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return only these columns, and the lines that are not records."""
    try:
        if BAD_LINE in batch.schema.names and BAD_LINE not in columns.names:
            columns = columns.append(batch.schema.field(BAD_LINE))
        return fitted(batch, columns)
    except pa.ArrowInvalid as error:
        raise ConnectorError(f"a record of the history does not fit its columns: {error}") from error
