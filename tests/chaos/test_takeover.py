"""Two drivers of one job: the second is refused, or takes over and fences the first, even if the first was paused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from chaos import harness
from support.waiting import eventually

SEED = 7


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_second_driver_is_refused_with_the_name_of_the_holder(tmp_path):
    files = 8
    everything = harness.write_input(tmp_path, files=files, records=20, seed=SEED)
    # It has the job until it is told to stop, however long the second one takes to start.
    first = harness.start(tmp_path, bounded="no")
    harness.until(first, "committed")
    status, _, err = harness.finish(harness.start(tmp_path, local=f"{tmp_path}/local-2"))
    assert status == 3
    assert "HeldError" in err
    assert f"process {first.pid}" in err
    assert "--take-over" in err
    for _ in range(files - 1):
        harness.until(first, "committed")
    os.kill(first.pid, signal.SIGINT)
    status, _, err = harness.finish(first)
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)


@pytest.mark.parametrize("point", ["batch.ran", "publish.before-sink"])
def test_a_paused_driver_that_wakes_up_is_fenced(tmp_path, point):
    """The first is stopped in the middle of a batch or of publishing; the second takes over; the first wakes up."""
    everything = harness.write_input(tmp_path, files=12, records=20, seed=SEED)
    first = harness.start(tmp_path, f"{point}=stop@3")
    eventually(lambda: stopped(first.pid), f"the pause at {point}")
    status, _, err = harness.finish(harness.start(tmp_path, local=f"{tmp_path}/local-2", take_over="yes"))
    assert status == 0, err[-3000:]
    os.killpg(first.pid, signal.SIGCONT)
    status, out, err = harness.finish(first)
    assert status == 3, out + err[-3000:]
    assert "FencedError" in err
    assert "taken over by" in err
    harness.check_exact(tmp_path, everything)
