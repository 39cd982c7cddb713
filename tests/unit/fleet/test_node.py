"""A node beside its runs: what it tries again, and what it tidies."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from fleet_nodes import SHARDS, Fleet, MemoryNode, counting
from memory_inbox import whole
from tidewheel._fleet import node as nodes
from tidewheel._fleet.node import Node, NodeOptions
from tidewheel._fleet.node_names import NodeNames
from tidewheel.errors import ConnectorUnavailable, StorageError


class Engine:
    """Runs nothing: a run that has its shards asks the node to leave."""

    spark = None

    def __init__(self) -> None:
        self.held: list[frozenset[int]] = []

    def start(self):
        pass

    def drive(self, job, plan, run):
        self.held.append(run.held)
        return SimpleNamespace(execute=lambda: SimpleNamespace(stopped=True), stop=lambda: None)


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path, keep=2, collect_every=1)
    yield opened
    opened.close()


def options(fleet, events=None, **changed):
    tell = (lambda *_: None) if events is None else lambda event, facts: events.append((event, facts))
    return NodeOptions("b", f"{fleet.where}/cells", f"{fleet.where}/inbox", lease=1.0, tell=tell, **changed)


@pytest.mark.parametrize("kind", [ConnectorUnavailable, StorageError])
def test_a_sink_that_is_away_during_a_hand_over_is_tried_again(fleet, monkeypatch, kind):
    dead = MemoryNode(fleet, "a")
    dead.join()
    dead.begin()
    fleet.send(100)
    dead.step()
    dead.coordinator.leave()
    away = iter([kind("nats://127.0.0.1:4222 does not answer")] * 2)
    real = nodes.publish_output

    def publish(*arguments):
        if (error := next(away, None)) is not None:
            raise error
        real(*arguments)

    monkeypatch.setattr(nodes, "publish_output", publish)
    engine, events = Engine(), []
    node = Node(counting(fleet.where), engine, options(fleet, events))
    monkeypatch.setattr(node._leaving, "wait", lambda _=None: node._leaving.is_set())
    node.execute()
    assert engine.held == [frozenset(range(SHARDS))]
    assert [event for event, _ in events] == ["joined", "failed", "failed", "adopted", "left"]


def test_the_node_of_the_first_shard_trims_the_inbox_when_it_has_a_retention(fleet):
    only = MemoryNode(fleet, "b")
    only.join()
    only.begin()
    fleet.inbox._segment_bytes = 1000
    for _ in range(5):
        fleet.send(50)
        only.step()
    before = len(whole(fleet.inbox))
    for retention, goes in ((None, False), (3600.0, False), (0.0, True)):
        node = Node(counting(fleet.where), Engine(), options(fleet, retention=retention))
        node._membership = SimpleNamespace(
            shards=lambda: frozenset(range(SHARDS)), assignment=only.coordinator.current_assignment
        )
        node._names = NodeNames(fleet.connection, "orders")
        node._tidy()
        assert (len(whole(fleet.inbox)) < before) == goes
    fleet.check_exact()


def test_what_runs_beside_a_node_tells_what_it_did_not_expect_and_goes_on(fleet):
    events, again = [], threading.Event()
    node = Node(counting(fleet.where), Engine(), options(fleet, events))
    calls = iter([KeyError("a bug"), None])

    def work():
        error = next(calls, None)
        if error is not None:
            raise error
        again.set()

    with node._beside(work, 0.001):
        assert again.wait(10)
    assert events == [("failed", {"in": "work", "error": "KeyError: 'a bug'"})]
