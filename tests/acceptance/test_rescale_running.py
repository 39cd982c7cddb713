"""A running job is rescaled from another process, 2 -> 4 -> 1 -> 3: exact, and no state is rewritten."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from support.driven import ALWAYS_DIVIDED, run_divided
from support.internals import open_store, states
from tidewheel import Job, RunOptions
from tidewheel._cli.rescale import rescale, stretches
from tidewheel._spark.cluster import default_parallelism
from tidewheel.checkpoints import StreamCheckpoints
from tidewheel.codecs import msgpack_codec
from tidewheel.sinks import collect
from tidewheel.sources import files
from tidewheel.testing import MemoryRun

ORDER = [4, 1, 3]
SHARDS = 8
MOST_BATCHES = 30


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `tidewheel rescale` in a process of its own."""
    code = "import typer; from tidewheel._cli.rescale import rescale; typer.run(rescale)"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)


def written(folder: Path, number: int, draw: random.Random) -> list[tuple[str, int]]:
    rows = [(f"user-{draw.randrange(300)}", draw.randrange(100)) for _ in range(400)]
    table = pa.table({"user": [user for user, _ in rows], "n": [n for _, n in rows]})
    pq.write_table(table, folder / f"writing-{number}")
    (folder / f"writing-{number}").rename(folder / f"{number:03d}.parquet")
    return rows


def counting(folder: Path) -> Job:
    job = Job("counting", state=f"file://{folder}/state", n_shards=SHARDS, keep=1000, snapshot_every=1000)
    (
        job.source("in", files(f"{folder}/in", schema="user string, n long", max_files_per_trigger=1, glob="*.parquet"))
        .key_by("by-user", "user", value="n")
        .stateful_map("count", lambda user, n, seen: (seen + 1, seen + 1), default=0)
        .sink("out", collect())
    )
    return job


def test_a_running_job_is_rescaled_from_another_process(spark, tmp_path):
    draw = random.Random(20261115)
    (tmp_path / "in").mkdir()
    everything = written(tmp_path / "in", 0, draw)
    job, orders, tasks = counting(tmp_path), list(ORDER), []
    out = job.graph.nodes[-1].operator.sink
    finished = threading.Event()

    def after(batch) -> None:
        """Order the next change as soon as the last one is in force; end the input with the last."""
        if not batch.rows:
            return
        tasks.append(batch.parallelism)
        if orders and (len(tasks) < 2 or batch.parallelism == ORDER[len(ORDER) - len(orders) - 1]):
            command("counting", str(orders.pop(0)), "--state", f"file://{tmp_path}/state")
        elif not orders and batch.parallelism == ORDER[-1]:
            finished.set()
        if not finished.is_set() and len(tasks) < MOST_BATCHES:
            everything.extend(written(tmp_path / "in", len(tasks), draw))
        else:
            driver.stop()

    from tidewheel._spark.driver import Driver

    options = RunOptions(parallelism=2, spark=spark, local=f"{tmp_path}/local", progress=after)
    driver = Driver(job, job.plan(), options, limits=ALWAYS_DIVIDED)
    driver.execute()
    assert [number for number, before in zip(tasks, [None, *tasks], strict=False) if number != before] == [2, 4, 1, 3]
    counts = Counter(user for user, _ in everything)
    store = open_store(f"file://{tmp_path}/state")
    commits = StreamCheckpoints(store, "counting").list()
    held = {user: msgpack_codec().decode(raw) for user, raw in states(store, commits[-1])["count"].items()}
    assert held == dict(counts)
    assert sorted((row["user"], row["value"]) for row in out.records) == sorted(
        (user, n) for user, last in counts.items() for n in range(1, last + 1)
    )
    assert_nothing_rewritten(store, commits)
    assert [stretch.parallelism for stretch in stretches(commits)] == [2, 4, 1, 3]
    told = json.loads(command("counting", "--state", f"file://{tmp_path}/state", "--json").stdout)
    assert [stretch["parallelism"] for stretch in told["history"]] == [2, 4, 1, 3]
    assert told["ordered"] == 3


def assert_nothing_rewritten(store, commits) -> None:
    """Every state file is a delta with the keys that its own batch changed, and every commit keeps all parts before it."""
    listed = [entry.path.removeprefix("counting/") for entry in store.list("counting/state")]
    assert {Path(name).suffix for name in listed} == {".delta"}
    for before, after in pairwise(commits):
        for shard, parts in before.shards.items():
            assert after.shards[shard].deltas[: len(parts.deltas)] == parts.deltas
    changed = {file.name for commit in commits for file in commit.files()}
    assert changed == set(listed)


@pytest.fixture
def stopped_job(tmp_path):
    job = Job("j", state=f"file://{tmp_path}/state", n_shards=SHARDS)
    job.source("in", files("/data"), type=dict).key_by("k", "k").stateful_map(
        "n", lambda k, r, n: (n + 1, n + 1), default=0
    ).sink("out", collect())
    with MemoryRun(job, parallelism=2) as run:
        run.batch({"in": [{"k": 1}]})
    return job


def invoke(*arguments: str):
    import typer

    app = typer.Typer()
    app.command()(rescale)
    return CliRunner().invoke(app, arguments)


def test_a_rescale_is_kept_for_the_next_start_and_its_first_batch(stopped_job):
    result = invoke("j", "5", "--state", stopped_job.state)
    assert result.exit_code == 0
    assert "5 tasks from the next batch on (commit 3 was made with 2)" in result.output
    with MemoryRun(stopped_job, parallelism=2) as run:
        run.batch({"in": [{"k": 1}]})
        assert run.run.head.parallelism == 5
    shown = invoke("j", "--state", stopped_job.state).output
    assert "5 tasks are set, 8 shards" in shown
    assert [line.split()[:4] for line in shown.splitlines()[2:]] == [["2", "2", "2", "1"], ["5", "5", "5", "1"]]


def test_an_order_is_removed_so_that_the_run_chooses_again(stopped_job):
    invoke("j", "5", "--state", stopped_job.state)
    result = invoke("j", "auto", "--state", stopped_job.state)
    assert "as many tasks as its run chooses from the next batch on" in result.output
    with MemoryRun(stopped_job, parallelism=2) as run:
        run.batch({"in": [{"k": 1}]})
        assert run.run.head.parallelism == 2


def test_a_run_with_auto_changes_the_number_of_tasks_after_its_batches(spark, tmp_path, monkeypatch):
    """What the rule says is in force from the next batch on. The rule itself has tests of its own."""
    loads, chosen = [], iter([3, 3, 2])

    def rule(scale, load, limits, patience):
        loads.append((load, limits))
        return scale._replace(tasks=next(chosen))

    monkeypatch.setattr("tidewheel._engine.autoscale.next_scale", rule)
    (tmp_path / "in").mkdir()
    for number in range(3):
        written(tmp_path / "in", number, random.Random(number))
    job, tasks = counting(tmp_path), []
    run_divided(
        job,
        until="caught-up",
        parallelism="auto",
        spark=spark,
        local=f"{tmp_path}/local",
        progress=lambda batch: tasks.append(batch.parallelism),
    )
    cores = default_parallelism(spark)
    assert tasks == [min(cores, SHARDS), 3, 3]
    assert [load.tasks for load, _ in loads] == tasks
    assert all(load.work > 0 and load.elapsed > 0 and limits.most == cores for load, limits in loads)


@pytest.mark.parametrize("tasks", ["0", "9"])
def test_the_bounds_are_one_and_the_number_of_shards(stopped_job, tasks):
    result = invoke("j", tasks, "--state", stopped_job.state)
    assert result.exit_code == 1
    assert f"between 1 and its 8 shards, or 'auto', not {tasks}" in str(result.exception)
