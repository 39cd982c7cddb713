"""NATS, sessions, Parquet: visits to a site, each written when its visitor has not clicked for 30 minutes.

    python examples/nats_sessions.py

starts a NATS server of its own, fills a stream with clicks, runs the job, and compares the files with a count of its own. With
NATS=nats://host:4222 it reads the stream `clicks` that is there, and goes on where it ended.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidewheel import Job, WindowResult, codecs, session
from tidewheel.sinks import console, files
from tidewheel.sources import nats

STREAM = "clicks"
GAP = timedelta(minutes=30)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


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


def add(pages: list[Any], click: Click) -> list[Any]:
    """Add a click to a visit: its visitor, and the times of its clicks."""
    return [*pages, [click.visitor, click.at.timestamp()]]


def visit(result: WindowResult) -> Visit:
    """Return a visit that has ended."""
    times = sorted(at for _, at in result.value)
    begin = datetime.fromtimestamp(times[0], UTC)
    return Visit(result.value[0][0], begin, round((times[-1] - times[0]) / 60), len(times))


def build(server: str, out: str, state: str) -> Job:
    """Return the job: messages become clicks, clicks visits, visits rows."""
    job = Job("nats-sessions", state=state)
    messages = job.source("clicks", nats(server, STREAM, max_records=5_000))
    clicks = messages.decode("decode", codecs.json(Click), column="data")
    broken = clicks.broken
    on_time = clicks.assign_timestamps("at", "at").limit_out_of_orderness("bound", "1 hour")
    late = on_time.late
    (
        on_time.key_by("by-visitor", "visitor")
        .window("visits", session(GAP), add, default=list, merge=lambda one, other: one + other)
        .map("visit", visit, returns=Visit)
        .sink("out", files(out))
    )
    late.sink("late", console())
    broken.sink("broken", console())
    return job


def main(spark: Any = None) -> int:
    """Run the job on the server that is given, or on its own."""
    with ExitStack() as stack:
        server, expected = os.environ.get("NATS"), None
        folder = Path(".cache/nats-sessions").absolute()
        if server is None:
            # Another server has another stream: what is known of the last one is void.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
            from nats_server import running_nats

            running = stack.enter_context(running_nats(folder / "nats", sync="2m"))
            server = running.server
            running.make_stream(STREAM)
            clicks = made_clicks()
            running.send(f"{STREAM}.shop", [json.dumps(click).encode() for click in clicks])
            expected = visits(clicks)
            print(f"started NATS at {server}, with {len(clicks):,} clicks in the stream {STREAM}")
        out = str(folder / "visits")
        result = build(server, out, f"file://{folder}/state").run(
            bounded=True, spark=spark, local=str(folder / "local")
        )
        print(f"{result.event_count:,} clicks read; the visits are in {out}")
        return show(out, expected)


def made_clicks() -> list[dict[str, str]]:
    """Return clicks of a day, nearly in the order of their times."""
    draw = random.Random(7)
    times = sorted(draw.randrange(24 * 3600) for _ in range(3_000))
    return [
        {
            "visitor": f"visitor-{draw.randrange(40)}",
            "at": (BEGIN + timedelta(seconds=at - draw.randrange(60))).isoformat(),
            "page": draw.choice(["home", "tea", "mugs", "cart"]),
        }
        for at in times
    ]


def visits(clicks: list[dict[str, str]]) -> list[tuple[str, datetime, int]]:
    """Return visitor, begin and number of pages of all visits, by a count that knows nothing of Tidewheel."""
    found: list[tuple[str, datetime, int]] = []
    last: dict[str, datetime] = {}
    for click in sorted(clicks, key=lambda click: (click["visitor"], click["at"])):
        visitor, at = click["visitor"], datetime.fromisoformat(click["at"])
        if visitor in last and at - last[visitor] < GAP:
            found[-1] = (*found[-1][:2], found[-1][2] + 1)
        else:
            found.append((visitor, at, 1))
        last[visitor] = at
    return sorted(found)


def show(out: str, expected: list[tuple[str, datetime, int]] | None) -> int:
    """Print what the files hold, and compare it if we know what they must hold."""
    from pyarrow import parquet

    rows = [row for path in sorted(Path(out).glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]
    for row in sorted(rows, key=lambda row: -row["pages"])[:5]:
        print(f"{row['visitor']:>12} {row['begin']:%H:%M} {row['minutes']:4} minutes, {row['pages']} pages")
    print(f"{len(rows)} visits")
    if expected is None:
        return 0
    exact = sorted((row["visitor"], row["begin"], row["pages"]) for row in rows) == expected
    print("the files hold exactly the visits" if exact else "the files are WRONG")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
