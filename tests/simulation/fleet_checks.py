"""What must always be true of a fleet, looked at whenever an object is written or deleted, and what must be true in the end."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from simulation.sinks import FILES, TABLE, files_of
from simulation.sometimes import sometimes
from simulation.tasks import STEP
from tidewheel._checkpoint.encoding import decode
from tidewheel._checkpoint.fleet_ledger import ORIGIN, run_of
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder, path, stream_of
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel.errors import CorruptError
from tidewheel.fleet._nodes.fleet_state import whole
from tidewheel.fleet._nodes.handover import Ledger
from tidewheel.fleet._nodes.ledger import ledger_of

if TYPE_CHECKING:
    from simulation.fleet_world import FleetWorld

_RECORD = re.compile(r"state/([^/]+)/chain/(\d{20})\.rec")
_FILE = re.compile(r"state/([^/]+)/((?:state|staged)/.*)")


class FleetChecks:
    """Follows the chains of all runs of a fleet, and its sinks."""

    def __init__(self, world: FleetWorld, job: str) -> None:
        self.world, self.job, self.bucket = world, job, world.bucket
        self.standing: dict[str, dict[int, Manifest]] = defaultdict(dict)
        """The records that are in the chain of each stream."""
        self.committed: dict[tuple[str, int], Manifest] = {}
        """All records that ever were in a chain."""
        self.ledgers: dict[str, Ledger] = {}
        """The ledger of the newest record of each stream."""
        self.tokens: dict[str, str] = {}
        self.terms: dict[tuple[int, int], str] = {}
        """Who held each shard at each of its terms."""
        self.newest: dict[int, int] = {}
        """The highest term at which each shard was held."""
        self.positions: dict[int, int] = {}
        self.removed: set[str] = set()
        """The runs that are over and whose chain was removed."""
        self.last: Counter[str] = Counter()
        """The number of the last output of each key."""
        self.seen: dict[tuple[str, str], int] = {}
        """The last event of each producer and key in the output."""
        self.bucket.on_put.append(self._put)
        self.bucket.on_delete.append(self._deleted)
        world.database.on_insert.append(self._inserted)

    # After each step.

    def _put(self, where: str, data: bytes) -> None:
        if not (match := _RECORD.fullmatch(where)):
            if file := _FILE.fullmatch(where):
                sometimes("file written for a forgotten run", self._is_forgotten(stream_of(file[1])))
            return
        stream, number = stream_of(match[1]), int(match[2])
        assert stream is not None
        standing = self.standing[stream]
        if stream in self.removed:
            # Its writer looks back, finds that the chain was removed, and commits nothing.
            sometimes("run woke up after its chain was removed")
        elif not data:
            for at in [at for at in standing if at <= number]:
                del standing[at]
        elif not standing or number > min(standing):
            self._committed(stream, number, data)
        else:
            sometimes("late writer created a record below the chain of a run")

    def _is_forgotten(self, stream: str | None) -> bool:
        run = ORIGIN if stream is None else run_of(stream)
        return run != ORIGIN and f"state/{folder(self.job)}/runs/{int(run):010}" not in self.bucket.objects

    def _committed(self, stream: str, number: int, data: bytes) -> None:
        check, standing = self.world.check, self.standing[stream]
        state = decode(data, stream, "in the simulation", StreamCheckpoints(self.world.direct, stream).load_page)
        if standing:
            check(number == max(standing) + 1, f"{stream}: record {number} follows {max(standing)}")
        ledger = ledger_of(state)
        held = {shard: (holding.term, holding.position) for shard, holding in ledger.held.items()}
        self.world.note(f"commit {stream} {number & 0xFFFFFFFF} {state.kind} of {state.run}, holds {held}")
        # Of a shard that its taker has adopted, a record of the former holder may name files that are gone.
        adopted = [
            taken.holding.parts
            for shard, taken in ledger.revoked.items()
            if taken.holding.term <= self.newest.get(shard, 0)
        ]
        gone = {file.name[1:] for parts in adopted for file in parts.files()}
        needed = {path(stream, name) for name in state.needed_names()} - gone
        missing = [name for name in sorted(needed) if f"state/{name}" not in self.bucket.objects]
        check(not missing, f"record {number} of {stream} refers to files that are not there: {missing}")
        if run_of(stream) != ORIGIN:
            self._held(stream, state, ledger)
        self._count_events(stream, ledger, state)
        standing[number] = self.committed[stream, number] = state
        self.ledgers[stream] = ledger
        if state.kind == "batch":
            self._staged(stream, state)

    def _count_events(self, stream: str, ledger: Ledger, state: Manifest) -> None:
        before = self.ledgers.get(stream)
        if before is None or state.kind != "handover":
            return
        taken = ledger.revoked.keys() - before.revoked.keys()
        sometimes("shard taken from a run with unpublished output", bool(taken) and bool(state.outputs))
        sometimes("shard passed over a run that never adopted it", bool(taken - before.held.keys()))
        closed = state.fleet is not None and state.fleet.closed_by is not None
        sometimes("run that was over closed", closed and not taken)
        sometimes(
            "shard given back to a node of earlier", bool(ledger.held.keys() & before.terms.keys() - before.held.keys())
        )

    def _held(self, stream: str, state: Manifest, ledger: Ledger) -> None:
        check = self.world.check
        if state.kind != "handover":
            token = self.tokens.setdefault(stream, state.run)
            check(token == state.run, f"{stream}: a batch of {state.run} follows those of {token}")
        for shard, holding in ledger.held.items():
            holder = self.terms.setdefault((shard, holding.term), stream)
            check(holder == stream, f"shard {shard} has two holders at term {holding.term}: {holder} and {stream}")
            if state.kind == "handover":
                self.newest[shard] = max(self.newest.get(shard, 0), holding.term)
                continue
            newest = self.newest.get(shard, 0)
            check(holding.term == newest, f"{stream} commits shard {shard} at term {holding.term}; {newest} is held")
            before = self.positions.get(shard, 0)
            check(holding.position >= before, f"{stream}: shard {shard} goes back from {before} to {holding.position}")
            self.positions[shard] = holding.position
        if state.kind == "batch":
            self._published(stream, state.sequence - 1)

    def _published(self, stream: str, before: int) -> None:
        """Check that a batch is committed only if all output before it is published."""
        newest = self.standing[stream].get(before)
        for output in newest.outputs if newest is not None else ():
            there = self.world.database.markers.get(stream, 0)
            self.world.check(
                output.sink != TABLE or there >= outputs_of(newest) or not output.tokens,
                f"{stream}: a commit was made before the output of {outputs_of(newest)} was published",
            )

    def _staged(self, stream: str, state: Manifest) -> None:
        """Check that what a batch is to publish can be published."""
        for output in state.outputs:
            for file in files_of(output.tokens[0]) if output.sink == FILES and output.tokens else ():
                where = f"out/_tidewheel/{folder(stream)}~out/staged/{file.staged}"
                self.world.check(where in self.bucket.objects, f"{stream}: {where} is not there when it is committed")

    def _inserted(self, stream: str, sequence: int, rows: list[Any]) -> None:
        check = self.world.check
        check((stream, sequence) in self.committed, f"{stream}: {sequence} was published, and no commit says so")
        head = max(self.standing[stream], default=sequence)
        sometimes("output of a run published after its shards were taken", head > sequence)
        for key, number, producer, event in rows:
            check(
                number == self.last[key] + 1,
                f"{stream}: output {number} of {key} was published after {self.last[key]}: lost, twice, or out of order",
            )
            self.last[key] = number
            check(event > self.seen.get((producer, key), -1), f"event {event} of {producer} was counted late or twice")
            self.seen[producer, key] = event

    def _deleted(self, where: str) -> None:
        if match := _RECORD.fullmatch(where):
            stream = stream_of(match[1])
            assert stream is not None
            standing = self.standing[stream]
            standing.pop(int(match[2]), None)
            if not standing:
                sometimes("chain of a run removed")
                self.removed.add(stream)
        elif match := _FILE.fullmatch(where):
            name = where.removeprefix("state/")
            for shard, holder in self._holders().items():
                for number, state in self.standing[holder].items():
                    needed = {path(holder, each) for each in state.needed_names()}
                    self.world.check(name not in needed, f"{where} was deleted; {number} of {holder} needs it")
                ledger = self.ledgers[holder]
                given = [holding for holding in (ledger.held.get(shard), self._given(ledger, shard)) if holding]
                files = {file.name for holding in given for file in holding.parts.files()}
                self.world.check(f"/{name}" not in files, f"{where} was deleted; shard {shard} of {holder} needs it")

    @staticmethod
    def _given(ledger: Ledger, shard: int) -> Any:
        taken = ledger.revoked.get(shard)
        return None if taken is None else taken.holding

    def _holders(self) -> dict[int, str]:
        """Return the stream whose record has the highest term of each shard, held or given away."""
        found: dict[int, tuple[int, str]] = {}
        for stream, ledger in self.ledgers.items():
            if not self.standing[stream]:
                continue
            terms = [(shard, taken.holding.term, 0) for shard, taken in ledger.revoked.items()]
            terms += [(shard, holding.term, 1) for shard, holding in ledger.held.items()]
            for shard, term, held in terms:
                if shard not in found or (2 * term + held) > found[shard][0]:
                    found[shard] = (2 * term + held, stream)
        return {shard: stream for shard, (_, stream) in found.items()}

    # In the end.

    def published(self) -> set[tuple[str, int]]:
        """Return the events whose output is in the table."""
        return {(producer, event) for *_, producer, event in self._rows()}

    def _rows(self) -> list[Any]:
        rows = self.world.database.rows
        return [row for commits in rows.values() for some in commits.values() for row in some]

    def finally_exact(self, wanted: set[tuple[str, int]], possible: set[tuple[str, int]]) -> None:
        """Check state and output against the events that were sent."""
        check = self.world.check
        prefix = f"out/{folder(self.job)}"
        files = [blob.data for where, blob in self.bucket.objects.items() if where.startswith(prefix)]
        table = sorted(map(tuple, self._rows()))
        found = sorted(tuple(row) for data in files for row in json.loads(data))
        check(found == table, f"the files have {found}, the table has {table}")
        events = Counter((producer, event) for *_, producer, event in table)
        check(max(events.values(), default=0) < 2, f"events are in the output twice: {events}")
        check(wanted <= events.keys() <= wanted | possible, f"the output has {sorted(events)} and not {sorted(wanted)}")
        try:
            state = whole(self.world.direct, self.job)
        except CorruptError as error:
            check(False, f"the state cannot be read: {error}")
        totals = dict(StateReader(self.world.direct, state).scan(STEP))
        count = Counter(key for key, *_ in table)
        check(totals == dict(count), f"the state is {totals} and must be {dict(count)}")

    def finally_tidy(self) -> None:
        """Check that sweeping leaves only files that a holder needs, and its own."""
        holders = set(self._holders().values())
        needed = {
            path(stream, name)
            for stream in holders
            for state in self.standing[stream].values()
            for name in state.needed_names()
        }
        for where in self.bucket.objects:
            match = _FILE.fullmatch(where)
            owner = stream_of(match[1]) if match else None
            if owner is not None and owner not in holders:
                name = where.removeprefix("state/")
                self.world.check(name in needed, f"nobody needs {where}, and sweeping leaves it")
