"""aggregate: the numbers equal those of plain Python for any batches, splits and tasks."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import states
from tidewheel import Job, count, max_, mean, min_, session, sum_, tumbling
from tidewheel._operators.aggregates import partial_results
from tidewheel._operators.aggregates.aggregate import AggregateBy
from tidewheel._operators.aggregates.functions import accumulators_of
from tidewheel._values import ROW, Batch
from tidewheel.errors import GraphError
from tidewheel.sinks import collect, discard
from tidewheel.sources import dataframe
from tidewheel.testing import MemoryRun
from unit.operators.running import BatchOutcome, failure, run

ALL = {
    "rows": count(),
    "n": count("x"),
    "total": sum_("x"),
    "least": min_("x"),
    "most": max_("x"),
    "mean": mean("x"),
    "other": sum_("y"),
}
KEYS = {
    "column": ("user", lambda user: user),
    "text": (lambda row: row.user, lambda user: user),
    "number": (lambda row: ord(row.user), ord),
    "bytes": (lambda row: row.user.encode(), str.encode),
    "tuple": (lambda row: (row.user, 1), lambda user: {"_1": user, "_2": 1}),
    "bool": (lambda row: row.user == "a", lambda user: user == "a"),
}


def rows(*triples: tuple[str, Any, Any]) -> list[dict[str, Any]]:
    return [{"user": user, "x": x, "y": y} for user, x, y in triples]


def aggregated(key: Any = "user", **aggregates: Any):
    return lambda s: s.key_by("k", key).aggregate("op", **(aggregates or ALL))


def newest(ran: BatchOutcome, key: str) -> dict[str, dict[str, Any]]:
    """Return the last row of each key."""
    return {str(record[key]): {n: v for n, v in record.items() if n != key} for record in ran.records}


def model(triples: list[tuple[str, Any, Any]], name: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for user in {str(name(user)) for user, _, _ in triples}:
        xs = [x for other, x, _ in triples if str(name(other)) == user]
        ys = [y for other, _, y in triples if str(name(other)) == user and y is not None]
        there = [x for x in xs if x is not None]
        found[user] = {
            "rows": len(xs),
            "n": len(there),
            "total": sum(there) if there else None,
            "least": min(there, default=None),
            "most": max(there, default=None),
            "mean": pytest.approx(sum(there) / len(there)) if there else None,
            "other": sum(ys) if ys else None,
        }
    return found


INTEGERS = st.none() | st.integers(-(2**53), 2**53)
HALVES = st.none() | st.integers(-(2**40), 2**40).map(lambda n: n / 2)
NUMBERS = INTEGERS | HALVES


@st.composite
def histories(draw):
    x = draw(st.sampled_from([INTEGERS, HALVES, st.integers(-(2**40), 2**40) | HALVES, st.none()]))
    triple = st.tuples(st.sampled_from("abc"), x, st.none() | st.integers(-9, 9))
    return draw(st.lists(st.lists(triple, min_size=1, max_size=6), min_size=1, max_size=4))


@settings(max_examples=60)
@given(histories(), st.sampled_from(sorted(KEYS)), st.integers(1, 3), st.integers(1, 3))
def test_the_numbers_are_those_of_python(batches, kind, parallelism, partitions):
    key, name = KEYS[kind]
    ran = run(
        aggregated(key),
        *(rows(*batch) for batch in batches),
        plain=False,
        parallelism=parallelism,
        partitions=partitions,
    )
    everything = [triple for batch in batches for triple in batch]
    assert newest(ran, "user" if kind == "column" else "key") == model(everything, name)


def test_integers_stay_integers():
    ran = run(aggregated(total=sum_("x"), least=min_("x")), rows(("a", 3, 0)), rows(("a", 4, 0)), plain=False)
    assert [type(value) for value in (ran.records[-1]["total"], ran.records[-1]["least"])] == [int, int]
    big = 2**62
    ran = run(aggregated(total=sum_("x")), rows(("a", big, 0)), rows(("a", big - 1, 0)), plain=False)
    assert ran.records[-1]["total"] == 2 * big - 1


def test_results_come_once_per_batch_and_touched_key():
    ran = run(aggregated(total=sum_("x")), rows(("a", 1, 0), ("b", 1, 0), ("a", 1, 0)), rows(("b", 5, 0)), plain=False)
    assert sorted(map(str, ran.records)) == [
        "{'user': 'a', 'total': 2}",
        "{'user': 'b', 'total': 1}",
        "{'user': 'b', 'total': 6}",
    ]


def test_a_key_without_a_single_value_has_counts_and_no_more():
    (record,) = run(aggregated(), rows(("a", None, None)), plain=False).records
    assert record == {
        "user": "a", "rows": 1, "n": 0, "total": None, "least": None, "most": None, "mean": None, "other": None,
    }  # fmt: skip


def test_zero_is_a_value_and_nothing_is_not():
    batches = [rows(("a", None, 0)), rows(("a", 5, 0)), rows(("a", None, 0))]
    ran = run(aggregated(least=min_("x"), most=max_("x")), *batches, plain=False, partitions=2)
    assert [(record["least"], record["most"]) for record in ran.records] == [(None, None), (5, 5), (5, 5)]


@pytest.mark.parametrize("partitions", [1, 2, 4])
@pytest.mark.parametrize(
    "batches",
    [
        [[("a", 2**62, 0), ("a", 2**62, 0)]],
        [[("a", 2**62, 0)], [("a", 2**62, 0)]],
        [[("a", -(2**63), 0), ("a", -1, 0)]],
        # Over all keys the sum is 0, and each key's own leaves 64 bits.
        [[("a", 2**62, 0), ("b", -(2**62) - 1, 0), ("a", 2**62, 0), ("b", -(2**62) - 1, 0)]],
    ],
)
def test_a_sum_that_leaves_64_bits_is_refused(batches, partitions):
    text = failure(
        aggregated(total=sum_("x")), *(rows(*batch) for batch in batches), plain=False, partitions=partitions
    )
    assert "the sum of column 'x' exceeds 64 bits; cast the column to double" in text


def test_sums_that_fit_for_each_key_are_not_refused_for_their_total():
    ran = run(
        aggregated(total=sum_("x")),
        rows(*((user, 2**62, 0) for user in "abcdefgh"), ("a", -(2**62), 0)),
        plain=False,
        partitions=2,
    )
    assert newest(ran, "user") == {**{user: {"total": 2**62} for user in "bcdefgh"}, "a": {"total": 0}}


def test_nan_counts_only_without_other_values():
    values = [math.nan, 1.0, math.nan]
    for batches in ([values], [[value] for value in values], [values[:2], values[2:]]):
        ran = run(
            aggregated(least=min_("x"), most=max_("x")),
            *(rows(*(("a", value, 0) for value in batch)) for batch in batches),
            plain=False,
        )
        assert (ran.records[-1]["least"], ran.records[-1]["most"]) == (1.0, 1.0)


def test_booleans_are_ones_and_zeros():
    ran = run(aggregated(total=sum_("x")), rows(("a", True, 0), ("a", False, 0), ("a", True, 0)), plain=False)
    assert ran.records[-1]["total"] == 2


def test_text_is_refused():
    text = failure(aggregated(total=sum_("x")), rows(("a", "1", 0)), plain=False)
    assert "aggregates need numbers, but column 'x' has the type string" in text


def test_a_missing_column_is_refused_with_the_existing_ones():
    text = failure(aggregated(total=sum_("z")), rows(("a", 1, 0)), plain=False)
    assert "there is no column 'z'; the values have user, x, y" in text


def test_a_value_that_was_chosen_by_key_by_is_a_column_under_its_name():
    ran = run(
        lambda s: s.key_by("k", "user", value="x").aggregate("op", total=sum_("x")), rows(("a", 3, 0)), plain=False
    )
    assert ran.records == [{"user": "a", "total": 3}]


def test_it_works_behind_other_keyed_operators():
    def tag(key, row, seen):
        return {"x": row.x, "first": not seen}, True

    ran = run(
        lambda s: s.key_by("k", "user").stateful_map("tag", tag).aggregate("op", total=sum_("x"), first=sum_("first")),
        rows(("a", 1, 0), ("a", 2, 0)),
        rows(("a", 3, 0), ("b", 1, 0)),
        plain=False,
        parallelism=2,
    )
    assert newest(ran, "user") == {"a": {"total": 6, "first": 1}, "b": {"total": 1, "first": 1}}


def test_its_rows_have_attributes_and_its_state_is_plain_msgpack():
    ran = run(
        lambda s: (
            s.key_by("k", "user").aggregate("op", total=sum_("x"), rows=count()).map("m", lambda r: r.total + r.rows)
        ),
        rows(("a", 3, 0), ("a", 1.5, 0)),
        plain=False,
    )
    assert ran.values() == [6.5]
    assert ran.states == {"op": {"a": [2, 4.5, 2]}}


def test_wrong_aggregates_are_refused_when_the_graph_is_built():
    with pytest.raises(GraphError, match=r"step 'op': total=3 is not an aggregate; use agg.sum, agg.count"):
        run(aggregated(total=3), plain=False)
    with pytest.raises(GraphError, match="one to about 500 aggregates"):
        AggregateBy({})
    with pytest.raises(GraphError, match="one to about 500 aggregates"):
        AggregateBy({f"a{number}": sum_(f"c{number}") for number in range(501)})


def test_aggregates_of_one_column_share_their_accumulators():
    operator = AggregateBy({"mean": mean("x"), "total": sum_("x"), "n": count("x")})
    assert str(operator.state_layout) == "count:x, sum:x"


def test_an_unchanged_aggregate_is_not_written_again():
    job = Job("job-unchanged", state="memory:unit-aggregates", n_shards=4)
    job.source("in", lambda spark: None).key_by("k", "user").aggregate("op", n=count("x")).sink("out", discard())
    changes = []
    with MemoryRun(job) as memory:
        for x in (5, None, 5):
            memory.batch({"in": [{"user": "a", "x": x}, {"user": "b", "x": 5}]})
            parts = [parts.deltas[-1] for parts in memory.run.head.shards.values()]
            changes.append(sum(part.keys for part in parts if part.sequence == memory.run.head.sequence))
    assert changes == [2, 1, 2]


@pytest.mark.parametrize("windows", [None, tumbling("100 ns"), session("50 ns")])
def test_a_column_may_change_from_large_integers_to_floats(windows):
    """An integer beyond 2**53 is rounded when a float is added to it, also by the steps that fold by windows."""
    url = f"memory:int-then-float-{windows}"

    def job() -> Job:
        made = Job("mixed", state=url, n_shards=4)
        stream = made.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
        keyed = stream.limit_out_of_orderness("bound", "1 s", max_ahead=None).key_by("by", "k")
        aggregates = {"total": sum_("v"), "most": max_("v")}
        step = keyed.aggregate("a", **aggregates) if windows is None else keyed.window("a", windows, **aggregates)
        step.sink("out", out)
        return made

    out = collect()
    for value in (2**53 + 1, 0.5, 7):
        with MemoryRun(job()) as run:
            run.batch({"in": [{"k": "a", "v": value, "at": 1}]})
            if value == 7:
                run.flush()
    newest = out.records[-1]
    assert (newest["total"], newest["most"]) == (float(2**53 + 1) + 0.5 + 7, float(2**53 + 1))


@given(
    st.lists(st.tuples(st.text("ab", max_size=3), st.integers(-(2**40), 2**40)), min_size=1, max_size=40),
    st.booleans(),
)
def test_grouping_by_order_and_by_hash_agree(pairs, numbered):
    keys = [len(key) if numbered else key for key, _ in pairs]
    columns = pa.RecordBatch.from_pydict({"x": [x for _, x in pairs]})
    batch = Batch(ROW, columns=columns, key_column=pa.array(keys))
    accumulators = accumulators_of({name: each for name, each in ALL.items() if name != "other"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_results, "_MANY", 1)
        by_order = partial_results._grouped_by_order(batch, accumulators)
        patch.setattr(partial_results, "_grouped_by_order", lambda *_: None)
        by_hash = partial_results._grouped(batch, accumulators, {}, latest=True)
    assert by_order is not None
    assert sorted(by_order.to_pylist(), key=str) == sorted(by_hash.to_pylist(), key=str)


@pytest.mark.parametrize("values", [[1.5, 2.5], [1, None]], ids=["floats", "nulls"])
def test_floats_and_nulls_are_not_grouped_by_order(values, monkeypatch):
    monkeypatch.setattr(partial_results, "_MANY", 1)
    batch = Batch(ROW, columns=pa.RecordBatch.from_pydict({"x": values}), key_column=pa.array(["a", "b"]))
    assert partial_results._grouped_by_order(batch, accumulators_of({"total": sum_("x")})) is None


def test_keys_of_two_types_that_meet_in_a_union_have_their_own_totals():
    """The text "a" and the bytes b"a" differ only in the letter that begins a stored key."""
    out = collect()
    job = Job("mixed", state="memory:mixed-keys", n_shards=1)
    texts = job.source("texts", dataframe(lambda spark: None)).key_by("by-text", "k")
    raw = job.source("raw", dataframe(lambda spark: None)).key_by("by-bytes", lambda row: row.k.encode())
    texts.union("all", raw).aggregate("total", n=sum_("n")).sink("out", out, key=False)
    with MemoryRun(job) as run:
        for _ in range(3):
            run.batch({"texts": [{"k": k, "n": 1} for k in "ab"], "raw": [{"k": k, "n": 100} for k in "ab"]})
        found = states(run.run.store, run.run.head)["total"]
    assert len(found) == 4
    assert sorted(record["n"] for record in out.records[-4:]) == [3, 3, 300, 300]


def test_a_shard_that_catches_up_before_a_batch_keeps_its_totals():
    """In a fleet, a shard may come from a node whose clock was behind: its windows close before the batch's own data."""
    out = collect()
    job = Job("behind", state="memory:behind-totals", n_shards=1)
    timed = job.source("in", dataframe(lambda spark: None)).assign_timestamps("time", "at", unit="ns")
    windows = timed.key_by("by-user", "user").window("w", tumbling("10 ns"), n=count())
    windows.aggregate("total", m=sum_("n")).sink("out", out)
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "a", "at": 1}, {"user": "a", "at": 12}]}, epoch=5)
        run.batch({"in": [{"user": "a", "at": 13}]}, epoch=11)
        run.run.head = run.run.head.replace(behind={0: 11}, epoch=21, delivered_epoch=21, carried_epoch=21)
        run.batch({"in": [{"user": "a", "at": 35}]}, epoch=50)
    assert [record["m"] for record in out.records] == [1, 3, 4]
