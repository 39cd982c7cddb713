"""A fleet in one process under a seeded scheduler: requests are delayed and reordered, answers lost, nodes paused and killed.

Nodes are generators that yield requests to a store, an inbox, a cell and a sink, and get answers. The scheduler decides
when a request takes effect, when its answer arrives, and what else happens in between. After each effect the world checks
what must always be true, by looking at what is stored, not at what nodes believe.

What nodes store is what ships: manifests made by `state_of`, read by `ledger_of`. And they live as they ship: a run adopts
before its first batch only, and ends when a shard was taken from it or when its node is to have others. What is left of runs
that are over, chain and marker, is removed while requests of theirs may still be on their way.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from types import SimpleNamespace

from support.internals import FileRef, PartRef, ShardParts
from tidewheel._checkpoint.fleet_ledger import ORIGIN, run_of
from tidewheel._checkpoint.manifest import StagedOutput
from tidewheel._checkpoint.names import shared
from tidewheel._checkpoint.unpublished import settled
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.fleet import Assignment, add_node, remove_node
from tidewheel.fleet._nodes import handover, sweep
from tidewheel.fleet._nodes.handover import Append, Holding, Ledger, Publish
from tidewheel.fleet._nodes.ledger import begun_state, first_state, ledger_of, state_of

JOB = "orders"
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
        first = first_state(JOB, SHARDS, "lineage", "first")
        self.chains: dict[str, list[Manifest]] = {ORIGIN: [first]}
        self.ledgers: dict[str, Ledger] = {ORIGIN: ledger_of(first)}
        """The ledger of each chain's newest record."""
        self.removed: set[str] = set()
        """The runs whose chains and markers are gone."""
        self.reclaimed = 0
        self.numbers = 0
        self.files: dict[str, tuple[int, dict[str, int]]] = {}
        self.inbox: dict[int, list[tuple[str, int]]] = {shard: [] for shard in range(SHARDS)}
        self.assignment = Assignment(SHARDS)
        self.staged: dict[tuple[str, int], dict[int, int]] = {}
        self.markers: dict[str, int] = defaultdict(int)
        self.sink: dict[int, int] = defaultdict(int)
        self.acknowledged: set[tuple[int, str, int]] = set()
        self.owners: dict[int, tuple[str, int] | None] = dict.fromkeys(range(SHARDS), (ORIGIN, 0))
        self.counted: dict[int, int] = dict.fromkeys(range(SHARDS), 0)

    # Requests. Each takes effect at once, when the scheduler says so.

    def register(self) -> int:
        """Give a run its number."""
        self.numbers += 1
        return self.numbers

    def begin(self, state: Manifest) -> bool:
        run = run_of(state.id.stream_id)
        if run in self.removed:
            return False
        if run not in self.chains:
            self.chains[run], self.ledgers[run] = [state], ledger_of(state)
        return True

    def append(self, state: Manifest, outputs: dict[int, int] | None = None) -> bool:
        run = run_of(state.id.stream_id)
        chain = self.chains.get(run)
        if chain is None or state.sequence != chain[-1].sequence + 1:
            return False
        before, after = self.ledgers[run], ledger_of(state)
        chain.append(state)
        self.ledgers[run] = after
        if after.staged == after.number:
            check(self.markers[run] >= before.staged, f"{run} committed over output that is not published")
            self.staged[run, after.number] = outputs or {}
        self._check_ledger(before, after)
        self._check_one_owner()
        return True

    def remove(self, run: str, sequence: int) -> None:
        """Remove chain and marker of a run whose newest record is still this one."""
        if run in self.chains and self.chains[run][-1].sequence == sequence:
            self.removed.add(run)
            self.markers.pop(run, None)
            del self.chains[run], self.ledgers[run]
            self._check_one_owner()

    def head(self, run: str) -> Manifest | None:
        return self.chains[run][-1] if run in self.chains else None

    def runs(self) -> list[str]:
        return list(self.chains)

    def read(self, shard: int, start: int) -> list[tuple[str, int]]:
        return self.inbox[shard][start:]

    def deliver(self, shard: int, producer: str, number: int) -> None:
        self.inbox[shard].append((producer, number))

    def publish(self, run: str, number: int) -> None:
        if run in self.removed or number <= self.markers[run]:
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
        holders = [(shard, run) for run, head in self.ledgers.items() for shard in head.held]
        check(len({shard for shard, _ in holders}) == len(holders), f"a shard has two holders: {sorted(holders)}")
        check(len(handover.custody(self.ledgers)) == SHARDS, "a shard is nobody's")


def node(name: str, rng: random.Random):
    """What a node does, as requests: run after run, each with the shards that the assignment gives it when it begins."""
    while True:
        number = yield from until("register")
        run, token = str(number), f"{name}-{number}"
        first = yield from until("head", ORIGIN)
        head = None
        if (yield from until("begin", begun_state(JOB, number, token, first))):
            head = yield from taken(name, run, token, rng)
        if head is not None and ledger_of(head).held:
            yield from work(name, run, token, head, rng)


def taken(name: str, run: str, token: str, rng: random.Random):
    """Take the shards that are the node's, step by step; return the run's newest record, None if a later run is in the way."""
    published: dict[str, int] = {}
    known: dict[str, Manifest] = {}
    lost: frozenset[str] = frozenset()
    while True:
        wanted = frozenset((yield from until("assigned")).shards_of(name))
        listed = yield from until("runs")
        # Who finds that a taker is gone reads everything anew.
        known = {each: state for each, state in known.items() if each in listed and not lost}
        for other in listed:
            # What is known of another may be old: nobody may rely on reading all chains at one moment. Its own is read
            # anew: a request that it gave up waiting for may have taken effect since.
            if other == run or other not in known or rng.random() < 0.7:
                yield from look(known, other)
        if run not in known:
            return None
        ledgers = {each: ledger_of(state) for each, state in known.items()}
        for other in {whose.run for whose in handover.custody(ledgers).values()} - ledgers.keys():
            yield from look(known, other)
        ledgers = {each: ledger_of(state) for each, state in known.items()}
        custody = handover.custody(ledgers)
        named = frozenset(whose.run for whose in custody.values()) - ledgers.keys()
        gone, lost = known_gone(lost, named), named
        missing = wanted - ledgers[run].held.keys()
        if any(custody[shard].run != ORIGIN and int(custody[shard].run) > int(run) for shard in missing):
            return None
        if known[run].run != token and ledgers[run].revoked:
            return None
        step = handover.next_step(run, wanted, ledgers, published, gone)
        if isinstance(step, Publish):
            if (yield "publish", (step.run, step.number)) is not LOST:
                published[step.run] = step.number
        elif isinstance(step, Append):
            of = step.ledger.run
            adopted = step.ledger.held.keys() - ledgers[of].held.keys()
            sources = [state for each, state in known.items() if adopted & ledgers[each].revoked.keys()]
            done = yield "append", (state_of(known[of], step.ledger, token, sources),)
            if done is True and any(custody[shard].run in gone for shard in step.ledger.revoked):
                yield "count_reclaimed", ()
        elif not missing:
            return known[run]


def look(known: dict[str, Manifest], run: str):
    """Read the newest record of a run; one without a chain is known no longer."""
    state = yield from until("head", run)
    if state is None:
        known.pop(run, None)
    else:
        known[run] = state


def known_gone(before: frozenset[str], named: frozenset[str]) -> frozenset[str]:
    """Return the takers that were known to be gone before all was read anew, and are named still."""
    return before & named


def sweeper(rng: random.Random):
    """Remove what is left of settled runs. One that has just begun is settled too, and seldom taken for old."""
    while True:
        heads = {}
        for run in sorted((yield from until("runs")), key=lambda run: 0 if run == ORIGIN else int(run)):
            yield from look(heads, run)
        ledgers = {run: ledger_of(state) for run, state in heads.items()}
        custody = handover.custody(ledgers)
        for run, ledger in ledgers.items():
            if (ledger.terms or rng.random() < 0.1) and sweep.is_settled(ledger, custody):
                yield "remove", (run, heads[run].sequence)


def work(name: str, run: str, token: str, head: Manifest, rng: random.Random):
    """Count events batch by batch, until a shard was taken from the run or the node is to have others."""
    published = 0
    while True:
        mine = ledger_of(head)
        if published < mine.staged:
            if (yield "publish", (run, mine.staged)) is not LOST:
                published = mine.staged
            continue
        if frozenset((yield from until("assigned")).shards_of(name)) != mine.held.keys() and rng.random() < 0.8:
            return
        changed, shards = {}, dict(head.shards)
        positions = {shard: holding.position for shard, holding in mine.held.items()}
        for shard, holding in mine.held.items():
            events = (yield from until("read", shard, holding.position))[: rng.randint(1, 3)]
            if events:
                file = f"{mine.number + 1}-{shard}-{rng.random()}"
                yield from until("write", shared(head.id.stream_id, file), holding, tuple(events))
                shards[shard] = ShardParts(PartRef(FileRef(file, 0, 0), mine.number + 1, 0, 0))
                positions[shard] += len(events)
                changed[shard] = shared(head.id.stream_id, file)
        if not changed:
            continue
        following = head.replace(
            id=CheckpointId(head.id.stream_id, head.sequence + 1),
            kind="batch",
            run=token,
            shards=shards,
            source_offsets={"in": json.dumps(positions)},
            parent=head.sequence,
            **settled(head, (StagedOutput("out", 1),)),
        )
        if (yield "commit", (following, changed)) is True:
            head = following
            continue
        head = yield from until("head", run)
        if head is None or head.run != token:
            return


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
        self.names = [f"n{number}" for number in range(nodes)]
        for name in self.names:
            self.start(name)
            self.spawn(membership(add_node, name), name=None)
        for name in ("p", "q"):
            self.spawn(producer(name, events, self.rng), name=None)
        self.spawn(sweeper(self.rng), name=None)

    def start(self, name: str) -> None:
        self.spawn(node(name, self.rng), name=name)

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
        if process.name is not None and what in ("append", "commit", "begin") and self.rng.random() < 0.05:
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
            state, changed = arguments
            return world.append(state, {shard: world.files[file][0] for shard, file in changed.items()})
        if what == "count_reclaimed":
            world.reclaimed += 1
            return None
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
            elif process.generator.__name__ in ("membership", "sweeper"):
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
