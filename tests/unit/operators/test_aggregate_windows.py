"""Windows and sessions of aggregates: what crosses the shuffle, what is kept, and what is refused."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

from tidewheel import Job, Message, count, max_, mean, min_, session, sliding, sum_, tumbling
from tidewheel._operators.aggregates.packed_rows import PackedRows
from tidewheel._operators.aggregates.partial_results import key_batch_of
from tidewheel._operators.windows.session_aggregates import SessionAggregates
from tidewheel._state.layout import SESSION_MAPS, Accumulator, StateLayout
from tidewheel.errors import GraphError, StateError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun
from unit.operators.running import failure, run

_fresh = itertools.count()


def rows(*triples):
    return [{"user": user, "at": at, "n": n} for user, at, n in triples]


def windowed(windows, **aggregates):
    return lambda s: (
        s.assign_timestamps("time", "at", unit="ns").key_by("by", "user").window("w", windows, **aggregates)
    )


@pytest.mark.parametrize("windows", [tumbling("1000 ns"), session("1000 ns")], ids=["tumbling", "session"])
def test_one_partial_result_per_key_window_and_task_is_shuffled(windows):
    job, out = Job("combined", state=f"memory:combined-{next(_fresh)}"), collect()
    windowed(windows, n=count())(job.source("in", lambda spark: None)).sink("out", out)
    with MemoryRun(job, partitions=3, parallelism=2) as memory:
        memory.batch({"in": rows(*(("ab"[at % 2], at, 1) for at in range(600)))})
        assert memory.run.head.counts["w"] <= 2 * 3
        memory.flush()
    assert sorted((r["user"], r["n"]) for r in out.records) == [("a", 300), ("b", 300)]


def test_the_state_of_a_key_is_its_panes():
    ran = run(
        windowed(sliding("10 ns", "5 ns"), n=count(), most=max_("n")),
        rows(("a", 1, 7), ("a", 3, 5), ("a", 6, 1)),
        plain=False,
    )
    assert ran.states["w"] == {"a": [[0, 2, 2, 7], [5, 1, 1, 1]]}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("windows", [tumbling("10 ns"), session("4 ns")], ids=["tumbling", "session"])
def test_keys_without_a_column_type_and_values_that_are_null(windows, partitions):
    def build(source):
        timed = source.assign_timestamps("time", "at", unit="ns").key_by("by", lambda row: (row.user, row.user))
        return timed.window("w", windows, n=count("n"), low=min_("n"), high=max_("n"), avg=mean("n"), total=sum_("n"))

    given = rows(("a", 1, None), ("a", 2, -3), ("a", 3, 4), ("b", 1, None))
    ran = run(build, given, plain=False, flush=True, partitions=partitions, parallelism=2)
    names = ("n", "low", "high", "avg", "total")
    found = {tuple(r["key"].values()): [r[name] for name in names] for r in ran.records}
    assert found == {("a", "a"): [2, -3, 4, 0.5, 1], ("b", "b"): [0, None, None, None, None]}


@pytest.mark.parametrize("windows", [tumbling("10 ns"), session("4 ns")], ids=["tumbling", "session"])
def test_columns_that_cannot_be_aggregated_are_refused_by_name(windows):
    text = [{"user": "a", "at": 1, "n": "x"}]
    assert "aggregates need numbers, but column 'n' has the type string" in failure(
        windowed(windows, total=sum_("n")), text, plain=False
    )
    assert "there is no column 'm'; the values have user, at, n" in failure(
        windowed(windows, total=sum_("m")), text, plain=False
    )
    silent = lambda message, state, output: output.send(Message(message.key, message.value))  # noqa: E731
    told = failure(
        lambda s: s.key_by("by", "user").stateful_op("none", silent, default=0).window("w", windows, n=count()),
        text,
        plain=False,
    )
    assert re.search(r"step 'w'.*: the messages? ha(s|ve) no timestamps?; add event_time", told)
    assert "the sum of column 'n' exceeds 64 bits" in failure(
        windowed(windows, total=sum_("n")), rows(("a", 1, 2**62), ("a", 2, 2**62)), plain=False
    )


def test_a_changed_window_is_refused_and_a_changed_lateness_is_not():
    state, out = f"memory:changed-{next(_fresh)}", collect()

    def job(windows, lateness):
        made = Job("changed", state=state, n_shards=2)
        timed = made.source("in", lambda spark: None).assign_timestamps("time", "at", unit="ns")
        on_time = timed.limit_out_of_orderness("bound", "0 s")
        late = on_time.late
        keyed = on_time.union("all", late).key_by("by", "user")
        keyed.window("w", windows, allowed_lateness=lateness, n=count()).sink("out", out)
        return made

    with MemoryRun(job(tumbling("10 ns"), "5 ns")) as memory:
        memory.batch({"in": rows(("a", 1, 1), ("b", 12, 1))})
        memory.batch({})
    with pytest.raises(StateError, match="step 'w' kept aggregates of windows of 10 ns for each key"):
        MemoryRun(job(tumbling("20 ns"), "5 ns"))
    with MemoryRun(job(tumbling("10 ns"), "50 ns")) as memory:
        memory.batch({"in": rows(("a", 2, 1), ("b", 30, 1))})
        memory.batch({})
        memory.flush()
    assert [(r["user"], r["start"], r["n"], r["correction"]) for r in out.records] == [
        ("a", 0, 1, False),
        ("a", 0, 2, True),
        ("b", 10, 1, False),
        ("b", 30, 1, False),
    ]


def test_a_keys_state_is_its_sessions_with_any_number_of_aggregates():
    many = {f"{name}_{column}": of(column) for column in ("n", "at") for name, of in AGGREGATES.items()}
    ran = run(windowed(session("4 ns"), rows=count(), **many), rows(("a", 1, 7), ("a", 3, 5), ("a", 9, 1)), plain=False)
    numbers = [[2, 2, 12, 5, 7, 2, 4, 1, 3], [1, 1, 1, 1, 1, 1, 9, 9, 9]]
    assert ran.states["w"] == {"a": [[1, 7, 0, *numbers[0]], [9, 13, 0, *numbers[1]]]}
    more = {f"{name}_{column}": of(column) for column in ("n", "at", "m", "k") for name, of in AGGREGATES.items()}
    wide = [{"user": "a", "at": 1, "n": 1, "m": 2, "k": 3}]
    assert len(run(windowed(session("4 ns"), **more), wide, plain=False).states["w"]["a"][0]) == 3 + 16


AGGREGATES = {"sum": sum_, "min": min_, "max": max_}


def test_sessions_that_were_stored_as_maps_are_rewritten():
    raw = msgspec.msgpack.encode({10: (25, 0, [2, None]), 40: (55, 2, [1, 2.5])})
    operator = SessionAggregates({"n": count("x"), "low": min_("x"), "all": count()}, session("15 ns"), 0)
    conversion = operator.conversion(
        StateLayout(SESSION_MAPS, numbers=(Accumulator("count", "x"), Accumulator("min", "x")))
    )
    assert conversion.said == "all starts empty"
    table = SimpleNamespace(get_many=lambda shard, stored: [conversion.convert(raw), None])
    places, columns = PackedRows(table, 3, operator.accumulators, "w").read(key_batch_of(pa.array(["a", "b"]), 1))
    assert places.tolist() == [0, 0]
    assert [column.tolist() for column in columns] == [[10, 40], [25, 55], [0, 2], [2, 1], [0, 2.5], [0, 0]]


@pytest.mark.parametrize("label", ["lateness", "allow_lateness"])
def test_a_misspelt_lateness_is_not_reported_as_a_wrong_aggregate(label):
    job = Job("misspelt", state="memory:misspelt", n_shards=4)
    keyed = job.source("in", iterable([]), type=dict).key_by("by", "k")
    with pytest.raises(
        GraphError, match=rf"step 'w': a window has no {label}=; did you mean allowed_lateness='1 day'\?"
    ):
        keyed.window("w", tumbling("1 h"), n=count(), **{label: "1 day"})
