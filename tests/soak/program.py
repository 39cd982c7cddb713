"""The jobs of the soak: running totals with a cell, windows, a join and timers. `python -m soak.program SETTINGS` (JSON).

With `postgres` and `delta` in the settings, the totals go to a table of PostgreSQL and the pairs to a Delta table; without
them everything goes to files, and the job can be restored to any checkpoint.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from soak import clock
from tidewheel import Job, Message, Output, RunOptions, StatefulLogic, Timer, count, sinks, sources, sum_, tumbling
from tidewheel.errors import TidewheelError

WINDOW_NS, JOIN_NS, PATIENCE_NS, MEMORY_NS = 10 * 10**9, 10**9, 3 * 10**9, 10 * 10**9
"""Length of a window; how far paired messages are apart; how long a payment waits; how long an offer is remembered."""
STREAM, PAYMENTS, OFFERS = "soak", "soak.payments", "soak.offers"


@dataclass
class Payment:
    id: int
    user: str
    amount: int
    at: int


@dataclass
class Offer:
    """An offer for a payment, which it may reach in time."""

    of: int
    user: str
    at: int


@dataclass
class Numbered:
    user: str
    n: int
    total: int
    threshold: int


@dataclass
class Pair:
    user: str
    payment: int
    offer: int


class Unanswered(StatefulLogic[int | None, Payment | Offer, dict[str, int], int]):
    """Report each payment for which no offer came in time; the state is the time of the offer."""

    def on_data(self, message: Message[int, Any], state: int | None, output: Output[dict[str, int]]) -> int | None:
        if isinstance(message.value, Payment):
            output.set_timer(message.time + PATIENCE_NS)
            return state
        output.set_timer(message.time + MEMORY_NS, name="forget")
        return message.time

    def on_timer(self, timer: Timer, state: int | None, output: Output[dict[str, int]]) -> int | None:
        if timer.name == "forget":
            return None
        if state is None or state > timer.time:
            output.emit({"payment": timer.key})
        return state


def build(settings: dict[str, Any]) -> Job:
    job = Job(
        settings["name"],
        state=settings["state"],
        n_shards=8,
        keep=6,
        collect_every=10,
        grace="20 s",
        snapshot_every=20,
        cells=settings.get("cells"),
    )
    threshold = job.cell("threshold", int, default=0)

    def source(name: str, subject: str, kind: type) -> Any:
        # One task: windows and numbers depend on the order.
        messages = job.source(name, sources.nats(settings["nats"], STREAM, subjects=subject, max_records=3000, tasks=1))
        parsed = messages.map(
            f"parse-{name}", lambda message: msgspec.json.decode(message.data, type=kind), returns=kind
        )
        timed = parsed.event_time("at", unit="ns", max_delay="0 s", idle_after=None, name=f"{name}-time")
        timed.late.sink(f"{name}-late", files(f"late-{name}"))
        return timed

    def files(name: str) -> Any:
        return sinks.files(f"{settings['out']}/{name}", format="json")

    def numbered(user: str, payment: Payment, state: list[int]) -> tuple[Numbered, list[int]]:
        n, total = state[0] + 1, state[1] + payment.amount
        return Numbered(user, n, total, threshold.value), [n, total]

    payments, offers = source("payments", PAYMENTS, Payment), source("offers", OFFERS, Offer)
    by_user = payments.key_by("by-user", "user")
    numbers = by_user.stateful_map("number", numbered, default=lambda: [0, 0])
    numbers.sink(
        "numbered",
        sinks.postgres(settings["postgres"], "numbered", create=True, patience="10 s")
        if "postgres" in settings
        else files("numbered"),
    )
    windows = by_user.window("per-ten", tumbling(f"{WINDOW_NS} ns"), n=count(), total=sum_("amount"))
    windows.sink("windows", files("windows"))
    pairs = by_user.interval_join(
        "paired",
        offers.key_by("offers-by-user", "user"),
        before=f"{JOIN_NS} ns",
        after=f"{JOIN_NS} ns",
        how="left",
        function=lambda payment, offer: Pair(payment.user, payment.id, -1 if offer is None else offer.of),
        returns=Pair,
    )
    pairs.sink("pairs", sinks.delta(settings["delta"], compact="5 min") if "delta" in settings else files("pairs"))
    both = payments.key_by("by-id", "id").union("both", offers.key_by("by-payment", "of"))
    both.stateful_op("unanswered", Unanswered(), returns=dict[str, int]).sink("unanswered-out", files("unanswered"))
    return job


def main() -> int:
    settings = json.loads(sys.argv[1])
    clock.follow(Path(settings["clock"]))
    ends = settings.get("until") == "end"
    try:
        build(settings).run(
            options=RunOptions(
                master="local[2]",
                parallelism=2,
                every=None if ends else "2 s",
                until="end" if ends else None,
                take_over=settings.get("take_over", False),
                restarts=5,
                backoff="500 ms",
                lease="10 s",
                history="10 min",
                local=settings["local"],
                conf={"spark.driver.memory": "640m"},
                progress=lambda batch: print(f"committed {batch.sequence} rows {batch.rows}", flush=True),
            )
        )
    except TidewheelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
