"""Functions that receive the key, and column names in place of functions."""

from __future__ import annotations

import itertools

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Job, sum_, tumbling
from tidewheel.errors import GraphError, KeysNeeded
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import run_in_memory
from unit.operators.running import run

_fresh = itertools.count()
RECORDS = [{"user": user, "n": n, "paid": n > 1, "items": list(range(n))} for user, n in [("ada", 1), ("bob", 2)]]


def ran(build, records=RECORDS, dead=False):
    job = Job("with-key", state=f"memory:with-key-{next(_fresh)}")
    build(job.source("in", lambda spark: None)).sink("out", collect())
    if dead:
        job.dead_letter("dead", collect())
    return run_in_memory(job, {"in": records}).outputs


def by_user(stream):
    return stream.key_by("by-user", "user", value="n")


KEYED = {
    "map": (lambda s: by_user(s).map(lambda user, n: f"{user}{n}", with_key=True), ["ada1", "bob2"]),
    "filter": (lambda s: by_user(s).filter("f", lambda user, n: user == "bob", with_key=True), [2]),
    "filter_map": (lambda s: by_user(s).filter_map(lambda user, n: user if n > 1 else None, with_key=True), ["bob"]),
    "flat_map": (lambda s: by_user(s).flat_map("f", lambda user, n: [user] * n, with_key=True), ["ada", "bob", "bob"]),
    "expect": (lambda s: by_user(s).expect("e", lambda user, n: user != "ada", otherwise="drop", with_key=True), [2]),
    "key_by": (
        lambda s: by_user(s).key_by("again", lambda user, n: len(user) * n, with_key=True).map("k", lambda n: n),
        [1, 2],
    ),
}


@pytest.mark.parametrize("step", KEYED)
def test_the_function_is_called_with_key_and_value(step):
    build, want = KEYED[step]
    assert [row.get("value", row.get("n")) for row in ran(build)["out"]] == want


MODELS = {
    "map": (lambda f: lambda s: s.map(f, with_key=True), lambda f, key, n: [f(key, n)]),
    "filter": (lambda f: lambda s: s.filter("f", f, with_key=True), lambda f, key, n: [n] * bool(f(key, n))),
    "filter_map": (
        lambda f: lambda s: s.filter_map(lambda key, n: f(key, n) or None, with_key=True),
        lambda f, key, n: [f(key, n)] * bool(f(key, n)),
    ),
    "flat_map": (
        lambda f: lambda s: s.flat_map("f", lambda key, n: [n] * f(key, n), with_key=True),
        lambda f, key, n: [n] * f(key, n),
    ),
    "expect": (
        lambda f: lambda s: s.expect("e", f, otherwise="drop", with_key=True),
        lambda f, key, n: [n] * bool(f(key, n)),
    ),
}


@pytest.mark.parametrize("step", MODELS)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["", "a", "bb"]), st.integers(-9, 9)), max_size=9), max_size=3),
    st.integers(1, 3),
)
def test_each_key_has_the_results_of_the_function_in_order(step, batches, partitions):
    """Against the plain model. A value for which the function fails is a dead letter."""

    def function(key, n):
        if n == 0:
            raise ValueError("zero")
        return (len(key) + n) % 3

    build, results = MODELS[step]
    rows = [[{"of": key, "n": n} for key, n in batch] for batch in batches]
    ran = run(
        lambda s: build(function)(s.key_by("by", "of", value="n")),
        *rows,
        plain=False,
        dead_letter=True,
        parallelism=2,
        partitions=partitions,
    )
    want: dict[str, list[int]] = {}
    for key, n in itertools.chain(*batches):
        if n and (found := results(function, key, n)):
            want.setdefault(key, []).extend(found)
    got: dict[str, list[int]] = {}
    for row in ran.records:
        got.setdefault(row["of"], []).append(row.get("value", row.get("n")))
    assert got == want
    assert len(ran.dead) == sum(n == 0 for _, n in itertools.chain(*batches))


def test_key_by_gets_the_previous_key():
    out = ran(lambda s: by_user(s).key_by("again", lambda user, n: f"{user}-{n}", with_key=True))["out"]
    assert sorted(row["key"] for row in out) == ["ada-1", "bob-2"]


def test_inspect_sees_the_key():
    seen = []
    ran(lambda s: by_user(s).inspect("look", lambda user, n: seen.append((user, n)), with_key=True))
    assert sorted(seen) == [("ada", 1), ("bob", 2)]


def test_a_record_that_fails_is_rejected_and_the_others_keep_their_keys():
    def inverse(user, n):
        return (user, 1 / (n - 1))[0]

    out = ran(lambda s: by_user(s).map("inverse", inverse, with_key=True), dead=True)
    assert [row["value"] for row in out["out"]] == ["bob"]
    assert len(out["dead"]) == 1


COLUMNS = {
    "map": (lambda s: s.map("users", "user"), ["ada", "bob"]),
    "filter": (lambda s: s.filter("paid-only", "paid").map("n", "n"), [2]),
    "expect": (lambda s: s.expect("paid", "paid", otherwise="drop").map("n", "n"), [2]),
    "filter_map": (lambda s: s.filter_map("users", "user"), ["ada", "bob"]),
    "flat_map": (lambda s: s.flat_map("items", "items"), [0, 0, 1]),
    "branch": (lambda s: s.branch("b", paid="paid").paid.map("n", "n"), [2]),
}


@pytest.mark.parametrize("step", COLUMNS)
def test_a_column_can_replace_a_function(step):
    build, want = COLUMNS[step]
    assert [row["value"] for row in ran(build)["out"]] == want


def test_the_result_of_a_window_with_a_function_keeps_its_key_behind_key_by():
    job = Job("windows", state=f"memory:with-key-{next(_fresh)}")
    timed = job.source("in", lambda spark: None).event_time("n", unit="ns", max_delay="0 s")
    windows = timed.key_by("by-user", "user").window("w", tumbling("10 ns"), lambda n, row: n + 1, default=0)
    rows = windows.key_by("by-start", "start").map(
        "parts", lambda row: {"user": row.user, "at": row.start, "n": row.value}
    )
    rows.sink("out", collect())
    out = run_in_memory(job, {"in": RECORDS}).outputs["out"]
    assert sorted((row["user"], row["at"], row["n"]) for row in out) == [("ada", 0, 1), ("bob", 0, 1)]


def test_rows_of_aggregates_keep_their_key_behind_key_by():
    out = ran(lambda s: s.key_by("u", "user").aggregate("a", n=sum_("n")).key_by("by-n", "n"))["out"]
    assert sorted(row["user"] for row in out) == ["ada", "bob"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda s: s.map("m", lambda user, n: n, with_key=True), KeysNeeded, "with_key= needs a stream with keys"),
        (lambda s: by_user(s).map("m", lambda n: n, with_key=True), GraphError, "called with key and value"),
        (lambda s: by_user(s).filter("f", pc.field("n") > 1, with_key=True), GraphError, "a function of key and value"),
        (lambda s: by_user(s).map("m", "n", with_key=True), GraphError, "a function of key and value"),
        (lambda s: s.map_batches("b", "n"), GraphError, "takes a function"),
    ],
)
def test_a_step_that_cannot_work_is_refused(make, error, text):
    with pytest.raises(error, match=text):
        make(Job("j").source("in", iterable(RECORDS)))


def test_a_missing_column_is_refused_in_the_graph():
    from dataclasses import dataclass

    @dataclass
    class Order:
        user: str

    stream = Job("j").source("in", iterable([Order("ada")]), type=Order)
    with pytest.raises(GraphError, match="there is no column 'usr'"):
        stream.map("m", "usr")
