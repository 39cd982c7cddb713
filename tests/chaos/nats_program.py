"""The job that the test of NATS kills: a JetStream stream, running totals by user, and another stream.

Run as `python nats_program.py FOLDER server=… stream=… subject=… max_records=…`; the folder gets the state.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import msgspec

from tidewheel import Job
from tidewheel.errors import TidewheelError
from tidewheel.sinks import nats as nats_sink
from tidewheel.sources import nats


@dataclass
class Payment:
    user: str
    amount: int


@dataclass
class Numbered:
    user: str
    n: int
    total: int


def parse(message) -> Payment:
    return msgspec.json.decode(message.data, type=Payment)


def running(user: str, payment: Payment, state: list[int]) -> tuple[Numbered, list[int]]:
    """Number each user's payments and keep a running sum."""
    n, total = (state or [0, 0])[0] + 1, (state or [0, 0])[1] + payment.amount
    return Numbered(user, n, total), [n, total]


def build(folder: str, options: dict[str, str]) -> Job:
    job = Job("nats", state=f"file://{folder}/state", n_shards=8)
    # One task: the running sums depend on the order of a user's payments.
    source = nats(options["server"], options["stream"], max_records=int(options["max_records"]), tasks=1)
    users = job.source("in", source).map("parse", parse).key_by("by-user", "user")
    numbered = users.stateful_map("number", running, default=list)
    numbered.sink("numbered", nats_sink(options["server"], options["subject"]))
    return job


def main() -> int:
    folder, options = sys.argv[1], dict(item.split("=", 1) for item in sys.argv[2:])
    try:
        result = build(folder, options).run(
            trigger="available-now",
            # Spark gives a worker ten seconds to start, which a machine that does other things as well may exceed.
            restarts=5,
            parallelism=2,
            master="local[2]",
            local=f"{folder}/local",
            conf={"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": os.environ["TEST_JAVA_OPTIONS"]},
            progress=lambda batch: print(f"committed {batch.sequence} rows {batch.rows}", flush=True),
        )
    except TidewheelError as error:
        # Spark's own words have the cause in them, far below the first line.
        print(f"{type(error).__name__}: {error}\n{error.__context__}", file=sys.stderr, flush=True)
        return 3
    print(f"done {result.sequence} events {result.event_count}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
