"""C12: cases that the other files do not cover: smoke, overwriting, clear cycles, large values, many cells, restarts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.cell_places import in_parallel
from support.waiting import IN_TIME, SOON


def test_c12_smoke(place):
    with place.open() as connection, connection.writer("x", dict[str, int]) as cell:
        cell.write({"a": 1})
        assert cell.compare_exchange({"a": 1}, {"a": 2}).applied
        assert cell.read() == {"a": 2}
        cell.clear()
        assert cell.is_empty()


def test_c12_overwriting(place):
    writer, reader = place.open().writer("x", int), place.open().reader("x", int)
    for number in range(20):
        version = writer.write(number)
    assert reader.when.reaches(version, timeout=IN_TIME) == (version, 19)


def test_c12_cycles_of_clearing(place):
    writer, reader = place.open().writer("x", int), place.open().reader("x", int)
    for number in range(5):
        written = writer.write(number)
        assert reader.when.reaches(written, timeout=IN_TIME).value == number
        cleared = writer.clear()
        assert reader.when.reaches(cleared, timeout=IN_TIME) == (cleared, None)


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_000_000])
def test_c12_values_small_and_large(place, size):
    writer, reader = place.open().writer("x", bytes), place.open().reader("x", bytes)
    value = os.urandom(size)
    assert reader.when.reaches(writer.write(value), timeout=IN_TIME).value == value
    assert writer.compare_exchange(value, b"").applied


def test_c12_many_cells_on_one_connection(place):
    writers, readers = place.open(), place.open()
    names = [f"x{n}" for n in range(place.crowd // 4)]
    followed = [readers.reader(name, str) for name in names]
    versions = [writers.writer(name, str).write(name) for name in names]
    for name, cell, version in zip(names, followed, versions, strict=True):
        assert cell.when.reaches(version, timeout=IN_TIME).value == name


def test_c12_many_cells_written_at_once_do_not_disturb_each_other(place):
    connection = place.open()

    def count(name):
        cell = connection.writer(name, int)
        for _ in range(5):
            cell.update(lambda value: (value or 0) + 1)
        return cell.read()

    assert in_parallel(*(lambda n=n: count(f"x{n}") for n in range(5))) == [5] * 5


def test_c12_values_survive_their_writer(place):
    with place.open() as connection:
        version = connection.writer("x", int).write(1)
    assert place.open().reader("x", int).snapshot() == (version, 1)


WRITE_ELSEWHERE = """
import sys
from tidewheel import cells
with cells.open(sys.argv[1]) as connection:
    print(connection.writer("x", int).update(lambda value: (value or 0) + 1).version)
"""


def test_c12_another_process_s_write_is_seen_here(place):
    if place.url.startswith("memory:"):
        pytest.skip("memory is one process's")
    reader = place.open().reader("x", int)
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITE_ELSEWHERE, place.url], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    versions = [int(process.communicate(timeout=SOON)[0]) for process in processes]
    assert reader.when.reaches(max(versions), timeout=IN_TIME) == (max(versions), 2)
