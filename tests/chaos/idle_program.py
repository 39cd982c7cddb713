"""A job that waits for time: `python idle_program.py FOLDER [bounded=yes]` counts events in windows of ten seconds."""

from __future__ import annotations

import sys

from tidewheel import Job, RunOptions, count, tumbling
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files


def build(folder: str) -> Job:
    job = Job("idle", state=f"file://{folder}/state", n_shards=8)
    source = files(f"{folder}/in", format="json", schema="user string, at timestamp")
    on_time = job.source("in", source).assign_timestamps("at", "at").limit_out_of_orderness("bound", "1 s")
    late = on_time.late
    windows = on_time.key_by("by-user", "user").window("tens", tumbling("10 s"), n=count())
    windows.sink("out", file_sink(f"{folder}/out", format="json"))
    late.sink("late", file_sink(f"{folder}/late", format="json"))
    return job


def main() -> None:
    folder, options = sys.argv[1], dict(item.split("=", 1) for item in sys.argv[2:])
    build(folder).run(
        until="end" if options.get("bounded") == "yes" else None,
        parallelism=2,
        options=RunOptions(
            tick="100 ms",
            master="local[2]",
            local=f"{folder}/local",
            conf={"spark.driver.memory": "1g"},
            progress=lambda batch: print(f"committed {batch.sequence} rows {batch.rows}", flush=True),
        ),
    )


if __name__ == "__main__":
    main()
