"""C3: compare-and-exchange, by value and by version: whether it applied, the version, and the value it saw."""

from __future__ import annotations

import pytest

from tidewheel import cells


@pytest.fixture
def writer(place):
    return place.open().writer("x", int)


@pytest.fixture
def other(place):
    return place.open().writer("x", int)


def test_c3_match(writer):
    writer.write(1)
    done = writer.compare_exchange(1, 2)
    assert done == (True, writer.version(), 1)
    assert writer.read() == 2


def test_c3_a_mismatch_changes_nothing_and_returns_the_current_value(writer, other):
    version = other.write(1)
    assert writer.compare_exchange(5, 2) == (False, version, 1)
    assert writer.snapshot() == (version, 1)


def test_c3_a_mismatch_reports_the_current_value_not_the_last_seen_one(writer, other):
    writer.write(1)
    version = other.write(2)
    assert writer.compare_exchange(1, 3) == (False, version, 2)


def test_c3_a_match_depends_on_the_current_value_too(writer, other):
    writer.write(1)
    other.write(2)
    assert writer.compare_exchange(2, 3).applied


def test_c3_from_empty(writer):
    assert writer.compare_exchange(None, 1).applied
    assert not writer.compare_exchange(None, 2).applied
    writer.clear()
    assert writer.compare_exchange(None, 3) == (True, writer.version(), None)
    assert writer.read() == 3


def test_c3_to_empty(writer):
    writer.write(1)
    assert writer.compare_exchange(1, None).applied
    assert writer.is_empty()


def test_c3_empty_to_empty(writer):
    done = writer.compare_exchange(None, None)
    assert done.applied
    assert done.version == writer.version() > 0
    assert writer.is_empty()


def test_c3_empty_is_not_zero(writer):
    assert not writer.compare_exchange(0, 1).applied
    writer.write(0)
    assert not writer.compare_exchange(None, 1).applied
    assert writer.compare_exchange(0, 1).applied


def test_c3_chained(writer, other):
    writer.write(0)
    for number in range(6):
        done = (writer, other)[number % 2].compare_exchange(number, number + 1)
        assert (done.applied, done.seen) == (True, number)
    assert writer.refresh().value == 6


def test_c3_mixed_with_writes_and_clears(writer, other):
    writer.write(1)
    assert other.compare_exchange(1, 2).applied
    writer.clear()
    assert other.compare_exchange(2, 3) == (False, writer.version(), None)
    assert other.compare_exchange(None, 4).applied
    writer.write(5)
    assert other.compare_exchange(5, 6).applied
    assert writer.refresh().value == 6


def test_c3_by_version(writer, other):
    first = writer.compare_exchange_at(0, 1)
    assert first == (True, writer.version(), None)
    second = other.write(2)
    assert writer.compare_exchange_at(first.version, 3) == (False, second, 2)
    assert writer.compare_exchange_at(second, 3).applied
    assert not writer.compare_exchange_at(0, 9).applied
    assert not writer.compare_exchange_at(second + 1_000_000, 9).applied


def test_c3_a_rewritten_value_matches_by_value_and_fails_by_version(writer, other):
    seen = writer.write(1)
    other.write(2)
    other.write(1)
    assert not writer.compare_exchange_at(seen, 3).applied
    assert writer.compare_exchange(1, 3).applied


def test_c3_equal_values_match_even_if_made_from_other_objects(place):
    numbers = place.open().writer("float", float)
    numbers.write(1)
    assert numbers.compare_exchange(1.0, 2).applied
    maps = place.open().writer("map", dict[str, int])
    maps.write({"a": 1, "b": 2})
    assert maps.compare_exchange({"b": 2, "a": 1}, {"a": 0}).applied


def test_c3_encoding_failures_come_before_anything_is_sent(place, writer):
    version = writer.write(1)
    writer._connection._backend.swap = None
    for attempt in (
        lambda: writer.write("text"),
        lambda: writer.compare_exchange(1, "text"),
        lambda: writer.compare_exchange("text", 1),
        lambda: writer.compare_exchange_at(version, object()),
    ):
        with pytest.raises(cells.Encoding, match="default/x"):
            attempt()
    assert writer.snapshot() == (version, 1)
