"""Steps without state need no name; a derived name is readable and never identifies state."""

from __future__ import annotations

import functools

import pyarrow.compute as pc
import pytest

from support.internals import open_store
from tidewheel import Job, sinks, sources
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel.errors import GraphError, StepError
from tidewheel.testing import MemoryRun, run_in_memory


def doubled(n: int) -> int:
    return 2 * n


def scaled(factor: int, n: int) -> int:
    return factor * n


def names(job: Job) -> list[str]:
    return [node.name for node in job.graph.nodes]


def test_names_come_from_functions_and_columns_or_else_from_positions():
    job = Job("unnamed")
    numbers = job.source("in", sources.iterable([{"n": 1, "m": 2}]))
    numbers.with_columns(o=pc.field("n") + 1).select(["n", "o"], p=pc.field("n")).filter(pc.field("n") > 0).map(
        lambda row: row.n
    ).map(doubled).map(doubled).filter_map(functools.partial(scaled, 3)).flat_map(lambda n: [n]).inspect(
        doubled
    ).key_by(lambda n: n % 2).union(numbers.key_by("n", value="m")).map_batches(lambda batch: batch).sink(
        "out", sinks.discard()
    )
    assert names(job) == [
        "in",
        "with_columns:2",
        "select:3",
        "filter:4",
        "map:5",
        "map:doubled",
        "map:doubled:7",
        "filter_map:scaled",
        "flat_map:9",
        "inspect:doubled",
        "key_by:11",
        "key_by:n",
        "union:13",
        "map_batches:14",
        "out",
    ]


def test_a_program_without_names_of_stateless_steps_runs():
    job = Job("unnamed")
    records = job.source("in", sources.iterable([{"user": "ada", "cents": 3}, {"user": "ada", "cents": 4}]))
    big = records.filter(lambda row: row.cents > 0).key_by("user", value="cents")
    big.reduce("total", lambda one, other: one + other).map(doubled).sink("out", sinks.collect())
    result = run_in_memory(job)
    assert result.outputs["out"] == [{"user": "ada", "value": 14}]
    assert result.states == {"total": {"ada": 7}}


def test_a_derived_name_is_not_recorded_and_can_move_to_another_step():
    def job(*, before: bool, key=lambda row: row.user) -> Job:
        made = Job("changes", state="memory:optional-names", n_shards=2)
        stream = made.source("in", sources.iterable([{"user": "", "n": 0}]))
        if before:
            stream.key_by(lambda row: row.n).reduce("other", lambda one, other: other).sink("more", sinks.discard())
        stream.key_by(key).reduce("last", lambda one, other: other).sink("out", sinks.discard())
        return made

    first, second = job(before=False), job(before=True)
    assert names(first)[1] == names(second)[1] == "key_by:2"
    with MemoryRun(first) as run:
        run.batch({"in": [{"user": "ada", "n": 1}]})
    kinds = StreamCheckpoints(open_store("memory:optional-names"), "changes").latest().key_kinds
    assert kinds == {"last": "str"}
    with MemoryRun(second) as run:
        run.batch({"in": [{"user": "bob", "n": 2}]})
    assert second.query("last", "ada").value.n == 1
    assert second.query("other", 2).value.user == "bob"
    with (
        MemoryRun(job(before=True, key=lambda row: row.n)) as run,
        pytest.raises(StepError, match=r"'last'.*type str"),
    ):
        run.batch({"in": [{"user": "bob", "n": 2}]})


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda stream: stream.map(doubled, "double"), r"map takes its name first: map\('double', …\)"),
        (lambda stream: stream.map("double"), "'double': it takes a function as its second argument, not NoneType"),
        (lambda stream: stream.map("map:3", doubled), "the name 'map:3' of a map may have letters"),
        (lambda stream: stream.map(3), "'map:2': it takes a function"),
        (lambda stream: stream.select(), "'select:2': select was given no columns"),
        (lambda stream: stream.key_by(3), "'key_by:2': key_by takes a column's name or a function, not int"),
    ],
)
def test_wrong_arguments_are_refused(step, message):
    with pytest.raises(GraphError, match=message):
        step(Job("wrong").source("in", sources.iterable([1])))
