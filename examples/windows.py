"""Find the three best-selling products of every ten minutes: a window for each product, then the best of each window.

    python examples/windows.py

Sales arrive out of order. A sale counts if it is at most five minutes older than the latest one; later ones are printed
as too late.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidewheel import Job, WindowResult, tumbling
from tidewheel.sinks import console
from tidewheel.sources import iterable

TOP = 3


@dataclass
class Sale:
    """One record of the source."""

    at: datetime
    product: str
    pieces: int


def sale(clock: str, product: str, pieces: int) -> Sale:
    """Return a sale on 1 January 2026."""
    return Sale(datetime.fromisoformat(f"2026-01-01 {clock}").replace(tzinfo=UTC), product, pieces)


SALES = [
    sale("10:00", "tea", 2),
    sale("10:04", "mug", 1),
    sale("10:03", "tea", 3),
    sale("10:09", "pot", 2),
    sale("10:08", "jam", 1),
    sale("10:12", "mug", 4),
    sale("10:07", "mug", 1),
    sale("10:19", "tea", 1),
    sale("10:02", "pot", 9),
    sale("10:31", "tea", 5),
]


def add_up(sold: list[Any], sale: Sale) -> list[Any]:
    """Add a sale to the pieces of its product in the window."""
    return [sale.product, sold[1] + sale.pieces]


def keep_best(best: list[Any], result: WindowResult) -> list[Any]:
    """Add a product to the best of its window, and keep the first three."""
    return sorted([*best, result.value], key=lambda sold: (-sold[1], sold[0]))[:TOP]


def line(result: WindowResult) -> str:
    """Return a window as text."""
    names = ", ".join(f"{product} {pieces}" for product, pieces in result.value)
    return f"{result.start:%H:%M} to {result.end:%H:%M}: {names}"


job = Job("best-sellers")
sales = job.source("sales", iterable(SALES, batch_size=3))
on_time = sales.event_time("at", max_delay="5 minutes")
ten_minutes = tumbling("10 min")
(
    on_time.key_by("by-product", "product")
    .window("sold", ten_minutes, add_up, default=["", 0])
    .key_by("by-window", lambda result: result.start.isoformat())
    .window("best", ten_minutes, keep_best, default=list)
    .map("line", line, returns=str)
    .sink("out", console())
)
on_time.late.map("late-line", lambda sale: f"too late: {sale.product} {sale.pieces}", returns=str).sink(
    "late", console()
)

if __name__ == "__main__":
    job.run(until="end")
