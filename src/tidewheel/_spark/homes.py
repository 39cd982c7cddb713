"""Decide on which host each task of a batch should run, so that its shards find their local copies there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence


def homes(tasks: int, executors: Mapping[str, int], before: Sequence[str] = ()) -> list[str]:
    """Return the host of each task, given how many executors each host has, and the hosts of an earlier batch's tasks.

    A task keeps its host if that host is still there and has no more than its part of the tasks. If the number of tasks has
    changed, a task takes the host of the earlier task that had its first shard. The same arguments give the same hosts, so
    a driver that is started again finds the copies of its predecessor.

    >>> homes(4, {"a": 1, "b": 1})
    ['a', 'b', 'a', 'b']
    >>> homes(4, {"b": 1, "c": 1}, ["a", "b", "a", "b"])
    ['c', 'b', 'c', 'b']
    >>> homes(2, {"a": 1, "b": 1}, ["a", "b", "a", "b"])
    ['a', 'b']
    """
    order, total = sorted(executors), sum(executors.values())
    most = {host: math.ceil(tasks * executors[host] / total) for host in order}
    load = dict.fromkeys(order, 0)
    found: list[str | None] = []
    for task in range(tasks):
        host = before[task % len(before)] if before else ""
        stays = load.get(host, 0) < most.get(host, 0)
        if stays:
            load[host] += 1
        found.append(host if stays else None)
    return [host or _freest(load, most, executors) for host in found]


def queues(homes: Sequence[str], cores: Mapping[str, int]) -> list[list[int]]:
    """Divide the tasks of each host among its cores: return the tasks of each core, without cores that have none.

    >>> queues(["a", "b", "a", "b", "a"], {"a": 2, "b": 1})
    [[0, 4], [1, 3], [2]]
    """
    found: dict[tuple[str, int], list[int]] = {}
    placed: Counter[str] = Counter()
    for task, host in enumerate(homes):
        found.setdefault((host, placed[host] % cores[host]), []).append(task)
        placed[host] += 1
    return list(found.values())


def _freest(load: dict[str, int], most: Mapping[str, int], executors: Mapping[str, int]) -> str:
    """Return the host that may have another task and has the fewest for its executors; count the task."""
    free = [host for host in sorted(load) if load[host] < most[host]]
    chosen = min(free, key=lambda host: (load[host] + 1) / executors[host])
    load[chosen] += 1
    return chosen
