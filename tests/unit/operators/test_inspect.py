"""inspect: look at values as they pass."""

from __future__ import annotations

from unit.operators.running import failure, run


def test_values_are_seen_once_each_and_pass_unchanged():
    seen: list[int] = []
    assert run(lambda s: s.inspect("look", seen.append), [1, 2], [3]).values() == [1, 2, 3]
    assert seen == [1, 2, 3]


def test_an_error_is_one_of_the_program():
    assert failure(lambda s: s.inspect("look", lambda n: n.x), [1]).startswith("step 'look', record 1: Attribute")


def test_a_rejected_record_does_not_pass():
    ran = run(lambda s: s.key_by("k", lambda n: n).inspect("look", lambda n: 1 // n), [1, 0, 2], dead_letter=True)
    assert ran.by_key() == {1: [1], 2: [2]}
