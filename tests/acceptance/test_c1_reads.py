"""C1: reading is local and immediate, and returns the last committed value seen here."""

from __future__ import annotations

from support.waiting import IN_TIME


def test_c1_a_cell_never_written_is_empty(place):
    reader = place.open().reader("x", float)
    assert reader.read() is None
    assert reader.get() is None
    assert reader.is_empty()
    assert reader.is_none()
    assert not reader.is_some()
    assert reader.version() == 0


def test_c1_a_reader_elsewhere_sees_the_written_value(place):
    writer, reader = place.open().writer("x", str), place.open().reader("x", str)
    reader.when.reaches(writer.write("hello"), timeout=IN_TIME)
    assert reader.read() == reader.get() == "hello"
    assert reader.is_some()
    assert not reader.is_empty()
    assert not reader.is_none()


def test_c1_reads_do_not_ask_the_backend(place):
    reader = place.open().reader("x", int)
    reader._connection._backend.load = None
    assert reader.read() is None
    assert reader.is_empty()
    assert reader.snapshot() == (0, None)


def test_c1_refresh_asks_the_backend_and_sees_every_write_that_returned(place):
    writer, reader = place.open().writer("x", int), place.open().reader("x", int)
    for number in range(10):
        version = writer.write(number)
        assert reader.refresh() == (version, number)
