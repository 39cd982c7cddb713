"""D3: an assignment is installed if its epoch is higher and its shard count equal; membership follows it."""

from __future__ import annotations

import pytest

from tidewheel import cells
from tidewheel.fleet import Assignment, AssignmentRefused, Coordinator


@pytest.fixture
def coordinator():
    with cells.open("memory:") as connection:
        one = Coordinator(connection, "job", "a", 4)
        one.join()
        yield one


def test_d3_a_higher_epoch_is_accepted_and_membership_follows(coordinator):
    new = Assignment(4, 7, {"b": 1.0, "c": 2.0}, ("b", "c", "c", "c"))
    plan = coordinator.install_assignment(new)
    assert coordinator.current_assignment() == new == plan.assignment
    assert [(move.shard, move.source, move.target) for move in plan.moves] == [
        (0, "a", "b"),
        (1, "a", "c"),
        (2, "a", "c"),
        (3, "a", "c"),
    ]
    assert coordinator.join().assignment.members == {"a": 1.0, "b": 1.0, "c": 2.0}
    assert coordinator.current_assignment().epoch == 8


@pytest.mark.parametrize("epoch", [0, 1])
def test_d3_an_epoch_that_is_not_higher_is_refused(coordinator, epoch):
    with pytest.raises(AssignmentRefused, match=f"epoch {epoch} cannot be installed: epoch 1 stands"):
        coordinator.install_assignment(Assignment(4, epoch, {"b": 1.0}, ("b",) * 4))
    assert coordinator.current_assignment().members == {"a": 1.0}


def test_d3_another_number_of_shards_is_refused(coordinator):
    with pytest.raises(AssignmentRefused, match="for 8 shards cannot be installed: the fleet has 4"):
        coordinator.install_assignment(Assignment(8, 5, {"b": 1.0}, ("b",) * 8))


def test_d3_a_node_started_with_another_number_of_shards_is_refused():
    with cells.open("memory:") as connection:
        Coordinator(connection, "job", "a", 4).join()
        with pytest.raises(AssignmentRefused, match="has 4 shards, this node was started with 8"):
            Coordinator(connection, "job", "b", 8)


def test_d3_an_assignment_from_an_older_view_does_not_undo_later_changes(coordinator):
    planned = Assignment(4, 2, {"b": 1.0}, ("b",) * 4)
    coordinator.join("c")
    with pytest.raises(AssignmentRefused):
        coordinator.install_assignment(planned)
    assert "c" in coordinator.current_assignment().members
