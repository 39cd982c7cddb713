"""Plans: one owner per shard, balanced, few moves, the same everywhere."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import ConfigError
from tidewheel.fleet import AlreadyMember, Assignment, AssignmentRefused, UnknownNode, add_node, remove_node
from tidewheel.fleet._nodes.assignment import check_installable, moves, rebalance, shares

names = st.sampled_from([f"n{number}" for number in range(9)])
weights = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.7])
n_shards = st.sampled_from([1, 2, 8, 64])


def test_the_assignment_gives_shards_to_members_only():
    odd = Assignment(4, 3, {"a": 1.0, "b": 1.0}, ("a", "a", "gone", "gone"))
    assert Counter(rebalance(odd, {"a": 1.0, "b": 1.0}).assignment.owners) == {"a": 2, "b": 2}


@given(n_shards, st.dictionaries(names, weights, max_size=6), st.data())
def test_counts_are_the_ideal_share_rounded_down_or_up(n, members, data):
    owners = tuple(data.draw(st.lists(names, min_size=n, max_size=n)))
    after = rebalance(Assignment(n, 1, {}, owners), members).assignment
    counts = Counter(after.owners)
    assert sum(counts.values()) == (n if members else 0)
    for name, weight in members.items():
        assert abs(counts[name] - n * weight / sum(members.values())) < 1


@given(st.integers(0, 6), st.lists(st.sampled_from("abcd"), min_size=6, max_size=6), st.integers(1, 3))
def test_no_balanced_assignment_takes_fewer_moves(n, owners, k):
    members = dict.fromkeys("abcd"[:k], 1.0)
    before = Assignment(n, 1, {}, tuple(owners[:n]))
    plan = rebalance(before, members)
    fewest = min(
        sum(one != other for one, other in zip(owners[:n], choice, strict=True))
        for choice in itertools.product(members, repeat=n)
        if max(Counter({**dict.fromkeys(members, 0), **Counter(choice)}).values())
        - min((Counter(choice)[name] for name in members), default=0)
        <= 1
    )
    assert len(plan.moves) == fewest


@given(n_shards, st.lists(st.tuples(st.booleans(), names), max_size=20))
def test_any_joins_and_leaves_stay_balanced_with_minimal_moves(n, history):
    standing = Assignment(n)
    for joins, name in history:
        if joins == (name in standing.members):
            continue
        plan = (add_node if joins else remove_node)(standing, name)
        after = plan.assignment
        counts = [len(after.shards_of(member)) for member in after.members]
        assert not counts or max(counts) - min(counts) <= 1
        assert set(after.owners) <= set(after.members)
        assert after.epoch == standing.epoch + 1
        if joins:
            assert len(plan.moves) == len(after.shards_of(name))
            assert all(move.target == name for move in plan.moves)
            assert len(plan.moves) in ((n // len(after.members)), n if not standing.members else -1)
        else:
            assert {move.shard for move in plan.moves} == set(standing.shards_of(name))
        assert moves(standing, after) == plan.moves
        standing = after


@given(st.permutations(["a", "b", "c", "d"]), n_shards)
def test_the_order_in_which_members_are_named_does_not_matter(order, n):
    before = Assignment(n, 4, {}, ("a",) * n)
    assert rebalance(before, dict.fromkeys(order, 1.0)) == rebalance(before, dict.fromkeys("abcd", 1.0))


def test_weights_divide_the_shards():
    plan = add_node(add_node(Assignment(64), "small").assignment, "large", weight=3)
    assert Counter(plan.assignment.owners) == {"small": 16, "large": 48}
    assert shares(3, {"a": 1.0, "b": 1.0}, {"b": 2}) == {"a": 1, "b": 2}


def test_errors_name_the_node():
    one = add_node(Assignment(4), "a").assignment
    with pytest.raises(AlreadyMember, match="'a' is a member already"):
        add_node(one, "a")
    with pytest.raises(UnknownNode, match="'b' is not a member at epoch 1; members are: a"):
        remove_node(one, "b")
    for name in ("", "a/b", "x" * 101, ".a"):
        with pytest.raises(ConfigError, match="cannot name a node"):
            add_node(one, name)
    with pytest.raises(ConfigError, match="weight"):
        add_node(one, "b", weight=0)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (Assignment(8, 9, {"a": 1.0}, ("a",) * 8), "the fleet has 4"),
        (Assignment(4, 1, {"a": 1.0}, ("a",) * 4), "epoch 1 stands"),
        (Assignment(4, 2, {"a": 1.0}, ("a",) * 3), "owners for 3 of 4"),
        (Assignment(4, 2, {}, ("a",) * 4), "owners for 4 of 4"),
        (Assignment(4, 2, {"a": 1.0}, ("b",) * 4), "gives shards to b"),
    ],
)
def test_invalid_assignments_are_refused_with_the_reason(new, reason):
    standing = add_node(Assignment(4), "a").assignment
    with pytest.raises(AssignmentRefused, match=reason):
        check_installable(standing, new)
