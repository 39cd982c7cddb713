"""Report each order that is not paid within 30 minutes, with a timer for each order.

tidewheel run examples/unpaid.py --until end
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tidewheel import Job, Message, Output, StatefulLogic, Timer, sinks, sources

DATA = Path(__file__).parent / "data"
PATIENCE = timedelta(minutes=30)


@dataclass
class Order:
    """The fields of an order that this program reads."""

    id: int
    at: datetime


@dataclass
class Payment:
    """A payment for an order."""

    order: int
    at: datetime


class Unpaid(StatefulLogic[datetime | None, Order | Payment, str, int]):
    """Keep for each order the time of its payment; a timer compares it after 30 minutes."""

    def on_data(
        self, message: Message[int, Order | Payment], state: datetime | None, output: Output[str]
    ) -> datetime | None:
        """Set the timer when the order arrives; keep the time of the payment, which may arrive before its order."""
        if isinstance(message.value, Payment):
            return message.time
        output.set_timer(message.time + PATIENCE)
        return state

    def on_timer(self, timer: Timer, state: datetime | None, output: Output[str]) -> None:
        """Report the order if it was not paid in time, and delete its state by returning None."""
        if state is None or state > timer.time:
            output.emit("not paid within 30 minutes")


job = Job("unpaid")
orders = job.source("orders", sources.files(f"{DATA}/orders"), type=Order)
payments = job.source("payments", sources.files(f"{DATA}/payments"), type=Payment)
ordered = orders.event_time("at", max_delay="1 hour", name="ordered").key_by("by-id", lambda order: order.id)
paid = payments.event_time("at", max_delay="1 hour", name="paid").key_by("by-order", lambda payment: payment.order)
unpaid = ordered.union("both", paid).stateful_op("unpaid", Unpaid(), returns=str)
unpaid.sink("out", sinks.files("out/unpaid", format="json"), key="order")
