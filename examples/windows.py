"""The three best-selling products of every ten minutes: tumbling windows, late sales set apart, top-n per window.

    python examples/windows.py

Sales come out of order. Up to five minutes behind the latest one they count; what comes later is shown apart.
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
    """Return a sale at a time of the first day of the year."""
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
    """Add a sale to what its product sold in the window."""
    return [sale.product, sold[1] + sale.pieces]


def keep_best(best: list[Any], result: WindowResult) -> list[Any]:
    """Keep the products that sold best, of those whose window has ended."""
    return sorted([*best, result.value], key=lambda sold: (-sold[1], sold[0]))[:TOP]


def line(result: WindowResult) -> str:
    """Return a window as text."""
    names = ", ".join(f"{product} {pieces}" for product, pieces in result.value)
    return f"{result.start:%H:%M} to {result.end:%H:%M}: {names}"


job = Job("best-sellers", state="file:.cache/examples/windows")
sales = job.source("sales", iterable(SALES, batch_size=3)).assign_timestamps("at", "at")
on_time = sales.limit_out_of_orderness("bound", "5 min")
late = on_time.late
ten_minutes = tumbling("10 min")
(
    on_time.key_by("by-product", "product")
    .window("sold", ten_minutes, add_up, default=["", 0])
    .key_by("by-window", lambda result: result.start.isoformat())
    .window("best", ten_minutes, keep_best, default=list)
    .map("line", line, returns=str)
    .sink("out", console())
)
late.map("late-line", lambda sale: f"too late: {sale.product} {sale.pieces}", returns=str).sink("late", console())

if __name__ == "__main__":
    job.run(bounded=True)
