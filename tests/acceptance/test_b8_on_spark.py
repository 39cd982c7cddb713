"""B8 on Spark: restore with a file source, and state as a DataFrame."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions, StoredJob, count, read_state, sum_
from tidewheel.errors import ConfigError, NotFound
from tidewheel.sinks import discard
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files, iterable
from tidewheel.testing import MemoryRun

FILES = 6


def write_input(folder: Path) -> Counter:
    totals: Counter = Counter()
    folder.mkdir()
    for number in range(FILES):
        rows = [{"user": f"u{(number * 5 + n) % 7}", "amount": n + number} for n in range(12)]
        for row in rows:
            totals[row["user"]] += row["amount"]
        path = folder / f"part-{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return totals


def running(url: str, source: Path, out: Path, name: str = "orders") -> Job:
    job = Job(name, state=url, n_shards=4, keep=50, snapshot_every=2)
    (
        job.source("in", files(str(source), format="json", schema="user string, amount long", max_files_per_trigger=1))
        .key_by("by-user", "user", value="amount")
        .stateful_map(
            "sum", lambda user, amount, total: ({"user": user, "total": total + amount}, total + amount), default=0
        )
        .sink("out", file_sink(out, format="json"))
    )
    return job


def rows(folder: Path) -> list[tuple[str, int]]:
    lines = (line for path in folder.glob("*.json") for line in path.read_text().splitlines())
    return sorted((row["user"], row["total"]) for row in map(json.loads, lines))


def test_b8_restore_on_spark_rewinds_the_file_source_too(spark, tmp_path):
    """To each of several checkpoints of one job, in both directions, each time on to the end."""
    totals = write_input(tmp_path / "in")
    url = f"file://{tmp_path}/state"
    job = running(url, tmp_path / "in", tmp_path / "out")

    def run() -> None:
        job.run(until="caught-up", parallelism=2, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))

    run()
    stored = StoredJob("orders", state=url)
    expected = rows(tmp_path / "out")
    assert dict(stored.scan("sum")) == totals
    assert len(expected) == FILES * 12
    for back in (1, 4, FILES):
        standing = {found.batch: found.sequence for found in stored.list() if found.kind in ("batch", "claim")}
        wanted = FILES - 1 - back
        stored.restore(standing[wanted] if wanted >= 0 else 1)
        run()
        stored = StoredJob("orders", state=url)
        assert stored.show().batch == FILES - 1
        assert dict(stored.scan("sum")) == totals
        assert rows(tmp_path / "out") == expected


def test_b8_a_fork_on_spark_continues_from_its_savepoint(spark, tmp_path):
    totals = write_input(tmp_path / "in")
    url = f"file://{tmp_path}/state"
    options = RunOptions(until="caught-up", parallelism=2, spark=spark, local=f"{tmp_path}/local")
    running(url, tmp_path / "in", tmp_path / "out").run(options=options)
    stored = StoredJob("orders", state=url)
    stored.savepoint("middle", at=next(found.sequence for found in stored.list() if found.batch == 3))
    stored.fork("middle", "branch")
    running(url, tmp_path / "in", tmp_path / "branch", "branch").run(options=options)
    branch = StoredJob("branch", state=url)
    assert dict(branch.scan("sum")) == totals
    assert branch.show().event_count == FILES * 12
    # What the parent published before the savepoint is the parent's.
    assert len(rows(tmp_path / "branch")) == (FILES - 4) * 12
    assert dict(StoredJob("orders", state=url).scan("sum")) == totals


@dataclass
class Account:
    balance: float = 0.0
    owner: str = ""
    tags: list[str] | None = None


def pay(key: str, record: dict, account: Account) -> tuple[None, Account]:
    return None, Account(account.balance + record["amount"], key.upper(), [*(account.tags or []), "paid"])


@pytest.fixture
def bank(tmp_path) -> str:
    url = f"file://{tmp_path}/state"
    job = Job("bank", state=url, n_shards=8, keep=50)
    stream = job.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    stream.stateful_map("account", pay).sink("out-1", discard())
    stream.aggregate("sums", total=sum_("amount"), n=count()).sink("out-2", discard())
    by_number = stream.key_by("by-number", lambda record: record["number"])
    by_number.stateful_map("last", lambda _, record, state: (None, record["amount"]), default=0).sink(
        "out-3", discard()
    )
    with MemoryRun(job, parallelism=2) as run:
        for turn in range(3):
            run.batch({"in": [{"user": f"user-{n}", "number": n, "amount": n + turn} for n in range(40)]})
    return url


def test_b8_read_state_gives_typed_columns_at_any_kept_checkpoint(spark, bank):
    frame = read_state(spark, bank, "account")
    assert frame.columns == ["key", "balance", "owner", "tags"]
    assert dict(frame.dtypes)["tags"] == "array<string>"
    assert frame.count() == 40
    row = frame.where("key = 'user-7'").collect()[0]
    assert (row.balance, row.owner, row.tags) == (24.0, "USER-7", ["paid"] * 3)
    early = read_state(spark, bank, "account", at=2, type=Account)
    assert dict(early.dtypes) == {"key": "string", "balance": "double", "owner": "string", "tags": "array<string>"}
    assert early.agg({"balance": "sum"}).collect()[0][0] == sum(range(40))
    assert read_state(spark, bank, "last", job="bank").agg({"key": "sum", "value": "sum"}).collect()[0].asDict() == {
        "sum(key)": sum(range(40)),
        "sum(value)": sum(range(40)) + 80,
    }
    sums = read_state(spark, bank, "sums")
    assert sums.columns[0] == "key"
    assert sums.where("key = 'user-3'").select("total", "n").collect() == [(12, 3)]


def test_b8_a_dataframe_of_state_is_the_beginning_of_another_job(spark, bank, tmp_path):
    job = Job("second", state=f"file://{tmp_path}/second", n_shards=2)
    stream = job.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    stream.stateful_map("account", pay).sink("out", discard())
    assert job.import_state("account", read_state(spark, bank, "account", at=3)) == 40
    assert dict(job_state(job, "account")) == dict(StoredJob("bank", state=bank).scan("account", at=3))


def job_state(job: Job, operator: str) -> list:
    return list(StoredJob(job.name, state=job.state).scan(operator))


def test_b8_read_state_names_missing_steps_and_checkpoints(spark, bank):
    with pytest.raises(NotFound, match=r"no step 'nothing'; there are 'account', 'last', 'sums'"):
        read_state(spark, bank, "nothing")
    with pytest.raises(NotFound, match="no checkpoint 99"):
        read_state(spark, bank, "account", at=99)
    StoredJob("bank", state=bank).savepoint("here")
    StoredJob("bank", state=bank).fork("here", "other")
    with pytest.raises(ConfigError, match="say which with job="):
        read_state(spark, bank, "account")
    assert read_state(spark, bank, "account", job="other").count() == 40
