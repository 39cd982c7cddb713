"""C5: waiting for online, offline, a version, any change; with timeouts; ended by closing."""

from __future__ import annotations

import itertools
import threading

import pytest

from support.waiting import IN_TIME, SOON, eventually
from tidewheel import cells


@pytest.fixture
def pair(place):
    return place.open().writer("x", int), place.open().reader("x", int)


def in_background(call):
    """Start a wait in a thread; return what gives its result or raises its error."""
    result = {}

    def run():
        try:
            result["value"] = call()
        except Exception as error:
            result["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def outcome():
        """Give the result once the thread has ended."""
        thread.join(SOON)
        assert not thread.is_alive()
        if "error" in result:
            raise result["error"]
        return result["value"]

    outcome.ended = lambda: not thread.is_alive()
    return outcome


def test_c5_online_at_once_when_it_is(pair):
    _, reader = pair
    reader.when.online(timeout="0 s")
    assert reader.is_online


def test_c5_reaches_at_once_if_there(pair):
    writer, _ = pair
    first, second = writer.write(1), writer.write(2)
    assert writer.when.reaches(first, timeout="0 s") == (second, 2), "a later version will do"
    assert writer.when.reaches(second, timeout="0 s") == (second, 2)


def test_c5_reaches_waits(pair):
    writer, reader = pair
    version = writer.write(1)
    waiting = in_background(lambda: reader.when.reaches(version + 1, timeout=IN_TIME))
    second = writer.write(2)
    assert waiting() == (second, 2)


def test_c5_updated_waits_for_the_next_change(pair):
    writer, reader = pair
    reader.when.reaches(writer.write(1), timeout=IN_TIME)
    waiting = in_background(lambda: reader.when.updated(timeout=IN_TIME))
    numbers = itertools.count(2)
    eventually(lambda: (writer.write(next(numbers)), waiting.ended())[1])
    assert waiting().value >= 2


def test_c5_updated_since_a_version_misses_nothing(pair):
    writer, reader = pair
    first = writer.write(1)
    second = writer.write(2)
    assert reader.when.updated(since=first, timeout=IN_TIME) == (second, 2)
    with pytest.raises(TimeoutError, match="within 0 s"):
        reader.when.updated(since=second, timeout="0 s")


def test_c5_clearing_is_a_change(pair):
    writer, reader = pair
    version = writer.write(1)
    cleared = writer.clear()
    assert reader.when.updated(since=version, timeout=IN_TIME) == (cleared, None)


def test_c5_timeouts_are_raised(pair):
    _, reader = pair
    for wait in (lambda: reader.when.updated(timeout="0.01 s"), lambda: reader.when.reaches(10**9, timeout="0.01 s")):
        with pytest.raises(TimeoutError, match=r"cell default/x at .* within 0\.01 s"):
            wait()


@pytest.mark.parametrize("close", ["cell", "connection"])
def test_c5_waits_end_when_closed(place, close):
    connection = place.open()
    reader = connection.reader("x", int)
    waits = [
        in_background(wait) for wait in (reader.when.offline, reader.when.updated, lambda: reader.when.reaches(10**9))
    ]
    (reader if close == "cell" else connection).close()
    for wait in waits:
        with pytest.raises(cells.Closed, match="was closed"):
            wait()


def test_c5_watch_yields_the_current_value_then_changes_until_closed(pair):
    writer, reader = pair
    reader.when.reaches(writer.write(1), timeout=IN_TIME)
    seen = []

    def follow():
        for snapshot in reader.watch():
            seen.append(snapshot.value)
            if snapshot.value == 3:
                reader.close()

    following = in_background(follow)
    eventually(lambda: seen)
    for number in (2, 3):
        writer.write(number)
    following()
    assert seen[0] == 1
    assert seen[-1] == 3
    assert seen == sorted(seen)
