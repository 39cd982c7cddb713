"""Find the visits to a site: a visit ends when its visitor has not clicked for 30 minutes. Repeated clicks count once.

python examples/sessions.py
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidewheel import Job, WindowResult, session
from tidewheel.sinks import console
from tidewheel.sources import iterable

QUIET = timedelta(minutes=30)


@dataclass
class Click:
    """One record of the source; `id` is the same when a click is sent again."""

    id: int
    visitor: str
    at: datetime
    page: str


def click(id: int, clock: str, visitor: str, page: str) -> Click:
    """Return a click on 1 January 2026."""
    return Click(id, visitor, datetime.fromisoformat(f"2026-01-01 {clock}").replace(tzinfo=UTC), page)


CLICKS = [
    click(1, "09:00", "ada", "home"),
    click(2, "09:10", "ada", "tea"),
    click(3, "09:05", "bob", "home"),
    click(2, "09:10", "ada", "tea"),
    click(4, "09:25", "ada", "cart"),
    click(6, "10:30", "ada", "home"),
    click(5, "10:20", "bob", "mugs"),
    click(7, "10:45", "bob", "cart"),
]


def line(visit: WindowResult) -> str:
    """Return a visit as text."""
    minutes = (visit.end - visit.start - QUIET) // timedelta(minutes=1)
    return f"{visit.start:%H:%M}, {minutes} minutes: {' > '.join(page for _, page in sorted(visit.value))}"


def add(pages: list[Any], click: Click) -> list[Any]:
    """Add a click to a visit."""
    return [*pages, [click.id, click.page]]


job = Job("visits")
clicks = job.source("clicks", iterable(CLICKS, batch_size=2))
on_time = clicks.event_time("at", max_delay="15 minutes")
(
    on_time.key_by("by-visitor", "visitor")
    .deduplicate("once", "1 hour", by=lambda click: click.id)
    .window("visits", session(QUIET), add, default=list, merge=lambda one, other: one + other)
    .map("line", line, returns=str)
    .sink("out", console())
)
on_time.late.sink("late", console())

if __name__ == "__main__":
    job.run(until="end")
