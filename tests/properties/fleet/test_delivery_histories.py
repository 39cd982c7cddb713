"""Random histories of producers and an inbox: every acknowledged event is read once, in order within a producer and key.

Errors come before and after an append takes effect; producers are killed and come back by replaying, with numbers of their
own, as somebody new, or as a bridge that begins at the offsets that Kafka knows; they fork; the inbox is trimmed behind its
reader. Appends take their time, so that the next rounds are cut behind one that fails. A failure names its seed.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict

import msgspec
import pytest

from servers.nats_server import running_nats
from support.internals import from_stored
from support.memory_inbox import MemoryInbox, in_a_child
from support.memory_topic import Killed, MemoryTopic, to_memory
from tidewheel.errors import TidewheelError
from tidewheel.fleet import Inbox, InboxError, InboxUnavailable, NotTaken, Router
from tidewheel.fleet._inbox import decode_events
from tidewheel.fleet._inbox.file import FileInbox
from tidewheel.fleet._inbox.with_nats.inbox import NatsInbox
from tidewheel.fleet._nodes.with_kafka.bridge import BridgeSettings, KafkaBridge

SHARDS = 4


class Reader:
    """Reads on, and knows what it has read."""

    def __init__(self, inbox: Inbox) -> None:
        self.at = inbox.start()
        self.seen: list[tuple[str, str, int]] = []

    def read(self, inbox: Inbox) -> None:
        end = inbox.end(range(SHARDS))
        for stored in inbox.read(self.at, end):
            events = decode_events(stored)
            for key, payload in zip(events.keys, events.payloads, strict=True):
                value = msgspec.json.decode(payload)
                self.seen.append((value["by"], from_stored(key), value["n"]))
        self.at = end


class Producer:
    """One who sends the events 1, 2, 3 …, is killed now and then, and goes on as its kind can."""

    def __init__(self, name: str, kind: str, rng: random.Random) -> None:
        self.name, self.kind, self.rng = name, kind, rng
        self.taken = 0
        """The last event that a router took, of all lives."""
        self.acknowledged: set[int] = set()
        self.router: Router | None = None
        self.began = 0

    def stored(self) -> int:
        """Return the last event before which all are known to be stored."""
        return next(number for number in range(self.taken + 1) if number + 1 not in self.acknowledged)

    def event(self, number: int) -> tuple[str, dict[str, object]]:
        # The same in every life.
        pad = "x" * (number * 7919 % 600 if number % 3 else 0)
        return f"k{number * 31 % 9}", {"by": self.name, "n": number, "pad": pad}

    def start(self, inbox: Inbox) -> None:
        named = {"replay": {"replay": True}, "numbers": {"own_numbers": True}}.get(self.kind)
        options = {
            "timeout": "0 s",
            "batch_events": self.rng.choice([1, 5, 50]),
            "linger": self.rng.choice(["0 s", "60 s"]),
        }
        options |= {"max_waiting": self.rng.choice([60, 1000]), **(named or {})}
        self.router = Router(inbox, self.name if named else None, **options)
        # A new program cannot know what an earlier one got stored: it goes on behind what was taken.
        self.began = {"replay": 0, "numbers": self.rng.randint(0, self.stored())}.get(self.kind, self.taken)
        self.at = self.began

    def send(self, count: int) -> None:
        assert self.router is not None
        events = [self.event(number) for number in range(self.at + 1, self.at + count + 1)]
        try:
            if self.kind == "numbers":
                for key, payload in events:
                    self.router.route(key, payload, payload["n"])
                    self.at += 1
            elif self.rng.random() < 0.5:
                self.router.route_many(iter(events))
                self.at += count
            else:
                for key, payload in events:
                    self.router.route(key, payload)
                    self.at += 1
        except NotTaken as refused:
            self.at += refused.taken
        self.taken = max(self.taken, self.at)

    def flush(self) -> None:
        assert self.router is not None
        try:
            self.router.flush()
        except InboxUnavailable:
            return
        self.acknowledged.update(range(self.began + 1, self.at + 1))

    def finish(self) -> None:
        """Send what is known to be lost otherwise, and close."""
        assert self.router is not None
        if self.kind != "anonymous":
            self.send(max(self.taken, 1) - self.at)
        self.flush()
        self.router.close()

    def kill(self) -> None:
        """Stop without delivering what waits."""
        assert self.router is not None
        self.router.abandon()
        self.router = None


class Bridge(Producer):
    """A topic that somebody writes to, and bridges that carry it over, one after the other. What Kafka knows is stored."""

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(name, "bridge", rng)
        self.topic = MemoryTopic(name, 2, rng)

    def start(self, inbox: Inbox) -> None:
        self.inbox, self.router = inbox, None

    def send(self, count: int) -> None:
        for _ in range(count):
            self.taken += 1
            key, payload = self.event(self.taken)
            self.topic.append(int(key[1:]) % 2, key.encode(), msgspec.json.encode(payload))
        self.carry(self.rng.randint(0, 3))

    def carry(self, polls: int, to_the_end: bool = False) -> None:
        """Run a bridge for some polls; it is killed then, or told to stop."""
        left, killed = iter(range(polls)), self.rng.random() < 0.5

        def stop() -> bool:
            if to_the_end or next(left, None) is not None:
                return False
            if killed:
                raise Killed
            return True

        bridge = KafkaBridge(BridgeSettings(self.topic.connection, self.name, None, "bridge"), self.inbox)
        try:
            bridge.run(stop, to_the_end)
        except (Killed, TidewheelError):
            assert not to_the_end

    def flush(self) -> None:
        for records, known in zip(self.topic.records, self.topic.committed, strict=True):
            self.acknowledged.update(msgspec.json.decode(value)["n"] for _, value in records[:known])
        if self.rng.random() < 0.3:
            self.topic.forget()

    def kill(self) -> None:
        self.topic.rate = self.rng.choice([0.0, 0.3])

    def finish(self) -> None:
        self.topic.rate = 0.0
        self.carry(0, to_the_end=True)
        self.flush()
        assert len(self.acknowledged) == self.taken


class Faults:
    """Errors before and after an append takes effect; now and then an append waits until another round is cut behind it."""

    def __init__(self, rng: random.Random, producers: list[Producer], happened: Counter[str]) -> None:
        self.rng, self.rate, self.producers, self.happened = rng, 0.3, producers, happened

    def __call__(self) -> None:
        fails = self.rng.random() < self.rate
        if self.rng.random() < 0.05:
            until = time.monotonic() + 0.001
            while not self.is_cut_ahead() and time.monotonic() < until:
                time.sleep(0.0002)
        if fails:
            self.happened["failed with a round behind"] += self.is_cut_ahead()
            raise InboxUnavailable("the server is away")

    def is_cut_ahead(self) -> bool:
        return any(producer.router is not None and producer.router._ready for producer in self.producers)


class Faulty:
    before = after = staticmethod(lambda: None)

    def append(self, producer, session, blocks):
        self.before()
        super().append(producer, session, blocks)
        self.after()


class FaultyFile(Faulty, FileInbox):
    pass


class FaultyNats(Faulty, NatsInbox):
    pass


@pytest.fixture(autouse=True)
def bridges_to_memory(monkeypatch):
    """Let bridges read from memory, tell Kafka often, and try again at once."""
    monkeypatch.setattr("tidewheel.fleet._nodes.with_kafka.bridge.client", to_memory)
    monkeypatch.setattr("tidewheel.fleet._nodes.with_kafka.bridge._FLUSH_S", 0.0)
    monkeypatch.setattr("tidewheel.fleet._nodes.delivery._FIRST_PAUSE_S", 0.0)


def history(seed: int, make, steps: int) -> Counter[str]:
    rng = random.Random(seed)
    inbox = make()
    inbox.max_block_bytes = rng.choice([10_000, 2**20])
    reader = Reader(inbox)
    kinds = rng.choices(["replay", "numbers", "anonymous", "bridge"], k=3)
    producers = [
        Bridge(f"bridge-{number}", rng) if kind == "bridge" else Producer(f"{kind}-{number}", kind, rng)
        for number, kind in enumerate(kinds)
    ]
    happened: Counter[str] = Counter()
    faults = Faults(random.Random(seed + 1), producers, happened)
    inbox.before, inbox.after = faults, faults
    try:
        for _ in range(steps):
            producer = rng.choice(producers)
            if producer.router is None:
                producer.start(inbox)
            roll = rng.random()
            if roll < 0.5:
                producer.send(rng.choice([1, 3, 40]))
            elif roll < 0.7:
                producer.flush()
            elif roll < 0.8:
                producer.kill()
                happened["kill"] += 1
            elif roll < 0.9:
                reader.read(inbox)
            elif roll < 0.97:
                reader.read(inbox)
                inbox.trim(reader.at)
                happened["trim"] += 1
            elif seed % 20 == 0 and producer.router is not None:
                assert in_a_child(lambda router=producer.router: router.route("k", 1)) == InboxError.__name__
                happened["fork"] += 1
        faults.rate = 0.0
        for producer in producers:
            if producer.router is None:
                producer.start(inbox)
            producer.finish()
        reader.read(inbox)
    finally:
        for producer in producers:
            if producer.router is not None:
                producer.router.abandon()
        inbox.close()
    check(reader, producers)
    happened["events"] += len(reader.seen)
    return happened


def check(reader: Reader, producers: list[Producer]) -> None:
    counts = Counter((by, n) for by, _, n in reader.seen)
    assert not [event for event, count in counts.items() if count > 1], "an event was read twice"
    for producer in producers:
        lost = [n for n in producer.acknowledged if (producer.name, n) not in counts]
        assert not lost, f"acknowledged events of {producer.name} are lost"
    order = defaultdict(list)
    for by, key, n in reader.seen:
        order[by, key].append(n)
    assert all(numbers == sorted(numbers) for numbers in order.values()), "a producer's events of a key changed order"


def histories(seeds: range, make, steps: int) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        try:
            happened += history(seed, make, steps)
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
    return happened


@pytest.mark.parametrize("seeds", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_an_acknowledged_event_is_read_once_and_in_order(seeds):
    happened = histories(range(seeds), lambda: MemoryInbox(SHARDS), 30)
    assert happened["kill"] > seeds
    assert happened["trim"] > seeds
    assert happened["fork"] > 0
    assert happened["events"] > 20 * seeds
    assert happened["failed with a round behind"]


def test_the_same_with_an_inbox_in_a_folder(tmp_path):
    numbers = iter(range(10**9))
    happened = histories(range(50), lambda: FaultyFile(f"{tmp_path}/{next(numbers)}", SHARDS, segment_bytes=3000), 30)
    assert happened["kill"]
    assert happened["trim"]


def test_the_same_with_a_nats_server(tmp_path):
    with running_nats(tmp_path) as server:
        numbers = iter(range(10**9))
        happened = histories(range(10), lambda: FaultyNats(server.url(f"inbox-{next(numbers)}"), SHARDS), 30)
    assert happened["kill"]
    assert happened["trim"]


def _told_before(bridge: KafkaBridge, flush) -> None:
    routers, bridge._routers = bridge._routers, {}
    flush(bridge)
    bridge._routers = routers
    flush(bridge)


@pytest.mark.parametrize(
    "break_a_rule",
    [
        pytest.param(
            lambda m: m.setattr("support.memory_inbox.is_duplicate", lambda *_: False),
            id="repeats are not told from new events",
        ),
        pytest.param(
            lambda m: m.setattr(MemoryInbox, "marks", lambda *_: {}), id="a producer that comes back is not known"
        ),
        pytest.param(
            lambda m: m.setattr(
                Router, "flush", lambda self, real=Router.flush: None if self._error is not None else real(self)
            ),
            id="flush returns without its events",
        ),
        pytest.param(
            lambda m: m.setattr(KafkaBridge, "_flush", lambda self, real=KafkaBridge._flush: _told_before(self, real)),
            id="a bridge tells Kafka before the records are stored",
        ),
    ],
)
def test_a_broken_rule_is_found(monkeypatch, break_a_rule):
    break_a_rule(monkeypatch)
    with pytest.raises((AssertionError, InboxError)):
        histories(range(100), lambda: MemoryInbox(SHARDS), 30)
