"""A standby waits while another driver has the job, and takes over from a paused and from a killed driver."""

from __future__ import annotations

import os
import signal

from chaos import harness
from chaos.test_takeover import stopped
from support.waiting import eventually

SEED = 31
FENCED_OR_STOPPED = (0, 3)
"""The exit status of the replaced driver: it was waiting for data, or its commit was refused."""


def test_a_standby_takes_over_from_a_paused_and_a_killed_driver(tmp_path):
    everything = harness.write_input(tmp_path, files=4, records=20, seed=SEED)
    first = harness.start(tmp_path, "batch.ran=stop@4", bounded="no", lease="2 s")
    second = harness.start(tmp_path, bounded="no", local=f"{tmp_path}/local-2", **{"as": "standby"})
    harness.until(second, "phase standby")
    eventually(lambda: stopped(first.pid), "the pause of the first driver")
    harness.until(second, "committed")
    everything += harness.write_input(tmp_path, files=3, records=20, seed=SEED + 1, first=4)
    third = harness.start(tmp_path, local=f"{tmp_path}/local-3", **{"as": "standby"})
    harness.until(third, "phase standby")
    everything += harness.write_input(tmp_path, files=3, records=20, seed=SEED + 2, first=7)
    harness.until(second, "committed")
    harness.kill(second)
    harness.finish(second)
    status, out, err = harness.finish(third)
    assert status == 0, out + err[-3000:]
    assert "taken over from run" in err
    os.killpg(first.pid, signal.SIGCONT)
    status, out, err = harness.finish(first)
    assert status in FENCED_OR_STOPPED, out + err[-3000:]
    harness.check_exact(tmp_path, everything)
