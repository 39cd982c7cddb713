"""filter, with_columns and select by expressions of Arrow."""

from __future__ import annotations

import dataclasses
import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidewheel import Job, Row
from tidewheel._engine.plan import columns_read, known_columns
from tidewheel.errors import GraphError
from tidewheel.sinks import collect
from tidewheel.sources import dataframe, files
from unit.operators.running import failure, run

ORDERS = [
    {"user": "ada", "cents": 250, "place": "Rome"},
    {"user": "bob", "cents": 90, "place": "Oslo"},
    {"user": "eve", "cents": None, "place": "Rome"},
]


@dataclasses.dataclass
class Order:
    user: str
    cents: int | None
    place: str


def test_filter_keeps_the_records_for_which_the_expression_is_true():
    assert run(lambda s: s.filter("big", pc.field("cents") > 100), ORDERS, value=Row).records == ORDERS[:1]
    assert run(lambda s: s.filter("rome", pc.field("place") == "Rome"), ORDERS, value=Order).records == ORDERS[::2]
    assert run(lambda s: s.filter("all", pc.field("place").is_valid()), ORDERS, value=dict).records == ORDERS


def test_filter_takes_plain_values_by_the_name_of_their_column():
    assert run(lambda s: s.filter("big", pc.field("value") > 2), [1, 2, 3], [4]).values() == [3, 4]


def test_filter_keeps_values_as_they_were():
    days = [datetime.date(2026, 1, day) for day in (1, 2)]
    found = run(lambda s: s.map("same", lambda n: {"n": n, "day": days[n]}).filter("n", pc.field("n") == 1), [0, 1])
    assert found.records == [{"n": 1, "day": days[1]}]


def test_with_columns_adds_columns_and_replaces_those_of_the_same_name():
    ran = run(
        lambda s: s.with_columns("c", euros=pc.field("cents").cast("float64") / 100, place=pc.scalar("-")),
        ORDERS[:2],
        value=Row,
    )
    assert ran.records == [
        {"user": "ada", "cents": 250, "place": "-", "euros": 2.5},
        {"user": "bob", "cents": 90, "place": "-", "euros": 0.9},
    ]


def test_select_returns_the_columns_in_the_given_order():
    ran = run(lambda s: s.select("c", "place", "user", twice=pc.field("cents") * 2), ORDERS[:1], value=Order)
    assert [list(record.items()) for record in ran.records] == [[("place", "Rome"), ("user", "ada"), ("twice", 500)]]


def test_records_continue_as_rows():
    for value in (Row, Order, dict):
        ran = run(lambda s: s.select("c", "user").map("m", lambda row: row.user + "!"), ORDERS, value=value)
        assert ran.values() == ["ada!", "bob!", "eve!"]


def test_keys_and_times_stay():
    def build(s):
        on_time = s.assign_timestamps("t", "cents", unit="ns").limit_out_of_orderness("l", "0 s")
        keyed = on_time.key_by("k", "place").with_columns("w", n=pc.field("cents") + 1).filter("f", pc.field("n") < 200)
        return keyed.select("s", "n").stateful_map(
            "sum", lambda key, row, total: (total + row.n, total + row.n), default=0
        )

    assert run(
        build, [{"cents": 5, "place": "a"}, {"cents": 6, "place": "a"}, {"cents": 300, "place": "a"}], value=Row
    ).by_key("place") == {"a": [6, 13]}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda s: s.filter("f", pc.field("centz") > 1),
            r"'f' \(filter\): \(centz > 1\) does not fit: .*centz.*cents \(int64\)",
        ),
        (
            lambda s: s.filter("f", pc.field("cents") + 1),
            r"is of type int64; filter needs a boolean expression",
        ),
        (lambda s: s.filter("f", pc.field("user") > 1), r"does not fit: Function 'greater' has no kernel"),
        (lambda s: s.with_columns("w", n=pc.field("nope")), r"'w' \(with_columns\): nope does not fit"),
        (lambda s: s.select("s", "nope"), r"'s' \(select\): nope does not fit"),
        (
            lambda s: s.select("s", "user").filter("f", pc.field("cents") > 1),
            r"'f' \(filter\): .* the columns are user \(string\)",
        ),
        (lambda s: s.with_columns("w", n=3), "n=3 is not an expression"),
        (lambda s: s.with_columns("w"), "with_columns was given no columns"),
        (lambda s: s.select("s", pc.field("user")), "select takes names of columns"),
        (lambda s: s.select("s", "user", user=pc.field("user")), "the column user twice"),
    ],
)
def test_a_value_that_does_not_fit_a_declared_type_is_refused_in_the_graph(build, reason):
    job = Job("refused")
    with pytest.raises(GraphError, match=reason):
        build(job.source("in", dataframe(lambda spark: None), type=Order))


def test_expressions_that_do_not_fit_the_sources_columns_are_refused():
    job = Job("refused")
    job.source("in", files("orders/")).inspect("i", print).filter("f", pc.field("n") > 1).sink("out", collect())
    with pytest.raises(
        GraphError, match=r"step 'f' \(filter\): \(n > 1\) does not fit.* the columns are user \(string\)"
    ):
        known_columns(job.plan(), {0: pa.schema([("user", pa.string())])})


def test_expressions_that_do_not_fit_the_data_name_the_step():
    text = failure(lambda s: s.map("m", lambda n: {"n": n}).filter("f", pc.field("x") > 1), [1])
    assert text.startswith(
        "step 'f', record {'n': 1}: (x > 1) does not fit: No match for FieldRef.Name(x); the columns are n (int64)"
    )


def test_a_record_that_fails_an_expression_is_named_or_a_dead_letter():
    records = [{"n": 4, "by": by} for by in (1, 0, 2, 0)]

    def build(s):
        return s.with_columns("share", share=pc.field("n") / pc.field("by"))

    assert failure(build, records, value=Row) == "step 'share', record Row(n=4, by=0): divide by zero"
    ran = run(build, records, value=Row, dead_letter=True)
    assert [record["share"] for record in ran.records] == [4, 2]
    assert [row["record"] for row in ran.dead] == ['{"n": 4, "by": 0}'] * 2


def test_only_columns_that_are_read_are_requested_of_the_source():
    job = Job("read")
    orders = job.source("in", files("orders/")).filter("f", pc.field("cents") > 1)
    orders.with_columns("w", euros=pc.field("cents") / 100.0).select("s", "user", "euros").sink("out", collect())
    plan = job.plan()
    schema = pa.schema([("user", pa.string()), ("cents", pa.int64()), ("place", pa.string())])
    assert columns_read(plan, plan.nodes[0], known_columns(plan, {0: schema})) == ["cents", "user"]
    assert columns_read(plan, plan.nodes[0]) is None


def test_a_cell_in_an_expression_is_refused_with_what_to_write():
    limit = Job("live").cell("limit", int, default=100)
    for build in (
        lambda: pc.field("cents") > limit,
        lambda: pc.field("cents") > limit.value,
        lambda: limit < 3,
        lambda: 3 * limit,
        lambda: limit == 3,
        lambda: limit != 3,
        lambda: limit % 2,
        lambda: 3 in limit,
        lambda: limit["a"],
        lambda: not limit,
    ):
        with pytest.raises((pa.ArrowInvalid, RuntimeError, TypeError), match=r"'limit'.*use a function"):
            build()
    assert limit == limit
    assert len({limit, Job("other").cell("limit", int)}) == 2


def test_a_bool_in_place_of_a_predicate_is_refused_with_an_example():
    stream = Job("frozen").source("in", dataframe(lambda spark: None), type=Order)
    with pytest.raises(GraphError, match=r"step 'big': filter was given True.*use a function"):
        stream.filter("big", 3 > 2)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"big=True is not an expression.*is for a function: map"):
        stream.with_columns("big", big=True)  # type: ignore[arg-type]
