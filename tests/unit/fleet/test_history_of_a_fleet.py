"""The history of a key, and second runs of batches, for a job that a fleet runs."""

from __future__ import annotations

import pytest

from support.fleet_nodes import Fleet, counting, started
from tidewheel import StoredJob
from tidewheel.errors import ConfigError


@pytest.fixture
def state(tmp_path):
    fleet = Fleet(tmp_path)
    nodes = started(fleet, "a", "b")
    for _ in range(2):
        fleet.send(100)
        for node in nodes:
            node.step()
    yield f"file://{tmp_path}/state"
    fleet.close()


def test_the_history_of_a_key_is_in_the_run_that_held_its_shard(state):
    with pytest.raises(ConfigError, match="in each run: orders/1, orders/2"):
        StoredJob("orders", state=state).history("total", "k1")
    versions = [StoredJob(run, state=state).history("total", "k1").versions for run in ("orders/1", "orders/2")]
    assert sorted(len(each) for each in versions) == [0, 2]


@pytest.mark.parametrize("name", ["orders", "orders/1"])
def test_batches_of_a_fleet_do_not_run_again(state, tmp_path, name):
    stored, program = StoredJob(name, state=state), counting(tmp_path)
    for run in (
        lambda: stored.replay(program, stored.list()[-1].sequence),
        lambda: stored.replay(program, "next"),
        lambda: stored.messages(program, stored.list()[-1].sequence, "total", "k1"),
        lambda: list(stored.written(program, "out", lambda row: True)),
        lambda: stored.shadow(program, last=1),
    ):
        with pytest.raises(ConfigError, match=f"batches of job '{name}' cannot run again: they are those of a fleet"):
            run()
