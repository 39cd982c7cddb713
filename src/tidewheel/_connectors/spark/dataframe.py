"""dataframe: any streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidewheel._connectors.source import FunctionSource, Source
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dataframe(function: Callable[[SparkSession], DataFrame]) -> Source:
    """Read the streaming DataFrame that a function of the Spark session returns: Kafka, Delta, or any other source of Spark.

    A batch that was not committed is read again with the offsets that Spark recorded for it. The job is exactly once only
    if the source returns the same rows for the same offsets; a socket, for example, does not.

        job.source("events", dataframe(lambda spark: spark.readStream.format("kafka").options(**settings).load()))
    """
    if not callable(function):
        raise ConfigError(
            f"dataframe needs a function from a Spark session to a streaming DataFrame, not {type(function).__name__}"
        )
    return FunctionSource(function)
