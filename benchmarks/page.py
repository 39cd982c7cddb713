"""Measure how long the server takes for each view of the page, with 4,096 shards and 10,000 commits of history.

`benchmarks.observe` uses it; `python -m benchmarks.page` runs it alone. Each view is requested once to fill caches, and then
several times. Its time is the median of these requests.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import urllib.request

from tidewheel import Job, sinks, sources
from tidewheel._core.http_guard import guard_for
from tidewheel._observe import places, records
from tidewheel._observe.history_writer import CHUNK_COMMITS
from tidewheel._observe.records import Behind, CommitRecord, RunRecord, StepRecord, Stored
from tidewheel._storage import open_store
from tidewheel._ui.app import VIEWS
from tidewheel._ui.server import PageServer
from tidewheel._ui.site import Site
from tidewheel.testing import run_in_memory

SHARDS, COMMITS, KEYS = 4096, 10_000, 20_000
ROUNDS = 5
ARGUMENTS = {
    "diff": "&before=1&after=2",
    "checkpoint": "&at=2",
    "browse": "&step=count",
    "key": "&step=count&key=7",
    "past": "&step=count&key=7",
}
TOOLS = ("diff", "verify")
"""What reads the state itself, as much as there is, when a button is pressed: not a view."""


def stored(url: str) -> None:
    """Store a job with this number of shards and this much history."""
    job = Job("large", state=url, n_shards=SHARDS)
    numbers = job.source("in", sources.iterable(range(KEYS))).key_by("by", lambda n: n)
    numbers.stateful_map("count", lambda key, n, total: (total + 1, total + 1), default=0).sink("out", sinks.discard())
    run_in_memory(job, state=url)
    graph = [StepRecord("in", "source", 0)]
    for number in range(20):
        graph.append(StepRecord(f"step-{number}", "stateful_map", 1, True, ((graph[-1].name, 0),)))
    names = [each.name for each in graph]
    now = time.time_ns()
    folder = open_store(url).at(places.job_folder("large"))
    run = RunRecord("run", now - COMMITS * 10**9, n_shards=SHARDS, steps=tuple(graph))
    folder.write(places.object_name(places.RUNS, run.at, "run"), records.RUNS.encode([run]))
    # As a run writes it, but all at once.
    for number, first in enumerate(range(0, COMMITS, CHUNK_COMMITS)):
        chunk = [commit(at, now, names) for at in range(first, min(first + CHUNK_COMMITS, COMMITS))]
        path = places.object_name(places.COMMITS, chunk[0].at, "run", number)
        folder.write(path, records.COMMITS.encode(chunk))


def commit(number: int, now: int, names: list[str]) -> CommitRecord:
    """Return one commit; some contain the size of every shard."""
    return CommitRecord(
        number + 2,
        now - (COMMITS - number) * 10**9,
        run="run",
        seconds=0.5,
        phases={"offsets": 0.01, "read": 0.1, "tasks": 0.3, "commit": 0.05, "publish": 0.02},
        rows=1000,
        rows_in=dict.fromkeys(names, 1000),
        rows_out=dict.fromkeys(names, 1000),
        busy=dict.fromkeys(names, 0.01),
        stored=dict.fromkeys(names, Stored(1000, 100_000)),
        shards={"step-0": {shard: Stored(shard, 10 * shard) for shard in range(SHARDS)}} if number % 60 == 0 else {},
        epoch=now,
        behind={"in": {str(partition): Behind(5, 1.0) for partition in range(8)}},
    )


def measured() -> dict[str, float]:
    """Return the milliseconds of each view."""
    with tempfile.TemporaryDirectory() as where:
        stored(f"{where}/state")
        times: dict[str, float] = {}
        site = Site(f"{where}/state")
        assert len(site.history.records("large")) == COMMITS
        with PageServer(site, guard_for("127.0.0.1"), port=0) as page:
            for view in VIEWS:
                if view in TOOLS:
                    continue
                url = f"http://127.0.0.1:{page.port}/api/{view}?job=large{ARGUMENTS.get(view, '')}"
                _asked(url)
                times[view] = statistics.median(_asked(url) for _ in range(ROUNDS))
    return times


def _asked(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """Measure all views, print a table, and as the last line one JSON object."""
    times = measured()
    for view, milliseconds in times.items():
        print(f"{view:12} {milliseconds:8.1f} ms")
    print(json.dumps({"page_ms": round(max(times.values()), 1)}))


if __name__ == "__main__":
    main()
