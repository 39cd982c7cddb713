"""Measure the cost of observation: the throughput with history, scraped metrics and logs, compared with none of them.

    python -m benchmarks.observe [--rounds 20]

There are two cases: large batches, which would show a cost per row, and small batches, which would show a cost per commit. Runs
with everything on and everything off alternate in one Spark. Each pair of runs gives a ratio of the medians of their batches,
without the first batches. The result is the median of these ratios, because other load on the machine affects both runs of a
pair. `on_vs_off` is the throughput with everything on, divided by the throughput with everything off, in the worse case.
`page_ms` is the slowest view of the page, measured by `benchmarks.page`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import urllib.request
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.page import measured

from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._observe import logs
from tidewheel._spark.session import session

CASES = {"large": (6, 150_000), "small": (25, 200)}
"""By name: how many batches, and the rows of each."""
SKIPPED = 2
"""The first batches of a run, which are slower."""


def written(folder: str, batches: int, rows: int) -> str:
    """Write the input, one file for each batch; return the folder."""
    os.makedirs(f"{folder}/in")
    for number in range(batches):
        numbers = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
        pq.write_table(pa.table({"value": numbers}), f"{folder}/in/{number:04}.parquet")
    return f"{folder}/in"


def job_of(name: str, folder: str, batches: int, rows: int) -> Job:
    """Return a job with a stateful step, for this number of batches."""
    job = Job(name, state=f"file://{folder}/state", n_shards=64)
    numbers = job.source("in", sources.files(written(folder, batches, rows), max_files_per_trigger=1), type=int)
    totals = numbers.key_by("by", lambda n: n % 5000).stateful_map("total", lambda k, n, t: (t + n, t + n), default=0)
    totals.map("half", lambda t: t // 2).filter("even", lambda t: t % 2 == 0).sink("out", sinks.discard())
    return job


class Scraper:
    """Read the metrics every second; Prometheus would do so every fifteen seconds."""

    def __init__(self, port: int) -> None:
        self._url, self._done, self.scrapes = f"http://127.0.0.1:{port}/metrics", threading.Event(), 0
        self._thread = threading.Thread(target=self._scrape)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _scrape(self) -> None:
        while not self._done.wait(1.0):
            try:
                urllib.request.urlopen(self._url, timeout=5).read()
                self.scrapes += 1
            except OSError:
                continue  # The run has not begun, or is over.


def seconds(spark: Any, case: str, seen: bool, port: int) -> list[float]:
    """Run a case once; return the seconds of its batches, as the run measures them."""
    batches, rows = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(f"{case}-{'on' if seen else 'off'}", folder, batches, rows)
        options = RunOptions(
            until="caught-up",
            parallelism=2,
            spark=spark,
            local=f"{folder}/local",
            history="1 day" if seen else None,
            metrics=port if seen else None,
        )
        if not seen:
            return [batch.seconds for batch in job.run(options=options).batches]
        with Scraper(port):
            return [batch.seconds for batch in job.run(options=options).batches]


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="pairs of runs; few do not tell 0.98 from 1")
    parser.add_argument("--port", type=int, default=19_464)
    options = parser.parse_args()
    spark = session("local[2]", {"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("ERROR")
    stderr, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115
    logs.configure("debug", "json")
    pairs: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for turn in range(options.rounds + 1):
        for case in CASES:
            # The order alternates, so that a machine that becomes slower affects both sides.
            order = (True, False) if turn % 2 else (False, True)
            taken = {seen: statistics.median(seconds(spark, case, seen, options.port)[SKIPPED:]) for seen in order}
            if turn:  # The first turn is for the JVM.
                pairs[case].append((taken[False], taken[True]))
    sys.stderr = stderr
    spark.stop()
    result: dict[str, Any] = {"rounds": options.rounds, "cases": {}}
    print(f"{'case':<8} {'off ms':>10} {'on ms':>10} {'on vs off':>10}")
    for case in CASES:
        off, on = (statistics.median(side) for side in zip(*pairs[case], strict=True))
        ratios = sorted(off / on for off, on in pairs[case])
        result["cases"][case] = {
            "off_ms": round(off * 1000, 2),
            "on_ms": round(on * 1000, 2),
            "on_vs_off": round(statistics.median(ratios), 4),
            "pairs": [round(ratio, 3) for ratio in ratios],
        }
        print(f"{case:<8} {off * 1000:>10.1f} {on * 1000:>10.1f} {statistics.median(ratios):>10.3f}")
    result["page"] = {view: round(taken, 1) for view, taken in measured().items()}
    result["page_ms"] = max(result["page"].values())
    print(f"the slowest view of the page, 4,096 shards and 10,000 commits: {result['page_ms']} ms")
    result["on_vs_off"] = min(case["on_vs_off"] for case in result["cases"].values())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
