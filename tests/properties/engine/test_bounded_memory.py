"""State that is imported, upgraded or resharded is never in memory as a whole, nor in one file.

The bounds are small, so that a few MB exceed them many times. The tests check the peak of what Python has allocated.
"""

from __future__ import annotations

import base64
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidewheel import Job, StoredJob
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._engine.reshard import reshard
from tidewheel._state import bounded_files, newest_items, sorted_runs
from tidewheel._state.state_file import StateFileWriter
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

BOUND = 200_000
VALUE_BYTES = 1000
BLOCK_BYTES = 8 * VALUE_BYTES
FEW, MANY = 1000, 8000


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch):
    monkeypatch.setattr(sorted_runs, "MEMORY_BYTES", BOUND)
    monkeypatch.setattr(bounded_files, "FILE_BYTES", BOUND)
    monkeypatch.setattr(bounded_files, "_CHUNK_BYTES", BOUND // 8)
    monkeypatch.setattr(newest_items, "_SMALL_BYTES", BOUND)
    monkeypatch.setattr(newest_items, "_AHEAD_BYTES", BOUND)
    # Of each sorted run a block is in memory; real runs are 1,500 blocks. Runs this small need blocks that are small, too.
    monkeypatch.setattr(newest_items, "BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(StateFileWriter.__init__, "__defaults__", (BLOCK_BYTES,))


def job(folder: Path, name: str, **options) -> Job:
    made = Job(name, state=f"file://{folder}", n_shards=2)
    keyed = made.source("in", iterable([]), type=dict).key_by("by", "user", value="n")
    keyed.stateful_map("last", lambda user, n, last: (None, n), default=b"", **options).sink("out", discard())
    return made


def value(key: int) -> bytes:
    return random.Random(key).randbytes(VALUE_BYTES)


def pairs(keys: int) -> Iterator[tuple[int, bytes]]:
    return ((key, value(key)) for key in range(keys))


def imported(folder: Path, keys: int) -> Callable[[], object]:
    return lambda: job(folder, "many").import_state("last", pairs(keys))


def imported_from_csv(folder: Path, keys: int) -> Callable[[], object]:
    folder.mkdir()
    with open(folder / "rows.csv", "w") as file:
        file.write("key,value\n")
        file.writelines(f"{key},{base64.b64encode(state).decode()}\n" for key, state in pairs(keys))
    return lambda: job(folder, "many").import_state("last", folder / "rows.csv", key_type=int)


def upgraded(folder: Path, keys: int) -> Callable[[], object]:
    imported(folder, keys)()
    changed = job(folder, "many", version=2, upgrade=lambda state, _: state)

    def start() -> None:
        with MemoryRun(changed):
            pass

    return start


def resharded(folder: Path, keys: int) -> Callable[[], object]:
    imported(folder, keys)()
    return lambda: reshard(JobPlace("many", f"file://{folder}"), 8)


def resharded_back(folder: Path, keys: int) -> Callable[[], object]:
    resharded(folder, keys)()
    return lambda: reshard(JobPlace("many", f"file://{folder}"), 1)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("work", [imported, imported_from_csv, upgraded, resharded, resharded_back])
def test_memory_and_files_do_not_follow_the_size_of_the_state(tmp_path, work):
    few = peak_bytes(work(tmp_path / "few", FEW))
    many = peak_bytes(work(tmp_path / "many", MANY))
    # What other threads of the process allocate meanwhile is in it, too: the bound is far above what is expected.
    assert many - few < (MANY - FEW) * VALUE_BYTES / 2, (few, many)
    stored = StoredJob("many", state=f"file://{tmp_path}/many")
    held = dict(stored.scan("last", type=bytes))
    held.pop(-1, None)
    assert held == dict(pairs(MANY))
    sizes = [file.stat().st_size for file in (tmp_path / "many").rglob("state/*") if file.is_file()]
    assert sum(sizes) > MANY * VALUE_BYTES
    assert max(sizes) < 2 * BOUND


def test_the_changes_of_a_batch_are_in_files_of_bounded_size(tmp_path):
    made = job(tmp_path, "many")
    with MemoryRun(made, parallelism=2) as run:
        run.batch({"in": [{"user": key, "n": value(key)} for key in range(2000)]})
        run.batch({"in": [{"user": key, "n": b"again"} for key in range(0, 2000, 2)]})
        head = run.run.head
    deltas = [part for parts in head.shards.values() for part in parts.deltas]
    assert len({part.file.name for part in deltas}) == len({part.file for part in deltas}) > 8
    assert max(part.file.size for part in deltas) < 2 * BOUND
    expected = {key: value(key) if key % 2 else b"again" for key in range(2000)}
    assert dict(StoredJob("many", state=f"file://{tmp_path}").scan("last", type=bytes)) == expected
    # Another host takes the files in, and goes on from there.
    with MemoryRun(made, parallelism=1) as run:
        run.batch({"in": [{"user": 1, "n": b"last"}]})
    assert dict(StoredJob("many", state=f"file://{tmp_path}").scan("last", type=bytes)) == {**expected, 1: b"last"}
