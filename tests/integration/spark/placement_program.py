"""Say on which worker the tasks of a cluster run: `placement_program.py MASTER SETTINGS`."""

from __future__ import annotations

import json
import os
import sys
import time

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidewheel._spark.partitioning import partitioned
from tidewheel._spark.placement import Placement
from tidewheel._spark.session import session
from tidewheel._spark.shipping import ship


def worker() -> str:
    return os.environ["TIDEWHEEL_LOCAL"]


def reported(batches):
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"task": [TaskContext.get().partitionId()], "worker": [worker()]})


def shuffled(spark: SparkSession, placement: Placement, hosts: list[str]) -> list[str]:
    rows = spark.range(0, 100, 1, 2).selectExpr(f"cast(id % {len(hosts)} as int) as target", "id")
    frame = placement.placed(partitioned(rows, len(hosts)).sortWithinPartitions("id"), hosts)
    return [row.worker for row in sorted(frame.mapInArrow(reported, "task long, worker string").collect())]


def main() -> None:
    spark = session(sys.argv[1], json.loads(sys.argv[2]))
    ship(spark)
    placement, executors = Placement(spark), 3
    while sum(placement._executors().values()) < executors:
        time.sleep(0.05)
    for tasks in (2, 5):
        hosts = placement.hosts(tasks)
        for _ in range(2):
            plain = spark.sparkContext.runJob(placement.partitions(tasks, hosts), lambda rows: [worker() for _ in rows])
            found = [hosts, plain, shuffled(spark, placement, hosts), placement.queues(hosts)]
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
