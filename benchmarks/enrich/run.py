"""Measure the steps that enrich records; see the package's docstring."""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import benchmarks.enrich
from benchmarks.enrich.aggregates import shares
from benchmarks.enrich.lookup import share

from tidewheel import BatchProgress, Job, RunOptions, sinks, sources

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from servers.lookup_service import LookupService, running_service

SEED = 28


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.enrich.run",
        description=benchmarks.enrich.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calls", type=int, default=20_000, help="records that are looked up in the service")
    parser.add_argument("--per-batch", type=int, default=250_000, help="records of a batch that is aggregated")
    parser.add_argument("--keys", type=int, default=1000, help="keys of the records that are aggregated")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the reference table")
    return parser.parse_args()


def calls_per_second(records: int) -> float:
    """Return how many records a second one task looks up in the service."""
    batches: list[BatchProgress] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(LookupService(delay=0.05, failing=0.01, hanging=0.001, seed=SEED)) as service,
    ):
        port = service.port

        async def look_up(name: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET /{name} HTTP/1.1\r\n\r\n".encode())
                status = (await reader.readuntil(b"\r\n")).split()[1]
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.split()[1]))
            finally:
                writer.close()
            if status == b"503":
                raise ConnectionError("busy")
            return body.decode()

        job = Job("calls", state=f"file://{folder}/state")
        names = job.source("in", sources.iterable([f"name-{n}" for n in range(records)], batch_size=records))
        names.map_async("look-up", look_up, concurrency=100, timeout="1 s").sink("out", sinks.files(f"{folder}/out"))
        job.run(
            until="end",
            parallelism=1,
            options=RunOptions(master="local[1]", local=f"{folder}/local", progress=batches.append),
        )
    batch = max(batches, key=lambda batch: batch.rows)
    assert batch.rows == records, f"one batch has all records, not {batch.rows}"
    return batch.rate


def main() -> None:
    given = arguments()
    rate = calls_per_second(given.calls)
    print(f"map_async: {rate:,.0f} records/s, goal 1,000")
    figures = {"async_s": round(rate), **shares(given.per_batch, given.keys)}
    figures["lookup_vs_none"] = share(given.per_batch, given.rows)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
