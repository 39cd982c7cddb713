"""Reads topics through Spark's own Kafka connector, in a JVM that has its jars.

Run as `python spark_connector_program.py JARS JAVA_OPTIONS`. Each line of its input is a run of a job, as JSON: brokers, topic,
folder of the job, settings of the source. Each is answered by a line: the values that were read, or what stopped the job.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tidewheel import Job, sinks, sources
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._spark.session import session
from tidewheel._storage import open_store
from tidewheel._testing.plugin import SETTINGS
from tidewheel.errors import TidewheelError


def read(spark: Any, brokers: str, topic: str, folder: str, settings: dict[str, Any]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    job = Job("reading", state=f"file://{folder}/state", n_shards=4)
    source = sources.kafka(brokers, topic, **settings)
    job.source("in", source).sink("out", sinks.collect(rows))
    try:
        job.run(trigger="available-now", spark=spark, local=f"{folder}/local")
    except TidewheelError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    head = StreamCheckpoints(open_store(job.state), job.name).latest()
    assert head is not None
    return {
        "columns": sorted(rows[0]) if rows else [],
        "values": [row["value"].decode() for row in rows],
        "unread": sum(left.rows for left in source.unread(head.source_offsets["in"]).values()),
        "all": sum(left.rows for left in source.unread(json.dumps({topic: {"0": 0, "1": 0}})).values()),
    }


def main() -> None:
    (jars,) = sys.argv[1:]
    spark = session("local[2]", {**SETTINGS, "spark.jars": jars})
    for line in sys.stdin:
        print(json.dumps(read(spark, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
