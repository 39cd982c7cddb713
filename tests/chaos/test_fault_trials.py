"""Faults around a job: the JVM, a worker, a disk, a folder, a clock, another start. The outcome is that of a quiet run.

Each trial compares the final state and all output with an independent count of the input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import harness

SEED = 20261116
SMALL_DISK = "32m"


def ended_exactly(folder: Path, everything: list[tuple[str, int]], process, state: str | None = None) -> str:
    """Wait for the job's end, check the outcome, and return what it said on stderr."""
    status, _, err = harness.finish(process, seconds=400)
    assert status == 0, err[-3000:]
    harness.check_exact(folder, everything, state)
    return err


def kill(pid: int) -> None:
    """SIGKILL to a process, which may have ended by itself meanwhile."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A small disk of its own, which can be filled and made read-only."""
    if os.geteuid() != 0:
        pytest.skip("mounting a disk of limited size takes root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Callable[[], None]:
    """Leave no room on a disk; return what makes room again."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert shutil.disk_usage(disk).free == 0
    return filler.unlink


def set_read_only(disk: Path) -> Callable[[], None]:
    """Let nothing be written to a disk; return what ends that."""

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

    remount("ro")
    return lambda: remount("rw")


def told(process, *words: str) -> str:
    """Read what the program says on stderr up to a line that has all these words in it."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if all(word in line for word in words):
            return line
    raise AssertionError(f"the program ended without saying {words}: {''.join(lines)[-3000:]}")


def test_the_jvm_is_killed(tmp_path):
    everything = harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    process = harness.start(tmp_path, restarts="3")
    newest = 0
    for _ in range(2):
        # A commit of the JVM that runs now: those of the one before may not have been read yet.
        harness.until_commit(process, above=newest)
        java = harness.children(process.pid, "java")
        assert len(java) == 1
        kill(java[0])
        assert f"Spark's JVM, process {java[0]}, has ended by SIGKILL; restart 1 of 3" in told(process, "restart")
        newest = harness.newest_commit(tmp_path)
    ended_exactly(tmp_path, everything, process)


def test_the_jvm_is_killed_and_no_restart_was_asked_for(tmp_path):
    harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    process = harness.start(tmp_path)
    harness.until(process, "committed")
    kill(harness.children(process.pid, "java")[0])
    status, _, err = harness.finish(process)
    assert status == 3
    assert "of job 'chaos' failed: Spark's JVM, process" in err
    assert "Errno 111" not in err


def test_python_workers_are_killed_and_their_tasks_run_again(tmp_path):
    everything = harness.write_input(tmp_path, files=16, records=30, seed=SEED)
    process = harness.start(tmp_path)
    killed = 0
    while killed < 4:
        harness.until(process, "committed")
        daemons = [
            daemon
            for java in harness.children(process.pid, "java")
            for daemon in harness.children(java, "tidewheel._spark.daemon")
        ]
        # Small batches may run in processes of the driver's own instead of Spark's.
        own = harness.children(process.pid, "tidewheel._spark.worker_pool")
        for worker in (*own, *(worker for daemon in daemons for worker in harness.children(daemon))):
            kill(worker)
            killed += 1
    ended_exactly(tmp_path, everything, process)


@pytest.mark.slow
def test_a_worker_that_always_dies_is_reported_with_signal_and_memory(tmp_path):
    harness.write_input(tmp_path, files=4, records=10, seed=SEED)
    poisoned = tmp_path / "in" / "part-9999.json"
    poisoned.write_text('{"user": "poison", "amount": 1}\n')
    status, _, err = harness.finish(harness.start(tmp_path, poison="poison"))
    assert status == 3
    assert "the Python worker with process id" in err
    assert "was ended by SIGKILL; it had used up to" in err


@pytest.mark.slow
def test_the_local_folder_is_removed_under_a_run(tmp_path):
    everything = harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    process = harness.start(tmp_path, restarts="3")
    for _ in range(3):
        harness.until(process, "committed")
        shutil.rmtree(tmp_path / "local", ignore_errors=True)
    ended_exactly(tmp_path, everything, process)


@pytest.mark.slow
def test_the_local_disk_is_full_for_a_while(tmp_path, disk):
    everything = harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    process = harness.start(tmp_path, local=f"{disk}/local", restarts="50")
    harness.until(process, "committed")
    make_room = fill(disk)
    line = told(process, "restart")
    assert "full" in line or "No space left" in line
    make_room()
    ended_exactly(tmp_path, everything, process)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "words"), [(fill, "the disk is full"), (set_read_only, "ead-only")])
def test_the_disk_of_the_state_takes_nothing_for_a_while(tmp_path, disk, broken, words):
    everything = harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    process = harness.start(tmp_path, state=f"file://{disk}/state", restarts="50")
    harness.until(process, "committed")
    mend = broken(disk)
    assert words in told(process, "restart")
    mend()
    ended_exactly(tmp_path, everything, process, f"file://{disk}/state")


@pytest.mark.slow
def test_the_clocks_of_hosts_are_apart_and_jump(tmp_path):
    """Each life is a host: one an hour ahead, one an hour behind, one whose clock jumps at every look."""
    everything = harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    for clock in ("3600", "-3600", "0,3600,-3600,60"):
        process = harness.start(tmp_path, clock=clock, local=f"{tmp_path}/host{clock}")
        harness.until(process, "committed")
        harness.kill(process)
        harness.finish(process)
    ended_exactly(tmp_path, everything, harness.start(tmp_path))


@pytest.mark.slow
def test_of_two_simultaneous_starts_one_runs_and_the_other_names_it(tmp_path):
    everything = harness.write_input(tmp_path, files=20, records=30, seed=SEED)
    both = [harness.start(tmp_path, local=f"{tmp_path}/local-{number}") for number in range(2)]
    ends = [harness.finish(process, seconds=400) for process in both]
    assert sorted(status for status, _, _ in ends) == [0, 3], [err[-1000:] for _, _, err in ends]
    (refused,) = [err for status, _, err in ends if status == 3]
    (runner,) = [process for process, (status, _, _) in zip(both, ends, strict=True) if status == 0]
    assert "HeldError" in refused
    assert f"process {runner.pid}" in refused
    harness.check_exact(tmp_path, everything)


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True], ids=["to the driver", "to all its processes"])
def test_sigterm_in_the_middle_ends_the_run_in_order(tmp_path, whole_group):
    everything = harness.write_input(tmp_path, files=30, records=30, seed=SEED)
    process = harness.start(tmp_path)
    harness.until(process, "committed")
    if whole_group:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        os.kill(process.pid, signal.SIGTERM)
    status, out, err = harness.finish(process)
    assert status == 0, err[-3000:]
    assert "stopped" in out
    ended_exactly(tmp_path, everything, harness.start(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_1500_tiny_batches(tmp_path):
    everything = harness.write_input(tmp_path, files=1500, records=1, seed=SEED)
    status, out, err = harness.finish(harness.start(tmp_path), seconds=1100)
    assert status == 0, err[-3000:]
    assert out.count("committed") == 1501
    harness.check_exact(tmp_path, everything)
