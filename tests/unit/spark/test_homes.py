"""On which host each task should run."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from tidewheel._spark.homes import homes

EXECUTORS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1)


@example(3, {"a": 1, "b": 1, "c": 1, "d": 3, "e": 3}, [])
@given(st.integers(1, 40), EXECUTORS, st.lists(st.sampled_from("abcdefg"), max_size=40))
def test_every_host_has_at_most_its_part_of_the_tasks(tasks, executors, before):
    found = homes(tasks, executors, before)
    total = sum(executors.values())
    assert len(found) == tasks
    assert all(number <= -(-tasks * executors[host] // total) for host, number in Counter(found).items())


@given(st.integers(1, 40), EXECUTORS)
def test_tasks_stay_where_they_are_while_the_hosts_are_the_same(tasks, executors):
    found = homes(tasks, executors)
    assert homes(tasks, executors, found) == found == homes(tasks, dict(reversed(executors.items())))


@given(st.integers(1, 40), st.sets(st.sampled_from("abcdef"), min_size=2))
def test_tasks_stay_on_the_hosts_that_remain_when_one_is_lost(tasks, hosts):
    found = homes(tasks, dict.fromkeys(hosts, 1))
    lost = min(hosts)
    after = homes(tasks, dict.fromkeys(hosts - {lost}, 1), found)
    assert all(now == host for host, now in zip(found, after, strict=True) if host != lost)


def test_a_task_of_another_parallelism_takes_the_host_of_its_first_shard():
    assert homes(4, {"a": 1, "b": 1}, ["b", "a"]) == ["b", "a", "b", "a"]
    assert homes(1, {"a": 1, "b": 1}, ["b", "a"]) == ["b"]
