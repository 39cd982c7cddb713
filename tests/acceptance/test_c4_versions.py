"""C4: version and value belong together, and versions only grow."""

from __future__ import annotations

import threading

from support.waiting import IN_TIME, eventually


def test_c4_snapshots_are_never_torn_and_never_go_back(place):
    """The value written is always the one before plus one, so any torn pair shows."""
    writer, reader = place.open().writer("x", int), place.open().reader("x", int)
    done = threading.Event()
    seen: dict[int, int | None] = {}
    order: list[int] = []

    def read_all():
        while not done.wait(0.0005):
            version, value = reader.snapshot()
            assert seen.setdefault(version, value) == value
            order.append(version)

    thread = threading.Thread(target=read_all)
    thread.start()
    written = {0: None}
    try:
        for number in range(place.crowd):
            written[writer.write(number)] = number
        eventually(lambda: reader.read() == place.crowd - 1)
    finally:
        done.set()
        thread.join()
    assert order == sorted(order)
    assert all(written[version] == value for version, value in seen.items())


def test_c4_versions_keep_growing_after_a_reopening(place):
    with place.open() as connection:
        before = connection.writer("x", int).write(1)
    again = place.open().writer("x", int)
    assert again.version() == before
    assert again.write(2) > before
    assert place.open().reader("x", int).when.reaches(before + 1, timeout=IN_TIME).value == 2
