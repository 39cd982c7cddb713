"""Streams read to their end, batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import spark_partition_id


class Reading:
    """A query over a source that keeps what each batch had; a second run goes on from its checkpoint."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.partitions: dict[int, int] = {}

    def run(self, source: Any) -> list[list[dict[str, Any]]]:
        """Read all there is; return the batches of this run."""
        before = len(self.batches)
        frame = source.load(self.session)

        def on_batch(rows: Any, number: int) -> None:
            found = [row.asDict(recursive=True) for row in rows.withColumn("task", spark_partition_id()).collect()]
            self.partitions[number] = len({row.pop("task") for row in found})
            self.batches[number] = found

        query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return [self.batches[number] for number in sorted(self.batches)[before:]]

    def forget_commit(self, batch: int) -> None:
        """Make Spark run a batch again, as if the process had died before the commit."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def reading(spark: Any, tmp_path: Path) -> Reading:
    return Reading(spark, tmp_path)
