"""MQTT sensors, windows, Delta: the mean temperature of every sensor and minute, in a Delta table.

    python examples/sensors_delta.py

starts an MQTT broker of its own, sends what some sensors measured, runs the job, and compares the table with a count of its own.
With MQTT=mqtt://user:password@host:1883 it reads the topics `sensors/#` that are there, and goes on where it ended.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidewheel import Job, WindowResult, codecs, tumbling
from tidewheel.connectors import MqttBridge
from tidewheel.sinks import console, delta
from tidewheel.sources import mqtt

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Measured:
    """The data of one message; `id` is the same when it comes again."""

    id: int
    sensor: str
    at: datetime
    celsius: float


@dataclass
class Minute:
    """One row of the table."""

    sensor: str
    minute: datetime
    mean: float
    measured: int


def add(folded: list[Any], measured: Measured) -> list[Any]:
    """Keep the sensor, the sum and the number."""
    return [measured.sensor, folded[1] + measured.celsius, folded[2] + 1]


def minute(result: WindowResult) -> Minute:
    """Return a minute that has ended."""
    sensor, total, number = result.value
    return Minute(sensor, result.start, total / number, number)


def source(broker: str, folder: Path) -> Any:
    """Return what is read: the broker may send a message twice, the buffer keeps what was acknowledged."""
    # A bounded run ends when the broker has been silent for a while; it may have much else to do.
    return mqtt(broker, "sensors/#", buffer=f"file://{folder}/buffer", client_id="sensors-delta", quiet="2 s")


def build(broker: str, table: str, folder: Path) -> Job:
    """Return the job: messages become measurements, each counted once, and those of a minute a row."""
    job = Job("sensors-delta", state=f"file://{folder}/state")
    messages = job.source("sensors", source(broker, folder))
    measured = messages.decode("decode", codecs.json(Measured), column="data")
    broken = measured.broken
    # Sensors that were out of reach send what they have measured meanwhile.
    on_time = measured.assign_timestamps("at", "at").limit_out_of_orderness("bound", "10 min")
    late = on_time.late
    (
        on_time.key_by("by-sensor", "sensor")
        .deduplicate("once", "10 min", by=lambda measured: measured.id)
        .window("minutes", tumbling("1 min"), add, default=["", 0.0, 0])
        .map("minute", minute, returns=Minute)
        .sink("out", delta(table))
    )
    late.sink("late", console())
    broken.sink("broken", console())
    return job


def main(spark: Any = None) -> int:
    """Run the job on the broker that is given, or on its own."""
    with ExitStack() as stack:
        broker, expected = os.environ.get("MQTT"), None
        folder = Path(".cache/sensors-delta").absolute()
        if broker is None:
            # Another broker has other messages: what is known of the last one is void.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
            from mqtt_server import running_broker

            running = stack.enter_context(running_broker(folder / "broker"))
            broker = running.url
            # A broker keeps messages for those it knows: the bridge introduces itself before the sensors begin.
            MqttBridge(source(broker, folder).bridging).close()
            measured = made()
            for name in {each["sensor"] for each in measured}:
                running.send(f"sensors/{name}", [json.dumps(m).encode() for m in measured if m["sensor"] == name])
            expected = Counter((m["sensor"], m["at"][:16]) for m in measured)
            print(f"started a broker, with {len(measured)} messages of {len({m['sensor'] for m in measured})} sensors")
        table = str(folder / "minutes")
        # Spark gives a worker ten seconds to start, which a machine that does other things as well may exceed.
        result = build(broker, table, folder).run(bounded=True, restarts=5, spark=spark, local=str(folder / "local"))
        print(f"{result.event_count:,} messages read; the table is {table}")
        return show(table, expected)


def made() -> list[dict[str, Any]]:
    """Return what three sensors measure in five minutes."""
    draw = random.Random(7)
    return [
        {
            "id": at,
            "sensor": f"sensor-{at % 3}",
            "at": (BEGIN + timedelta(seconds=at)).isoformat(),
            "celsius": round(20 + draw.random(), 2),
        }
        for at in range(300)
    ]


def show(table: str, expected: Counter[tuple[str, str]] | None) -> int:
    """Print what the table holds, and compare it if we know what it must hold."""
    from deltalake import DeltaTable

    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    for row in sorted(rows, key=lambda row: (row["minute"], row["sensor"]))[:6]:
        print(f"{row['minute']:%H:%M} {row['sensor']:>10} {row['mean']:6.2f} of {row['measured']}")
    print(f"{len(rows)} rows")
    if expected is None:
        return 0
    found = {(row["sensor"], row["minute"].isoformat()[:16]): row["measured"] for row in rows}
    exact = len(rows) == len(expected) and found == dict(expected)
    print("the table holds exactly what was measured" if exact else "the table is WRONG")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
