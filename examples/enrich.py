"""Add the name and the price without tax of each product, from a CSV file that may change while the job runs.

    tidewheel run examples/enrich.py --until caught-up

`docs/howto-enrich.md` shows other kinds of tables.
"""

from dataclasses import dataclass
from pathlib import Path

from tidewheel import Job, Row, sinks, sources

DATA = Path(__file__).parent / "data"


@dataclass
class Order:
    """The fields of an order that this program reads."""

    id: int
    product: str
    cents: int


@dataclass
class Line:
    """A line of an invoice."""

    order: int
    name: str
    net_cents: int


def line(order: Row) -> Line:
    """Return the line of an order with the columns of its product."""
    return Line(order.id, order.name, round(order.cents / (1 + order.vat / 100)))


job = Job("enrich")
products = job.table("products", DATA / "prices" / "products.csv", key="product", refresh="1 minute")
orders = job.source("orders", sources.files(f"{DATA}/orders"), type=Order)
# Orders of a product that the table lacks are dropped; how="left" would keep them.
orders.lookup("product", products, on="product").map("line", line).sink(
    "out", sinks.files("out/invoices", format="json")
)
