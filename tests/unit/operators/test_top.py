"""top: the highest results of each window, over all keys."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from tidewheel import Job, sum_, tumbling
from tidewheel._operators.field_getter import FieldGetter
from tidewheel._operators.windows.top import Top
from tidewheel._values import ROW, Batch
from tidewheel.errors import GraphError
from tidewheel.sinks import collect
from tidewheel.testing import run_in_memory

_fresh = itertools.count()


@dataclass
class Total:
    start: int
    n: int


SALES = [("ada", 1, 5), ("bob", 2, 7), ("cyd", 3, 1), ("ada", 11, 1), ("bob", 14, 9)]


def windows(job, **options):
    timed = job.source("in", lambda spark: None).event_time("at", unit="ns", max_delay="0 s", name="clock")
    stream = timed.union("all", timed.late) if "allowed_lateness" in options else timed
    return stream.key_by("by-user", "user").window("sums", tumbling("10 ns"), n=sum_("n"), **options)


def ran(build, sales=SALES, batch=100, **options):
    job = Job("top", state=f"memory:top-{next(_fresh)}")
    build(windows(job, **options)).sink("out", collect())
    rows = [{"user": user, "at": at, "n": n} for user, at, n in sales]
    return run_in_memory(job, [{"in": rows[at : at + batch]} for at in range(0, len(rows), batch)]).outputs


def test_the_row_has_its_rank_and_its_previous_key():
    out = ran(lambda sums: sums.top("top", 2, by="n"))["out"]
    assert [(row["start"], row["rank"], row["user"], row["n"]) for row in out] == [
        (0, 1, "bob", 7),
        (0, 2, "ada", 5),
        (10, 1, "bob", 9),
        (10, 2, "ada", 1),
    ]
    assert list(out[0]) == ["user", "start", "end", "n", "correction", "rank"]


def test_a_function_can_rank_and_several_columns_make_groups():
    def build(sums):
        marked = sums.map("mark", lambda row: {"start": row.start, "odd": row.n % 2, "n": row.n})
        return marked.top("top", 1, by=lambda row: -row["n"], per=["start", "odd"])

    out = ran(build, [*SALES, ("dee", 4, 4), ("eve", 5, 2)])["out"]
    assert sorted((row["start"], row["odd"], row["n"]) for row in out) == [(0, 0, 2), (0, 1, 1), (10, 1, 1)]


def test_records_without_a_value_are_last():
    out = ran(
        lambda sums: sums.map("m", lambda row: {"start": row.start, "n": None if row.n > 5 else row.n}).top(
            "t", 3, by="n"
        )
    )
    assert [row["n"] for row in out["out"] if row["start"] == 0] == [5, 1, None]


def test_nan_is_behind_all_values_and_before_none():
    """NaN is in no order: compared with values, it would hide larger ones."""

    def build(sums):
        values = {5: math.nan, 6: None}
        return sums.map("m", lambda row: {"start": row.start, "n": values.get(row.n, float(row.n))}).top("t", 4, by="n")

    for order in itertools.permutations([("ada", 1, 3), ("bob", 2, 5), ("cid", 3, 7), ("dee", 4, 6)]):
        assert [str(row["n"]) for row in ran(build, order)["out"]] == ["7.0", "3.0", "nan", "None"]


def test_a_correction_of_a_ranked_window_is_late():
    late = collect()

    def build(sums):
        best = sums.top("top", 1, by="n")
        best.late.sink("late", late)
        return best

    sales = [("ada", 1, 5), ("ada", 12, 1), ("ada", 13, 1), ("bob", 2, 50)]
    outputs = ran(build, sales, batch=1, allowed_lateness="90 ns")
    assert [(row["start"], row["n"]) for row in outputs["out"]] == [(0, 5), (10, 2)]
    assert [(row["start"], row["n"]) for row in outputs["late"]] == [(0, 50)]


def test_records_that_cannot_be_among_the_best_do_not_cross_the_shuffle():
    draw = np.random.default_rng(28)
    numbers, keys, times = (draw.integers(0, most, 1000) for most in (50, 3, 2))
    batch = Batch(
        ROW,
        columns=pa.RecordBatch.from_arrays([pa.array(numbers)], ["n"]),
        key_column=pa.array(keys),
        times=times.tolist(),
    )
    combiner = Top(4, FieldGetter("n")).combiner(None)
    assert list(combiner.add(batch)) == []
    [sent] = combiner.finish()
    left = list(zip(sent.keys, sent.times, [row.n for row in sent.values], strict=True))
    for key, time in itertools.product(range(3), range(2)):
        mine = sorted(numbers[(keys == key) & (times == time)].tolist(), reverse=True)
        assert sorted((n for k, t, n in left if (k, t) == (key, time)), reverse=True) == [
            n for n in mine if n >= mine[3]
        ]


def test_nan_does_not_replace_values_among_the_records_that_are_sent():
    columns = pa.RecordBatch.from_pydict({"n": [math.nan, 5.0, 3.0, 1.0]})
    combiner = Top(2, FieldGetter("n")).combiner(None)
    list(combiner.add(Batch(ROW, columns=columns, key_column=pa.array([1] * 4), times=[0] * 4)))
    assert [row.n for batch in combiner.finish() for row in batch.values] == [5.0, 3.0]


@pytest.mark.parametrize("n", [0, True, "5"])
def test_the_number_of_records_is_at_least_one(n):
    with pytest.raises(GraphError, match="at least 1"):
        windows(Job("refused")).top("top", n, by="n")


@pytest.mark.parametrize("per", [[], 3, [3]])
def test_per_is_a_column_or_columns(per):
    with pytest.raises(GraphError, match="per= is a column"):
        windows(Job("refused")).top("top", 1, by="n", per=per)


def test_the_graph_shows_the_step():
    job = Job("shown")
    windows(job, early="batch").top("best", 3, by="n").sink("out", collect())
    assert [line.split()[:2] for line in job.graph.text().splitlines()][-4:] == [
        ["best:final", "filter"],
        ["best:per", "key_by"],
        ["best", "top"],
        ["out", "sink"],
    ]


def test_a_missing_column_is_refused_where_columns_are_known():
    sums = windows(Job("refused")).map("typed", lambda row: Total(row.start, row.n), returns=Total)
    with pytest.raises(GraphError, match="there is no column 'm'; Total has start, n"):
        sums.top("top", 1, by="m")
