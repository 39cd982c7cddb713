"""Run the same count by user in Spark's Real-Time Mode, until stopped: `python -m benchmarks.latency.realtime URL WORK JARS`.

Real-Time Mode is at least once. From Python, it counts with `groupBy`, which runs in the JVM: none of the steps that Real-Time
Mode allows runs a Python function, neither `transformWithState` with a Python processor nor a UDF.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    url, work, jars = sys.argv[1:]
    state = "spark.sql.streaming.stateStore"
    spark = (
        # All stages run at the same time: one task reads the topic, two count.
        SparkSession.builder.master("local[3]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", jars)
        .config("spark.sql.shuffle.partitions", "2")
        .config(f"{state}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config(f"{state}.rocksdb.changelogCheckpointing.enabled", "true")
        .config(f"{state}.checkpointFormatVersion", "2")
        .getOrCreate()
    )
    kafka = {"kafka.bootstrap.servers": url}
    lines = spark.readStream.format("kafka").options(**kafka, subscribe="in", startingOffsets="earliest").load()
    events = lines.select(F.from_json(F.col("value").cast("string"), "user string, sent long").alias("event"))
    totals = events.groupBy("event.user").agg(F.count("*").alias("total"), F.max("event.sent").alias("sent"))
    results = totals.select(F.to_json(F.struct("total", "sent")).alias("value"))
    writer = results.writeStream.format("kafka").options(**kafka, topic="out", checkpointLocation=f"{work}/checkpoint")
    writer.outputMode("update").trigger(realTime="5 seconds").start().awaitTermination()


if __name__ == "__main__":
    main()
