"""Join orders with their payments, and the result with the exchange rate of its time.

    python examples/joins.py

The first join is an interval join, the second an as-of join. A payment belongs to an order if it comes within an hour
after the order. An order without a payment is emitted as soon as no payment can come.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from tidewheel import Job
from tidewheel.sinks import console
from tidewheel.sources import iterable


@dataclass
class Order:
    """An order in some currency."""

    id: int
    at: datetime
    currency: str
    amount: int


@dataclass
class Payment:
    """A payment for an order."""

    order: int
    at: datetime


@dataclass
class Rate:
    """The rate of a currency from a time on."""

    currency: str
    at: datetime
    rate: int


@dataclass
class Paid:
    """An order, and whether it was paid."""

    order: int
    currency: str
    amount: int
    paid: bool


def at(clock: str) -> datetime:
    """Return a time on 1 January 2026."""
    return datetime.fromisoformat(f"2026-01-01 {clock}").replace(tzinfo=UTC)


ORDERS = [
    Order(1, at("09:00"), "pound", 10),
    Order(2, at("09:10"), "crown", 20),
    Order(3, at("09:30"), "pound", 30),
    Order(4, at("11:30"), "pound", 40),
]
PAYMENTS = [Payment(1, at("09:20")), Payment(3, at("10:15")), Payment(2, at("11:00")), Payment(4, at("11:45"))]
RATES = [
    Rate("pound", at("08:00"), 3),
    Rate("crown", at("08:00"), 5),
    Rate("pound", at("10:00"), 4),
    Rate("pound", at("12:00"), 9),
]

MAX_DELAY = "3 hours"

job = Job("paid-orders")
orders = job.source("orders", iterable(ORDERS)).event_time("at", max_delay=MAX_DELAY, name="ordered")
payments = job.source("payments", iterable(PAYMENTS)).event_time("at", max_delay=MAX_DELAY, name="paid")
rates = job.source("rates", iterable(RATES)).event_time("at", max_delay=MAX_DELAY, name="set")
(
    orders.key_by("by-order", "id")
    .interval_join(
        "with-payment",
        payments.key_by("by-payment", "order"),
        after="1 hour",
        how="left",
        function=lambda order, payment: Paid(order.id, order.currency, order.amount, payment is not None),
        returns=Paid,
    )
    .key_by("by-currency", "currency")
    .as_of_join(
        "at-rate",
        rates.key_by("rates-by-currency", "currency"),
        how="inner",
        function=lambda order, rate: (
            f"order {order.order}: {order.amount * rate.rate}{'' if order.paid else ', not paid'}"
        ),
        returns=str,
    )
    .sink("out", console())
)

if __name__ == "__main__":
    job.run(until="end")
