"""A Spark query is killed, migrated with `tidewheel migrate`, and continued by a job: nothing is lost or counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from servers.java_archive import java_options
from support.waiting import eventually
from tidewheel import StoredJob
from tidewheel._cli import app
from tidewheel._cli.program import load_job

HERE = Path(__file__).parent
PROGRAM = HERE / "new_program.py"


def write_visits(folder: Path, files: int, rows: int, users: int, seed: int) -> None:
    """Write files with visits, each a second younger than the one before: both engines read them in this order.

    The first file has a visit of each user.
    """
    folder.mkdir()
    draw = random.Random(seed)
    for number in range(files):
        visitors = [draw.randrange(users) for _ in range(rows)] if number else range(users)
        columns = {
            "user": [f"u{user}" for user in visitors],
            "page": [draw.choice("abc") for _ in visitors],
            "cents": [draw.randrange(1000) for _ in visitors],
        }
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        at = 1_700_000_000 + number
        os.utime(path, (at, at))


def run_and_kill_query(inputs: Path, checkpoint: Path, batches: int, partitions: int) -> int:
    """Run the old query until it has committed some batches, kill it, and return its last committed batch."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": java_options()}
    command = [sys.executable, str(HERE / "old_query.py"), str(inputs), str(checkpoint), str(partitions)]
    with (checkpoint.parent / "query.log").open("wb") as log:
        query = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        eventually(
            lambda: query.poll() is not None or (checkpoint / "commits" / str(batches - 1)).exists(), "the commit", 7200
        )
        assert query.poll() is None, log_of(checkpoint)
    finally:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
    return max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


def log_of(checkpoint: Path) -> str:
    return (checkpoint.parent / "query.log").read_text()[-3000:]


def migrate(checkpoint: Path) -> Result:
    return CliRunner().invoke(app, ["migrate", str(checkpoint), "--program", str(PROGRAM)])


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> tuple[dict, Counter]:
    """Run the new program to its end; return its states, and the rows that it has written."""
    at(monkeypatch, folder, name)
    load_job(str(PROGRAM)).run(until="caught-up", parallelism=2)
    out = pq.read_table(folder / f"out-{name}")
    rows = Counter(zip(*(out.column(column).to_pylist() for column in ("user", "n", "cents")), strict=True))
    return dict(StoredJob("visits", state=str(folder / f"state-{name}")).scan("visits")), rows


def at(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> None:
    for variable, path in (("IN", "in"), ("STATE", f"state-{name}"), ("OUT", f"out-{name}")):
        monkeypatch.setenv(f"VISITS_{variable}", str(folder / path))


def check_migration(
    monkeypatch, folder: Path, *, files: int, rows: int, users: int, batches: int, partitions: int
) -> dict:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    write_visits(folder / "in", files, rows, users, seed)
    began = time.monotonic()
    batch = run_and_kill_query(folder / "in", folder / "checkpoint", batches, partitions)
    killed = time.monotonic()
    at(monkeypatch, folder, "migrated")
    ended = migrate(folder / "checkpoint")
    done = time.monotonic()
    assert ended.exit_code == 0, ended.output
    assert f"continues source 0 (files): {batch + 1:,} files read" in ended.output
    again = migrate(folder / "checkpoint")
    assert again.exit_code == 1
    assert "job 'visits' has had batches up to" in str(again.exception) + again.output
    states, continued = run(monkeypatch, folder, "migrated")
    whole, from_scratch = run(monkeypatch, folder, "new")
    assert states == whole
    # The job writes a row for each record that the query had not read: the last rows of the job that read everything.
    assert not continued - from_scratch
    assert batch + 1 < files
    assert continued.total() == rows * (files - batch - 1)
    return {"keys": len(whole), "query_s": killed - began, "migrate_s": done - killed}


def test_a_killed_query_continues_as_a_job_that_was_never_migrated(monkeypatch, tmp_path):
    check_migration(monkeypatch, tmp_path, files=6, rows=60, users=25, batches=2, partitions=1)


@pytest.mark.slow
def test_a_query_with_a_million_keys_is_migrated(monkeypatch, tmp_path):
    print(check_migration(monkeypatch, tmp_path, files=4, rows=50_000, users=1_000_000, batches=1, partitions=2))
