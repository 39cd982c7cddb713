"""Nodes of a fleet in one process, without Spark: the same runs, chains, hand-over, tasks, local copies and sinks.

A test decides when a node reads the assignment, takes shards, runs a batch and commits it.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from pathlib import Path

from support.internals import from_stored, open_store
from tidewheel import Job
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.state_files import opener
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.local_tasks import LocalTasks
from tidewheel._engine.merging import at_once
from tidewheel._engine.plan_sinks import publish_output
from tidewheel._engine.task_layout import Layout
from tidewheel._state.local_copies import LocalCopies
from tidewheel._state.shard_contents import shard_items
from tidewheel._testing.memory import GivenSplit
from tidewheel._values.shape import ANY, to_columns
from tidewheel.cells import open as open_cells
from tidewheel.codecs import msgpack_codec
from tidewheel.fleet import Coordinator, Router, open_inbox
from tidewheel.fleet._inbox import decode_events
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.chains import Chains, take
from tidewheel.fleet._nodes.run import FleetRun, check_adopted, check_plan
from tidewheel.sinks import files
from tidewheel.sources import inbox
from tidewheel.testing import MemoryRun

SHARDS = 8


def total(key, event, state):
    n, amount = state or (0, 0)
    return {"key": key, "n": n + 1, "total": amount + event.amount}, [n + 1, amount + event.amount]


def counting(where: Path, n_shards: int = SHARDS, **settings) -> Job:
    """Number and add up the events of each key."""
    job = Job("orders", state=f"file://{where}/state", n_shards=n_shards, **settings)
    events = job.source("in", inbox(f"{where}/inbox", schema="key string, amount long"))
    numbered = events.key_by("by-key", "key").stateful_map("total", total, default=lambda: None)
    numbered.sink("out", files(f"{where}/out", format="json"))
    return job


class Fleet:
    """What all nodes share, and what must be true of it in the end."""

    def __init__(self, where: Path, cells: str | None = None, inbox: str | None = None, **settings) -> None:
        self.where, self.settings = where, settings
        self.store = open_store(f"file://{where}/state")
        self.connection = open_cells(cells or f"{where}/cells")
        self.inbox = open_inbox(inbox or f"{where}/inbox", SHARDS)
        self.router = Router(self.inbox, linger="0.001 s")
        self.sent: Counter[str] = Counter()
        self.amounts: Counter[str] = Counter()
        self.runs: list[FleetRun] = []
        self._numbers = count()

    def close(self) -> None:
        """Let go of everything, also of what killed nodes left open: other tests use this process too."""
        for run in self.runs:
            run.release()
        for path in self.where.glob("local/*/*"):
            LocalCopies.at(path).close()
        self.router.close()
        self.inbox.close()
        self.connection.close()

    def send(self, events: int, keys: int = 50) -> None:
        for number in range(events):
            key, amount = f"k{number % keys}", next(self._numbers)
            self.router.route(key, {"key": key, "amount": amount})
            self.sent[key] += 1
            self.amounts[key] += amount
        self.router.flush()

    def chains(self) -> Chains:
        return Chains(self.store, "orders")

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return the state of every key, from the store alone, whoever holds its shard."""
        found = {}
        for shard, whose in handover.custody(self.chains().ledgers()).items():
            for table, key, value in shard_items(whose.holding.parts, shard, opener(self.store, "orders")):
                if table == "total":
                    found[from_stored(key)] = tuple(msgpack_codec().decode(value))
        return found

    def published(self) -> list[dict]:
        lines = [path.read_text().splitlines() for path in sorted((self.where / "out").glob("*.json"))]
        return [json.loads(line) for each in lines for line in each]

    def check_exact(self) -> None:
        """Compare state and output with a count that knows nothing of Tidewheel."""
        assert self.totals() == {key: (n, self.amounts[key]) for key, n in self.sent.items()}
        rows = sorted((row["key"], row["n"]) for row in self.published())
        assert rows == sorted((key, n) for key, last in self.sent.items() for n in range(1, last + 1))


class MemoryNode(MemoryRun):
    """A node whose batches run in this process."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self.job = self.build()
        self.plan = self.job.plan()
        check_plan(self.plan, self.job.name)
        self.coordinator = Coordinator(fleet.connection, "orders", name, SHARDS, idempotent=True)
        self.chains = fleet.chains()
        self.parallelism, self.partitions, self.clock = 2, 1, None
        self._local = f"{fleet.where}/local/{name}"
        self.positions: dict[int, int] = {}

    def build(self) -> Job:
        """Return the program."""
        return counting(self.fleet.where, **self.fleet.settings)

    def join(self) -> None:
        self.coordinator.join()

    def shards(self) -> frozenset[int]:
        return frozenset(self.coordinator.current_assignment().shards_of(self.name))

    def begin(self) -> None:
        """Begin a run that adopts what the assignment gives this node."""
        self.plan = self.job.plan()
        self.info = self.chains.begin(self.name, SHARDS)
        self.ledger = take(self.chains, self.info, self.shards, self.publish_for, self.check)
        self.run = FleetRun(self.job, self.plan, self.info, self.ledger)
        self.fleet.runs.append(self.run)
        # Not in a thread: tests compare which files are there.
        self.run.merging.submit = at_once
        self.run.begin()
        self.plan = self.run.plan
        self._tasks = LocalTasks(self.plan)
        self.positions = {shard: holding.position for shard, holding in self.ledger.held.items()}

    def publish_for(self, state) -> None:
        publish_output(self.plan, self.fleet.store.at(folder(state.id.stream_id)), state, None)

    def check(self, state) -> None:
        check_adopted(state, self.plan, SHARDS, self.job.aliases)

    def prepare(self):
        """Run a batch over all that is new; return what commits it."""
        ends = self.fleet.inbox.end(list(self.positions))
        events = [
            json.loads(payload)
            for stored in self.fleet.inbox.read(self.positions, ends)
            for payload in decode_events(stored).payloads
        ]
        splits = [(0, GivenSplit(to_columns(events, ANY)))] if events else []
        spec = self._spec(None)
        found = self._tasks.reports(Layout(spec, range(len(self.plan.levels)), [splits]))
        return spec, found, ends

    def finish(self, prepared) -> None:
        """Commit what `prepare` gave, and publish it."""
        spec, found, ends = prepared
        position = {str(shard): at for shard, at in ends.items()}
        self.run.commit(spec, found, "batch", None, SourceProgress(self.next_batch, {"in": position}))
        self.positions = ends

    def step(self) -> None:
        """Count what is new."""
        self.finish(self.prepare())

    def close(self) -> None:
        self.run.release()


def started(fleet: Fleet, *names: str, node: type[MemoryNode] = MemoryNode) -> list[MemoryNode]:
    """Return nodes that have all joined, each with a run of its share of the shards."""
    nodes = [node(fleet, name) for name in names]
    for node in nodes:
        node.join()
    for node in nodes:
        node.begin()
    return nodes
