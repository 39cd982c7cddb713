"""Measure every system and rate; see the package's docstring."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import benchmarks.latency
from benchmarks.latency.transports import Transport, running, transport

ROOT = Path(__file__).parents[2]
GOALS = {"p50_vs_empty": 0.8, "p99_vs_empty": 1.6}
START_S = 180.0
"""How long a job may take until its first result."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.latency.run",
        description=benchmarks.latency.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rate", type=int, action="append", help="messages a second; 50 and 1,000 if none is given")
    parser.add_argument("--only", choices=("nats", "kafka"), action="append", help="measure these systems alone")
    parser.add_argument("--seconds", type=float, default=20, help="how long messages are counted")
    parser.add_argument("--warmup", type=float, default=20, help="how long messages are sent before")
    parser.add_argument("--no-empty", action="store_true", help="leave the empty foreachBatch out, and the ratios")
    return parser.parse_args()


def empty_batch_ms() -> float:
    """Return the median of a batch of a `foreachBatch` that does nothing."""
    command = [sys.executable, "-m", "benchmarks.state.run", "--only", "foreach_batch_nothing", "--rows", "200"]
    ran = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout.splitlines()[-1])["figures"][0]["batch_ms"])


def measured(system: str, rate: int, options: argparse.Namespace) -> list[float]:
    """Return how many ms each message took that was sent after the warm-up."""
    took: dict[int, float] = {}
    lock = threading.Lock()

    def seen(data: bytes) -> None:
        now, sent = time.time_ns(), json.loads(data)["sent"]
        with lock:
            took[sent] = (now - sent) / 1e6

    with tempfile.TemporaryDirectory() as folder, running(system, Path(folder) / "server") as server:
        client = transport(system, server)
        client.watch(seen)
        command = [sys.executable, "-m", "benchmarks.latency.job", system, client.url, folder]
        with (Path(folder) / "log").open("w") as log:
            job = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=log, stderr=log)
        try:
            _send(client, rate, lambda: bool(took) or job.poll() is not None, START_S)
            if not took:
                sys.exit(f"{system}: no result in {START_S:.0f} s:\n{(Path(folder) / 'log').read_text()[-2000:]}")
            _send(client, rate, lambda: False, options.warmup)
            first = time.time_ns()
            sent_until = _send(client, rate, lambda: False, options.seconds)
            _wait_for(lambda: max(took) >= sent_until)
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait()
            client.close()
    return [ms for sent, ms in took.items() if sent >= first]


def _send(client: Transport, rate: int, enough: Callable[[], bool], seconds: float) -> int:
    """Send at an even rate for a while, or until there is enough; return a time before which the last one was sent."""
    began = time.monotonic()
    number, last = 0, 0
    while time.monotonic() - began < seconds and not enough():
        last = time.time_ns()
        client.send(number)
        number += 1
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
    return last


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            sys.exit("the last message has no result after a minute")
        time.sleep(0.05)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def main() -> None:
    options = arguments()
    document: dict[str, float | str] = {"benchmark": "latency"}
    empty = None if options.no_empty else empty_batch_ms()
    if empty is not None:
        document["empty_ms"] = empty
        print(f"a foreachBatch that does nothing: {empty:.0f} ms a batch", flush=True)
    for system in options.only or ("nats", "kafka"):
        for rate in options.rate or (50, 1000):
            took = sorted(measured(system, rate, options))
            p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
            name = f"{system}_{rate}"
            document |= {f"{name}_p50_ms": round(p50), f"{name}_p99_ms": round(p99), f"{name}_messages": len(took)}
            print(f"{system}, {rate:,} a second: {p50:.0f} ms, 99 of 100 within {p99:.0f} ms", flush=True)
            if name == "nats_50":
                document |= {"p50_ms": round(p50), "p99_ms": round(p99)}
                if empty is not None:
                    document |= {"p50_vs_empty": round(p50 / empty, 2), "p99_vs_empty": round(p99 / empty, 2)}
    for ratio, goal in GOALS.items():
        if ratio in document:
            print(f"{ratio}: {document[ratio]}, at most {goal} wanted")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
