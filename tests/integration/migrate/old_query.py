"""The query that is migrated: visits of users, with transformWithState. Arguments: the folders of input and checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

SCHEMA = "user string, page string, cents long"


class Visits(StatefulProcessor):
    """Count and sum up the visits of a user, by page too, and keep the last three amounts."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "n long, cents long")
        self.pages = handle.getMapState("pages", "page string", "n long")
        self.recent = handle.getListState("recent", "cents long")
        self.first = handle.getValueState("first", "page string", ttlDurationMs=3_600_000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, cents = self.total.get() or (0, 0)
        recent = [row[0] for row in self.recent.get()]
        for row in rows:
            n, cents = n + 1, cents + row.cents
            recent = [*recent, row.cents][-3:]
            page = (row.page,)
            before = self.pages.getValue(page)[0] if self.pages.containsKey(page) else 0
            self.pages.updateValue(page, (before + 1,))
            if not self.first.exists():
                self.first.update(page)
        self.total.update((n, cents))
        self.recent.put([(each,) for each in recent])
        yield Row(user=key[0], n=n, cents=cents)

    def close(self) -> None:
        pass


def main(inputs: str, checkpoint: str, partitions: str) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    builder = SparkSession.builder.master(f"local[{partitions}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    visits = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(inputs).groupBy("user")
    totals = visits.transformWithState(Visits(), "user string, n long, cents long", "update", "processingTime")
    writer = totals.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
