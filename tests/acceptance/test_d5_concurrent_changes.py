"""D5: concurrent joins and leaves from many nodes end at one assignment, and none is lost."""

from __future__ import annotations

from support.cell_places import in_parallel
from support.waiting import IN_TIME
from tidewheel.fleet import Coordinator


def test_d5_of_many_nodes_that_join_at_once_all_are_members(place):
    nodes = [Coordinator(place.open(timeout=IN_TIME), "job", f"n{number}", 64) for number in range(6)]
    in_parallel(*(node.join for node in nodes))
    settled = nodes[0]._fresh()
    assert set(settled.members) == {f"n{number}" for number in range(6)}
    assert settled.epoch == 6
    assert all(node.wait_for_change(5, timeout=IN_TIME) == settled for node in nodes)


def test_d5_concurrent_joins_and_leaves_are_all_applied(place):
    nodes = [Coordinator(place.open(timeout=IN_TIME), "job", f"n{number}", 64) for number in range(5)]
    for node in nodes[:2]:
        node.join()

    def comes_and_goes(node):
        node.join()
        node.leave()

    in_parallel(nodes[0].leave, nodes[2].join, lambda: comes_and_goes(nodes[3]), lambda: comes_and_goes(nodes[4]))
    settled = nodes[0]._fresh()
    assert set(settled.members) == {"n1", "n2"}
    assert settled.epoch == 2 + 1 + 1 + 4
    counts = [len(settled.shards_of(node)) for node in settled.members]
    assert counts == [32, 32]
    assert all(node.wait_for_change(settled.epoch - 1, timeout=IN_TIME) == settled for node in nodes)
