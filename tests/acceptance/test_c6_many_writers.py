"""C6: readers cannot write; many writers converge; of many exchanges on one version exactly one applies."""

from __future__ import annotations

import threading

from support.cell_places import in_parallel
from support.waiting import IN_TIME


def test_c6_readers_have_no_mutators(place):
    reader = place.open().reader("x", int)
    for mutator in ("write", "set", "clear", "compare_exchange", "compare_exchange_at", "update", "present"):
        assert not hasattr(reader, mutator)


def test_c6_of_many_exchanges_on_one_version_exactly_one_applies(place):
    writers = [place.open().writer("x", int) for _ in range(6)]
    version = writers[0].write(-1)
    for _ in range(place.crowd // 20):
        barrier = threading.Barrier(len(writers))

        def attempt(writer, number, barrier=barrier, version=version):
            barrier.wait()
            return writer.compare_exchange_at(version, number)

        done = in_parallel(*(lambda w=w, n=n: attempt(w, n) for n, w in enumerate(writers)))
        (winner,) = [number for number, exchange in enumerate(done) if exchange.applied]
        version = done[winner].version
        assert all(exchange.seen == winner for exchange in done if not exchange.applied)
        assert writers[0].refresh() == (version, winner)


def test_c6_of_many_exchanges_from_empty_exactly_one_applies(place):
    writers = [place.open().writer("x", int) for _ in range(6)]
    done = in_parallel(*(lambda w=w, n=n: w.compare_exchange(None, n) for n, w in enumerate(writers)))
    assert sum(exchange.applied for exchange in done) == 1


def test_c6_concurrent_increments_are_all_counted(place):
    writers = [place.open().writer("x", int) for _ in range(4)]
    each = max(4, place.crowd // 10)

    def count(writer):
        for _ in range(each):
            writer.update(lambda value: (value or 0) + 1, timeout="60 s")

    in_parallel(*(lambda w=w: count(w) for w in writers))
    assert writers[0].refresh().value == 4 * each


def test_c6_many_writers_and_readers_converge(place):
    writers = [place.open().writer("x", str) for _ in range(3)]
    readers = [place.open().reader("x", str) for _ in range(4)]
    each = max(3, place.crowd // 20)
    versions = in_parallel(
        *(lambda w=w, n=n: [w.write(f"{n}.{i}") for i in range(each)] for n, w in enumerate(writers))
    )
    last = max(version for mine in versions for version in mine)
    stands = writers[0].refresh()
    assert stands.version == last
    assert all(cell.when.reaches(last, timeout=IN_TIME) == stands for cell in [*writers, *readers])
