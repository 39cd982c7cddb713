"""C8: `Offline` contains the value and whether the write may have happened; `Encoding`; `Closed`."""

from __future__ import annotations

import pytest

from support.waiting import IN_TIME
from tidewheel import cells


def test_c5_c8_waiting_for_offline_and_online_and_writing_in_between(mortal_place):
    """C5 and C8 in one: taking a backend away and back takes seconds on some."""
    writer = mortal_place.open(timeout="5 s").writer("x", int)
    writer.write(1)
    with pytest.raises(TimeoutError, match=r"cell default/x at .* was not offline within 0 s"):
        writer.when.offline(timeout="0 s")

    mortal_place.kill()
    writer.when.offline(timeout=IN_TIME)
    assert not writer.is_online
    with pytest.raises(TimeoutError, match="was not online within 0 s"):
        writer.when.online(timeout="0 s")
    for attempt, value in (
        (lambda: writer.write(2, timeout="0.3 s"), 2),
        (lambda: writer.clear(timeout="0.3 s"), None),
        (lambda: writer.compare_exchange(1, 3, timeout="0.3 s"), 3),
        (lambda: writer.compare_exchange_at(0, 4, timeout="0.3 s"), 4),
    ):
        with pytest.raises(cells.Offline) as caught:
            attempt()
        assert caught.value.value == value, "it is given back"
        assert caught.value.maybe is False, "no server was there to do it"

    mortal_place.restart()
    writer.when.online(timeout=IN_TIME)
    assert writer.is_online
    assert writer.refresh(timeout=IN_TIME).value == 1


def test_c8_encoding_gives_the_value_back(place):
    writer = place.open().writer("x", int)
    with pytest.raises(
        cells.Encoding, match=r"'five' cannot be written to cell default/x .* declared as int"
    ) as caught:
        writer.write("five")
    assert caught.value.value == "five"
    with pytest.raises(cells.Encoding, match=r"None .* use clear\(\)"):
        writer.write(None)
    assert writer.version() == 0


def test_c8_closed(place):
    connection = place.open()
    one, two = connection.writer("x", int), connection.reader("x", int)
    one.close()
    for attempt in (
        one.read,
        one.is_empty,
        one.is_some,
        one.version,
        one.snapshot,
        one.refresh,
        one.clear,
        lambda: one.write(1),
    ):
        with pytest.raises(cells.Closed, match=r"cell default/x at .* was closed"):
            attempt()
    assert two.read() is None, "only the one was closed"
    connection.close()
    connection.close()
    with pytest.raises(cells.Closed):
        two.read()
    with pytest.raises(cells.Closed, match=r"the connection to .* was closed"):
        connection.reader("y", int)


def test_c8_a_value_over_the_limit_is_refused_and_given_back(place):
    writer = place.open().writer("x", bytes)
    writer._connection._backend.limit = 10_000
    with pytest.raises(
        cells.TooLarge, match="bytes and the backend takes 10000; keep large things in a file"
    ) as caught:
        writer.write(bytes(10_000))
    assert caught.value.value == bytes(10_000)
    assert writer.write(bytes(9_000)) == writer.version()


def test_c8_a_program_can_continue_after_a_timeout(place):
    reader = place.open().reader("x", int)
    with pytest.raises(TimeoutError):
        reader.when.updated(timeout="0 s")
    version = place.open().writer("x", int).write(1)
    assert reader.when.reaches(version, timeout=IN_TIME).value == 1
