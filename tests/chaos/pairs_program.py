"""The job that the tests of pairs kill: a Kafka topic, running totals by user, and PostgreSQL or a Delta table.

Run as `python pairs_program.py FOLDER pair=postgres|delta brokers=… topic=… target=… [option=value …]`; the
folder gets the state.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import msgspec

from tidewheel import Job, count, sum_
from tidewheel.errors import TidewheelError
from tidewheel.sinks import delta, postgres
from tidewheel.sources import kafka


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
    return msgspec.json.decode(message.value, type=Payment)


def running(user: str, payment: Payment, state: list[int]) -> tuple[Numbered, list[int]]:
    """Number each user's payments and keep a running sum."""
    n, total = (state or [0, 0])[0] + 1, (state or [0, 0])[1] + payment.amount
    return Numbered(user, n, total), [n, total]


def build(folder: str, options: dict[str, str]) -> Job:
    job = Job("pairs", state=f"file://{folder}/state", n_shards=8)
    source = kafka(options["brokers"], options["topic"], max_records=int(options["max_records"]))
    users = job.source("in", source).map("parse", parse).key_by("by-user", "user")
    numbered = users.stateful_map("number", running, default=list)
    if options["pair"] == "delta":
        numbered.sink("numbered", delta(options["target"]))
        return job
    server = options["target"]
    numbered.sink("numbered", postgres(server, "numbered", create=True))
    totals = users.aggregate("totals", total=sum_("amount"), n=count())
    totals.sink("totals-out", postgres(server, "totals", mode="latest", key="user", create=True))
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
            conf={
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": os.environ["TEST_JAVA_OPTIONS"],
            },
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
