"""flat_map and filter_map: any number of values out for each value in, or at most one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tidewheel._operators.stateless.flat_map import FilterMap, FlatMap
from tidewheel._values import shape_of
from unit.operators.running import failure, run


@dataclasses.dataclass
class Word:
    text: str


def words(line: str) -> Iterator[Word]:
    for word in line.split():
        yield Word(word)


def perhaps(line: str) -> Word | None:
    return Word(line) if line else None


def test_items_come_out_in_order_none_one_or_many():
    assert run(lambda s: s.flat_map("upto", range), [2, 0, 1, 3]).values() == [0, 1, 0, 0, 1, 2]


def test_each_item_has_the_key_of_its_origin():
    ran = run(lambda s: s.key_by("k", lambda n: f"key-{n}").flat_map("upto", range), [2, 0, 3])
    assert ran.by_key() == {"key-2": [0, 1], "key-3": [0, 1, 2]}


def test_the_annotation_gives_the_type_of_an_item():
    assert FlatMap(words).shapes(()) == (shape_of(Word),)
    assert run(lambda s: s.flat_map("words", words), ["to be", ""]).records == [{"text": "to"}, {"text": "be"}]


def test_text_and_values_that_are_no_iterable_are_refused():
    assert "must return an iterable of values, not int" in failure(lambda s: s.flat_map("f", lambda n: n), [1])
    assert "must return an iterable of values, not str" in failure(lambda s: s.flat_map("f", lambda n: "ab"), [1])
    assert "step 'f', record 1: the function must return" in failure(lambda s: s.flat_map("f", lambda n: None), [1])


def test_a_generator_that_fails_half_way_gives_nothing():
    def half(n):
        yield n
        yield 1 // (n - 2)

    text = failure(lambda s: s.flat_map("half", half), [1, 2, 3])
    assert text.startswith("step 'half', record 2: ZeroDivisionError")
    ran = run(lambda s: s.key_by("k", lambda n: n).flat_map("half", half), [1, 2, 3], dead_letter=True)
    assert ran.by_key() == {1: [1, -1], 3: [3, 1]}
    assert [row["key"] for row in ran.dead] == ["2"]


def test_filter_map_drops_none_and_keeps_false_values():
    ran = run(lambda s: s.key_by("k", lambda n: n).filter_map("f", lambda n: None if n == 2 else n - 1), [1, 2, 3])
    assert ran.by_key() == {1: [0], 3: [2]}


def test_the_annotation_of_a_filter_map_is_that_of_the_kept_values():
    assert FilterMap(perhaps).shapes(()) == (shape_of(Word),)
    assert FilterMap(perhaps, returns=int).shapes(()) == (shape_of(int),)
