"""The job that the chaos tests of reference tables kill: each load of its table gives another version.

Run as `python tables_program.py FOLDER`; the folder has `in/` with JSON files and gets everything else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidewheel import Job, RunOptions
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files

USERS = 12


def build(folder: str) -> Job:
    def rows() -> list[dict[str, object]]:
        counter = Path(folder, "loads")
        loads = int(counter.read_text()) + 1 if counter.exists() else 1
        counter.write_text(str(loads))
        # Each version lacks another user.
        return [{"user": f"user-{n}", "load": loads} for n in range(USERS) if n != loads % USERS]

    job = Job("chaos", state=f"file://{folder}/state", n_shards=8, keep=1000)
    source = files(f"{folder}/in", format="json", schema="user string, amount long", max_files_per_trigger=1)
    users = job.table("users", rows, key="user", refresh="batch")
    found = job.source("in", source).lookup("load", users, on="user", how="left").key_by("by-user", "user")
    numbered = found.stateful_map(
        "number", lambda user, row, n: ({"amount": row.amount, "load": row.load, "n": n + 1}, n + 1), default=0
    )
    numbered.sink("out", file_sink(f"{folder}/out", format="json"))
    return job


def main() -> int:
    folder, options = sys.argv[1], dict(item.split("=", 1) for item in sys.argv[2:])
    build(folder).run(
        until="end",
        parallelism=int(options.get("parallelism", 2)),
        options=RunOptions(master="local[2]", local=f"{folder}/local", conf={"spark.driver.memory": "1g"}),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
