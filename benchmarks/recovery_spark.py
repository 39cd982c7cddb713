"""The job of `recovery.py` as a query of Spark: `transformWithState`, RocksDB with changelog checkpoints, two partitions.

    python -m benchmarks.recovery_spark FOLDER [--until caught-up] [--repartition 3]

It prints `committed BATCH MS` after each batch: how long Spark took to record that the batch is committed, after its tasks had
uploaded their state. Its checkpoint is in a local folder, because the `pyspark` package has no file system for S3.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.state import session
from benchmarks.state.native import SETTINGS
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

_POLL_S = 0.01


class Keep(StatefulProcessor):
    """Replace the state of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("kept", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.kept.update((row.value,))
            yield Row(key=key[0])

    def close(self) -> None:
        pass


def main() -> None:
    """Run the query and print each commit, or repartition its state."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--until")
    parser.add_argument("--repartition", type=int)
    given = parser.parse_args()
    checkpoint = str(given.folder / "checkpoint")
    spark = session.start(given.folder, SETTINGS)
    if given.repartition is not None:
        spark._streamingCheckpointManager.repartition(checkpoint, given.repartition, False)
        return
    rows = session.read(spark, given.folder / "in", "key long, value binary").groupBy("key")
    kept = rows.transformWithState(Keep(), "key long", "Update", "None").writeStream.format("noop")
    kept = kept.outputMode("update").option("checkpointLocation", checkpoint)
    query = (kept.trigger(availableNow=True) if given.until else kept).start()
    printed = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress.batchId > printed and "commitOffsets" in progress.durationMs:
            printed = progress.batchId
            print(f"committed {printed} {progress.durationMs['commitOffsets']}", flush=True)
        time.sleep(_POLL_S)
    query.awaitTermination()


if __name__ == "__main__":
    main()
