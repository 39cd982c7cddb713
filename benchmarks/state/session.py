"""Start Spark for the contenders, and run a query's batches."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
from benchmarks.state.generate import SCHEMA
from benchmarks.state.measure import Batch, Measurement, Task
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}


def prepare(work: Path, extra: Mapping[str, str] | None = None) -> None:
    """Set these settings for the first Spark session that this process creates.

    The environment variable also reaches a program that creates its own session, like Tidewheel's.
    """
    settings = SETTINGS | {"spark.local.dir": str(work / "local")} | dict(extra or {})
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{options} pyspark-shell"
    os.environ["PYSPARK_PYTHON"] = sys.executable


def start(work: Path, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session with the common settings and those that help this contender."""
    prepare(work, extra)
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read(spark: SparkSession, folder: Path, schema: str = SCHEMA) -> DataFrame:
    """Return the input as a stream, one file per batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(task: Task, writer: DataStreamWriter, chosen: str = "") -> Measurement:
    """Run the query over all of the input, or until the task's limit is reached.

    `chosen` names the settings that were chosen for this contender.
    """
    notes = [chosen] if chosen else []
    checkpoint = str(task.work / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    begun = time.monotonic()
    if query.awaitTermination(round(task.limit)):
        return Measurement(_batches(query), task.warmup, notes)
    seconds = time.monotonic() - begun
    # Read before the stop, which can take long; an unfinished batch is dropped.
    batches = _batches(query)
    notes.append(f"stopped after {seconds:.0f} s with {len(batches)} batches done")
    if not batches:
        notes.append("its first batch is counted as if it had ended then, which flatters it")
        first = min(task.input.glob("*.parquet"))
        batches = [Batch(pq.read_metadata(first).num_rows, 1000 * seconds)]
    elif len(batches) <= task.warmup:
        notes.append("no batch after warm-up was done, so the last one counts")
    return Measurement(batches, task.warmup, notes)


def _batches(query: StreamingQuery) -> list[Batch]:
    # Do not select by rows: an empty foreachBatch reads none. A trigger without data has no addBatch.
    return [
        Batch(p.numInputRows, p.durationMs["triggerExecution"], dict(p.durationMs))
        for p in query.recentProgress
        if "addBatch" in p.durationMs
    ]
