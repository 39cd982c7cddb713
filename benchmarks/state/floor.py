"""The floor without state: a shuffle by key and a `mapInArrow` that passes its rows through.

It is what Spark and Python cost without any state.
"""

from collections.abc import Iterator

import pyarrow as pa
from benchmarks.state import measure, session
from benchmarks.state.generate import SCHEMA


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> None:
    task = measure.task()
    rows = session.read(session.start(task.work), task.input)
    mapped = rows.repartition(2, "key").mapInArrow(passed, SCHEMA)
    task.finish(session.run(task, mapped.writeStream.format("noop").outputMode("append")))


if __name__ == "__main__":
    main()
