"""Start, kill and check the chaos program."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from support.internals import open_store, states
from tidewheel.checkpoints import StreamCheckpoints

PROGRAM = Path(__file__).with_name("program.py")


def write_input(folder: Path, files: int, records: int, seed: int, first: int = 0) -> list[tuple[str, int]]:
    """Write the input files, numbered from `first` on, and return all their records."""
    draw = random.Random(seed)
    everything = []
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        part = [(f"user-{draw.randrange(40)}", draw.randrange(-50, 100)) for _ in range(records)]
        everything += part
        lines = "".join(json.dumps({"user": user, "amount": amount}) + "\n" for user, amount in part)
        path = folder / "in" / f"part-{number:04d}.json"
        # Spark takes no notice of a name that begins so; a job that runs sees the file when it is whole.
        unready = path.with_name(f"_{path.name}")
        unready.write_text(lines)
        os.utime(unready, (1_700_000_000 + number, 1_700_000_000 + number))
        unready.rename(path)
    return everything


def points_of_a_run() -> list[str]:
    """Return the fault points that a run passes, as a process of its own knows them: tests declare points too."""
    said = subprocess.run(
        [sys.executable, "-c", "import tidewheel._spark.driver, tidewheel._core.faults as f; print(*f.POINTS)"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Resharding, runs that are over, inboxes, the connectors, idle jobs and jobs with pages have tests of their own.
    others = (
        "chain.removing",
        "commit.skipped",
        "commit.page",
        "reshard.",
        "inbox.",
        "postgres.",
        "delta.",
        "held.",
        "table.",
        "tables.",
        "kafka.",
        "nats.",
        "mqtt.",
    )
    return [name for name in said.stdout.split() if not name.startswith(others)]


def start(folder: Path, faults: str = "", program: Path = PROGRAM, **options: str) -> subprocess.Popen[str]:
    """Start the program in a process group of its own."""
    arguments = [f"{name}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [sys.executable, str(program), str(folder), *arguments],
        env={**os.environ, "TIDEWHEEL_FAULTS": faults},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str, str]:
    """Wait for the end and return exit status, output and errors."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        out, err = process.communicate()
        raise AssertionError(f"the program did not end within {seconds} s\n{out}\n{err[-3000:]}") from None
    return process.returncode, out, err


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the whole process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def until(process: subprocess.Popen[str], word: str) -> str:
    """Read the program's output up to a line that begins with a word; fail if it ends before."""
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError(f"the program ended before it said {word}: {process.stderr.read()[-2000:]}")


def until_commit(process: subprocess.Popen[str], above: int) -> int:
    """Read the program's output up to a commit with a higher number, whatever it said before; return its number."""
    while (number := int(until(process, "committed").split()[1])) <= above:
        pass
    return number


def newest_commit(folder: Path) -> int:
    """Return the number of the newest record of the job's chain."""
    return StreamCheckpoints(open_store(f"file://{folder}/state"), "chaos").latest().sequence


def children(pid: int, name: str = "") -> list[int]:
    """Return the processes that a process has started, those whose command has a name in it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = stat.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue  # It has ended meanwhile.
        if parent == pid and name in command:
            found.append(int(stat.parent.name))
    return found


def rows(folder: Path) -> list[dict]:
    """Return all rows of an output folder."""
    found: list[dict] = []
    for path in sorted(folder.glob("*.json")):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    for path in sorted(folder.glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    return found


def check_exact(folder: Path, everything: list[tuple[str, int]], state: str | None = None) -> None:
    """Compare output and final state with a count of the input that knows nothing of Tidewheel."""
    counts, totals, bands = Counter(), Counter(), Counter()
    for user, amount in everything:
        counts[user] += 1
        totals[user] += amount
        bands[amount % 5] += 1
    numbered = rows(folder / "out" / "numbered")
    assert sorted((row["user"], row["n"]) for row in numbered) == sorted(
        (user, n) for user, last in counts.items() for n in range(1, last + 1)
    )
    assert {row["user"]: row["total"] for row in numbered if row["n"] == counts[row["user"]]} == dict(totals)
    assert Counter((row["key"], row["seen"]) for row in rows(folder / "out" / "bands")) == Counter(
        (key, n) for key, last in bands.items() for n in range(1, last + 1)
    )
    last_totals: dict[str, dict] = {}
    for row in rows(folder / "out" / "totals"):
        if row["n"] >= last_totals.get(row["user"], {"n": 0})["n"]:
            assert row["n"] != last_totals.get(row["user"], {"n": 0})["n"], "a total was published twice"
            last_totals[row["user"]] = row
    assert {user: (row["total"], row["n"]) for user, row in last_totals.items()} == {
        user: (totals[user], counts[user]) for user in counts
    }
    check_state(state or f"file://{folder}/state", counts, totals)


def check_state(url: str, counts: Counter, totals: Counter) -> None:
    import msgspec

    store = open_store(url)
    newest = StreamCheckpoints(store, "chaos").latest()
    held = states(store, newest)
    assert {key: msgspec.msgpack.decode(raw) for key, raw in held["number"].items()} == {
        user: [counts[user], totals[user]] for user in counts
    }
    assert newest.event_count == sum(counts.values())
