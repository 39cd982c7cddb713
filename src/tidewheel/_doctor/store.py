"""Check the state URL: permissions, conditional puts, clock and latency."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from tidewheel._core.urls import Url
from tidewheel._doctor.finding import Finding, clock, fine, missing, timed
from tidewheel._storage import Store
from tidewheel._storage.base import OTHER_STORE
from tidewheel._storage.file import FileStore
from tidewheel.errors import AccessDenied, NotFound, TidewheelError

STATE = "state"
_WRITERS = 8
_TRIES = 5
_LATENCY_MS = 250.0
_CREDENTIALS = "allow the job to read, write, list and delete below the state URL, in the bucket's policy or its role"


def check_store(store: Store, folder: str) -> Iterator[Finding]:
    """Yield the findings of the store. Test objects are created below `folder`, which the caller deletes."""
    place = str(Url(store.url))
    try:
        started = time.time()
        store.create(f"{folder}/probe", b"first")
        if store.read(f"{folder}/probe") != b"first":
            yield missing(STATE, f"{place} returns other bytes than were written", OTHER_STORE)
            return
        entries = [entry for entry in store.list(folder) if entry.path == f"{folder}/probe"]
        if not entries:
            yield missing(STATE, f"{place} does not list an object that was just written", OTHER_STORE)
            return
        store.create(f"{folder}/gone", b"")
        store.delete(f"{folder}/gone")
    except AccessDenied as error:
        yield missing(STATE, str(error), _CREDENTIALS)
        return
    except TidewheelError as error:
        yield missing(STATE, str(error), "correct --state, or start the store and make the bucket or folder")
        return
    yield fine(STATE, f"{place} can be read, written, listed and deleted")
    yield _conditional(store, folder, place)
    yield clock(STATE, entries[0].modified - started)
    fix = "use a bucket in the region of the cluster, or a faster disk; each batch waits for one commit"
    yield timed(
        STATE, "to create an object", _median_ms(lambda n: store.create(f"{folder}/t{n}", b"x")), _LATENCY_MS, fix
    )
    yield timed(STATE, "to read an object", _median_ms(lambda _: store.read(f"{folder}/probe")), _LATENCY_MS, fix)


def remove(store: Store, folder: str) -> None:
    """Delete the test objects."""
    for entry in store.list(folder):
        store.delete(entry.path)
    if isinstance(store, FileStore):
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.join(store.root, folder))


def _conditional(store: Store, folder: str, place: str) -> Finding:
    """Create one object several times at once: exactly one writer may succeed, and its bytes must stay."""
    path = f"{folder}/contested"

    def create(number: int) -> bool:
        return store.create(path, str(number).encode())

    try:
        with ThreadPoolExecutor(_WRITERS) as writers:
            won = [number for number, created in enumerate(writers.map(create, range(_WRITERS))) if created]
        if len(won) == 1 and not create(_WRITERS) and store.read(path) == str(won[0]).encode():
            return fine(STATE, "it has conditional puts: of several writers, one succeeds")
        reason = f"{len(won)} of {_WRITERS} writers created the same object"
    except (NotFound, TidewheelError) as error:
        reason = str(error)
    return missing(
        STATE, f"{place} has no conditional puts, so two runs could overwrite each other: {reason}", OTHER_STORE
    )


def _median_ms(call: Callable[[int], object]) -> float:
    taken = []
    for number in range(_TRIES):
        began = time.perf_counter()
        call(number)
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken)
