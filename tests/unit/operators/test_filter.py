"""filter: keep the values for which a function returns true."""

from __future__ import annotations

from unit.operators.running import failure, run


def test_values_are_kept_for_which_the_function_returns_something_true():
    assert run(lambda s: s.filter("odd", lambda n: n % 2), [1, 2, 3], [4], [5]).values() == [1, 3, 5]


def test_all_or_nothing_may_be_kept():
    assert run(lambda s: s.filter("all", lambda n: True), [1, 2]).values() == [1, 2]
    assert run(lambda s: s.filter("none", lambda n: None), [1, 2]).records == []


def test_columns_pass_as_they_are():
    rows = [{"user": "ada", "n": 1}, {"user": "bob", "n": 2}]
    assert run(lambda s: s.filter("two", lambda row: row.n == 2), rows, plain=False).records == [rows[1]]


def test_an_error_names_operator_key_and_record():
    text = failure(lambda s: s.key_by("k", lambda n: n).filter("big", lambda n: n > "a"), [7])
    assert text.startswith("step 'big', key 7, record 7: TypeError: '>' not supported")


def test_rejected_and_dropped_records_do_not_shift_the_keys_of_the_others():
    ran = run(
        lambda s: s.key_by("k", lambda n: f"key-{n}").filter("f", lambda n: [n > 1, 1 / (n - 3)][0]),
        [0, 3, 1, 2, 3, 5],
        dead_letter=True,
    )
    assert ran.by_key() == {"key-2": [2], "key-5": [5]}
    assert [(row["key"], row["record"]) for row in ran.dead] == [("key-3", "3")] * 2
