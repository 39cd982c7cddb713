"""A fleet of real processes: killed, drained, joined and paused, it counts every event once."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from fleet_demo import SHARDS, Fleet, check, show, until  # noqa: E402

from nats_server import running_nats  # noqa: E402
from servers import running_etcd  # noqa: E402
from tidewheel.cluster import inbox as inboxes  # noqa: E402


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path, f"{tmp_path}/cells", f"{tmp_path}/inbox")
    yield made
    made.close()


def test_a_killed_node_s_shards_go_on_at_the_other_from_its_last_commit(fleet):
    """With folders for cells and inbox, as on one machine."""
    events = 20_000
    inboxes.open(fleet.inbox, SHARDS).close()
    for name in "ab":
        fleet.start_node(name)
    for name in "ab":
        until(lambda name=name: fleet.alive(name) and fleet.told(name, "joined"), f"node {name} joins", 120)
    fleet.start_producers(events // 2, seconds=3)
    fleet.wait_for_commits("ab")
    lost, killed = fleet.shards("b"), time.time()
    fleet.signal("b", signal.SIGKILL)
    assert lost
    until(lambda: fleet.first_commit_for(lost, killed) or fleet.counted() == events, "its shards go on", 120)
    until(lambda: fleet.counted() == events, "all events are counted", 120)
    fleet.signal("a", signal.SIGTERM)
    assert fleet.nodes["a"].wait(60) == 0, "it drained"
    assert fleet.told("a", "left")
    check(fleet, events)


@pytest.mark.slow
def test_everything_at_once_with_etcd_and_nats(tmp_path):
    with running_etcd(tmp_path / "etcd") as etcd, running_nats(tmp_path / "nats") as nats:
        fleet = Fleet(tmp_path, etcd.url("fleet"), nats.url("events"))
        try:
            show(fleet, 100_000, 40)
        finally:
            fleet.close()
