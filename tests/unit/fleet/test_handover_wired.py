"""Handover with the real parts: commit chains in a folder, an inbox, a router, a coordinator's assignment in a cell.

The nodes here are as small as nodes can be: they count events by key. What they do is what a node must do, in order.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tidewheel import cells
from tidewheel._connectors.inbox import decode_events, open_inbox
from tidewheel._core.keys import from_stored
from tidewheel._fleet import handover
from tidewheel._fleet.coordinator import Coordinator
from tidewheel._fleet.handover import Append, Holding, Ledger
from tidewheel._fleet.router import Router
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._storage import open_store
from tidewheel._storage.chain import Chain

SHARDS = 8
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(Ledger).decode


class Fleet:
    """What all nodes share."""

    def __init__(self, folder) -> None:
        self.store = open_store(f"{folder}/state")
        self.connection = cells.open(f"{folder}/cells")
        self.inbox = open_inbox(f"{folder}/inbox", SHARDS)
        self.router = Router(self.inbox)
        self.published: Counter[str] = Counter()
        self.append(handover.origin(SHARDS))

    def chain(self, run: str) -> Chain:
        return Chain(self.store, f"runs/{run}")

    def append(self, ledger: Ledger) -> bool:
        return self.chain(ledger.run).append(ledger.number, encode(ledger))

    def head(self, run: str) -> Ledger:
        record = self.chain(run).head()
        return Ledger(run) if record is None else decode(record.data)

    def runs(self) -> list[str]:
        return sorted({entry.path.split("/")[1] for entry in self.store.list("runs")})

    def totals(self) -> Counter[str]:
        """Count what all shards hold, from the store alone."""
        counts: Counter[str] = Counter()
        ledgers = {run: self.head(run) for run in self.runs()}
        for custody in handover.custody(ledgers).values():
            if custody.holding.parts.snapshot is not None:
                counts.update(msgspec.msgpack.decode(self.store.read(custody.holding.parts.snapshot.file.name)))
        return counts


class Node:
    """One run of one node."""

    def __init__(self, fleet: Fleet, name: str, run: str) -> None:
        self.fleet, self.name, self.run = fleet, name, run
        self.coordinator = Coordinator(fleet.connection, "job", name, SHARDS, idempotent=True)
        fleet.append(Ledger(run, 1))
        self.mine = fleet.head(run)

    def take(self) -> None:
        """Take what the assignment gives this node, step by step."""
        published: dict[str, int] = {}
        wanted = self.coordinator.current_assignment().shards_of(self.name)
        while True:
            ledgers = {run: self.fleet.head(run) for run in self.fleet.runs()}
            self.mine = ledgers[self.run]
            step = handover.next_step(self.run, wanted, ledgers, published)
            if step is None:
                return
            if isinstance(step, Append):
                self.fleet.append(step.ledger)
            else:
                published[step.run] = self.fleet.published[step.run] = max(self.fleet.published[step.run], step.number)

    def batch(self) -> Ledger:
        """Count what is new, and return the ledger that would commit it."""
        ends = self.fleet.inbox.end(list(self.mine.held))
        changed = {}
        for shard, holding in self.mine.held.items():
            counts: Counter[str] = Counter()
            if holding.parts.snapshot is not None:
                counts.update(msgspec.msgpack.decode(self.fleet.store.read(holding.parts.snapshot.file.name)))
            for stored in self.fleet.inbox.read({shard: holding.position}, {shard: ends[shard]}):
                counts.update(from_stored(key) for key in decode_events(stored).keys)
            name = f"files/{self.run}-{self.mine.number + 1}-{shard}"
            self.fleet.store.write(name, msgspec.msgpack.encode(counts))
            part = PartRef(FileRef(name, 0, 0), self.mine.number + 1, 0, len(counts))
            changed[shard] = Holding(holding.term, ends[shard], ShardParts(part))
        return handover.commit(self.mine, changed)

    def commit(self, following: Ledger) -> bool:
        done = self.fleet.append(following)
        self.mine = self.fleet.head(self.run)
        if done:
            self.fleet.published[self.run] = following.staged
        return done


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    yield opened
    opened.router.close()
    opened.inbox.close()
    opened.connection.close()


def send(fleet: Fleet, count: int) -> Counter[str]:
    for number in range(count):
        fleet.router.route(f"k{number % 20}", number)
    fleet.router.flush()
    return Counter(f"k{number % 20}" for number in range(count))


def test_a_node_that_was_paused_commits_nothing_for_a_shard_that_was_taken(fleet):
    expected = send(fleet, 100)
    paused = Node(fleet, "a", "a-1")
    paused.coordinator.join()
    paused.take()
    assert len(paused.mine.held) == SHARDS
    assert paused.commit(paused.batch())
    expected += send(fleet, 60)
    late = paused.batch()  # And here it is stopped, with the batch counted and not committed.

    taker = Node(fleet, "b", "b-1")
    taker.coordinator.join()
    taker.take()
    assert len(taker.mine.held) == SHARDS // 2
    assert taker.commit(taker.batch())

    assert not paused.commit(late), "its number is taken"
    assert not paused.mine.held.keys() & taker.mine.held.keys()
    assert paused.commit(paused.batch())
    expected += send(fleet, 40)
    for node in (paused, taker):
        assert node.commit(node.batch())
    assert fleet.totals() == expected


def test_a_killed_node_s_shards_go_on_elsewhere_from_where_its_last_commit_was(fleet):
    expected = send(fleet, 100)
    nodes = [Node(fleet, name, f"{name}-1") for name in "abc"]
    for node in nodes:
        node.coordinator.join()
    for node in nodes:
        node.take()
        assert node.commit(node.batch())
    assert fleet.totals() == expected

    expected += send(fleet, 50)
    nodes[0].batch()  # Killed here: counted, staged, never committed.
    nodes[1].coordinator.leave("a")
    before = {run: fleet.head(run).held for run in fleet.runs()}["a-1"]
    for node in nodes[1:]:
        node.take()
    held = {**nodes[1].mine.held, **nodes[2].mine.held}
    assert held.keys() == set(range(SHARDS))
    assert {shard: held[shard].parts for shard in before} == {s: h.parts for s, h in before.items()}, (
        "no state was copied"
    )
    for node in nodes[1:]:
        assert node.commit(node.batch())
    assert fleet.totals() == expected

    # It comes back as a new run under its old name, and gets its share.
    back = Node(fleet, "a", "a-2")
    back.coordinator.join()
    back.take()
    assert back.mine.held
    assert back.commit(back.batch())
    assert fleet.totals() == expected
