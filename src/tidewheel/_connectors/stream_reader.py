"""Readers of Python data sources, for every version of Spark 4.

Since 4.2 Spark tells a reader where a batch begins and how much it may take. Older versions ask for the newest offset alone: a
batch then takes all there is, and limits on its size are not kept.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:
        HAS_LIMITS = False

        class ReadLimit: ...

        class ReadAllAvailable(ReadLimit): ...

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        class SupportsTriggerAvailableNow: ...


__all__ = [
    "HAS_LIMITS",
    "DataSource",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamReader",
]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that says where a batch ends. The same offsets give the same records."""

    @abstractmethod
    def batch_end(self, start: Any, limit: ReadLimit) -> Any:
        """Return where the batch that begins at `start` ends; `start` itself if there is nothing new."""

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> Any:
        """Return the end of the next batch, or of all there is where Spark does not say where the batch begins."""
        if start is None or limit is None:
            return self.batch_end(self.initialOffset(), ReadAllAvailable())
        return self.batch_end(start, limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let nothing come that is not there now."""
