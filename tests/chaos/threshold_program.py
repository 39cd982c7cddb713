"""A job that compares records with a cell that changes while it runs: `python threshold_program.py FOLDER`."""

from __future__ import annotations

import sys

from tidewheel import Job, RunOptions
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files


def build(folder: str) -> Job:
    job = Job("judged", state=f"file://{folder}/state", n_shards=8, keep=1000)
    threshold = job.cell("threshold", int, default=0)

    def judged(user: str, amount: int, n: int) -> tuple[dict[str, int], int]:
        return {"amount": amount, "threshold": threshold.value, "n": n + 1}, n + 1

    source = files(f"{folder}/in", format="json", schema="user string, amount long", max_files_per_trigger=1)
    judging = job.source("in", source).map("early", lambda record: {**record._asdict(), "early": threshold.value})
    keyed = judging.key_by("by-user", lambda record: record["user"])
    keyed.stateful_map(
        "judge",
        lambda user, record, n: ({**judged(user, record["amount"], n)[0], "early": record["early"]}, n + 1),
        default=0,
    ).sink("out", file_sink(f"{folder}/out", format="json"))
    return job


if __name__ == "__main__":
    folder = sys.argv[1]
    build(folder).run(
        until="end",
        parallelism=2,
        options=RunOptions(
            master="local[2]",
            local=f"{folder}/local",
            conf={"spark.driver.memory": "1g"},
            progress=lambda batch: print(f"committed {batch.sequence}", flush=True),
        ),
    )
    print("done", flush=True)
