"""Measure Delta and Iceberg tables: the sinks compared with the plain clients, the driver's memory, and compaction.

The plain process writes each batch with one call of the client. The tasks of the job write their shares of a batch in one process
for each core, and the driver commits. The last line is one JSON object.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
from benchmarks.connectors.sinks import BATCH, batches, compared
from benchmarks.lake import chain

from tidewheel import sinks
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel._connectors.sink import Publication, Sink, Staging
from tidewheel._storage import open_store

ROWS = 2_000_000
"""Rows of a table that is appended to."""
KEYS, CHANGES = 200_000, 400_000
"""Rows of a table that is merged into, and changes of them."""
TASKS = os.cpu_count() or 1

Kind = Literal["append", "merge"]
SIZES: dict[Kind, int] = {"append": ROWS, "merge": CHANGES}
COMMIT = 250_000
"""Rows of a commit."""


def _staged(sink: Sink, folder: str, sequence: int, task: int, rows: pa.RecordBatch) -> bytes:
    partition = sink.open(Staging(open_store(folder), "bench", "out", sequence, f"run-{task}-{sequence}"))
    partition.write(rows)
    token = partition.prepare()
    assert token is not None
    return token


def _task(sink: Sink, folder: str, sequence: int, task: int, kind: Kind) -> bytes:
    """Stage the share of a task. A task has its rows in memory, as the plain process has: both only write."""
    commits = commits_of(kind)
    rows = commits[(sequence - 2) % len(commits)]
    share = -(-rows.num_rows // TASKS)
    return _staged(sink, folder, sequence, task, rows.slice(task * share, share))


def _warm(_: int) -> None:
    import deltalake
    import pyiceberg.io.pyarrow  # noqa: F401

    assert deltalake.__version__
    for kind in get_args(Kind):
        commits_of(kind)


def through(tasks: ProcessPoolExecutor, sink: Sink, kind: Kind, folder: str, first: int = 2, rows: int = 0) -> None:
    """Let tasks stage commits with these rows, by default all of the kind, and publish them."""
    store = open_store(folder)
    sink.start("bench")
    for sequence in range(first, first + -(-(rows or SIZES[kind]) // COMMIT)):
        running = [tasks.submit(_task, sink, folder, sequence, task, kind) for task in range(TASKS)]
        tokens = tuple(each.result() for each in running)
        sink.publish(Publication(store, "bench", "out", sequence, tokens, None))


@functools.cache
def commits_of(kind: Kind) -> list[pa.RecordBatch]:
    """Return the commits of a job: new rows, or changes of rows with each key once in a commit."""
    if kind == "append":
        return _commits(ROWS)
    return [rows.set_column(0, "id", pa.array(range(rows.num_rows))) for rows in _commits(CHANGES)]


def _commits(rows: int) -> list[pa.RecordBatch]:
    small, some = batches(rows), COMMIT // BATCH
    joined = [
        pa.Table.from_batches(small[start : start + some]).combine_chunks() for start in range(0, len(small), some)
    ]
    return [table.to_batches()[0] for table in joined]


def delta_append(folder: str, tasks: ProcessPoolExecutor) -> dict[str, float]:
    """Compare appends with one `write_deltalake` a batch."""
    from deltalake import DeltaTable, write_deltalake

    commits = commits_of("append")

    def plain(number: int) -> None:
        for rows in commits:
            write_deltalake(f"{folder}/plain-{number}", pa.Table.from_batches([rows]), mode="append")

    def ours(number: int) -> None:
        through(tasks, sinks.delta(f"{folder}/ours-{number}"), "append", f"{folder}/state-{number}")
        assert DeltaTable(f"{folder}/ours-{number}").count() == ROWS

    return compared("delta_append_vs_client", ROWS, plain, ours)


def delta_merge(folder: str, tasks: ProcessPoolExecutor) -> dict[str, float]:
    """Compare merges by key with `DeltaTable.merge` of the same batches, of which a key is in each only once."""
    from deltalake import DeltaTable, write_deltalake

    first = pa.Table.from_batches(batches(KEYS))
    changes = commits_of("merge")

    def plain(number: int) -> None:
        write_deltalake(f"{folder}/merged-{number}", first)
        for rows in changes:
            merge = DeltaTable(f"{folder}/merged-{number}").merge(
                pa.Table.from_batches([rows]), "t.id = s.id", source_alias="s", target_alias="t", streamed_exec=False
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def ours(number: int) -> None:
        write_deltalake(f"{folder}/our-{number}", first)
        through(tasks, sinks.delta(f"{folder}/our-{number}", mode="merge", key="id"), "merge", f"{folder}/s-{number}")
        assert DeltaTable(f"{folder}/our-{number}").count() == DeltaTable(f"{folder}/merged-{number}").count()

    return compared("delta_merge_vs_client", CHANGES, plain, ours)


def iceberg_append(folder: str, tasks: ProcessPoolExecutor) -> dict[str, float]:
    """Compare appends with one `table.append` a batch, to tables of an SQL catalog."""
    from pyiceberg.catalog import load_catalog

    commits = commits_of("append")
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    client = load_catalog("bench", **catalog)
    client.create_namespace("bench")

    def plain(number: int) -> None:
        table = client.create_table(f"bench.plain{number}", commits[0].schema)
        for rows in commits:
            table.append(pa.Table.from_batches([rows]))

    def ours(number: int) -> None:
        through(tasks, sinks.iceberg(f"bench.ours{number}", catalog=catalog), "append", f"{folder}/i-{number}")
        table = TableName.of(f"bench.ours{number}", catalog).load("the benchmark")
        assert table is not None
        assert table.scan().count() == ROWS

    return compared("iceberg_append_vs_client", ROWS, plain, ours)


def compacted(folder: str) -> float:
    """Return how many files of a table with 200 small ones are left for each one after a compaction."""
    sink = sinks.delta(f"{folder}/small")
    store = open_store(f"{folder}/small-state")
    rows = batches(1_000)[0]
    sink.start("bench")
    for sequence in range(2, 202):
        token = _staged(sink, f"{folder}/small-state", sequence, 0, rows)
        sink.publish(Publication(store, "bench", "out", sequence, (token,), None))
    done = sink.compact()
    return done.before / done.after


def driver_memory(rows: int) -> None:
    """Print the maximum growth of a driver in MB while it publishes this many rows, in its own process.

    The driver has no rows: its tasks make them.
    """
    with tempfile.TemporaryDirectory() as folder, _pool() as tasks:
        sink = sinks.delta(f"{folder}/table")
        list(tasks.map(_warm, range(TASKS)))
        through(tasks, sink, "append", f"{folder}/state", rows=4 * COMMIT)
        # Reset the kernel's peak counter.
        Path("/proc/self/clear_refs").write_text("5")
        before = _memory("VmRSS")
        through(tasks, sink, "append", f"{folder}/state", first=6, rows=rows)
        print((_memory("VmHWM") - before) / 1024)


def _memory(name: str) -> int:
    """Return a figure of this process in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(TASKS, get_context("spawn"))


def main() -> None:
    """Measure everything."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, _pool() as tasks:
        list(tasks.map(_warm, range(TASKS)))
        for measure in (delta_append, delta_merge, iceberg_append):
            found |= measure(folder, tasks)
            print(found)
        found["compacted_files_ratio"] = compacted(folder)
    grown = subprocess.run(
        [sys.executable, "-m", "benchmarks.lake.run", "memory"], check=True, capture_output=True, text=True
    ).stdout
    found["driver_mb_per_million_rows"] = float(grown.splitlines()[-1]) / 4
    found |= chain.measure()
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    driver_memory(4_000_000) if sys.argv[1:] == ["memory"] else main()
