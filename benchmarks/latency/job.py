"""The job that is measured, until it is told to stop: `python -m benchmarks.latency.job SYSTEM URL WORK IN_DRIVER`."""

import sys
from dataclasses import dataclass
from typing import Any

from tidewheel import Job, RunOptions, codecs, sinks, sources


@dataclass
class Event:
    """A message, and when it was sent, in ns since 1970."""

    user: str
    sent: int


def count(user: str, event: Event, total: int) -> tuple[dict[str, Any], int]:
    """Count the events of a user; return the count with the time of the event."""
    return {"total": total + 1, "sent": event.sent}, total + 1


def main() -> None:
    system, url, work = sys.argv[1:]
    job = Job("latency", state=f"file://{work}/state", n_shards=16)
    if system == "nats":
        source, column, sink = sources.nats(url, "in", tasks=2), "data", sinks.nats(url, "out.totals")
    else:
        source, column, sink = sources.kafka(url, "in"), "value", sinks.kafka(url, "out")
    events = job.source("in", source).decode("json", codecs.json(Event), column=column)
    broken = events.broken
    broken.sink("broken", sinks.discard())
    events.key_by("by-user", "user").stateful_map("count", count, default=0).sink("out", sink)
    job.run(parallelism=2, options=RunOptions(master="local[2]", local=f"{work}/copies"))


if __name__ == "__main__":
    main()
