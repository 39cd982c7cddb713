"""A Spark that has just started, made ready for a batch: classes, Python workers and compiled code are there when it comes."""

from __future__ import annotations

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidewheel._connectors.memory.iterable import iterable
from tidewheel._spark.masters import is_local
from tidewheel._spark.partitioning import partitioned

_ROWS = 1000


def warm(spark: SparkSession) -> None:
    """Run a query of the kind that a job is: a Python source, `foreachBatch`, a shuffle, Arrow to Python and back.

    Only where tasks run in this Spark: elsewhere they have no code yet.
    """
    if not is_local(spark.sparkContext.master):
        return

    def batch(rows: DataFrame, _: int) -> None:
        wire = rows.selectExpr(
            "cast(value % 2 as int) as target", "1 as edge", "cast(cast(value as string) as binary) as payload"
        )
        partitioned(wire, 2, F.col("target")).mapInArrow(lambda batches: batches, wire.schema).collect()

    source = iterable(range(_ROWS), batch_size=_ROWS // 2)
    with tempfile.TemporaryDirectory(prefix="tidewheel-warm-") as folder:
        writer = source.load(spark).writeStream.foreachBatch(batch)
        writer.option("checkpointLocation", f"file://{folder}").trigger(availableNow=True).start().awaitTermination()
