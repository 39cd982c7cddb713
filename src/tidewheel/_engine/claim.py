"""Who runs a job: a lease for manners, a claim in the chain for safety.

The lease says who is at work and is renewed while they are; it keeps a second run from starting by mistake. What makes
it safe when the lease lies (a paused machine, a broken clock) is the claim: a record in the commit chain. A
run commits the number after the newest it knows, so whoever was overtaken by a claim finds its number taken.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from tidewheel._cells.connection import Connection
from tidewheel._cells.errors import CellError
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.unpublished import carried
from tidewheel._core import faults
from tidewheel._engine.control import NAMESPACE
from tidewheel._state.local_copies import boot_id
from tidewheel.errors import FencedError, HeldError, StateError

LEASE_SECONDS = 15.0

CLAIMED = faults.declare("start.claimed", "the claim is in the chain, nothing else has happened")


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lease, and until when."""

    run: str
    host: str
    boot: str
    pid: int
    process_started: int
    expires_at: float

    def describe(self) -> str:
        """Return who it is, for messages."""
        return f"run {self.run} (process {self.pid} on {self.host})"


def is_fresh(holder: Holder, now: float, here: Holder, alive: bool) -> bool:
    """Tell whether a holder may still be at work.

    On this boot of this machine its process can be looked up, and a process that is gone holds nothing. Elsewhere, and in
    another container, which has a host name and process numbers of its own, only the lease's time counts.
    """
    if (holder.boot, holder.host) == (here.boot, here.host) and not alive:
        return False
    return now < holder.expires_at


def this_process(run: str) -> Holder:
    """Return this process as a holder, with a lease from now on."""
    return Holder(
        run,
        socket.gethostname(),
        boot_id(),
        os.getpid(),
        _process_started(os.getpid()),
        time.time() + LEASE_SECONDS,
    )


class Lease:
    """The job's lease, a cell that is renewed by a thread of its own."""

    def __init__(self, connection: Connection, run: str) -> None:
        """Take the connection to the job's cells."""
        self._cell = connection.writer("lease", Holder, namespace=NAMESPACE, type_name="tidewheel.Holder")
        self._run = run
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def holder(self) -> Holder | None:
        """Return who holds the lease and may still be at work, or None."""
        holder = self._cell.refresh().value
        if holder is None or holder.run == self._run:
            return None
        alive = _process_started(holder.pid) == holder.process_started
        return holder if is_fresh(holder, time.time(), this_process(self._run), alive) else None

    def take(self) -> None:
        """Write the lease and keep renewing it."""
        self._cell.write(this_process(self._run))
        self._thread = threading.Thread(target=self._keep, name="tidewheel-lease", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._done.wait(LEASE_SECONDS / 3):
            try:
                if not self._replace(this_process(self._run)):
                    return  # Taken over: the next commit will say so.
            except CellError:
                # The lease is manners; if the store is out of reach, the commit is what fails, with a better message.
                continue

    def _replace(self, holder: Holder | None) -> bool:
        """Change the lease if it is still ours."""
        held = self._cell.refresh()
        if held.value is None or held.value.run != self._run:
            return False
        return self._cell.compare_exchange_at(held.version, holder).applied

    def release(self) -> None:
        """Stop renewing, and give the lease up if it is still ours."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            try:
                self._replace(None)
            except CellError:
                return  # It lapses by itself.


def check_free(lease: Lease, job: str) -> None:
    """Raise a `HeldError` that says who holds the job and how to take it over, if somebody does."""
    holder = lease.holder()
    if holder is not None:
        raise HeldError(
            f"job {job!r} is held by {holder.describe()}; wait until it ends, or take it over with --take-over "
            "(take_over=True), which stops it at its next commit"
        )


def check_alone(manifest: Manifest) -> None:
    """Refuse to run a job by itself whose state a fleet has."""
    if manifest.fleet is not None:
        raise StateError(
            f"job {manifest.id.stream_id!r} belongs to a fleet, whose nodes hold its shards; start a node with "
            "`tidewheel node`, or give this run a job name or a state URL of its own"
        )


def claim(
    checkpoints: StreamCheckpoints,
    lease: Lease,
    run: str,
    take_over: bool,
    first: Manifest,
    drop_unpublished: Collection[str] = (),
) -> Manifest:
    """Append this run's claim to the chain and return it, or raise a `HeldError` that says who holds the job.

    `first` is the state of a job that has no commit yet. The claim carries on what the newest commit said, its
    unpublished output too. A number that somebody else takes at the same moment is no reason to give up: whoever it was
    either holds the lease now, or did not mean to stay.
    """
    while True:
        if not take_over:
            check_free(lease, first.id.stream_id)
        newest = checkpoints.latest()
        claimed = claim_of(newest, first, run, drop_unpublished)
        try:
            checkpoints.commit(claimed)
        except FencedError:
            if newest is None and checkpoints.latest() is None:
                raise StateError(
                    f"a fork to job {first.id.stream_id!r} was begun and did not end; run the fork again"
                ) from None
            continue
        faults.point(CLAIMED)
        return claimed


def claim_of(newest: Manifest | None, first: Manifest, run: str, drop_unpublished: Collection[str] = ()) -> Manifest:
    """Return the claim that follows the newest commit, without the unpublished output of the sinks to drop."""
    base = newest or first
    sequence = 1 if newest is None else newest.sequence + 1
    owed = carried(base)
    owed["outputs"] = tuple(output for output in base.outputs if output.sink not in drop_unpublished)
    return base.replace(
        id=CheckpointId(first.id.stream_id, sequence),
        kind="claim",
        run=run,
        host=socket.gethostname(),
        parent=None if newest is None else newest.sequence,
        **owed,
    )


def _process_started(pid: int) -> int:
    """Return when a process began, in the kernel's ticks, 0 if there is none: a number that a reused pid does not have."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return 0
        except PermissionError:
            return 1
        return 1
