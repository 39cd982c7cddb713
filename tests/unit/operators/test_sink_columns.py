"""The columns that a sink writes come from all records of a batch, with unchanged values."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from tidewheel import Job, sinks
from tidewheel.errors import StepError
from tidewheel.testing import MemoryRun

_names = itertools.count()


@dataclass
class Small:
    id: int


@dataclass
class Large:
    id: int
    refund: int


class SmallStruct(msgspec.Struct):
    id: int


class LargeStruct(msgspec.Struct):
    id: int
    refund: int


class SmallTuple(NamedTuple):
    id: int


class LargeTuple(NamedTuple):
    id: int
    refund: int


@dataclass
class Dated:
    at: dt.date


@dataclass
class Timed:
    at: dt.datetime


PLUS_2 = dt.timezone(dt.timedelta(hours=2))
DATE, NAIVE, AWARE = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12, 30), dt.datetime(2026, 1, 1, 12, tzinfo=PLUS_2)


def written(values: list[Any], folder: Any = None, *, keyed: bool = False, returns: Any = None) -> list[dict[str, Any]]:
    """Return what a sink gets of these values in one batch."""
    out: list[dict[str, Any]] = []
    job = Job("columns", state=f"memory:sink-columns-{next(_names)}")
    stream: Any = job.source("in", lambda spark: None, type=dict)
    if keyed:
        stream = stream.key_by("by", "n")
    stream = stream.map("value", lambda record: values[record["n"]], returns=returns)
    stream.sink("out", sinks.collect(out))
    if folder is not None:
        stream.sink("files", sinks.files(folder, format="json"))
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": n} for n in range(len(values))]})
    return out


PAIRS = [
    (Small(1), Large(2, 500)),
    (SmallStruct(1), LargeStruct(2, 500)),
    (SmallTuple(1), LargeTuple(2, 500)),
    ({"id": 1}, {"id": 2, "refund": 500}),
    (Small(1), {"id": 2, "refund": 500}),
    (Small(1), LargeStruct(2, 500)),
]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_field_that_only_some_records_have_is_null_in_the_others(pair, swapped, tmp_path):
    expected = [{"id": 1, "refund": None}, {"id": 2, "refund": 500}]
    values = [*reversed(pair)] if swapped else [*pair]
    found = written(values, tmp_path / "out")
    assert sorted(found, key=lambda row: row["id"]) == expected
    lines = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(lines, key=lambda row: row["id"]) == expected


def test_records_of_a_keyed_stream_keep_all_their_fields():
    found = written([Small(1), Large(2, 500)], keyed=True)
    assert sorted(found, key=lambda row: row["id"]) == [
        {"n": 0, "id": 1, "refund": None},
        {"n": 1, "id": 2, "refund": 500},
    ]


@pytest.mark.parametrize("values", [(None, {"z": 1}), ({"z": 1}, None)])
def test_records_and_values_without_fields_are_refused_in_any_order(values):
    with pytest.raises(StepError, match=r"'out': .* some values are records, and others, such as None, are not"):
        written([*values])


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((DATE, NAIVE), [dt.datetime(2026, 1, 1), NAIVE]),
        ((NAIVE, AWARE), [NAIVE.replace(tzinfo=dt.UTC), AWARE]),
        ((DATE, AWARE), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), AWARE]),
    ],
)
def test_dates_and_times_in_one_column_are_times_of_one_kind(values, expected, swapped):
    order = -1 if swapped else 1
    assert [row["v"] for row in written([{"v": value} for value in values[::order]])] == expected[::order]


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"in": value}])
@pytest.mark.parametrize("values", [(DATE, NAIVE), (NAIVE, DATE), (NAIVE, AWARE), (AWARE, NAIVE)])
def test_dates_and_times_of_several_kinds_inside_a_column_are_refused(values, wrap):
    with pytest.raises(StepError, match=r"'out'.*(would lose the time of day|has (dates and )?times|datetime.date)"):
        written([{"v": wrap(value)} for value in values])


def test_times_of_one_kind_stay_as_they_are():
    utc = AWARE.astimezone(dt.UTC)
    assert [row["v"] for row in written([{"v": NAIVE}, {"v": None}])] == [NAIVE, None]
    assert [row["v"] for row in written([{"v": AWARE}, {"v": utc}])] == [AWARE, AWARE]
    assert [row["v"] for row in written([{"v": DATE}, {"v": None}])] == [DATE, None]


def test_a_time_of_day_where_a_date_is_declared_is_refused():
    with pytest.raises(StepError, match=r"column 'at' would lose the time of day.*date is declared"):
        written([Dated(NAIVE)], returns=Dated)
    assert [row["at"] for row in written([Timed(AWARE)], returns=Timed)] == [AWARE]


def test_records_without_any_field_are_refused_and_not_dropped():
    with pytest.raises(StepError, match="records without fields"):
        written([{}, {}])
    assert written([{}, {}], keyed=True) == [{"n": 0}, {"n": 1}]
    assert written([{}, {"z": 1}]) == [{"z": None}, {"z": 1}]
