"""map_batches: Arrow in, Arrow out."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc

from unit.operators.running import failure, run

ROWS = [{"user": "ada", "n": 1}, {"user": "bob", "n": 2}]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "n", pc.multiply(batch.column("n"), 2))


def test_record_batches_pass_through_the_function():
    assert [row["n"] for row in run(lambda s: s.map_batches("b", doubled), ROWS, plain=False).records] == [2, 4]


def test_a_table_will_do_and_rows_may_go_or_come():
    ran = run(lambda s: s.map_batches("b", lambda b: pa.table(b).slice(1)), ROWS, plain=False)
    assert ran.records == [ROWS[1]]
    ran = run(lambda s: s.map_batches("b", lambda b: pa.concat_tables([pa.table(b)] * 2)), ROWS, plain=False)
    assert ran.records == ROWS * 2
    assert run(lambda s: s.map_batches("b", lambda b: pa.table(b).slice(2)), ROWS, plain=False).records == []


def test_keys_stay_with_their_rows():
    ran = run(lambda s: s.key_by("k", lambda row: row.user[0]).map_batches("b", doubled), ROWS, plain=False)
    assert ran.records == [{"key": "a", "user": "ada", "n": 2}, {"key": "b", "user": "bob", "n": 4}]


def test_the_type_of_its_result_can_be_declared():
    @dataclasses.dataclass
    class Click:
        user: str
        n: int

    ran = run(lambda s: s.map_batches("b", doubled, returns=Click).map("m", lambda c: c.n + 1), ROWS, plain=False)
    assert ran.values() == [3, 5]


def test_another_number_of_rows_under_keys_is_refused():
    text = failure(lambda s: s.key_by("k", "user").map_batches("b", lambda b: b.slice(1)), ROWS, plain=False)
    assert "step 'b': on a keyed or timed stream map_batches must return as many rows as it received (2), not 1" in text


def test_something_else_than_a_batch_is_refused():
    text = failure(lambda s: s.map_batches("b", lambda b: b.to_pylist()), ROWS, plain=False)
    assert "step 'b': the function of map_batches must return a pyarrow.RecordBatch or Table, not list" in text


def test_an_error_names_operator_and_columns():
    text = failure(lambda s: s.map_batches("b", lambda b: b.column("x")), ROWS, plain=False)
    assert "KeyError: 'Field" in text


def test_values_that_have_no_columns_say_so():
    text = failure(lambda s: s.map("m", lambda n: [n, "x"][n]).map_batches("b", lambda b: b), [0, 1])
    assert "step 'b': the values do not fit into columns of one type" in text
