"""A fleet in one process under a seeded scheduler: requests are delayed and reordered, answers lost, nodes paused and killed.

Nodes are generators that yield requests to a store, an inbox, a cell and a sink, and get answers. The scheduler decides
when a request takes effect, when its answer arrives, and what else happens in between. After each effect the world checks
what must always be true, by looking at what is stored, not at what nodes believe.
"""

from __future__ import annotations

import random
from collections import defaultdict
from types import SimpleNamespace

from tidewheel._fleet import handover
from tidewheel._fleet.assignment import Assignment, add_node, remove_node
from tidewheel._fleet.handover import Append, Holding, Ledger, Publish
from tidewheel._state.references import FileRef, PartRef, ShardParts

LOST = object()
SHARDS = 4


class Violated(AssertionError):
    """Something that must always be true was not."""


def check(true: bool, what: str) -> None:
    if not true:
        raise Violated(what)


class World:
    """All that is durable, and what must hold of it."""

    def __init__(self) -> None:
        self.chains: dict[str, list[Ledger]] = {handover.ORIGIN: [handover.origin(SHARDS)]}
        self.files: dict[str, tuple[int, dict[str, int]]] = {}
        self.inbox: dict[int, list[tuple[str, int]]] = {shard: [] for shard in range(SHARDS)}
        self.assignment = Assignment(SHARDS)
        self.staged: dict[tuple[str, int], dict[int, int]] = {}
        self.markers: dict[str, int] = defaultdict(int)
        self.sink: dict[int, int] = defaultdict(int)
        self.acknowledged: set[tuple[int, str, int]] = set()
        self.owners: dict[int, tuple[str, int] | None] = dict.fromkeys(range(SHARDS), (handover.ORIGIN, 0))
        self.counted: dict[int, int] = dict.fromkeys(range(SHARDS), 0)

    # Requests. Each takes effect at once, when the scheduler says so.

    def append(self, ledger: Ledger, outputs: dict[int, int] | None = None) -> bool:
        chain = self.chains.setdefault(ledger.run, [])
        if ledger.number != len(chain) + 1:
            return False
        before = chain[-1] if chain else Ledger(ledger.run)
        chain.append(ledger)
        if ledger.staged == ledger.number:
            check(
                self.markers[ledger.run] >= before.staged, f"{ledger.run} committed over output that is not published"
            )
            self.staged[ledger.run, ledger.number] = outputs or {}
        self._check_ledger(before, ledger)
        self._check_one_owner()
        return True

    def head(self, run: str) -> Ledger:
        return self.chains[run][-1] if self.chains.get(run) else Ledger(run)

    def runs(self) -> list[str]:
        return list(self.chains)

    def read(self, shard: int, start: int) -> list[tuple[str, int]]:
        return self.inbox[shard][start:]

    def deliver(self, shard: int, producer: str, number: int) -> None:
        self.inbox[shard].append((producer, number))

    def publish(self, run: str, number: int) -> None:
        if number <= self.markers[run]:
            return
        self.markers[run] = number
        for shard, total in self.staged.get((run, number), {}).items():
            check(
                total >= self.sink[shard],
                f"{run} published {total} for shard {shard} over the newer {self.sink[shard]}",
            )
            self.sink[shard] = total

    def assigned(self) -> Assignment:
        return self.assignment

    def exchange(self, epoch: int, new: Assignment) -> bool:
        if self.assignment.epoch != epoch:
            return False
        self.assignment = new
        return True

    # What must always be true.

    def state(self, holding: Holding) -> tuple[int, dict[str, int]]:
        return self.files[holding.parts.snapshot.file.name] if holding.parts.snapshot else (0, {})

    def _check_ledger(self, before: Ledger, after: Ledger) -> None:
        for shard in before.held.keys() - after.held.keys():
            self.owners[shard] = None
        for shard, holding in after.held.items():
            was = before.held.get(shard)
            if was == holding:
                continue
            total, _ = self.state(holding)
            if was is None:
                check(
                    self.owners[shard] is None, f"{after.run} adopted shard {shard}, which {self.owners[shard]} holds"
                )
                check(holding.position == self.counted[shard], f"{after.run} adopted an old state of shard {shard}")
                check(self.sink[shard] == total, f"{after.run} adopted shard {shard} before its output was published")
                self.owners[shard] = (after.run, holding.term)
            check(
                self.owners[shard] == (after.run, holding.term),
                f"{after.run} committed shard {shard} after it was revoked",
            )
            check(holding.position >= self.counted[shard], f"{after.run} went back in shard {shard}")
            self.counted[shard] = holding.position
            distinct = set(self.inbox[shard][: holding.position])
            check(
                total == len(distinct), f"shard {shard} counts {total} of {len(distinct)} events at {holding.position}"
            )

    def _check_one_owner(self) -> None:
        heads = {run: chain[-1] for run, chain in self.chains.items() if chain}
        holders = [(shard, run) for run, head in heads.items() for shard in head.held]
        check(len({shard for shard, _ in holders}) == len(holders), f"a shard has two holders: {sorted(holders)}")
        check(len(handover.custody(heads)) == SHARDS, "a shard is nobody's")


def node(name: str, run: str, rng: random.Random):
    """What a node does, as requests: hold the shards that the assignment gives it, count events, publish."""
    yield "append", (Ledger(run, 1),)
    mine = yield from until("head", run)
    published: dict[str, int] = {}
    known: dict[str, Ledger] = {}
    while True:
        if published.get(run, 0) < mine.staged:
            if (yield "publish", (run, mine.staged)) is not LOST:
                published[run] = mine.staged
            continue
        wanted = (yield from until("assigned")).shards_of(name)
        if set(wanted) - mine.held.keys() and rng.random() < 0.8:
            # Its own too: a request that it gave up waiting for may have taken effect since.
            mine = yield from until("head", run)
            if published.get(run, 0) < mine.staged:
                continue
            for other in (yield from until("runs")):
                # What is known of another may be old: nobody may rely on reading all chains at one moment.
                if other != run and (other not in known or rng.random() < 0.7):
                    known[other] = yield from until("head", other)
            step = handover.next_step(run, wanted, {**known, run: mine}, published)
            if isinstance(step, Publish):
                if (yield "publish", (step.run, step.number)) is not LOST:
                    published[step.run] = step.number
                continue
            if isinstance(step, Append):
                done = yield "append", (step.ledger,)
                if step.ledger.run == run:
                    mine = step.ledger if done is True else (yield from until("head", run))
                continue
        changed, files = {}, {}
        for shard, holding in mine.held.items():
            events = yield from until("read", shard, holding.position)
            events = events[: rng.randint(1, 3)]
            if events:
                name_of = f"{run}-{mine.number + 1}-{shard}-{rng.random()}"
                files[name_of] = (holding, events)
                part = PartRef(FileRef(name_of, 0, 0), mine.number + 1, 0, 0)
                changed[shard] = Holding(holding.term, holding.position + len(events), ShardParts(part))
        if changed:
            for name_of, (holding, events) in files.items():
                yield "write", (name_of, holding, tuple(events))
            following = handover.commit(mine, changed, handover.settled(mine, known))
            done = yield "commit", (following, changed)
            mine = following if done is True else (yield from until("head", run))


def producer(name: str, count: int, rng: random.Random):
    """Send events; one whose answer is lost is sent again under the same stamp."""
    for number in range(1, count + 1):
        shard = rng.randrange(SHARDS)
        while (yield "deliver", (shard, name, number)) is LOST:
            pass
        yield "acknowledged", (shard, name, number)


def membership(change, member: str):
    """Join or leave by compare and exchange; a lost answer is resolved by looking again."""
    while True:
        standing = yield from until("assigned")
        if (member in standing.members) == (change is add_node):
            return
        plan = change(standing, member).assignment
        yield "exchange", (standing.epoch, plan)


def until(what: str, *arguments):
    """Ask until there is an answer."""
    while (answer := (yield what, arguments)) is LOST:
        pass
    return answer


class Simulation:
    """One history, decided by its seed."""

    def __init__(self, seed: int, nodes: int = 3, events: int = 12) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.processes: list[SimpleNamespace] = []
        self.in_flight: list[SimpleNamespace] = []
        self.started = 0
        self.names = [f"n{number}" for number in range(nodes)]
        for name in self.names:
            self.start(name)
            self.spawn(membership(add_node, name), name=None)
        for name in ("p", "q"):
            self.spawn(producer(name, events, self.rng), name=None)

    def start(self, name: str) -> None:
        self.started += 1
        self.spawn(node(name, f"{name}.{self.started}", self.rng), name=name)

    def spawn(self, generator, name: str | None) -> None:
        process = SimpleNamespace(
            generator=generator, name=name, answer=None, has_answer=True, paused=False, dead=False
        )
        self.processes.append(process)

    def run(self, steps: int = 500) -> World:
        for _ in range(steps):
            self.trouble()
            self.advance()
        self.heal()
        return self.world

    def trouble(self) -> None:
        """Now and then: pause, wake, kill or start a node, or have a member removed, rightly or not."""
        roll = self.rng.random()
        if roll > 0.08:
            return
        nodes = [process for process in self.processes if process.name is not None and not process.dead]
        paused = [process for process in nodes if process.paused]
        if roll < 0.02 and nodes:
            self.rng.choice(nodes).paused = True
        elif roll < 0.04 and paused:
            self.rng.choice(paused).paused = False
        elif roll < 0.05 and nodes:
            victim = self.rng.choice(nodes)
            victim.dead = True
            self.processes.remove(victim)
            if self.rng.random() < 0.9:
                self.start(victim.name)
        elif roll < 0.06:
            self.spawn(membership(remove_node, self.rng.choice(self.names)), name=None)
        else:
            self.spawn(membership(add_node, self.rng.choice(self.names)), name=None)

    def advance(self, loss: float = 0.08) -> None:
        """Let one request take effect, or one answer arrive."""
        ready = [
            process for process in self.processes if process.has_answer and not process.paused and not process.dead
        ]
        if ready and (not self.in_flight or self.rng.random() < 0.5):
            self.resume(self.rng.choice(ready))
        elif self.in_flight:
            request = self.in_flight.pop(self.rng.randrange(len(self.in_flight)))
            answer = self.apply(request.what, request.arguments)
            if self.rng.random() < loss:
                # The answer is lost, or the request is sent twice over the wire, or both.
                answer = LOST
            request.process.answer, request.process.has_answer = answer, True

    def resume(self, process) -> None:
        answer, process.answer, process.has_answer = process.answer, None, False
        try:
            what, arguments = process.generator.send(answer)
        except StopIteration:
            process.dead = True
            self.processes.remove(process)
            return
        self.in_flight.append(SimpleNamespace(process=process, what=what, arguments=arguments))
        if process.name is not None and what in ("append", "commit") and self.rng.random() < 0.05:
            # It waits no longer for the answer; the request is on its way all the same.
            process.answer, process.has_answer = LOST, True
            self.in_flight[-1].process = SimpleNamespace(answer=None, has_answer=False)

    def apply(self, what: str, arguments: tuple):
        world = self.world
        if what == "write":
            name, holding, events = arguments
            total, marks = world.state(holding)
            marks = dict(marks)
            for sender, number in events:
                if number > marks.get(sender, 0):
                    marks[sender], total = number, total + 1
            world.files[name] = (total, marks)
            return None
        if what == "commit":
            ledger, changed = arguments
            return world.append(ledger, {shard: world.state(holding)[0] for shard, holding in changed.items()})
        if what == "acknowledged":
            world.acknowledged.add(arguments)
            return None
        return getattr(world, what)(*arguments)

    def heal(self) -> None:
        """Wake or kill everybody, let the living have the shards, and wait until all is counted and published."""
        for process in self.processes:
            if process.paused and process.name is not None:
                process.paused = False
                process.dead = process.dead or self.rng.random() < 0.5
            elif process.generator.__name__ == "membership":
                process.dead = True
        self.in_flight = [request for request in self.in_flight if request.what != "exchange"]
        for name in self.names:
            alive = any(process.name == name and not process.dead for process in self.processes)
            self.spawn(membership(add_node if alive else remove_node, name), name=None)
        if all(process.dead for process in self.processes if process.name is not None):
            self.start("late")
            self.spawn(membership(add_node, "late"), name=None)
        for _ in range(20_000):
            self.advance(loss=0)
            if self.rng.random() < 0.05 and self.is_done():
                return
        raise Violated("the fleet did not get done")

    def is_done(self) -> bool:
        world = self.world
        busy = any(process.name is None and not process.dead for process in self.processes)
        return not busy and all(
            world.counted[shard] == len(log) and world.sink[shard] == len(set(log))
            for shard, log in world.inbox.items()
        )
