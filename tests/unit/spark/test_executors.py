"""How many tasks a Spark can run in parallel, and the requests to dynamic allocation, with a stand-in for the session."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidewheel._spark.cluster import most_tasks, request_executors


def session(settings: dict[str, str], requested: list[int]) -> SimpleNamespace:
    conf = SimpleNamespace(get=settings.get)
    scala = SimpleNamespace(requestExecutors=requested.append)
    jsc = SimpleNamespace(sc=lambda: scala)
    return SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(defaultParallelism=6, _jsc=jsc))


DYNAMIC = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "4"}


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 6), (DYNAMIC, None), (DYNAMIC | {"spark.dynamicAllocation.maxExecutors": "5"}, 20)],
)
def test_dynamic_allocation_limits_the_tasks_by_its_executors(settings, most):
    assert most_tasks(session(settings, [])) == most


@pytest.mark.parametrize(
    ("settings", "before", "tasks", "more"),
    [({}, 2, 9, []), (DYNAMIC, 4, 9, [2]), (DYNAMIC, 5, 8, []), (DYNAMIC, 9, 4, [])],
)
def test_executors_are_requested_if_allocation_is_dynamic(settings, before, tasks, more):
    requested: list[int] = []
    request_executors(session(settings, requested), tasks, before)
    assert requested == more
