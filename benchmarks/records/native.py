"""Spark's stateful step over the same records: `transformWithState` (Row), RocksDB, changelog checkpoints."""

from benchmarks.records.generate import SCHEMA
from benchmarks.state import measure, session
from benchmarks.state.generate import SCHEMA as SUMS
from benchmarks.state.native import CHOSEN, SETTINGS, RunningSum


def main() -> None:
    task = measure.task()
    spark = session.start(task.work, SETTINGS)
    rows = session.read(spark, task.input, SCHEMA)
    summed = rows.groupBy("tail").transformWithState(RunningSum("delay"), SUMS, "Update", "None")
    task.finish(session.run(task, summed.writeStream.format("noop").outputMode("update"), CHOSEN))


if __name__ == "__main__":
    main()
