"""Kill, pause, drain and add nodes of a fleet while a million events arrive from Kafka; each event counts once.

    make fleet-demo

starts Kafka, NATS and etcd on this machine and runs this program. To use servers of your own:

    python examples/fleet_demo.py --brokers localhost:9092 --cells etcd://localhost:2379/demo --inbox nats://localhost:4222/demo

Two producers write to a Kafka topic. A bridge, which is killed once, copies the records to the inbox of the fleet. Up to
four nodes, each with its own Spark, read the inbox. The last line is `fleet: exact` if the totals of every user equal an
independent count.
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

from tidewheel import StoredJob
from tidewheel.fleet import open_inbox

PROGRAM = Path(__file__).with_name("fleet_program.py")

JOB, SHARDS, USERS = "fleet-demo", 16, 5_000
LEASE = 5.0
PRODUCERS = ("p1", "p2")
TOPIC, PARTITIONS = "events", 4
BRIDGE = "bridge"
_CHUNK = 2_000


def events_of(producer: str, count: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Generate the events of a producer; they are the same in every call."""
    seed = PRODUCERS.index(producer) + 1
    for number in range(count):
        user = f"user-{(number * 7919 * seed + seed) % USERS}"
        yield user, {"user": user, "amount": number % 1000 - 300}


def produce(brokers: str, producer: str, count: int, seconds: float) -> None:
    """Write the events of a producer to the topic, spread over some seconds."""
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 50})
    began = time.monotonic()
    for sent, (user, event) in enumerate(events_of(producer, count)):
        client.produce(TOPIC, json.dumps(event), key=user)
        if sent % _CHUNK == 0:
            client.flush()
            time.sleep(max(0.0, began + seconds * sent / count - time.monotonic()))
    client.flush()


def create_topic(brokers: str) -> None:
    """Create the topic of the demo."""
    from confluent_kafka.admin import AdminClient, NewTopic

    AdminClient({"bootstrap.servers": brokers}).create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(60)


def until(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Wait for a condition; raise an error that names it after some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


class Fleet:
    """The processes of the demo, and the URLs that they share."""

    def __init__(self, folder: Path, cells: str, inbox: str) -> None:
        open_inbox(inbox, SHARDS).close()
        self.folder, self.cells, self.inbox = folder, cells, inbox
        self.state = f"file://{folder}/state"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        """The nodes by their names, and the bridge."""
        self.producers: list[subprocess.Popen[bytes]] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print what happens, with the time since the start."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def start_node(self, name: str) -> None:
        """Start a node in its own process group."""
        command = [sys.executable, "-m", "tidewheel", "node", "--job", str(PROGRAM)]
        command += ["--cells", self.cells, "--inbox", self.inbox, "--state", self.state, "--name", name, "--json"]
        command += ["--lease", f"{LEASE} s", "--master", "local[1]", "--local", f"{self.folder}/local"]
        command += ["--conf", "spark.driver.memory=768m"]
        self._start(name, command)

    def start_bridge(self, brokers: str) -> None:
        """Start the bridge that copies the topic to the inbox."""
        command = [sys.executable, "-m", "tidewheel", "bridge", "kafka", "--brokers", brokers, "--topic", TOPIC]
        self._start(BRIDGE, [*command, "--inbox", self.inbox])

    def start_producers(self, brokers: str, count: int, seconds: float) -> None:
        """Start the producers."""
        for producer in PRODUCERS:
            command = [sys.executable, __file__, "--produce", producer, "--events", str(count), "--brokers", brokers]
            self.producers.append(subprocess.Popen([*command, "--seconds", str(seconds)]))

    def events(self, name: str, event: str | None = None, after: float = 0.0) -> list[dict]:
        """Return the events that a node printed: of one kind, and after some time."""
        lines = self._log(name).read_text(errors="replace").splitlines() if self._log(name).exists() else []
        found = [json.loads(line) for line in lines if line.startswith('{"event"')]
        return [said for said in found if event in (None, said["event"]) and said["at"] > after]

    def shards(self, name: str) -> set[int]:
        """Return the shards that a node adopted most recently."""
        adopted = self.events(name, "adopted")
        return set(adopted[-1]["shards"]) if adopted else set()

    def wait_for_commits(self, names: str, after: float = 0.0, seconds: float = 120) -> None:
        """Wait until each of these nodes has committed a batch."""
        for name in names:
            until(
                lambda name=name: self.alive(name) and self.events(name, "batch", after), f"a commit of {name}", seconds
            )

    def first_commit_for(self, shards: set[int], after: float) -> float | None:
        """Return when a node that adopted one of these shards committed a batch after it."""
        times = []
        for name in self.nodes:
            for said in self.events(name, "adopted", after):
                if shards & set(said["shards"]):
                    times += [batch["at"] for batch in self.events(name, "batch", said["at"])][:1]
        return min(times, default=None)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a node, its JVM and its workers, or to the bridge."""
        os.killpg(self.nodes[name].pid, number)

    def ran(self, *arguments: str) -> str:
        """Run the tidewheel command."""
        command = [sys.executable, "-m", "tidewheel", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def counted(self) -> int:
        """Return the number of events in the state of all shards."""
        return sum(n for n, _ in self.totals().values())

    def totals(self) -> dict[str, tuple[int, int]]:
        """Read the number and sum of the events of each user from the stored state."""
        stored = StoredJob(JOB, state=self.state).scan("totals")
        return {user: (kept["n"], kept["total"]) for user, kept in stored}

    def published(self) -> dict[str, tuple[int, int]]:
        """Return the last total of each user in the output; raise an error if a row was published twice."""
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
        """Kill every process that still runs."""
        for process in self.nodes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for process in self.producers:
            process.kill()
            process.wait()

    def alive(self, name: str) -> bool:
        """Return True, or raise an error with the end of the log if a node or the bridge has ended."""
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


def show(fleet: Fleet, brokers: str, events: int, seconds: float) -> None:
    """Do all of this to a fleet while events arrive; raise an error unless each event is counted once."""
    create_topic(brokers)
    for name in "abc":
        fleet.start_node(name)
    fleet.say("three nodes start, each with a Spark of its own")
    for name in "abc":
        until(lambda name=name: fleet.alive(name) and fleet.events(name, "joined"), f"node {name} joins", 180)
    fleet.start_producers(brokers, events // len(PRODUCERS), seconds)
    fleet.start_bridge(brokers)
    fleet.say(f"two producers write {events:,} events to Kafka, a bridge copies them to the inbox")
    fleet.wait_for_commits("abc")
    fleet.say("all three have committed: " + ", ".join(f"{n} has {len(fleet.shards(n))} shards" for n in "abc"))

    fleet.signal(BRIDGE, signal.SIGKILL)
    fleet.nodes[BRIDGE].wait()
    fleet.start_bridge(brokers)
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
    until(lambda: fleet.alive("c") and fleet.events("c", "adopted", woken), "node c rejoins", 120)
    revoked = fleet.events("c", "revoked", paused)
    fleet.say(f"node c has rejoined{', after its commit was refused' if revoked else ''}")

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
    """Compare state and output of the fleet with an independent count."""
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
                f"the {name} of {len(wrong)} users is wrong: {user} has {found.get(user)}, expected {expected.get(user)}"
            )


def main() -> None:
    """Run the demo, or one of its producers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=80.0, help="over how long the events are spread")
    parser.add_argument("--brokers", required=True, help="the Kafka brokers")
    parser.add_argument("--cells", help="the URL for the cells of the fleet")
    parser.add_argument("--inbox", help="the URL for the inbox of the fleet")
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.produce:
        produce(given.brokers, given.produce, given.events, given.seconds)
        return
    with tempfile.TemporaryDirectory(prefix="fleet-demo-") as folder:
        fleet = Fleet(Path(folder), given.cells, given.inbox)
        try:
            show(fleet, given.brokers, given.events, given.seconds)
        finally:
            fleet.close()
    print("fleet: exact")


if __name__ == "__main__":
    main()
