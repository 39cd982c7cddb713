"""What the soak sends, all the while: payments and offers into a NATS stream, events into the inbox of a fleet."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import threading
import time
from collections import defaultdict
from typing import Any

from servers.nats_server import Nats
from soak.program import OFFERS, PAYMENTS, STREAM
from support.fleet_nodes import Fleet
from tidewheel.errors import TidewheelError

BEGIN = 1_700_000_000 * 10**9
USERS, KEYS = 50, 50
_TRY_S = 2.0


class Producer:
    """Stores one message after the other in the stream; one that was not acknowledged is sent again under the same id.

    `totals` has the running totals of each user, in the order of the stream: what readers may see.
    """

    def __init__(self, nats: Nats, rate: float, seed: int) -> None:
        self._nats, self._pause, self._draw = nats, 1 / rate, random.Random(seed)
        self.acknowledged = 0
        self.totals: dict[str, list[int]] = defaultdict(list)
        self._offers: list[tuple[int, int, str]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="producer", daemon=True)

    def start(self) -> None:
        self._nats.make_stream(STREAM, PAYMENTS, OFFERS)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _message(self, number: int) -> tuple[str, dict[str, Any]]:
        """Return the subject and the content of a message. The time of the events is about that of the machine."""
        at = BEGIN + int(number * self._pause * 1e9)
        if self._offers and self._offers[0][0] <= number:
            _, of, user = heapq.heappop(self._offers)
            return OFFERS, {"of": of, "user": user, "at": at}
        user, amount = f"user-{self._draw.randrange(USERS)}", self._draw.randrange(-50, 100)
        if self._draw.random() < 2 / 3:
            delay = self._draw.uniform(0, 5) / self._pause
            heapq.heappush(self._offers, (number + 1 + int(delay), number, user))
        before = self.totals[user]
        before.append((before[-1] if before else 0) + amount)
        return PAYMENTS, {"id": number, "user": user, "amount": amount, "at": at}

    async def _run(self) -> None:
        import nats

        # Without a callback the client prints a stack trace for each try while the server is away.
        client = await nats.connect(
            self._nats.server, max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=_is_away
        )
        jetstream = client.jetstream(timeout=_TRY_S)
        began, number = time.monotonic(), 0
        while not self._stopped.is_set():
            subject, content = self._message(number)
            await self._store(jetstream, subject, json.dumps(content).encode(), str(number))
            number += 1
            self.acknowledged = number
            # After an outage it goes on at its rate, and sends nothing of what it could not send meanwhile.
            began = max(began, time.monotonic() - number * self._pause)
            await asyncio.sleep(max(0.0, began + number * self._pause - time.monotonic()))
        await client.close()

    async def _store(self, jetstream: Any, subject: str, data: bytes, name: str) -> None:
        import nats.errors
        import nats.js.errors

        while True:
            try:
                await jetstream.publish(subject, data, headers={"Nats-Msg-Id": name})
                return
            except (TimeoutError, nats.errors.Error, nats.js.errors.Error, OSError):
                await asyncio.sleep(0.2)


async def _is_away(error: Exception) -> None:
    pass


async def _stored(server: str) -> list[tuple[str, bytes]]:
    import nats

    client = await nats.connect(server)
    jetstream = client.jetstream(timeout=30)
    last = (await jetstream.stream_info(STREAM)).state.last_seq
    subscription = await jetstream.pull_subscribe("soak.>", stream=STREAM)
    found: list[tuple[str, bytes]] = []
    while len(found) < last:
        messages = await subscription.fetch(min(1000, last - len(found)), timeout=30)
        for message in messages:
            assert message.metadata.sequence.stream == len(found) + 1, "the stream has a gap"
            found.append((message.subject, message.data))
            await message.ack()
    await client.close()
    return found


def stored(nats: Nats) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return all payments and offers of the stream, in its order, by the plain client."""
    messages = asyncio.run(_stored(nats.server))
    return tuple([json.loads(data) for subject, data in messages if subject == kind] for kind in (PAYMENTS, OFFERS))  # type: ignore[return-value]


class Routing:
    """Routes events to the fleet; an event that was rejected is routed again, as the router's contract says."""

    def __init__(self, fleet: Fleet, events: int, every: float) -> None:
        """Take how many events are routed at once, and every how many seconds."""
        self._fleet, self._events, self._pause = fleet, events, every
        self.routed = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="routing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop when everything is stored."""
        self._stopped.set()
        self._thread.join()
        self._flush()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause):
            for _ in range(self._events):
                self._route()

    def _route(self) -> None:
        key = f"k{self.routed % KEYS}"
        while True:
            try:
                self._fleet.router.route(key, {"key": key, "amount": self.routed})
                break
            except TidewheelError:
                self._flush()
        self._fleet.sent[key] += 1
        self._fleet.amounts[key] += self.routed
        self.routed += 1

    def _flush(self) -> None:
        while True:
            try:
                self._fleet.router.flush()
                return
            except TidewheelError:
                time.sleep(0.2)
