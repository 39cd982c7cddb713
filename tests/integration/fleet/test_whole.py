"""The state of a fleet is read like that of any job: all its runs together."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.fleet_nodes import Fleet, started
from tidewheel import StoredJob, read_state
from tidewheel._cli import app


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    a, b = started(opened, "a", "b")
    opened.send(200)
    for node in (a, b):
        node.step()
    # What a had goes to b, and is in part older than what b commits then.
    b.coordinator.leave("a")
    b.begin()
    opened.send(50, keys=20)
    b.step()
    yield opened
    opened.close()


def expected(fleet):
    return {key: [fleet.sent[key], fleet.amounts[key]] for key in fleet.sent}


def test_every_key_has_the_value_of_its_shard_s_holder(fleet):
    job = StoredJob("orders", state=fleet.store.url)
    assert dict(job.scan("total")) == expected(fleet)
    assert sorted(job.keys("total")) == sorted(fleet.sent)
    assert job.get("total", "k7").value == expected(fleet)["k7"]
    assert job.show().event_count == 250


def test_verify_reads_the_files_of_all_runs_and_names_damaged_ones(fleet):
    job = StoredJob("orders", state=fleet.store.url)
    sound = job.verify()
    assert sound.problems == ()
    assert sound.files > 1
    # The state that the dead node left, which the other one refers to.
    damaged = next(Path(fleet.store.root).glob("orders=2F1/state/*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert any(damaged.name in problem.what for problem in job.verify().problems)


def test_from_the_command_line(fleet):
    result = CliRunner().invoke(app, ["state", "get", "orders", "total", "k7", "--state", fleet.store.url])
    assert result.exit_code == 0, result.output
    assert str(expected(fleet)["k7"][1]) in result.output


def test_as_a_dataframe(fleet, spark):
    rows = read_state(spark, fleet.store.url, "total", job="orders", type=list[int]).collect()
    assert {row.key: list(row.value) for row in rows} == expected(fleet)


def test_a_checkpoint_of_one_run_is_read_under_the_run_s_name(fleet):
    run = StoredJob("orders/1", state=fleet.store.url)
    assert set(run.keys("total")) < set(fleet.sent)


def test_a_run_with_all_shards_has_the_state_of_the_fleet(fleet):
    last = max(fleet.chains().runs.numbers())
    run = StoredJob(f"orders/{last}", state=fleet.store.url)
    assert dict(run.scan("total")) == expected(fleet), "it adopted what the others had"
    assert run.verify().problems == ()
    assert run.show().event_count == 50
