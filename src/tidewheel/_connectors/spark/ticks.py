"""ticks: the clock as a source, so that batches come while every other source is quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from tidewheel._connectors.source import Source
from tidewheel._connectors.stream_reader import DataSource, InputPartition, ReadLimit, StreamReader
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "tidewheel-ticks"
COLUMN = "tick"
_SCHEMA = pa.schema([(COLUMN, pa.int64())])


def ticks(seconds: float) -> Source:
    """Give a row `tick`, the number of intervals since 1970, when an interval has passed since the last one.

    A batch has one row at most, the newest tick, however long it took: who was down for a week is not owed 600,000 rows.
    On replay a batch has the same tick again. Under the trigger "available-now" there is one tick at most.
    """
    if seconds <= 0:
        raise ConfigError(f"a tick needs an interval above 0, not {seconds} seconds")
    return Ticks(seconds)


class Ticks(Source):
    """The clock."""

    def __init__(self, seconds: float) -> None:
        """Take the interval."""
        self.seconds = seconds

    def load(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(TickStream)
        return spark.readStream.format(NAME).option("seconds", str(self.seconds)).load()


class TickStream(DataSource):
    """The data source that Spark knows by its name."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the one column."""
        return f"{COLUMN} bigint"

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader."""
        return TickReader(float(self.options["seconds"]))


class TickReader(StreamReader):
    """Offsets are ticks; a batch's row depends on its end only, which Spark records before the batch runs."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        """Take the interval."""
        self.seconds, self.clock = seconds, clock
        self._last: int | None = None

    def _now(self) -> int:
        return int(self.clock() // self.seconds)

    def initialOffset(self) -> dict[str, int]:
        """Begin before all time: Spark asks again when the first batch runs again, and must get the same answer."""
        return {COLUMN: 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Let no tick after this one come."""
        self._last = self._now()

    def batch_end(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the newest tick; a clock that was set back gives none until it has caught up."""
        return {COLUMN: max(start[COLUMN], self._now() if self._last is None else self._last)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the one row, as a partition."""
        return [InputPartition(end[COLUMN])] if end[COLUMN] > start[COLUMN] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the row."""
        yield pa.RecordBatch.from_arrays([pa.array([partition.value], pa.int64())], schema=_SCHEMA)
