"""B7: recovery after process death, from the store alone, on another machine."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel import StoredJob

_fresh = itertools.count()

PROGRAM = """
import os, signal, sys, tempfile
from tidewheel import Job
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

url, machine, batches, point = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
os.makedirs(machine)
tempfile.tempdir = machine
job = Job("orders", state=url, n_shards=4, snapshot_every=2)
stream = job.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
stream.stateful_map("sum", lambda key, record, n: (n, n + record["amount"]), default=0).sink("out", discard())
run = MemoryRun(job, parallelism=2, take_over=True)
done = -1 if run.run.head.batch is None else run.run.head.batch
for number in range(done + 1, batches):
    if point == "before" and number == batches - 1:
        run.run.checkpoints.commit = lambda manifest: os.kill(os.getpid(), signal.SIGKILL)
    run.batch({"in": [{"user": f"u{n % 3}", "amount": n * number} for n in range(9)]})
if point == "end":
    run.close()
    sys.exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["file", "s3"])
def url(request, tmp_path) -> str:
    name = f"b7-{next(_fresh)}"
    return f"file://{tmp_path}/{name}" if request.param == "file" else request.getfixturevalue("seaweedfs").url(name)


def test_b7_recovery_from_the_store_alone(url, tmp_path):
    """Each life runs on a machine of its own, and dies after a commit or just before one."""

    def life(machine: Path, batches: int, point: str) -> int:
        command = [sys.executable, "-c", PROGRAM, url, str(machine), str(batches), point]
        return subprocess.run(command, check=False).returncode

    assert life(tmp_path / "machine-1", 3, "after") == -signal.SIGKILL
    assert StoredJob("orders", state=url).show().batch == 2
    assert life(tmp_path / "machine-2", 6, "before") == -signal.SIGKILL
    assert StoredJob("orders", state=url).show().batch == 4
    assert life(tmp_path / "machine-3", 8, "end") == 0
    stored = StoredJob("orders", state=url)
    expected = {f"u{u}": sum(n * number for n in range(u, 9, 3) for number in range(8)) for u in range(3)}
    assert dict(stored.scan("sum")) == expected
    assert (stored.show().batch, stored.show().event_count) == (7, 72)
    assert stored.verify().problems == ()
