"""Add the name and the price without tax of each product, from a small CSV file that every task has in memory.

    tidewheel run examples/enrich.py --until caught-up

`docs/howto-enrich.md` shows tables that change while the job runs.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from tidewheel import Job, sinks, sources

DATA = Path(__file__).parent / "data"
with (DATA / "prices" / "products.csv").open() as file:
    PRODUCTS = {row["product"]: row for row in csv.DictReader(file)}


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


def line(order: Order) -> Line | None:
    """Return the line of an order, or None if the table does not have its product."""
    product = PRODUCTS.get(order.product)
    return product and Line(order.id, product["name"], round(order.cents / (1 + int(product["vat"]) / 100)))


job = Job("enrich")
orders = job.source("orders", sources.files(f"{DATA}/orders"), value=Order)
orders.filter_map("line", line).sink("out", sinks.files("out/invoices", format="json"))
