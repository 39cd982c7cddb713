"""dataframe: any streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidewheel._connectors.source import FunctionSource, Source
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dataframe(function: Callable[[SparkSession], DataFrame]) -> Source:
    """Take whatever streaming DataFrame a function makes from the Spark session: Kafka, Delta, a source of your own.

    Replay is what that source does: a batch that was not committed is read again by the offsets that Spark recorded for
    it. A source that cannot give the same rows for the same offsets (a socket) makes the job at most as exact as it is.

        job.source("events", dataframe(lambda spark: spark.readStream.format("kafka").options(**settings).load()))
    """
    if not callable(function):
        raise ConfigError(
            f"dataframe takes a function from a Spark session to a streaming DataFrame, not {type(function).__name__}"
        )
    return FunctionSource(function)
