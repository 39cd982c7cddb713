"""Keep going when records are broken: lines that do not decode and records that a function fails on go to files.

    tidewheel run examples/broken_records.py --until caught-up

`out/unreadable` has the lines that are not payments, `out/dead` the payment of no pieces, with the error and its line.
"""

from dataclasses import dataclass
from pathlib import Path

from tidewheel import Job, codecs, sinks, sources

DATA = Path(__file__).parent / "data"


@dataclass
class Payment:
    """One line of a file."""

    user: str
    cents: int
    pieces: int


def price(payment: Payment) -> float:
    """Return the price of one piece."""
    return payment.cents / payment.pieces


job = Job("broken-records")
job.dead_letter("dead", sinks.files("out/dead", format="json"))
lines = job.source("lines", sources.files(f"{DATA}/lines", format="text"))
payments = lines.decode("payments", codecs.json(Payment))
payments.map("price", price).sink("out", sinks.files("out/prices", format="json"))
payments.broken.sink("unreadable", sinks.files("out/unreadable", format="json"))
