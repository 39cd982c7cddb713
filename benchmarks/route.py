"""Measure routing: events a second into file and NATS inboxes, compared with plain appends of the same events.

A plain append is what a program does that needs no shards, stamps or order: it writes each event as a line of JSON, or publishes
messages of 1,000 lines, and waits for the disk or the server every 10,000 events. Both alternate, and a ratio is the median of
the ratios of all rounds but the first. The benchmark starts the NATS server. A node of a fleet, a process with its own Spark,
then reads events from a file inbox and sums them by user; its time runs from its first commit to its last. The last line is one
JSON object: file_vs_plain, nats_vs_plain, node_events_s, and the speeds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from servers.nats_server import running_nats  # noqa: E402
from tidewheel.fleet._inbox import open_inbox  # noqa: E402
from tidewheel.fleet._nodes.router import Router  # noqa: E402

EVENTS, EVERY, ROUNDS, SHARDS = 200_000, 10_000, 7, 64
NODE_ROUNDS, NODE_SHARDS, NODE_SECONDS = 5, 16, 300
PER_MESSAGE, FEW = 1_000, 2_000
Event = tuple[str, dict[str, object]]

encode = msgspec.json.Encoder().encode


def make_events() -> list[Event]:
    return [
        (f"user-{number % 10_000}", {"user": f"user-{number % 10_000}", "amount": number, "page": "/index.html"})
        for number in range(EVENTS)
    ]


def plain_file(path: Path, events: list[Event]) -> None:
    with path.open("wb") as file:
        for number, (_, payload) in enumerate(events, 1):
            file.write(encode(payload) + b"\n")
            if number % EVERY == 0:
                file.flush()
                os.fdatasync(file.fileno())


def routed(url: str, events: list[Event]) -> None:
    with open_inbox(url, SHARDS) as inbox, Router(inbox) as router:
        router.route_many(events)


async def plain_nats(server: str, name: str, events: list[Event], per_message: int) -> None:
    import nats

    client = await nats.connect(server)
    stream = client.jetstream(timeout=30)
    await stream.add_stream(name=name, subjects=[name])
    waiting, lines = [], []
    for number, (_, payload) in enumerate(events, 1):
        lines.append(encode(payload))
        if len(lines) == per_message:
            waiting.append(stream.publish(name, b"\n".join(lines)))
            lines = []
        if number % EVERY == 0:
            await asyncio.gather(*waiting)
            waiting = []
    await asyncio.gather(*waiting)
    await client.close()


def seconds(work: Callable[[int], None], number: int) -> float:
    began = time.perf_counter()
    work(number)
    return time.perf_counter() - began


def compared(plain: Callable[[int], None], ours: Callable[[int], None]) -> tuple[float, float, float]:
    """Return the median events a second of both, and the median ratio."""
    rounds = [(seconds(plain, number), seconds(ours, number)) for number in range(ROUNDS + 1)][1:]
    speeds = [EVENTS / statistics.median(times) for times in zip(*rounds, strict=True)]
    return speeds[0], speeds[1], statistics.median(theirs / mine for theirs, mine in rounds)


def through_a_node(folder: Path, events: list[Event]) -> float:
    """Return the events a second of a node that reads an inbox with several times these events."""
    inbox = f"{folder}/inbox"
    with open_inbox(inbox, NODE_SHARDS) as opened, Router(opened) as router:
        for _ in range(NODE_ROUNDS):
            router.route_many(events)
    command = [sys.executable, "-m", "tidewheel", "node", "--job", str(ROOT / "examples" / "fleet_program.py")]
    command += ["--cells", f"{folder}/cells", "--inbox", inbox, "--state", f"file://{folder}/state", "--name", "bench"]
    node = subprocess.Popen(
        [*command, "--local", f"{folder}/local", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "FLEET_OUT": f"{folder}/out"},
    )
    assert node.stdout is not None
    commits: list[tuple[float, int]] = []
    deadline = time.monotonic() + NODE_SECONDS
    try:
        while sum(rows for _, rows in commits) < NODE_ROUNDS * len(events):
            line = node.stdout.readline()
            if not line or time.monotonic() > deadline:
                raise RuntimeError(f"the node counted {sum(rows for _, rows in commits)} events and went no further")
            told = json.loads(line) if line.startswith('{"event"') else {}
            if told.get("event") == "batch":
                commits.append((told["at"], told["rows"]))
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait()
    # The first batch starts Python workers and is not measured.
    return sum(rows for _, rows in commits[1:]) / (commits[-1][0] - commits[0][0])


def main() -> None:
    events = make_events()
    few = events[:FEW]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file_plain, file_inbox, file_ratio = compared(
            lambda n: plain_file(folder / f"plain-{n}", events), lambda n: routed(f"{folder}/inbox-{n}", events)
        )
        print(f"file: plain {file_plain:,.0f} events/s, inbox {file_inbox:,.0f}")
        with running_nats(folder / "nats") as server:
            at = server.url().rpartition("/")[0]
            nats_plain, nats_inbox, nats_ratio = compared(
                lambda n: asyncio.run(plain_nats(at, f"plain-{n}", events, PER_MESSAGE)),
                lambda n: routed(server.url(f"inbox-{n}"), events),
            )
            nats_single = len(few) / seconds(lambda n: asyncio.run(plain_nats(at, f"single-{n}", few, 1)), 0)
        print(
            f"nats: plain {nats_plain:,.0f} events/s in messages of {PER_MESSAGE}, {nats_single:,.0f} in messages of one, "
            f"inbox {nats_inbox:,.0f}; the server writes to the disk before it answers"
        )
        node = through_a_node(folder / "node", events)
        print(f"node: {node:,.0f} events/s from a file inbox to committed totals of {10_000:,} users")
    print(
        json.dumps(
            {
                "file_vs_plain": round(file_ratio, 3),
                "nats_vs_plain": round(nats_ratio, 3),
                "nats_vs_single": round(nats_inbox / nats_single, 3),
                "file_events_s": round(file_inbox),
                "nats_events_s": round(nats_inbox),
                "node_events_s": round(node),
            }
        )
    )


if __name__ == "__main__":
    main()
