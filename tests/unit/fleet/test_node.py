"""A node next to its runs: what it retries and cleans up."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import pytest

from support.fleet_nodes import SHARDS, Fleet, MemoryNode, counting
from support.memory_inbox import whole
from support.waiting import SOON
from tidewheel.errors import ConnectorUnavailable, HeldError, StorageError
from tidewheel.fleet._nodes import node as nodes
from tidewheel.fleet._nodes.membership import Membership
from tidewheel.fleet._nodes.node import Node, NodeOptions
from tidewheel.fleet._nodes.node_names import NodeNames


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
    settings = {"lease": 60.0, "on_event": tell, **changed}
    return NodeOptions("b", f"{fleet.where}/cells", f"{fleet.where}/inbox", **settings)


@pytest.mark.parametrize("kind", [ConnectorUnavailable, StorageError])
def test_an_unavailable_sink_during_a_hand_over_is_tried_again(fleet, monkeypatch, kind):
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


def test_the_node_of_the_first_shard_trims_an_inbox_with_retention(fleet):
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


def test_a_background_thread_reports_unexpected_errors_and_continues(fleet):
    events, again = [], threading.Event()
    node = Node(counting(fleet.where), Engine(), options(fleet, events))
    calls = iter([KeyError("a bug"), None])

    def work():
        error = next(calls, None)
        if error is not None:
            raise error
        again.set()

    with node._repeating(work, 0.001):
        assert again.wait(SOON)
    assert events == [("failed", {"in": "work", "error": "KeyError: 'a bug'"})]


def test_a_cleanup_failure_is_reported_once_and_blocks_nothing_else(fleet, monkeypatch):
    events, trimmed, away = [], [], [StorageError("the store is away")]

    def sweep(*_):
        if away:
            raise away[0]

    monkeypatch.setattr(nodes, "sweep", sweep)
    monkeypatch.setattr(nodes, "trim", lambda *_: trimmed.append(1))
    node = Node(counting(fleet.where), Engine(), options(fleet, events, retention=0.0))
    node._membership = SimpleNamespace(shards=lambda: {0}, assignment=lambda: SimpleNamespace(members=()))
    node._names = SimpleNamespace(tidy=lambda _: {}["a bug"])
    node._tidy()
    swept = ("failed", {"in": "deleting files of ended runs", "error": "the store is away"})
    named = ("failed", {"in": "deleting the cells of former nodes", "error": "KeyError: 'a bug'"})
    assert events == [swept, named]
    node._tidy()
    assert events == [swept, named]
    worked = away.pop()
    node._tidy()
    away.append(worked)
    node._tidy()
    assert events == [swept, named, swept]
    assert len(trimmed) == 4


def test_a_second_node_of_a_name_leaves_the_first_in_its_place(fleet):
    first = Membership(fleet.connection, "orders", "b", SHARDS, ttl=60.0, fingerprint="f")
    first.enter()
    first.join()
    events, before = [], first.assignment()
    with contextlib.closing(first):
        with pytest.raises(HeldError, match="there is a node 'b'"):
            Node(counting(fleet.where), Engine(), options(fleet, events, lease=0.2)).execute()
        assert events == []
        assert first.assignment() == before
