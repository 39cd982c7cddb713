"""The lease of a job: it keeps a second run from starting by mistake.

Clocks of different machines are never compared. A process on the holder's machine looks up the holder's process, and reads the
age of the lease from the machine's monotonic clock. A process on another machine watches the lease with its own clock: a running
holder renews the lease, and a lease that was not renewed for its whole duration has expired.

The lease only prevents mistakes. Safety, on a paused machine or a broken network, comes from the claim in the commit
chain.

A run takes the lease before it starts Spark, so the lease also shows a run that has committed nothing yet. A run that is killed
leaves its entry; a run that fails leaves an entry that says so and does not delay the next run.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidewheel._cells.cell import Exchange
from tidewheel._cells.connection import Connection
from tidewheel._cells.errors import CellError
from tidewheel._cells.job_place import HOLDER, ORDERS
from tidewheel._core.urls import Url
from tidewheel._state.local_copies import boot_id
from tidewheel.errors import HeldError

LEASE_SECONDS = 15.0
_MARGIN = 1.1
"""Others wait longer than the lease lasts by this factor, because clocks run at different speeds."""


class Holder(msgspec.Struct, frozen=True):
    """The holder of a job's lease."""

    run: str
    host: str
    boot: str
    """The boot of the machine, and the container whose processes the holder sees."""
    pid: int
    process_started: int
    renewed_at: float
    """Seconds of the monotonic clock of this boot of the holder's machine."""
    ttl: float
    since: int = 0
    """When the run took the lease, in ns since 1970 by the holder's clock; 0 where it is not known."""
    phase: str | None = None
    """The phase of the run's start; None: the start is over, or the phase is unknown."""
    failed: bool = False
    """Whether the run has failed: it no longer holds the lease, and left this entry."""

    def describe(self) -> str:
        """Return who it is, for messages."""
        return f"run {self.run} (process {self.pid} on {self.host})"

    def shares_clock(self, other: Holder) -> bool:
        """Return whether both are on the same boot of one machine, so that each can look up the other's process."""
        return (self.boot, self.host) == (other.boot, other.host)


class LeaseState(NamedTuple):
    """A job's lease as this process saw it."""

    holder: Holder | None
    """The last holder that did not release it; None: the lease was released or never taken."""
    at_work: bool
    """Whether that run is still running; if not, it has failed or was killed."""
    certain: bool = True
    """Whether `at_work` is known: for a run on another machine, only once it was seen to renew the lease."""

    @property
    def worker(self) -> Holder | None:
        """The run that has the job."""
        return self.holder if self.at_work else None

    @property
    def left(self) -> Holder | None:
        """The last run of the job, if it did not end in order."""
        return None if self.at_work else self.holder


def free_in(holder: Holder, here: Holder, alive: bool, now: float, seen_at: float) -> float:
    """Return the seconds until a lease may be taken; 0 or less if it is free. Pure.

    `here` is this process, `now` its monotonic clock, `seen_at` when it first saw this renewal. `alive` tells whether
    this machine has the holder's process.
    """
    if not holder.shares_clock(here):
        return seen_at + holder.ttl * _MARGIN - now
    return holder.renewed_at + holder.ttl * _MARGIN - now if alive else 0.0


def this_process(
    run: str, ttl: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic, since: int = 0
) -> Holder:
    """Return this process as a holder whose lease begins now."""
    pid = os.getpid()
    return Holder(run, socket.gethostname(), boot_id() + _processes(), pid, _process_started(pid), clock(), ttl, since)


class JobLease:
    """A run's access to the job's lease: a cell that a thread renews while the run holds the lease."""

    def __init__(
        self, connection: Connection, run: str, ttl: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the connection to the job's cells."""
        self._connection = connection
        self._cell = connection.writer(HOLDER, Holder, namespace=ORDERS, type_name="tidewheel.JobHolder")
        self._run, self._ttl, self._clock = run, ttl, clock
        self._since = time.time_ns()
        self._phase: str | None = None
        self._done, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, job: str, take_over: bool = False) -> None:
        """Take the lease and keep renewing it; a `HeldError` says who holds it.

        Of several that try at the same moment one gets it. A holder on another machine is watched until it renews, or
        has not renewed for the whole duration of its lease. With `take_over`, do not wait.
        """
        while self._thread is None:
            exchange = self._take(self._cell.refresh().version if take_over else self._free(job))
            if not exchange.applied and exchange.seen is not None and not take_over:
                raise _held(job, exchange.seen)

    def take(self, version: int) -> bool:
        """Take the lease if its cell still has this version, at which a `LeaseWatch` saw it free; return whether it is held."""
        return self._thread is not None or self._take(version).applied

    def _take(self, version: int) -> Exchange[Holder]:
        exchange = self._cell.compare_exchange_at(version, self._this_process())
        if exchange.applied:
            self._wake.clear()
            self._thread = threading.Thread(target=self._keep, name="tidewheel-lease", daemon=True)
            self._thread.start()
        return exchange

    def check(self, job: str) -> None:
        """Raise a `HeldError` if somebody else has taken the lease since it was acquired."""
        holder = self._cell.refresh().value
        if holder is not None and holder.run != self._run:
            raise _held(job, holder)

    def enter(self, phase: str | None) -> None:
        """Show others the phase of this run's start; None: the start is over. Returns immediately."""
        if phase != self._phase:
            self._phase = phase
            self._wake.set()

    @contextmanager
    def held(self, job: str, take_over: bool = False) -> Iterator[None]:
        """Hold the lease for a block."""
        self.acquire(job, take_over)
        try:
            yield
        finally:
            self.release()

    def release(self, *, failed: bool = False) -> None:
        """Stop renewing, and release the lease if this run still holds it. `failed` is shown in the job's status."""
        self._done.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            # A duration of zero: other runs, also of earlier versions, take the lease at once.
            left = msgspec.structs.replace(self._this_process(), ttl=0.0, failed=True) if failed else None
            # Where the cell is out of reach, the lease lapses by itself.
            with suppress(CellError):
                self._replace(left)

    def _free(self, job: str) -> int:
        """Return the version of the lease's cell; raise `HeldError` if another running process holds the lease."""
        watch = LeaseWatch(self._connection, self._clock)
        holder = watch.settled().worker
        if holder is not None and holder.run != self._run:
            raise _held(job, holder)
        return watch.version

    def _keep(self) -> None:
        while True:
            self._wake.wait(self._ttl / 3)
            self._wake.clear()
            if self._done.is_set():
                return
            try:
                if not self._replace(self._this_process()):
                    return  # Taken over: the next commit will say so.
            except CellError:
                # If the store is unreachable, the next commit fails with a better message.
                continue

    def _replace(self, holder: Holder | None) -> bool:
        """Change the lease if it is still this run's."""
        standing = self._cell.refresh()
        if standing.value is None or standing.value.run != self._run:
            return False
        return self._cell.compare_exchange_at(standing.version, holder).applied

    def _this_process(self) -> Holder:
        holder = this_process(self._run, self._ttl, self._clock, self._since)
        return msgspec.structs.replace(holder, phase=self._phase)


class LeaseWatch:
    """Reads a job's lease repeatedly, without waiting, to find out whether the job runs."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the connection to the job's cells."""
        self._cell = connection.reader(HOLDER, Holder, namespace=ORDERS, type_name="tidewheel.JobHolder")
        self._clock = clock
        self._version, self._seen_at = -1, 0.0
        self.version = -1
        """The version of the lease's cell at the last look."""
        self._renewals = 0

    def look(self) -> LeaseState:
        """Return who holds the job, or did so last."""
        standing = self._cell.refresh()
        holder, self.version = standing.value, standing.version
        if holder is None:
            return LeaseState(None, False)
        if standing.version != self._version:
            self._version, self._seen_at = standing.version, self._clock()
            self._renewals += 1
        here = this_process("", clock=self._clock)
        alive = _process_started(holder.pid) == holder.process_started
        if free_in(holder, here, alive, self._clock(), self._seen_at) <= 0:
            return LeaseState(holder, False)
        return LeaseState(holder, True, holder.shares_clock(here) or self._renewals > 1)

    def settled(self) -> LeaseState:
        """Return who holds the job, or did so last, for certain.

        A holder on another machine is watched until it renews, or has not done so for the whole of its time.
        """
        while True:
            lease = self.look()
            if lease.certain or lease.holder is None:
                return lease
            self.wait(max(0.0, self._seen_at + lease.holder.ttl * _MARGIN - self._clock()))

    def wait(self, seconds: float) -> None:
        """Wait until the lease's cell changes after the last look, at most for so many seconds."""
        with suppress(TimeoutError):
            self._cell.when.updated(timedelta(seconds=seconds), since=self.version)


def _held(job: str, holder: Holder) -> HeldError:
    here = this_process("")
    if holder.shares_clock(here) and (holder.pid, holder.process_started) == (here.pid, here.process_started):
        return held_here(job, f"run {holder.run}")
    return HeldError(
        f"job {job!r} is held by {holder.describe()}; wait until it ends, or take it over with --take-over "
        "(take_over=True), which stops it at its next commit"
    )


def held_here(job: str, run: str = "a run", state: str | None = None) -> HeldError:
    """Return the error of a second run in one process; `run` is the first, `state` where the job's state is, if that is known."""
    place = "" if state is None else f", state={str(Url(state))!r}"
    return HeldError(
        f"job {job!r} is held by {run} of this process; end that one first: run.stop(), then run.wait(), where run is what the "
        f"earlier job.start(…) returned, or StoredJob({job!r}{place}).stop(). Or take it over with take_over=True, which stops "
        "it at its next commit"
    )


def _processes() -> str:
    """Return a name for the processes that this one sees: containers may share a host name, and see each their own."""
    try:
        return f" {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


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
