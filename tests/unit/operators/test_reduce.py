"""reduce: fold all values of a key with a function of two values."""

from __future__ import annotations

import functools

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.operators.running import failure, run


def reduced(function, **options):
    return lambda s: s.key_by("k", "user", value="n").reduce("op", function, **options)


def rows(*pairs):
    return [{"user": user, "n": n} for user, n in pairs]


@settings(max_examples=15)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers()), min_size=1, max_size=6),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_reduce_equals_a_fold_for_any_batches_splits_and_tasks(batches, parallelism, partitions):
    def number(pair):
        return pair[0], None if pair[1] is None else str(pair[1])

    ran = run(
        reduced(lambda left, right: str(int(left) + int(right))),
        *(rows(*map(number, batch)) for batch in batches),
        plain=False,
        parallelism=parallelism,
        partitions=partitions,
    )
    values: dict[str, list[int]] = {}
    for user, n in (pair for batch in batches for pair in batch):
        if n is not None:
            values.setdefault(user, []).append(n)
    assert ran.states.get("op", {}) == {user: str(sum(found)) for user, found in values.items()}


def test_the_result_so_far_comes_once_per_batch_and_touched_key():
    ran = run(reduced(max), rows(("a", 1), ("a", 3), ("b", 2)), rows(("a", 2)), plain=False)
    assert ran.records == [{"user": "a", "n": 3}, {"user": "b", "n": 2}, {"user": "a", "n": 3}]


def test_none_is_nothing_to_fold():
    ran = run(
        reduced(lambda left, right: left + right), rows(("a", None), ("a", 1), ("a", None), ("a", 2)), plain=False
    )
    assert ran.states == {"op": {"a": 3}}


def test_order_is_kept_within_a_key():
    ran = run(reduced(lambda left, right: left + right), rows(("a", "x"), ("a", "y")), rows(("a", "z")), plain=False)
    assert ran.states == {"op": {"a": "xyz"}}


def test_an_error_before_the_shuffle_names_operator_key_and_record():
    text = failure(reduced(lambda left, right: int(left) + int(right)), rows(("a", "1"), ("a", "y")), plain=False)
    assert text.startswith("step 'op', key 'a', record 'y': ValueError: invalid literal")


def test_an_error_behind_the_shuffle_names_operator_key_and_record():
    text = failure(reduced(lambda left, right: left + right), rows(("a", 1)), rows(("a", "x")), plain=False)
    assert text.startswith("step 'op', key 'a', record 'x': TypeError")


def test_a_rejected_record_does_not_change_earlier_results():
    def merge(left, right):
        left.extend(right)  # In place, before it fails.
        if 13 in right:
            raise ValueError("unlucky")
        return left

    ran = run(
        lambda s: s.map("l", lambda n: [n]).key_by("k", lambda v: "all").reduce("op", merge),
        [1, 2, 13, 3],
        [13],
        [4],
        dead_letter=True,
    )
    assert ran.states == {"op": {"all": [1, 2, 3, 4]}}
    assert [row["record"] for row in ran.dead] == ["[13]", "[13]"]


def test_the_values_keep_their_declared_type():
    ran = run(lambda s: s.key_by("k", lambda n: n % 2).reduce("op", lambda a, b: a + b).map("m", str), [1, 2, 3])
    assert sorted(ran.values()) == ["2", "4"]


def test_any_associative_function_will_do():
    ran = run(reduced(functools.partial(max)), rows(("a", 5), ("a", 9)), plain=False, parallelism=2)
    assert ran.states == {"op": {"a": 9}}
