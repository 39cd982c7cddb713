"""C2: commands return the version at which they were committed, and the writer reads its own writes."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct):
    low: float
    high: float
    names: list[str] = []


def test_c2_write_returns_its_version_and_the_writer_reads_it(place):
    writer = place.open().writer("x", int)
    for number in range(5):
        version = writer.write(number)
        assert writer.snapshot() == (version, number)


def test_c2_set_is_write(place):
    writer = place.open().writer("x", int)
    assert writer.set(3) == writer.version()
    assert writer.read() == 3


def test_c2_overwriting_with_the_same_value_is_a_separate_command(place):
    writer = place.open().writer("x", int)
    assert writer.write(1) < writer.write(1)


def test_c2_clear_empties_the_cell(place):
    writer = place.open().writer("x", int)
    written = writer.write(1)
    cleared = writer.clear()
    assert written < cleared
    assert writer.snapshot() == (cleared, None)
    assert writer.is_empty()


def test_c2_clear_of_an_empty_cell_is_fine(place):
    writer = place.open().writer("x", int)
    assert 0 < writer.clear() < writer.clear()
    assert writer.is_empty()


def test_c2_typed_values_keep_their_type(place):
    writer = place.open().writer("limits", Limits)
    limits = Limits(0.5, 2, ["a", "b"])
    writer.write(limits)
    assert place.open().reader("limits", Limits).read() == limits


def test_c2_update_makes_the_next_value_from_the_last(place):
    first, second = place.open().writer("x", int), place.open().writer("x", int)
    for writer in (first, second, first):
        done = writer.update(lambda value: (value or 0) + 1)
        assert writer.snapshot() == done
    assert done.value == 3


def test_c2_versions_returned_by_many_writers_are_all_different(place):
    from support.cell_places import in_parallel

    writers = [place.open().writer("x", int) for _ in range(3)]
    each = max(3, place.crowd // 20)
    versions = in_parallel(*(lambda writer=writer: [writer.write(n) for n in range(each)] for writer in writers))
    assert len({version for mine in versions for version in mine}) == 3 * each
    assert all(mine == sorted(mine) for mine in versions)
