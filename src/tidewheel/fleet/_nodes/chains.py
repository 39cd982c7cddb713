"""The commit chains of a fleet's runs, and the steps by which a run takes shards."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Iterable

from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._core import faults
from tidewheel._storage import Store
from tidewheel.errors import FencedError, StateError
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.errors import Overtaken
from tidewheel.fleet._nodes.handover import Append, Ledger
from tidewheel.fleet._nodes.ledger import (
    begun_state,
    check_fleet,
    closed,
    first_state,
    gained,
    is_closed,
    is_last,
    last_of,
    ledger_of,
    state_of,
    stream_of,
)
from tidewheel.fleet._nodes.runs import Run, Runs

REVOKED = faults.declare("fleet.revoked", "a taker's record is in the holder's chain, the shards have no owner")
PUBLISHED_FOR = faults.declare("fleet.published-for", "a taker has published what the holder had committed")
ADOPTED = faults.declare("fleet.adopted", "the shards are in the taker's chain, nothing is read")
LAST = faults.declare("fleet.last-record", "the last record of a run that is over is in its chain, nothing is removed")

_PAUSE_S = 0.1


class Chains:
    """All chains of one fleet, as last read. Not thread-safe."""

    def __init__(self, store: Store, job: str) -> None:
        self.store, self.job = store, job
        self.runs = Runs(store, job)
        self.heads: dict[str, Manifest] = {}
        self.gone: frozenset[str] = frozenset()
        """Runs that were known to be removed before the last `ledgers` call began, but are still named as takers."""
        self._removed: frozenset[str] = frozenset()
        self._checkpoints: dict[str, StreamCheckpoints] = {}

    def of(self, run: str) -> StreamCheckpoints:
        """Return the chain of a run."""
        if run not in self._checkpoints:
            self._checkpoints[run] = StreamCheckpoints(self.store, stream_of(self.job, run))
        return self._checkpoints[run]

    def open_origin(self, n_shards: int) -> Manifest:
        """Return the newest manifest of the origin, created if missing; raise if it does not match."""
        chain = self.of(ORIGIN)
        newest = chain.latest()
        while newest is None:
            with contextlib.suppress(FencedError):  # Another node was first.
                chain.commit(first_state(self.job, n_shards, secrets.token_hex(4), secrets.token_hex(6)))
            newest = chain.latest()
        check_fleet(newest, n_shards)
        return newest

    def begin(self, node: str, n_shards: int) -> Run:
        """Start a run of a node."""
        first = self.open_origin(n_shards)
        run = self.runs.register(node)
        try:
            self.of(run.name).begin(begun_state(self.job, run.number, run.token, first), origin=ORIGIN)
        except StateError as error:
            raise Overtaken(f"run {run.number} of node {node} was declared dead before it had begun") from error
        return run

    def bury(self, run: str, token: str) -> None:
        """Create the closed chain of a run whose node did not create it; do nothing if the node has created it since."""
        first = self.of(ORIGIN).latest()
        assert first is not None
        with contextlib.suppress(StateError):
            self.of(run).begin(begun_state(self.job, int(run), token, first, token), origin=ORIGIN)

    def ledgers(self) -> dict[str, Ledger]:
        """Read the newest record of every run, older runs first, and of the origin."""
        self.heads = {}
        ledgers = self._read((ORIGIN, *map(str, self.runs.numbers())))
        # A late request of a forgotten run may have taken effect: then its chain is needed again.
        while lost := {whose.run for whose in handover.custody(ledgers).values()} - ledgers.keys():
            found = self._read(sorted(lost))
            if not found:
                break
            ledgers |= found
        # A taker creates its chain before anybody names it, so a taker without a chain is gone permanently.
        self.gone, self._removed = self._removed & lost, frozenset(lost)
        return ledgers

    def entries(self) -> dict[str, Run | None]:
        """Return the entry of each run that `ledgers` has read, by name; None if the entry was removed."""
        return {name: self.runs.get(int(name)) for name in self.heads if name != ORIGIN}

    def _read(self, runs: Iterable[str]) -> dict[str, Ledger]:
        heads = {run: self.of(run).latest() for run in runs}
        found = {run: newest for run, newest in heads.items() if newest is not None and not is_last(newest)}
        self.heads |= found
        return {run: ledger_of(head) for run, head in found.items()}

    def close(self, run: str, token: str) -> bool:
        """Prevent a run from adopting more shards, if its newest record is still the one that was read."""
        if is_closed(self.heads[run]):
            return True
        try:
            self.of(run).commit(closed(self.heads[run], token))
        except FencedError:
            return False
        return True

    def remove(self, run: str, token: str) -> None:
        """Remove the remains of an ended run. Raise `FencedError` if its chain has a newer record than the one read here.

        First a last record is created, to which nobody appends: any other successor of the record that was read finds
        its number taken. An interrupted removal continues from there.
        """
        checkpoints = self.of(run)
        newest = checkpoints.head
        if newest is not None and not is_last(newest):
            checkpoints.commit(last_of(newest, token))
            faults.point(LAST)
        checkpoints.remove()
        where = self.store.at(folder(stream_of(self.job, run)))
        for entry in where.list():
            where.delete(entry.path)

    def append(self, ledger: Ledger, token: str) -> bool:
        """Append a ledger to its chain; return False if another record has its number."""
        head = self.heads[ledger.run]
        new = gained(head, ledger)
        sources = [state for state in self.heads.values() if new & set(ledger_of(state).revoked)]
        try:
            self.of(ledger.run).commit(state_of(head, ledger, token, sources))
        except FencedError:
            return False
        return True


def take(
    chains: Chains,
    run: Run,
    wanted: Callable[[], Collection[int]],
    publish: Callable[[Manifest], None],
    check: Callable[[Manifest], None],
) -> Ledger:
    """Take the wanted shards for a run, whoever holds them, and return its ledger when it has them.

    `publish` publishes the output that a manifest carries, `check` refuses state that the program cannot continue.
    Raises `Overtaken` if a later run has one of the shards; only a run that starts now can take it.
    """
    published: dict[str, int] = {}
    while True:
        ledgers = chains.ledgers()
        if run.name not in ledgers or is_closed(chains.heads[run.name]):
            raise Overtaken(f"run {run.number} of node {run.node} was declared dead before it had any shards")
        wanted_shards = frozenset(wanted())
        missing = wanted_shards - set(ledgers[run.name].held)
        custody = handover.custody(ledgers)
        if any(_number(custody[shard].run) > run.number for shard in missing):
            raise Overtaken(f"a later run holds a shard that run {run.number} of node {run.node} was to take")
        step = handover.next_step(run.name, wanted_shards, ledgers, published, chains.gone)
        if isinstance(step, Append):
            before = ledgers[step.ledger.run]
            for state in chains.heads.values() if step.ledger.run == run.name else ():
                if set(ledger_of(state).revoked) & (set(step.ledger.held) - set(before.held)):
                    check(state)
            if chains.append(step.ledger, run.token):
                faults.point(ADOPTED if step.ledger.run == run.name else REVOKED)
        elif step is not None:
            # A forgotten run has published everything: its files are deleted, and its marker may be too.
            if chains.runs.get(int(step.run)) is not None:
                publish(chains.heads[step.run])
                faults.point(PUBLISHED_FOR)
            published[step.run] = step.number
        elif not missing:
            return ledgers[run.name]
        else:
            time.sleep(_PAUSE_S)  # Another taker is between two of its steps.


def _number(run: str) -> int:
    return 0 if run == ORIGIN else int(run)
