"""rate: numbered rows at a steady pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel._connectors.source import Source
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rate(rows_per_second: int, *, partitions: int | None = None, ramp_up: str | None = None) -> Source:
    """Give rows `timestamp`, `value` with the values 0, 1, 2, … at this pace: Spark's rate source, for trials and soaks.

    On replay a batch has the same values and timestamps again. What the clock passed while the job was down is made up
    for in the first batch. Under the trigger "available-now" all of it comes as one batch. `ramp_up`, such as
    "10s", is the time until the pace is reached.
    """
    if rows_per_second < 1:
        raise ConfigError(f"rate needs at least one row per second, not {rows_per_second}")
    return Rate(rows_per_second, partitions, ramp_up)


class Rate(Source):
    """Spark's rate source."""

    def __init__(self, rows_per_second: int, partitions: int | None, ramp_up: str | None) -> None:
        """Take the pace."""
        self.options: dict[str, str] = {"rowsPerSecond": str(rows_per_second)}
        if partitions is not None:
            self.options["numPartitions"] = str(partitions)
        if ramp_up is not None:
            self.options["rampUpTime"] = ramp_up

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").options(**self.options).load()
