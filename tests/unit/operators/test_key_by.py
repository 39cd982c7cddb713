"""key_by: choose the key of each message."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Job, sum_
from tidewheel._core.keys import kinds_of
from tidewheel._operators.keyed.key_by import key_array
from tidewheel.errors import GraphError, StepError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun
from unit.operators.running import failure, run

ROWS = [{"user": "ada", "n": 1}, {"user": "bob", "n": 2}, {"user": "ada", "n": 3}]


@dataclasses.dataclass
class Click:
    user: str
    n: int


def counted(stream):
    return stream.stateful_map("count", lambda key, value, n: (n + 1, n + 1), default=0)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_column_is_the_key_under_its_own_name(parallelism):
    ran = run(lambda s: counted(s.key_by("k", "user")), ROWS, plain=False, parallelism=parallelism)
    assert sorted(map(str, ran.records)) == sorted(
        map(str, [{"user": "ada", "value": 1}, {"user": "bob", "value": 1}, {"user": "ada", "value": 2}])
    )
    assert ran.states == {"count": {"ada": 2, "bob": 1}}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "key",
    [
        lambda n: f"key-{n % 2}",
        lambda n: n % 2,
        lambda n: bool(n % 2),
        lambda n: f"key-{n % 2}".encode(),
        lambda n: n % 2 + 0.5,
        lambda n: (n % 2, f"key-{n % 2}", None),
    ],
)
def test_keys_of_every_kind_meet_in_one_place(key, parallelism):
    ran = run(lambda s: counted(s.key_by("k", key)), [1, 2, 3], [4, 5], parallelism=parallelism, partitions=2)
    assert ran.states == {"count": {key(1): 3, key(2): 2}}
    assert {type(found) for found in ran.states["count"]} == {type(key(1))}


def test_one_column_can_be_chosen_as_the_value():
    ran = run(lambda s: s.key_by("k", "user", value="n").map("m", lambda n: n + 1), ROWS, plain=False)
    assert ran.by_key("user") == {"ada": [2, 4], "bob": [3]}
    ran = run(lambda s: s.key_by("k", lambda row: row.n, value="user"), ROWS, plain=False)
    assert ran.records[0] == {"key": 1, "user": "ada"}


def test_a_stream_can_be_keyed_again():
    ran = run(
        lambda s: (
            counted(s.key_by("a", lambda n: n % 3))
            .key_by("b", lambda seen: f"seen {seen}")
            .stateful_map("again", lambda key, value, n: (n + 1, n + 1), default=0)
        ),
        [1, 2, 1, 3],
        parallelism=2,
    )
    assert ran.states == {"count": {0: 1, 1: 2, 2: 1}, "again": {"seen 1": 3, "seen 2": 1}}


def test_null_keys_name_operator_and_record_or_are_rejected_one_by_one():
    rows = [ROWS[0], {"user": None, "n": 7}, ROWS[1]]
    text = failure(lambda s: counted(s.key_by("k", "user")), rows, plain=False)
    assert text.startswith("step 'k', record Row(user=None, n=7): the key column 'user' is null")
    ran = run(lambda s: counted(s.key_by("k", "user")), rows, plain=False, dead_letter=True)
    assert ran.states == {"count": {"ada": 1, "bob": 1}}
    assert len(ran.dead) == 1
    assert "7" in ran.dead[0]["record"]


def test_a_column_of_nothing_but_nulls_is_rejected_too():
    ran = run(lambda s: counted(s.key_by("k", "user")), [{"user": None}], plain=False, dead_letter=True)
    assert (ran.states, len(ran.dead)) == ({}, 1)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (None, "must not be None"),
        (2**70, "does not fit in 64 bits"),
        (math.nan, "NaN"),
        ([1], "of type list cannot be a key"),
        (datetime.date(2026, 1, 1), "of type date cannot be a key"),
        ("\ud800", "not valid Unicode"),
    ],
)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_invalid_keys_are_rejected_at_the_key_by(bad, said, parallelism):
    good = {int: 5, float: 5.0, str: "5", list: (5,), datetime.date: "5"}.get(type(bad), 5)

    def key(n):
        return bad if n == 2 else good

    text = failure(lambda s: counted(s.key_by("k", key)), [1, 2, 3], parallelism=parallelism)
    assert text.startswith("step 'k', record 2: ")
    assert said in text
    ran = run(lambda s: counted(s.key_by("k", key)), [1, 2, 3], dead_letter=True, parallelism=parallelism)
    assert ran.states == {"count": {good: 2}}
    assert [row["record"] for row in ran.dead] == ["2"]


def test_nan_in_a_column_is_rejected_and_zeros_are_one_key():
    rows = [{"at": 0.0}, {"at": math.nan}, {"at": -0.0}]
    ran = run(lambda s: counted(s.key_by("k", "at")), rows, plain=False, dead_letter=True)
    assert ran.states == {"count": {0.0: 2}}
    assert "NaN" in ran.dead[0]["error"]
    ran = run(lambda s: counted(s.key_by("k", lambda row: row.at)), [rows[0], rows[2]], plain=False)
    assert ran.states == {"count": {0.0: 2}}


def test_keys_of_several_types_are_refused_over_several_batches_of_a_task():
    text = failure(lambda s: s.key_by("k", lambda n: n if n < 3 else str(n)), [1, 3])
    assert re.search(
        "step 'k'.*: all keys must be of one type, not int and str; convert them in the key function", text
    )
    text = failure(lambda s: s.key_by("k", lambda n: [1, 1.0, True][n]), [0, 1, 2])
    assert "must be of one type, not" in text


def test_an_error_in_the_function_names_operator_and_record():
    assert failure(lambda s: s.key_by("k", lambda n: 1 // n), [1, 0]).startswith("step 'k', record 0: ZeroDivision")
    ran = run(lambda s: counted(s.key_by("k", lambda n: 12 // n)), [1, 0, 2, 0, 3], dead_letter=True)
    assert ran.states == {"count": {12: 1, 6: 1, 4: 1}}


def test_a_missing_column_is_refused_with_the_existing_ones():
    text = failure(lambda s: s.key_by("k", "usr"), ROWS, plain=False)
    assert "there is no column 'usr'; the values have user, n" in text
    text = failure(lambda s: s.key_by("k", "user", value="amount"), ROWS, plain=False)
    assert "there is no column 'amount'" in text


def test_a_declared_type_without_the_column_is_refused_in_the_graph():
    with pytest.raises(GraphError, match=r"step 'k' \(key_by\): there is no column 'usr'; Click has user, n"):
        run(lambda s: s.key_by("k", "usr"), value=Click)
    with pytest.raises(GraphError, match="key_by takes a column's name or a function, not int"):
        run(lambda s: s.key_by("k", 3))


def test_undeclared_records_are_still_themselves_behind_the_shuffle():
    for key in ("user", lambda click: click.user):
        ran = run(
            lambda s, key=key: (
                s.map("parse", lambda row: Click(row.user, row.n)).key_by("k", key).map("m", lambda click: click.n)
            ),
            ROWS,
            plain=False,
            parallelism=2,
        )
        assert sorted(ran.values()) == [1, 2, 3]


def test_dicts_that_lack_names_lack_them_behind_the_shuffle_too():
    ran = run(
        lambda s: (
            s.map("d", lambda n: {"k": n} if n == 1 else {"k": n, "x": n})
            .key_by("k", "k")
            .map("m", lambda value: value.get("x", 0))
        ),
        [1, 2],
    )
    assert ran.values() == [0, 2]


def test_batches_whose_columns_differ_in_type_are_handled_together():
    ran = run(
        lambda s: s.key_by("k", "user").stateful_map("sum", lambda u, row, t: (t + (row.n or 0),) * 2, default=0),
        [{"user": "a", "n": 1}, {"user": "a", "n": 1.5}, {"user": "a", "n": None}, {"user": "a", "n": None}],
        plain=False,
        partitions=4,
    )
    assert ran.states == {"sum": {"a": 2.5}}


@pytest.mark.parametrize(
    ("column", "carried"),
    [
        (pa.array([1], pa.int8()), pa.int64()),
        (pa.array([1], pa.uint32()), pa.int64()),
        (pa.array([1.5], pa.float32()), pa.float64()),
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array([b"a"], pa.large_binary()), pa.binary()),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array([7]).dictionary_encode(), pa.int64()),
        (pa.array([True]), pa.bool_()),
    ],
)
def test_key_columns_are_carried_as_one_type_for_each_kind(column, carried):
    found = key_array(column)
    assert found.type == carried
    assert found.to_pylist() == column.to_pylist()


def test_other_columns_cannot_be_keys():
    with pytest.raises(StepError, match=r"a key must be a string, integer.*; this one has the type date32"):
        key_array(pa.array([datetime.date(2026, 1, 1)]))


def tuple_keys(state):
    job = Job("tuples", state=state, n_shards=8)
    rows = job.source("in", iterable([]), type=dict).map("parse", lambda row: json.loads(row["text"]))
    keyed = rows.key_by("k", lambda row: (row["user"], row["n"]))
    keyed.stateful_map("count", lambda key, row, n: (None, n + 1), default=0).sink("out", collect())
    return job


def texts(*numbers):
    return {"in": [{"text": json.dumps({"user": f"u{user}", "n": n})} for n in numbers for user in range(20)]}


MIXED = "'k'.*: the numbers at place 1 of its tuple keys must be of one type, not float and int"


@pytest.mark.parametrize(("parallelism", "partitions"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_tuple_keys_with_1_and_1_0_are_refused_in_any_division(parallelism, partitions):
    job = tuple_keys(f"memory:tuples-{parallelism}-{partitions}")
    with MemoryRun(job, parallelism=parallelism, partitions=partitions) as run:
        with pytest.raises(StepError, match=MIXED):
            run.batch(texts(1, 1.0))
        run.batch(texts(1, None))
        assert run.run.head.key_kinds == {"k": "tuple", "k/1": "int", "count": "tuple", "count/1": "int"}


def test_keys_of_another_type_than_before_a_restart_are_refused():
    state = "memory:tuples-restarted"
    with MemoryRun(tuple_keys(state)) as run:
        run.batch(texts(1))
    with MemoryRun(tuple_keys(state)) as run, pytest.raises(StepError, match=MIXED):
        run.batch(texts(1.0))


@pytest.mark.parametrize("other", [True, 1.0, "1"])
def test_all_keys_of_one_key_by_are_of_one_type_over_all_batches(other):
    def build(stream):
        return stream.key_by("k", lambda value: value).stateful_map("n", lambda k, v, n: (None, n + 1), default=0)

    assert re.search("step 'k'.*: all keys must be of one type, not", failure(build, [1], [other]))


def test_a_key_column_keeps_its_type_over_all_batches():
    def build(stream):
        return stream.key_by("k", "n").stateful_map("count", lambda k, v, n: (None, n + 1), default=0)

    text = failure(build, [{"n": 1}], [{"n": 1.5}], plain=False)
    assert re.search("step 'k'.*: all keys must be of one type, not float and int", text)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 1.0, True, None, "x"]))))
def test_kinds_are_the_numbers_of_each_place(keys):
    kinds = kinds_of(keys)
    assert kinds.get("/1", set()) == {type(n).__name__ for _, n in keys if isinstance(n, int | float)}
    assert kinds.get("", set()) == ({"tuple"} if keys else set())


@pytest.mark.parametrize("key", ["user", lambda row: row.user], ids=["column", "function"])
def test_rows_of_aggregates_have_the_former_key_behind_the_next_key_by(key):
    def build(rows):
        totals = rows.key_by("by", "user").aggregate("total", total=sum_("n"))
        return (
            totals.filter("some", lambda row: row.total)
            .key_by("again", key)
            .map("both", lambda row: (row.user, row.total))
        )

    rows = [{"user": "ada", "n": 1}, {"user": "bob", "n": 2}, {"user": "ada", "n": 3}]
    ran = run(lambda s: build(s).map("text", lambda pair: f"{pair[0]} {pair[1]}"), rows, plain=False)
    assert sorted(ran.values()) == ["ada 4", "bob 2"]


def test_a_former_tuple_key_is_a_struct_after_the_next_key_by():
    def build(rows):
        totals = rows.key_by("by", lambda row: (row.user, row.n % 2)).aggregate("total", total=sum_("n"))
        return totals.key_by("again", lambda row: row.key["_1"]).map(
            "text", lambda row: f"{row.key['_1']} {row.key['_2']} {row.total}"
        )

    rows = [{"user": "ada", "n": 1}, {"user": "ada", "n": 2}, {"user": "ada", "n": 3}]
    assert sorted(run(build, rows, plain=False).values()) == ["ada 0 2", "ada 1 4"]


def test_an_error_about_mixed_keys_names_the_operator_once():
    def build(stream):
        return stream.key_by("k", lambda value: value).stateful_map("n", lambda k, v, n: (None, n + 1), default=0)

    assert failure(build, [1], ["1"]).count("'k'") == 1


def test_a_dictionary_that_has_a_key_twice_gives_one_key():
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1], pa.int32()), pa.array(["ada", "bob", "ada"]))
    columns = pa.RecordBatch.from_arrays([codes, pa.array([1, 2, 3, 4])], ["user", "n"])
    ran = run(
        lambda s: s.map_batches("codes", lambda _: columns).key_by("k", "user").aggregate("total", n=sum_("n")),
        [{"user": "", "n": 0}],
    )
    assert ran.states == {"total": {"ada": [2, 4], "bob": [2, 6]}}
