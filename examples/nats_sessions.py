"""Write each visit to a site once, when its visitor has been inactive for 30 minutes: NATS, sessions, Parquet.

    export NATS=nats://localhost:4222
    python examples/nats_sessions.py
    tidewheel run examples/nats_sessions.py --until end

The second line creates the stream `clicks` and sends the clicks of one day. Parquet files with the visits are in `out/visits`.
"""

import asyncio
import json
import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidewheel import Job, WindowResult, codecs, session, sinks, sources

NATS = os.environ.get("NATS", "nats://localhost:4222")
STREAM = "clicks"
GAP = timedelta(minutes=30)
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Click:
    """The data of one message."""

    visitor: str
    at: datetime
    page: str


@dataclass
class Visit:
    """One row of the files."""

    visitor: str
    begin: datetime
    minutes: int
    pages: int


def add(clicks: list[Any], click: Click) -> list[Any]:
    """Add a click to the list of a visit, as its visitor and its time in seconds."""
    return [*clicks, [click.visitor, click.at.timestamp()]]


def visit(result: WindowResult) -> Visit:
    """Return the row of a visit that has ended."""
    times = sorted(at for _, at in result.value)
    begin = datetime.fromtimestamp(times[0], UTC)
    return Visit(result.value[0][0], begin, round((times[-1] - times[0]) / 60), len(times))


job = Job("nats-sessions")
messages = job.source("clicks", sources.nats(NATS, STREAM, max_records=2_000))
clicks = messages.decode("decode", codecs.json(Click), column="data")
on_time = clicks.event_time("at", max_delay="1 hour")
visits = on_time.key_by("by-visitor", "visitor").window(
    "visits", session(GAP), add, default=list, merge=lambda one, other: one + other
)
visits.map("visit", visit, returns=Visit).sink("out", sinks.files("out/visits"))
on_time.late.sink("late", sinks.files("out/late-clicks", format="json"))
clicks.broken.sink("broken", sinks.files("out/broken-clicks", format="json"))


def day() -> list[dict[str, str]]:
    """Return the clicks of a day, nearly in the order of their times."""
    draw = random.Random(7)
    times = sorted(draw.randrange(24 * 3600) for _ in range(3_000))
    return [
        {
            "visitor": f"visitor-{draw.randrange(40)}",
            "at": (MIDNIGHT + timedelta(seconds=time - draw.randrange(60))).isoformat(),
            "page": draw.choice(["home", "tea", "mugs", "cart"]),
        }
        for time in times
    ]


async def send(clicks: list[dict[str, str]]) -> None:
    """Create the stream and send clicks to it."""
    import nats

    client = await nats.connect(NATS)
    stream = client.jetstream()
    await stream.add_stream(name=STREAM, subjects=[f"{STREAM}.>"])
    for click in clicks:
        await stream.publish(f"{STREAM}.shop", json.dumps(click).encode())
    await client.close()


if __name__ == "__main__":
    asyncio.run(send(day()))
