"""map: one value in, one value out."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pickle
import re

import pytest

from tidewheel._values import columns, shape
from tidewheel.errors import GraphError
from unit.operators.running import failure, run


@dataclasses.dataclass
class Click:
    user: str
    amount: int


def test_each_value_is_replaced():
    assert run(lambda s: s.map("double", lambda n: 2 * n), [1, 2], [3]).values() == [2, 4, 6]


def test_none_is_a_value_as_any_other():
    assert run(lambda s: s.map("none", lambda n: None if n == 2 else n), [1, 2, 3]).values() == [1, None, 3]
    assert run(lambda s: s.map("same", lambda n: n), [None, 1]).values() == [None, 1]


def test_keys_stay():
    ran = run(lambda s: s.key_by("k", lambda n: n % 2).map("double", lambda n: 2 * n), [1, 2, 3])
    assert ran.by_key() == {1: [2, 6], 0: [4]}


def test_the_annotation_declares_the_type_and_so_the_columns():
    def parse(text: str) -> Click:
        return Click(text, len(text))

    ran = run(lambda s: s.map("parse", parse), ["ada", "bo"])
    assert ran.records == [{"user": "ada", "amount": 3}, {"user": "bo", "amount": 2}]


def test_an_error_names_operator_record_and_cause():
    text = failure(lambda s: s.map("invert", lambda n: 1 / n), [1, 0, 2])
    assert re.fullmatch(
        r"step 'invert', record 0: ZeroDivisionError: division by zero \(test_map.py:\d+ in <lambda>\)", text
    )


def test_a_long_record_is_cut_in_the_message():
    text = failure(lambda s: s.map("fail", lambda text: text.fail), ["x" * 1000])
    assert "(1002 characters)" in text
    assert len(text) < 800


def test_rejected_records_go_to_the_dead_letter_sink_and_the_others_on():
    ran = run(lambda s: s.map("invert", lambda n: 12 // n), [0, 1, 2, 0, 0], [3, 0], dead_letter=True)
    assert ran.values() == [12, 6, 4]
    assert [row["record"] for row in ran.dead] == ["0"] * 4
    traceback = ran.dead[0].pop("traceback")
    assert traceback.endswith("\nZeroDivisionError: integer division or modulo by zero")
    assert "in <lambda>" in traceback
    assert "tidewheel/_" not in traceback
    assert ran.dead[0] == {
        "step": "invert",
        "key": None,
        "record": "0",
        "error": "ZeroDivisionError: integer division or modulo by zero",
    }


def test_the_record_of_a_dead_letter_is_whole_and_json():
    record = {"user": "ada", "raw": b"\xff", "note": "x" * 1000}
    ran = run(lambda s: s.map("fail", lambda row: row.nothing), [record], plain=False, dead_letter=True)
    assert json.loads(ran.dead[0]["record"]) == {"user": "ada", "raw": "/w==", "note": "x" * 1000}


def test_a_keyed_record_is_rejected_with_its_key_and_others_stay():
    ran = run(
        lambda s: s.key_by("k", lambda n: f"key-{n}").map("invert", lambda n: 12 // n), [3, 0, 4], dead_letter=True
    )
    assert ran.by_key() == {"key-3": [4], "key-4": [3]}
    assert [row["key"] for row in ran.dead] == ["key-0"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_function_that_raises_stop_iteration_fails_and_ends_nothing(at):
    def leak(n):
        return next(iter(())) if n == at else n

    assert "StopIteration" in failure(lambda s: s.map("leak", leak), [0, 1, 2])
    ran = run(lambda s: s.map("leak", leak), [0, 1, 2], [5], dead_letter=True)
    assert ran.values() == [n for n in (0, 1, 2, 5) if n != at]
    assert [row["record"] for row in ran.dead] == [str(at)]


def test_big_integers_and_non_unicode_text_reach_the_next_level():
    ran = run(
        lambda s: (
            s.map("grow", lambda n: (2**80 * n, "\ud800", {n}))
            .key_by("k", lambda value: "k")
            .map("shrink", lambda value: value[0] // 2**80 + len(value[1]) + len(value[2]))
        ),
        [1, 2],
        parallelism=2,
    )
    assert ran.values() == [3, 4]


def test_a_value_other_than_a_function_is_refused_in_the_graph():
    with pytest.raises(GraphError, match="step 'wrong': it takes a function as its second argument, not int"):
        run(lambda s: s.map("wrong", 3), [])


ORDERS = [
    {"user": "ada", "cents": 12, "tags": ["new"], "at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)},
    {"user": "bo", "cents": None, "tags": None, "at": None},
    {"user": "cy", "cents": 5, "tags": [], "at": datetime.datetime(2026, 1, 3, tzinfo=datetime.UTC)},
]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda order: {**order, "dear": order["cents"] == 12, "user": order["user"].upper()}, id="fields"),
        pytest.param(lambda order: {**order, "pair": (order["user"], order["cents"])}, id="a value that is no column"),
        pytest.param(lambda order: {**order, "euros": order["cents"] / 100}, id="one is rejected"),
        pytest.param(lambda order: {**order, "first": order["tags"][0]}, id="two are rejected"),
        pytest.param(lambda order: {**order, "again": order["tags"].append("seen")}, id="a value is changed"),
        pytest.param(lambda order: {**order, "x": order["nothing"]}, id="no such field"),
        pytest.param(lambda order: {**order}, id="nothing"),
    ],
)
def test_a_function_that_adds_fields_gets_the_same_narrowed_result(function):
    def plain(order):
        return function(order)  # Proves nothing: it passes the record on.

    def values(mapped):
        ran = run(
            lambda s: s.map("m", mapped).key_by("k", lambda order: order["user"]).map("bytes", pickle.dumps),
            ORDERS,
            value=dict,
            plain=False,
            dead_letter=True,
        )
        return [pickle.loads(value) for value in ran.values()], [letter["record"] for letter in ran.dead]

    assert values(function) == values(plain)


def test_unread_fields_are_not_built(monkeypatch):
    made = []
    values = columns.values
    monkeypatch.setattr(shape, "column_values", lambda column: made.append(str(column.type)) or values(column))
    ran = run(
        lambda s: (
            s.map("m", lambda order: {**order, "dear": order["cents"] == 12})
            .key_by("k", "user")
            .map("dear", lambda order: order["dear"])
        ),
        ORDERS,
        value=dict,
        plain=False,
    )
    assert (ran.values(), made) == ([True, False, False], ["int64", "bool"])
