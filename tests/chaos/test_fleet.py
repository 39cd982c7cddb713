"""A fleet of real processes counts every event once while nodes are killed, drained, added and paused.

Most tests run without Spark, which would only add time; one runs with Spark, as users start a fleet.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from servers.kafka_server import running_kafka
from servers.nats_server import running_nats
from servers.stores import running_etcd
from support.fleet_processes import LEASE, Processes
from support.waiting import SOON
from tidewheel.fleet._inbox import open_inbox
from tidewheel.fleet._nodes.router import Router

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS.parent / "examples"))

from fleet_demo import PRODUCERS, check, events_of, show, until  # noqa: E402
from fleet_demo import Fleet as DemoFleet  # noqa: E402


@pytest.fixture(scope="module")
def etcd_here(tmp_path_factory):
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def nats_here(tmp_path_factory):
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["folders", "etcd and nats"])
def fleet(request, tmp_path):
    cells, inbox = f"{tmp_path}/cells", f"{tmp_path}/inbox"
    if request.param == "etcd and nats":
        # The servers are shared, so the names are not.
        cells = request.getfixturevalue("etcd_here").url(tmp_path.name)
        inbox = request.getfixturevalue("nats_here").url(tmp_path.name)
    made = Processes(tmp_path, cells, inbox)
    yield made
    made.close()


def test_killed_paused_drained_and_joined_while_events_flow(fleet):
    shared = fleet.shared
    for name in "abc":
        fleet.start(name)
    for name in "abc":
        fleet.wait_for(name, "joined")
    shared.send(2000)
    for name in "abc":
        fleet.wait_for(name, "batch")

    fleet.signal("b", signal.SIGKILL)
    killed = time.time()
    lost = set(fleet.told("b", "adopted")[-1]["shards"])
    shared.send(1000)
    fleet.wait(lambda: lost <= _of(fleet, "ac"), "its shards are taken")
    print(f"taken {time.time() - killed:.1f} s after the kill, with a lease of {LEASE} s")

    fleet.start("d")
    fleet.wait_for("d", "adopted")
    shared.send(1000)
    fleet.wait_for("d", "batch")

    paused = time.time()
    held = _held(fleet, "c")
    fleet.signal("c", signal.SIGSTOP)
    shared.send(1000)
    fleet.wait(lambda: held <= _of(fleet, "ad"), "the paused node's shards are taken")
    shared.send(500)
    fleet.signal("c", signal.SIGCONT)
    fleet.wait_for("c", "adopted", after=paused)
    shared.send(500)

    fleet.signal("a", signal.SIGTERM)
    assert fleet.nodes["a"].wait(SOON) == 0
    assert fleet.told("a", "left")
    shared.send(1000)
    fleet.wait(lambda: sum(n for n, _ in shared.totals().values()) == 7000, "all events are counted")
    for name in "cd":
        fleet.signal(name, signal.SIGTERM)
    for name in "cd":
        assert fleet.nodes[name].wait(SOON) == 0
    shared.check_exact()


def test_the_job_continues_after_all_nodes_were_killed(fleet):
    shared = fleet.shared
    fleet.start("a")
    shared.send(1000)
    fleet.wait_for("a", "batch")
    fleet.signal("a", signal.SIGKILL)
    shared.send(1000)
    fleet.start("z")
    fleet.wait(lambda: sum(n for n, _ in shared.totals().values()) == 2000, "all events are counted")
    fleet.signal("z", signal.SIGTERM)
    assert fleet.nodes["z"].wait(SOON) == 0
    shared.check_exact()


def _held(fleet: Processes, name: str) -> set[int]:
    adopted = fleet.told(name, "adopted")
    return set(adopted[-1]["shards"]) if adopted else set()


def _of(fleet: Processes, names: str) -> set[int]:
    return {shard for name in names for shard in _held(fleet, name)}


def test_a_node_on_spark_is_killed(tmp_path):
    """With folders for cells and inbox, as on one machine."""
    fleet, events = DemoFleet(tmp_path, f"{tmp_path}/cells", f"{tmp_path}/inbox"), 20_000
    try:
        for name in "ab":
            fleet.start_node(name)
        for name in "ab":
            until(lambda name=name: fleet.alive(name) and fleet.events(name, "joined"), f"node {name} joins", SOON)
        first, second = (events_of(producer, events // 2) for producer in PRODUCERS)
        with open_inbox(fleet.inbox) as inbox, Router(inbox) as router:
            router.route_many(first)
            router.flush()
            fleet.wait_for_commits("ab")
            assert fleet.shards("b")
            router.route_many(second)
            fleet.signal("b", signal.SIGKILL)
        until(lambda: fleet.alive("a") and fleet.counted() == events, "all events are counted", SOON)
        fleet.signal("a", signal.SIGTERM)
        assert fleet.nodes["a"].wait(SOON) == 0, "it drained"
        check(fleet, events)
    finally:
        fleet.close()


@pytest.mark.slow
def test_everything_at_once_on_spark_with_etcd_nats_and_kafka(tmp_path):
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        running_nats(tmp_path / "nats") as nats,
        running_kafka(tmp_path / "kafka") as kafka,
    ):
        fleet = DemoFleet(tmp_path, etcd.url("fleet"), nats.url("events"))
        try:
            show(fleet, kafka.brokers, 100_000, 40)
        finally:
            fleet.close()
