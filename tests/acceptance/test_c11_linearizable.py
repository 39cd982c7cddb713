"""C3, C6, C11: the results of threads on several connections are those of a single register."""

from __future__ import annotations

import random
import threading

from support.cell_places import in_parallel
from support.linearizability import EXCHANGE, READ, WRITE, Recorder, is_linearizable
from support.waiting import IN_TIME, eventually
from tidewheel import cells


def run(recorder, cell, seed, stop, operations, timeout):
    """Do random operations on few values, so that exchanges both apply and fail; each write's value is new."""
    chance, number = random.Random(seed), 0
    while number < operations and not stop.is_set():
        number += 1
        fresh = seed * 1_000_000 + number
        known = cell.read()
        kind = chance.choice([READ, WRITE, EXCHANGE, EXCHANGE])
        call = {
            READ: lambda: cell.refresh(timeout).value,
            WRITE: lambda fresh=fresh: cell.write(fresh, timeout=timeout),
            EXCHANGE: lambda known=known, fresh=fresh: cell.compare_exchange(known, fresh, timeout=timeout).applied,
        }[kind]
        recorder.record(
            call,
            kind,
            new=fresh,
            expected=known,
            errors=cells.Offline,
            did_not_happen=lambda error, kind=kind: kind == READ or not error.maybe,
        )


def test_c6_concurrent_operations_are_linearizable(place):
    writers = [place.open().writer("x", int) for _ in range(4)]
    recorder, stop = Recorder(), threading.Event()
    each = max(5, place.crowd // 5)
    in_parallel(*(lambda w=w, n=n: run(recorder, w, n, stop, each, IN_TIME) for n, w in enumerate(writers, 1)))
    assert len(recorder.history) == 4 * each
    assert is_linearizable(recorder.history)


def test_c11_operations_stay_linearizable_across_an_outage(mortal_place):
    place = mortal_place
    writers = [place.open(timeout=IN_TIME).writer("x", int) for _ in range(3)]
    recorder, stop = Recorder(), threading.Event()

    def wait_for_more():
        seen = len(recorder.history)
        eventually(lambda: len(recorder.history) >= seen + 15)

    threads = [
        threading.Thread(target=run, args=(recorder, writer, seed, stop, 100_000, "1 s"))
        for seed, writer in enumerate(writers, 1)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2 if place.crowd > 20 else 1):
            wait_for_more()
            place.kill()
            writers[0].when.offline(timeout=IN_TIME)
            place.restart()
        wait_for_more()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    final = Recorder()
    final.record(lambda: writers[0].refresh(timeout=IN_TIME).value, READ)
    assert is_linearizable(recorder.history + final.history)
