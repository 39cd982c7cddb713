"""Tidewheel as a user writes it: `stateful_map` row by row, or `aggregate` by columns."""

from pathlib import Path

from benchmarks.state import measure, session
from benchmarks.state.generate import SCHEMA

from tidewheel import Job, RunOptions, sum_
from tidewheel.sinks import discard
from tidewheel.sources import Source, files


def source(folder: Path) -> Source:
    """Return the source: one file per batch, Parquet, or CSV with a header line."""
    if any(folder.glob("*.csv")):
        return files(str(folder), format="csv", schema=SCHEMA, max_files_per_trigger=1, header=True)
    return files(str(folder), format="parquet", schema=SCHEMA, max_files_per_trigger=1)


def running_sum(folder: Path, state: Path) -> Job:
    job = Job("bench", state=state.as_uri())
    (
        job.source("in", source(folder))
        .key_by("by-key", "key", value="value")
        .stateful_map("sum", lambda key, value, total: (total + value, total + value), default=0)
        .sink("out", discard())
    )
    return job


def aggregate(folder: Path, state: Path) -> Job:
    job = Job("bench", state=state.as_uri())
    (
        job.source("in", source(folder))
        .key_by("by-key", "key")
        .aggregate("sum", total=sum_("value"))
        .sink("out", discard())
    )
    return job


def run(job: Job, local: Path) -> list[measure.Batch]:
    """Run the job over all of its input.

    A batch lasts from the request for new data until the output is visible, like Spark's `triggerExecution`.
    """
    result = job.run(until="end", parallelism=2, options=RunOptions(master="local[2]", local=str(local)))
    return [measure.Batch(b.rows, 1000 * b.seconds, dict(b.durations)) for b in result.batches if b.rows]


def main() -> None:
    task = measure.task()
    session.prepare(task.work)
    program = aggregate if task.variant == "aggregate" else running_sum
    work = task.work.absolute()
    batches = run(program(task.input, work / "state"), work / "copies")
    task.finish(measure.Measurement(batches, task.warmup))


if __name__ == "__main__":
    main()
