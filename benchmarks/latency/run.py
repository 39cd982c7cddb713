"""Measure every system and rate; see the package's docstring."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks.latency
from benchmarks.latency.transports import Transport, connector_jars, running, transport

ROOT = Path(__file__).parents[2]
GOALS = {"p50_vs_empty": 0.8, "p99_vs_empty": 1.6, "kafka_1000_p50_vs_rtm": 2, "kafka_1000_p99_vs_rtm": 1}
START_S = 180.0
"""How long a job may take until its first result."""
JOBS = {"nats": "nats", "kafka": "kafka", "rtm": "kafka"}
"""What is measured, and over which system: our job over NATS and Kafka, and Spark's Real-Time Mode over Kafka."""


class Measured(NamedTuple):
    """The times of the results, and whether the benchmark itself kept up."""

    p50_ms: float
    p99_ms: float
    messages: int
    late_ms: float
    """By how much the sender was behind its schedule, for 99 of 100 messages."""
    stored_p99_ms: float
    """After how long the server had stored 99 of 100 messages: until then no job can see them."""
    behind: int
    """How many messages had no result when the sender ended."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.latency.run",
        description=benchmarks.latency.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rate", type=int, action="append", help="messages a second; 50 and 1,000 if none is given")
    parser.add_argument("--only", choices=tuple(JOBS), action="append", help="measure only these")
    parser.add_argument("--seconds", type=float, default=20, help="how long messages are counted")
    parser.add_argument("--warmup", type=float, default=20, help="how long messages are sent before")
    parser.add_argument("--no-empty", action="store_true", help="leave the empty foreachBatch out, and the ratios")
    return parser.parse_args()


def empty_batch_ms() -> float:
    """Return the median batch time of an empty `foreachBatch`."""
    command = [sys.executable, "-m", "benchmarks.state.run", "--only", "foreach_batch_nothing", "--rows", "200"]
    ran = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout.splitlines()[-1])["figures"][0]["batch_ms"])


def measured(name: str, rate: int, options: argparse.Namespace) -> Measured:
    """Return the latencies of the messages that were sent after the warm-up."""
    system = JOBS[name]
    took: dict[int, float] = {}

    def seen(data: bytes) -> None:
        sent = json.loads(data)["sent"]
        # A job that is at least once may give a result again.
        took.setdefault(sent, (time.time_ns() - sent) / 1e6)

    with tempfile.TemporaryDirectory() as folder, running(system, Path(folder) / "server") as server:
        client = transport(system, server)
        client.watch(seen)
        with (Path(folder) / "log").open("w") as log:
            command = _command(name, client.url, folder)
            job = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=log, stderr=log)
        try:
            _send(client, rate, lambda: bool(took) or job.poll() is not None, START_S)
            if not took:
                sys.exit(f"{name}: no result in {START_S:.0f} s:\n{(Path(folder) / 'log').read_text()[-2000:]}")
            _send(client, rate, lambda: False, options.warmup)
            first = time.time_ns()
            sent = _send(client, rate, lambda: False, options.seconds)
            behind = sum(1 for each in sent if each.at not in took)
            _wait_for(lambda: max(took) >= sent[-1].at)
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait()
            client.close()  # It waits for what is not stored yet.
    found = [ms for at, ms in took.items() if at >= first]
    late, stored = [each.late_ms for each in sent], [client.stored[each.at] for each in sent]
    return Measured(statistics.median(found), _p99(found), len(found), _p99(late), _p99(stored), behind)


def _p99(figures: Sequence[float]) -> float:
    return sorted(figures)[int(len(figures) * 0.99)]


def _command(name: str, url: str, folder: str) -> list[str]:
    if name == "rtm":
        jars = ",".join(map(str, sorted(connector_jars().glob("*.jar"))))
        return [sys.executable, "-m", "benchmarks.latency.realtime", url, folder, jars]
    return [sys.executable, "-m", "benchmarks.latency.job", name, url, folder]


class Sent(NamedTuple):
    """A message: when it was sent, in ns since 1970, and how late."""

    at: int
    late_ms: float


def _send(client: Transport, rate: int, enough: Callable[[], bool], seconds: float) -> list[Sent]:
    """Send at a constant rate for some time, or until there are enough messages; return what was sent."""
    began = time.monotonic()
    sent: list[Sent] = []
    while time.monotonic() - began < seconds and not enough():
        late = time.monotonic() - (began + len(sent) / rate)
        sent.append(Sent(client.send(len(sent)), late * 1000))
        time.sleep(max(0.0, began + len(sent) / rate - time.monotonic()))
    return sent


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            sys.exit("the last message has no result after a minute")
        time.sleep(0.05)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def _ratios(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratios that have goals and whose figures were both measured."""
    wanted = {
        "p50_vs_empty": ("nats_50_p50_ms", "empty_ms"),
        "p99_vs_empty": ("nats_50_p99_ms", "empty_ms"),
        "kafka_1000_p50_vs_rtm": ("kafka_1000_p50_ms", "rtm_1000_p50_ms"),
        "kafka_1000_p99_vs_rtm": ("kafka_1000_p99_ms", "rtm_1000_p99_ms"),
    }
    return {
        ratio: round(document[ours] / document[other], 2)
        for ratio, (ours, other) in wanted.items()
        if ours in document and other in document
    }


def main() -> None:
    options = arguments()
    document: dict[str, float | str] = {"benchmark": "latency"}
    empty = None if options.no_empty else empty_batch_ms()
    if empty is not None:
        document["empty_ms"] = empty
        print(f"a foreachBatch that does nothing: {empty:.0f} ms a batch", flush=True)
    for name in options.only or JOBS:
        for rate in options.rate or (50, 1000):
            found = measured(name, rate, options)
            document |= {f"{name}_{rate}_{key}": round(value) for key, value in found._asdict().items()}
            print(
                f"{name}, {rate:,} a second: {found.p50_ms:.0f} ms, 99 of 100 within {found.p99_ms:.0f} ms; "
                f"{found.behind} behind at the end; of 100 messages, 99 were sent at most {found.late_ms:.0f} ms late and "
                f"stored within {found.stored_p99_ms:.0f} ms",
                flush=True,
            )
    document |= _ratios(document)
    for ratio, goal in GOALS.items():
        if ratio in document:
            print(f"{ratio}: {document[ratio]}, at most {goal} wanted")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
