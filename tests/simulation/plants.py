"""Faults planted on purpose in the shipped code, each with words of the failure that the simulation then reports.

A test first plays the history (seed) that found the fault. A change of the shipped code can move a fault to other
histories, so the test then plays others of the suite. All of them pass without the fault.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from simulation import inbox, primitives
from simulation.sinks import Table, _database
from tidewheel._cells.backends import chained
from tidewheel._cells.cell import Cell, CellWriter
from tidewheel._cells.errors import Offline
from tidewheel._cells.lease import Lease
from tidewheel._checkpoint import garbage
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.pins import pin
from tidewheel._checkpoint.tools import restore as restoring
from tidewheel._connectors.files.target_folder import TargetFolder
from tidewheel._connectors.staging import staged_files, unstage
from tidewheel._engine import claim as claiming
from tidewheel._engine import plan_sinks
from tidewheel._engine.commit import next_manifest
from tidewheel._engine.run import ChainRun
from tidewheel._storage.chain import Chain
from tidewheel._storage.remote import RemoteStore
from tidewheel.errors import StorageError
from tidewheel.fleet._inbox.errors import InboxUnavailable
from tidewheel.fleet._inbox.source import InboxSource
from tidewheel.fleet._nodes import handover, node, sweep
from tidewheel.fleet._nodes.delivery import Delivery
from tidewheel.fleet._nodes.gathering import Cutter
from tidewheel.fleet._nodes.router import Router


class Plant(NamedTuple):
    """A fault: how to plant it, the kind and seed of a history that finds it, and words of the failure."""

    name: str
    kind: str
    seed: int
    says: str
    put: Callable[[Any], None]

    @property
    def text(self) -> str:
        """Return a description of the fault, for the table in docs/reliability.md."""
        text = (self.put.__doc__ or "").strip().rstrip(".")
        return text[:1].lower() + text[1:]


PLANTS: list[Plant] = []


def plant(kind: str, seed: int, says: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a fault; the function takes what pytest calls `monkeypatch`, and its docstring describes the fault."""

    def register(put: Callable[[Any], None]) -> Callable[[Any], None]:
        PLANTS.append(Plant(put.__name__, kind, seed, says, put))
        return put

    return register


def _everywhere(patch: Any, function: Any, other: Any) -> None:
    """Replace a function in all modules that have imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidewheel."):
            for attribute, value in list(vars(module).items()):
                if value is function:
                    patch.setattr(module, attribute, other)


# The chain and the store.


@plant("job", 0, "follows")
def append_overwrites(patch: Any) -> None:
    """A compare-and-exchange on the chain that does not compare."""

    def append(self: Chain, number: int, data: bytes) -> bool:
        self._store.write(f"{number:020}.rec", data)
        return True

    patch.setattr(Chain, "append", append)


@plant("cell", 11, "was told")
def exchange_forgets_its_own_write(patch: Any) -> None:
    """A repeated create request that mistakes its own object for another writer's."""

    def create(self: RemoteStore, path: str, data: bytes) -> bool:
        from tidewheel._storage import remote

        try:
            with self._explained("create", path):
                remote.obstore.put(self._client, self._full(path), data, mode="create", use_multipart=False)
        except StorageError as error:
            if type(error.__cause__).__name__ != "AlreadyExistsError":
                raise
            return False
        return True

    patch.setattr(RemoteStore, "create", create)


@plant("cell", 11, "was told")
def ambiguous_write_reported_as_failed(patch: Any) -> None:
    """A write that got no answer and is reported to its writer as failed."""
    real = chained.explained
    patch.setattr(chained, "explained", lambda error, maybe: real(error, False))


@plant("cell", 24, "the counter is")
def update_repeated_after_ambiguity(patch: Any) -> None:
    """An update that is retried after an attempt of unknown outcome."""
    real = CellWriter.update

    def update(self: CellWriter[Any], change: Any, **more: Any) -> Any:
        for _ in range(4):
            try:
                return real(self, change, **more)
            except Offline:
                self.refresh()
        return real(self, change, **more)

    patch.setattr(CellWriter, "update", update)


@plant("cell", 0, "a read returned version")
def read_from_memory(patch: Any) -> None:
    """A read that must be fresh but returns this process's cached value."""
    patch.setattr(Cell, "refresh", lambda self, *_: self.snapshot())


@plant("cell", 141, "and was")
def append_does_not_look_back(patch: Any) -> None:
    """A writer that was suspended and does not check whether its base was removed meanwhile."""
    patch.setattr(Chain, "_is_current", lambda *_: True)


# Leases.


@plant("cell", 137, "at once")
def lease_by_wall_clock(patch: Any) -> None:
    """A lease whose holder reads a clock that may jump."""
    defaults = {**Lease.__init__.__kwdefaults__, "clock": primitives.clock.time}  # type: ignore[misc]
    patch.setattr(Lease.__init__, "__kwdefaults__", defaults)


@plant("cell", 0, "at once")
def lease_not_waited_for(patch: Any) -> None:
    """A lease that others take while it is held."""
    patch.setattr(Lease, "_free_in", lambda self, snapshot: 0.0)


@plant("cell", 3, "at once")
def lease_renewed_without_asking(patch: Any) -> None:
    """A holder that renews its lease in its own memory only."""

    def renew(self: Lease) -> None:
        self._until = self._clock() + self.ttl

    patch.setattr(Lease, "renew", renew)


@plant("cell", 2, "at once")
def lease_released_by_former_holder(patch: Any) -> None:
    """A release that does not check who holds the lease."""

    def release(self: Lease) -> None:
        self._stop.set()
        self._until, self._token = float("-inf"), 0
        self._cell.clear()

    patch.setattr(Lease, "release", release)


@plant("cell", 0, "token")
def lease_token_repeats(patch: Any) -> None:
    """Fencing tokens that do not grow."""
    patch.setattr(Lease, "token", property(lambda self: 7))


# Commits and publication.


@plant("job", 0, "no commit says so")
def published_before_commit(patch: Any) -> None:
    """A run that publishes before it commits."""
    real = ChainRun.commit

    def commit(self: ChainRun, spec: Any, reports: Any, kind: Any, spark: Any, *rest: Any, **more: Any) -> bool:
        if kind == "batch":
            early = next_manifest(self.head, spec, self.plan, reports, kind, rest[0] if rest else None, None, None)
            plan_sinks.publish_output(self.plan, self.folder, early, spark)
        return real(self, spec, reports, kind, spark, *rest, **more)

    patch.setattr(ChainRun, "commit", commit)


@plant("job", 0, "was made before")
def nothing_published(patch: Any) -> None:
    """A run that publishes nothing."""
    patch.setattr("tidewheel._engine.run.publish_output", lambda *_: None)


@plant("job", 1, "must have")
def claim_drops_output(patch: Any) -> None:
    """A claim that drops the output that an earlier run left unpublished."""
    real = claiming.claim_of
    patch.setattr(claiming, "claim_of", lambda *given: real(*given).replace(outputs=()))


@plant("job", 0, "fenced")
def run_without_claim(patch: Any) -> None:
    """A run that continues from the newest commit without a record of its own."""
    real = claiming.claim

    def claim(checkpoints: Any, lease: Any, run: str, first: Manifest, drop: Any = ()) -> Manifest:
        newest = checkpoints.latest()
        return real(checkpoints, lease, run, first, drop) if newest is None else newest.replace(run=run)

    patch.setattr("tidewheel._engine.job_run.claim", claim)


@plant("job", 7, "fenced")
def recall_ignores_successor(patch: Any) -> None:
    """A run that continues after an error from the newest commit, even if another run made it."""

    def recall(self: ChainRun) -> None:
        newest = self.checkpoints.latest()
        assert newest is not None
        self._published, self.head = False, newest

    patch.setattr(ChainRun, "recall", recall)


@plant("job", 5, "goes back")
def time_by_wall_clock(patch: Any) -> None:
    """Batches that take their time from the host's clock alone."""
    patch.setattr("tidewheel._engine.run.batch_time", lambda clock, last: clock)


@plant("job", 5, "must have")
def marker_outside_transaction(patch: Any) -> None:
    """A sink that writes its rows and its marker in two requests."""

    def publish(self: Table, publication: Any) -> None:
        at, stream, sequence = _database(), publication.job, publication.sequence
        if at.call("marker", lambda: at.markers.get(stream, 0)) >= sequence:
            return
        rows = [row for ref in staged_files(publication) for row in json.loads(unstage(publication.store, ref))]

        def insert() -> None:
            at.rows.setdefault(stream, {})[sequence] = [*at.rows.get(stream, {}).get(sequence, []), *rows]

        at.call("insert", insert, True)
        at.call("mark", lambda: at.markers.__setitem__(stream, max(sequence, at.markers.get(stream, 0))), True)

    patch.setattr(Table, "publish", publish)


@plant("job", 1, "has not come to its end")
def marker_before_files(patch: Any) -> None:
    """A files sink that sets its marker before its files are in place."""
    real = TargetFolder.place_all

    def place_all(self: TargetFolder, files: Any, sequence: int) -> Any:
        self.mark(sequence)
        return real(self, files, sequence)

    patch.setattr(TargetFolder, "place_all", place_all)


# Restores.


@plant("job", 4, "must have")
def nothing_taken_back(patch: Any) -> None:
    """A run that does not remove the output that a restore made void."""
    patch.setattr("tidewheel._engine.run.take_back", lambda *_: ())


@plant("job", 4, "must have")
def restore_forgets_void_output(patch: Any) -> None:
    """A restore whose record does not say which output is void."""
    real = restoring.restored
    patch.setattr(restoring, "restored", lambda *given: real(*given).replace(retract=None))


# Garbage.


@plant("job", 0, "needs it")
def everything_collected(patch: Any) -> None:
    """A collector that reads neither checkpoints nor pins."""
    patch.setattr(garbage, "collectable", lambda listing, *_: list(listing))


@plant("job", 1, "not there")
def pins_not_read(patch: Any) -> None:
    """A collector that does not read pins."""
    real = garbage.collectable
    patch.setattr(garbage, "collectable", lambda listing, kept, pins, *rest: real(listing, kept, (), *rest))


@plant("job", 0, "not there")
def new_files_collected(patch: Any) -> None:
    """A collector that deletes files of commits that are still being made."""
    real = garbage.collectable
    patch.setattr(
        garbage, "collectable", lambda listing, kept, pins, oldest, *rest: real(listing, kept, pins, 1 << 62, *rest)
    )


@plant("job", 1, "not there")
def savepoint_without_files(patch: Any) -> None:
    """A savepoint that does not list the files that it needs."""

    def create(*given: Any, **more: Any) -> Any:
        return msgspec.structs.replace(pin(*given, **more), files=())

    _everywhere(patch, pin, create)


# Fleets.


@plant("fleet", 3, "published after")
def adopter_publishes_nothing(patch: Any) -> None:
    """A node that takes a shard without publishing the former holder's committed output."""
    patch.setattr(node.Node, "_publish", lambda self, state: None)


@plant("fleet", 0, "two holders")
def adopted_without_revoking(patch: Any) -> None:
    """A node that adds a shard to its own ledger while another holds it."""
    real = handover.next_step

    def next_step(me: str, wanted: Any, ledgers: Any, *rest: Any) -> Any:
        step = real(me, wanted, ledgers, *rest)
        if isinstance(step, handover.Append) and step.ledger.run != me:
            taken = step.ledger.revoked.items()
            return handover.Append(
                handover.adopt(ledgers[me], {shard: each.holding for shard, each in taken if each.to == me})
            )
        return step

    patch.setattr(handover, "next_step", next_step)


@plant("fleet", 0, "are not published")
def term_not_raised(patch: Any) -> None:
    """A shard that moves without a new term."""
    real = handover.revoke

    def revoke(ledger: Any, shards: Any, to: str) -> Any:
        revoked = real(ledger, shards, to)
        same = {
            shard: handover.Revoked(each.to, msgspec.structs.replace(each.holding, term=ledger.held[shard].term))
            for shard, each in revoked.revoked.items()
            if shard in ledger.held
        }
        return msgspec.structs.replace(revoked, revoked={**revoked.revoked, **same})

    patch.setattr(handover, "revoke", revoke)


@plant("fleet", 0, "late or twice")
def adopter_reads_from_the_beginning(patch: Any) -> None:
    """A node that does not continue reading where the former holder stopped."""
    real = InboxSource.reading
    patch.setattr(InboxSource, "reading", lambda self, url, start: real(self, url, dict.fromkeys(start, 0)))


@plant("fleet", 12, "needs it")
def runs_swept_too_early(patch: Any) -> None:
    """A sweep that removes runs whose shards are taken but not yet adopted."""
    patch.setattr(sweep, "is_settled", lambda ledger, known: ledger.run != "origin" and not ledger.held)


@plant("fleet", 0, "needs it")
def sweep_forgets_references(patch: Any) -> None:
    """A sweep that ignores which files later runs refer to."""
    patch.setattr(sweep, "needed", lambda ledgers: set())


@plant("fleet", 11, "late or twice")
def marks_ignored(patch: Any) -> None:
    """An inbox that stores a repeated block again."""
    patch.setattr(inbox, "is_duplicate", lambda *_: False)


@plant("fleet", 1, "are not published")
def replay_not_compared(patch: Any) -> None:
    """A router that replays without skipping what is stored."""
    real = Cutter.__init__
    patch.setattr(Cutter, "__init__", lambda self, last, stored, size: real(self, last, {}, size))


@plant("fleet", 0, "are not published")
def flush_does_not_wait(patch: Any) -> None:
    """A flush that returns before the events are stored."""
    patch.setattr(Router, "flush", lambda self, timeout=None: None)


@plant("fleet", 2, "are not published")
def failed_round_skipped(patch: Any) -> None:
    """A router that sends the next round after one that failed."""

    def append(self: Delivery, round: Any) -> None:
        try:
            self._inbox.append(round.producer, self._session, round.blocks)
        except InboxUnavailable:
            return

    patch.setattr(Delivery, "append", append)


@plant("fleet", 1, "are not published")
def inbox_trimmed_to_its_end(patch: Any) -> None:
    """A node that deletes events before they are read."""

    def trim(chains: Any, at: Any, older_than: float) -> bool:
        at.trim(at.end(range(at.n_shards)), "0 s")
        return True

    patch.setattr(node, "trim", trim)
