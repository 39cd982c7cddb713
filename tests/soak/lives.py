"""Processes that are started again whenever they end, and what is known of them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from chaos.harness import children
from support.waiting import eventually

_AGAIN_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Life:
    """One process at a time, in a process group of its own; `commits` has the times of its commits and of its successors'."""

    def __init__(self, name: str, command: Callable[[bool], list[str]], cwd: Path, log: Path) -> None:
        """Take the function that returns the command; its argument says whether to take over from a run that lives."""
        self.name, self.log = name, log
        self._command, self._cwd = command, cwd
        self.process: subprocess.Popen[str] | None = None
        self.clock_files: list[Path] = []
        self.commits: list[float] = []
        self.exits: list[tuple[float, int]] = []
        self._stopping, self._replaced = threading.Event(), threading.Event()
        self._take_over = False
        self._supervisor: threading.Thread | None = None

    def start(self) -> None:
        """Keep a process running from now on."""
        self._stopping.clear()
        self._supervisor = threading.Thread(target=self._supervise, name=f"life of {self.name}", daemon=True)
        self._supervisor.start()

    def stop(self, number: int = signal.SIGTERM, seconds: float = 120) -> None:
        """Send a signal to the process, wait for its end, and start no other."""
        self._stopping.set()
        with contextlib.suppress(AssertionError):
            self.signal(number)
            eventually(lambda: self.process is None or self.process.poll() is not None, self.name, seconds)
        if self.process is not None:
            _signal(self.process, signal.SIGCONT)
            _signal(self.process, signal.SIGKILL)
        if self._supervisor is not None:
            self._supervisor.join()

    def signal(self, number: int) -> None:
        """Send a signal to the process and to all that it started, or for SIGTERM and SIGINT to the process alone."""
        if self.process is not None and self.process.poll() is None:
            _signal(self.process, number)

    def kill_worker(self, draw: random.Random) -> bool:
        """Kill one of the Python processes that run tasks; return whether there was one."""
        if self.process is None:
            return False
        found, todo = [], [self.process.pid]
        while todo:
            below = children(todo.pop())
            todo += below
            found += [pid for pid in below if b"python" in _command_of(pid).partition(b"\0")[0]]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(found), signal.SIGKILL)
        return bool(found)

    def overtaken(self) -> subprocess.Popen[str] | None:
        """Pause the process, have another take over from it, and return the paused one."""
        old = self.process
        if old is None:
            return None
        _signal(old, signal.SIGSTOP)
        self._take_over = True
        self._replaced.set()
        return old

    def commits_after(self, at: float) -> bool:
        return bool(self.commits) and self.commits[-1] > at

    def wait_for_commit(self, after: float, seconds: float) -> bool:
        """Return whether there was a commit after that time, waiting for so long."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.commits_after(after), f"a commit of {self.name}", seconds)
        return self.commits_after(after)

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            process = self._spawn()
            while process.poll() is None and not self._replaced.is_set():
                time.sleep(0.1)
            if self._replaced.is_set():
                self._replaced.clear()
                continue
            self.exits.append((time.monotonic(), process.returncode))
            with self.log.open("a") as log:
                log.write(f"--- {time.strftime('%H:%M:%S')} {self.name} ended with {process.returncode}\n")
            self._stopping.wait(_AGAIN_S)

    def _spawn(self) -> subprocess.Popen[str]:
        command = self._command(self._take_over)
        self._take_over = False
        with self.log.open("a") as log:
            log.write(f"--- {time.strftime('%H:%M:%S')} {self.name} starts\n")
            log.flush()
            self.process = subprocess.Popen(
                command,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        return self.process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("committed") or '"event": "batch"' in line:
                self.commits.append(time.monotonic())
            else:
                with self.log.open("a") as log:
                    log.write(line)


def _signal(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number in (signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def used(groups: dict[int, str]) -> dict[str, tuple[float, int, float]]:
    """Return memory in MB, open files and seconds of CPU of the process groups, each summed over its living processes."""
    found = dict.fromkeys(groups.values(), (0.0, 0, 0.0))
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            name = groups.get(int(fields[2]))
            if name is None:
                continue
            proportional = re.search(r"^Pss: +(\d+)", stat.with_name("smaps_rollup").read_text(), re.M)
            handles = len(os.listdir(stat.with_name("fd")))
        except (OSError, ValueError):
            continue  # It has ended meanwhile.
        memory, files, seconds = found[name]
        found[name] = (
            memory + (int(proportional[1]) / 1024 if proportional else 0.0),
            files + handles,
            seconds + (int(fields[11]) + int(fields[12])) / _TICKS,
        )
    return found


def machine_cpu() -> float:
    """Return the seconds of CPU that all processes of the machine have spent, summed over its cores."""
    user, nice, system, _, _, irq, softirq, *_ = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, softirq))) / _TICKS


def files_below(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def settings_command(python: str, module: str, settings: dict[str, object]) -> list[str]:
    return [python, "-m", module, json.dumps(settings)]
