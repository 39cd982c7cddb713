"""A program replaces a running one under load, and is killed at every step. Output and state equal those of one quiet run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chaos import harness

SEED = 29
FENCED_OR_STOPPED = (0, 3)
"""The exit status of the replaced program: it was waiting for data, or its commit was refused."""

SWITCH = {"as": "switch"}

UNCLAIMED = ("switch.forked", "switch.caught-up")


def points_of_a_switch() -> list[str]:
    """Return the fault points of a switch, as a process of its own knows them."""
    said = subprocess.run(
        [sys.executable, "-c", "import tidewheel._replay.switch_run, tidewheel._core.faults as f; print(*f.POINTS)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in said.stdout.split() if name.startswith("switch.")] + ["start.claimed"]


def test_a_switch_under_load_continues_between_two_commits_and_back(tmp_path):
    everything = harness.write_input(tmp_path, files=10, records=200, seed=SEED)
    first = harness.start(tmp_path, bounded="no")
    harness.until(first, "committed")
    second = harness.start(tmp_path, bounded="no", **SWITCH, local=f"{tmp_path}/local-2")
    assert "same" in harness.until(second, "compared")
    everything += harness.write_input(tmp_path, files=4, records=200, seed=SEED + 1, first=10)
    harness.until(second, "committed")
    assert harness.finish(first)[0] in FENCED_OR_STOPPED
    everything += harness.write_input(tmp_path, files=4, records=200, seed=SEED + 2, first=14)
    back = harness.start(tmp_path, **SWITCH, local=f"{tmp_path}/local-3")
    status, out, err = harness.finish(back)
    assert status == 0, err[-3000:]
    assert "compared" in out
    assert harness.finish(second)[0] in FENCED_OR_STOPPED
    harness.check_exact(tmp_path, everything)
    assert not [path for path in (tmp_path / "state").glob("chaos=2F*/**/*") if path.is_file()], "the forks are removed"


@pytest.mark.parametrize("points", [["switch.copied"], pytest.param(points_of_a_switch(), marks=pytest.mark.slow)])
def test_a_switch_killed_at_any_step_leaves_an_exact_outcome(tmp_path, points):
    """One job, one switch per step that is killed there: the running program goes on, or was fenced and starts again."""
    everything, running, local = [], None, f"{tmp_path}/local-2"
    for number, point in enumerate(points):
        everything += harness.write_input(tmp_path, files=3, records=30, seed=SEED + number, first=4 * number)
        if running is None:
            running = harness.start(tmp_path, bounded="no")
        harness.until(running, "committed")
        killed = harness.start(tmp_path, f"{point}=kill", bounded="no", **SWITCH, local=local)
        status, out, err = harness.finish(killed)
        assert status == -9, f"{point}: ended with {status}\n{out}\n{err[-3000:]}"
        # With new data, a program that was fenced finds out.
        everything += harness.write_input(tmp_path, files=1, records=30, seed=SEED - number, first=4 * number + 3)
        if point in UNCLAIMED:
            assert running.poll() is None, f"{point}: the job goes on"
        else:
            assert harness.finish(running)[0] in FENCED_OR_STOPPED
            running = None
    status, _, err = harness.finish(harness.start(tmp_path))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)
