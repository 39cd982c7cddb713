"""Measure the time from the death of a driver to the next commit of its standby, with a lease of 5 seconds, while data arrives.

    python -m benchmarks.standby [--kills 3] [--rows 20000] [--keys 50000] [--lease "5 s"]

A job reads files that arrive all the time, and a standby waits. The driver is killed with SIGKILL several times, and finally only
paused; each time a new standby starts. Where the system allows it, each driver has its own process namespace, so its standby
sees it as a driver on another machine: the standby cannot check the process and waits for the lease. After the paused driver has
continued, the output is compared with a plain count. `takeover_s` is the longest time from a kill or pause to the next commit of
a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

from benchmarks.switch import build, check, commits_of, write_input

from tidewheel import RunOptions

_APART = ["unshare", "--pid", "--fork", "--mount-proc"]


def child(folder: Path, lease: str) -> None:
    """Wait for the job and run it; print when the program waits, and each commit."""
    options = RunOptions(
        master="local[2]",
        local=f"{folder}/local-{time.time_ns()}",
        lease=lease,
        on_phase=lambda phase: print(f"phase {phase}", flush=True),
        progress=lambda batch: print(f"committed {batch.sequence}", flush=True),
    )
    build(folder).standby(parallelism=2, options=options)


def can_be_apart() -> bool:
    """Return whether processes can have their own namespace."""
    return shutil.which(_APART[0]) is not None and not subprocess.run([*_APART, "true"], capture_output=True).returncode


def start(folder: Path, lease: str, apart: bool) -> subprocess.Popen[str]:
    """Start a child in its own process group."""
    command = [sys.executable, "-m", "benchmarks.standby", "--child", "--folder", str(folder), "--lease", lease]
    return subprocess.Popen(
        [*(_APART if apart else []), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def until(process: subprocess.Popen[str], word: str) -> None:
    """Wait for a line of a child."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return
    raise SystemExit(f"a program ended before it printed {word!r}")


def next_commit(folder: Path, after: int) -> float:
    """Return the seconds from a time in ns until the next batch that a different run committed."""
    batches = [state for state in commits_of(folder) if state.kind == "batch"]
    dead = [state for state in batches if state.id.created_at < after][-1].run
    taken = next(state for state in batches if state.run != dead and state.id.created_at > after)
    return (taken.id.created_at - after) / 1e9


def produce(folder: Path, rows: int, keys: int, done: threading.Event) -> None:
    """Write a file twice a second."""
    for number in count(1):
        write_input(folder, [number], rows, keys)
        if done.wait(0.5):
            return


def main() -> None:
    """Print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--lease", default="5 s")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=50_000)
    given = parser.parse_args()
    if given.child:
        child(given.folder, given.lease)
        return
    apart, found = can_be_apart(), {}
    with tempfile.TemporaryDirectory(prefix="tidewheel-standby-") as name:
        folder, done = Path(name), threading.Event()
        write_input(folder, [0], given.rows, given.keys)
        active = start(folder, given.lease, apart)
        until(active, "committed")
        producer = threading.Thread(target=produce, args=(folder, given.rows, given.keys, done))
        producer.start()
        paused = None
        for number in range(given.kills + 1):
            waiting = start(folder, given.lease, apart)
            until(waiting, "phase standby")
            until(active, "committed")
            at, paused = time.time_ns(), active if number == given.kills else None
            os.killpg(active.pid, signal.SIGKILL if paused is None else signal.SIGSTOP)
            until(waiting, "committed")
            found["paused" if paused else f"killed {number + 1}"] = next_commit(folder, at)
            active = waiting
        assert paused is not None
        os.killpg(paused.pid, signal.SIGCONT)
        paused.communicate()
        until(active, "committed")
        done.set()
        producer.join()
        # The output of whole batches is complete when the driver has stopped gracefully.
        subprocess.run(
            [sys.executable, "-m", "tidewheel", "stop", "switched", "--state", f"file://{folder}/state"], check=True
        )
        active.communicate()
        check(folder, given.rows, given.keys)
    where = "another process namespace" if apart else "the same machine, where a dead process is noticed at once"
    print(f"lease {given.lease}; the driver is in {where}")
    for how, seconds in found.items():
        print(f"{how:<10} {seconds:6.2f} s to the next commit")
    print("output: each row once, as in a plain count")
    result = {"takeover_s": round(max(found.values()), 2), "paused_s": round(found["paused"], 2), "exact": 1}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
