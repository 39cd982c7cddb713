"""The job that the tests of pairs kill: a topic or stream, running totals by user, and a sink.

Run as `python pairs_program.py FOLDER pair=kafka|postgres|delta|lakes|nats server=… topic=… target=… max_records=…`; the folder
gets the state. The pair `lakes` takes `merged=…` and `catalog=…` too: one job appends to a Delta table, merges into another,
and appends to an Iceberg table of the catalog with these properties, in JSON.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import msgspec
import pyarrow.compute as pc

from tidewheel import Job, RunOptions, count, sinks, sources, sum_
from tidewheel.errors import TidewheelError

REMOVED_BITS = 7
"""A payment whose number has none of these bits removes the user's row from the merged table."""


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
    return msgspec.json.decode(message.data if hasattr(message, "data") else message.value, type=Payment)


def running(user: str, payment: Payment, state: list[int]) -> tuple[Numbered, list[int]]:
    """Number each user's payments and keep a running sum."""
    n, total = (state or [0, 0])[0] + 1, (state or [0, 0])[1] + payment.amount
    return Numbered(user, n, total), [n, total]


def source(pair: str, server: str, topic: str, max_records: int):
    if pair == "nats":
        # One task: the running sums depend on the order of a user's payments.
        return sources.nats(server, topic, max_records=max_records, tasks=1)
    return sources.kafka(server, topic, max_records=max_records)


def sink(pair: str, server: str, target: str):
    if pair == "nats":
        return sinks.nats(server, target)
    if pair == "kafka":
        return sinks.kafka(server, target, key="user", marker_topic=f"{target}-markers")
    return sinks.delta(target) if pair == "delta" else sinks.postgres(target, "numbered", create=True)


def build(folder: str, options: dict[str, str]) -> Job:
    pair, server, target = options["pair"], options["server"], options["target"]
    job = Job("pairs", state=f"file://{folder}/state", n_shards=8)
    payments = job.source("in", source(pair, server, options["topic"], int(options["max_records"])))
    users = payments.map("parse", parse).key_by("by-user", "user")
    numbered = users.stateful_map("number", running, default=list)
    if pair == "lakes":
        catalog = msgspec.json.decode(options["catalog"])
        removed = pc.bit_wise_and(pc.field("n"), REMOVED_BITS) == 0
        numbered.sink("numbered", sinks.delta(target, compact="20 s"))
        numbered.sink("current", sinks.delta(options["merged"], mode="merge", key="user", delete=removed))
        numbered.sink("iced", sinks.iceberg("pairs.numbered", catalog=catalog, compact="20 s"))
        return job
    numbered.sink("numbered", sink(pair, server, target))
    if pair == "postgres":
        totals = users.aggregate("totals", total=sum_("amount"), n=count())
        totals.sink("totals-out", sinks.postgres(target, "totals", mode="latest", key="user", create=True))
    return job


def main() -> int:
    folder, options = sys.argv[1], dict(item.split("=", 1) for item in sys.argv[2:])
    try:
        result = build(folder, options).run(
            until="caught-up",
            parallelism=2,
            options=RunOptions(
                restarts=5,
                master="local[2]",
                local=f"{folder}/local",
                conf={"spark.driver.memory": "1g"},
                progress=lambda batch: print(f"committed {batch.sequence} rows {batch.rows}", flush=True),
            ),
        )
    except TidewheelError as error:
        # Spark's own words have the cause in them, far below the first line.
        print(f"{type(error).__name__}: {error}\n{error.__context__}", file=sys.stderr, flush=True)
        return 3
    print(f"done {result.sequence} events {result.event_count}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
