"""Spark's own stateful operator over the same records: `transformWithState` (Row), RocksDB, changelog checkpoints."""

from collections.abc import Iterator
from typing import Any

from benchmarks.records.generate import SCHEMA
from benchmarks.state import measure, session
from benchmarks.state.native import CHOSEN, SETTINGS
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Delays(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("sum", "v long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.total.get()
        total = found[0] if found else 0
        for row in rows:
            total += row.delay
            yield Row(tail=key[0], total=total)
        self.total.update((total,))

    def close(self) -> None:
        pass


def main() -> None:
    task = measure.task()
    spark = session.start(task.work, SETTINGS)
    rows = session.read(spark, task.input, SCHEMA)
    summed = rows.groupBy("tail").transformWithState(Delays(), "tail string, total long", "Update", "None")
    task.finish(session.run(task, summed.writeStream.format("noop").outputMode("update"), CHOSEN))


if __name__ == "__main__":
    main()
