"""sink: where records leave the program."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from tidewheel.errors import GraphError
from unit.operators.running import failure, run


@dataclass
class Whole:
    n: int


@dataclass
class Tour:
    places: list[Whole]


def test_values_without_fields_are_the_column_value():
    assert run(lambda s: s, [1, 2]).records == [{"value": 1}, {"value": 2}]


def test_the_key_comes_first_unless_the_values_have_it_themselves():
    rows = [{"user": "ada", "n": 1}]
    ran = run(lambda s: s.key_by("k", lambda row: row.n), rows, plain=False)
    assert [list(record) for record in ran.records] == [["key", "user", "n"]]
    assert run(lambda s: s.key_by("k", "user"), rows, plain=False).records == rows


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_composite_key_is_a_struct(parallelism):
    ran = run(lambda s: s.key_by("k", lambda n: ("a", n)), [1, 2], parallelism=parallelism)
    assert sorted(ran.records, key=lambda record: record["value"]) == [
        {"key": {"_1": "a", "_2": 1}, "value": 1},
        {"key": {"_1": "a", "_2": 2}, "value": 2},
    ]


def test_composite_keys_of_several_types_say_so():
    text = failure(lambda s: s.key_by("k", lambda n: (n if n == 1 else str(n),)), [1, 2])
    assert "step 'out': the keys do not fit into a column of one type" in text


@pytest.mark.parametrize("values", [[1, "a"], [{"x": 1}, 2], [object()], [2**80, 1], ["\ud800"], [{"x": 1}, None]])
def test_values_that_do_not_fit_into_columns_say_what_to_do(values):
    text = failure(lambda s: s.map("m", lambda at: values[at]), list(range(len(values))))
    assert "the values do not fit into columns of one type" in text
    assert "returns=" in text


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 2.5),
        (int, Decimal("2.5")),
        (int, float("nan")),
        (Whole, Whole(2.5)),
        (Tour, Tour([Whole(1), Whole(2.5)])),
    ],
    ids=str,
)
def test_a_fraction_where_an_int_is_declared_is_refused_and_not_cut_off(declared, value):
    text = failure(lambda s: s.map("m", lambda _: value, returns=declared), [1])
    assert "the values do not match their declared type" in text
    assert (
        "is not a whole number, but int is declared. Convert them in the previous step, or declare their real type"
        in text
    )


@pytest.mark.parametrize(
    ("declared", "value", "written"),
    [(int, 2.0, 2), (int | None, None, None), (list[int], [2.0], [2]), (float, 2.5, 2.5), (int, 2**60, 2**60)],
    ids=str,
)
def test_whole_floats_are_written_as_the_declared_int(declared, value, written):
    assert run(lambda s: s.map("m", lambda _: value, returns=declared), [1]).values() == [written]


def test_a_stream_continues_after_its_sink():
    ran = run(lambda s: s.map("m", lambda n: n + 1), [1])
    assert ran.values() == [2]


def test_a_value_other_than_a_sink_is_refused():
    with pytest.raises(GraphError, match=r"sink 'x': 'folder/' is not a sink; see tidewheel.sinks"):
        run(lambda s: s.sink("x", "folder/"))
