"""Python workers killed by a signal: recorded by the process that forks them, reported by the driver."""

from __future__ import annotations

import os
import subprocess
import sys

from support.waiting import SOON
from tidewheel._spark.daemon import DEATHS
from tidewheel._spark.worker_deaths import described, last_death

FORKING = """
import os, signal, sys, time
from tidewheel._spark.daemon import watch_workers
watch_workers()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as Spark's daemon does
for how in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), int(how)) if int(how) else os._exit(3)
    while True:  # until the handler has taken note of it
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    print(pid)
"""


def forked(tmp_path, *ends: int) -> list[str]:
    file = tmp_path / "deaths"
    command = [sys.executable, "-c", FORKING, *map(str, ends)]
    done = subprocess.run(
        command, env={**os.environ, DEATHS: str(file)}, capture_output=True, text=True, check=True, timeout=SOON
    )
    lines = file.read_text().splitlines() if file.exists() else []
    assert [line.split()[0] for line in lines] == [
        pid for pid, how in zip(done.stdout.split(), ends, strict=True) if how
    ]
    return lines


def test_workers_that_a_signal_ends_are_recorded_and_others_not(tmp_path):
    lines = forked(tmp_path, 9, 0, 11)
    assert [line.split()[1] for line in lines] == ["9", "11"]
    assert all(int(line.split()[2]) > 1000 for line in lines)


def test_the_last_death_is_reported_with_signal_memory_and_advice(tmp_path, monkeypatch):
    (tmp_path / "deaths").write_text("1 11 1024\n4711 9 3145728\n")
    monkeypatch.setenv(DEATHS, str(tmp_path / "deaths"))
    assert last_death() == described("4711 9 3145728")
    assert last_death().startswith(
        "the Python worker with process id 4711 was ended by SIGKILL; it had used up to 3072 MB of memory; the kernel sends"
    )


def test_of_a_worker_on_another_host_the_log_of_its_executor_is_named(monkeypatch):
    monkeypatch.delenv(DEATHS, raising=False)
    assert last_death() == "a Python worker ended in the middle of a task; the log of its executor has more"
