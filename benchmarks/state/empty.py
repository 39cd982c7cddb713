"""Measure a small batch of Spark without Tidewheel.

`nothing`: a `foreachBatch` with an empty function: no Spark job, only offsets, planning and commit.
`same-query`: the shuffle, the `mapInArrow` and the collect of any keyed batch, without state.
"""

from collections.abc import Iterator

import pyarrow as pa
from benchmarks.state import measure, session
from pyspark.sql import DataFrame


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(b.num_rows for b in batches)]})


def same_query(rows: DataFrame, number: int) -> None:
    rows.repartition(2, "key").mapInArrow(counted, "rows long").collect()


def main() -> None:
    task = measure.task()
    rows = session.read(session.start(task.work), task.input)
    if task.variant == "nothing":
        writer = rows.writeStream.foreachBatch(lambda df, n: None)
    else:
        writer = rows.writeStream.foreachBatch(same_query)
    task.finish(session.run(task, writer))


if __name__ == "__main__":
    main()
