"""source: where records enter the program."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from tidewheel import Job, Row
from tidewheel.errors import GraphError
from unit.operators.running import failure, run

ROWS = [{"user": "ada", "n": 1, "more": "x"}, {"user": "bob", "n": None, "more": "y"}]


@dataclasses.dataclass
class Click:
    user: str
    n: int | None


class Strict(msgspec.Struct):
    n: int


def test_rows_are_the_default():
    seen = []
    run(lambda s: s.inspect("look", seen.append), ROWS, plain=False)
    assert seen[1] == ("bob", None, "y")
    assert isinstance(seen[1], Row)


@pytest.mark.parametrize(
    ("declared", "first"),
    [(dict, {"user": "ada", "n": 1, "more": "x"}), (Click, Click("ada", 1)), (Row, ("ada", 1, "x"))],
)
def test_the_type_of_records_can_be_declared(declared, first):
    seen = []
    run(lambda s: s.inspect("look", seen.append), ROWS, value=declared)
    assert seen[0] == first


def test_a_record_without_a_value_that_it_must_have_is_rejected():
    text = failure(lambda s: s, ROWS, value=Strict)
    assert text.startswith(
        "step 'in', record {'user': 'bob', 'n': None, 'more': 'y'}: 'n' is null or missing; declare it as opt"
    )
    ran = run(lambda s: s.map("m", lambda strict: strict.n), ROWS, value=Strict, dead_letter=True)
    assert ran.values() == [1]
    assert len(ran.dead) == 1


def test_a_lacking_column_or_another_type_names_the_source():
    assert "the records lack the column user, n of Click" in failure(lambda s: s, [{"x": 1}], value=Click)
    text = failure(lambda s: s, [{"n": "1"}], value=Strict)
    assert "the column 'n' is of type string, and Strict declares int64" in text


def test_declarations_of_other_types_than_records_are_refused():
    job = Job("sources", state="memory:unit-operators")
    with pytest.raises(GraphError, match=r"source 'in': type=.* is not Row, dict, a dataclass or a msgspec.Struct"):
        job.source("in", lambda spark: None, type=list[int])
    with pytest.raises(GraphError, match="source 'in': 3 is neither a source nor a function"):
        job.source("in", 3)


def test_several_sources_are_kept_apart():
    from tidewheel.sinks import collect
    from tidewheel.testing import MemoryRun

    job, left, right = Job("two-sources", state="memory:unit-operators"), collect(), collect()
    job.source("left", lambda spark: None).map("l", lambda row: row.a).sink("left-out", left)
    job.source("right", lambda spark: None, type=Strict).map("r", lambda strict: strict.n).sink("right-out", right)
    with MemoryRun(job, partitions=2) as memory:
        memory.batch({"left": [{"a": 1}, {"a": 2}], "right": [{"n": 10}]})
        memory.batch({"right": [{"n": 20}]})
        memory.batch({})
        with pytest.raises(ValueError, match="no source 'middle'; it has 'left' and 'right'"):
            memory.batch({"middle": []})
    assert [record["value"] for record in left.records] == [1, 2]
    assert [record["value"] for record in right.records] == [10, 20]
