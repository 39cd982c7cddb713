"""Spark's stateful step: `transformWithState` (Row), RocksDB, changelog checkpoints."""

from collections.abc import Iterator
from typing import Any

from benchmarks.state import measure, session
from benchmarks.state.generate import SCHEMA
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{ROCKSDB}.changelogCheckpointing.enabled": "true",
    # Counting rows reads before each write; the count is not needed.
    f"{ROCKSDB}.trackTotalNumberOfRows": "false",
}
CHOSEN = "RocksDB, changelog checkpoints, no row counts"


class RunningSum(StatefulProcessor):
    """The running sum for each row: a row with the key and the sum."""

    def __init__(self, column: str) -> None:
        self.column = column

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("sum", "v long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.total.get()
        total = found[0] if found else 0
        for row in rows:
            total += row[self.column]
            yield Row(key=key[0], value=total)
        self.total.update((total,))

    def close(self) -> None:
        pass


def main() -> None:
    task = measure.task()
    rows = session.read(session.start(task.work, SETTINGS), task.input)
    summed = rows.groupBy("key").transformWithState(RunningSum("value"), SCHEMA, "Update", "None")
    task.finish(session.run(task, summed.writeStream.format("noop").outputMode("update"), CHOSEN))


if __name__ == "__main__":
    main()
