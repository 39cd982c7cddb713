"""A fleet that is killed, drained, joined and paused while a million events come from Kafka, and counts each of them once.

    make fleet-demo

Two producers write to a Kafka topic. A bridge, which is killed once, carries the records to the fleet's inbox in NATS. Up
to four nodes, each with a Spark of its own, read it; their cells are in etcd. All are real processes on this machine. The
last line is `fleet: exact` if the totals of every user equal those of a count that knows nothing of Tidewheel.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from java_archive import java_options, prepare  # noqa: E402
from kafka_server import Kafka, running_kafka  # noqa: E402
from nats_server import running_nats  # noqa: E402
from servers import running_etcd  # noqa: E402
from tidewheel import StoredJob  # noqa: E402
from tidewheel.fleet import open_inbox  # noqa: E402

JOB, SHARDS, USERS = "fleet-demo", 16, 5_000
LEASE = 5.0
PRODUCERS = ("p1", "p2")
TOPIC, PARTITIONS = "events", 4
BRIDGE = "bridge"
_CHUNK = 2_000


def events_of(producer: str, count: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Give the events of a producer: the same ones whoever asks."""
    seed = PRODUCERS.index(producer) + 1
    for number in range(count):
        user = f"user-{(number * 7919 * seed + seed) % USERS}"
        yield user, {"user": user, "amount": number % 1000 - 300}


def produce(brokers: str, producer: str, count: int, seconds: float) -> None:
    """Write a producer's events to the topic, spread over some time."""
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 50})
    began = time.monotonic()
    for sent, (user, event) in enumerate(events_of(producer, count)):
        client.produce(TOPIC, json.dumps(event), key=user)
        if sent % _CHUNK == 0:
            client.flush()
            time.sleep(max(0.0, began + seconds * sent / count - time.monotonic()))
    client.flush()


def until(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Wait for something; fail with its name if it does not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


class Fleet:
    """The processes of the demo, and where everything is."""

    def __init__(self, folder: Path, cells: str, inbox: str) -> None:
        open_inbox(inbox, SHARDS).close()
        self.folder, self.cells, self.inbox = folder, cells, inbox
        self.state = f"file://{folder}/state"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        """The nodes by their names, and the bridge."""
        self.producers: list[subprocess.Popen[bytes]] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Tell what happens, and when."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def start_node(self, name: str) -> None:
        """Start a node in a process group of its own."""
        command = [sys.executable, "-m", "tidewheel", "node", "--job", str(ROOT / "examples" / "fleet_program.py")]
        command += ["--cells", self.cells, "--inbox", self.inbox, "--state", self.state, "--name", name, "--json"]
        command += ["--lease", f"{LEASE} s", "--master", "local[1]", "--local", f"{self.folder}/local"]
        command += ["--conf", "spark.driver.memory=768m"]
        command += ["--conf", f"spark.driver.extraJavaOptions={java_options()}"]
        self._start(name, command)

    def start_bridge(self, brokers: str) -> None:
        """Start the bridge from the topic to the inbox."""
        command = [sys.executable, "-m", "tidewheel", "bridge", "kafka", "--brokers", brokers, "--topic", TOPIC]
        self._start(BRIDGE, [*command, "--inbox", self.inbox])

    def start_producers(self, brokers: str, count: int, seconds: float) -> None:
        """Start the producers."""
        for producer in PRODUCERS:
            command = [sys.executable, __file__, "--produce", producer, "--events", str(count), "--brokers", brokers]
            self.producers.append(subprocess.Popen([*command, "--seconds", str(seconds)]))

    def told(self, name: str, event: str | None = None, after: float = 0.0) -> list[dict]:
        """Return what a node has said, of one kind and after some time."""
        lines = self._log(name).read_text(errors="replace").splitlines() if self._log(name).exists() else []
        found = [json.loads(line) for line in lines if line.startswith('{"event"')]
        return [said for said in found if event in (None, said["event"]) and said["at"] > after]

    def shards(self, name: str) -> set[int]:
        """Return the shards that a node adopted last."""
        adopted = self.told(name, "adopted")
        return set(adopted[-1]["shards"]) if adopted else set()

    def wait_for_commits(self, names: str, after: float = 0.0, seconds: float = 120) -> None:
        """Wait until each of these nodes has committed a batch."""
        for name in names:
            until(
                lambda name=name: self.alive(name) and self.told(name, "batch", after), f"a commit of {name}", seconds
            )

    def first_commit_for(self, shards: set[int], after: float) -> float | None:
        """Return when a node that adopted one of these shards committed a batch after it."""
        times = []
        for name in self.nodes:
            for said in self.told(name, "adopted", after):
                if shards & set(said["shards"]):
                    times += [batch["at"] for batch in self.told(name, "batch", said["at"])][:1]
        return min(times, default=None)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a node, its JVM and its workers, or to the bridge."""
        os.killpg(self.nodes[name].pid, number)

    def ran(self, *arguments: str) -> str:
        """Run the tidewheel command."""
        command = [sys.executable, "-m", "tidewheel", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def counted(self) -> int:
        """Return how many events the state of all shards counts."""
        return sum(n for n, _ in self.totals().values())

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return number and sum of each user's events, from the store alone."""
        stored = StoredJob(JOB, state=self.state).scan("totals")
        return {user: (kept["n"], kept["total"]) for user, kept in stored}

    def published(self) -> dict[str, tuple[int, int]]:
        """Return each user's last total in the output; fail if one was published twice."""
        seen: set[tuple[str, int]] = set()
        last: dict[str, tuple[int, int]] = {}
        for path in (self.folder / "out").glob("*.json"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                if (row["user"], row["n"]) in seen:
                    raise RuntimeError(f"{row} was published twice")
                seen.add((row["user"], row["n"]))
                last[row["user"]] = max(last.get(row["user"], (0, 0)), (row["n"], row["total"]))
        return last

    def close(self) -> None:
        """End every process that is left."""
        for process in self.nodes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for process in self.producers:
            process.kill()
            process.wait()

    def alive(self, name: str) -> bool:
        """Return True; fail with the end of its log if a node or the bridge has ended."""
        if self.nodes[name].poll() is not None:
            raise RuntimeError(f"{name} ended:\n{self._log(name).read_text(errors='replace')[-3000:]}")
        return True

    def _start(self, name: str, command: list[str]) -> None:
        with self._log(name).open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "FLEET_OUT": f"{self.folder}/out"},
            )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def show(fleet: Fleet, kafka: Kafka, events: int, seconds: float) -> None:
    """Let everything happen to a fleet while events flow; raise if one event is not counted exactly once."""
    kafka.create(TOPIC, PARTITIONS)
    for name in "abc":
        fleet.start_node(name)
    fleet.say("three nodes start, each with a Spark of its own")
    for name in "abc":
        until(lambda name=name: fleet.alive(name) and fleet.told(name, "joined"), f"node {name} joins", 180)
    fleet.start_producers(kafka.brokers, events // len(PRODUCERS), seconds)
    fleet.start_bridge(kafka.brokers)
    fleet.say(f"two producers write {events:,} events to {type(kafka).__name__}, a bridge carries them to the inbox")
    fleet.wait_for_commits("abc")
    fleet.say("all three have committed: " + ", ".join(f"{n} has {len(fleet.shards(n))} shards" for n in "abc"))

    fleet.signal(BRIDGE, signal.SIGKILL)
    fleet.nodes[BRIDGE].wait()
    fleet.start_bridge(kafka.brokers)
    fleet.say("the bridge is killed (SIGKILL) and started again")

    lost, killed = fleet.shards("b"), time.time()
    fleet.signal("b", signal.SIGKILL)
    fleet.say(f"node b is killed (SIGKILL); it had {len(lost)} shards")
    until(lambda: fleet.first_commit_for(lost, killed), "a commit by a new owner", 120)
    took = (fleet.first_commit_for(lost, killed) or 0.0) - killed
    fleet.say(f"a new owner has committed for its shards, {took:.1f} s after the kill (lease {LEASE:g} s)")

    fleet.start_node("d")
    fleet.wait_for_commits("d", seconds=180)
    fleet.say(f"node d has joined, and has {len(fleet.shards('d'))} shards")

    paused = time.time()
    fleet.signal("c", signal.SIGSTOP)
    fleet.say("node c is paused (SIGSTOP)")
    until(lambda: fleet.first_commit_for(fleet.shards("c"), paused), "a commit for the paused node's shards", 120)
    fleet.signal("c", signal.SIGCONT)
    woken = time.time()
    fleet.say("others work on its shards; node c wakes up")
    until(lambda: fleet.alive("c") and fleet.told("c", "adopted", woken), "node c begins anew", 120)
    revoked = fleet.told("c", "revoked", paused)
    fleet.say(f"node c has begun anew{', after its commit was refused' if revoked else ''}")

    fleet.say(fleet.ran("fleet", "drain", "a", "--job", JOB, "--cells", fleet.cells, "--wait", "2 min").strip())
    for producer in fleet.producers:
        if producer.wait() != 0:
            raise RuntimeError("a producer failed")
    fleet.say("all events are sent")
    until(lambda: fleet.alive(BRIDGE) and fleet.counted() >= events, "all events are counted", 300)
    where = ("--cells", fleet.cells, "--inbox", fleet.inbox, "--state", fleet.state)
    print(fleet.ran("fleet", "status", JOB, *where))
    for name in ("c", "d", BRIDGE):
        fleet.signal(name, signal.SIGTERM)
    for name in ("a", "c", "d", BRIDGE):
        fleet.nodes[name].wait(60)

    check(fleet, events)
    fleet.say(f"state and output of {len(fleet.totals()):,} users equal an independent count of {events:,} events")


def check(fleet: Fleet, events: int) -> None:
    """Compare what the fleet's state and output say with a count that knows nothing of Tidewheel."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for producer in PRODUCERS:
        for user, event in events_of(producer, events // len(PRODUCERS)):
            counts[user] += 1
            sums[user] += int(str(event["amount"]))
    expected = {user: (n, sums[user]) for user, n in counts.items()}
    for name, found in (("state", fleet.totals()), ("output", fleet.published())):
        wrong = sorted(user for user in expected.keys() | found.keys() if expected.get(user) != found.get(user))
        if wrong:
            user = wrong[0]
            raise RuntimeError(
                f"the {name} of {len(wrong)} users is wrong: {user} has {found.get(user)}, counted were {expected.get(user)}"
            )


def main() -> None:
    """Run the demo, or a producer of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=80.0, help="over how long the events are spread")
    parser.add_argument("--produce")
    parser.add_argument("--brokers")
    given = parser.parse_args()
    if given.produce:
        produce(given.brokers, given.produce, given.events, given.seconds)
        return
    with tempfile.TemporaryDirectory(prefix="fleet-demo-") as name:
        folder = Path(name)
        prepare()
        with (
            running_etcd(folder / "etcd") as etcd,
            running_nats(folder / "nats") as nats,
            running_kafka(folder / "kafka") as kafka,
        ):
            fleet = Fleet(folder, etcd.url("fleet"), nats.url("events"))
            try:
                show(fleet, kafka, given.events, given.seconds)
            finally:
                fleet.close()
    print("fleet: exact")


if __name__ == "__main__":
    main()
