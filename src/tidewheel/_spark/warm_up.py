"""Warm up a Spark that has just started: load classes, start Python workers and compile code before the first batch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidewheel._spark.masters import is_local
from tidewheel._spark.partitioning import partitioned

_ROWS = 1000


def warm(spark: SparkSession) -> None:
    """Run a query of the kind that a batch is: a shuffle, and Arrow to Python and back.

    Do nothing on a cluster: its workers have not received the code yet.
    """
    if not is_local(spark.sparkContext.master):
        return
    rows = spark.range(_ROWS).selectExpr(
        "cast(id % 2 as int) as target", "cast(cast(id as string) as binary) as payload"
    )
    partitioned(rows, 2).mapInArrow(lambda batches: batches, rows.schema).collect()
