"""What must always be true of jobs, looked at whenever an object is written or deleted, and what must be true in the end."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from simulation.sinks import FILES, TABLE, files_of
from simulation.sometimes import sometimes
from tidewheel._checkpoint.encoding import decode
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder, path, sequence_of, stream_of
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel._engine.commit import is_computed

if TYPE_CHECKING:
    from simulation.job_world import JobWorld

_RECORD = re.compile(r"state/([^/]+)/chain/(\d{20})\.rec")
_OUTPUT = re.compile(r"out/([^/~]+)~out~(\d{20})~[^/]*")
_FILE = re.compile(r"state/([^/]+)/((?:state|staged)/.*)")


class JobChecks:
    """Follows the chains and the sinks of all jobs of a world."""

    def __init__(self, world: JobWorld) -> None:
        self.world, self.bucket = world, world.bucket
        self.standing: dict[str, dict[int, Manifest]] = defaultdict(dict)
        """The records of each job's chain that are there."""
        self.committed: dict[str, dict[int, Manifest]] = defaultdict(dict)
        """All records that ever were in it."""
        self.bucket.on_put.append(self._put)
        self.bucket.on_delete.append(self._deleted)
        world.database.on_insert.append(self._inserted)

    def head(self, job: str) -> Manifest | None:
        """Return the newest commit of a job."""
        standing = self.standing[job]
        return standing[max(standing)] if standing else None

    # After each step.

    def _put(self, where: str, data: bytes) -> None:
        if match := _RECORD.fullmatch(where):
            job, number = stream_of(match[1]), int(match[2])
            assert job is not None
            if data:
                self._committed(job, number, data)
            else:
                # Records at and below an emptied one are not part of the chain any more.
                standing = self.standing[job]
                for at in [at for at in standing if at <= number]:
                    del standing[at]
        elif match := _OUTPUT.fullmatch(where):
            self._placed(where, match[1], int(match[2]), data)

    def _committed(self, job: str, number: int, data: bytes) -> None:
        check, standing = self.world.check, self.standing[job]
        state = decode(data, job, "in the simulation", StreamCheckpoints(self.world.direct, job).load_page)
        newest = self.head(job)
        if newest is not None and number < min(standing):
            sometimes("late writer created a record below the chain")
            return
        self.world.note(f"commit {job} {number} {state.kind} of run {state.run} at {state.source_offsets.get('in', 0)}")
        missing = [name for name in state.needed_names() if f"state/{path(job, name)}" not in self.bucket.objects]
        check(not missing, f"commit {number} of {job} refers to files that are not there: {missing}")
        if newest is not None:
            self._follows(job, newest, state)
        if state.kind == "fork":
            self.world.first[job] = state.source_offsets.get("in", 0)
        standing[number] = self.committed[job][number] = state
        if is_computed(state.kind):
            self._staged(job, state)

    def _follows(self, job: str, newest: Manifest, state: Manifest) -> None:
        check, number = self.world.check, state.sequence
        check(number == newest.sequence + 1, f"{job}: commit {number} follows {newest.sequence}")
        check(state.now >= newest.now or self.world.wrong > 30, f"{job}: the time of commit {number} goes back")
        if state.kind in ("claim", "restore"):
            sometimes("claim over a run that had not ended", state.kind == "claim" and newest.kind == "batch")
            unpublished = any(output.sink == TABLE and output.tokens for output in newest.outputs)
            behind = self.world.database.markers.get(job, 0) < outputs_of(newest)
            sometimes("taken over between a commit and its publication", unpublished and behind)
        else:
            check(
                state.run == newest.run, f"{job}: commit {number} is of run {state.run}, which {newest.run} has fenced"
            )
        if state.kind == "restore":
            return
        check(state.parent == newest.sequence, f"{job}: commit {number} has the parent {state.parent}")
        before, after = (each.source_offsets.get("in", 0) for each in (newest, state))
        assert isinstance(before, int)
        assert isinstance(after, int)
        check(after >= before, f"{job}: commit {number} goes back from event {before} to {after}")
        if is_computed(state.kind):
            self._published(job, newest, number)
            new = state.needed_names() - newest.needed_names()
            sometimes("commit adopted a merge", any(name.endswith((".run", ".snap")) for name in new))

    def _published(self, job: str, newest: Manifest, number: int) -> None:
        """Check that a batch is committed only if all output before it is published."""
        for output in newest.outputs:
            there = (
                self.world.database.markers.get(job, 0) >= outputs_of(newest)
                if output.sink == TABLE
                else self.marker(job) >= outputs_of(newest)
            )
            self.world.check(
                there or not output.tokens,
                f"{job}: commit {number} was made before {output.sink} had the output of {outputs_of(newest)}",
            )

    def _staged(self, job: str, state: Manifest) -> None:
        """Check that what a batch is to publish can be published."""
        for output in state.outputs:
            for file in files_of(output.tokens[0]) if output.sink == FILES and output.tokens else ():
                where = f"out/_tidewheel/{folder(job)}~out/staged/{file.staged}"
                self.world.check(
                    where in self.bucket.objects, f"{job}: the output {where} is not there when it is committed"
                )

    def marker(self, job: str) -> int:
        """Return up to which commit the files of a job are in place."""
        names = (
            name for name in self.bucket.objects if name.startswith(f"out/_tidewheel/{folder(job)}~out/published-")
        )
        return max((int(name[-20:]) for name in names), default=0)

    def _placed(self, where: str, name: str, sequence: int, data: bytes) -> None:
        job = stream_of(name)
        assert job is not None
        state = self.committed[job].get(sequence)
        finals = (
            []
            if state is None
            else [
                file.final
                for output in state.outputs
                if output.sink == FILES
                for token in output.tokens
                for file in files_of(token)
            ]
        )
        self.world.check(where.removeprefix("out/") in finals, f"{where} was published, and no commit says so")
        self.world.check(
            sequence > self.marker(job) or where in self.bucket.objects, f"{where} was published after later output"
        )

    def _inserted(self, job: str, sequence: int, rows: list[int]) -> None:
        state = self.committed[job].get(sequence)
        self.world.check(
            state is not None and any(output.sink == TABLE and output.tokens for output in state.outputs),
            f"{job}: rows of commit {sequence} were published, and no commit says so",
        )

    def _deleted(self, where: str) -> None:
        if match := _RECORD.fullmatch(where):
            job, number = stream_of(match[1]), int(match[2])
            assert job is not None
            standing = self.standing[job]
            if number in standing:
                self.world.check(number == min(standing), f"{job}: record {number} was removed before earlier ones")
                self.world.check(len(standing) > 1, f"{job}: the newest record {number} was removed")
                del standing[number]
        elif match := _FILE.fullmatch(where):
            self._unneeded(where, match[1], match[2])

    def _unneeded(self, where: str, owner: str, name: str) -> None:
        for job, standing in self.standing.items():
            own = folder(job) == owner
            for number, state in standing.items():
                needed = {path(job, each) for each in state.needed_names()}
                self.world.check(
                    where.removeprefix("state/") not in needed, f"{where} was deleted; {number} of {job} needs it"
                )
                if own and name.startswith("staged/") and state.outputs and outputs_of(state) == sequence_of(name):
                    self.world.check(
                        state is not self.head(job) or self.world.database.markers.get(job, 0) >= outputs_of(state),
                        f"{where} was deleted; it is not published",
                    )

    # In the end.

    def finally_exact(self, job: str) -> None:
        """Check state and output of a job against a count of its events."""
        head = self.head(job)
        assert head is not None
        end = head.source_offsets["in"]
        assert isinstance(end, int)
        events = self.world.events[:end]
        totals: dict[str, int] = {}
        for number, key in enumerate(events):
            totals[key] = totals.get(key, 0) + number + 1
        found = dict(StateReader(self.world.direct, head).scan("sum"))
        self.world.check(found == totals, f"{job}: the state is {found} and must be {totals}")
        wanted = list(range(self.world.first[job], end))
        rows = sorted(row for rows in self.world.database.rows.get(job, {}).values() for row in rows)
        self.world.check(rows == wanted, f"{job}: the table has {rows} and must have 0 to {end}")
        prefix = f"out/{folder(job)}~out~"
        files = [blob.data for where, blob in self.bucket.objects.items() if where.startswith(prefix)]
        rows = sorted(row for data in files for row in json.loads(data))
        self.world.check(rows == wanted, f"{job}: the files have {rows} and must have 0 to {end}")

    def finally_tidy(self, job: str) -> None:
        """Check that a collection leaves only what a checkpoint or a pin needs."""
        checkpoints = StreamCheckpoints(self.world.direct, job)
        kept, pins = checkpoints.list(), checkpoints.pins.all()
        needed = {name for state in kept for name in state.needed_names()} | {
            name for pin in pins for name in pin.files
        }
        for entry in checkpoints.folder.list():
            number = sequence_of(entry.path)
            if number is not None and number < kept[0].sequence and entry.path not in needed:
                self.world.check(False, f"{job}: nobody needs {entry.path}, and a collection leaves it")
        for pin in pins:
            if pin.kind == "savepoint" and pin.name not in self.world.savepoints[job]:
                continue  # Its maker was told that it failed, or was killed before it had looked whether it came in time.
            lacking = [name for name in pin.files if f"state/{path(job, name)}" not in self.bucket.objects]
            self.world.check(not lacking, f"{job}: the pin {pin.name} needs files that are gone: {lacking}")
            self.world.check(pin.kind not in ("reader", "adopter"), f"{job}: the pin {pin.name} was left behind")
