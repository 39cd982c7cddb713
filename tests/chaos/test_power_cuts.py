"""The power is cut at any moment: the job and the inbox recover from all that a disk may hold then.

One run is traced at its system calls. Each trial writes what the disk may hold after some of them, starts again, feeds the
rest of the input, and compares state and output with a count. Local copies are not synced: after a boot their folder has
another name (`boot_id`), so no trial has any.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.power_cuts import Trace, Tracing, nothing_unsynced, some_unsynced
from tidewheel import Job, StoredJob, sinks, sources
from tidewheel._engine.merging import at_once
from tidewheel._state.local_copies import LocalCopies
from tidewheel.errors import NotFound
from tidewheel.fleet._inbox import open_inbox
from tidewheel.fleet._inbox.base import Block
from tidewheel.fleet._inbox.events import decode_events, encode_events
from tidewheel.testing import MemoryRun

KEYS = ("ada", "bob", "cyd")
BATCHES = 7
IN_THE_SUITE = 40


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a folder in memory, if there is one: the tests write it again for each trial."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder).resolve()


def records(batch: int) -> list[dict[str, Any]]:
    return [{"k": KEYS[number % 3], "n": 10 * batch + number} for number in range(3)]


def job(disk: Path) -> Job:
    job = Job("cut", state=f"file://{disk}/state", n_shards=2, keep=2, collect_every=3, grace=0, snapshot_every=3)
    keyed = job.source("in", sources.iterable([]), type=dict).key_by("by", "k", value="n")
    totals = keyed.stateful_map("sum", lambda key, n, total: ({"n": n}, total + n), default=0)
    totals.sink("out", sinks.files(f"{disk}/out", format="json"))
    return job


def started(disk: Path, local: Path) -> MemoryRun:
    run = MemoryRun(job(disk), take_over=True)  # The machine has booted: nobody else runs.
    run._local = str(local)
    run.run.merging.submit = at_once  # In a thread, the order of the calls would differ from run to run.
    return run


def total(batches: int) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for batch in range(batches):
        for record in records(batch):
            sums[record["k"]] += record["n"]
    return dict(sums)


def traced_job(disk: Path, local: Path) -> Trace:
    """Run two lives of a job, and note after which calls each batch was committed."""
    trace = Trace(str(disk))
    with Tracing(trace).tracing():
        done = 0
        for batches in (3, BATCHES - 3):
            with started(disk, local) as run:
                for _ in range(batches):
                    run.batch({"in": records(done)})
                    done += 1
                    trace.acknowledge(done)
    close_copies(local)
    return trace


def close_copies(local: Path) -> None:
    for copies in [each for folder, each in LocalCopies._open.items() if folder.startswith(str(local))]:
        copies.close()


def check_job(disk: Path, local: Path, acknowledged: int) -> None:
    state = f"file://{disk}/state"
    try:
        stored = StoredJob("cut", state=state)
        found = stored.show().event_count // 3
        assert dict(stored.scan("sum") if found else ()) == total(found)
    except NotFound:
        found = 0
    assert found >= acknowledged, f"{acknowledged} batches were committed, and {found} are there"
    with started(disk, local) as run:
        for batch in range(found, BATCHES):
            run.batch({"in": records(batch)})
    close_copies(local)
    assert dict(StoredJob("cut", state=state).scan("sum")) == total(BATCHES)
    rows = [json.loads(line)["n"] for path in (disk / "out").glob("*.json") for line in path.read_text().splitlines()]
    assert sorted(rows) == sorted(record["n"] for batch in range(BATCHES) for record in records(batch))


def cuts(trace: Trace, draw: random.Random, trials: int | None) -> Iterator[tuple[int, Any, str]]:
    """Yield after how many calls the power is cut, what is kept of what was not synced, and how that is called."""
    counts = range(len(trace.steps) + 1)
    for count in counts if trials is None else sorted(draw.choices(counts, k=trials)):
        kinds = {"nothing": nothing_unsynced, "half": some_unsynced(draw, 0.5), "most": some_unsynced(draw, 0.9)}
        for kind in kinds if trials is None else [draw.choice(list(kinds))]:
            yield count, kinds[kind], kind


def try_cuts(root: Path, traced: Any, check: Any, trials: int | None, forgotten: str = "") -> None:
    """Try some cuts, or all; `forgotten` is a call that the run did not make."""
    disk, local = root / "disk", root / "local"
    disk.mkdir()
    trace = traced(disk, local)
    if forgotten:
        kept = [number for number, step in enumerate(trace.steps) if step.call != forgotten]
        trace.marks = [(sum(number < at for number in kept), what) for at, what in trace.marks]
        trace.steps = [trace.steps[number] for number in kept]
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}, {len(trace.steps)} calls")
    done = 0
    for count, keeps, kind in cuts(trace, random.Random(seed), trials):
        for folder in (disk, local):
            shutil.rmtree(folder, ignore_errors=True)
        trace.write(count, keeps, disk)
        try:
            check(disk, local, trace.acknowledged(count) or 0)
        except Exception as error:
            last = "\n  ".join(
                f"{step.call} {step.path} {step.to} {step.file}" for step in trace.steps[max(0, count - 12) : count]
            )
            raise AssertionError(
                f"seed {seed}, cut after {count} calls, {kind} kept: {error!r}, after\n  {last}"
            ) from error
        done += 1
    print(f"{done} cuts")


def test_a_job_recovers_from_power_cuts(root):
    try_cuts(root, traced_job, check_job, IN_THE_SUITE)


@pytest.mark.parametrize("forgotten", ["fsync", "fsync folder"])
def test_a_sync_that_is_forgotten_is_found(root, forgotten):
    with pytest.raises(AssertionError, match="cut after"):
        try_cuts(root, traced_job, check_job, IN_THE_SUITE, forgotten)


@pytest.mark.slow
def test_a_job_recovers_from_a_power_cut_after_every_call(root):
    try_cuts(root, traced_job, check_job, None)


ENTRIES = 12


def block(number: int) -> list[Block]:
    return [Block(0, number, 1, encode_events([b"sk"], [str(number).encode()]))]


def traced_inbox(disk: Path, local: Path) -> Trace:
    trace = Trace(str(disk))
    with Tracing(trace).tracing():
        for first in (1, 7):
            with open_inbox(f"file://{disk}/inbox", 2) as inbox:
                inbox._segment_bytes = 400
                for number in range(first, first + 6):
                    inbox.append("p", "s", block(number))
                    trace.acknowledge(number)
    return trace


def check_inbox(disk: Path, local: Path, acknowledged: int) -> None:
    with open_inbox(f"file://{disk}/inbox", 2) as inbox:
        for number in range(acknowledged + 1, ENTRIES + 1):
            inbox.append("p", "s", block(number))
        end = inbox.end([0])
        found = [payload for stored in inbox.read({0: 0}, end) for payload in decode_events(stored).payloads]
    assert found == [str(number).encode() for number in range(1, ENTRIES + 1)]


def test_an_inbox_recovers_from_power_cuts(root):
    try_cuts(root, traced_inbox, check_inbox, IN_THE_SUITE)


@pytest.mark.slow
def test_an_inbox_recovers_from_a_power_cut_after_every_call(root):
    try_cuts(root, traced_inbox, check_inbox, None)
