"""Send each order to the sink of its country, and all other orders to a third one.

tidewheel run examples/routes.py --until caught-up
"""

from dataclasses import dataclass
from pathlib import Path

from tidewheel import Job, sinks, sources

DATA = Path(__file__).parent / "data"


@dataclass
class Order:
    """The fields of an order that this program reads."""

    id: int
    country: str
    cents: int


job = Job("routes")
by_country = job.source("orders", sources.files(f"{DATA}/orders"), type=Order).branch(
    "country",
    dutch=lambda order: order.country == "NL",
    german=lambda order: order.country == "DE",
    other=lambda order: order.country not in ("NL", "DE"),
)
by_country.dutch.sink("dutch-out", sinks.files("out/dutch", format="json"))
by_country.german.sink("german-out", sinks.files("out/german", format="json"))
by_country.other.sink("other-out", sinks.files("out/other", format="json"))
