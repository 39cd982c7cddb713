"""The errors that `tidewheel graph` and every start find in a program before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pytest

from tidewheel import Job, count, session, sum_, tumbling
from tidewheel._connectors.schema import declared_schema
from tidewheel.errors import ConfigError, GraphError, StepError
from tidewheel.sinks import collect
from tidewheel.sources import files, iterable
from tidewheel.testing import run_in_memory

SCHEMA = "user string, cents long, at timestamp, tags array<string>"


@dataclass
class Order:
    user: str
    cents: int
    at: datetime


def orders(value=None):
    return Job("orders", state="memory:finds").source("in", files("orders/", "json", schema=SCHEMA), type=value)


def timed(value=None):
    return orders(value).assign_timestamps("time", "at").limit_out_of_orderness("bound", "1 s").key_by("by", "user")


@pytest.mark.parametrize("value", [None, dict, Order], ids=["row", "dict", "dataclass"])
def test_sums_over_text_are_found(value):
    text = r"step 'sum' .*aggregates need numbers, but column 'user' has the type string; convert"
    for build in (
        lambda: orders(value).key_by("by", "user").aggregate("sum", total=sum_("user")),
        lambda: timed(value).window("sum", tumbling("1 min"), total=sum_("user")),
        lambda: timed(value).window("sum", session("1 min"), total=sum_("user")),
        lambda: orders(value).key_by("by", "cents", value="user").aggregate("sum", total=sum_("user")),
        lambda: orders(value).filter("some", bool).key_by("by", "user").aggregate("sum", total=sum_("user")),
    ):
        with pytest.raises(GraphError, match=text):
            build()
    timed(value).window("sum", tumbling("1 min"), total=sum_("cents"), n=count())


@pytest.mark.parametrize("value", [None, dict, Order], ids=["row", "dict", "dataclass"])
def test_missing_columns_are_found(value):
    for build in (
        lambda: orders(value).key_by("by", "uzer"),
        lambda: orders(value).key_by("by", "user", value="uzer"),
        lambda: orders(value).key_by("by", "user").aggregate("sum", total=sum_("uzer")),
        lambda: orders(value).assign_timestamps("time", "uzer"),
        lambda: timed(value).window("sum", tumbling("1 min"), total=sum_("uzer")),
    ):
        with pytest.raises(GraphError, match=r"step '.*there is no column '?uzer'?; .* has user, cents, at"):
            build()


def test_a_time_column_of_another_type_is_detected():
    with pytest.raises(
        GraphError, match=r"step 'time' .*must have timestamps, or integers .*'user' has the type string"
    ):
        orders().assign_timestamps("time", "user")
    with pytest.raises(GraphError, match=r"step 'time' .*unit= is for integers, but 'at' has the type timestamp"):
        orders().assign_timestamps("time", "at", unit="ms")
    orders().assign_timestamps("time", "cents", unit="ms")


def test_windows_and_joins_without_timestamps_are_found():
    keyed = orders().key_by("by", "user")
    for build in (
        lambda: keyed.window("w", tumbling("1 min"), n=count()),
        lambda: keyed.window("w", session("1 min"), lambda n, _: n + 1, default=0, merge=lambda a, b: a + b),
        lambda: keyed.deduplicate("w", "1 min"),
        lambda: keyed.interval_join("w", keyed.map("m", lambda row: row)),
        lambda: orders().limit_out_of_orderness("w", "1 s"),
    ):
        with pytest.raises(GraphError, match=r"step 'w' .*its messages have no timestamps; add event_time before"):
            build()


def test_a_step_with_state_before_key_by_is_refused():
    with pytest.raises(GraphError, match=r"stateful_map needs a stream with keys: put key_by first"):
        orders().stateful_map("total", lambda key, row, n: (n, n), default=0)


def test_columns_that_folders_add_are_not_called_missing(tmp_path):
    (tmp_path / "day=7").mkdir()
    job = Job("folders", state="memory:finds")
    job.source("in", files(tmp_path, "json", schema="user string")).key_by("by", "day")


def test_a_schema_is_read_without_spark():
    text = "`a b` INT, c: decimal(10, 2) NOT NULL, d struct<x: int, y: string> COMMENT 'z'"
    columns = {field.name: field.type for field in declared_schema(text)}
    nested = pa.struct([("x", pa.int32()), ("y", pa.string())])
    assert columns == {"a b": pa.int32(), "c": pa.decimal128(10, 2), "d": nested}
    kinds = {field.name: field.type for field in declared_schema(Order)}
    assert kinds == {"user": pa.string(), "cents": pa.int64(), "at": pa.timestamp("us", "UTC")}
    with pytest.raises(ConfigError, match="nonsense"):
        declared_schema("nonsense")


def keyed_numbers(**options):
    job = Job("keyed", state="memory:finds", n_shards=4)
    keyed = job.source("in", iterable([{"user": "ada", "n": 3}])).key_by("by", "user", value="n")
    keyed.sink("out", collect(), **options)
    return run_in_memory(job).outputs["out"]


def test_the_key_column_at_a_sink_can_be_named_or_left_out():
    assert keyed_numbers() == [{"user": "ada", "n": 3}]
    assert keyed_numbers(key="customer") == [{"customer": "ada", "n": 3}]
    assert keyed_numbers(key=False) == [{"n": 3}]


def test_a_key_column_that_cannot_be_is_refused():
    with pytest.raises(StepError, match=r"key='n' names the column of the key, but the values already have a column"):
        keyed_numbers(key="n")
    with pytest.raises(GraphError, match=r"sink 'out': key= names .*True is not a name"):
        keyed_numbers(key=True)
    with pytest.raises(GraphError, match=r"sink 'out': key= names .*the stream has no keys"):
        orders().sink("out", collect(), key="user")


def test_a_plain_value_is_the_only_column_of_a_source():
    out, job = collect(), Job("plain", state="memory:plain-column")
    job.source("in", files("x/", schema="cents long"), type=int).map("double", lambda n: n * 2).sink("out", out)
    run_in_memory(job, {"in": [{"cents": 3}]})
    assert out.records == [{"value": 6}]


def test_a_plain_value_of_a_source_with_several_columns_is_refused():
    with pytest.raises(
        GraphError, match=r"type=int is a single column, 'value', and it has user, cents; declare a data"
    ):
        Job("plain").source("in", files("x/", schema="user string, cents long"), type=int)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": None}, r"'value' is null or missing; type=int reads only this column.*type=int \| None"),
        ({"cents": 3}, "the records lack the column value of int; they have cents"),
    ],
)
def test_a_missing_plain_value_is_not_none(record, said):
    job = Job("plain", state="memory:plain-null")
    job.source("in", files("x/"), type=int).sink("out", collect())
    with pytest.raises(StepError, match=said):
        run_in_memory(job, {"in": [record]})


@dataclass
class Payment:
    order: int
    at: datetime


@dataclass
class Priced:
    cents: float
    at: int


def float_key(payment: Priced) -> float:
    return payment.cents


def text_key(payment: Payment) -> str:
    return str(payment.order)


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("order", Payment, "int"),
        ("order", None, "int"),
        (lambda payment: payment.order, Payment, "int"),
        (lambda payment: payment["order"], dict, "int"),
        (lambda payment: str(payment.order), Payment, None),
        (text_key, Payment, None),
    ],
    ids=["column", "schema", "field", "item", "unknown", "annotated"],
)
def test_a_join_by_keys_of_two_declared_types_is_found(key, value, found):
    left = timed(Order)
    source = files("payments/", "json", schema="order long, at timestamp")
    payments = left.job.source("payments", source, type=value).assign_timestamps("paid", "at")
    right = payments.limit_out_of_orderness("bound-paid", "1 s").key_by("by-order", key)
    left.interval_join("join", right).sink("out", collect())
    if found is None:
        left.job.plan()
    else:
        with pytest.raises(
            GraphError, match=f"step 'join': its left stream has keys of type str, its right one .* {found}"
        ):
            left.job.plan()


@pytest.mark.parametrize(
    "key", [float_key, lambda payment: payment.cents, "cents"], ids=["annotated", "field", "column"]
)
def test_a_join_of_ints_with_declared_floats_matches_equal_numbers(key):
    # To a type checker an int is a float.
    job, out = Job("float", state="memory:float-keys"), collect()
    left = job.source("in", files("in/", "json", schema="cents long, at long")).assign_timestamps(
        "time", "at", unit="s"
    )
    keyed = left.limit_out_of_orderness("bound", "1 s").key_by("by", "cents")
    source = files("payments/", "json", schema="cents long, at long")
    paid = (
        job.source("payments", source)
        .assign_timestamps("paid", "at", unit="s")
        .limit_out_of_orderness("bound-paid", "1 s")
    )
    right = paid.map("priced", lambda row: Priced(row.cents, row.at), returns=Priced).key_by("by-cents", key)
    keyed.interval_join("join", right, function=lambda one, other: {"cents": one.cents}).sink("out", out)
    run_in_memory(job, {"in": [{"cents": 7, "at": 1}], "payments": [{"cents": 7, "at": 1}]})
    assert [record["cents"] for record in out.records] == [7]


def test_a_join_of_a_column_of_ints_with_one_of_floats_is_found():
    left = timed()
    source = files("payments/", "json", schema="paid double, at timestamp")
    payments = left.job.source("payments", source).assign_timestamps("paid", "at")
    right = payments.limit_out_of_orderness("bound-paid", "1 s").key_by("by-paid", "paid")
    left.key_by("by-cents", "cents").interval_join("join", right).sink("out", collect())
    with pytest.raises(GraphError, match=r"step 'join': its left stream has keys of type int, its right one .* float"):
        left.job.plan()
