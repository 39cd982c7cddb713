"""Measure cells: the cost of a read, the time until a change reaches 100 readers in another process, and the time of a failover.

The benchmark starts its own etcd servers. The last line is one JSON object: read_us, fanout_p50_ms, failover_s.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from servers.stores import running_etcd  # noqa: E402
from tidewheel import cells  # noqa: E402

READERS, CHANGES = 100, 60


def read_us() -> float:
    """Return the microseconds of one read, the best of five rounds."""
    with cells.open("memory:") as connection:
        cell = connection.writer("x", dict[str, float])
        cell.write({"threshold": 0.5})
        return min(timeit.repeat(cell.read, number=200_000, repeat=5)) / 200_000 * 1e6


def follow(url: str) -> None:
    """Run 100 readers, each with its own cell and thread, and record when each change reaches them. For the second process."""
    arrived: dict[int, list[float]] = {number: [] for number in range(CHANGES)}
    lock = threading.Lock()
    with cells.open(url) as connection:
        readers = [connection.reader("x", int) for _ in range(READERS)]

        def watch(reader: cells.CellReader[int]) -> None:
            for snapshot in reader.watch(since=0):
                now = time.monotonic()
                assert snapshot.value is not None
                with lock:
                    arrived[snapshot.value].append(now)
                if snapshot.value == CHANGES - 1:
                    return

        threads = [threading.Thread(target=watch, args=(reader,)) for reader in readers]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for thread in threads:
            thread.join()
    print(json.dumps(arrived))


def fanout_ms(url: str) -> list[float]:
    """Return for each change the milliseconds from the start of the write until the last of the 100 readers has it."""
    sent = []
    follower = subprocess.Popen([sys.executable, __file__, "follow", url], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert follower.stdout.readline() == "ready\n"
    with cells.open(url) as connection:
        writer = connection.writer("x", int)
        for number in range(CHANGES):
            sent.append(time.monotonic())
            writer.write(number)
            time.sleep(0.05)
    arrived = json.loads(follower.communicate()[0])
    assert all(len(arrived[str(number)]) == READERS for number in range(CHANGES)), "a reader missed a change"
    return [(max(arrived[str(number)]) - sent[number]) * 1e3 for number in range(CHANGES)]


def failover_s(folder: Path) -> float:
    """Kill the leader of three servers under four writers; return the longest time without an acknowledged write."""
    with running_etcd(folder, members=3, election_ms=1000) as cluster:
        done, stop = [], threading.Event()

        def write(connection: cells.Connection) -> None:
            writer = connection.writer("x", int)
            while not stop.is_set():
                writer.update(lambda value: (value or 0) + 1, timeout="30 s")
                done.append(time.monotonic())

        connections = [cells.open(cluster.url(), timeout="30 s") for _ in range(4)]
        threads = [threading.Thread(target=write, args=(connection,)) for connection in connections]
        for thread in threads:
            thread.start()
        time.sleep(2)
        cluster.kill(cluster.leader())
        time.sleep(5)
        stop.set()
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()
    return max(later - earlier for earlier, later in itertools.pairwise(sorted(done)))


def write_ms(url: str) -> float:
    """Return the median milliseconds of a write."""
    with cells.open(url) as connection:
        writer = connection.writer("w", int)
        times = []
        for number in range(100):
            began = time.perf_counter()
            writer.write(number)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        read = read_us()
        print(f"read: {read:.3f} us, no network")
        print(f"write, memory: {write_ms('memory:'):.2f} ms; file: {write_ms(str(folder / 'cells')):.2f} ms")
        with running_etcd(folder / "one") as etcd:
            print(f"write, etcd with one member: {write_ms(etcd.url()):.2f} ms")
            fanout = fanout_ms(etcd.url())
            p50 = statistics.median(fanout)
            print(
                f"change to the last of {READERS} readers in another process: p50 {p50:.1f} ms, max {max(fanout):.1f} ms"
            )
        failover = failover_s(folder / "three")
        print(
            f"leader of three killed (election timeout 1 s): longest gap between acknowledged writes {failover:.2f} s"
        )
    print(json.dumps({"read_us": round(read, 3), "fanout_p50_ms": round(p50, 1), "failover_s": round(failover, 2)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(sys.argv[2])
    else:
        main()
