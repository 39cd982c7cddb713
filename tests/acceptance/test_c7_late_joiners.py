"""C7: a late joiner sees the latest value at once, then follows; it needs no history."""

from __future__ import annotations

from support.waiting import IN_TIME


def test_c7_a_late_reader_has_the_latest_value_when_it_opens(place):
    writer = place.open().writer("x", int)
    for number in range(5):
        version = writer.write(number)
    assert place.open().reader("x", int).snapshot() == (version, 4)


def test_c7_then_it_follows(place):
    writer = place.open().writer("x", int)
    writer.write(1)
    late = place.open().reader("x", int)
    version = writer.write(2)
    assert late.when.reaches(version, timeout=IN_TIME) == (version, 2)


def test_c7_many_late_readers_catch_up(place):
    writer = place.open().writer("x", int)
    version = writer.write(7)
    connection = place.open()
    late = [connection.reader("x", int) for _ in range(10)]
    assert [reader.snapshot() for reader in late] == [(version, 7)] * 10
    version = writer.write(8)
    assert all(reader.when.reaches(version, timeout=IN_TIME).value == 8 for reader in late)


def test_c7_a_late_writer_continues_from_the_current_version(place):
    version = place.open().writer("x", int).write(1)
    late = place.open().writer("x", int)
    assert late.compare_exchange_at(version, 2).applied


def test_c7_a_cell_opened_before_it_was_ever_written_is_followed(place):
    readers = [place.open().reader(name, int) for name in ("x", "deep/er")]
    connection = place.open()
    for reader, name in zip(readers, ("x", "deep/er"), strict=True):
        version = connection.writer(name, int).write(1)
        assert reader.when.reaches(version, timeout=IN_TIME) == (version, 1)


def test_c7_long_histories_do_not_pile_up(place):
    """Some 100 versions later, opening is what it was, and a chain has kept only some records."""
    writer = place.open().writer("x", int)
    for number in range(100):
        version = writer.write(number)
    connection = place.open()
    assert connection.reader("x", int).snapshot() == (version, 99)
    store = getattr(connection._backend, "_store", None)
    if store is not None:
        assert len(store.list()) <= 70
