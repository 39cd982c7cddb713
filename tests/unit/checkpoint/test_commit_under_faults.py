"""Whichever access to the store fails, before or after it took effect, the chain ends as without the failure."""

import contextlib
import itertools

import pytest

from support.internals import open_store
from tidewheel._storage import Entry, Store
from tidewheel.checkpoints import CheckpointId, Manifest, StreamCheckpoints
from tidewheel.errors import NotFound, StorageError

_fresh = itertools.count()
COMMITS = 5


class Faults:
    """Fails the access of one number, once."""

    def __init__(self, number: int, after: bool) -> None:
        self.number, self.after, self.seen = number, after, 0

    def around(self, access, *arguments):
        self.seen += 1
        if self.seen != self.number:
            return access(*arguments)
        if self.after:
            with contextlib.suppress(NotFound):
                access(*arguments)
        raise StorageError("the store did not answer")


class FaultyStore(Store):
    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner, self._faults = inner, faults
        self.url = inner.url

    def at(self, prefix: str) -> "FaultyStore":
        return FaultyStore(self._inner.at(prefix), self._faults)

    def read(self, path: str) -> bytes:
        return self._faults.around(self._inner.read, path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._faults.around(self._inner.read_range, path, start, length)

    def create(self, path: str, data: bytes) -> bool:
        return self._faults.around(self._inner.create, path, data)

    def write(self, path: str, data: bytes) -> None:
        return self._faults.around(self._inner.write, path, data)

    def list(self, prefix: str = "") -> list[Entry]:
        return self._faults.around(self._inner.list, prefix)

    def delete(self, path: str) -> None:
        return self._faults.around(self._inner.delete, path)


def run_to_the_end(store: Store, fresh_process: bool) -> int:
    """Count commits up in the event count, as a driver that tries again after each failure; return its failures."""
    failures = 0
    checkpoints = StreamCheckpoints(store, "job", keep=2)
    while True:
        try:
            newest = checkpoints.latest()
            done = 0 if newest is None else newest.sequence
            if done == COMMITS:
                return failures
            count = (0 if newest is None else newest.event_count) + 1
            checkpoints.commit(Manifest(CheckpointId("job", done + 1), run="A", event_count=count))
            checkpoints.retain()
        except StorageError:
            failures += 1
            assert failures == 1
            if fresh_process:
                checkpoints = StreamCheckpoints(store, "job", keep=2)


@pytest.mark.parametrize("fresh_process", [True, False])
@pytest.mark.parametrize("after", [False, True])
def test_every_access_may_fail_once(after, fresh_process):
    for number in itertools.count(1):
        inner = open_store(f"memory:commit-faults-{next(_fresh)}")
        faults = Faults(number, after)
        failures = run_to_the_end(FaultyStore(inner, faults), fresh_process)
        final = StreamCheckpoints(inner, "job")
        assert final.latest().event_count == COMMITS, number
        assert final.sequences()[-2:] == [COMMITS - 1, COMMITS], number
        if faults.seen < number:
            return
        assert failures == 1, number
