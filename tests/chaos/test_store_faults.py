"""A store that fails in every way at any operation: the job stops with a clear error, and is exact afterwards."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.internals import open_store
from tidewheel import Job, StoredJob
from tidewheel._storage import Entry, Store
from tidewheel.errors import StorageError, TidewheelError
from tidewheel.sinks import files
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

BATCHES = [[{"user": f"u{(n * 3 + b) % 5}", "amount": n + b} for n in range(10)] for b in range(5)]
SEED = 41


class Faults:
    """Which operation fails, counted over all stores, and how."""

    def __init__(self, at: int, kind: str) -> None:
        self.at, self.kind, self.count = at, kind, 0
        self.hit = ""

    def due(self, operation: str) -> bool:
        self.count += 1
        if self.count == self.at and not self.hit:
            self.hit = operation
            return True
        return False


class Faulty(Store):
    """A store with faults in front of a real one."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self.store, self.faults, self.url = store, faults, store.url

    def _put(self, operation: str, put):
        if not self.faults.due(operation):
            return put()
        if self.faults.kind == "after":
            put()
        raise StorageError(f"could not {operation} at {self.url}: the test says so ({self.faults.kind})")

    def _get(self, operation: str, get):
        due = self.faults.due(operation)
        if due and self.faults.kind != "damaged":
            raise StorageError(f"could not {operation} at {self.url}: the test says so")
        data = get()
        if due and data:
            at = random.Random(self.faults.at).randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        return data

    def read(self, path: str) -> bytes:
        return self._get("read", lambda: self.store.read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._get("read", lambda: self.store.read_range(path, start, length))

    def create(self, path: str, data: bytes) -> bool:
        return self._put("create", lambda: self.store.create(path, data))

    def write(self, path: str, data: bytes) -> None:
        self._put("write", lambda: self.store.write(path, data))

    def list(self, prefix: str = "") -> list[Entry]:
        if self.faults.due("list"):
            raise StorageError(f"could not list at {self.url}: the test says so")
        return self.store.list(prefix)

    def delete(self, path: str) -> None:
        self._put("delete", lambda: self.store.delete(path))

    def move(self, path: str, to: str) -> None:
        self._put("move", lambda: self.store.move(path, to))

    def at(self, prefix: str) -> Faulty:
        return Faulty(self.store.at(prefix), self.faults)


def numbered(url: str, out: Path) -> Job:
    job = Job("orders", state=url, n_shards=2, keep=2, collect_every=2, snapshot_every=2)
    (
        job.source("in", iterable([]), type=dict)
        .key_by("by-user", lambda record: record["user"])
        .stateful_map(
            "sum",
            lambda key, record, total: ({"user": key, "total": total + record["amount"]}, total + record["amount"]),
            default=0,
        )
        .sink("out", files(out, format="json"))
    )
    return job


def go(job: Job) -> None:
    with MemoryRun(job, parallelism=2) as run:
        done = -1 if run.run.head.batch is None else run.run.head.batch
        for records in BATCHES[done + 1 :]:
            run.batch({"in": records})


def outcome(url: str, out: Path) -> tuple[dict, Counter]:
    lines = (line for path in out.glob("*.json") for line in path.read_text().splitlines())
    return dict(StoredJob("orders", state=url).scan("sum")), Counter(map(str, map(json.loads, lines)))


@pytest.mark.parametrize("kind", ["before", "after", "damaged"])
def test_a_fault_at_any_operation_stops_the_job_and_loses_nothing(tmp_path, monkeypatch, kind):
    real = open_store
    go(numbered(f"file://{tmp_path}/quiet", tmp_path / "quiet-out"))
    expected = outcome(f"file://{tmp_path}/quiet", tmp_path / "quiet-out")
    draw = random.Random(SEED)
    hits: Counter = Counter()
    print(f"seed {SEED}")
    for number in itertools.count(1):
        # Every operation of the first batches, then some of the rest.
        at = number if number <= 48 else number * 3 + draw.randrange(3)
        url, out = f"file://{tmp_path}/{number}", tmp_path / f"out-{number}"
        faults = Faults(at, kind)
        with monkeypatch.context() as patching:
            for module in [each for each in sys.modules.values() if getattr(each, "open_store", None) is open_store]:
                patching.setattr(module, "open_store", lambda url, faults=faults: Faulty(real(url), faults))
            try:
                go(numbered(url, out))
                # Damage that hits no checksum is in what is not used, or in a listing of what is removed.
                failed = None
            except TidewheelError as error:
                failed = error
        if not faults.hit:
            break
        hits[faults.hit] += failed is not None
        if failed is not None:
            assert str(failed)
            go(numbered(url, out))
        assert outcome(url, out) == expected, f"{kind} at operation {at} ({faults.hit}): {failed}"
        assert StoredJob("orders", state=url).verify().problems == ()
    assert hits["create"] > 5 or kind == "damaged"
    assert hits["read"] > 3


def test_a_slow_store_is_only_slow(tmp_path, monkeypatch):
    """Everything is answered in another order than it was asked: two runs of which one is late by a whole run."""
    url, out = f"file://{tmp_path}/state", tmp_path / "out"
    slow = MemoryRun(numbered(url, out), parallelism=2)
    slow.batch({"in": BATCHES[0]})
    create = slow.run.checkpoints._chain._store.create
    overtaken = []

    def late(path: str, data: bytes) -> bool:
        if not overtaken:
            overtaken.append(True)
            job = numbered(url, out)
            with MemoryRun(job, take_over=True) as fast:
                for records in BATCHES[1:]:
                    fast.batch({"in": records})
        return create(path, data)

    monkeypatch.setattr(slow.run.checkpoints._chain._store, "create", late)
    with pytest.raises(TidewheelError, match="taken over by"):
        slow.batch({"in": BATCHES[1]})
    slow.close()
    quiet = f"file://{tmp_path}/quiet"
    go(numbered(quiet, tmp_path / "quiet-out"))
    assert outcome(url, out) == outcome(quiet, tmp_path / "quiet-out")
