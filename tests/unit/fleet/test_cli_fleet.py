"""`tidewheel node` and `tidewheel fleet` with wrong settings: a clear message before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servers.stores import free_ports
from support.fleet_nodes import Fleet, MemoryNode
from support.internals import app

PROGRAM = """
from tidewheel import Job
from tidewheel.sinks import discard
from tidewheel.sources import inbox
from tidewheel.sources import files

job = Job("orders", n_shards={n_shards})
source = {source}
keyed = job.source("in", source).key_by("by-key", "key"){more}
keyed.stateful_map("total", lambda key, event, n: (n, n + 1), default=0).sink("out", discard())
"""
INBOX = "inbox('anywhere', schema='key string, amount long')"


def program(folder: Path, n_shards: int = 8, source: str = INBOX, more: str = "") -> str:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(n_shards=n_shards, source=source, more=more))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "1000"})
    return result.exit_code, " ".join(result.output.split())


def node(folder: Path, job: str, **changed: str) -> tuple[int, str]:
    where = {"cells": f"{folder}/cells", "inbox": f"{folder}/inbox", "state": f"file://{folder}/state", **changed}
    return run("node", "--job", job, "--name", "x", *(f"--{name}={value}" for name, value in where.items()))


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    first = MemoryNode(opened, "a")
    first.join()
    first.begin()
    opened.send(20)
    yield opened
    opened.close()


def test_a_job_with_more_than_one_keyed_level(tmp_path):
    more = ".map('m', lambda event: event).key_by('by-amount', lambda event: event.amount)"
    status, said = node(tmp_path, program(tmp_path, more=more))
    assert status == 1
    assert "more than one keyed level (by-key, by-amount)" in said
    assert "tidewheel run" in said


def test_a_job_that_reads_something_else_than_an_inbox(tmp_path):
    source = "files('somewhere', format='json', schema='key string, amount long')"
    status, said = node(tmp_path, program(tmp_path, source=source))
    assert status == 1
    assert "in a fleet a job has one source, the fleet's inbox" in said


def test_no_such_program(tmp_path):
    status, said = node(tmp_path, str(tmp_path / "nowhere.py"))
    assert status == 1
    assert "there is no program" in said


def test_another_number_of_shards_than_the_fleet_has(fleet, tmp_path):
    status, said = node(tmp_path, program(tmp_path, n_shards=16))
    assert status == 1
    assert "the fleet of 'orders' has 8 shards, this node's program has n_shards=16" in said


def test_an_inbox_with_another_number_of_shards(fleet, tmp_path):
    status, said = node(tmp_path, program(tmp_path, n_shards=16), state=f"file://{tmp_path}/other")
    assert status == 1
    assert "has 8 shards, not 16" in said


def test_an_unavailable_inbox_is_reported(tmp_path, monkeypatch):
    (port,) = free_ports(1)
    monkeypatch.setattr("tidewheel.fleet._inbox.with_nats.inbox.NatsInbox.__init__.__kwdefaults__", {"timeout": 0.5})
    status, said = node(tmp_path, program(tmp_path), inbox=f"nats://127.0.0.1:{port}/orders")
    assert status == 1
    assert f"127.0.0.1:{port}" in said


def test_unavailable_cells_are_reported(tmp_path, monkeypatch):
    (port,) = free_ports(1)
    monkeypatch.setattr("tidewheel.cells.open.__kwdefaults__", {"timeout": "0.5 s"})
    status, said = node(tmp_path, program(tmp_path), cells=f"etcd://127.0.0.1:{port}/fleet")
    assert status == 1
    assert f"127.0.0.1:{port}" in said


def test_a_job_that_was_run_by_itself(tmp_path):
    from tidewheel import Job
    from tidewheel.testing import MemoryRun

    job = Job("orders", state=f"file://{tmp_path}/state", n_shards=8)
    job.source("in", lambda spark: None).key_by("k", "key").stateful_map("s", lambda k, v, s: (1, 1), default=0).sink(
        "out", __import__("tidewheel.sinks", fromlist=["discard"]).discard()
    )
    with MemoryRun(job):
        pass
    status, said = node(tmp_path, program(tmp_path))
    assert status == 1
    assert "a fleet begins with none" in said


def test_a_fleet_s_job_cannot_be_run_by_itself(fleet, tmp_path):
    job = program(tmp_path, source="inbox('" + str(tmp_path / "inbox") + "', schema='key string, amount long')")
    status, said = run("run", job, "--state", f"file://{tmp_path}/state")
    assert status == 1
    assert "belongs to a fleet" in said


def test_status_shows_nodes_shards_and_the_backlog(fleet, tmp_path):
    where = ("--cells", f"{tmp_path}/cells", "--inbox", f"{tmp_path}/inbox", "--state", f"file://{tmp_path}/state")
    status, said = run("fleet", "status", "orders", *where)
    assert status == 0
    assert "orders: 1 nodes, 8 shards, epoch 1, 20 events behind, 0 shards on the move" in said
    status, said = run("fleet", "status", "orders", *where, "--json")
    told = json.loads(said)
    assert [node["name"] for node in told["nodes"]] == ["a"]
    assert sum(shard["lag"] for shard in told["shards"]) == 20
    assert {shard["holder"] for shard in told["shards"]} == {"a"}


def test_status_shows_moves(fleet, tmp_path):
    late = MemoryNode(fleet, "b")
    late.join()
    where = ("--cells", f"{tmp_path}/cells", "--inbox", f"{tmp_path}/inbox", "--state", f"file://{tmp_path}/state")
    assert "4 shards on the move" in run("fleet", "status", "orders", *where)[1]
    late.begin()
    assert "0 shards on the move" in run("fleet", "status", "orders", *where)[1]


def test_an_unknown_fleet_and_an_unknown_node(fleet, tmp_path):
    where = ("--cells", f"{tmp_path}/cells", "--inbox", f"{tmp_path}/inbox", "--state", f"file://{tmp_path}/state")
    status, said = run("fleet", "status", "payments", *where)
    assert status == 1
    assert "there is no fleet of job 'payments'" in said
    status, said = run("fleet", "drain", "z", "--job", "orders", "--cells", f"{tmp_path}/cells")
    assert status == 1
    assert "there is no node 'z' in the fleet of 'orders'; its members are: a" in said
    status, said = run("fleet", "drain", "z", "--job", "payments", "--cells", f"{tmp_path}/cells")
    assert status == 1
    assert "there is no fleet of job 'payments'" in said


def test_draining_waits_until_the_node_has_left(fleet, tmp_path):
    status, said = run("fleet", "drain", "a", "--job", "orders", "--cells", f"{tmp_path}/cells", "--wait", "100 ms")
    assert status == 1
    assert "node 'a' has not left within 100 ms" in said
