"""C11: while the backend is down, readers keep the last value and writers get `Offline`; nothing acknowledged is lost."""

from __future__ import annotations

import threading

import pytest

from support.waiting import IN_TIME, eventually
from tidewheel import cells
from tidewheel._cells.backends.etcd import EtcdBackend


def test_c11_readers_keep_the_last_value_while_writers_are_offline(mortal_place):
    place = mortal_place
    writer, reader = place.open(timeout="5 s").writer("x", int), place.open(timeout="5 s").reader("x", int)
    version = writer.write(1)
    reader.when.reaches(version, timeout=IN_TIME)

    place.kill()
    for cell in (writer, reader):
        cell.when.offline(timeout=IN_TIME)
        assert not cell.is_online
        assert cell.snapshot() == (version, 1)
    with pytest.raises(cells.Offline):
        writer.write(2, timeout="0.5 s")
    with pytest.raises(cells.Offline):
        place.open(timeout="0.5 s")

    place.restart()
    for cell in (writer, reader):
        cell.when.online(timeout=IN_TIME)
    assert reader.refresh(timeout=IN_TIME).value == 1, "what was acknowledged is there, what was refused is not"
    later = writer.write(3, timeout=IN_TIME)
    assert later > version
    assert reader.when.reaches(later, timeout=IN_TIME) == (later, 3)
    assert place.open(timeout=IN_TIME).reader("x", int).snapshot() == (later, 3)


def test_c11_a_reader_sees_a_missed_change_after_it_reconnects(place):
    """The reader's own stream is cut, as a network would: others write meanwhile."""
    writer, reader = place.open().writer("x", int), place.open().reader("x", int)
    reader.when.reaches(writer.write(1), timeout=IN_TIME)
    backend = reader._connection._backend
    if isinstance(backend, EtcdBackend):
        backend._watch.interrupt()
    version = writer.write(2)
    assert reader.when.reaches(version, timeout=IN_TIME) == (version, 2)


def test_c11_nothing_acknowledged_is_lost_when_the_backend_dies_under_load(mortal_place):
    """Each write's value is the number of the attempt: the one that stands is not older than the last acknowledged."""
    place = mortal_place
    writer = place.open(timeout="5 s").writer("x", int)
    acknowledged, attempted = [], []
    stop = threading.Event()

    def run():
        number = 0
        while not stop.is_set():
            number += 1
            attempted.append(number)
            try:
                writer.write(number, timeout="0.5 s")
            except cells.Offline:
                continue
            acknowledged.append(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: len(acknowledged) > 10)
        place.kill()
        before = len(attempted)
        eventually(lambda: len(attempted) > before + 1)
        place.restart()
        again = len(acknowledged)
        eventually(lambda: len(acknowledged) > again + 10)
    finally:
        stop.set()
        thread.join()
    stands = writer.refresh(timeout=IN_TIME).value
    assert acknowledged[-1] <= stands <= attempted[-1]
