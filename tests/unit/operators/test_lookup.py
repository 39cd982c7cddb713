"""lookup joins each record with the row of a table that has its key."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from tidewheel import Job, sinks, sources
from tidewheel.errors import ConfigError, GraphError, StepError
from tidewheel.testing import StepTester, run_in_memory

PRICES = [{"sku": "tea", "cents": 300, "shop": "a"}, {"sku": "milk", "cents": 90, "shop": "b"}]
ORDERS = [{"id": 1, "sku": "milk"}, {"id": 2, "sku": "rum"}, {"id": 3, "sku": "tea"}]


def looked_up(records, rows=PRICES, *, key="sku", before=lambda stream: stream, schema=None, **options):
    job = Job("lookup", state="memory:")
    table = job.table("prices", rows, key=key)
    stream = before(job.source("in", sources.iterable(records)))
    stream.lookup("price", table, **options).sink("out", sinks.collect())
    return run_in_memory(job)


def test_inner_drops_records_without_a_row_and_counts_them():
    result = looked_up(ORDERS, on="sku")
    assert result.outputs["out"] == [
        {"id": 1, "sku": "milk", "cents": 90, "shop": "b"},
        {"id": 3, "sku": "tea", "cents": 300, "shop": "a"},
    ]
    assert result.checkpoint.counts["price/dropped"] == 1


def test_left_keeps_records_without_a_row():
    found = looked_up(ORDERS, on="sku", how="left").outputs["out"]
    assert [row["cents"] for row in found] == [90, None, 300]


def test_chosen_columns_can_have_other_names():
    found = looked_up(ORDERS[:1], on="sku", columns={"cents": "price", "sku": "known"}).outputs["out"]
    assert found == [{"id": 1, "sku": "milk", "price": 90, "known": "milk"}]
    assert looked_up(ORDERS[:1], on="sku", columns=["shop"]).outputs["out"] == [{"id": 1, "sku": "milk", "shop": "b"}]


def test_without_on_the_key_of_the_stream_is_looked_up():
    found = looked_up(ORDERS, before=lambda stream: stream.key_by("by-sku", "sku")).outputs["out"]
    assert sorted((row["id"], row["cents"]) for row in found) == [(1, 90), (3, 300)]


def test_a_function_can_return_the_key():
    found = looked_up(ORDERS, on=lambda order: order.sku.lower()).outputs["out"]
    assert [row["cents"] for row in found] == [90, 300]


def test_a_key_can_have_several_columns():
    rows = [{"a": "x", "b": 1, "n": 10}, {"a": "x", "b": 2, "n": 20}]
    given = [{"p": "x", "q": 2}, {"p": "y", "q": 2}]
    assert looked_up(given, rows, key=["a", "b"], on=["p", "q"]).outputs["out"] == [{"p": "x", "q": 2, "n": 20}]
    by_function = looked_up(given, rows, key=["a", "b"], on=lambda row: (row.p, row.q)).outputs["out"]
    assert by_function == [{"p": "x", "q": 2, "n": 20}]


def test_values_that_are_not_columns_are_combined_by_a_function():
    class Order:
        def __init__(self, sku):
            self.sku = sku

    result = looked_up(
        ORDERS,
        before=lambda stream: stream.map("object", lambda row: Order(row.sku)),
        on=lambda order: order.sku,
        how="left",
        combine=lambda order, row: {"sku": order.sku, "cents": row.cents if row else -1},
    )
    assert [row["cents"] for row in result.outputs["out"]] == [90, -1, 300]


def test_values_without_columns_need_combine():
    with pytest.raises(StepError, match="do not fit into columns"):
        looked_up(ORDERS, before=lambda stream: stream.map("object", lambda row: object()), on=lambda order: "tea")


def test_dataclasses_dicts_and_plain_values_become_rows():
    @dataclass
    class Order:
        id: int
        sku: str

    found = looked_up(
        ORDERS[:1], before=lambda stream: stream.map("order", lambda row: Order(row.id, row.sku)), on="sku"
    )
    assert found.outputs["out"] == [{"id": 1, "sku": "milk", "cents": 90, "shop": "b"}]
    assert looked_up(["tea"], on="value").outputs["out"] == [{"value": "tea", "cents": 300, "shop": "a"}]


def test_keys_and_timestamps_stay():
    tester = StepTester(
        lambda stream: stream.lookup(
            "price", stream.job.table("prices", PRICES, key="sku"), on="sku", columns=["cents"]
        )
    )
    (message,) = tester.send("ada", {"sku": "tea"}, time=7)
    assert (message.key, message.time, message.value.cents) == ("ada", 7, 300)


def test_a_null_key_finds_no_row_and_repeated_keys_are_found():
    given = [{"sku": None}, *({"sku": f"s{n % 50}"} for n in range(20_000))]
    rows = [{"sku": f"s{n}", "n": n} for n in range(40)]
    found = looked_up(given, rows, on="sku", how="left").outputs["out"]
    assert [row["n"] for row in found] == [None, *(n % 50 if n % 50 < 40 else None for n in range(20_000))]


def test_a_function_that_fails_rejects_its_record_alone():
    job = Job("lookup", state="memory:")
    job.dead_letter("dead", sinks.collect())
    numbers = job.source("in", sources.iterable([{"n": 1}, {"n": 0}, {"n": 2}]))
    table = job.table("table", [{"n": 1, "name": "one"}], key="n")
    numbers.lookup("name", table, on=lambda row: 1 // row.n).sink("out", sinks.collect())
    outputs = run_in_memory(job).outputs
    assert [row["n"] for row in outputs["out"]] == [1]
    assert [letter["record"] for letter in outputs["dead"]] == ['{"n": 0}']


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "id"}, "step 'price' .*the key 'id' has the type int64 in the stream and string in the table 'prices'"),
        ({"on": "nope"}, "there is no column 'nope'; the values have id, sku"),
        ({"on": lambda row: 1.5}, "cannot be looked up: it has the type double"),
    ],
)
def test_keys_that_never_fit_stop_the_job(options, said):
    with pytest.raises(StepError, match=said):
        looked_up(ORDERS, **options)


def test_missing_and_ambiguous_columns_are_named_before_any_commit():
    with pytest.raises(
        GraphError, match=r"step 'price' \(lookup\): the table 'prices' has no column 'vat'; it has sku"
    ):
        looked_up(ORDERS, on="sku", columns=["vat"])
    with pytest.raises(StepError, match="both have a column 'id'; add it under another name"):
        looked_up(ORDERS, [{"sku": "tea", "id": 1}], on="sku")
    with pytest.raises(
        ConfigError, match=r"table 'prices' \(a list\): there is no column 'ean'; it has sku, cents, shop"
    ):
        looked_up(ORDERS, key="ean", on="sku")


def test_mistakes_in_the_program_are_named():
    job, other = Job("one"), Job("other")
    stream, table = job.source("in", sources.iterable(ORDERS)), job.table("prices", PRICES, key="sku")
    with pytest.raises(GraphError, match="a table of this job"):
        stream.lookup("a", other.table("prices", PRICES, key="sku"), on="sku")
    with pytest.raises(GraphError, match='"inner" or "left", not \'outer\''):
        stream.lookup("b", table, on="sku", how="outer")
    with pytest.raises(GraphError, match="the stream has no keys: say which column has the key"):
        stream.lookup("c", table)
    with pytest.raises(GraphError, match="has 1 columns, sku, and on= names 2"):
        stream.lookup("d", table, on=["sku", "id"])
    with pytest.raises(GraphError, match="columns= is a list"):
        stream.lookup("e", table, on="sku", columns="cents")
    with pytest.raises(GraphError, match="a table named 'prices' already"):
        job.table("prices", PRICES, key="sku")
    with pytest.raises(GraphError, match="'int' is not a source of a table"):
        job.table("numbers", 7, key="sku")


def test_a_column_of_another_declared_type_is_refused_at_loading():
    job = Job("lookup", state="memory:")
    table = job.table("prices", pa.table({"sku": [1], "cents": [2]}), key="sku")
    stream = job.source("in", sources.files("in/", "json", schema="sku string"))
    stream.lookup("price", table, on="sku").sink("out", sinks.collect())
    table.schema = pa.schema({"sku": pa.int64(), "cents": pa.int64()})
    operator = job.graph.nodes[1].operator
    with pytest.raises(GraphError, match="'sku' has the type string in the stream and int64 in the table"):
        operator.schemas((pa.schema({"sku": pa.string()}),))
